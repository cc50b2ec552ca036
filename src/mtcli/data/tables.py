"""Pairs in columns: tab-separated text and CSV, with or without a line that names the columns.

A record is the number of its line and either a pair or what is wrong with that line, so that one caller can stop there
and another can report every such line.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice

from mtcli.config.languages import SOURCE_NAMES, TARGET_NAMES, base, known, same
from mtcli.data.lines import LINE_BYTES, LINE_LIMIT
from mtcli.errors import DataError

Pair = tuple[str, str]

DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs"}
SAMPLE_LINES = 100
SAMPLE_CHARACTERS = 1_000_000
"""How much of the beginning of a CSV decides what separates its columns."""


@dataclass(frozen=True)
class BadRow:
    """A line that holds no pair."""

    problem: str
    remedy: str
    text: str


Record = tuple[int, Pair | BadRow]


@dataclass(frozen=True)
class Columns:
    """Where the two sides are, counted from 0."""

    src: int = 0
    tgt: int = 1
    named: bool = False
    """Their languages are named, so that `--swap` has nothing to do."""

    def swapped(self) -> Columns:
        """The other way round, unless the columns name their languages."""
        return self if self.named else Columns(self.tgt, self.src)


def first_row(form: str, lines: Iterable[str]) -> list[str]:
    """The cells of the first line of a `tsv` or `csv`, which may name the columns; none of an empty file."""
    if form == "tsv":
        return next(iter(lines), "").split("\t")
    sample = _Feed(lines).peek()
    try:
        return next(csv.reader((line + "\n" for line in sample), delimiter=_delimiter(sample, "src", "tgt")), [])
    except csv.Error:
        return []


def find_columns(cells: Sequence[str], src: str, tgt: str) -> Columns | None:
    """The columns of the two sides if these cells are a header, by language (`en`, `English`) or `source`, `target`.

    Raises:
        ValueError: The cells name languages, and not these two.
    """
    by_language = [_column(cells, code) for code in (src, tgt)]
    if by_language[0] is not None and by_language[1] is not None:
        return Columns(by_language[0], by_language[1], named=True)
    found = list(by_language)
    for side, names in enumerate((SOURCE_NAMES, TARGET_NAMES)):
        if found[side] is None:
            found[side] = next((i for i, cell in enumerate(cells) if cell.strip().casefold() in names), None)
    if found[0] is not None and found[1] is not None and found[0] != found[1]:
        return Columns(found[0], found[1], named=by_language != [None, None])
    others = list(dict.fromkeys(cell.strip() for cell in cells if known(cell)))
    if len({known(cell) for cell in others}) > 1:
        raise ValueError(
            f"line 1 names the languages {', '.join(others)}, not {src} and {tgt}; set --src and --tgt "
            "(if it is a pair, put the line source, target above it)"
        )
    return None


def _column(cells: Sequence[str], code: str) -> int | None:
    """The column of a language: the one that bears its very code or name, or the only one without regard to script."""
    exact = [i for i, cell in enumerate(cells) if same(cell, code)]
    if exact:
        return exact[0]
    near = [i for i, cell in enumerate(cells) if base(cell) is not None and base(cell) == base(code)]
    return near[0] if len(near) == 1 else None


def _header(first: Sequence[str], name: str, src: str, tgt: str, notices: list[str]) -> Columns | None:
    try:
        columns = find_columns(first, src, tgt)
    except ValueError as error:
        raise DataError(f"{name}: {error}") from None
    if columns:
        titles = f"{first[columns.src].strip()!r} as {src} and {first[columns.tgt].strip()!r} as {tgt}"
        notices.append(f"{name}: line 1 names the columns: read {titles}")
    return columns


def tsv_records(
    lines: Iterable[str], name: str, src: str, tgt: str, *, swap: bool, notices: list[str]
) -> Iterator[Record]:
    """The records of tab-separated lines; quotation marks are text, and further columns are ignored.

    Raises:
        DataError: The first line names other languages.
    """
    numbered = enumerate(lines, 1)
    first = next(numbered, None)
    if first is None:
        return
    header = _header(first[1].split("\t"), name, src, tgt, notices)
    columns = header or Columns()
    if swap:
        columns = columns.swapped()
    needed = max(columns.src, columns.tgt) + 1
    for number, line in numbered if header else chain([first], numbered):
        cells = line.split("\t", needed)
        if len(cells) >= needed:
            yield number, (cells[columns.src], cells[columns.tgt])
        elif not line.strip():  # a blank line is a pair of two empty sides
            yield number, ("", "")
        elif len(cells) == 1:
            yield number, BadRow("one column", "put a tab between the two sides", line)
        else:
            yield number, BadRow(f"{len(cells)} columns, and line 1 names {needed}", "correct or remove the line", line)


def csv_records(
    lines: Iterable[str], name: str, src: str, tgt: str, *, swap: bool, notices: list[str]
) -> Iterator[Record]:
    """The records of comma-separated text: quoted where needed, separated by `,`, `;` or tabs, whichever fits.

    Without a header that names them, the first two columns are the pair. A line break inside a field becomes a space.

    Raises:
        DataError: The first line names other languages, a quotation mark is not closed, or a row is too long.
    """
    csv.field_size_limit(LINE_BYTES + 1)
    feed = _Feed(lines)
    delimiter = _delimiter(feed.peek(), src, tgt)
    rows = _rows(feed, name, delimiter)
    first = next(rows, None)
    if first is None:
        return
    width = len(first[1])
    if width == 1:
        raise DataError(f"{name}:{first[0]}: one column; put a comma or a semicolon between the two sides")
    header = _header(first[1], name, src, tgt, notices)
    columns = header or Columns()
    if swap:
        columns = columns.swapped()
    notices.append(f"{name}: {width} columns, separated by {DELIMITERS[delimiter]}{_unnamed(first[1], header)}")
    broken = 0
    try:
        for number, cells in rows if header else chain([first], rows):
            if not cells:
                yield number, ("", "")
            elif len(cells) != width:
                problem = f"{len(cells)} columns, and line {first[0]} has {width}"
                remedy = "put a side that holds the separator in quotation marks"
                yield number, BadRow(problem, remedy, delimiter.join(cells))
            else:
                pair = cells[columns.src], cells[columns.tgt]
                if "\n" in pair[0] or "\n" in pair[1]:
                    broken += 1
                    pair = pair[0].replace("\n", " "), pair[1].replace("\n", " ")
                yield number, pair
    finally:
        if broken:
            notices.append(f"{name}: {broken:,} pairs hold a line break; read as a space")


def _unnamed(first: Sequence[str], header: Columns | None) -> str:
    """What to say where columns are chosen by position among more than two."""
    if header or len(first) == 2:
        return ""
    shown = ", ".join(cell.strip()[:20] for cell in first[:4])
    return f"; line 1 ({shown}) does not name its languages: the first two columns are read"


class _Feed:
    """Lines for `csv.reader`, counted, and bounded for each row: the reader continues to the end of a quoted field."""

    def __init__(self, lines: Iterable[str]):
        self.lines = iter(lines)
        self.number = 0
        self.size = 0
        """Characters of the row so far."""

    def peek(self) -> list[str]:
        """The first lines, which stay to be read."""
        sample: list[str] = []
        size = 0
        for line in islice(self.lines, SAMPLE_LINES):
            sample.append(line)
            size += len(line)
            if size > SAMPLE_CHARACTERS:
                break
        self.lines = chain(sample, self.lines)
        return sample

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = next(self.lines)
        self.number += 1
        self.size += len(line) + 1
        if self.size > LINE_BYTES + 1:
            raise csv.Error(f"the row is {LINE_LIMIT}")
        return line + "\n"


def _rows(feed: _Feed, name: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """The line on which each row begins, and its cells; blank lines at the beginning are left out."""
    reader = csv.reader(feed, delimiter=delimiter, strict=True)
    begun = False
    while True:
        start = feed.number + 1
        feed.size = 0
        try:
            cells = next(reader, None)
        except csv.Error as error:
            noticed = f" (noticed in line {feed.number})" if feed.number > start else ""
            raise DataError(f"{name}:{start}: {_explained(str(error))}{noticed}") from None
        if cells is None:
            return
        begun = begun or bool(cells)
        if begun:
            yield start, cells


def _explained(error: str) -> str:
    if "unexpected end of data" in error:
        return "a quotation mark opens in this row and is never closed; close it, or double it where it is text"
    if LINE_LIMIT in error or "field limit" in error:
        return f"the row is {LINE_LIMIT}; close its quotation marks, or double them where they are text"
    if "new-line character" in error:
        return "a carriage return outside of quotation marks; save the file with line ends of Windows or Unix"
    return f"not CSV ({error}); double a quotation mark where it is text inside a quoted field"


def _delimiter(sample: Sequence[str], src: str, tgt: str) -> str:
    """What separates columns: what makes a header of line 1, else the longest run of rows of one width, two at best."""
    return max(DELIMITERS, key=lambda delimiter: _fit(sample, delimiter, src, tgt))


def _fit(sample: Sequence[str], delimiter: str, src: str, tgt: str) -> tuple[bool, int, bool]:
    rows: list[list[str]] = []
    try:
        for row in csv.reader((line + "\n" for line in sample), delimiter=delimiter, strict=True):
            if row:
                rows.append(row)
    except csv.Error:
        pass  # the rows before it count
    width = len(rows[0]) if rows else 0
    if width < 2:
        return False, 0, False
    alike = next((i for i, row in enumerate(rows) if len(row) != width), len(rows))
    try:
        named = find_columns(rows[0], src, tgt) is not None
    except ValueError:
        named = True
    return named, alike, width == 2
