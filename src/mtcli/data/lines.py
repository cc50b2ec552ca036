"""Bytes to lines of text: the only place that decodes text.

A line ends at `\\n` and nowhere else, text that is broken stops the reader with file, line and byte, and no line takes
more memory than `LINE_BYTES`, whatever the file unpacks to.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import cast

from mtcli.errors import DataError

LINE_BYTES = 16 * 2**20
"""Longest line that is read, without its end: thousands of times any sentence, and little memory."""

LINE_LIMIT = f"longer than {LINE_BYTES >> 20} MiB, the limit"


@dataclass
class Counts:
    """What became of the pairs read. At every moment `read == used + sum(skipped.values())`."""

    read: int = 0
    used: int = 0
    skipped: dict[str, int] = field(default_factory=dict)  # reason → pairs
    replaced: int = 0  # U+FFFD put in the place of invalid bytes
    notices: list[str] = field(default_factory=list)  # one line each, for people


def read_lines(
    path: str | Path | Iterable[bytes],
    *,
    replace: bool = False,
    lenient: bool = False,
    name: str | None = None,
    counts: Counts | None = None,
) -> Iterator[str]:
    """The lines of a UTF-8 file, a `.gz` file or an open binary stream (or any bytes a line), without their ends.

    Only `\\n` ends a line (with one `\\r` before it, if any); a last line without it counts; a byte-order mark
    at the start is dropped with a notice. `name` stands for the file in messages. `replace` puts U+FFFD in the
    place of invalid bytes, counted in `counts.replaced`; `lenient` keeps them as lone surrogates, and NULs as they are.

    Raises DataError: a file that is missing or unreadable; gzip data without the name `.gz`, or damaged;
    a line of more than `LINE_BYTES`; UTF-16; invalid UTF-8 or a NUL (file, line, byte within the line, both from 1).
    """
    counts = counts if counts is not None else Counts()
    name = name or str(path if isinstance(path, str | Path) else getattr(path, "name", "input"))
    number = 0
    try:
        with _open(path) as stream:
            for number, raw in enumerate(_bounded(stream), 1):
                if len(raw) > LINE_BYTES and len(raw.removesuffix(b"\n")) > LINE_BYTES:
                    raise DataError(f"{name}:{number}: {LINE_LIMIT}; split it, or check that lines end at \\n")
                mark = _mark(raw, name, counts) if number == 1 else 0
                if b"\0" in raw and not lenient:
                    raise DataError(_nul(raw, f"{name}:{number}"))
                try:
                    line = raw[mark:].decode()
                except UnicodeDecodeError as error:
                    if not (replace or lenient):
                        where = f"{name}:{number}: byte {mark + error.start + 1}"
                        raise DataError(
                            f"{where} is not UTF-8 ({error.reason}); convert it, or use --replace"
                        ) from None
                    line = raw[mark:].decode(errors="surrogateescape" if lenient else "replace")
                    counts.replaced += line.count("\ufffd") - raw.count("\ufffd".encode())
                yield line[:-2] if line.endswith("\r\n") else line.removesuffix("\n")
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{name}: damaged gzip data after line {number} ({error}); fetch it again") from None
    except OSError as error:
        raise DataError(f"{name}: cannot read it ({error.strerror or error})") from None


def _open(path: str | Path | Iterable[bytes]) -> AbstractContextManager[Iterable[bytes]]:
    if not isinstance(path, str | Path):
        return nullcontext(path)
    path = Path(path)
    if path.suffix.lower() != ".gz":
        return path.open("rb")
    if path.is_file() and path.stat().st_size == 0:
        raise EOFError("the file is empty")
    # The buffer takes the lines apart in C: twice as fast as GzipFile's own iteration.
    return io.BufferedReader(cast(io.RawIOBase, gzip.open(path)), 1 << 17)


def _bounded(stream: Iterable[bytes]) -> Iterable[bytes]:
    """The lines of a stream, none of which is read further than one byte past the limit and its end."""
    readline = getattr(stream, "readline", None)
    return iter(partial(readline, LINE_BYTES + 1), b"") if readline else stream


def _mark(raw: bytes, name: str, counts: Counts) -> int:
    """Bytes of the UTF-8 byte-order mark that a file begins with; DataError if it begins like gzip or UTF-16."""
    if raw.startswith(b"\x1f\x8b"):
        raise DataError(f"{name}: holds gzip data but is not named .gz; rename it to {Path(name).name}.gz")
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        remedy = "convert it (iconv -f UTF-16 -t UTF-8; in Excel, save as CSV UTF-8)"
        raise DataError(f"{name}: is UTF-16 or UTF-32, not UTF-8; {remedy}")
    if raw.startswith(b"\xef\xbb\xbf"):
        counts.notices.append(f"{name}: dropped the byte-order mark at its start")
        return 3
    return 0


def _nul(raw: bytes, where: str) -> str:
    if raw.count(0) * 3 >= len(raw):  # every other byte of Latin text in UTF-16
        return f"{where}: looks like UTF-16, not UTF-8 (every other byte is NUL); convert it (iconv -t UTF-8)"
    return f"{where}: byte {raw.index(0) + 1} is NUL, which no text holds; remove it (tr -d '\\000')"
