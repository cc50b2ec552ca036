"""A lock that one process holds at a time, and that ends with the process."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from mtcli.errors import LockedError
from mtcli.runtime.files import storage_errors
from mtcli.runtime.regular_file import check_regular, read_regular


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
