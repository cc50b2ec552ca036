"""Files that a crash cannot leave half written: write a temporary file, sync it, rename it."""

import errno
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from mtcli.errors import StorageError

_REMEDIES = {
    errno.ENOSPC: "free some space and run the same command again",
    errno.EDQUOT: "free some of your quota and run the same command again",
    errno.EFBIG: "raise the file size limit (ulimit -f) and run the same command again",
    errno.EROFS: "the file system is read-only: choose another folder",
    errno.EACCES: "you may not write there: choose another folder",
    errno.EMFILE: "raise the limit of open files (ulimit -n) and run the same command again",
}
_OTHER_REMEDY = "run the same command again"


@contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Raise an `OSError` of the block as a `StorageError` whose message names the file and the remedy.

    Args:
        path: Named in the message if the error names no file.
    """
    try:
        yield
    except OSError as error:
        remedy = _REMEDIES.get(error.errno or 0, _OTHER_REMEDY)
        raise StorageError(f"{error.filename or path}: {error.strerror or error}; {remedy}") from None


def sync_folder(folder: Path) -> None:
    """Sync a folder, so that files created or renamed in it keep their names after a power failure."""
    _sync(folder)


def sync_tree(folder: Path) -> None:
    """Sync a folder and everything in it: files that a library wrote may not be on the disk yet."""
    for path in sorted(folder.rglob("*"), reverse=True):  # the content of a folder before the folder
        _sync(path)
    _sync(folder)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_file(path: Path, content: bytes) -> None:
    """Write and sync a new file. An existing file or link of this name is deleted first, so no link is followed."""
    path.unlink(missing_ok=True)
    with path.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


class TemporaryFile:
    """A new binary file beside its target that replaces the target when it is complete.

    As a context manager it is deleted on exit, unless `publish` was called.

    Args:
        target: The file to create or replace.
        names: Names for the new file, in the folder of `target`. The first that is free is used.

    Raises:
        OSError: The file cannot be created.
    """

    def __init__(self, target: Path, names: Iterable[str]):
        self.target = target
        for name in names:
            self.path = target.with_name(name)
            with suppress(FileExistsError):
                self.file = self.path.open("xb")
                break
        else:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(self.path))
        self.published = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self.published:
            self.discard()

    def sync(self) -> None:
        """Write the content to the disk."""
        self.file.flush()
        os.fsync(self.file.fileno())

    def publish(self) -> None:
        """Rename the synced file to its target, and sync the folder."""
        self.path.replace(self.target)
        self.published = True
        sync_folder(self.target.parent)
        self.file.close()

    def discard(self) -> None:
        """Delete the file."""
        self.path.unlink(missing_ok=True)
        with suppress(OSError):  # a full disk refuses what is still in the buffer
            self.file.close()


def replace_file(path: Path, content: bytes) -> None:
    """Write a file atomically: at any moment, the path has either the old content or the complete new content.

    Raises:
        StorageError: The file cannot be written.
    """
    with storage_errors(path):
        name = f".{path.name}.tmp"
        path.with_name(name).unlink(missing_ok=True)  # left by a process that was killed
        with TemporaryFile(path, [name]) as temporary:
            temporary.file.write(content)
            temporary.sync()
            temporary.publish()


def copy_file(source: Path, target: Path) -> None:
    """Copy a file. The copy appears under its name when it is complete, see `new_file`.

    Raises:
        StorageError: It cannot be read or written.
    """
    with new_file(target) as copy, source.open("rb") as content:
        shutil.copyfileobj(content, copy)


@contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """Open a binary file that appears under its name when the block ends. Its folder is created.

    Raises:
        StorageError: The file cannot be written.
    """
    name = f".{path.name}.tmp"
    with storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_name(name).unlink(missing_ok=True)  # left by a process that was killed
        with TemporaryFile(path, [name]) as temporary:
            yield temporary.file
            temporary.sync()
            temporary.publish()
