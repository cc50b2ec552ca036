"""The files of `mtcli improve`: held-out pairs, monolingual lines, and synthetic pairs without repetitions."""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from mtcli.config.schema import DataConfig
from mtcli.data.corpus import Pair, read_pairs
from mtcli.data.held_out import HeldOut, choose_held_out, held_out_size, source_key
from mtcli.data.lines import Counts, read_lines
from mtcli.data.sources import parse_source
from mtcli.data.tokenizer import BACK_TRANSLATION_TAG
from mtcli.errors import DataError
from mtcli.runtime.files import TemporaryFile, storage_errors

Record = dict[str, Any]
"""A line of a file of pairs: `translation`, and the scores of a synthetic pair."""

MIN_VALIDATION_PAIRS = 100
"""Validation pairs that are held out if the corpus has ten times as many: models are compared by them."""


@dataclass(frozen=True)
class Splits:
    """The number of pairs, and which of them are held out."""

    held_out: HeldOut
    pairs: int
    """All pairs of the training corpora."""

    @property
    def train(self) -> int:
        """Number of training pairs."""
        return self.pairs - self.held_out.n_valid - self.held_out.n_test


@contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """Open a binary file that appears under its name when the block ends. Its folder is created.

    Raises:
        StorageError: The file cannot be written.
    """
    name = f".{path.name}.tmp"
    with storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_name(name).unlink(missing_ok=True)  # left by a process that was killed
        with TemporaryFile(path, [name]) as temporary:
            yield temporary.file
            temporary.sync()
            temporary.publish()


def choose_splits(data: DataConfig) -> Splits:
    """Choose the held-out pairs for validation and test, unless files name them.

    Raises:
        DataError: The pairs cannot be read, or are too few.
    """
    n_pairs = sum(1 for _ in training_pairs(data))
    if n_pairs == 0:
        raise DataError("the training pairs are empty")
    wanted = max(held_out_size(n_pairs), min(MIN_VALIDATION_PAIRS, n_pairs // 10))
    valid = wanted if data.valid is None else 0
    test = None if data.test is None else 0
    held_out = choose_held_out(training_pairs(data), valid, test, data.split_seed)
    if data.valid is None and held_out.n_valid == 0:
        raise DataError(f"{n_pairs:,} pairs are too few to hold out validation pairs; name some with --valid")
    return Splits(held_out, n_pairs)


def training_pairs(data: DataConfig, counts: Counts | None = None) -> Iterator[Pair]:
    """Yield the pairs of all training corpora."""
    for spec in data.train:
        yield from corpus_pairs(parse_source(spec).path, data, counts)


def corpus_pairs(path: str, data: DataConfig, counts: Counts | None = None) -> Iterator[Pair]:
    """Yield the pairs of one corpus."""
    return read_pairs(path, data.src, data.tgt, swap=data.swap, replace=data.replace, counts=counts)


def write_pairs(path: Path, pairs: Iterable[Pair], src: str, tgt: str) -> int:
    """Write pairs as JSON lines with a key for each language, and return their number."""
    return _write_records(path, ({"translation": {src: src_text, tgt: tgt_text}} for src_text, tgt_text in pairs))


def _write_records(path: Path, records: Iterable[Record]) -> int:
    """Write JSON objects, one on each line, and return their number."""
    number = 0
    with new_file(path) as file:
        for record in records:
            file.write(json.dumps(record, ensure_ascii=False).encode() + b"\n")
            number += 1
    return number


def held_out_keys(files: Sequence[Path], src: str, tgt: str) -> frozenset[str]:
    """Return the keys (see `source_key`) of both sides of all held-out pairs.

    Args:
        files: Held-out pairs that `write_pairs` wrote.
        src: Source language.
        tgt: Target language.
    """
    pairs = (pair for file in files for pair in read_pairs(str(file), src, tgt))
    return frozenset(source_key(text) for pair in pairs for text in pair)


@dataclass(frozen=True)
class Text:
    """The usable lines of a monolingual text: those that are neither blank nor part of a held-out pair."""

    path: Path
    held_out: frozenset[str] = frozenset()
    """Keys of held-out sentences."""
    replace: bool = False
    """Read invalid UTF-8 as U+FFFD."""

    def usable(self, dropped: Counter[str] | None = None) -> Iterator[str]:
        """Yield the usable lines.

        Args:
            dropped: Receives the number of other lines by reason.

        Raises:
            DataError: The text cannot be read.
        """
        for line in read_lines(self.path, replace=self.replace):
            if not line.strip():
                reason = "blank line"
            elif source_key(line) in self.held_out:
                reason = "held-out sentence"
            else:
                yield line
                continue
            if dropped is not None:
                dropped[reason] += 1


def is_chosen(index: int, wanted: int, of: int) -> bool:
    """Return True for the indices that choose `wanted` of `of` items at even distances."""
    return index * wanted // of != (index + 1) * wanted // of


def write_lines(lines: Iterable[str], path: Path, chosen: Callable[[int], bool]) -> int:
    """Write the lines whose index is chosen, and return their number."""
    number = 0
    with new_file(path) as file:
        for index, line in enumerate(lines):
            if chosen(index):
                file.write(line.encode() + b"\n")
                number += 1
    return number


REPEATED = "repeated or real pair"
HELD_OUT = "held-out sentence"


def merge(
    synthetic: Sequence[Path], real: Sequence[Path], path: Path, src: str, tgt: str, held_out: frozenset[str]
) -> tuple[int, Counter[str]]:
    """Write the synthetic pairs of several files once each, without real pairs and held-out sentences.

    The pairs keep their scores, by which `training_sources.is_synthetic` recognises the file.

    Args:
        synthetic: Files of `mtcli augment`, as JSON lines.
        real: Files of real pairs.
        path: The file to write.
        src: Source language.
        tgt: Target language.
        held_out: Keys of the held-out sentences.

    Returns:
        The number of pairs that were written, and the number of others by reason.
    """
    digests = {_digest(_pair_of(record, src, tgt)) for record in _records(synthetic)}
    seen = {digest for file in real for digest in map(_digest, read_pairs(str(file), src, tgt)) if digest in digests}
    dropped = Counter[str]()

    def kept() -> Iterator[Record]:
        for record in _records(synthetic):
            pair = _pair_of(record, src, tgt)
            digest = _digest(pair)
            is_repeated = digest in seen
            seen.add(digest)
            if is_repeated:
                dropped[REPEATED] += 1
            elif any(source_key(_without_tag(text)) in held_out for text in pair):
                dropped[HELD_OUT] += 1
            else:
                yield record

    written = _write_records(path, kept())
    return written, dropped


def _records(files: Sequence[Path]) -> Iterator[Record]:
    """Yield the JSON objects of files, one on each line."""
    for file in files:
        for line in read_lines(file):
            yield json.loads(line)


def _pair_of(record: Record, src: str, tgt: str) -> Pair:
    translation = record["translation"]
    return translation[src].strip(), translation[tgt].strip()


def _without_tag(text: str) -> str:
    return text.removeprefix(BACK_TRANSLATION_TAG)


def _digest(pair: Pair) -> bytes:
    src, tgt = pair
    text = f"{_without_tag(src)}\t{tgt}"
    return hashlib.blake2b(text.encode(), digest_size=8).digest()
