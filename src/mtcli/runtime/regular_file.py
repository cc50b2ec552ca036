"""Open the files of a model or run folder, which may come from anywhere: regular files only.

A pipe in place of a file would be waited for without end, a device such as /dev/zero read without end, and a socket
or a folder fails at another place in each library. All of them are refused here, with an `OSError` that names them.
"""

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path

from mtcli import limits


def open_regular(path: Path, inside: Path | None = None) -> BufferedReader:
    """Open a file for reading, without ever waiting.

    Args:
        path: The file, or a link to one.
        inside: The folder that the file must lie in once all links are resolved; None: anywhere.

    Raises:
        OSError: There is no such file, it is not a regular one, or it lies outside the folder.
    """
    check_regular(path, inside)
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        _refuse_special(path, os.fstat(descriptor).st_mode)  # it may have been replaced since
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_regular(path: Path, inside: Path | None = None, most: int = limits.METADATA) -> bytes:
    """The content of a file of metadata.

    Args:
        path: The file, or a link to one.
        inside: See `open_regular`.
        most: The largest size, in bytes.

    Raises:
        OSError: As `open_regular`, or the file is larger.
    """
    with open_regular(path, inside) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"larger than {most:,} bytes, which no such file is", str(path))
    return content


def check_regular(path: Path, inside: Path | None = None) -> None:
    """Make sure that a library which opens files by name can be given this one.

    Raises:
        OSError: As `open_regular`.
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
    return names.get(stat.S_IFMT(mode), "something special")
