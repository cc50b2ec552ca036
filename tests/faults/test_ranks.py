"""Several ranks: if one is killed, stopped or fails, all end, and the same command resumes the run."""

import os
import random
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from helpers import points
from helpers.harness import (
    Job,
    Result,
    contents,
    earlier,
    limit,
    outcome,
    refused,
    resumed_or_finished,
    unharmed,
    whole,
)
from helpers.processes import HANGS
from helpers.ranks import LAUNCH, run_ranks, start_ranks

from faults.conftest import Case

Count = Callable[[int, int], int]
Fault = Callable[[], None]

CHAIN = 10

GROUP = "mtcli.runtime.distributed:_DistributedGroup"

SOON = 15.0
"""Seconds: a timeout that a busy machine does not reach unless a rank is stopped."""

IMPATIENT = f"""
from datetime import timedelta

from mtcli.runtime import distributed
from mtcli.cli import main

distributed.STEP_TIMEOUT = distributed.WORK_TIMEOUT = timedelta(seconds={SOON})
main()
"""


@pytest.fixture(scope="module")
def pair(job: Job, tmp_path_factory: pytest.TempPathFactory) -> Job:
    """The same training by two ranks, and the run folder of one without faults."""
    clean = tmp_path_factory.mktemp("pair") / "clean"
    results = run_ranks(2, *job.command(clean))
    assert [result.code for result in results] == [0, 0], results
    return Job(job.folder, clean)


def is_done(pair: Job, out: Path, resumed_at: int | None = None) -> None:
    """Assert that two ranks end with the same files as a run without faults."""
    results = run_ranks(2, *pair.command(out))
    assert [result.code for result in results] == [0, 0], results
    if resumed_at:
        assert resumed_or_finished(results[0], resumed_at)
    assert results[1].err == ""
    ended = outcome(out)
    wanted = outcome(pair.clean)
    assert not {name for name in ended | wanted if ended.get(name) != wanted.get(name)}


def moments(out: Path, rng: random.Random, number: int) -> dict[str, tuple[int, Fault]]:
    """Return, for each part of the work, a rank that does it or waits for it, and a function that strikes it there."""
    inside = partial(points.strike_in)
    return {
        "training": (rng.randint(0, 1), partial(inside, points.BACKWARD, rng.randint(3, 70), number)),
        "validating": (
            0,
            partial(inside, "mtcli.translate.translator:ModelTranslator.translate", rng.randint(1, 3), number),
        ),
        "waiting for rank 0": (1, partial(inside, f"{GROUP}.broadcast", rng.randint(3, 5), number)),
        "saving": (0, partial(points.strike, out, "tear checkpoints/.tmp-step-N/model.safetensors", 2, number)),
        "agreeing on the next step": (
            1,
            partial(inside, f"{GROUP}.all_reduce_max", 2 * rng.randint(1, 8), number),
        ),
        "preparing": (0, partial(points.strike, out, "tear data/.train.arrow.tmp", 1, number)),
        "opening": (1, partial(inside, "mtcli.training.run:reopen", 1, number)),
        "publishing": (0, partial(points.strike, out, "replace .model.safetensors.tmp model.safetensors", 1, number)),
    }


def ended(results: list[Result], victim: int) -> None:
    """Assert that one rank was killed, and the other ends with one line about it."""
    assert results[victim].code == -signal.SIGKILL
    assert results[1 - victim].code == 8, results
    lines = results[1 - victim].err.splitlines()
    assert [line for line in lines if line.startswith("mtcli: ")] == lines[-1:]
    assert "run the same command again" in lines[-1]


def kill_one(pair: Job, out: Path, victim: int, fault: Fault) -> bool:
    """Return True if one of two ranks was killed before they were done."""
    results = run_ranks(2, *pair.command(out), within={victim: [fault]})
    if [result.code for result in results] == [0, 0]:
        return False
    ended(results, victim)
    return True


@pytest.mark.slow
def test_58_rank_kill9(case: Case, pair: Job, tmp_path: Path, rng: random.Random, count: Count) -> None:
    chosen = sorted(moments(tmp_path, rng, signal.SIGKILL))
    rng.shuffle(chosen)
    for i in range(count(10, 2)):
        out = tmp_path / str(i)
        victim, fault = moments(out, rng, signal.SIGKILL)[chosen[i % len(chosen)]]
        with case.fault():
            assert kill_one(pair, out, victim, fault), chosen[i % len(chosen)]
            is_done(pair, out, max(whole(out), default=None))


@pytest.mark.slow
def test_58_rank_kill9_in_chains(case: Case, pair: Job, tmp_path: Path, rng: random.Random, count: Count) -> None:
    left = count(30, 3)
    out = tmp_path / "run"
    while left:
        newest = injected = 0
        for _ in range(min(CHAIN, left)):
            victim, fault = rng.choice(list(moments(out, rng, signal.SIGKILL).values()))
            if rng.random() < 0.5:  # at any point
                victim = 0
                fault = partial(points.strike, out, None, rng.randint(1, 60))
            if not kill_one(pair, out, victim, fault):
                continue  # a point that this run does not reach again
            injected += 1
            assert max(whole(out), default=0) >= newest, "a checkpoint was lost"
            newest = max(whole(out), default=0)
        with case.fault(injected):
            is_done(pair, out)
        shutil.rmtree(out)
        left -= injected


@pytest.mark.slow
def test_59_rank_sigstop(case: Case, pair: Job, tmp_path: Path, rng: random.Random, count: Count) -> None:
    for i in range(count(5, 1)):
        out = tmp_path / str(i)
        names = ("training", "waiting for rank 0", "validating", "agreeing on the next step", "saving")
        victim, fault = moments(out, rng, signal.SIGSTOP)[names[i % len(names)]]
        with case.fault():
            within = {victim: [fault]}
            children = start_ranks(2, *pair.command(out), within=within, step_timeout=SOON, work_timeout=SOON)
            try:
                results = {1 - victim: children[1 - victim].wait()}
            finally:
                children[victim].send(signal.SIGKILL)  # as torchrun does
            results[victim] = children[victim].wait()
            ended([results[0], results[1]], victim)
            is_done(pair, out)


@pytest.mark.slow
def test_59_a_validation_longer_than_the_timeout_of_a_step(case: Case, pair: Job, tmp_path: Path, count: Count) -> None:
    with case.fault():
        out = tmp_path / "run"
        results = run_ranks(2, *pair.command(out), within={0: [partial(slow_validation, 2 * SOON)]}, step_timeout=SOON)
        assert [result.code for result in results] == [0, 0], results
        assert outcome(out) == outcome(pair.clean)


def slow_validation(seconds: float) -> None:
    from mtcli.training import validation

    real = validation.validate
    slept = []

    def validate(*arguments: Any, **options: Any) -> Any:
        if not slept:
            slept.append(time.sleep(seconds))
        return real(*arguments, **options)

    patch.object(validation, "validate", validate).start()


@pytest.mark.slow
def test_60_rank0_disk_full(case: Case, pair: Job, tmp_path: Path, rng: random.Random, count: Count) -> None:
    for i in range(count(4, 1)):
        out = tmp_path / str(i)
        if i % 2:  # a run that is resumed
            assert kill_one(pair, out, 0, partial(points.strike_in, points.BACKWARD, 60, signal.SIGKILL))
        before = earlier(out)
        with case.fault():
            most = rng.randint(2000, 40000)
            full = {0: [partial(limit, resource.RLIMIT_FSIZE, most)]}
            first, second = run_ranks(2, *pair.command(out), within=full)
            refused(first, 5, "File too large", "ulimit -f")
            assert second.code == 8
            assert "run the same command again" in second.last
            unharmed(out, before)
            is_done(pair, out, max(whole(out), default=None))


@pytest.mark.slow
def test_33_world_size_changed(case: Case, pair: Job, tmp_path: Path, count: Count) -> None:
    out = tmp_path / "run"
    shutil.copytree(pair.clean, out)
    before = contents(out)
    for n in (1, 3):
        with case.fault():
            results = run_ranks(n, *pair.command(out))
            assert [result.code for result in results] == [2] * n
            said = [line for result in results for line in result.err.splitlines() if line.startswith("mtcli: ")]
            assert len(said) == n
            assert f"began with 2 ranks, and this command has {n}; start 2" in said[0]
            assert contents(out) == before


@contextmanager
def launched(
    words: list[str], *options: str, program: Sequence[str] = ("-m", "mtcli")
) -> Iterator[subprocess.Popen[bytes]]:
    """Start two ranks under torchrun itself."""
    command = [*LAUNCH, "--nproc-per-node", "2", *options, *program, *words]
    place = {"cwd": Path(words[words.index("--out") + 1]).parent, "env": {**os.environ, "OMP_NUM_THREADS": "1"}}
    with subprocess.Popen(command, stderr=subprocess.PIPE, **place) as process:
        try:
            yield process
        finally:
            process.terminate()


def ranks_of(launcher: subprocess.Popen[bytes]) -> list[int]:
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
    """torchrun starts all ranks again, and they resume."""
    for i in range(count(3, 1)):
        out = tmp_path / str(i)
        with case.fault(2), launched(pair.command(out, "--overwrite"), "--max-restarts", "3") as launcher:
            for step in (8, 20):
                wait_for_step(out, launcher, step)
                os.kill(rng.choice(ranks_of(launcher)), signal.SIGKILL)
            _, err = launcher.communicate(timeout=HANGS)
            assert launcher.returncode == 0, err.decode()
            assert b"resuming at step" in err
            assert outcome(out) == outcome(pair.clean)


@pytest.mark.slow
def test_59_rank_sigstop_under_torchrun(
    case: Case, pair: Job, tmp_path: Path, rng: random.Random, count: Count
) -> None:
    """The other rank notices, and torchrun kills the stopped one."""
    program = tmp_path / "impatient.py"
    program.write_text(IMPATIENT)
    for i in range(count(2, 1)):
        out = tmp_path / str(i)
        with case.fault(), launched(pair.command(out), program=[str(program)]) as launcher:
            wait_for_step(out, launcher, 4)
            os.kill(rng.choice(ranks_of(launcher)), signal.SIGSTOP)
            _, err = launcher.communicate(timeout=HANGS)
            assert launcher.returncode != 0
            assert b"another rank did not answer in time" in err
            is_done(pair, out)
