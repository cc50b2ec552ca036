"""The stages of a recipe: plain `mtcli` commands that run in subprocesses, one after the other.

Each command is shown as a user can run it.
"""

import ctypes
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from mtcli.errors import StageError, StoppedError
from mtcli.runtime.signals import noted_signals, stopped

PROGRAM = (sys.executable, "-P", "-m", "mtcli")
"""The start of every command. Without `-P`, Python would import files in the current folder, such as `typing.py`."""

POLL_SECONDS = 0.1
"""Seconds between two checks for signals while a command runs."""

SET_SIGNAL_OF_PARENTS_DEATH = 1
"""`PR_SET_PDEATHSIG` of prctl(2)."""

STANDARD_ERROR = 2


def as_argument(path: str | Path) -> str:
    """Return a path as an argument of a command. A name that begins with a dash would be read as an option."""
    return f"./{path}" if str(path).startswith("-") else str(path)


@dataclass(frozen=True)
class Stage:
    """One command of a recipe. Running it again must do no harm, and must continue it if it was interrupted."""

    name: str
    """A name that no other stage of the recipe has."""
    arguments: tuple[str, ...]
    """The words after `mtcli`."""
    is_captured: bool = False
    """Its standard output is returned, instead of going to standard error."""

    def __str__(self) -> str:
        return shlex.join(["mtcli", *self.arguments])


def run_command(stage: Stage, while_waiting: Callable[[], None] = lambda: None) -> str:
    """Run the command of a stage in a subprocess, and stop it if a signal arrives.

    Its output goes to standard error, unless it is captured: standard output carries the results of the recipe only.
    If this process is killed, Linux kills the command too. Otherwise it would continue, and lock its output.

    Args:
        stage: The stage.
        while_waiting: Called at every check for signals.

    Returns:
        Its standard output, if that is captured.

    Raises:
        StageError, StoppedError: See `Recipe.run`.
        Exception: What `while_waiting` raises. The command was stopped first.
    """
    with noted_signals() as received:
        child = subprocess.Popen(
            [*PROGRAM, *stage.arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if stage.is_captured else STANDARD_ERROR,
            preexec_fn=_ending_with_parent() if sys.platform == "linux" else None,
        )
        try:
            output = _wait(child, received, while_waiting)
        except BaseException:
            child.terminate()
            child.wait()
            raise
    code = child.returncode
    if received:
        message = f"{stage.name}: {stopped(received[0])}; run the same command again to continue"
        raise StoppedError(message, received[0])
    if code:
        raise StageError(stage.name, code)
    return output.decode()


def _ending_with_parent() -> Callable[[], None]:
    """Return a function that a child calls before its command starts: the kernel then kills it when its parent dies.

    The library is loaded here, in the parent. In the child, loading could wait forever for a lock that another thread
    of the parent held during the fork.
    """
    return partial(_end_with_parent, os.getpid(), ctypes.CDLL(None))


def _end_with_parent(parent: int, libc: ctypes.CDLL) -> None:
    libc.prctl(SET_SIGNAL_OF_PARENTS_DEATH, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # the parent died before the call
        os._exit(128 + signal.SIGKILL)


def _wait(child: subprocess.Popen[bytes], received: Sequence[int], while_waiting: Callable[[], None]) -> bytes:
    """Wait until a command ends, and return its standard output, if that is captured.

    A signal is passed on as SIGTERM: after Ctrl-C the terminal has sent SIGINT to the command too, and a second one
    would end it before it has saved its work.
    """
    is_stopping = False
    while True:
        try:
            output, _ = child.communicate(timeout=POLL_SECONDS)
            return output or b""
        except subprocess.TimeoutExpired:
            while_waiting()
            if received and not is_stopping:
                child.terminate()
                is_stopping = True
