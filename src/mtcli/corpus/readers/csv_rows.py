"""CSV as rows of cells: which delimiter a file has, and its rows with their line numbers."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice

from mtcli.corpus.readers.columns import find_columns
from mtcli.errors import DataError
from mtcli.text.lines import LINE_BYTES, LINE_LIMIT

DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs"}
SAMPLE_LINES = 100
"""Lines at the start of a file that decide what separates its columns."""
SAMPLE_CHARACTERS = 1_000_000
"""The same limit in characters."""


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


def first_csv_row(lines: Iterable[str]) -> list[str]:
    """Return the cells of the first row; empty for an empty file, or if the row is not CSV."""
    sample = Feed(lines).peek()
    try:
        return next(csv.reader((line + "\n" for line in sample), delimiter=best_delimiter(sample, "src", "tgt")), [])
    except csv.Error:
        return []


def csv_rows(feed: Feed, name: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
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
