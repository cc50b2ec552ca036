"""Signals: asked once to end, a step may end and be saved; asked twice by Ctrl-C, leave at once."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""The signals that ask a process to end: by `kill`, by Ctrl-C, by a terminal that is closed."""


@contextmanager
def noted_signals() -> Iterator[list[int]]:
    """Collect the numbers of signals instead of dying of them; outside the main thread nothing is collected.

    A signal that the process was started to ignore, as `nohup` has it with SIGHUP, stays ignored.
    """
    received: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and received:
            os._exit(128 + number)
        received.append(number)

    if threading.current_thread() is not threading.main_thread():
        yield received
        return
    heard = [number for number in ENDING if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, note) for number in heard}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def end_by_closed_pipe() -> NoReturn:
    """End this process as a reader that has seen enough (`| head`) ends any Unix tool: by SIGPIPE, silently."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.raise_signal(signal.SIGPIPE)
    raise AssertionError("SIGPIPE ends a process")
