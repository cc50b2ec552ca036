"""The lock of a folder: one process trains, or writes, in it at a time."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mtcli.runtime.files import file_lock


@contextmanager
def lock(run: Path, work: str = "is training here", other: str = "choose another --out") -> Iterator[None]:
    """Hold the lock of a run folder, the file `.lock`; see `file_lock`.

    At the end, the lock file is deleted if the folder holds nothing else.

    Args:
        run: The run folder. It must exist.
        work: What the holder does, for the message.
        other: What the user can do except waiting, for the message.

    Raises:
        LockedError: Another process holds the lock. The message has its number.
        StorageError: The lock file cannot be written, or is a link or another special file.
    """
    path = run / ".lock"
    with file_lock(path, lambda holder: f"{run}: process {holder} {work}; wait for it, or {other}"):
        try:
            yield
        finally:
            with suppress(OSError):  # the folder may have been deleted
                if [other.name for other in run.iterdir()] == [path.name]:
                    path.unlink()
