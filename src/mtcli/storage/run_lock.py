"""The lock of a folder: one process trains, or writes, in it at a time."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from mtcli.errors import LockedError
from mtcli.runtime.files import storage_errors
from mtcli.runtime.regular_file import check_regular, read_regular


@contextmanager
def lock(run: Path, work: str = "is training here", other: str = "choose another --out") -> Iterator[None]:
    """Hold the lock of a run folder, the file `.lock`, which contains the number of the process that holds it.

    The lock is the kernel's (`flock`), so it ends with the process, even one that is killed. On a file system that
    does not support such locks, training is refused: the fallback of `filelock`, a file that exists while the lock is
    held, would outlive a killed process.

    At the end, the lock file is deleted if the folder holds nothing else. A process that opened the file before that
    and locks it afterwards does not count as the holder: `filelock` notices that the file is gone, and creates another.

    Args:
        run: The run folder. It must exist.
        work: What the holder does, for the message.
        other: What the user can do except waiting, for the message.

    Raises:
        LockedError: Another process holds the lock. The message has its number.
        StorageError: The lock file cannot be written, or is a link or another special file.
    """
    path = run / ".lock"
    file_lock = FileLock(path, blocking=False, fallback_to_soft=False, on_acquired=_write_process_number)
    with storage_errors(path):
        try:
            if path.exists():
                check_regular(path)
            file_lock.acquire()
        except Timeout:
            holder = read_regular(path).decode(errors="replace") or "?"
            raise LockedError(f"{run}: process {holder} {work}; wait for it, or {other}") from None
    try:
        yield
    finally:
        with suppress(OSError):  # the folder may have been deleted
            if [other.name for other in run.iterdir()] == [path.name]:
                path.unlink()
        file_lock.release()


def _write_process_number(descriptor: int) -> None:
    os.ftruncate(descriptor, 0)
    os.write(descriptor, str(os.getpid()).encode())
