"""Several workers: whichever is killed, stopped or fails, all end, with a code that says why, and the run goes on."""

import os
import random
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from processes import HANGS
from workers import LAUNCH, run_workers, start_workers

from faults import points
from faults.conftest import Case
from faults.harness import Job, Result, contents, earlier, limit, outcome, refused, unharmed, whole

Count = Callable[[int, int], int]
Fault = Callable[[], None]

CHAIN = 10


@pytest.fixture(scope="module")
def pair(job: Job, tmp_path_factory: pytest.TempPathFactory) -> Job:
    """The same training by two workers, and its clean end."""
    clean = tmp_path_factory.mktemp("pair") / "clean"
    results = run_workers(2, *job.command(clean))
    assert [result.code for result in results] == [0, 0], results
    return Job(job.folder, clean)


def is_done(pair: Job, out: Path, resumed_at: int | None = None) -> None:
    """Assert that two workers end as two did that nothing happened to."""
    results = run_workers(2, *pair.command(out))
    assert [result.code for result in results] == [0, 0], results
    if resumed_at:
        assert f"resuming at step {resumed_at}\n" in results[0].err
    assert results[1].err == ""
    ended, wanted = outcome(out), outcome(pair.clean)
    assert not {name for name in ended | wanted if ended.get(name) != wanted.get(name)}


def moments(out: Path, rng: random.Random, number: int) -> dict[str, tuple[int, Fault]]:
    """Who is sent a signal, and where: in each part of the work, one who does it and one who waits."""
    inside = partial(points.strike_in)
    return {
        "training": (rng.randint(0, 1), partial(inside, "torch:Tensor.backward", rng.randint(3, 100), number)),
        "validating": (
            0,
            partial(inside, "mtcli.inference.pytorch_backend:Translator.translate", rng.randint(1, 3), number),
        ),
        "waiting for it": (1, partial(inside, "mtcli.runtime.distributed:_Workers.tell", rng.randint(3, 5), number)),
        "saving": (0, partial(points.strike, out, "tear checkpoints/.tmp-step-N/model.safetensors", 2, number)),
        "going on meanwhile": (
            1,
            partial(inside, "mtcli.runtime.distributed:_Workers.most", 4 * rng.randint(1, 8), number),
        ),
        "preparing": (0, partial(points.strike, out, "tear data/.train.arrow.tmp", 1, number)),
        "opening": (1, partial(inside, "mtcli.training.run:reopen", 1, number)),
        "publishing": (0, partial(points.strike, out, "replace .model.safetensors.tmp model.safetensors", 1, number)),
    }


def ended(results: list[Result], victim: int) -> None:
    """Assert that one was killed, and the other says so in a line."""
    assert results[victim].code == -signal.SIGKILL
    assert results[1 - victim].code == 8, results
    lines = results[1 - victim].err.splitlines()
    assert [line for line in lines if line.startswith("mtcli: ")] == lines[-1:]
    assert "run the same command again" in lines[-1]


def kill_one(pair: Job, out: Path, victim: int, fault: Fault) -> bool:
    """Whether one of two workers was killed before they were done."""
    results = run_workers(2, *pair.command(out), within={victim: [fault]})
    if [result.code for result in results] == [0, 0]:
        return False
    ended(results, victim)
    return True


@pytest.mark.slow
def test_58_worker_kill9(case: Case, pair: Job, tmp_path: Path, rng: random.Random, count: Count) -> None:
    chosen = sorted(moments(tmp_path, rng, signal.SIGKILL))
    rng.shuffle(chosen)
    for i in range(count(10, 2)):
        out = tmp_path / str(i)
        victim, fault = moments(out, rng, signal.SIGKILL)[chosen[i % len(chosen)]]
        with case.fault():
            assert kill_one(pair, out, victim, fault), chosen[i % len(chosen)]
            is_done(pair, out, max(whole(out), default=None))


@pytest.mark.slow
def test_58_worker_kill9_in_chains(case: Case, pair: Job, tmp_path: Path, rng: random.Random, count: Count) -> None:
    left, out = count(30, 3), tmp_path / "run"
    while left:
        newest = injected = 0
        for _ in range(min(CHAIN, left)):
            victim, fault = rng.choice(list(moments(out, rng, signal.SIGKILL).values()))
            if rng.random() < 0.5:  # anywhere
                victim, fault = 0, partial(points.strike, out, None, rng.randint(1, 60))
            if not kill_one(pair, out, victim, fault):
                continue  # a place that this run does not come to any more
            injected += 1
            assert max(whole(out), default=0) >= newest, "a checkpoint was lost"
            newest = max(whole(out), default=0)
        with case.fault(injected):
            is_done(pair, out)
        shutil.rmtree(out)
        left -= injected


@pytest.mark.slow
def test_59_worker_sigstop(case: Case, pair: Job, tmp_path: Path, rng: random.Random, count: Count) -> None:
    for i in range(count(5, 1)):
        out = tmp_path / str(i)
        names = ("training", "waiting for it", "validating", "going on meanwhile", "saving")
        victim, fault = moments(out, rng, signal.SIGSTOP)[names[i % len(names)]]
        with case.fault():
            children = start_workers(2, *pair.command(out), within={victim: [fault]}, silence=50)
            try:
                results = {1 - victim: children[1 - victim].wait()}
            finally:
                children[victim].send(signal.SIGKILL)  # as torchrun does
            results[victim] = children[victim].wait()
            ended([results[0], results[1]], victim)
            is_done(pair, out)


@pytest.mark.slow
def test_59_a_long_validation_is_no_silence(case: Case, pair: Job, tmp_path: Path, count: Count) -> None:
    with case.fault():
        out = tmp_path / "run"
        results = run_workers(2, *pair.command(out), within={0: [partial(slow_validation, 10.0)]}, silence=50)
        assert [result.code for result in results] == [0, 0], results
        assert outcome(out) == outcome(pair.clean)


def slow_validation(seconds: float) -> None:
    from mtcli.training import trainer

    real, slept = trainer.validate, []

    def validate(*arguments: Any, **options: Any) -> Any:
        if not slept:
            slept.append(time.sleep(seconds))
        return real(*arguments, **options)

    trainer.validate = validate


@pytest.mark.slow
def test_60_rank0_disk_full(case: Case, pair: Job, tmp_path: Path, rng: random.Random, count: Count) -> None:
    for i in range(count(4, 1)):
        out = tmp_path / str(i)
        if i % 2:  # a run that is resumed
            assert kill_one(pair, out, 0, partial(points.strike_in, "torch:Tensor.backward", 60, signal.SIGKILL))
        before = earlier(out)
        with case.fault():
            most = rng.randint(2000, 40000)
            full = {0: [partial(limit, resource.RLIMIT_FSIZE, most)]}
            first, second = run_workers(2, *pair.command(out), within=full)
            refused(first, 5, "File too large", "ulimit -f")
            assert (second.code, second.err) == (5, "")
            unharmed(out, before)
            is_done(pair, out, max(whole(out), default=None))


@pytest.mark.slow
def test_33_world_size_changed(case: Case, pair: Job, tmp_path: Path, count: Count) -> None:
    out = tmp_path / "run"
    shutil.copytree(pair.clean, out)
    before = contents(out)
    for n in (1, 3):
        with case.fault():
            results = run_workers(n, *pair.command(out))
            assert [result.code for result in results] == [2] * n
            said = [line for result in results for line in result.err.splitlines() if line.startswith("mtcli: ")]
            assert len(said) == 1
            assert f"began with 2 workers, and this command has {n}; start 2" in said[0]
            assert contents(out) == before


@contextmanager
def launched(words: list[str], *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """Two workers under torchrun itself."""
    command = [*LAUNCH, "--nproc-per-node", "2", *options, "-m", "mtcli", *words]
    place = {"cwd": Path(words[words.index("--out") + 1]).parent, "env": {**os.environ, "OMP_NUM_THREADS": "1"}}
    with subprocess.Popen(command, stderr=subprocess.PIPE, **place) as process:
        try:
            yield process
        finally:
            process.terminate()


def workers_of(launcher: subprocess.Popen[bytes]) -> list[int]:
    found = Path(f"/proc/{launcher.pid}/task").glob("*/children")
    return [int(pid) for path in found for pid in path.read_text().split()]


def wait_for_step(out: Path, launcher: subprocess.Popen[bytes], step: int) -> None:
    end = time.monotonic() + HANGS
    while max(whole(out), default=0) < step:
        assert launcher.poll() is None, launcher.communicate()
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.slow
def test_58_torchrun_restarts_the_killed(
    case: Case, pair: Job, tmp_path: Path, rng: random.Random, count: Count
) -> None:
    """Unaided: torchrun starts all again, and they go on."""
    for i in range(count(3, 1)):
        out = tmp_path / str(i)
        with case.fault(2), launched(pair.command(out, "--overwrite"), "--max-restarts", "3") as launcher:
            for step in (8, 20):
                wait_for_step(out, launcher, step)
                os.kill(rng.choice(workers_of(launcher)), signal.SIGKILL)
            _, err = launcher.communicate(timeout=HANGS)
            assert launcher.returncode == 0, err.decode()
            assert b"resuming at step" in err
            assert outcome(out) == outcome(pair.clean)


@pytest.mark.slow
def test_59_worker_sigstop_under_torchrun(
    case: Case, pair: Job, tmp_path: Path, rng: random.Random, count: Count
) -> None:
    """With the beats as they are: the one that is left notices, and torchrun kills the other."""
    for i in range(count(2, 1)):
        out = tmp_path / str(i)
        with case.fault(), launched(pair.command(out)) as launcher:
            wait_for_step(out, launcher, 4)
            os.kill(rng.choice(workers_of(launcher)), signal.SIGSTOP)
            _, err = launcher.communicate(timeout=HANGS)
            assert launcher.returncode != 0
            assert b"has been silent for 60 s" in err
            is_done(pair, out)
