import gzip
import hashlib
import json
import os
import shutil
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from conftest import TOY_SETTINGS, toy_pairs
from helpers.harness import start, until

from mtcli.config.build import build
from mtcli.corpus import batching
from mtcli.corpus.cache import encoded_pairs
from mtcli.corpus.cache.encoded_pairs import EncodedPairs, Ints, Rows
from mtcli.errors import (
    DataError,
    DivergedError,
    InterruptedTrainingError,
    LockedError,
    ModelError,
    StorageError,
    UsageError,
)
from mtcli.runtime.files import folder_lock
from mtcli.storage import checkpoint, model_file
from mtcli.storage.state import State, figures_of, score_of
from mtcli.training.evaluator import Evaluator
from mtcli.training.request import InitialModel, resolve
from mtcli.training.run import train
from mtcli.training.saving import Checkpoints
from mtcli.training.time.budget import Budget
from mtcli.training.trainer import Trainer

Train = Callable[..., Path]


def digest(run: Path) -> dict[str, str]:
    """SHA-256 of every tensor file and the state (clocks apart) of a run's newest checkpoint, and of its model."""
    newest = checkpoint.steps(run / "checkpoints")[-1]
    files = {p.name: p.read_bytes() for p in sorted(newest.glob("*.safetensors"))}
    state = json.loads((newest / "state.json").read_text())
    files["state"] = json.dumps({k: v for k, v in state.items() if k not in CLOCKS}).encode()
    files["published"] = (run / "model.safetensors").read_bytes()
    return {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}


CLOCKS = ("seconds", "validation_seconds", "metrics_bytes")


def metrics(run: Path) -> list[dict[str, object]]:
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if k != "seconds"} for line in lines]


def write_forms(folder: Path, pairs: list[tuple[str, str]]) -> dict[str, str]:
    """The same pairs as two files, two gzip files, TSV, JSON lines and Parquet."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    sides = {name: "".join(f"{pair[i]}\n" for pair in pairs).encode() for i, name in enumerate(("en", "xx"))}
    for name, content in sides.items():
        (folder / f"plain.{name}").write_bytes(content)
        (folder / f"zipped.{name}.gz").write_bytes(gzip.compress(content))
    (folder / "t.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in pairs))
    records = [{"translation": {"en": a, "xx": b}} for a, b in pairs]
    (folder / "j.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    pq.write_table(pa.Table.from_pylist(records), folder / "p.parquet")
    forms = {"prefix": "plain", "gzip": "zipped", "tsv": "t.tsv", "jsonl": "j.jsonl", "parquet": "p.parquet"}
    return {form: str(folder / name) for form, name in forms.items()}


def test_the_same_pairs_in_every_file_format_train_identically(train_toy: Train, tmp_path: Path) -> None:
    found = {}
    for form, spec in write_forms(tmp_path, toy_pairs(120)).items():
        run = train_toy(tmp_path / f"run-{form}", "train.max_steps=4", spec=spec)
        found[form] = (digest(run), metrics(run), (run / "tokenizer.json").read_bytes())
    assert len(found) == 5
    assert all(one == found["prefix"] for one in found.values())


@pytest.mark.parametrize(
    ("extra", "block"),
    [
        ([], batching.BLOCK_ROWS),
        (["train.accumulate=3"], 90),  # four blocks per epoch; a step has batches of two blocks
        (['train.schedule="cosine"', "train.valid_every=7"], batching.BLOCK_ROWS),
        (['train.precision="bf16"'], batching.BLOCK_ROWS),
        (['data.variants="on"'], 90),
    ],
)
def test_interrupted_and_resumed_equals_uninterrupted(
    train_toy: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, extra: list[str], block: int
) -> None:
    monkeypatch.setattr(batching, "BLOCK_ROWS", block)
    monkeypatch.setattr(batching, "BLOCK_ROWS_WITH_VARIANTS", block)
    monkeypatch.setattr(encoded_pairs, "CHUNK_ROWS", 20)
    sets = ["train.max_steps=24", "train.keep=2", *extra]
    whole = train_toy(tmp_path / "whole", *sets)
    step = Trainer.step
    parts = tmp_path / "parts"
    for stop in (3, 11, 20):
        monkeypatch.setattr(Trainer, "step", interrupting(step, stop))
        with pytest.raises(InterruptedTrainingError) as caught:
            train_toy(parts, *sets)
        assert caught.value.exit_code == 143
    monkeypatch.setattr(Trainer, "step", step)
    train_toy(parts, *sets)
    assert digest(parts) == digest(whole)
    assert metrics(parts) == metrics(whole)


def interrupting(step: Callable[..., object], stop: int) -> Callable[..., object]:
    def wrapped(self: Trainer, rows: object) -> object:
        done = step(self, rows)
        if self.session.state.step == stop:
            os.kill(os.getpid(), signal.SIGTERM)
        return done

    return wrapped


def test_a_signal_at_a_step_that_is_to_be_validated_saves_at_once(
    train_toy: Train, toy_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refusing(self: Evaluator) -> None:
        raise AssertionError("the validation delays the checkpoint")

    parts = tmp_path / "parts"
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "step", interrupting(Trainer.step, 10))
        patch.setattr(Evaluator, "validate", refusing)
        with pytest.raises(InterruptedTrainingError, match="at step 10"):
            train_toy(parts, "train.max_steps=20")
    train_toy(parts, "train.max_steps=20")
    assert digest(parts) == digest(toy_run)
    assert metrics(parts) == metrics(toy_run)


def test_a_kill_in_the_final_work_costs_no_step(
    train_toy: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(self: Evaluator, *, is_last: bool) -> None:
        raise KeyboardInterrupt

    sets = ("train.max_steps=8",)
    parts = tmp_path / "parts"
    with monkeypatch.context() as patch:
        patch.setattr(Evaluator, "validate", killed)
        with pytest.raises(KeyboardInterrupt):
            train_toy(parts, *sets)
    assert [checkpoint.step_of(path) for path in checkpoint.steps(parts / "checkpoints")] == [5, 8]
    whole = train_toy(tmp_path / "whole", *sets)
    train_toy(parts, *sets)
    assert digest(parts) == digest(whole)
    assert metrics(parts) == metrics(whole)


def test_a_device_that_runs_ahead_changes_nothing_but_the_clocks(
    train_toy: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Figures are read one step late, and a thread loads the batches."""
    monkeypatch.setattr("mtcli.training.trainer.LOG_EVERY", 7)
    sets = ["train.max_steps=24", "train.accumulate=2"]
    whole = train_toy(tmp_path / "whole", *sets)
    threads = threading.enumerate()
    for module in ("trainer", "loading"):
        monkeypatch.setattr(f"mtcli.training.{module}.runs_ahead", lambda device: True)
    step = Trainer.step
    parts = tmp_path / "parts"
    monkeypatch.setattr(Trainer, "step", interrupting(step, 13))
    with pytest.raises(InterruptedTrainingError, match="at step 13"):
        train_toy(parts, *sets)
    assert threading.enumerate() == threads
    monkeypatch.setattr(Trainer, "step", step)
    train_toy(parts, *sets)
    assert threading.enumerate() == threads
    assert digest(parts) == digest(whole)
    assert metrics(parts) == metrics(whole)


def test_a_failure_of_the_thread_that_loads_batches_ends_training(
    train_toy: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(self: EncodedPairs, rows: Ints) -> tuple[Rows, Rows]:
        assert threading.current_thread() is not threading.main_thread()
        raise DataError("the disk is gone")

    monkeypatch.setattr("mtcli.training.loading.runs_ahead", lambda device: True)
    monkeypatch.setattr(EncodedPairs, "gather", failing)
    threads = threading.enumerate()
    with pytest.raises(DataError, match="the disk is gone"):
        train_toy(tmp_path / "run", "train.max_steps=2")
    assert threading.enumerate() == threads


@pytest.fixture(scope="module")
def whole(train_toy: Train, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 15 steps. Do not change it."""
    return train_toy(tmp_path_factory.mktemp("runs") / "whole", "train.max_steps=15")


def test_steps_after_the_last_checkpoint_are_repeated_exactly(
    train_toy: Train, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Crash(BaseException):
        pass

    def crashing(self: Trainer, rows: object) -> object:
        if self.session.state.step == 8:
            raise Crash
        return step(self, rows)  # type: ignore[arg-type]

    step = Trainer.step
    monkeypatch.setattr(Trainer, "step", crashing)
    with pytest.raises(Crash):
        train_toy(tmp_path / "parts", "train.max_steps=15")
    monkeypatch.setattr(Trainer, "step", step)
    parts = train_toy(tmp_path / "parts", "train.max_steps=15")
    assert digest(parts) == digest(whole)
    assert metrics(parts) == metrics(whole)


def test_a_finished_run_is_unchanged_and_a_larger_budget_continues_it(train_toy: Train, tmp_path: Path) -> None:
    run = train_toy(tmp_path / "run", "train.max_steps=10")
    before = {p: (p.stat().st_mtime_ns, p.read_bytes()) for p in run.rglob("*") if p.is_file() and p.name != ".lock"}
    train_toy(run, "train.max_steps=10")
    assert not [p for p, was in before.items() if (p.stat().st_mtime_ns, p.read_bytes()) != was]
    train_toy(run, "train.max_steps=15")
    assert checkpoint.latest(run / "checkpoints").state["step"] == 15  # type: ignore[union-attr]


@pytest.mark.parametrize("budget", [["train.max_steps=5"], ["train.max_steps=30", "train.time=1e-3"]])
def test_a_smaller_budget_does_not_change_a_finished_run(
    train_toy: Train, toy_run: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, budget: list[str]
) -> None:
    run = shutil.copytree(toy_run, tmp_path / "run")
    files = [path for path in run.rglob("*") if path.is_file() and path.name != ".lock"]
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in files}
    with caplog.at_level("INFO"):
        train_toy(run, *budget)
    assert {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in files} == before
    assert "this budget is not larger than the one it used: nothing changes" in caplog.text
    assert "finished at step 20" in caplog.text


def test_another_configuration_is_refused_with_the_differences(train_toy: Train, tmp_path: Path) -> None:
    run = train_toy(tmp_path / "run", "train.max_steps=5")
    with pytest.raises(UsageError, match=r"train\.lr: 0\.003 → 0\.5") as caught:
        train_toy(run, "train.max_steps=5", "train.lr=0.5")
    assert "--overwrite" in str(caught.value)
    train_toy(run, "train.max_steps=3", "train.lr=0.5", overwrite=True)
    assert checkpoint.latest(run / "checkpoints").state["step"] == 3  # type: ignore[union-attr]


def test_a_folder_of_something_else_is_refused(train_toy: Train, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(UsageError, match=r"thesis\.txt"):
        train_toy(tmp_path, "train.max_steps=1", overwrite=True)
    assert (tmp_path / "thesis.txt").read_text() == "years of work"
    run = train_toy(tmp_path / "run", "train.max_steps=1")
    (run / "notes.txt").write_text("what I learnt")
    train_toy(run, "train.max_steps=1")
    with pytest.raises(UsageError, match=r"notes\.txt"):
        train_toy(run, "train.max_steps=1", overwrite=True)
    assert (run / "notes.txt").read_text() == "what I learnt"


def test_a_config_toml_of_the_user_is_not_overwritten(train_toy: Train, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("# mine")
    (tmp_path / "thesis.txt").write_text("years of work")
    for overwrite in (False, True):
        with pytest.raises(UsageError, match=r"thesis\.txt"):
            train_toy(tmp_path, "train.max_steps=1", overwrite=overwrite)
    assert (tmp_path / "config.toml").read_text() == "# mine"


def test_a_misspelt_name_leaves_nothing_behind(train_toy: Train, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere\.tsv"):
        train_toy(tmp_path / "run", spec=tmp_path / "nowhere.tsv")
    assert not list(tmp_path.iterdir())


def test_changed_data_is_refused(train_toy: Train, tmp_path: Path) -> None:
    forms = write_forms(tmp_path, toy_pairs(80))
    run = train_toy(tmp_path / "run", "train.max_steps=2", spec=forms["tsv"])
    Path(forms["tsv"]).write_text("red.\tder.\n" * 80)
    with pytest.raises(DataError, match="changed since this run began"):
        train_toy(run, "train.max_steps=4", spec=forms["tsv"])


def test_a_damaged_newest_checkpoint_falls_back_to_the_one_before(
    train_toy: Train, whole: Path, tmp_path: Path
) -> None:
    run = shutil.copytree(whole, tmp_path / "run")
    newest = checkpoint.steps(run / "checkpoints")[-1] / "optimizer.safetensors"
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 1
    newest.write_bytes(content)
    train_toy(run, "train.max_steps=15")
    assert digest(run) == digest(whole)
    for path in checkpoint.steps(run / "checkpoints"):
        (path / "state.json").write_text("{}")
    with pytest.raises(ModelError, match="every checkpoint is damaged"):
        train_toy(run, "train.max_steps=15")


def test_a_loss_that_is_not_finite_stops_training_and_keeps_the_last_checkpoint(
    train_toy: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def poisoned(self: Trainer, rows: object) -> object:
        if self.session.state.step == 7:
            next(self.learner.model.parameters()).data.fill_(float("nan"))
        return step(self, rows)  # type: ignore[arg-type]

    step = Trainer.step
    monkeypatch.setattr(Trainer, "step", poisoned)
    with pytest.raises(DivergedError, match="step 8"):
        train_toy(tmp_path / "run", "train.max_steps=15")
    monkeypatch.setattr(Trainer, "step", step)
    assert checkpoint.latest(tmp_path / "run" / "checkpoints").state["step"] == 5  # type: ignore[union-attr]


def test_weights_that_are_not_finite_are_never_saved(
    train_toy: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spoils(self: Trainer, rows: object) -> object:
        done = step(self, rows)  # type: ignore[arg-type]
        if self.session.state.step == 10:
            next(self.learner.model.parameters()).data[0] = float("inf")
        return done

    step = Trainer.step
    monkeypatch.setattr(Trainer, "step", spoils)
    with pytest.raises(DivergedError, match="step 10: it left weights that are not finite"):
        train_toy(tmp_path / "run", "train.max_steps=15", "train.valid_every=100")
    assert checkpoint.latest(tmp_path / "run" / "checkpoints").state["step"] == 5  # type: ignore[union-attr]


def test_weights_too_large_to_translate_with_stop_training(
    train_toy: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def enlarges(self: Trainer, rows: object) -> object:
        done = step(self, rows)  # type: ignore[arg-type]
        if self.session.state.step == 10:
            self.learner.model.get_parameter("decoder.0.feed_forward.w_1.weight").data.fill_(3e38)
        return done

    step = Trainer.step
    monkeypatch.setattr(Trainer, "step", enlarges)
    with pytest.raises(DivergedError, match="step 10: it left weights with which scores are not finite"):
        train_toy(tmp_path / "run", "train.max_steps=15", "train.valid_every=10")


@pytest.mark.parametrize(("schedule", "steps"), [("inverse_sqrt", 40), ("linear", 30)])
def test_early_stopping(
    schedule: str, steps: int, train_toy: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The learning rate is almost zero: no validation after the first is better, and two more exhaust the patience.
    monkeypatch.setattr("mtcli.training.trainer.LOG_EVERY", 1)
    sets = ["train.max_steps=500", "train.lr=1e-30", "train.warmup_steps=1", "train.patience=2"]
    run = train_toy(tmp_path / "run", *sets, f"train.schedule={schedule}")
    end = metrics(run)[-1]
    assert end["event"] == "end"
    assert str(end["reason"]).endswith("nothing improved")
    assert end["step"] == steps
    assert end["best_step"] == 10
    (scored,) = (m for m in metrics(run) if m["event"] == "test")
    assert scored["steps"] == [10]  # its checkpoint is kept, although many are newer
    # The cool-down is a quarter of the shortened budget: ten steps after thirty.
    rates = [float(str(m["lr"])) for m in metrics(run) if m["event"] == "train"]
    for step in range(31, steps + 1):
        assert rates[step - 1] == pytest.approx(1e-30 * step**-0.5 * (41 - step) / 10)
    train_toy(run, *sets, f"train.schedule={schedule}")
    assert metrics(run)[-1] == end


def test_the_best_model_is_published(train_toy: Train, tmp_path: Path) -> None:
    run = train_toy(tmp_path / "run", "train.max_steps=40")
    validations = [event for event in metrics(run) if event["event"] == "valid"]
    best = max(validations, key=lambda event: score_of(figures_of(event, event["metric"]), event["metric"]))
    published = (run / "model.safetensors").read_bytes()
    assert published == (run / "checkpoints" / f"step-{best['step']:08}" / "model.safetensors").read_bytes()


def test_fine_tuning_keeps_the_tokenizer_and_starts_from_the_weights(
    train_toy: Train, toy_run: Path, tmp_path: Path
) -> None:
    new = tmp_path / "new.tsv"
    new.write_text("".join(f"{b} ñandú\t{a}\n" for a, b in toy_pairs(60, seed=5)))
    sets = ("train.max_steps=1", "train.lr=1e-30", "train.warmup_steps=1")
    run = train_toy(tmp_path / "run", *sets, spec=new, init=toy_run)
    assert (run / "tokenizer.json").read_bytes() == (toy_run / "tokenizer.json").read_bytes()
    ours, theirs = (model_file.parameters(model_file.load_model(r)[0]) for r in (run, toy_run))
    for name, tensor in theirs.items():
        torch.testing.assert_close(ours[name], tensor, rtol=0, atol=1e-12)
    with pytest.raises(UsageError, match="--init"):
        train_toy(tmp_path / "other", *sets, "model.d_ff=8", spec=new, init=toy_run)

    with pytest.raises(UsageError, match="has 2 heads"):  # whose tensors have the same shapes
        train_toy(tmp_path / "third", *sets, "model.num_heads=4", spec=new, init=toy_run)
    own = train_toy(tmp_path / "own", *sets, spec=new)
    with pytest.raises(UsageError, match="another tokenizer"):
        train_toy(own, *sets, spec=new, init=toy_run)


def test_fine_tuning_that_is_killed_early_resumes_from_the_initial_weights(
    train_toy: Train, toy_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    straight = train_toy(tmp_path / "straight", "train.max_steps=4", init=toy_run)
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "step", killed)
        with pytest.raises(KeyboardInterrupt):
            train_toy(tmp_path / "run", "train.max_steps=4", init=toy_run)
    run = train_toy(tmp_path / "run", "train.max_steps=4")
    assert digest(run) == digest(straight)
    assert metrics(run) == metrics(straight)


def test_fine_tuning_from_another_model_than_the_run_began_with_is_refused(
    train_toy: Train, toy_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = train_toy(tmp_path / "other", "train.max_steps=1", init=toy_run)  # the same tokenizer
    run = train_toy(tmp_path / "run", "train.max_steps=4", init=toy_run)
    before = digest(run)
    with pytest.raises(UsageError, match=r"--init: .* began with other weights than this model's; omit --init"):
        train_toy(run, "train.max_steps=6", init=other)
    assert digest(run) == before
    train_toy(run, "train.max_steps=6", init=toy_run)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    early = tmp_path / "early"
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "start_from", killed)
        with pytest.raises(KeyboardInterrupt):
            train_toy(early, "train.max_steps=4", init=toy_run)
    with pytest.raises(UsageError, match="name it again with --init"):  # no checkpoint holds the weights yet
        train_toy(early, "train.max_steps=4")
    assert digest(train_toy(early, "train.max_steps=4", init=toy_run)).items() <= before.items()


def test_fine_tuning_takes_the_model_s_shape_and_an_interrupted_run_is_the_latest(
    toy_run: Path, toy_tsv: Path, tmp_path: Path
) -> None:
    line = ["train", "--init", toy_run, "--train", toy_tsv, "--max-steps", "100000", "--out", "fine"]
    sets = ["--set", "train.valid_every=5", "--set", "train.batch_tokens=256", "--set", "train.patience=0"]
    child = start(*line, *sets, cwd=tmp_path)
    until((tmp_path / "fine" / "model.safetensors").exists, child)
    child.send(signal.SIGTERM)
    done = child.wait()
    assert done.code == 143, done.err
    info = model_file.load_model(tmp_path / "runs" / "latest")[1]
    assert (info.model.d_model, info.tgt) == (16, "xx")


def test_counts_are_in_the_metrics(train_toy: Train, tmp_path: Path) -> None:
    path = tmp_path / "gaps.tsv"
    long = " ".join(["stone"] * 300)
    path.write_text("".join(f"{a}\t{b}\n" for a, b in toy_pairs(100)) + "\tder\n\t\nred\t\n" + f"{long}\t{long}\n")
    run = train_toy(tmp_path / "run", "train.max_steps=1", spec=path)
    data = metrics(run)[0]
    assert data["read"] == 104
    assert data["skipped"] == {"one side empty": 2, "both sides empty": 1, "longer than 256 tokens": 1}
    assert data["train"] + data["valid"] + data["test"] + 4 == 104  # type: ignore[operator]


def test_time_budget_ends_in_time(train_toy: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock is simulated: a step takes a tenth of a second."""
    now = [1000.0]
    real_step = Trainer.step

    def look() -> float:
        now[0] += 0.001
        return now[0]

    def step(trainer: Trainer, *arguments: Any) -> Any:
        now[0] += 0.1
        return real_step(trainer, *arguments)

    monkeypatch.setattr(Trainer, "step", step)
    monkeypatch.setattr("mtcli.training.session.time", SimpleNamespace(monotonic=look))
    run = train_toy(tmp_path / "run", "train.time=4", started=look())
    end = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    assert 3.5 <= end["seconds"] <= 4.2
    assert 30 <= end["step"] <= 42
    found = metrics(run)
    assert {"valid", "end"} <= {event["event"] for event in found}
    assert found[-1]["reason"] == "budget used"
    assert all(0 < int(str(e["pairs"])) <= int(str(e["of"])) for e in found if e["event"] in ("valid", "test"))
    state = checkpoint.latest(run / "checkpoints").state  # type: ignore[union-attr]
    assert 0 < state["seconds_before_first_step"] < state["seconds"]
    assert state["pair_seconds"] > 0
    assert model_file.load_model(run)[1].step > 0


def test_a_run_without_a_time_budget_measures_nothing(train_toy: Train, tmp_path: Path) -> None:
    by_steps = train_toy(tmp_path / "by steps", "train.max_steps=4")
    state = checkpoint.latest(by_steps / "checkpoints").state  # type: ignore[union-attr]
    measured = (
        "seconds_before_first_step",
        "pair_seconds",
        "validation_seconds",
        "validated_at",
        "save_seconds",
        "saved_at",
    )
    assert {state[name] for name in measured} == {0.0}
    assert state["valid_pairs"] is None


def test_a_tiny_time_budget_gives_one_step_and_a_model(
    train_toy: Train, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = train_toy(tmp_path / "run", "train.time=0.001")
    (end,) = (m for m in metrics(run) if m["event"] == "end")
    assert (end["step"], end["best_step"], end["reason"]) == (1, 1, "budget used")
    assert "ended within its warm-up, after 1 of 10 steps" in caplog.text
    assert model_file.load_model(run)[1].step == 1
    train_toy(run, "train.time=0.001")
    assert metrics(run)[-1] == end


def test_a_command_without_a_budget_resumes_with_the_time_of_the_run(
    train_toy: Train, toy_tsv: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = train_toy(tmp_path / "run", "train.time=0.001")
    events = metrics(run)
    options = {"data.train": [str(toy_tsv)], "data.src": "en", "data.tgt": "xx"}
    again = resolve(None, options, TOY_SETTINGS, out=run)
    assert again.config.train.time == 0.001
    caplog.set_level("INFO", "mtcli")
    train(again.config, run, torch.device("cpu"))
    assert "finished at step 1 (budget used)" in caplog.text
    assert metrics(run) == events
    with_steps = resolve(None, options, [*TOY_SETTINGS, "train.max_steps=2"], out=run)
    from_scratch = resolve(None, options, TOY_SETTINGS, out=run, overwrite=True)
    assert with_steps.config.train.time is from_scratch.config.train.time is None


def test_first_validation_is_due_at_half_of_the_time_at_the_latest() -> None:
    config = build(None, {"train.time": "100s"}, ["train.valid_every=1000"])

    def due(**state: float) -> bool:
        return Budget.of(config, 10, 10).validation_is_due(State(**state), 1.0)  # type: ignore[arg-type]

    assert not due(step=7, seconds=44)
    assert due(step=7, seconds=46)
    assert not due(step=0, seconds=46)
    assert not due(step=8, seconds=52, validated_step=7)
    assert due(step=1000, seconds=60, validated_step=7)
    assert not due(step=1000, seconds=60, validated_step=1000)
    config = build(None, {"train.max_steps": 100}, ["train.valid_every=1000"])
    assert not due(step=70)


def test_chosen_defaults_survive_a_failure_before_the_first_step(
    train_toy: Train, toy_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise StorageError("disk full")

    def start(out: Path) -> Path:
        with_open = [s for s in TOY_SETTINGS if not s.startswith("train.") or "precision" in s]
        values = {"data.train": [str(tmp_path / "new.tsv")], "data.src": "en", "data.tgt": "xx", "train.max_steps": 4}
        train(build(None, values, with_open), out, torch.device("cpu"), init=InitialModel.load(toy_run))
        return out

    (tmp_path / "new.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in toy_pairs(60, seed=5)))
    straight = start(tmp_path / "straight")
    moments = ((Checkpoints, "resume"), (Trainer, "start_from"), (Trainer, "save"), (Trainer, "describe"))
    for number, (kind, moment) in enumerate(moments):
        with monkeypatch.context() as patch:
            patch.setattr(kind, moment, full)
            with pytest.raises(StorageError):
                start(tmp_path / str(number))
        assert (start(tmp_path / str(number)) / "config.toml").read_bytes() == (straight / "config.toml").read_bytes()
        assert metrics(tmp_path / str(number)) == metrics(straight)


def test_a_start_that_is_refused_leaves_no_run_behind(train_toy: Train, toy_run: Path, tmp_path: Path) -> None:
    sets = ("train.max_steps=1", "train.batch_tokens=100")
    with pytest.raises(UsageError, match="has 2 heads"):
        train_toy(tmp_path / "new" / "run", *sets, "model.num_heads=4", init=toy_run)
    assert list(tmp_path.iterdir()) == []
    train_toy(tmp_path / "new" / "run", *sets, init=toy_run)


@pytest.mark.parametrize("found", [[], ["thesis.txt"], ["README.md", "data"]])
def test_a_training_that_is_refused_leaves_the_folder_as_it_was(
    train_toy: Train, tmp_path: Path, found: list[str]
) -> None:
    run = tmp_path / "run"
    run.mkdir()
    for name in found:
        (run / name).write_text("mine")
    (tmp_path / "bad.tsv").write_bytes(b"red.\tder.\n" * 9 + b"\xff\tder.\n")
    error = UsageError if found else DataError
    with pytest.raises(error):
        train_toy(run, spec=tmp_path / "bad.tsv")
    assert sorted(path.name for path in run.iterdir()) == found
    assert all((run / name).read_text() == "mine" for name in found)


@pytest.mark.parametrize("last", ["checkpoints", "metrics.jsonl", "data"])
def test_overwrite_that_is_killed_leaves_no_mixture_of_runs(
    last: str, train_toy: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = train_toy(tmp_path / "run", "train.max_steps=5")
    unlink = Path.unlink
    rmtree = shutil.rmtree

    def killed_after(remove: Callable[..., None]) -> Callable[..., None]:
        def removing(path: Path, *how: object, **options: object) -> None:
            remove(path, *how, **options)
            if path == run / last:
                raise KeyboardInterrupt

        return removing

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", killed_after(unlink))
        patch.setattr(shutil, "rmtree", killed_after(rmtree))
        with pytest.raises(KeyboardInterrupt):
            train_toy(run, "train.max_steps=5", "train.lr=0.01", overwrite=True)
    if (run / "checkpoints").exists():
        with pytest.raises(UsageError, match="another configuration"):
            train_toy(run, "train.max_steps=5", "train.lr=0.01")
    train_toy(run, "train.max_steps=5", "train.lr=0.01", overwrite=True)
    assert digest(run) == digest(train_toy(tmp_path / "straight", "train.max_steps=5", "train.lr=0.01"))


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_saves_and_ends_training(toy_tsv: Path, tmp_path: Path, number: signal.Signals, code: int) -> None:
    sets = [part for setting in [*TOY_SETTINGS, "train.patience=0"] for part in ("--set", setting)]
    line = ["train", "--train", toy_tsv, "--src", "en", "--tgt", "xx", "--out", "run", "--max-steps", "100000"]
    child = start(*line, *sets, cwd=tmp_path)
    until((tmp_path / "run" / "checkpoints" / "step-00000005").exists, child)
    child.send(number)
    done = child.wait()
    assert done.code == code, done.err
    assert "Traceback" not in done.err
    saved = checkpoint.latest(tmp_path / "run" / "checkpoints")
    assert saved is not None
    assert f"at step {saved.state['step']:,}" in done.err


def test_a_second_trainer_is_refused(train_toy: Train, toy_run: Path) -> None:
    with folder_lock(toy_run), pytest.raises(LockedError, match=str(os.getpid())):
        train_toy(toy_run, "train.max_steps=20")


def test_training_learns(train_toy: Train, tmp_path: Path) -> None:
    run = train_toy(tmp_path / "run", "train.max_steps=150", "train.lr=0.01", "model.dropout=0", "train.valid_every=50")
    losses = [float(str(m["loss"])) for m in metrics(run) if m["event"] == "valid"]
    assert losses[-1] < 0.75 * losses[0]


def test_step_does_not_depend_on_history(train_toy: Train, tmp_path: Path) -> None:
    """Random numbers that were drawn before training, such as for another model, have no effect."""
    first = train_toy(tmp_path / "a", "train.max_steps=3")
    torch.manual_seed(12345)
    torch.rand(1000)
    assert digest(train_toy(tmp_path / "b", "train.max_steps=3")) == digest(first)
