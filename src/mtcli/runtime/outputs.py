"""Write the outputs of commands: a file appears under its name when it is complete.

A device, a pipe or `/dev/stdout` is written directly. Any other file is written under a temporary name in the same
folder and renamed at the end, so an interrupted command leaves an earlier file of that name as it was.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import stat
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from io import TextIOWrapper
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO

from mtcli.errors import MtcliError, StoppedError, StorageError
from mtcli.runtime.files import TemporaryFile, storage_errors, sync_folder, sync_tree
from mtcli.runtime.signals import end_by_closed_pipe, stopped, stopped_by_signals

log = logging.getLogger(__name__)

NAME_BYTES = 200
"""Bytes of the target's name that the name of a temporary file or folder repeats. File systems allow 255 in a name."""


def real_path(path: Path) -> Path:
    """Return the absolute path without symbolic links."""
    return Path(os.path.realpath(path))


def folder_beside(folder: Path, ending: str) -> Path:
    """Return the path `NAME-ENDING` in the folder that contains another one.

    Args:
        folder: The other folder. If it is a link, `.` or `..`, the folder that it leads to counts; the path is then
            relative to the current folder if it lies in it.
        ending: The end of the new name.
    """
    if folder.name not in ("", "..") and not folder.is_symlink():
        return folder.with_name(f"{folder.name}-{ending}")
    real = real_path(folder)
    beside = real.parent / f"{real.name}-{ending}"
    here = Path.cwd()
    return beside.relative_to(here) if beside.is_relative_to(here) else beside


def is_special(path: Path) -> bool:
    """Return True if a path is written directly: a device, a pipe, or a link to a descriptor such as /dev/stdout."""
    if path.exists() and not path.is_file():
        return True
    absolute = os.path.abspath(path)  # noqa: PTH100 - `resolve` would follow the link
    _, *folders = Path(absolute).parts
    return path.is_symlink() and folders[0] in ("dev", "proc") and folders[:2] != ["dev", "shm"]  # files in memory


def _open_special(path: Path) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND), "wb", buffering=0)


def _create(target: Path, names: Iterable[str]) -> TemporaryFile:
    """Create a temporary file with the permissions of `target` if that exists."""
    temporary = TemporaryFile(target, names)
    if target.exists():
        os.fchmod(temporary.file.fileno(), stat.S_IMODE(target.stat().st_mode))
    return temporary


def _storage_error(place: str | Path, error: OSError) -> StorageError:
    return StorageError(f"{place}: cannot be written ({error.strerror or error})")


@contextmanager
def whole_files(paths: Sequence[Path]) -> Iterator[list[BinaryIO]]:
    """Open binary files that appear under their names when the block ends, and not at all if the block fails.

    Raises:
        StorageError: A file cannot be written.
        StoppedError: A signal stopped the block.
    """
    names = (f".mtcli-{os.getpid()}-{n}" for n in count())
    try:
        with stopped_by_signals(), ExitStack() as stack:
            files: list[BinaryIO] = []
            temporaries: list[TemporaryFile] = []
            for path in paths:
                if is_special(path):
                    files.append(stack.enter_context(_open_special(path)))
                else:
                    temporary = stack.enter_context(_create(real_path(path), names))
                    temporaries.append(temporary)
                    files.append(temporary.file)
            yield files
            for temporary in temporaries:
                temporary.sync()
            for temporary in temporaries:
                temporary.publish()
    except OSError as error:
        raise _storage_error(" and ".join(map(str, paths)), error) from None


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """Yield a new folder that replaces `folder` when the block ends, and is deleted if the block fails.

    Args:
        folder: The folder to write. If it is a link, the folder that it leads to is replaced.

    Raises:
        LockedError: Another process is writing the folder.
        StorageError: It cannot be written.
    """
    from mtcli.runtime.file_lock import file_lock  # imported here because it takes time

    target = real_path(folder)
    temporary = target.with_name(f".{_short_name(target)}.tmp")
    lock = target.with_name(f".{_short_name(target)}.lock.tmp")
    with storage_errors(folder):
        target.parent.mkdir(parents=True, exist_ok=True)
    with file_lock(lock, lambda holder: f"{folder}: process {holder} is writing it; wait for it, or choose another"):
        shutil.rmtree(temporary, ignore_errors=True)  # left by a process that was killed
        try:
            with storage_errors(folder):
                temporary.mkdir()
                yield temporary
                sync_tree(temporary)
                _rename_into_place(temporary, target)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
            with suppress(OSError):
                lock.unlink()


def _rename_into_place(temporary: Path, target: Path) -> None:
    """Rename a complete temporary folder. An earlier folder is moved aside first, and deleted last.

    Deleting it first would take longer than two renames, and a crash in that time would leave neither folder.
    """
    earlier = target.with_name(f".{_short_name(target)}.old.tmp")
    shutil.rmtree(earlier, ignore_errors=True)
    if target.exists():
        target.rename(earlier)
    try:
        temporary.rename(target)
    except OSError:
        if earlier.exists():
            earlier.rename(target)
        raise
    sync_folder(target.parent)
    shutil.rmtree(earlier, ignore_errors=True)


def _short_name(target: Path) -> str:
    """Return the name of a file or folder, cut so that an ending can be added to it."""
    return os.fsdecode(os.fsencode(target.name)[:NAME_BYTES])


def write_whole(path: Path, content: bytes) -> None:
    """Write a file completely or not at all.

    Raises:
        StorageError: The file cannot be written.
    """
    with whole_files([path]) as (file,):
        file.write(content)


class PartialFile:
    """A text file that is written line by line as `NAME.partial`, and renamed to `NAME` when it is complete.

    End it with `finish`, or with `keep` after a failure.

    Args:
        path: The file to write at the end.

    Raises:
        StorageError: The file cannot be created.
    """

    def __init__(self, path: Path):
        self.target = real_path(path)
        stem = _short_name(self.target)
        names = (f"{stem}.partial{n or ''}" for n in count())
        try:
            self._temporary = _create(self.target, names)
        except OSError as error:
            raise _storage_error(path, error) from None
        self.path = self._temporary.path
        self.lines = 0
        self._descriptor = self._temporary.file.fileno()
        self._size = 0

    def write(self, text: str) -> None:
        """Append complete lines. They are in the file when this returns."""
        self.write_bytes(text.encode())

    def write_bytes(self, lines: bytes) -> None:
        """Append complete lines that are encoded already."""
        rest = memoryview(lines)
        while rest:
            written = os.write(self._descriptor, rest)
            rest = rest[written:]
        self._size += len(lines)
        self.lines += lines.count(b"\n")

    def flush(self) -> None:
        """Do nothing: `write` has no buffer."""

    def finish(self) -> None:
        """Rename the file to its target."""
        self._temporary.sync()
        self._temporary.publish()

    def keep(self) -> str:
        """Cut the file after its last complete line, and return where it is. A file without a line is deleted."""
        if self._temporary.published:
            return f"{self.target} is complete"
        if not self.path.exists():
            self._temporary.discard()
            folder = self.path.parent
            deleted = self.path if folder.exists() else f"the folder {folder}"
            return f"{deleted} was deleted, and the output with it"
        with suppress(OSError):
            os.ftruncate(self._descriptor, self._size)
        if not self.lines:
            self._temporary.discard()
            return "no line of the output was finished"
        self._temporary.file.close()
        if self.lines == 1:
            return f"the first line of the output is in {self.path}"
        return f"the first {self.lines:,} lines of the output are in {self.path}"


@contextmanager
def partial_file(path: Path) -> Iterator[PartialFile]:
    """Open a `PartialFile`: finished when the block ends, kept if the block fails.

    After a failure, the message of the error ends with the path of the partial file.

    Raises:
        StorageError: The file cannot be written.
        StoppedError: A signal stopped the block.
    """
    output = PartialFile(path)
    try:
        with stopped_by_signals():
            yield output
            output.finish()
    except KeyboardInterrupt:
        raise StoppedError(f"{stopped(signal.SIGINT)}; {output.keep()}", signal.SIGINT) from None
    except OSError as error:
        where = f"{error.filename or output.path}: {error.strerror or error}"
        raise StorageError(f"{where}; {output.keep()}") from None
    except MtcliError as error:
        error.args = (f"{error}; {output.keep()}",)
        raise
    except BaseException:
        log.warning("%s", output.keep())
        raise


@contextmanager
def open_output(path: str) -> Iterator[Any]:
    """Open a text stream for results: standard output for `-`, otherwise a file (see `partial_file`).

    Raises:
        StorageError: The file cannot be written.
        StoppedError: A signal stopped the block.
    """
    if path == "-":
        yield sys.stdout
    elif is_special(Path(path)):
        with _special_stream(Path(path)) as stream:
            yield stream
    else:
        with partial_file(Path(path)) as output:
            yield output


@contextmanager
def _special_stream(path: Path) -> Iterator[TextIOWrapper]:
    """Open a device or pipe for text. The process ends by SIGPIPE if the reader of the pipe closes it."""
    try:
        special = _open_special(path)
    except OSError as error:
        raise _storage_error(path, error) from None
    try:
        with TextIOWrapper(special, "utf-8", newline="\n", write_through=True) as stream:
            yield stream
    except BrokenPipeError:
        end_by_closed_pipe()
