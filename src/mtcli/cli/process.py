"""What a process sets up before it runs a command: its standard streams, and how the threads of OpenMP wait."""

import errno
import os
import sys
from io import BufferedWriter, FileIO, TextIOWrapper, UnsupportedOperation
from typing import Any, TextIO

from mtcli.errors import UsageError

SPIN_COUNT = "1000"
"""How often a waiting thread of GNU's OpenMP looks again before it sleeps; of itself 300,000 times, milliseconds.

It is the library's own figure where there are more threads than cores, so it takes that the cores are shared.
"""

WAITING = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "KMP_BLOCKTIME")


def limit_spinning() -> None:
    """Let threads that wait leave the cores to other processes, unless the user's environment says how to wait.

    Must be called before PyTorch is imported, whose OpenMP reads the variable once. Only GNU's runtime knows it.
    """
    if not any(name in os.environ for name in WAITING):
        os.environ["GOMP_SPINCOUNT"] = SPIN_COUNT


def check_current_folder() -> None:
    """Refuse to work in a folder that was deleted: PyTorch's libraries end the process there, with a message of theirs.

    Raises:
        UsageError: The current folder is gone.
    """
    try:
        os.getcwd()  # noqa: PTH109 - pathlib would be imported for it
    except FileNotFoundError:
        raise UsageError("the current folder was deleted; change to another (cd) and run the command again") from None


def open_streams() -> None:
    """Make standard output and error UTF-8 whatever the locale, and give each one way to fail.

    - Standard output that cannot be written raises OSError, once: what is still buffered then is dropped, as Python
      would try it again at exit, print a traceback and exit with 120. A reader that has closed its pipe ends this
      process as it ends any Unix tool: by SIGPIPE, silently. Closed standard output fails when it is written to.
    - Standard error that cannot be written is dropped: no message is worth the work it reports on.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:  # closed: the next file that is opened must not get its number, and what is written to it
            os.open(os.devnull, os.O_RDONLY)
    sys.stdout = _reopened(sys.stdout, 1, _Results)
    sys.stderr = _reopened(sys.stderr, 2, _Messages)


def _reopened(stream: TextIO | None, descriptor: int, kind: type[FileIO]) -> Any:
    """The stream, with writes of this kind; one that is not of a file (a test's, in memory) stays as it is."""
    if stream is not None:
        try:
            descriptor = stream.fileno()
        except UnsupportedOperation:
            return stream
        stream.flush()
    file = BufferedWriter(kind(descriptor, "w", closefd=False))
    at_once = file.isatty() or kind is _Messages or bool(getattr(stream, "write_through", False))
    return TextIOWrapper(file, encoding="utf-8", errors="backslashreplace", newline="\n", line_buffering=at_once)


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
        try:
            return super().write(data) or memoryview(data).nbytes  # None: a terminal that would block
        except OSError:
            return memoryview(data).nbytes
