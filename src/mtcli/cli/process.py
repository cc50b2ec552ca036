"""Setup of a process before it runs a command: its folder and its standard streams."""

import errno
import os
import sys
from collections.abc import Sequence
from io import BufferedWriter, FileIO, TextIOWrapper, UnsupportedOperation
from pathlib import Path
from typing import Any, TextIO

from mtcli.cli.options import LATEST
from mtcli.errors import UsageError

WIDTHS = ("COLUMNS", "LINES", "TERMINAL_WIDTH")
"""Environment variables from which rich and typer take the size of the terminal."""

MIN_WIDTH = 10
"""Columns below which no message can be read."""

MAX_DIGITS = 4
"""Digits of a number in the environment that counts columns."""


def ignore_unusable_widths() -> None:
    """Drop variables that claim a terminal of no real width, so that libraries measure the terminal instead.

    With a width of 0, rich prints no message at all. A huge one, or a text, ends typer with an error of Python.
    """
    for name in WIDTHS:
        value = os.environ.get(name)
        if value is not None and not _is_width(value):
            del os.environ[name]


def _is_width(text: str) -> bool:
    is_number = text.isascii() and text.isdecimal() and len(text) <= MAX_DIGITS
    return is_number and int(text) >= MIN_WIDTH


def check_current_folder() -> None:
    """Refuse to work in a folder that was deleted, where PyTorch's libraries abort with a message of their own.

    Raises:
        UsageError: The current folder is gone.
    """
    try:
        os.getcwd()  # noqa: PTH109 - avoids importing pathlib
    except FileNotFoundError:
        raise UsageError("the current folder was deleted; change to another (cd) and run the command again") from None


def open_streams() -> None:
    """Make standard output and standard error UTF-8 in every locale, and define how each of them fails.

    - If standard output cannot be written, `OSError` is raised once, and the rest of the buffer is dropped. (Python
      would retry at exit, print a traceback and exit with 120.) If the reader of a pipe has closed it, SIGPIPE ends
      this process silently, as it ends other Unix tools. If standard output is closed, the first write fails.
    - If standard error cannot be written, messages are dropped and the work continues.
    """
    _occupy_closed_descriptors()
    sys.stdout = _reopened(sys.stdout, 1, _Results)
    sys.stderr = _reopened(sys.stderr, 2, _Messages)


def note(text: str) -> None:
    """Print a line for people on standard error. Control characters in it are escaped."""
    from mtcli.runtime.wording import printable

    print(printable(text), file=sys.stderr)


def note_latest(models: Sequence[Path]) -> None:
    """On a terminal, name the run that `runs/latest` points to, if it is the model in use."""
    from mtcli.runtime import torchrun
    from mtcli.runtime.progress import on_terminal

    is_latest = list(models) == [LATEST] and LATEST.is_symlink()
    if is_latest and torchrun.rank() == 0 and on_terminal(sys.stderr):
        note(f"using {LATEST} → {LATEST.parent / LATEST.readlink()}")


def _occupy_closed_descriptors() -> None:
    """Open /dev/null in place of closed standard streams, so that no other file gets their descriptors."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDONLY)


def _reopened(stream: TextIO | None, descriptor: int, kind: type[FileIO]) -> Any:
    """Return the stream with writes of this kind. A stream without a file, as in tests, stays as it is."""
    if stream is not None:
        try:
            descriptor = stream.fileno()
        except UnsupportedOperation:
            return stream
        stream.flush()
    file = BufferedWriter(kind(descriptor, "w", closefd=False))
    writes_at_once = file.isatty() or kind is _Messages or bool(getattr(stream, "write_through", False))
    return TextIOWrapper(file, encoding="utf-8", errors="backslashreplace", newline="\n", line_buffering=writes_at_once)


class _Results(FileIO):
    """Standard output."""

    failed = False

    def write(self, data: Any, /) -> int:
        if self.failed:
            return memoryview(data).nbytes
        try:
            return super().write(data)
        except OSError as error:
            self.failed = True
            if error.errno == errno.EPIPE:
                from mtcli.runtime.signals import end_by_closed_pipe

                end_by_closed_pipe()
            reason = "is closed" if error.errno == errno.EBADF else error.strerror
            raise OSError(error.errno, reason, "standard output") from None


class _Messages(FileIO):
    """Standard error."""

    def write(self, data: Any, /) -> int:
        size = memoryview(data).nbytes
        try:
            written = super().write(data)
        except OSError:
            return size
        return written or size  # None from a terminal that would block
