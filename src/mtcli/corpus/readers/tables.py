"""Pairs in columns: tab-separated text and CSV, with or without a line that names the columns.

A record is a line number with either a pair or the problem of that line. One caller stops at the first problem, another
reports all of them. The columns of the two sides are found by a header or by position.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice

from mtcli.errors import DataError
from mtcli.runtime.wording import counted
from mtcli.text.languages import SOURCE_NAMES, TARGET_NAMES, base, known, same
from mtcli.text.lines import LINE_BYTES, LINE_LIMIT, Pair

DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs"}
SAMPLE_LINES = 100
"""Lines at the start of a file that decide what separates its columns."""

SAMPLE_CHARACTERS = 1_000_000
"""The same limit in characters."""

SEPARATOR_LINE = re.compile("sep=[,;\t]?", re.IGNORECASE)
"""A first line with which spreadsheets name the separator of the lines that follow."""

HEADER_WORDS = 3
"""Words of a cell that may be the title of a column."""

HEADER_CHARACTERS = 30
"""Characters of a cell that may be the title of a column; decides in languages without spaces."""

_SENTENCE_END = (".", "!", "?", "…", "。", "！", "？", "।", "؟")


@dataclass(frozen=True)
class Columns:
    """The columns of the two sides, counted from 0."""

    src: int = 0
    tgt: int = 1
    named: bool = False
    """The header names their languages, so `--swap` does not apply."""
    from_header: bool = True
    """A header names them, by languages or as source and target."""

    def swapped(self) -> Columns:
        """Return the columns with source and target swapped, unless the header names their languages."""
        return self if self.named else replace(self, src=self.tgt, tgt=self.src)


def find_columns(cells: Sequence[str], src: str, tgt: str) -> Columns | None:
    """Return the columns of the two sides if these cells are a header; None: they are not.

    A header names the columns by language (`en`, `English`), or as `source` and `target`.

    Raises:
        ValueError: The cells name languages other than these two.
    """
    src_language = _column(cells, src)
    tgt_language = _column(cells, tgt)
    src_column = _neutral_column(cells, SOURCE_NAMES) if src_language is None else src_language
    tgt_column = _neutral_column(cells, TARGET_NAMES) if tgt_language is None else tgt_language
    if src_language is not None and tgt_language is not None:
        return Columns(src_language, tgt_language, named=not are_side_names(src, tgt))
    if src_column is not None and tgt_column is not None and src_column != tgt_column:
        return Columns(src_column, tgt_column, named=src_language is not None or tgt_language is not None)
    others = list(dict.fromkeys(cell.strip() for cell in cells if known(cell)))
    if len({known(cell) for cell in others}) > 1:
        raise ValueError(
            f"line 1 names the languages {', '.join(others)}, not {src} and {tgt}; set --src and --tgt "
            "(if it is a pair, put the line source, target above it)"
        )
    return None


def are_side_names(src: str, tgt: str) -> bool:
    """Return True if two language codes only name the sides, such as `src` and `tgt`, so that `--swap` applies."""
    return src.casefold() in SOURCE_NAMES and tgt.casefold() in TARGET_NAMES


def _column(cells: Sequence[str], code: str) -> int | None:
    """Return the column with this code or name of a language, or the only one with it in another script or region."""
    exact = [i for i, cell in enumerate(cells) if same(cell, code)]
    if exact:
        return exact[0]
    near = [i for i, cell in enumerate(cells) if base(cell) is not None and base(cell) == base(code)]
    return near[0] if len(near) == 1 else None


def _neutral_column(cells: Sequence[str], names: frozenset[str]) -> int | None:
    """Return the first column with one of these names, such as `source`."""
    return next((i for i, cell in enumerate(cells) if cell.strip().casefold() in names), None)


def _read_header(first: Sequence[str], name: str, src: str, tgt: str, swap: bool, notices: list[str]) -> Columns | None:
    """Return the columns that the first row names, swapped if that applies, with a notice; None: it is not a header.

    Raises:
        DataError: It names other languages.
    """
    try:
        columns = find_columns(first, src, tgt)
    except ValueError as error:
        raise DataError(f"{name}: {error}") from None
    if columns and swap:
        columns = columns.swapped()
    if columns:
        titles = f"{first[columns.src].strip()!r} as {src} and {first[columns.tgt].strip()!r} as {tgt}"
        notices.append(f"{name}: line 1 names the columns: read {titles}")
    return columns


def best_delimiter(sample: Sequence[str], src: str, tgt: str) -> str:
    """Return the delimiter that fits best: see `_fit`."""
    return max(DELIMITERS, key=lambda delimiter: _fit(sample, delimiter, src, tgt))


def _fit(sample: Sequence[str], delimiter: str, src: str, tgt: str) -> tuple[bool, int, bool]:
    """Return the rating of a delimiter; the greatest tuple is the best.

    Returns:
        True if line 1 is a header; the number of rows at the start that are as wide as the first row; True if the width
        is two.
    """
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


class Feed:
    """Lines for `csv.reader`, counted, with a size limit for each row.

    The reader continues to the end of a quoted field, so a quotation mark that is never closed would read the whole
    file into memory.
    """

    def __init__(self, lines: Iterable[str]):
        csv.field_size_limit(LINE_BYTES + 1)
        self.lines = iter(lines)
        self.number = 0
        """Lines read so far."""
        self.size = 0
        """Characters of the current row so far."""

    def peek(self) -> list[str]:
        """Return the first lines without consuming them."""
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


def _first_csv_row(lines: Iterable[str]) -> list[str]:
    """Return the cells of the first row; empty for an empty file, or if the row is not CSV."""
    sample = Feed(lines).peek()
    try:
        return next(csv.reader((line + "\n" for line in sample), delimiter=best_delimiter(sample, "src", "tgt")), [])
    except csv.Error:
        return []


def _csv_rows(feed: Feed, name: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the first line number and the cells of each row; a blank line has no cells."""
    reader = csv.reader(feed, delimiter=delimiter, strict=True)
    while True:
        start = feed.number + 1
        feed.size = 0
        try:
            cells = next(reader, None)
        except csv.Error as error:
            noticed = f" (noticed in line {feed.number})" if feed.number > start else ""
            raise DataError(f"{name}:{start}: {_explain(str(error))}{noticed}") from None
        if cells is None:
            return
        yield start, cells


def _explain(error: str) -> str:
    """Return the message and the remedy for an error of the `csv` module."""
    if "unexpected end of data" in error:
        return "a quotation mark opens in this row and is never closed; close it, or double it where it is text"
    if LINE_LIMIT in error or "field limit" in error:
        return f"the row is {LINE_LIMIT}; close its quotation marks, or double them where they are text"
    if "new-line character" in error:
        return "a carriage return outside of quotation marks; save the file with line ends of Windows or Unix"
    return f"not CSV ({error}); double a quotation mark where it is text inside a quoted field"


@dataclass(frozen=True)
class BadRow:
    """A line that does not contain a pair."""

    problem: str
    remedy: str
    text: str


NumberedRow = tuple[int, Pair | BadRow]


def first_row(form: str, lines: Iterable[str]) -> list[str]:
    """Return the cells of the first line of a `tsv` or `csv`, which may be a header; empty for an empty file."""
    if form == "tsv":
        return next(iter(lines), "").split("\t")
    remaining = iter(lines)
    beginning = list(islice(remaining, 1))
    if beginning and SEPARATOR_LINE.fullmatch(beginning[0]):
        beginning = []
    return _first_csv_row(chain(beginning, remaining))


def tsv_records(
    lines: Iterable[str], name: str, src: str, tgt: str, *, swap: bool, notices: list[str]
) -> Iterator[NumberedRow]:
    """Read the records of tab-separated lines. Quotation marks are text, and further columns are ignored.

    Args:
        lines: The lines without their ends.
        name: The name of the file in messages.
        src: Source language.
        tgt: Target language.
        swap: Swap the sides, unless a header names their languages.
        notices: Receives what the user should know.

    Raises:
        DataError: The first line names other languages.
    """
    numbered = enumerate(lines, 1)
    first = next(numbered, None)
    if first is None:
        return
    header = _read_header(first[1].split("\t"), name, src, tgt, swap, notices)
    by_position = Columns(1, 0, from_header=False) if swap else Columns(0, 1, from_header=False)
    columns = header or by_position
    body = numbered if header else chain([first], numbered)
    records = _note_quotes(_tsv_pairs(body, columns, name, notices), name, notices)
    yield from records if header else _note_title(records, name, notices)


def _tsv_pairs(
    numbered: Iterable[tuple[int, str]], columns: Columns, name: str, notices: list[str]
) -> Iterator[NumberedRow]:
    """Split numbered lines at tabs; at the end, note the lines with columns that are not read."""
    needed = max(columns.src, columns.tgt) + 1
    with_more = 0
    try:
        for number, line in numbered:
            cells = line.split("\t", needed)
            with_more += len(cells) > max(needed, 2)
            if len(cells) >= needed:
                yield number, (cells[columns.src], cells[columns.tgt])
            elif not line.strip():  # a blank line is a pair of two empty sides
                yield number, ("", "")
            elif len(cells) == 1:
                yield number, BadRow("one column", "put a tab between the two sides", line)
            else:
                problem = f"{counted(len(cells), 'column')}, and line 1 names {needed}"
                yield number, BadRow(problem, "correct or remove the line", line)
    finally:
        if with_more and not columns.from_header:
            lines = counted(with_more, "line")
            remedy = "to choose others, name the columns source and target in line 1"
            notices.append(f"{name}: {lines} with more than two columns; the first two are read; {remedy}")


def csv_records(
    lines: Iterable[str], name: str, src: str, tgt: str, *, swap: bool, notices: list[str]
) -> Iterator[NumberedRow]:
    """Read the records of CSV: quoted where needed, separated by `,`, `;` or tabs, whichever fits.

    Without a header the first two columns are the pair. A line break inside a field becomes a space.

    Args:
        lines: The lines without their ends.
        name: The name of the file in messages.
        src: Source language.
        tgt: Target language.
        swap: Swap the sides, unless a header names their languages.
        notices: Receives what the user should know.

    Raises:
        DataError: The first line names other languages, a quotation mark is not closed, or a row is too long.
    """
    feed = Feed(lines)
    delimiter = best_delimiter(feed.peek(), src, tgt)
    rows = _csv_rows(feed, name, delimiter)
    for first_number, first_cells in rows:
        if _names_separator(first_cells):
            continue
        if first_cells:
            break
        yield first_number, ("", "")  # a blank line is a pair of two empty sides
    else:
        return
    width = len(first_cells)
    if width == 1:
        raise DataError(f"{name}:{first_number}: one column; put a comma or a semicolon between the two sides")
    header = _read_header(first_cells, name, src, tgt, swap, notices)
    by_position = Columns(1, 0, from_header=False) if swap else Columns(0, 1, from_header=False)
    columns = header or by_position
    notice = f"{name}: {width} columns, separated by {DELIMITERS[delimiter]}"
    if not header and width > 2:
        shown = ", ".join(cell.strip()[:20] for cell in first_cells[:4])
        notice += f"; line 1 ({shown}) does not name its languages: the first two columns are read"
    notices.append(notice)
    body = rows if header else chain([(first_number, first_cells)], rows)
    records = _csv_pairs(body, columns, first_number, width, delimiter, name, notices)
    yield from records if header else _note_title(records, name, notices)


def _names_separator(cells: Sequence[str]) -> bool:
    """Return True for the cells of a `SEPARATOR_LINE`."""
    return bool(cells) and not any(cells[1:]) and SEPARATOR_LINE.fullmatch(cells[0]) is not None


def _csv_pairs(
    rows: Iterable[tuple[int, list[str]]],
    columns: Columns,
    first_number: int,
    width: int,
    delimiter: str,
    name: str,
    notices: list[str],
) -> Iterator[NumberedRow]:
    """Select the two sides of rows; at the end, note the line breaks that became spaces.

    Args:
        rows: Line numbers and cells.
        columns: The columns of the two sides.
        first_number: The number of the first line with cells, for messages.
        width: The number of cells in that line.
        delimiter: What separates the cells.
        name: The name of the file in messages.
        notices: Receives the notice.
    """
    with_line_break = 0
    try:
        for number, cells in rows:
            if cells and len(cells) != width:
                problem = f"{counted(len(cells), 'column')}, and line {first_number} has {width}"
                remedy = "put a side that contains the separator in quotation marks"
                yield number, BadRow(problem, remedy, delimiter.join(cells))
                continue
            pair = (cells[columns.src], cells[columns.tgt]) if cells else ("", "")
            if "\n" in pair[0] or "\n" in pair[1]:
                with_line_break += 1
                pair = pair[0].replace("\n", " "), pair[1].replace("\n", " ")
            yield number, pair
    finally:
        if with_line_break:
            notices.append(f"{name}: {line_break_notice(with_line_break)}")


def _note_title(records: Iterator[NumberedRow], name: str, notices: list[str]) -> Iterator[NumberedRow]:
    """Pass on all records; add a notice if the first one looks like titles and one soon after it is a sentence."""
    first = next(records, None)
    if first is None:
        return
    yield first
    number, pair = first
    if isinstance(pair, tuple) and all(map(_may_be_title, pair)):
        for record in islice(records, SAMPLE_LINES):
            if isinstance(record[1], tuple) and any(map(_is_sentence, record[1])):
                read = f"line {number} is read as a pair: {pair[0].strip()} | {pair[1].strip()}"
                remedy = "if these are titles, remove the line, or write source and target instead"
                notices.append(f"{name}: {read}; {remedy}")
                yield record
                break
            yield record
    yield from records


def _may_be_title(cell: str) -> bool:
    """Return True if a cell may be the title of a column: a few words that do not end like a sentence."""
    text = cell.strip()
    return bool(text) and len(text) <= HEADER_CHARACTERS and not _is_sentence(text)


def _is_sentence(cell: str) -> bool:
    """Return True if a cell has more words than a title, or ends with the sign of a sentence, also inside quotes."""
    text = cell.strip().rstrip("\"'”’»)」")
    return len(text.split()) > HEADER_WORDS or text.endswith(_SENTENCE_END)


def _note_quotes(records: Iterable[NumberedRow], name: str, notices: list[str]) -> Iterator[NumberedRow]:
    """Pass on all records; at the end, add a notice if a spreadsheet seems to have put quotation marks around cells.

    A whole sentence in quotation marks may be direct speech. A notice needs doubled quotation marks inside a quoted
    cell, or quotation marks around every cell.
    """
    pairs = 0
    quoted = 0
    cells = 0
    any_doubled = False
    try:
        for record in records:
            pair = record[1]
            if isinstance(pair, tuple) and pair != ("", ""):
                pairs += 1
                found = [cell for cell in pair if '"' in cell and _is_quoted(cell)]
                if found:
                    quoted += 1
                    cells += len(found)
                    any_doubled = any_doubled or any('""' in cell[1:-1] for cell in found)
            yield record
    finally:
        if quoted and (any_doubled or cells == 2 * pairs):
            verb = "has" if quoted == 1 else "have"
            problem = f"{counted(quoted, 'pair')} {verb} cells that a spreadsheet seems to have put in quotation marks"
            notices.append(f"{name}: {problem}; they are read as text: rename the file to .csv to remove them")


def _is_quoted(cell: str) -> bool:
    """Return True if a cell begins and ends with a quotation mark, and all quotation marks inside are doubled."""
    text = cell.strip()
    if len(text) < 2 or text[0] != '"' or text[-1] != '"':
        return False
    return '"' not in text[1:-1].replace('""', "")


def line_break_notice(pairs: int) -> str:
    """Return the notice that sides of some pairs contained a line break."""
    return f"{counted(pairs, 'pair')} {'holds' if pairs == 1 else 'hold'} a line break; read as a space"
