"""Bytes to lines of text: the only module that decodes text.

A line ends at `\\n` and nowhere else. Invalid text stops the reader with the file, the line and the byte. No line takes
more memory than `LINE_BYTES`, whatever a compressed file expands to.
"""

from __future__ import annotations

import gzip
import io
import re
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import BinaryIO, cast
from unicodedata import normalize

from mtcli.errors import DataError

Pair = tuple[str, str]
"""A source line and its translation."""

LINE_BYTES = 16 * 2**20
"""Length limit of a line in bytes, without its end. No sentence comes near it."""

TO_UTF8 = "often iconv -f WINDOWS-1252 -t UTF-8; in Excel, save as CSV UTF-8"
"""How to convert text that is neither UTF-8 nor UTF-16."""

LINE_LIMIT = f"longer than {LINE_BYTES >> 20} MiB, the limit"


SURROGATE = re.compile("[\ud800-\udfff]")
"""A byte that is not UTF-8, in a text that was read with `lenient`."""

GZIP_MAGIC = b"\x1f\x8b"
"""The first bytes of gzip data."""


_COMPRESSED = (
    (b"BZh", ".bz2", "bunzip2"),
    (b"\xfd7zXZ\0", ".xz", "unxz"),
    (b"\x28\xb5\x2f\xfd", ".zst", "unzstd"),
    (b"PK\x03\x04", ".zip", "unzip"),
    (b"7z\xbc\xaf\x27\x1c", ".7z", "7z x"),
)
"""First bytes of other compressed files, their suffixes, and the commands that decompress them."""


def normalized(text: str) -> str:
    """Return a text in NFC, with one space for each run of white space and none at its ends."""
    return " ".join(normalize("NFC", text).split())


@dataclass
class Counts:
    """Statistics of a reader. At all times `read == used + sum(skipped.values())`."""

    read: int = 0
    """Pairs read."""
    used: int = 0
    """Pairs that the reader returned."""
    skipped: dict[str, int] = field(default_factory=dict)
    """Pairs that were skipped, by reason."""
    replaced: int = 0
    """Invalid bytes that were replaced by U+FFFD."""
    notices: list[str] = field(default_factory=list)
    """Messages for the user, one line each."""

    def skip(self, reason: str, number: int = 1) -> None:
        """Count skipped pairs."""
        self.skipped[reason] = self.skipped.get(reason, 0) + number

    def drop(self, reason: str, number: int = 1) -> None:
        """Count pairs as skipped that were counted as used."""
        self.used -= number
        self.skip(reason, number)


def read_lines(
    path: str | Path | Iterable[bytes],
    *,
    replace: bool = False,
    lenient: bool = False,
    name: str | None = None,
    counts: Counts | None = None,
) -> Iterator[str]:
    """Read the lines of UTF-8 text, without their ends.

    Only `\\n` ends a line, together with one `\\r` before it. The last line may lack it. A byte-order mark at the start
    is dropped with a notice. A file with nothing else has no lines, like an empty one.

    Args:
        path: A file, compressed if its name ends in `.gz`; an open binary stream; or any iterable of lines as bytes.
        replace: Replace invalid bytes by U+FFFD, counted in `counts.replaced`.
        lenient: Keep invalid bytes as lone surrogates, and keep NUL characters.
        name: The name of the file in messages.
        counts: Receives notices and the number of replaced bytes.

    Raises:
        DataError: The file is missing, unreadable, or gzip data that is damaged or not named `.gz`; a line is longer
            than `LINE_BYTES`; the text is UTF-16, is not valid UTF-8, or contains a NUL. The message gives the file
            and, if it is known, the line and the byte within the line, both counted from 1.
    """
    counts = counts if counts is not None else Counts()
    name = name or str(path if isinstance(path, str | Path) else getattr(path, "name", "input"))
    number = 0
    try:
        opened = _open(Path(path)) if isinstance(path, str | Path) else nullcontext(path)
        with opened as stream:
            for number, raw in enumerate(_bounded(stream), 1):
                if len(raw) > LINE_BYTES and len(raw.removesuffix(b"\n")) > LINE_BYTES:
                    raise DataError(f"{name}:{number}: {LINE_LIMIT}; split it, or check that lines end at \\n")
                mark = _check_start(raw, name, counts) if number == 1 else 0
                if mark and len(raw) == mark:
                    return
                if b"\0" in raw and not lenient:
                    raise DataError(_nul_message(raw, f"{name}:{number}"))
                try:
                    line = raw[mark:].decode()
                except UnicodeDecodeError as error:
                    if not (replace or lenient):
                        place = f"{name}:{number}: byte {mark + error.start + 1}"
                        remedy = f"convert it ({TO_UTF8}), or use --replace"
                        raise DataError(f"{place} is not UTF-8 ({error.reason}); {remedy}") from None
                    line = raw[mark:].decode(errors="surrogateescape" if lenient else "replace")
                    counts.replaced += line.count("\ufffd") - raw.count("\ufffd".encode())
                yield line[:-2] if line.endswith("\r\n") else line.removesuffix("\n")
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{name}: damaged gzip data after line {number} ({error}); fetch it again") from None
    except OSError as error:
        raise DataError(f"{name}: cannot read it ({error.strerror or error})") from None


@contextmanager
def open_bytes(path: Path) -> Iterator[BinaryIO]:
    """Open a file that is not divided into lines, such as XML, decompressed if its name ends in `.gz`.

    Raises:
        DataError: The file is missing, or the block fails to read it: it is unreadable, or gzip data that is damaged or
            not named `.gz`.
    """
    try:
        with _open(path) as file:
            if cast(io.BufferedReader, file).peek(2).startswith(GZIP_MAGIC):
                raise DataError(_gzip_message(str(path)))
            yield file
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path}: damaged gzip data ({error}); fetch it again") from None
    except OSError as error:
        raise DataError(f"{path}: cannot read it ({error.strerror or error})") from None


def decompression(start: bytes, name: str = "") -> str | None:
    """Return the command that decompresses a file of a kind that is not read; None: it is not of such a kind.

    Args:
        start: The first bytes of the file, if they are known.
        name: Its name, if that should count.
    """
    for magic, suffix, command in _COMPRESSED:
        is_magic = start.startswith(magic) and not (magic == b"BZh" and start[4:10] != b"1AY&SY")
        if is_magic or name.lower().endswith(suffix):
            return command
    return None


def _open(path: Path) -> BinaryIO:
    if path.suffix.lower() != ".gz":
        return path.open("rb")
    if path.is_file() and path.stat().st_size == 0:
        raise EOFError("the file is empty")
    # BufferedReader splits lines in C: twice as fast as iterating over GzipFile.
    return io.BufferedReader(cast(io.RawIOBase, gzip.open(path)), 1 << 17)


def _bounded(stream: Iterable[bytes]) -> Iterable[bytes]:
    """Return the lines of a stream. Of a line over the limit, only one byte more than the limit is read."""
    readline = getattr(stream, "readline", None)
    return iter(partial(readline, LINE_BYTES + 1), b"") if readline else stream


def _check_start(raw: bytes, name: str, counts: Counts) -> int:
    """Return the length of the UTF-8 byte-order mark at the start of a file, 0 if there is none.

    Raises:
        DataError: The file starts like gzip data or UTF-16.
    """
    if raw.startswith(GZIP_MAGIC):
        raise DataError(_gzip_message(name))
    command = decompression(raw)
    if command:
        raise DataError(f"{name}: compressed; decompress it ({command}) and give the decompressed file")
    if raw.startswith((b"\xff\xfe\0\0", b"\0\0\xfe\xff")):
        raise DataError(f"{name}: is UTF-32, not UTF-8; convert it (iconv -f UTF-32 -t UTF-8)")
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        remedy = "convert it (iconv -f UTF-16 -t UTF-8; in Excel, save as CSV UTF-8)"
        raise DataError(f"{name}: is UTF-16, not UTF-8; {remedy}")
    if raw.startswith(b"\xef\xbb\xbf"):
        counts.notices.append(f"{name}: dropped the byte-order mark at its start")
        return 3
    return 0


def _gzip_message(name: str) -> str:
    return f"{name}: holds gzip data but is not named .gz; rename it to {Path(name).name}.gz"


def _nul_message(raw: bytes, place: str) -> str:
    if raw.count(0) * 5 >= 3 * len(raw):  # Latin text in UTF-32 has three NULs for each letter
        return f"{place}: looks like UTF-32, not UTF-8; convert it (iconv -f UTF-32LE or UTF-32BE, -t UTF-8)"
    if raw.count(0) * 3 >= len(raw):  # Latin text in UTF-16 has a NUL in every other byte
        return f"{place}: looks like UTF-16, not UTF-8 (every other byte is NUL); convert it (iconv -t UTF-8)"
    return f"{place}: byte {raw.index(0) + 1} is NUL, which is not text; remove it (tr -d '\\000')"
