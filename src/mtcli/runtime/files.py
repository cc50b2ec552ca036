"""Files that a crash cannot leave half written, files read without surprises, and locks.

A file is written under a temporary name, synced and renamed.
"""

import errno
import hashlib
import json
import os
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

from mtcli import limits
from mtcli.errors import DataError, LockedError, StorageError

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


def json_bytes(content: Any) -> bytes:
    """Return the content of a JSON file that people may read: on several lines, with all characters as they are."""
    return (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode()


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
    with _replacing(path) as file:
        file.write(content)


@contextmanager
def _replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a binary file that replaces that of its name when the block ends."""
    name = f".{path.name}.tmp"
    with storage_errors(path):
        path.with_name(name).unlink(missing_ok=True)  # left by a process that was killed
        with TemporaryFile(path, [name]) as temporary:
            yield temporary.file
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
    with storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    with _replacing(path) as file:
        yield file


def check_readable(*names: str | Path | None) -> None:
    """Check that files can be read. None and `-` pass.

    Raises:
        DataError: A file is missing, is a folder, or may not be read.
    """
    for name in names:
        if name is None or name == "-":
            continue
        reason = _reason_not_to_read(name)
        if reason:
            raise DataError(f"{name}: cannot read it ({os.strerror(reason)})")


def _reason_not_to_read(name: str | Path) -> int:
    """Return the error number of reading a file, or 0 if it can be read."""
    try:
        is_folder = stat.S_ISDIR(Path(name).stat().st_mode)
    except OSError as error:
        return error.errno or errno.ENOENT
    if is_folder:
        return errno.EISDIR
    return 0 if os.access(name, os.R_OK) else errno.EACCES


def open_regular(path: Path, inside: Path | None = None) -> BufferedReader:
    """Open a file for reading, without blocking.

    Args:
        path: The file, or a link to one.
        inside: The folder that must contain the file once all links are resolved; None: any folder.

    Raises:
        OSError: The file is missing, is not a regular file, or lies outside the folder.
    """
    check_regular(path, inside)
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        _refuse_special(path, os.fstat(descriptor).st_mode)  # it may have been replaced since the first check
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_regular(path: Path, most: int = limits.METADATA) -> bytes:
    """Read a small file whole. A file over the limit is refused before any of it is read.

    Args:
        path: The file, or a link to one.
        most: The largest size in bytes.

    Raises:
        OSError: See `open_regular`; also if the file is larger than `most`.
    """
    with open_regular(path) as file:
        too_large = os.fstat(file.fileno()).st_size > most
        content = b"" if too_large else file.read(most + 1)  # the file may have grown since
    if too_large or len(content) > most:
        raise OSError(errno.EFBIG, f"larger than {most:,} bytes, the limit for such a file", str(path))
    return content


def sha256(path: Path, inside: Path | None = None) -> str:
    """Return the SHA-256 of a file, in hexadecimal digits. See `open_regular` for `inside` and the errors."""
    with open_regular(path, inside) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_regular(path: Path, inside: Path | None = None) -> None:
    """Check a file before a library opens it by name.

    Raises:
        OSError: See `open_regular`.
    """
    try:
        _refuse_special(path, path.stat().st_mode)
    except ValueError as error:  # a NUL in the name
        raise OSError(errno.EINVAL, str(error), str(path)) from None
    if inside is not None and not path.resolve().is_relative_to(inside.resolve()):
        raise OSError(errno.EINVAL, f"leads out of {inside}", str(path))


def _refuse_special(path: Path, mode: int) -> None:
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, f"{_kind(mode)}, not a regular file", str(path))


def _kind(mode: int) -> str:
    names = {
        stat.S_IFDIR: "a folder",
        stat.S_IFIFO: "a named pipe",
        stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
    }
    return names.get(stat.S_IFMT(mode), "a special file")


@contextmanager
def file_lock(path: Path, message: Callable[[str], str]) -> Iterator[None]:
    """Hold the lock of a file, which is created and contains the number of the process that holds it.

    The lock is the kernel's (`flock`), so it ends with the process, even one that is killed. A file system that does
    not support such locks is refused: the fallback of `filelock`, a file that exists while the lock is held, would
    outlive a killed process.

    The block may delete the file at its end. A process that opened the file before that and locks it afterwards does
    not count as the holder: `filelock` notices that the file is gone, and creates another.

    Args:
        path: The file. Its folder must exist.
        message: Returns the message of the error, given the number of the process that holds the lock.

    Raises:
        LockedError: Another process holds the lock.
        StorageError: The file cannot be written, or is a link or another special file.
    """
    from filelock import FileLock, Timeout  # imported here because it takes time

    lock = FileLock(path, blocking=False, fallback_to_soft=False, on_acquired=_write_process_number)
    with storage_errors(path):
        try:
            if path.exists():
                check_regular(path)
            lock.acquire()
        except Timeout:
            holder = read_regular(path).decode(errors="replace") or "?"
            raise LockedError(message(holder)) from None
    try:
        yield
    finally:
        lock.release()


def _write_process_number(descriptor: int) -> None:
    os.ftruncate(descriptor, 0)
    os.write(descriptor, str(os.getpid()).encode())


@contextmanager
def folder_lock(folder: Path, work: str = "is training here", other: str = "choose another --out") -> Iterator[None]:
    """Hold the lock of a folder, the file `.lock`: one process trains, or writes, in it at a time. See `file_lock`.

    At the end, the lock file is deleted if the folder holds nothing else.

    Args:
        folder: The folder. It must exist.
        work: What the holder does, for the message.
        other: What the user can do except waiting, for the message.

    Raises:
        LockedError: Another process holds the lock. The message has its number.
        StorageError: The lock file cannot be written, or is a link or another special file.
    """
    path = folder / ".lock"
    with file_lock(path, lambda holder: f"{folder}: process {holder} {work}; wait for it, or {other}"):
        try:
            yield
        finally:
            with suppress(OSError):  # the folder may have been deleted
                if [other.name for other in folder.iterdir()] == [path.name]:
                    path.unlink()
