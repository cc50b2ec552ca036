"""The files of `mtcli improve`: held-out pairs, and synthetic pairs without repetitions."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mtcli.config.schema import DataConfig
from mtcli.corpus.cache.build import SYNTHETIC_HELD_OUT
from mtcli.corpus.cache.training_sources import is_synthetic
from mtcli.corpus.readers.pairs import read_pairs
from mtcli.corpus.readers.sources import parse_source
from mtcli.corpus.splits.held_out import HeldOut, choose_held_out, held_out_size, source_key
from mtcli.errors import DataError
from mtcli.runtime.files import new_file
from mtcli.text.lines import Counts, Pair, read_lines
from mtcli.text.tokenizer.tokenizer import BACK_TRANSLATION_TAG

Record = dict[str, Any]
"""A line of a file of pairs: `translation`, and the scores of a synthetic pair."""

MIN_VALIDATION_PAIRS = 100
"""Validation pairs that are held out if the corpus has ten times as many: models are compared by them."""


@dataclass(frozen=True)
class Splits:
    """Which pairs of the training corpora are held out."""

    held_out: HeldOut
    can_hold_out: tuple[bool, ...]
    """For each corpus, True if validation and test pairs may be taken from it."""

    def training_pairs(self, corpus: int, pairs: Iterable[Pair], counts: Counts) -> Iterator[Pair]:
        """Yield the pairs of a corpus that are not held out.

        Args:
            corpus: The index of the corpus.
            pairs: All its pairs.
            counts: Receives the number of synthetic pairs that are skipped because their source is held out.
        """
        can_hold_out = self.can_hold_out[corpus]
        for pair in pairs:
            source = pair[0] if can_hold_out else without_tag(pair[0])
            if self.held_out.split_of(source) == "train":
                yield pair
            elif not can_hold_out:
                counts.used -= 1
                counts.skip(SYNTHETIC_HELD_OUT)

    def held_out_pairs(self, split: str, data: DataConfig) -> Iterator[Pair]:
        """Yield the validation or test pairs that are taken from the training corpora."""
        for spec, can_hold_out in zip(data.train, self.can_hold_out, strict=True):
            if can_hold_out:
                for pair in corpus_pairs(parse_source(spec).path, data):
                    if self.held_out.split_of(pair[0]) == split:
                        yield pair


def choose_splits(data: DataConfig) -> Splits:
    """Choose the held-out pairs for validation and test, unless files name them.

    As in `mtcli train`, synthetic pairs are chosen only if there are no others: a score on them says little about text
    that people write.

    Raises:
        DataError: The pairs cannot be read, or are too few.
    """
    corpora = [parse_source(spec).path for spec in data.train]
    synthetic = [is_synthetic(path, data.src, data.tgt) for path in corpora]
    can_hold_out = tuple(all(synthetic) or not one for one in synthetic)
    sizes = [sum(1 for _ in corpus_pairs(path, data)) for path in corpora]
    if not any(sizes):
        raise DataError("the training pairs are empty")
    own = [path for path, may in zip(corpora, can_hold_out, strict=True) if may]
    n_own = sum(size for size, may in zip(sizes, can_hold_out, strict=True) if may)
    wanted = max(held_out_size(n_own), min(MIN_VALIDATION_PAIRS, n_own // 10))
    valid = wanted if data.valid is None else 0
    test = None if data.test is None else 0
    pairs = (pair for path in own for pair in corpus_pairs(path, data))
    held_out = choose_held_out(pairs, valid, test, data.split_seed)
    if data.valid is None and held_out.n_valid == 0:
        raise DataError(f"{n_own:,} pairs are too few to hold out validation pairs; name some with --valid")
    return Splits(held_out, can_hold_out)


def training_pairs(data: DataConfig) -> Iterator[Pair]:
    """Yield the pairs of all training corpora."""
    for spec in data.train:
        yield from corpus_pairs(parse_source(spec).path, data)


def corpus_pairs(path: str, data: DataConfig, counts: Counts | None = None) -> Iterator[Pair]:
    """Yield the pairs of one corpus.

    Args:
        path: The corpus, without its weight.
        data: The languages, and how to read it.
        counts: Receives the numbers of pairs and of replaced bytes.
    """
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


def is_chosen(index: int, wanted: int, of: int) -> bool:
    """Return True for the indices that choose `wanted` of `of` items at even distances."""
    return index * wanted // of != (index + 1) * wanted // of


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
            elif any(source_key(without_tag(text)) in held_out for text in pair):
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


def without_tag(text: str) -> str:
    """Return a source without the tag that a synthetic one may begin with."""
    return text.removeprefix(BACK_TRANSLATION_TAG)


def _digest(pair: Pair) -> bytes:
    src, tgt = pair
    text = f"{without_tag(src)}\t{tgt}"
    return hashlib.blake2b(text.encode(), digest_size=8).digest()
