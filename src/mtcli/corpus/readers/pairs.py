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
from mtcli.corpus.readers.sources import PairsForm, form_suffix, resolve
from mtcli.corpus.readers.xml_pairs import xml_records
from mtcli.errors import DataError
from mtcli.runtime.progress import Progress
from mtcli.runtime.wording import counted
from mtcli.text.lines import Counts, Pair, read_lines

ONE_EMPTY = "one side empty"
BOTH_EMPTY = "both sides empty"


NUMBERED_FORMS = ("tsv", "csv", "tmx", "xliff")
"""The forms of `numbered_records`."""

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
    form, files = resolve(spec, src, tgt)
    reader = RowReader(spec, src, tgt, swap=swap, notices=counts.notices)
    pairs: Iterator[Pair]
    if form in ("prefix", "two"):
        if form == "two" and not swap:
            _note_order(spec, files, src, tgt, counts)
        pairs = two_files(files[0], files[1], replace, counts)
        if form == "two" and swap:
            pairs = ((second, first) for first, second in pairs)
    elif form in NUMBERED_FORMS:
        records = numbered_records(form, files[0], src, tgt, swap=swap, counts=counts, replace=replace)
        pairs = _numbered_pairs(records, files[0])
    elif form == "json":
        lines = read_lines(files[0], replace=replace, counts=counts)
        pairs = _row_pairs(":", lines, reader, counts)
    elif form == "run":
        pairs = run_pairs(spec, src, tgt, counts)
    elif form == "parquet":
        pairs = _row_pairs(": row ", parquet_rows(files[0], src, tgt), reader, counts)
    else:
        is_local_folder = bool(files)  # otherwise the name of a data set on the Hub
        pairs = _row_pairs(": row ", dataset_rows(spec, is_local_folder, src, tgt), reader, counts)
    return _strip(pairs, counts, progress)


def _strip(pairs: Iterable[Pair], counts: Counts, progress: Progress | None) -> Iterator[Pair]:
    """Strip white space, and skip pairs with an empty side. All pairs count as progress."""
    for src, tgt in pairs:
        pair = src.strip(), tgt.strip()
        counts.read += 1
        if progress and counts.read % PROGRESS_PAIRS == 0:
            progress.update(PROGRESS_PAIRS)
        if all(pair):
            counts.used += 1
            yield pair
        else:
            counts.skip(ONE_EMPTY if any(pair) else BOTH_EMPTY)


def two_files(first: Path, second: Path, replace: bool, counts: Counts, lenient: bool = False) -> Iterator[Pair]:
    """Read the lines of two files side by side, unchanged.

    Raises:
        DataError: One file has more lines than the other.
    """
    left = read_lines(first, replace=replace, lenient=lenient, counts=counts)
    right = read_lines(second, replace=replace, lenient=lenient, counts=counts)
    return side_by_side(left, right, str(first), str(second))


def side_by_side(left: Iterator[str], right: Iterator[str], first: str, second: str) -> Iterator[Pair]:
    """Yield the lines of two texts in pairs.

    Args:
        left: Lines of the first text.
        right: Lines of the second text.
        first: The name of the first text, for a message.
        second: The name of the second text.

    Raises:
        DataError: One text has more lines than the other.
    """
    num_left = 0
    for num_left, left_line in enumerate(left, 1):
        right_line = next(right, None)
        if right_line is None:
            raise _unequal(first, num_left + _count(left), second, num_left - 1)
        yield left_line, right_line
    num_more = _count(right)
    if num_more:
        raise _unequal(first, num_left, second, num_left + num_more)


def _count(lines: Iterator[str]) -> int:
    """Return the number of the remaining lines."""
    return sum(1 for _ in lines)


def _unequal(first: str, num_first: int, second: str, num_second: int) -> DataError:
    """Return the error of two texts with different numbers of lines."""
    unequal = f"{first} has {counted(num_first, 'line')} but {second} has {num_second:,}"
    return DataError(f"{unequal}; line n of one must translate line n of the other")


def _note_order(spec: str, files: list[Path], src: str, tgt: str, counts: Counts) -> None:
    """Add a notice if the names of two files give their languages in the other order."""
    if src != tgt and [form_suffix(file) for file in files] == [f".{tgt}", f".{src}"]:
        counts.notices.append(f"{spec}: the first file is read as {src} in spite of its name; --swap swaps them")


def numbered_records(
    form: PairsForm,
    path: Path,
    src: str,
    tgt: str,
    *,
    swap: bool,
    counts: Counts,
    replace: bool = False,
    lenient: bool = False,
) -> Iterator[tables.NumberedRow]:
    """Read the records of a file of one of `NUMBERED_FORMS` with line numbers, including those that are not pairs."""
    if form == "tmx" or form == "xliff":
        return xml_records(form, path, src, tgt, swap=swap, counts=counts, replace=replace)
    read = tables.csv_records if form == "csv" else tables.tsv_records
    lines = read_lines(path, replace=replace, lenient=lenient, counts=counts)
    return read(lines, str(path), src, tgt, swap=swap, notices=counts.notices)


def _numbered_pairs(records: Iterable[tables.NumberedRow], path: Path) -> Iterator[Pair]:
    for number, record in records:
        if isinstance(record, tables.BadRow):
            raise DataError(f"{path}:{number}: {record.problem}; {record.remedy}")
        yield record


def _row_pairs(number_prefix: str, rows: Iterable[object], reader: RowReader, counts: Counts) -> Iterator[Pair]:
    """Read pairs from rows with a key for each side: lines of JSON, or dictionaries.

    Args:
        number_prefix: The text between the name and the number of a row in messages: `:` or `: row `.
        rows: What `reader` takes.
        reader: Finds the sides of a row.
        counts: Receives notices.
    """
    with_line_break = 0
    try:
        for number, row in enumerate(rows, 1):
            try:
                pair = reader.sides(row)
            except (ValueError, RecursionError) as error:
                raise DataError(f"{reader.name}{number_prefix}{number}: {error}") from None
            if "\n" in pair[0] or "\n" in pair[1]:
                with_line_break += 1
                pair = _on_one_line(pair[0]), _on_one_line(pair[1])
            yield pair
    finally:
        if with_line_break:
            counts.notices.append(f"{reader.name}: {tables.line_break_notice(with_line_break)}")


def _on_one_line(text: str) -> str:
    return text.replace("\r\n", " ").replace("\n", " ")
