"""Files that a crash cannot leave half written: write beside, sync, rename."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mtcli.errors import StorageError


@contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Turn a failure to write into a `StorageError` that names the place and the remedy."""
    try:
        yield
    except OSError as error:
        remedy = {
            errno.ENOSPC: "free some space and run the same command again",
            errno.EDQUOT: "free some of your quota and run the same command again",
            errno.EFBIG: "raise the file size limit (ulimit -f) and run the same command again",
            errno.EROFS: "the file system is read-only: choose another --out",
            errno.EACCES: "you may not write there: choose another --out",
            errno.EMFILE: "raise the limit of open files (ulimit -n) and run the same command again",
        }.get(error.errno or 0, "earlier checkpoints are untouched; run the same command again")
        raise StorageError(f"{error.filename or path}: {error.strerror or error}; {remedy}") from None


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_file(path: Path, content: bytes) -> None:
    """Write a new file and sync it; the caller renames. What has its name is deleted first, never written through."""
    path.unlink(missing_ok=True)
    with path.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def replace_file(path: Path, content: bytes) -> None:
    """Put new content in place of a file's, at once or not at all.

    Raises:
        StorageError: The disk is full, read-only or otherwise unwilling.
    """
    with storage_errors(path):
        aside = path.with_name(f".{path.name}.tmp")
        write_file(aside, content)
        aside.replace(path)
        sync_folder(path.parent)
