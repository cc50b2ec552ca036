"""Several ranks process the same batches, compute the same gradient and write the same file as one process."""

import json
import re
import signal
import subprocess
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
import torch
from conftest import TOY_SETTINGS
from helpers import harness, points
from helpers.harness import outcome
from helpers.processes import HANGS
from helpers.ranks import LAUNCH, LAUNCHED, free_port, list_rows, run_ranks, set_timeouts, start_ranks

from mtcli.errors import DataError, UsageError
from mtcli.runtime import distributed, torchrun
from mtcli.runtime.device import pick_device
from mtcli.runtime.distributed import Group, join
from mtcli.runtime.files import folder_lock
from mtcli.storage import checkpoint
from mtcli.training.session import Session

Train = Callable[..., Path]
STEPS = 24


@pytest.fixture(scope="session")
def command(toy_tsv: Path) -> Callable[..., list[str]]:
    """Return the arguments of `mtcli train` for the toy."""

    def words(out: Path, *more: str, steps: int = STEPS) -> list[str]:
        sets = [word for setting in [*TOY_SETTINGS, *more] for word in ("--set", setting)]
        files = ["--train", str(toy_tsv), "--src", "en", "--tgt", "xx", "--out", str(out)]
        return ["train", *files, "--max-steps", str(steps), *sets]

    return words


@pytest.fixture(scope="session")
def two(command: Callable[..., list[str]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder, trained by two ranks under torchrun itself."""
    run = tmp_path_factory.mktemp("two") / "run"
    launch = [*LAUNCH, "--nproc-per-node", "2", "-m", "mtcli", *command(run)]
    done = subprocess.run(launch, capture_output=True, text=True, timeout=HANGS, cwd=run.parent)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    warnings = ("are too few to choose the best model", "far too few for a usable translator")
    for said in ("device: ", "training the tokenizer", "step 20, ", "finished at step 24 ", *warnings):
        assert done.stderr.count(said) == 1, done.stderr  # only rank 0 logs
    assert "for each of 2 ranks" in done.stderr
    assert "Warning: " not in done.stderr
    return run


def training(run: Path, event: str) -> list[dict[str, float]]:
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [{k: v for k, v in line.items() if isinstance(v, float)} for line in lines if line["event"] == event]


def weights(run: Path) -> dict[str, torch.Tensor]:
    return checkpoint.latest(run / "checkpoints").model  # type: ignore[union-attr]


def test_two_ranks_equal_one_that_accumulates_two_batches(two: Path, train_toy: Train, tmp_path: Path) -> None:
    one = train_toy(tmp_path / "one", f"train.max_steps={STEPS}", "train.accumulate=2")
    ours = weights(two)
    theirs = weights(one)
    for name, tensor in ours.items():  # times two and halved is exact, and a sum of two has one order
        assert torch.equal(tensor, theirs[name])
    states = [checkpoint.latest(run / "checkpoints").state for run in (two, one)]  # type: ignore[union-attr]
    for name in ("step", "epoch", "batch", "tokens", "best_step"):
        assert states[0][name] == states[1][name]
    assert states[0]["loss"] == pytest.approx(states[1]["loss"], rel=1e-5)
    for ours_, theirs_ in zip(training(two, "valid"), training(one, "valid"), strict=True):
        assert ours_["loss"] == pytest.approx(theirs_["loss"], rel=1e-4)


@pytest.mark.slow
def test_two_ranks_that_accumulate_two_equal_one_that_accumulates_four(
    command: Callable[..., list[str]], train_toy: Train, tmp_path: Path
) -> None:
    one = train_toy(tmp_path / "one", "train.max_steps=6", "train.accumulate=4")
    results = run_ranks(2, *command(tmp_path / "two", "train.accumulate=2", steps=6))
    assert [result.code for result in results] == [0, 0], results
    theirs = weights(one)
    for name, tensor in weights(tmp_path / "two").items():  # (a + c) + (b + d) for a + b + c + d: float32's last bits
        if not name.endswith("w_k.bias"):  # softmax cancels it: its gradient is rounding alone, which Adam makes large
            torch.testing.assert_close(tensor, theirs[name], rtol=1e-3, atol=1e-5)


def test_stopped_and_resumed_two_ranks_end_with_the_same_bits(
    two: Path, command: Callable[..., list[str]], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    stop = {1: [partial(points.strike_in, points.BACKWARD, 8, signal.SIGTERM)]}  # any rank may get it
    results = run_ranks(2, *command(run), within=stop)
    assert [result.code for result in results] == [143, 143], results
    step = json.loads((checkpoint.steps(run / "checkpoints")[-1] / "state.json").read_bytes())["step"]
    assert sum(f"stopped by the signal SIGTERM at step {step};" in result.err for result in results) == 2
    assert [result.code for result in run_ranks(2, *command(run))] == [0, 0]
    ended = outcome(run)
    wanted = outcome(two)
    assert {name for name in ended if ended[name] != wanted.get(name)} <= {"config.toml"}
    assert ended.keys() == wanted.keys()


def test_ranks_that_agree_every_seventh_step_end_with_the_same_bits(
    two: Path, command: Callable[..., list[str]], tmp_path: Path
) -> None:
    """On GPUs, ranks exchange the time and signals not in every step. Both notice a signal in the same one."""
    logs = [tmp_path / str(rank) for rank in range(2)]
    within = {rank: [partial(agree_seldom, log)] for rank, log in enumerate(logs)}
    within[1].append(partial(points.strike_in, points.BACKWARD, 12, signal.SIGTERM))
    run = tmp_path / "run"
    results = run_ranks(2, *command(run), within=within)
    assert [result.code for result in results] == [143, 143], results
    stops = [int(re.search(r"at step (\d+);", result.err)[1]) for result in results]  # type: ignore[index]
    assert stops[0] == stops[1]
    assert stops[0] >= 11
    exchanges = [log.read_text().count("agree") for log in logs]
    assert exchanges[0] == exchanges[1]
    assert exchanges[0] < stops[0] - 2
    results = run_ranks(2, *command(run), within={rank: [partial(agree_seldom, log)] for rank, log in enumerate(logs)})
    assert [result.code for result in results] == [0, 0], results
    ended = outcome(run)
    wanted = outcome(two)
    assert {name for name in ended if ended[name] != wanted.get(name)} <= {"config.toml"}


@pytest.mark.parametrize(
    ("device", "ranks", "step_seconds", "steps"),
    [
        ("cuda", 2, 0.05, 10),
        ("cuda", 2, 0.0, 1),
        ("cuda", 2, 2.0, 1),
        ("cuda", 2, 1e-4, 50),
        ("cuda", 1, 0.05, 1),
        ("cpu", 2, 0.05, 1),
    ],
)
def test_gpus_agree_twice_a_second(device: str, ranks: int, step_seconds: float, steps: int) -> None:
    session: Any = SimpleNamespace(group=SimpleNamespace(size=ranks), device=torch.device(device))
    assert Session.steps_between_agreements(session, step_seconds) == steps


def agree_seldom(log: Path) -> None:
    """Let the ranks exchange time and signals every seventh step, as on GPUs, and list the exchanges in a file."""
    agree = Session.agree_on_time

    def agree_on_time(self: Session, signal_number: int) -> int:
        with log.open("a") as file:
            file.write("agree\n")
        return agree(self, signal_number)

    patch.object(Session, "agree_on_time", agree_on_time).start()
    patch.object(Session, "steps_between_agreements", lambda self, step_seconds: 7).start()


def test_each_rank_reads_its_own_pairs_only(command: Callable[..., list[str]], tmp_path: Path) -> None:
    logs = [tmp_path / str(rank) for rank in range(2)]
    within = {rank: [partial(list_rows, log)] for rank, log in enumerate(logs)}
    words = command(tmp_path / "run", "train.accumulate=2", steps=4)  # of sixteen batches: an epoch
    results = run_ranks(2, *words, within=within)
    assert [result.code for result in results] == [0, 0], results
    read = [log.read_text().split() for log in logs]
    pairs = training_pairs(tmp_path / "run")
    assert len(read[0]) + len(read[1]) == pairs
    assert len({*read[0], *read[1]}) == pairs
    assert min(map(len, read)) > pairs / 4


def training_pairs(run: Path) -> int:
    found: int = json.loads((run / "metrics.jsonl").read_text().splitlines()[0])["train"]
    return found


def test_another_number_of_ranks_is_refused(two: Path, train_toy: Train) -> None:
    before = outcome(two)
    with pytest.raises(UsageError, match=r"began with 2 ranks, and this command has 1; start 2 \(torchrun"):
        train_toy(two, f"train.max_steps={STEPS}")
    assert outcome(two) == before


def test_a_killed_rank_ends_the_other_with_a_line(command: Callable[..., list[str]], tmp_path: Path) -> None:
    kill = {1: [partial(points.strike_in, points.BACKWARD, 5)]}
    first, second = run_ranks(2, *command(tmp_path / "run"), within=kill)
    assert (first.code, second.code) == (8, -signal.SIGKILL), first.err
    assert first.last == (
        "mtcli: rank 0: the connection to another rank was closed; run the same command again to resume"
    )


@pytest.mark.parametrize(
    ("more", "codes", "said"),
    [(("train.lr=1e30",), [6, 6], "the loss is "), (("data.max_length=1",), [3, 8], "no pair to train on")],
)
def test_a_failure_of_rank_0_ends_all(
    command: Callable[..., list[str]], tmp_path: Path, more: tuple[str, ...], codes: list[int], said: str
) -> None:
    results = run_ranks(2, *command(tmp_path / "run", *more))
    assert [result.code for result in results] == codes, results
    assert [result.err.count("mtcli: ") for result in results] == [1, 1]
    assert said in results[0].last


def test_a_failure_of_one_rank_ends_all(command: Callable[..., list[str]], tmp_path: Path) -> None:
    results = run_ranks(3, *command(tmp_path / "run"), within={1: [partial(fail_in_backward, 5)]})
    assert [result.code for result in results] == [8, 3, 8], results
    assert results[1].last == "mtcli: broken"


def fail_in_backward(nth: int) -> None:
    def fail() -> None:
        raise DataError("broken")

    call_in_backward(nth, fail)


def call_in_backward(nth: int, function: Callable[[], None]) -> None:
    """Call a function before the nth backward pass of this process."""
    seen = []
    real = torch.autograd.grad

    def backward(*args: Any, **options: Any) -> Any:
        seen.append(nth)
        if len(seen) == nth:
            function()
        return real(*args, **options)

    torch.autograd.grad = backward  # type: ignore[assignment]


def test_a_rank_without_progress_ends_the_other_after_the_timeout(
    command: Callable[..., list[str]], tmp_path: Path
) -> None:
    """The process lives and its connections stay open, so that only the timeout of a collective can notice it."""
    within = {0: [partial(call_in_backward, 5, shorten_timeout)], 1: [partial(hang_in_backward, 5)]}
    children = start_ranks(2, *command(tmp_path / "run"), within=within)
    result = children[0].wait()
    children[1].send(signal.SIGKILL)  # as torchrun does
    children[1].wait()
    assert result.code == 8
    assert result.last == "mtcli: rank 0: another rank did not answer in time; run the same command again to resume"


def shorten_timeout() -> None:
    """Set the timeout of the gradients to a second. It begins here, so that a slow start of the ranks is no failure."""
    torch.distributed.distributed_c10d._set_pg_timeout(timedelta(seconds=1))


def hang_in_backward(nth: int) -> None:
    call_in_backward(nth, partial(time.sleep, 2 * HANGS))


@pytest.mark.slow
def test_rank_0_without_progress_ends_the_other_after_the_timeout_of_its_work(
    command: Callable[..., list[str]], tmp_path: Path
) -> None:
    children = start_ranks(2, *command(tmp_path / "run"), within={0: [hang_in_validation]}, work_timeout=4.0)
    result = children[1].wait()
    children[0].send(signal.SIGKILL)
    children[0].wait()
    assert result.code == 8
    assert result.last == "mtcli: rank 1: another rank did not answer in time; run the same command again to resume"


def hang_in_validation() -> None:
    from mtcli.training import validation

    def validate(*arguments: Any, **options: Any) -> Any:
        time.sleep(2 * HANGS)

    patch.object(validation, "validate", validate).start()


@pytest.mark.parametrize(("device", "backend"), [("cuda:0", "cpu:gloo,cuda:nccl"), ("cpu", "gloo")])
def test_gradients_have_the_timeout_of_a_step(device: str, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch's watchdog ends a process whose NCCL collective exceeds this timeout."""
    groups: list[dict[str, Any]] = []

    def init(backend: str, **options: Any) -> None:
        groups.append({"backend": backend, **options})

    def new_group(**options: Any) -> None:
        groups.append(options)

    monkeypatch.setattr(distributed, "rendezvous", lambda *arguments, **options: iter([(None, 0, 2)]))
    monkeypatch.setattr(distributed, "PrefixStore", lambda *arguments: None)
    monkeypatch.setattr(distributed.dist, "init_process_group", init)
    monkeypatch.setattr(distributed.dist, "new_group", new_group)
    monkeypatch.setattr(distributed.dist, "destroy_process_group", lambda: None)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    for name, value in LAUNCHED.items():
        monkeypatch.setenv(name, value)
    with join(torch.device(device)):
        pass
    step, work = groups
    assert (step["backend"], step["timeout"]) == (backend, distributed.STEP_TIMEOUT)
    assert (work["backend"], work["timeout"]) == ("gloo", distributed.WORK_TIMEOUT)
    assert timedelta(minutes=10) == distributed.STEP_TIMEOUT
    assert timedelta(hours=24) == distributed.WORK_TIMEOUT


def test_a_folder_in_use_ends_all(command: Callable[..., list[str]], tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    with folder_lock(tmp_path / "run"):
        results = run_ranks(2, *command(tmp_path / "run"))
    assert [result.code for result in results] == [7, 8], results


@pytest.mark.slow
def test_three_ranks_resumed_add_in_the_same_order(command: Callable[..., list[str]], tmp_path: Path) -> None:
    """The sum of three floats depends on their order, and so on the buckets of DDP; the sum of two does not."""
    sizes = ("model.d_model=256", "model.d_ff=512")  # 1.5 million parameters: several buckets
    sizes += ('train.schedule="paper"',)  # which does not depend on the budget
    whole = tmp_path / "whole"
    parts = tmp_path / "parts"
    for steps, run in ((12, whole), (7, parts), (12, parts)):
        assert [result.code for result in run_ranks(3, *command(run, *sizes, steps=steps))] == [0] * 3
    for name, tensor in weights(whole).items():
        assert torch.equal(tensor, weights(parts)[name])


def test_two_ranks_translate_a_file_like_one(two: Path, tmp_path: Path) -> None:
    lines = [f"red {'tree ' * (i % 5)}{i}" if i % 7 else "" for i in range(90)]
    (tmp_path / "in").write_text("\n".join(lines))
    words = ("translate", "--model", two, "-i", "in", "--max-length", "3", "--device", "cpu")
    small = partial(shrink_windows, 8)  # twelve windows: more than one digit numbers
    for options in ((), ("--n-best", "2", "--format", "json"), ("--sample", "--seed", "5")):
        for n, out in ((1, "one"), (2, "both")):
            (tmp_path / f".{out}.parts").mkdir(exist_ok=True)
            (tmp_path / f".{out}.parts" / "99").write_text("left by one that was killed")
            each = {rank: [small] for rank in range(n)}
            results = run_ranks(n, *words, "-o", out, *options, cwd=tmp_path, within=each)
            assert [result.code for result in results] == [0] * n, results
        assert (tmp_path / "both").read_bytes() == (tmp_path / "one").read_bytes()
    assert not (tmp_path / ".both.parts").exists()


def shrink_windows(lines: int) -> None:
    from mtcli.translate import sharding, windows

    patch.object(windows, "WINDOW", lines).start()
    patch.object(sharding, "WINDOW", lines).start()


def test_a_failure_in_translating_ends_all_and_leaves_the_old_file(two: Path, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"red tree\n" * 40 + b"\xff\n")
    (tmp_path / "out").write_text("old")
    each = {rank: [partial(shrink_windows, 16)] for rank in range(2)}
    results = run_ranks(2, "translate", "--model", two, "-i", "in", "-o", "out", cwd=tmp_path, within=each)
    assert results[0].code == 3
    assert "in:41" in results[0].last
    assert results[1].code in (3, 8)  # it reads the same line, or finds that rank 0 has ended
    assert results[1].err.count("mtcli: ") == 1
    assert (tmp_path / "out").read_text() == "old"
    assert (tmp_path / "out.partial").read_text().count("\n") in (16, 32)
    assert f"lines of the output are in {tmp_path / 'out.partial'}" in results[0].err
    assert not (tmp_path / ".out.parts").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "translate files, not standard input"),
        (("-i", "in"), "translate files, not standard input or output"),
        (("-o", "out"), "translate files, not standard input"),
        (("-o", "out", "Hello"), "translate files, not standard input"),
    ],
)
def test_streams_cannot_be_shared(monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], said: str) -> None:
    from mtcli.cli import app

    for name, value in LAUNCHED.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match=said):
        app(["translate", *words], standalone_mode=False)


@pytest.mark.parametrize("words", [["eval"], ["average", "x"], ["data", "check", "x"]])
def test_commands_for_one_process_are_refused_under_torchrun(monkeypatch: pytest.MonkeyPatch, words: list[str]) -> None:
    from mtcli.cli import app

    for name, value in (LAUNCHED | {"TORCHELASTIC_RUN_ID": "x"}).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match=f"{words[0]}: one process"):
        app(words, standalone_mode=False)


@pytest.mark.parametrize("environment", [{"WORLD_SIZE": "16"}, LAUNCHED], ids=["size alone", "all but torchrun"])
def test_variables_of_a_cluster_do_not_stop_commands_for_one_process(
    toy_run: Path, environment: dict[str, str]
) -> None:
    done = harness.run("info", toy_run, env=environment)
    assert (done.code, done.err) == (0, "")


def test_a_rank_has_all_variables_of_its_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in LAUNCHED.items():
        assert torchrun.size() == 1
        monkeypatch.setenv(name, value)
    assert (torchrun.size(), torchrun.rank()) == (2, 0)
    monkeypatch.setenv("RANK", "2")
    with pytest.raises(UsageError, match="RANK=2 with WORLD_SIZE=2"):
        torchrun.rank()
    for wrong in ("two", "-1", "1e3", "9" * 30):
        monkeypatch.setenv("WORLD_SIZE", wrong)
        with pytest.raises(UsageError, match=f"WORLD_SIZE={wrong}"):
            torchrun.size()


def test_a_world_size_without_the_other_variables_is_reported_and_ignored(toy_run: Path, tmp_path: Path) -> None:
    done = harness.run("translate", "--model", toy_run, "red tree.", env={"WORLD_SIZE": "16"})
    assert done.code == 0
    assert "WORLD_SIZE=16 is ignored, without RANK and MASTER_ADDR and MASTER_PORT" in done.err


def test_a_restart_does_not_overwrite_the_run_it_resumes(
    train_toy: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = train_toy(tmp_path / "run", "train.max_steps=5")
    before = outcome(run)
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    train_toy(run, "train.max_steps=5", overwrite=True)
    assert outcome(run) == before


def test_a_group_of_one_returns_its_own_values() -> None:
    assert (torchrun.size(), torchrun.rank()) == (1, 0)
    with join(torch.device("cpu")) as group:
        assert type(group) is Group
        assert group.is_main
        assert group.broadcast({"a": [1]}) == {"a": [1]}
        assert group.all_reduce_sum(torch.tensor([1.5])).tolist() == group.all_reduce_max([1.5]) == [1.5]
        group.barrier()
    assert not torch.distributed.is_initialized()


def test_each_rank_of_a_machine_uses_its_own_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    for name, value in (LAUNCHED | {"WORLD_SIZE": "8", "RANK": "6", "LOCAL_RANK": "2"}).items():
        monkeypatch.setenv(name, value)
    assert pick_device() == pick_device("cuda") == torch.device("cuda:2")
    assert pick_device("cpu") == torch.device("cpu")
    with pytest.raises(UsageError, match="write --device cuda"):
        pick_device("cuda:1")
    monkeypatch.setenv("LOCAL_RANK", "4")
    with pytest.raises(UsageError, match="--nproc-per-node 4"):
        pick_device()


def test_a_rank_that_does_not_start_ends_the_others(command: Callable[..., list[str]], tmp_path: Path) -> None:
    """The timeout of each rank begins at its own start."""
    environment = {"WORLD_SIZE": "2", "RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    result = harness.run(*command(tmp_path / "run"), env=environment, within=[partial(set_timeouts, 1.0, 1.0)])
    assert result.code == 8
    assert "rank 0 cannot connect to the other 1 (" in result.last
    assert not (tmp_path / "run").exists()
