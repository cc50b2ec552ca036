"""For tests that start processes: when one hangs, and how a shell starts one."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

HANGS = 600
"""Seconds after which a process is taken to hang: far more than any needs where other work has all the cores."""


@contextmanager
def no_hang() -> Iterator[None]:
    """Fail the test if the block is still running after HANGS seconds."""

    def fail(*_: Any) -> None:
        pytest.fail(f"still running after {HANGS} s")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(HANGS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def heed_signals() -> None:
    """For `preexec_fn`: heed what `nohup` and a shell's background have the tests themselves ignore."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
