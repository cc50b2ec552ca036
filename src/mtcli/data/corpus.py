"""Sentence pairs from anything: raw text in, `(src, tgt)` strings out, one pair at a time.

The same pairs give the same list whatever holds them, and nothing is lost in silence: a line ends at `\\n` and
nowhere else, broken text stops the reader with file, line and byte, and a pair with an empty side is counted
while its neighbours stay together. Everything streams.

    resolve      which form a `--train PATH` has, and its files
    two_files, _table_pairs, _row_pairs   a small reader for each form, over `tables.py` (TSV, CSV) and `rows.py`
    read_pairs   all of it: strip, count, swap
    held_out     validation and test sets, chosen by source sentence
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from glob import escape
from itertools import islice
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from mtcli import limits
from mtcli.config.languages import known
from mtcli.data import tables
from mtcli.data.lines import Counts, read_lines
from mtcli.data.rows import dataset_name, dataset_rows, parquet_rows, sides_of
from mtcli.errors import DataError, UsageError

Pair = tuple[str, str]
Split = Literal["train", "valid", "test"]
Hashes = npt.NDArray[np.uint64]
Sizes = npt.NDArray[np.int64]

FORMS = (
    "a prefix (data/train for data/train.en and data/train.de), two files joined by a comma, "
    "a .tsv, .csv, .jsonl or .parquet file, a folder, or a Hub name (owner/name:config#split)"
)
CANDIDATES = 1_000_000
"""Sources, at each end of their order, among which held-out ones are looked for."""
ONE_EMPTY, BOTH_EMPTY = "one side empty", "both sides empty"
_FORM_OF = {".tsv": "tsv", ".csv": "csv", ".jsonl": "json", ".json": "json", ".parquet": "parquet"}


@dataclass(frozen=True)
class Source:
    """One `--train` argument: where the pairs are, and how often an epoch draws each of them on average."""

    path: str
    weight: float = 1.0


def parse_source(spec: str) -> Source:
    """`data/train@2.5` is `data/train` with weight 2.5; an existing name with `@` in it is taken whole.

    Raises UsageError when the weight is out of bounds.
    """
    path, at, number = spec.rpartition("@")
    whole = Path(spec)
    if not at or not path or whole.exists() or any(whole.parent.glob(escape(whole.name) + ".*")):
        return Source(spec)
    try:
        weight = float(number)
    except ValueError:
        return Source(spec)
    if not limits.WEIGHT.min <= weight <= limits.WEIGHT.max:
        raise UsageError(
            f"{spec}: the weight after @ is {number}; give a number above 0, at most {limits.WEIGHT.max:,}"
        )
    return Source(path, weight)


def source_files(spec: str, src: str, tgt: str) -> list[Path]:
    """The local files behind `spec` (to hash, or to compare by size and time); none for a Hub name.

    Raises DataError where `read_pairs` would for want of a file.
    """
    form, files = resolve(spec, src, tgt)
    if form != "dataset":
        return files
    inside = ((folder, path) for folder in files for path in sorted(folder.rglob("*")) if path.is_file())
    return [path for folder, path in inside if "/." not in f"/{path.relative_to(folder).as_posix()}"]


def resolve(spec: str, src: str, tgt: str) -> tuple[str, list[Path]]:
    """The form of a source (tsv, csv, json, parquet, prefix, two, dataset) and its files: a folder, or none (Hub)."""
    path = Path(spec)
    if form := file_form(path):
        return form, [path]

    sides = [[Path(f"{spec}.{language}"), Path(f"{spec}.{language}.gz")] for language in (src, tgt)]
    found = [file for side in sides for file in [f for f in side if f.is_file()][:1]]
    if len(found) == 2:
        return "prefix", found
    if found:
        missing = " or ".join(map(str, sides[0 if found[0] in sides[1] else 1]))
        raise DataError(f"{spec}: found {found[0]} but no {missing}; add it, or set --src and --tgt")

    if path.is_dir():
        return "dataset", [path]
    if path.exists():
        raise DataError(f"{spec}: {_formless(path)}")
    if half := two_names(spec):
        return "two", half
    name, config, _ = dataset_name(spec)
    if Path(name).is_dir():
        return "dataset", [Path(name)]
    is_name = re.fullmatch(r"\w[\w.-]*(/\w[\w.-]*)?", name) and _suffix(Path(name)) not in _FORM_OF
    if is_name and (config or ("/" in name and not Path(name).parent.is_dir())):
        return "dataset", []
    halves = _halves(spec)
    missing = " and ".join(str(file) for file in (halves or [[path]])[0] if not file.is_file())
    also = "" if halves or _suffix(path) in _FORM_OF else f" or folder, and no {sides[0][0]} and {sides[1][0]}"
    raise DataError(f"{missing}: no such file{also}; give {FORMS}")


def file_form(path: Path) -> str | None:
    """The form of a file that holds both sides (tsv, csv, json, parquet), if this is one."""
    return _FORM_OF.get(_suffix(path)) if path.is_file() else None


def two_names(spec: str) -> list[Path] | None:
    """The two files that `spec` joins by a comma, if both are there."""
    return next((half for half in _halves(spec) if all(file.is_file() for file in half)), None)


def _halves(spec: str) -> list[list[Path]]:
    """Every way to take `spec` as two names joined by a comma."""
    return [[Path(spec[: m.start()]), Path(spec[m.end() :])] for m in re.finditer(r"(?<=.),(?=.)", spec)]


def _formless(path: Path) -> str:
    """What to do with a file whose name has no form, or that is none that can be read twice."""
    if path.exists() and not path.is_file():
        return "a pipe or device; copy its content to a file and give that"
    if _suffix(path) in (".xlsx", ".xls", ".ods", ".numbers"):
        return "a spreadsheet; save it there as CSV (in Excel: CSV UTF-8) and give that file"
    if path.suffix.lower() == ".toml":
        return "a configuration; give it as the argument, without --train"
    prefix, _, suffix = re.sub(r"(?i)\.gz$", "", str(path)).rpartition(".")
    if prefix and known(suffix):
        return f"one side only; give both sides as {prefix}, or as two files joined by a comma"
    return f"its name does not tell its form; rename it to .tsv, .csv or .jsonl, or give {FORMS}"


def _suffix(path: Path) -> str:
    """The suffix that tells the form: `.tsv` of `pairs.TSV.gz`."""
    return Path(path.name.lower().removesuffix(".gz")).suffix


def two_files(first: Path, second: Path, replace: bool, counts: Counts, lenient: bool = False) -> Iterator[Pair]:
    """The lines of two files side by side, as they are; DataError where one has more of them."""
    left, right = (read_lines(path, replace=replace, lenient=lenient, counts=counts) for path in (first, second))
    number = 0
    for number, a in enumerate(left, 1):
        b = next(right, None)
        if b is None:
            lines = (number + sum(1 for _ in left), number - 1)
            break
        yield a, b
    else:
        lines = (number, number + sum(1 for _ in right))
    if lines[0] != lines[1]:
        unequal = f"{first} has {lines[0]:,} lines but {second} has {lines[1]:,}"
        raise DataError(f"{unequal}; line n of one must translate line n of the other")


def _table_pairs(records: Iterable[tables.Record], path: Path) -> Iterator[Pair]:
    for number, record in records:
        if isinstance(record, tables.BadRow):
            raise DataError(f"{path}:{number}: {record.problem}; {record.remedy}")
        yield record


def table_records(
    form: str,
    path: Path,
    src: str,
    tgt: str,
    *,
    swap: bool,
    counts: Counts,
    replace: bool = False,
    lenient: bool = False,
) -> Iterator[tables.Record]:
    """The records of a `tsv` or `csv` file with the numbers of their lines; those that are no pair among them."""
    read = tables.csv_records if form == "csv" else tables.tsv_records
    lines = read_lines(path, replace=replace, lenient=lenient, counts=counts)
    return read(lines, str(path), src, tgt, swap=swap, notices=counts.notices)


def _row_pairs(place: str, rows: Iterable[object], src: str, tgt: str, counts: Counts) -> Iterator[Pair]:
    """Pairs from rows that name their languages: JSON lines or dictionaries. `place` + row number is where."""
    broken = 0
    try:
        for number, row in enumerate(rows, 1):
            try:
                a, b = sides_of(row, src, tgt)
            except (ValueError, RecursionError) as error:
                raise DataError(f"{place}{number}: {error}") from None
            if "\n" in a or "\n" in b:
                broken += 1
                a, b = (side.replace("\r\n", " ").replace("\n", " ") for side in (a, b))
            yield a, b
    finally:
        if broken:
            counts.notices.append(f"{place.rstrip(':')} {broken:,} pairs hold a line break; read as a space")


def read_pairs(
    spec: str, src: str, tgt: str, *, swap: bool = False, replace: bool = False, counts: Counts | None = None
) -> Iterator[Pair]:
    """The pairs behind `spec` in order, stripped of surrounding white space and otherwise untouched.

    A pair with an empty side is skipped and counted. `swap` exchanges the sides of two files joined by a comma, and of
    a table whose columns do not name their languages. `counts` fills up as the pairs are drawn; one `Counts` may serve
    several sources.

    Raises DataError at once when there is nothing at `spec`, and while reading for what `read_lines` refuses, files
    of unequal length, a missing column or language, a value that is not a string, a Hub that does not answer.
    """
    counts = counts if counts is not None else Counts()
    form, files = resolve(spec, src, tgt)
    if form in ("prefix", "two"):
        if form == "two" and not swap and [_suffix(file) for file in files] == [f".{tgt}", f".{src}"] and src != tgt:
            counts.notices.append(f"{spec}: the first file is read as {src} in spite of its name; --swap turns them")
        pairs = two_files(files[0], files[1], replace, counts)
    elif form in ("tsv", "csv"):
        records = table_records(form, files[0], src, tgt, swap=swap, counts=counts, replace=replace)
        pairs = _table_pairs(records, files[0])
    elif form == "json":
        lines = read_lines(files[0], replace=replace, counts=counts)
        pairs = _row_pairs(f"{spec}:", lines, src, tgt, counts)
    else:
        parquet = form == "parquet"
        rows = parquet_rows(files[0], src, tgt) if parquet else dataset_rows(spec, bool(files), src, tgt)
        pairs = _row_pairs(f"{spec}: row ", rows, src, tgt, counts)
    return _cleaned(pairs, swap and form == "two", counts)


def _cleaned(pairs: Iterable[Pair], swap: bool, counts: Counts) -> Iterator[Pair]:
    for a, b in pairs:
        a, b = a.strip(), b.strip()
        counts.read += 1
        if a and b:
            counts.used += 1
            yield (b, a) if swap else (a, b)
        else:
            why = ONE_EMPTY if a or b else BOTH_EMPTY
            counts.skipped[why] = counts.skipped.get(why, 0) + 1


def source_key(src: str) -> str:
    """Equal for source sentences that count as the same: NFC, without case, single spaces."""
    return " ".join(unicodedata.normalize("NFC", unicodedata.normalize("NFC", src).casefold()).split())


def held_out_size(n_pairs: int) -> int:
    """Pairs to hold out for one set by default: 2%, at most 1,000, at least 1; none below 20 pairs."""
    return min(1000, max(1, n_pairs // 50)) if n_pairs >= 20 else 0


@dataclass(frozen=True)
class HeldOut:
    """Which source sentences are kept out of training; the same for the same pairs in whatever order."""

    seed: int
    valid: frozenset[int] = frozenset()  # 64-bit hashes of source keys
    test: frozenset[int] = frozenset()
    n_pairs: int = 0  # pairs in all, and how many of them each set takes
    n_valid: int = 0
    n_test: int = 0

    def split_of(self, src: str) -> Split:
        """Where every pair with this source sentence, in any case, spacing or Unicode form, belongs."""
        if not (self.valid or self.test):
            return "train"
        key = _hash(src, self.seed)
        return "valid" if key in self.valid else "test" if key in self.test else "train"


def held_out(pairs: Iterable[Pair], valid: int | None, test: int | None, seed: int) -> HeldOut:
    """Choose up to `valid` and `test` pairs to hold out, by source; None is `held_out_size`, 0 is no set.

    Reads `pairs` once; route a second reading with `split_of`. Sources are ranked by a hash keyed with `seed`: test
    takes from the smallest up, valid from the largest down, whole sources only, each passing over what no longer fits.
    Of a corpus with more than 2 × `CANDIDATES` sources only so many at each end are looked at, so that memory is
    bounded. Neither set is larger than a tenth of the pairs; below 20 pairs, or where every source is too frequent,
    nothing is held out.
    """
    found = np.zeros(0, dtype=np.uint64), np.zeros(0, dtype=np.int64)  # hashes, rising, and how many pairs have each
    n_pairs, sources = 0, (_hash(src, seed) for src, _ in pairs)
    while len(more := np.fromiter(islice(sources, CANDIDATES), dtype=np.uint64)):
        n_pairs += len(more)
        found = _ends(*found, more)
    hashes, sizes = found

    def take(wanted: int | None, order: slice, taken: frozenset[int]) -> tuple[frozenset[int], int]:
        limit = min(held_out_size(n_pairs) if wanted is None else wanted, n_pairs // 10 if n_pairs >= 20 else 0)
        chosen, total = set[int](), 0
        for value, size in zip(hashes[order], sizes[order], strict=True):
            if total >= limit:
                break
            if total + size <= limit and int(value) not in taken:
                chosen.add(int(value))
                total += int(size)
        return frozenset(chosen), total

    test_set, n_test = take(test, slice(None), frozenset())
    valid_set, n_valid = take(valid, slice(None, None, -1), test_set)
    return HeldOut(seed, valid_set, test_set, n_pairs, n_valid, n_test)


def _ends(hashes: Hashes, sizes: Sizes, more: Hashes) -> tuple[Hashes, Sizes]:
    """Count `more` hashes in; of more than 2 × `CANDIDATES` different ones keep so many at each end.

    What is dropped can never come back: the ends only move outwards. So whatever is kept was counted from the first.
    """
    new, inverse = np.unique(np.concatenate([hashes, more]), return_inverse=True)
    counts = np.bincount(inverse, np.concatenate([sizes, np.ones(len(more), dtype=np.int64)])).astype(np.int64)
    if len(new) > 2 * CANDIDATES:
        new, counts = (np.concatenate([x[:CANDIDATES], x[-CANDIDATES:]]) for x in (new, counts))
    return new, counts


def _hash(src: str, seed: int) -> int:
    digest = hashlib.blake2b(source_key(src).encode(), digest_size=8, key=str(seed).encode()).digest()
    return int.from_bytes(digest, "little")
