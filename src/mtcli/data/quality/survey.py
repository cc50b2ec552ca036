"""One reading of a corpus that finds, for each pair, the rules it breaks.

Memory: 24 bytes a pair while reading and 70 for a moment at the end (700 MB for ten million); no text is kept.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt

from mtcli.config.schema import Config
from mtcli.config.toml_file import load
from mtcli.data import rows, sources, tables
from mtcli.data.corpus import Pair, table_records, two_files
from mtcli.data.held_out import source_key
from mtcli.data.lines import Counts, read_lines
from mtcli.data.quality.rules import BIT, INVALID, MAX_LENGTH, MAX_RATIO, REMOVES, rules, script, tidy
from mtcli.data.tokenizer import RESERVED, SPECIALS, Tokenizer
from mtcli.runtime.progress import Progress

CHUNK = 4096  # pairs that a tokenizer is given at once

Bits = npt.NDArray[np.uint32]
Hashes = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Corpus:
    """Which pairs are looked at, and what for."""

    paths: Sequence[str]
    """In any form that `--train` takes."""
    src: str
    tgt: str
    swap: bool = False
    valid: str | None = None
    """Pairs whose sources must not be in `paths`."""
    test: str | None = None
    max_length: int = MAX_LENGTH
    max_ratio: float = MAX_RATIO

    def read(self, path: str, counts: Counts) -> Iterator[tuple[int, Pair | str]]:
        """The pairs behind `path` as they are, with the numbers of their lines; a string says why a line is none.

        Raises DataError where there is no going on: files of unequal length, a damaged archive, UTF-16.
        """
        form, files = sources.resolve(path, self.src, self.tgt)
        if form in ("tsv", "csv"):
            table = table_records(form, files[0], self.src, self.tgt, swap=self.swap, counts=counts, lenient=True)
            for number, record in table:
                if isinstance(record, tables.BadRow):
                    yield number, f"{record.problem}: {record.text}"
                else:
                    yield number, record
            return
        records: Iterable[Pair | str]
        if form in ("prefix", "two"):
            records = two_files(files[0], files[1], False, counts, lenient=True)
            if self.swap and form == "two":
                records = (pair[::-1] for pair in records)
        elif form == "json":
            records = map(self._row, read_lines(files[0], lenient=True, counts=counts))
        elif form == "parquet":
            records = map(self._row, rows.parquet_rows(files[0], self.src, self.tgt))
        else:
            records = map(self._row, rows.dataset_rows(path, bool(files), self.src, self.tgt))
        yield from enumerate(records, 1)

    def files(self) -> list[Path]:
        """Every local file that is read.

        Raises:
            DataError: One is missing.
        """
        return [file for path in self._specs() for file in sources.source_files(path, self.src, self.tgt)]

    def folders(self) -> list[Path]:
        """Folders that are read whole."""
        found = (sources.resolve(path, self.src, self.tgt) for path in self._specs())
        return [folder for form, files in found if form == "dataset" for folder in files]

    def _specs(self) -> list[str]:
        return [*self.paths, *(path for path in (self.valid, self.test) if path is not None)]

    def _row(self, row: object) -> Pair | str:
        if isinstance(row, str) and INVALID.search(row):
            return f"not UTF-8: {row}"
        try:
            return rows.sides_of(row, self.src, self.tgt)
        except (ValueError, RecursionError) as error:
            return f"{error}: {row}"

    def records(self, description: str, counts: Counts | None = None) -> Iterator[tuple[str, int, Pair | str]]:
        """(path, line, what `read` gives) of all paths in turn, behind a progress bar."""
        counts = counts if counts is not None else Counts()
        with Progress(description, unit="pairs") as bar:
            for path in self.paths:
                for number, record in self.read(path, counts):
                    yield path, number, record
                    bar.update()

    def source_keys(self, path: str) -> set[int]:
        """Of every source behind `path`, what `_key` gives."""
        return {_key(tidy(pair[0])) for _, pair in self.read(path, Counts()) if not isinstance(pair, str)} - {_key("")}

    def place(self, path: str, number: int) -> str:
        """`pairs.tsv:17`; of two files, whose lines have the same number, the first."""
        form, files = sources.resolve(path, self.src, self.tgt)
        return f"{path} row {number}" if form in ("parquet", "dataset") else f"{files[0]}:{number}"


@dataclass
class Pieces:
    """How a model's tokenizer takes one side."""

    words: int = 0
    pieces: int = 0
    bytes: int = 0


class _Encoder:
    """A model's tokenizer, looking at the pairs."""

    def __init__(self, model: Path) -> None:
        is_file = model.suffix == ".json"
        tokenizer = Tokenizer.load(model if is_file else model / "tokenizer.json")
        settings = model / "config.toml"
        self.max_length = (load(settings) if settings.is_file() else Config()).data.max_length
        self.encode = tokenizer.encode_src, tokenizer.encode_tgt
        self.sides = Pieces(), Pieces()

    def look(self, texts: Sequence[Pair]) -> list[int]:
        """The bits of each pair."""
        bits = [0] * len(texts)
        for side, (encode, seen) in enumerate(zip(self.encode, self.sides, strict=True)):
            for i, row in enumerate(encode([pair[side] for pair in texts])):
                in_bytes = sum(len(SPECIALS) <= piece < len(RESERVED) for piece in row)
                bits[i] |= BIT["spelt in bytes"] * (in_bytes > 0) | BIT["too many pieces"] * (
                    len(row) > self.max_length
                )
                seen.words += texts[i][side].count(" ") + 1
                seen.pieces += len(row)
                seen.bytes += in_bytes
        return bits


@dataclass
class Survey:
    """What one reading of a corpus found."""

    found: Bits
    """Of each pair in order, the `BIT`s of the rules it breaks."""
    words: tuple[int, int]
    characters: tuple[int, int]
    scripts: tuple[str, str]
    """Of most sentences of each side."""
    pieces: tuple[Pieces, Pieces] | None
    """Of each side, if there is a tokenizer."""
    notices: list[str]


def survey(pairs: Corpus, model: Path | None = None) -> Survey:
    """Read everything once and find what is wrong with each pair; with a `model`, how its tokenizer takes them.

    Raises DataError where a reader cannot go on, ModelError for a `model` without a usable tokenizer.
    """
    tests = [(BIT[rule.name], rule.test) for rule in rules(pairs.max_length, pairs.max_ratio) if rule.test]
    held = [
        (BIT[f"source is in {name}"], pairs.source_keys(path))
        for name, path in (("test", pairs.test), ("valid", pairs.valid))
        if path is not None
    ]
    encoder, counts = _Encoder(model) if model else None, Counts()
    found, same_pair, same_source, combination = array("I"), array("q"), array("q"), array("H")
    combinations: dict[Pair, int] = {("", ""): 0}  # the scripts of the two sides
    words, characters = [0, 0], [0, 0]
    records = (record for _, _, record in pairs.records("reading", counts))
    while chunk := list(islice(records, CHUNK)):
        texts = [("", "") if isinstance(record, str) else (tidy(record[0]), tidy(record[1])) for record in chunk]
        for record, (src, tgt) in zip(chunk, texts, strict=True):
            bits = scripts = key = 0
            if isinstance(record, str):
                bits = BIT["not a pair"]
            elif not (src and tgt):
                bits = BIT["empty side"]
            else:
                for bit, test in tests:
                    if test(src, tgt):
                        bits |= bit
                if (src, tgt) != (record[0].strip(), record[1].strip()):
                    bits |= BIT["white space"]
                key = _key(src)
                for bit, keys in held:
                    if key in keys:
                        bits |= bit
                scripts = combinations.setdefault((script(src), script(tgt)), len(combinations))
            found.append(bits)
            same_pair.append(hash((src, tgt)))
            same_source.append(key)
            combination.append(scripts)
            for side, text in enumerate((src, tgt)):
                words[side] += text.count(" ") + bool(text)
                characters[side] += len(text)
        if encoder:
            start = len(found) - len(chunk)
            usable = [
                i for i, (src, tgt) in enumerate(texts) if src and tgt and not found[start + i] & BIT["invalid UTF-8"]
            ]
            for i, bits in zip(usable, encoder.look([texts[i] for i in usable]), strict=True):
                found[start + i] |= bits
    result = np.frombuffer(found, np.uint32)
    scripts_found = _compare(
        result,
        np.frombuffer(same_pair, np.int64),
        np.frombuffer(same_source, np.int64),
        np.frombuffer(combination, np.uint16),
        list(combinations),
    )
    return Survey(
        result,
        (words[0], words[1]),
        (characters[0], characters[1]),
        scripts_found,
        encoder.sides if encoder else None,
        list(dict.fromkeys(counts.notices)),
    )


def _key(src: str) -> int:
    """64 bits, equal for sources that count as the same; one collision among ten million is 3 in a million likely."""
    return hash(source_key(src))


def _compare(
    found: Bits, same_pair: Hashes, same_source: Hashes, combination: npt.NDArray[np.uint16], scripts: list[Pair]
) -> Pair:
    """Add the bits that need other pairs to `found`; returns the scripts of both sides."""
    alive = found & REMOVES == 0
    before, _ = _twins(same_pair)  # equal pairs break the same rules, so the first of them stands for all
    found[alive & before] |= BIT["duplicate pair"]
    sizes = np.bincount(combination[alive & ~before], minlength=len(scripts))
    usual, wrong = _usual_scripts(dict(zip(scripts, sizes.tolist(), strict=True)))
    found[np.isin(combination, [scripts.index(pair) for pair in wrong])] |= BIT["wrong script"]
    kept = np.flatnonzero(found & REMOVES == 0)
    before, after = _twins(same_source[kept])
    found[kept[before | after]] |= BIT["several translations"]
    return usual


def _twins(values: Hashes) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Of each value, whether it came before and whether it comes again."""
    order = np.argsort(values, kind="stable")
    same = values[order[1:]] == values[order[:-1]]
    before, after = np.zeros((2, len(values)), bool)
    before[order[1:][same]] = True
    after[order[:-1][same]] = True
    return before, after


def _usual_scripts(sizes: dict[Pair, int]) -> tuple[Pair, set[Pair]]:
    """The script of most pairs on each side, and the combinations that are of another on either side.

    Counted anew without those until none is left, so that what is kept gives the same answer.
    """
    left = sizes
    while True:
        usual = _usual(left, 0), _usual(left, 1)
        kept = {
            pair: n for pair, n in left.items() if all(s in ("", "latin", u) for s, u in zip(pair, usual, strict=True))
        }
        if len(kept) == len(left):
            return usual, sizes.keys() - kept.keys()
        left = kept


def _usual(sizes: dict[Pair, int], side: int) -> str:
    counts: Counter[str] = Counter()
    for pair, n in sizes.items():
        counts[pair[side].capitalize() if pair[side] == "latin" else pair[side]] += n
    del counts[""]
    return max(counts, key=lambda name: (counts[name], name), default="")
