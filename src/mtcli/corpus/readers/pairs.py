"""Read sentence pairs in any form: one `(src, tgt)` tuple of text at a time.

The same pairs give the same list whatever form they are in, and nothing is dropped silently: invalid text stops the
reader with file, line and byte, and a pair with an empty side is counted. Nothing is held in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from mtcli.corpus.readers import tables
from mtcli.corpus.readers.rows import RowReader, dataset_rows, parquet_rows
from mtcli.corpus.readers.run_pairs import run_pairs
from mtcli.corpus.readers.sources import form_suffix, resolve
from mtcli.corpus.readers.tables import BadRow, NumberedRow
from mtcli.corpus.readers.xml_pairs import xml_records
from mtcli.errors import DataError
from mtcli.runtime.progress import Progress
from mtcli.runtime.wording import counted
from mtcli.text.lines import SURROGATE, Counts, Pair, read_lines

ONE_EMPTY = "one side empty"
BOTH_EMPTY = "both sides empty"

PROGRESS_PAIRS = 1000
"""Pairs between two updates of a progress bar."""


def read_pairs(
    spec: str,
    src: str,
    tgt: str,
    *,
    swap: bool = False,
    replace: bool = False,
    counts: Counts | None = None,
    progress: Progress | None = None,
) -> Iterator[Pair]:
    """Read pairs in order, stripped of surrounding white space and otherwise unchanged.

    A pair with an empty side is skipped and counted.

    Args:
        spec: What to read, in any form that `--train` takes.
        src: Source language, as in the names of files, columns and keys.
        tgt: Target language.
        swap: Swap source and target. Has no effect on columns or keys that name a language (`en`), only on neutral
            ones (`source`), unnamed columns, and two files joined by a comma.
        replace: Replace invalid bytes by U+FFFD.
        counts: Updated with every pair; may serve several sources.
        progress: Updated with the pairs read, including those that are skipped.

    Raises:
        DataError: At the call, if there is nothing at `spec`. While reading, if the text is invalid, files have
            different lengths, a language is missing, a value is not a string, or the Hub does not answer.
    """
    counts = counts if counts is not None else Counts()
    rows = numbered_rows(spec, src, tgt, swap=swap, replace=replace, counts=counts)
    return _pairs(rows, spec, src, tgt, counts, progress)


def numbered_rows(
    spec: str, src: str, tgt: str, *, swap: bool = False, replace: bool = False, lenient: bool = False, counts: Counts
) -> Iterator[NumberedRow]:
    """Return the rows in order, unchanged, with the number of each: its pair, or what is wrong with it.

    Args:
        spec, src, tgt, swap, replace: See `read_pairs`.
        lenient: Read invalid bytes as surrogates, so that the text can be shown, in place of a DataError.
        counts: Receives notices, and the pairs that a run skips.

    Raises:
        DataError: See `read_pairs`. A row that is not a pair is no error.
    """
    form, files = resolve(spec, src, tgt)
    if form == "tmx" or form == "xliff":
        return xml_records(form, files[0], src, tgt, swap=swap, counts=counts, replace=replace)
    if form == "run":
        return enumerate(run_pairs(spec, src, tgt, counts), 1)
    if form in ("prefix", "two"):
        if form == "two" and not swap:
            _note_order(spec, files, src, tgt, counts)
        left, right = (read_lines(file, replace=replace, lenient=lenient, counts=counts) for file in files)
        pairs = side_by_side(left, right, str(files[0]), str(files[1]))
        return enumerate(((second, first) for first, second in pairs) if form == "two" and swap else pairs, 1)
    if form in ("tsv", "csv"):
        read = tables.csv_records if form == "csv" else tables.tsv_records
        lines = read_lines(files[0], replace=replace, lenient=lenient, counts=counts)
        return read(lines, str(files[0]), src, tgt, swap=swap, notices=counts.notices)
    found: Iterable[object]
    if form == "json":
        found = read_lines(files[0], replace=replace, lenient=lenient, counts=counts)
    elif form == "parquet":
        found = parquet_rows(files[0], src, tgt)
    else:
        found = dataset_rows(spec, src, tgt)
    return _numbered_sides(found, RowReader(spec, src, tgt, swap=swap, notices=counts.notices))


def place_of(spec: str, src: str, tgt: str, number: int) -> str:
    """Return how messages name a row: `pairs.tsv:17`, or `train.parquet row 17`. Of two files it names the first.

    Raises:
        DataError: See `read_pairs`.
    """
    form, files = resolve(spec, src, tgt)
    return f"{spec} row {number}" if form in ("parquet", "dataset", "run") else f"{files[0]}:{number}"


def side_by_side(left: Iterator[str], right: Iterator[str], first: str, second: str) -> Iterator[Pair]:
    """Yield the lines of two texts in pairs.

    Args:
        left: The first text.
        right: The second text.
        first, second: Their names, for a message.

    Raises:
        DataError: One text has more lines than the other.
    """
    num_left = 0
    for num_left, left_line in enumerate(left, 1):
        right_line = next(right, None)
        if right_line is None:
            num_right = num_left - 1
            num_left += sum(1 for _ in left)
            break
        yield left_line, right_line
    else:
        num_right = num_left + sum(1 for _ in right)
    if num_left != num_right:
        unequal = f"{first} has {counted(num_left, 'line')} but {second} has {num_right:,}"
        raise DataError(f"{unequal}; line n of one must translate line n of the other")


def _note_order(spec: str, files: list[Path], src: str, tgt: str, counts: Counts) -> None:
    """Add a notice if the names of two files give their languages in the other order."""
    if src != tgt and [form_suffix(file) for file in files] == [f".{tgt}", f".{src}"]:
        counts.notices.append(f"{spec}: the first file is read as {src} in spite of its name; --swap swaps them")


def _pairs(
    rows: Iterable[NumberedRow], spec: str, src: str, tgt: str, counts: Counts, progress: Progress | None
) -> Iterator[Pair]:
    """Yield the pairs of rows, each side stripped and on one line, and skip those with an empty side.

    Raises:
        DataError: A row is not a pair.
    """
    with_line_break = 0
    try:
        for number, row in rows:
            if isinstance(row, BadRow):
                problem = f"{row.problem}; {row.remedy}" if row.remedy else row.problem
                raise DataError(f"{place_of(spec, src, tgt, number)}: {problem}")
            src_text, tgt_text = row
            if "\n" in src_text or "\n" in tgt_text:
                with_line_break += 1
                src_text, tgt_text = (text.replace("\r\n", " ").replace("\n", " ") for text in row)
            pair = src_text.strip(), tgt_text.strip()
            counts.read += 1
            if progress and counts.read % PROGRESS_PAIRS == 0:
                progress.update(PROGRESS_PAIRS)
            if all(pair):
                counts.used += 1
                yield pair
            else:
                counts.skip(ONE_EMPTY if any(pair) else BOTH_EMPTY)
    finally:
        if with_line_break:
            counts.notices.append(f"{spec}: {tables.line_break_notice(with_line_break)}")


def _numbered_sides(rows: Iterable[object], reader: RowReader) -> Iterator[NumberedRow]:
    """Read rows with a key for each side: lines of JSON, or dictionaries."""
    for number, row in enumerate(rows, 1):
        if isinstance(row, str) and SURROGATE.search(row):
            yield number, BadRow("not UTF-8", "", row)
            continue
        try:
            yield number, reader.sides(row)
        except (ValueError, RecursionError) as error:
            yield number, BadRow(str(error), "", str(row))
