"""A limit of time for tests that start processes."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

HANGS = 600
"""Seconds after which a process counts as hung: far more than any needs, even on a busy machine."""


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
