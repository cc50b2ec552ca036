"""Kill a run at any moment, within a write or between writes: the same command resumes it and gives the same bits."""

import random
import shutil
import signal
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

import pytest
from helpers import points
from helpers.harness import Job, Result, contents, run, start, whole

from faults.conftest import Case
from mtcli.storage import ENGINE
from mtcli.translate.backends.run_engine import check_current, proof_of

Count = Callable[[int, int], int]
Kill = Callable[[], Result]
"""Start the run again and kill it. If the run ends first, its exit code is 0."""

CHAIN = 10
"""Kills of one run before it is allowed to end."""


def survive(case: Case, job: Job, out: Path, kills: Iterable[Kill]) -> int:
    """Kill one run several times, let it end, and compare it with the clean run. Return how often it was killed."""
    injected = 0
    newest = 0
    for kill in kills:
        result = kill()
        if "resuming" in result.err:
            assert f"resuming at step {newest}\n" in result.err
        if result.code == 0:
            newest = max(whole(out))
            break
        assert result.code == -signal.SIGKILL, result.err
        case.injected += 1
        injected += 1
        assert max(whole(out), default=0) >= newest, "a checkpoint was lost"
        newest = max(whole(out), default=0)
    job.is_done(out, newest)
    case.survived += injected
    shutil.rmtree(out)
    return injected


def kill_when(
    job: Job, out: Path, fault: Callable[..., None], *arguments: object, within: Sequence[Callable[[], None]] = ()
) -> Kill:
    return lambda: run(*job.command(out), within=[*within, partial(fault, *arguments)])


def kill_after(job: Job, out: Path, seconds: float) -> Kill:
    def kill() -> Result:
        child = start(*job.command(out))
        time.sleep(seconds)
        child.send(signal.SIGKILL)
        return child.wait()

    return kill


@pytest.fixture(scope="module")
def duration(job: Job, tmp_path_factory: pytest.TempPathFactory) -> float:
    """The duration of a run in seconds."""
    began = time.monotonic()
    assert run(*job.command(tmp_path_factory.mktemp("timed") / "run")).code == 0
    return time.monotonic() - began


def kill_at_random(case: Case, job: Job, folder: Path, rng: random.Random, n: int, duration: float) -> None:
    injected = 0
    while injected < n:
        out = folder / "run"
        moments = (rng.uniform(0, duration * 4 / CHAIN) for _ in range(min(CHAIN, n - injected)))
        injected += survive(case, job, out, (kill_after(job, out, seconds) for seconds in moments))


def kill_at_points(
    case: Case,
    job: Job,
    folder: Path,
    rng: random.Random,
    n: int,
    wanted: list[str],
    within: Sequence[Callable[[], None]] = (),
) -> None:
    """Kill at each of these points in turn, n times in total. Each chain has points of all phases.

    Args:
        case: Counts the kills.
        job: The training.
        folder: A folder for the runs.
        rng: Chooses which occurrence of a point it is.
        n: The number of kills.
        wanted: The points.
        within: Functions that each process calls first.
    """
    order = {point: i for i, point in enumerate(wanted)}
    chains = -(-n // CHAIN)
    turns = [wanted[i * max(n, len(wanted)) // n % len(wanted)] for i in range(n)]
    waiting = deque(point for first in range(chains) for point in turns[first::chains])
    tried = Counter[str]()
    while waiting:
        out = folder / "run"
        chain = sorted((waiting.popleft() for _ in range(min(CHAIN, len(waiting)))), key=order.get)
        nths = [1 if tried[point] else rng.randint(1, 3) for point in chain]
        tried.update(chain)
        faults = [
            kill_when(job, out, points.strike, out, point, nth, within=within)
            for point, nth in zip(chain, nths, strict=True)
        ]
        injected = survive(case, job, out, faults)
        assert injected or max(nths) > 1, f"the run never reached {chain[0]}"
        waiting.extend(chain[injected:])  # points that this run did not reach again


@pytest.mark.slow
def test_01_kill9_random_step(
    case: Case, job: Job, tmp_path: Path, rng: random.Random, count: Count, duration: float
) -> None:
    kill_at_random(case, job, tmp_path, rng, count(110, 2), duration)


def test_02_kill9_each_write_point(
    case: Case, job: Job, tmp_path: Path, rng: random.Random, count: Count, seen: list[str]
) -> None:
    wanted = list(dict.fromkeys(seen))
    roles = ["checkpoints/.tmp-step-N/manifest.json", "replace .model.safetensors.tmp", "rename checkpoints/step-N"]
    roles += ["tear metrics.jsonl", ".config.toml.tmp", ".tokenizer.json.tmp", "tear data/.train.arrow.tmp"]
    roles += ["tear data/.info.json.tmp", "fsync checkpoints", "fsync checkpoints/.tmp-step-N", "unlink checkpoints/"]
    for role in roles:
        assert any(role in point for point in wanted), f"no write point {role}"
    kill_at_points(case, job, tmp_path, rng, count(120, 4), wanted)


def test_02_kill9_each_write_point_of_a_checkpoint_in_the_background(
    case: Case, job: Job, tmp_path: Path, rng: random.Random, count: Count, seen: list[str]
) -> None:
    wanted = [point for point in dict.fromkeys(seen) if "checkpoints/" in point or ".model.safetensors" in point]
    kill_at_points(case, job, tmp_path, rng, count(60, 3), wanted, within=[points.write_in_background])


def test_02_kill9_in_the_last_report(case: Case, job: Job, tmp_path: Path, seen: list[str]) -> None:
    out = tmp_path / "run"
    point = "replace .report.html.tmp report.html"
    last = kill_when(job, out, points.strike, out, point, seen.count(point))
    assert survive(case, job, out, [last]) == 1


@pytest.mark.slow
def test_03_kill9_before_first_checkpoint(
    case: Case, job: Job, tmp_path: Path, rng: random.Random, count: Count
) -> None:
    for _ in range(count(10, 1)):
        batch = rng.randint(1, 8)  # the first checkpoint is written after eight
        out = tmp_path / "run"
        assert survive(case, job, out, [kill_when(job, out, points.strike_in, points.BACKWARD, batch)])


@pytest.mark.slow
def test_04_kill9_in_validation(case: Case, job: Job, tmp_path: Path, rng: random.Random, count: Count) -> None:
    functions = ["mtcli.translate.translator:ModelTranslator.translate", "mtcli.evaluation.metrics:score"]
    left = count(10, 1)
    while left > 0:
        strikes = [(rng.choice(functions), rng.randint(1, 2)) for _ in range(min(left, 3))]
        kills = [kill_when(job, tmp_path / "run", points.strike_in, *strike) for strike in strikes]
        left -= survive(case, job, tmp_path / "run", kills)


def test_02_kill9_in_the_engine(case: Case, job: Job, tmp_path: Path, rng: random.Random, count: Count) -> None:
    """A finished run without an engine gets one. Kill this anywhere: the next start makes it."""
    pytest.importorskip("ctranslate2")
    out = shutil.copytree(job.clean, tmp_path / "run")
    command = job.command(out, train__engine="true")
    log = tmp_path / "log"
    files = contents(out)
    assert run(*command, within=[partial(points.record, out, log)]).code == 0
    check_current(out, proof_of(out))
    # The name of a temporary file contains the number of the process.
    seen = [point for point in log.read_text().splitlines() if ENGINE in point and ".mtcli-" not in point]
    wanted = list(dict.fromkeys(seen))
    renamed = f"rename .{ENGINE}.tmp {ENGINE}"
    assert renamed in wanted
    for point in rng.sample(wanted[: wanted.index(renamed) + 1], count(12, 1)):
        shutil.rmtree(out / ENGINE)
        with case.fault():
            assert run(*command, within=[partial(points.strike, out, point, 1)]).code == -signal.SIGKILL
            assert not (out / ENGINE).exists()
            assert run(*command).code == 0
            check_current(out, proof_of(out))
    shutil.rmtree(out / ENGINE)
    changed = {name for name, content in contents(out).items() if files.get(name) != content}
    assert changed <= {"config.toml"}


@pytest.mark.slow
def test_05_kill9_epoch_boundary(case: Case, job: Job, tmp_path: Path, count: Count) -> None:
    left = count(10, 1)
    while left > 0:
        # A process plans the epoch in which it starts first, and then the next epoch.
        function = "mtcli.corpus.batching:plan_epoch"
        out = tmp_path / "run"
        kills = [kill_when(job, out, points.strike_in, function, nth) for nth in (2, 3, 2, 3, 3)]
        left -= survive(case, job, out, kills[:left])


@pytest.mark.slow
def test_06_kill9_in_tokenizer_or_cache(
    case: Case, job: Job, tmp_path: Path, rng: random.Random, count: Count, seen: list[str]
) -> None:
    wanted = [point for point in dict.fromkeys(seen) if "tokenizer" in point or " data" in point]
    kill_at_points(case, job, tmp_path, rng, count(30, 3), wanted)


@pytest.mark.slow
def test_07_kill9_ten_times(case: Case, job: Job, tmp_path: Path) -> None:
    early = kill_when(job, tmp_path / "run", points.strike_in, points.BACKWARD, 2)
    kills = [early] + 9 * [kill_when(job, tmp_path / "run", points.strike_in, points.BACKWARD, 10)]
    assert survive(case, job, tmp_path / "run", kills) == 10


def test_08_rerun_completed(case: Case, job: Job) -> None:
    before = {path: path.stat() for path in job.clean.rglob("*") if path.name != ".lock"}
    files = contents(job.clean)
    with case.fault():
        again = run(*job.command(job.clean))
        assert (again.code, again.out) == (0, "")
        assert f"finished at step {whole(job.clean)[-1]} (" in again.err
        assert contents(job.clean) == files
        assert {path: path.stat().st_mtime_ns for path in before} == {p: s.st_mtime_ns for p, s in before.items()}
