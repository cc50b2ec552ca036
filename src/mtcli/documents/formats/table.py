"""Columns of .csv and .tsv files. The other cells, and the quotation marks of all cells, stay as they are.

The `csv` module gives no positions, so the cells are found here. Their values are those of `csv.reader`.
"""

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

from mtcli.corpus.readers.tables import DELIMITERS, SAMPLE_CHARACTERS, SAMPLE_LINES, best_delimiter
from mtcli.documents.formats.encoding import decode
from mtcli.documents.formats.format import ReadOptions
from mtcli.documents.formats.plain_text import text_spans
from mtcli.documents.formats.slots import SlotDocument, Span, raw, render_with
from mtcli.documents.markup.inline import Inline
from mtcli.errors import DataError, UsageError
from mtcli.runtime.wording import counted

log = logging.getLogger(__name__)

MAX_COLUMNS = 10_000
"""Cells of a row, which are in memory together."""

COLUMN_NUMBER = re.compile("[0-9]{1,9}")
"""A column given by its number."""

SEPARATOR_LINE = re.compile("sep=([,;\t])(?:\r\n|\n|\r|\\Z)", re.IGNORECASE)
"""A first line with which Excel names the delimiter of the lines that follow."""


@dataclass(frozen=True, slots=True)
class _Cell:
    """A cell, with its quotation marks if it has them."""

    start: int
    raw: str
    quoted: bool

    @property
    def value(self) -> str:
        """The text of the cell."""
        return self.raw[1:-1].replace('""', '"') if self.quoted else self.raw


def read(content: bytes, options: ReadOptions) -> SlotDocument:
    """Read the columns of `options.columns`.

    A column is named by the first line, which is then not translated, or by its number from 1. A `SEPARATOR_LINE` stays
    as it is and does not count. A line break in a cell of a .csv file is kept, see `plain_text`. In a .tsv file a cell
    ends with its line.

    Raises:
        UsageError: There is no such column, or none is named.
        DataError: See `encoding.decode`; a quotation mark is not closed, or a row has more than `MAX_COLUMNS` cells.
    """
    if not options.columns:
        raise UsageError(f"{options.name}: a table; translate it with `mtcli translate --column NAME`")
    source = decode(content, options.name)
    is_tsv = options.suffix == ".tsv"
    separator_line = None if is_tsv else SEPARATOR_LINE.match(source.text)
    if is_tsv:
        delimiter = "\t"
    elif separator_line:
        delimiter = separator_line[1]
    else:
        delimiter = _delimiter(source.text, options)
    start = separator_line.end() if separator_line else 0
    rows = _rows(source.text, delimiter, options.name, strict=not is_tsv, start=start)
    header = next(rows, [])
    names = [cell.value.strip() for cell in header]
    header_line = 2 if separator_line else 1
    indices = sorted({_index(column, names, options.name, header_line) for column in options.columns})
    has_header = any(column in names for column in options.columns)
    body = rows if has_header else chain([header], rows)
    spans: list[Span] = []
    num_short = 0
    for row in body:
        if 1 < len(row) <= indices[-1]:
            num_short += 1
        for index in indices:
            if index < len(row):
                spans += _spans(row[index], delimiter, is_tsv=is_tsv)
    if num_short:
        log.warning("%s: %s without one of the columns", options.name, counted(num_short, "row"))
    return SlotDocument(source, spans)


def _delimiter(text: str, options: ReadOptions) -> str:
    """Return what separates the cells of a .csv file: the first delimiter with which line 1 has the named columns."""
    lines = text[:SAMPLE_CHARACTERS].splitlines()[:SAMPLE_LINES]
    wanted = {column for column in options.columns if not COLUMN_NUMBER.fullmatch(column)}
    for delimiter in DELIMITERS if wanted else ():
        if wanted <= {cell.value.strip() for cell in next(_rows(text, delimiter, options.name, strict=False))}:
            return delimiter
    return best_delimiter(lines, options.src, options.tgt)


def _index(column: str, names: Sequence[str], file: str, line: int) -> int:
    """Return the index of a column, given by its name or its number from 1. The names are in this line of the file."""
    if column in names:
        return names.index(column)
    if COLUMN_NUMBER.fullmatch(column) and 0 < int(column) <= len(names):
        return int(column) - 1
    shown = ", ".join(repr(name) for name in names[:10])
    raise UsageError(f"--column {column}: {file} has no such column; line {line} has {shown}")


def _rows(text: str, delimiter: str, name: str, *, strict: bool, start: int = 0) -> Iterator[list[_Cell]]:
    """Yield the cells of each row.

    With `strict`, a cell that begins with a quotation mark must end with one, and may have line breaks. Otherwise
    quotation marks are text, unless they enclose a cell.
    """
    inner = r'[^"]' if strict else rf'[^"\r\n{delimiter}]'
    pattern = re.compile(
        rf'(?P<quoted>"{inner}*(?:""{inner}*)*"(?=[{delimiter}\r\n]|\Z))|(?P<plain>[^{delimiter}\r\n]*)'
    )
    end_of_cell = re.compile(rf"{delimiter}|\r\n|\n|\r|\Z")
    place = start
    row: list[_Cell] = []
    while True:
        cell = pattern.match(text, place)
        assert cell is not None  # it may be empty
        if strict and cell["plain"] is not None and cell["plain"].startswith('"'):
            line = text.count("\n", 0, place) + 1
            problem = "a cell begins with a quotation mark and does not end with one; double it where it is text"
            raise DataError(f"{name}:{line}: {problem}")
        if len(row) == MAX_COLUMNS:
            line = text.count("\n", 0, place) + 1
            raise DataError(f"{name}:{line}: more than {MAX_COLUMNS:,} cells in a row, the limit; split the table")
        row.append(_Cell(place, cell[0], quoted=cell["quoted"] is not None))
        end = end_of_cell.match(text, cell.end())
        assert end is not None
        place = end.end()
        if end[0] != delimiter:
            yield row
            row = []
            if place == len(text):
                return


def _spans(cell: _Cell, delimiter: str, *, is_tsv: bool) -> Iterator[Span]:
    """Yield the spans of a cell of a .tsv or .csv file."""
    if not cell.quoted:
        if cell.raw.strip():
            end = cell.start + len(cell.raw)
            render = render_with(_in_one_cell) if is_tsv else partial(_quoted_if_needed, delimiter)
            yield Span(cell.start, end, (cell.raw,), render)
        return
    for span in text_spans(cell.raw[1:-1], first=cell.start + 1):
        yield _escaped(span, is_tsv=is_tsv)


def _escaped(span: Span, *, is_tsv: bool) -> Span:
    """Return a span in a quoted cell, whose quotation marks are doubled in the file."""

    def render(translation: Inline, markup: Mapping[str, str]) -> str:
        text = span.render(translation, markup)
        return (_in_one_cell(text) if is_tsv else text).replace('"', '""')

    return replace(span, segment=(raw(span.segment).replace('""', '"'),), render=render)


def _in_one_cell(text: str) -> str:
    """Return the text of a cell of a .tsv file, which cannot have tabs and line breaks."""
    return re.sub(r"[\t\r\n]+", " ", text)


def _quoted_if_needed(delimiter: str, translation: Inline, _: Mapping[str, str]) -> str:
    """Return the text of a cell of a .csv file, in quotation marks if it could not be read without them."""
    text = raw(translation)
    if text.startswith('"') or any(character in text for character in (delimiter, "\r", "\n")):
        return '"' + text.replace('"', '""') + '"'
    return text
