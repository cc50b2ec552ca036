"""Open the files of a model or run folder, which may come from anywhere: regular files only.

Reading from a named pipe can block forever, reading a device such as /dev/zero never ends, and each library reports a
socket or a folder in its own way. These functions refuse all of them with an `OSError` that names the file.
"""

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path

from mtcli import limits


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


def read_regular(path: Path, inside: Path | None = None, most: int = limits.METADATA) -> bytes:
    """Read a small file whole. A file over the limit is refused before any of it is read.

    Args:
        path: The file, or a link to one.
        inside: See `open_regular`.
        most: The largest size in bytes.

    Raises:
        OSError: See `open_regular`; also if the file is larger than `most`.
    """
    with open_regular(path, inside) as file:
        too_large = os.fstat(file.fileno()).st_size > most
        content = b"" if too_large else file.read(most + 1)  # the file may have grown since
    if too_large or len(content) > most:
        raise OSError(errno.EFBIG, f"larger than {most:,} bytes, the limit for such a file", str(path))
    return content


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
