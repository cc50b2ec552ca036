"""Corrections of translations that users send, and the memories that a server translates with.

Corrections are appended to a TSV file with the columns of `HEADER`. They are entries of the memory at once.
`corrected_pairs` makes them of a text and its corrected translation.
"""

import fcntl
import logging
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain, count, groupby
from pathlib import Path
from threading import Lock
from typing import BinaryIO

from mtcli.corpus.corrections import HEADER
from mtcli.documents.formats.plain_text import text_spans
from mtcli.documents.pipeline import text_on_one_line
from mtcli.errors import DataError, StorageError
from mtcli.runtime.files import check_regular, storage_errors, write_file
from mtcli.runtime.wording import counted
from mtcli.translate.memory import NEAR, Entry, Memory, add_file, names_languages

log = logging.getLogger(__name__)

MAX_FILE_BYTES = 2**26
"""Bytes of a file of corrections. Above it, further corrections are refused."""

MAX_CHARACTERS = 10_000
"""Characters of a source, of its translation or of a note."""

_ENDS_CELL = re.compile(r"[\t\n\v\f\r\x1c-\x1e\x85\u2028\u2029]+")
"""What would end a cell or a line of the file, for this reader or another one."""


class CorrectionsFile:
    """A file of corrections for one pair of languages. Several threads may use it.

    Args:
        path: The file. It is created with the first correction.
        memory: Has the corrections as entries.

    Raises:
        DataError: The file has other columns, or cannot be read.
        StorageError: It cannot be written.
    """

    def __init__(self, path: Path, memory: Memory):
        self.path = path
        self.memory = memory
        self._appending = Lock()
        self._check_writable()
        if path.exists():
            self._read()

    def add(self, pairs: Sequence[tuple[str, str]], note: str = "") -> None:
        """Append corrections, all or none. They are on the disk before they are entries of the memory.

        Args:
            pairs: Lines and their translations.
            note: Any remark.

        Raises:
            DataError: A text is blank, too long or not valid.
            StorageError: The file cannot be written, or has reached its limit. It is as before.
        """
        date = datetime.now(UTC).isoformat(timespec="seconds")
        remark = _cell(note, "note", may_be_blank=True)
        rows = [(_cell(source, "q"), _cell(translation, "s"), date, remark) for source, translation in pairs]
        with self._appending:
            self._append("".join("\t".join(row) + "\n" for row in rows))
            for source, translation, *_ in rows:
                self.memory.add(Entry(source, translation, self.path.name))

    def _append(self, lines: str) -> None:
        with storage_errors(self.path), self.path.open("a+b", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # another server may write to the same file
            size = os.fstat(file.fileno()).st_size
            start = "\n" if size else "\t".join(HEADER) + "\n"
            if size:
                file.seek(-1, os.SEEK_END)
                start = "" if file.read(1) == b"\n" else start
            content = (start + lines).encode()
            if size + len(content) > MAX_FILE_BYTES:
                limit = f"has reached its limit of {MAX_FILE_BYTES:,} bytes"
                raise StorageError(f"{self.path}: {limit}; rename it, give it with --memory, and restart the server")
            try:
                if file.write(content) != len(content):
                    raise StorageError(f"{self.path}: the disk is full; free some space")
                os.fsync(file.fileno())
            except BaseException:
                os.ftruncate(file.fileno(), size)
                raise

    def _read(self) -> None:
        """Read the corrections of earlier processes.

        Raises:
            DataError: The file has other columns, or cannot be read.
        """
        with storage_errors(self.path):
            check_regular(self.path)
            with self.path.open("r+b") as file:
                fcntl.flock(file, fcntl.LOCK_EX)  # another server may be writing its last line
                self._move_incomplete_line(file)
                file.seek(0)
                first = file.readline()
                if first and first.rstrip(b"\r\n") != "\t".join(HEADER).encode():
                    columns = ", ".join(HEADER)
                    remedy = "give pairs with other columns with --memory, and another file for corrections"
                    raise DataError(f"{self.path}:1: not the columns {columns}; {remedy}")
                if first:
                    add_file(self.memory, self.path, "source", "translation", [])

    def _move_incomplete_line(self, file: BinaryIO) -> None:
        """Move the last line of the locked file aside if the machine stopped while it was written."""
        content = file.read()
        last = content.rpartition(b"\n")[2]
        if not last or last.count(b"\t") >= len(HEADER) - 1:
            return
        names = (f"{self.path.name}.incomplete{number}" for number in chain([""], map(str, count(2))))
        aside = next(path for path in map(self.path.with_name, names) if not os.path.lexists(path))
        write_file(aside, last)
        file.truncate(len(content) - len(last))
        log.warning("%s: moved an incomplete last line to %s", self.path, aside.name)

    def _check_writable(self) -> None:
        """Check that corrections can be written before the server starts.

        Raises:
            StorageError: The folder does not exist, or the user may not write.
        """
        place = self.path if self.path.exists() else self.path.parent
        if not os.access(place, os.W_OK) or self.path.is_dir():
            raise StorageError(f"{self.path}: cannot write corrections there; choose another file")


def _cell(text: str, field: str, *, may_be_blank: bool = False) -> str:
    """Return a text as a cell of the file, on one line.

    Raises:
        DataError: It is blank, too long or not valid.
    """
    cell = _ENDS_CELL.sub(" ", text).strip()
    if not cell and not may_be_blank:
        raise DataError(f"{field}: the text is blank")
    if len(cell) > MAX_CHARACTERS:
        raise DataError(f"{field}: {len(cell):,} characters; the limit of a correction is {MAX_CHARACTERS:,}")
    if "\0" in cell:
        raise DataError(f"{field}: the text contains a NUL character")
    try:
        cell.encode()
    except UnicodeEncodeError:
        raise DataError(f"{field}: the text contains half a character") from None
    return cell


@dataclass(frozen=True)
class MemorySources:
    """Where the memories of a server come from."""

    files: Sequence[Path] = ()
    """Files of sentence pairs, see `memory.read_memory`."""
    corrections: Path | None = None
    """The file of corrections; with several pairs of languages, each has its own, such as `file.en-de.tsv`."""
    near: float = NEAR
    """See `Memory`."""


def load_memories(
    sources: MemorySources, pairs: Sequence[tuple[str, str]], notices: list[str]
) -> dict[tuple[str, str], tuple[Memory, CorrectionsFile | None]]:
    """Read the memory of each pair of languages, and its corrections, which come after all other entries.

    Args:
        sources: Where they come from.
        pairs: The codes of source and target. With several pairs, a file must name its languages.
        notices: Receives what the user should know.

    Raises:
        DataError: A file cannot be read, or fits none of the pairs.
        StorageError: Corrections cannot be written.
    """
    memories = {pair: Memory(sources.near) for pair in pairs}
    for path in sources.files:
        fitting = list(pairs) if len(pairs) == 1 else [pair for pair in pairs if names_languages(path, *pair)]
        if not fitting:
            shown = ", ".join(f"{src} → {tgt}" for src, tgt in pairs[:5])
            remedy = "give a .tmx file, or a .tsv whose first line names its languages, such as en and de"
            raise DataError(f"{path}: does not name the languages of this server ({shown}); {remedy}")
        for pair in fitting:
            add_file(memories[pair], path, *pair, notices)
    corrections: dict[tuple[str, str], CorrectionsFile] = {}
    if sources.corrections is not None:
        for pair in pairs:
            own = sources.corrections if len(pairs) == 1 else _path_of_pair(sources.corrections, *pair)
            corrections[pair] = CorrectionsFile(own, memories[pair])
    num_entries = sum(map(len, memories.values()))
    notices.append(f"memory: {counted(num_entries, 'entry', 'entries')}")
    return {pair: (memory, corrections.get(pair)) for pair, memory in memories.items()}


def _path_of_pair(path: Path, src: str, tgt: str) -> Path:
    return path.with_name(f"{path.stem}.{src}-{tgt}{path.suffix}")


def corrected_pairs(lines: Sequence[str], corrected: Sequence[str]) -> list[tuple[str, str]]:
    """Return the pairs of a text and its corrected translation: lines, and wrapped paragraphs without their breaks.

    Wrapped paragraphs are segments of a translation, so the memory finds them only as a whole.

    Args:
        lines: The lines of the text.
        corrected: Those of the translation. The lines of a wrapped paragraph may be broken elsewhere.

    Raises:
        DataError: The text is blank, or the text and its translation cannot be paired.
    """
    paragraphs = _paragraphs(lines)
    units = [_units(paragraph) for paragraph in paragraphs]
    if sum(map(len, units)) == sum(map(len, paragraphs)):  # no paragraph is wrapped
        if len(lines) != len(corrected):
            raise DataError(f"s: {len(corrected)} lines, and q has {len(lines)}; a correction has as many")
        pairs = [pair for pair in zip(lines, corrected, strict=True) if any(map(str.strip, pair))]
        if not pairs:
            raise DataError("q: the text is blank")
        return pairs
    others = _paragraphs(corrected)
    if len(units) != len(others):
        raise DataError(f"s: {len(others)} paragraphs, and q has {len(units)}; a correction has as many")
    pairs = []
    for number, (sources, other) in enumerate(zip(units, others, strict=True), 1):
        targets = _units(other)
        if len(sources) == 1:
            targets = [text_on_one_line("\n".join(map(str.strip, other)))]
        if len(sources) != len(targets):
            counts = f"{len(targets)} lines or wrapped texts, and that of q has {len(sources)}"
            raise DataError(f"s: paragraph {number} has {counts}; a correction has as many")
        pairs += zip(sources, targets, strict=True)
    return pairs


def _paragraphs(lines: Sequence[str]) -> list[list[str]]:
    """Return the lines between blank lines."""
    return [list(group) for has_text, group in groupby(lines, key=lambda line: bool(line.strip())) if has_text]


def _units(lines: Sequence[str]) -> list[str]:
    """Return the lines of a paragraph, with their marks; those that are wrapped are joined, without the mark."""
    text = "\n".join(lines)
    units = []
    for span in text_spans(text):
        content = text[span.start : span.end]
        if "\n" not in content:
            start = text.rfind("\n", 0, span.start) + 1
            content = text[start:].partition("\n")[0]
        units.append(text_on_one_line(content))
    return units
