"""Signals: asked once by SIGTERM or Ctrl-C, a step may end and be saved; asked twice by Ctrl-C, leave at once."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def noted_signals() -> Iterator[list[int]]:
    """Collect the numbers of signals instead of dying of them; outside the main thread nothing is collected."""
    received: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and received:
            os._exit(128 + number)
        received.append(number)

    if threading.current_thread() is not threading.main_thread():
        yield received
        return
    before = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def quiet_pipe() -> None:
    """Let a reader that has seen enough (`| head`) end this process as it ends any Unix tool: 141, silently.

    To be called before results are printed; and where there is work to lose, not before that is done.
    """
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
