"""Send signals to a run: it saves and ends, and SIGSTOP and SIGCONT have no effect."""

import os
import random
import select
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from helpers import points
from helpers.harness import Job, Result, address_space, earlier, outcome, run, start, unharmed, until, whole

from faults.conftest import Case
from mtcli.runtime import signals

Count = Callable[[int, int], int]

BATCHES = 70
"""The last batch in which a signal is sent. A run has 80."""


def stopped(result: Result, out: Path, number: int) -> int:
    """Assert that a run was saved at the signal, and return the step."""
    assert result.code == 128 + number, result.err
    step = whole(out)[-1]
    assert f"{signals.stopped(number)} at step {step}" in result.last
    assert "run the same command again" in result.last
    assert "Traceback" not in result.err
    return step


def stop_in_a_step(case: Case, job: Job, out: Path, batch: int, number: int) -> None:
    """Send a signal at a batch of a run: it must be saved at the end of the same step, and resume correctly."""
    with case.fault():
        result = run(*job.command(out), within=[partial(points.strike_in, points.BACKWARD, batch, number)])
        step = stopped(result, out, number)
        assert step == -(-batch // 2)  # two batches per step: none is lost
        job.is_done(out, step)


def test_09_sigterm(case: Case, job: Job, tmp_path: Path, rng: random.Random, count: Count) -> None:
    for i in range(count(10, 1)):
        stop_in_a_step(case, job, tmp_path / str(i), rng.randint(1, BATCHES), signal.SIGTERM)


def stop_before_the_first_step(case: Case, job: Job, out: Path, rng: random.Random, number: int, *codes: int) -> None:
    with case.fault():
        point = rng.choice(["fsync .tokenizer.json.tmp", "tear data/.train.arrow.tmp", "open .config.toml.tmp"])
        result = run(*job.command(out), within=[partial(points.strike, out, point, 1, number)])
        assert result.code in codes, result.err
        assert "Traceback" not in result.err
        if number == signal.SIGINT:
            assert result.last == "mtcli: stopped by Ctrl-C"
        job.is_done(out)


@pytest.mark.slow
def test_09_sigterm_before_the_first_step(
    case: Case, job: Job, tmp_path: Path, rng: random.Random, count: Count
) -> None:
    for i in range(count(2, 1)):
        stop_before_the_first_step(case, job, tmp_path / str(i), rng, signal.SIGTERM, -signal.SIGTERM, 143)


@pytest.mark.slow
def test_10_sigint_once(case: Case, job: Job, tmp_path: Path, rng: random.Random, count: Count) -> None:
    for i in range(count(8, 1)):
        stop_in_a_step(case, job, tmp_path / str(i), rng.randint(1, BATCHES), signal.SIGINT)


@pytest.mark.slow
def test_10_sigint_before_the_first_step(
    case: Case, job: Job, tmp_path: Path, rng: random.Random, count: Count
) -> None:
    for i in range(count(2, 1)):
        stop_before_the_first_step(case, job, tmp_path / str(i), rng, signal.SIGINT, 130)


@pytest.mark.slow
def test_11_sigint_twice(
    case: Case, job: Job, tmp_path: Path, rng: random.Random, count: Count, seen: list[str]
) -> None:
    writes = [p for p in dict.fromkeys(seen) if p.startswith(("tear", "fsync")) and "/.tmp-step-N/" in p]
    for i in range(count(6, 1)):
        out = tmp_path / str(i)
        with case.fault():
            assert run(*job.command(out), within=[partial(points.strike_in, points.BACKWARD, 50)]).code == -9
            before = earlier(out)
            twice = partial(points.strike, out, rng.choice(writes), 1, signal.SIGINT, signal.SIGINT)
            result = run(*job.command(out), within=[twice])
            assert result.code == 130
            assert "Traceback" not in result.err
            assert list(out.glob("checkpoints/.tmp-step-*")), "it did not leave at once"
            assert earlier(out) == before
            job.is_done(out, whole(out)[-1])


@pytest.mark.slow
def test_12_sigterm_in_write(
    case: Case, job: Job, tmp_path: Path, rng: random.Random, count: Count, seen: list[str]
) -> None:
    writes = [p for p in dict.fromkeys(seen) if p.startswith(("tear", "fsync")) and "checkpoints/.tmp" in p]
    for i in range(count(6, 1)):
        out = tmp_path / str(i)
        with case.fault():
            point = rng.choice(writes)
            nth = rng.randint(1, 6)
            result = run(*job.command(out), within=[partial(points.strike, out, point, nth, signal.SIGTERM)])
            job.is_done(out, stopped(result, out, signal.SIGTERM))


@pytest.mark.slow
def test_12_sigterm_in_write_in_the_background(
    case: Case, job: Job, tmp_path: Path, rng: random.Random, count: Count, seen: list[str]
) -> None:
    writes = [p for p in dict.fromkeys(seen) if p.startswith(("tear", "fsync")) and "checkpoints/.tmp" in p]
    for i in range(count(6, 1)):
        out = tmp_path / str(i)
        with case.fault():
            strike = partial(points.strike, out, rng.choice(writes), rng.randint(1, 6), signal.SIGTERM)
            result = run(*job.command(out), within=[points.write_in_background, strike])
            job.is_done(out, stopped(result, out, signal.SIGTERM))


@pytest.mark.slow
def test_13_sigstop_cont(case: Case, job: Job, tmp_path: Path, rng: random.Random, count: Count) -> None:
    for i in range(count(6, 1)):
        out = tmp_path / str(i)
        with case.fault():
            child = start(*job.command(out))
            until(lambda out=out: (out / "checkpoints").exists(), child)
            for _ in range(3):
                time.sleep(rng.uniform(0, 0.2))
                child.send(signal.SIGSTOP)
                time.sleep(0.1)
                assert child.process.exitcode is None
                child.send(signal.SIGCONT)
            assert child.wait().code == 0
            job.is_done(out)


@pytest.mark.slow
def test_78_sighup(case: Case, job: Job, tmp_path: Path, rng: random.Random, count: Count) -> None:
    for i in range(count(6, 1)):
        stop_in_a_step(case, job, tmp_path / str(i), rng.randint(1, BATCHES), signal.SIGHUP)


def on_terminal(path: str) -> None:
    """Make a terminal the controlling terminal and the standard error of this process."""
    os.setsid()
    os.dup2(os.open(path, os.O_RDWR), 2)


def has_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def test_78_terminal_closed(case: Case, job: Job, tmp_path: Path) -> None:
    """Close the terminal: the kernel sends SIGHUP, and messages can no longer be written."""
    out = tmp_path / "run"
    ours, theirs = os.openpty()
    stop = partial(points.strike_in, points.BACKWARD, 51, signal.SIGSTOP)
    with case.fault():
        child = start(*job.command(out), within=[partial(on_terminal, os.ttyname(theirs)), stop])
        until(lambda: drained(ours) and has_stopped(child.pid), child)
        os.close(theirs)
        os.close(ours)
        assert child.wait().code == 128 + signal.SIGHUP
        assert whole(out)[-1] == 26  # the 51st batch is of this step
        job.is_done(out, 26)


def drained(terminal: int) -> bool:
    """Read all output of a terminal, which would otherwise block its process. Return True."""
    while select.select([terminal], [], [], 0)[0]:
        os.read(terminal, 1 << 16)
    return True


def test_79_nohup(case: Case, job: Job, tmp_path: Path, count: Count) -> None:
    """A signal that is ignored when the process starts stays ignored."""
    out = tmp_path / "run"
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)[: count(3, 1)]:
        ignored = partial(signal.signal, number, signal.SIG_IGN)
        strike = partial(points.strike_in, points.BACKWARD, 50, number)
        with case.fault():
            done = run(*job.command(out, "--overwrite"), within=[ignored, strike])
            assert done.code == 0, done.err
            assert outcome(out) == outcome(job.clean)


GLIBC_ABORT = 127
"""The exit code of a process that lacks the memory to end properly (glibc)."""


@pytest.mark.slow
def test_14_memory_limit(case: Case, job: Job, tmp_path: Path, rng: random.Random, count: Count) -> None:
    for i in range(count(10, 2)):
        out = tmp_path / str(i)
        before = dict[str, bytes]()
        with case.fault():
            if i % 2:  # with checkpoints that could be lost
                assert run(*job.command(out), within=[partial(points.strike_in, points.BACKWARD, 50)]).code == -9
                before = earlier(out)
            result = run(*job.command(out), within=[partial(address_space, rng.randint(0, 8 << 20))])
            killed = (-signal.SIGKILL, -signal.SIGABRT, GLIBC_ABORT)
            assert result.code in (5, *killed), (result.code, result.err)
            if result.code == 5:
                assert "memory" in result.last
            assert "Traceback" not in result.err
            unharmed(out, before)
            job.is_done(out)
