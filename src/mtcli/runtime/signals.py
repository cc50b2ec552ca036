"""Signals that end a command: after the step that is running, at once, or with its unfinished files cleared away."""

import os
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

from mtcli.errors import StoppedError

ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""The signals that ask a process to end: sent by `kill`, by Ctrl-C and when the terminal is closed."""


def stopped(number: int) -> str:
    """Return why a command stopped at this signal, in words."""
    if number == signal.SIGINT:
        return "stopped by Ctrl-C"
    if number == signal.SIGHUP:
        return "stopped because the terminal was closed"
    return f"stopped by the signal {signal.Signals(number).name}"


class QuietInterrupt(KeyboardInterrupt):
    """Ctrl-C at a prompt, where it is a usual way to leave: the command ends without a message."""


@contextmanager
def noted_signals() -> Iterator[list[int]]:
    """Collect the numbers of ending signals in a list, so that the caller can finish its step. A second Ctrl-C exits.

    Signals that are ignored when the context opens, such as SIGHUP under `nohup`, stay ignored. Outside the main
    thread nothing is collected, because Python sets signal handlers in the main thread only.
    """
    received: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and received:
            os._exit(128 + number)
        received.append(number)

    if not _in_main_thread():
        yield received
        return
    handled = [number for number in ENDING if signal.getsignal(number) != signal.SIG_IGN]
    previous = {number: signal.signal(number, note) for number in handled}
    try:
        yield received
    finally:
        _restore(previous)


class _Signalled(BaseException):
    """Raised by a signal handler. As a `BaseException` it is not caught by `except Exception`."""

    def __init__(self, number: int):
        super().__init__(number)
        self.number = number


@contextmanager
def stopped_by_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the block with an exception, so that its unfinished files can be kept or deleted.

    Signals that are ignored (such as SIGHUP under `nohup`) or that have a handler are left as they are. Outside the
    main thread the context does nothing.

    Raises:
        StoppedError: One of these signals arrived.
    """
    numbers = [signal.SIGTERM, signal.SIGHUP] if _in_main_thread() else []
    previous = {number: signal.SIG_DFL for number in numbers if signal.getsignal(number) == signal.SIG_DFL}

    def stop(number: int, frame: FrameType | None) -> None:
        for each in previous:
            signal.signal(each, signal.SIG_IGN)  # a second signal must not interrupt the clean-up
        raise _Signalled(number)

    for number in previous:
        signal.signal(number, stop)
    try:
        yield
    except _Signalled as signalled:
        raise StoppedError(stopped(signalled.number), signalled.number) from None
    finally:
        _restore(previous)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _restore(previous: Mapping[signal.Signals, Any]) -> None:
    for number, handler in previous.items():
        signal.signal(number, handler)


def end_by_closed_pipe() -> NoReturn:
    """End this process silently by SIGPIPE, as other Unix tools end when their reader (`| head`) closes the pipe."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.raise_signal(signal.SIGPIPE)
    raise AssertionError("SIGPIPE ends a process")
