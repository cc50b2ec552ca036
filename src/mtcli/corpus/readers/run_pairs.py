"""Read the pairs in a run folder: those that it was trained on, as text, and those that it held out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from mtcli.corpus.cache.encoded_pairs import EncodedPairs
from mtcli.corpus.cache.info import DataInfo
from mtcli.corpus.cache.training_sources import training_sources
from mtcli.corpus.held_out import read_directions
from mtcli.corpus.readers.rows import dataset_name
from mtcli.errors import DataError
from mtcli.text.languages import Direction, same
from mtcli.text.lines import Counts, Pair
from mtcli.text.tokenizer.tokenizer import BACK_TRANSLATION_TAG, Tokenizer

NOT_AS_TEXT = "with tokens that no text has"
"""The reason for which an encoded pair is skipped, such as one with an unknown character."""

CHUNK = 5_000
"""Pairs that are decoded at a time."""


def run_pairs(spec: str, src: str, tgt: str, counts: Counts) -> Iterator[Pair]:
    """Read the pairs of one direction of a run.

    Training pairs are decoded, and skipped if their text would be encoded in another way. They have no tag of a target
    language. Each comes once, whatever the weight of its corpus was.

    Args:
        spec: `RUN` for the training pairs, `RUN#valid` or `RUN#test` for those that were held out.
        src, tgt: The languages.
        counts: Receives the pairs that are skipped.

    Raises:
        DataError: The run has no pairs of this direction, or they cannot be read.
        ModelError: Its tokenizer cannot be read.
    """
    name, _, split = dataset_name(spec)
    folder = Path(name)
    if split == "train":
        return _training_pairs(folder, src, tgt, counts)
    found = read_directions(folder, split, empty_ok=True)
    return (pair for direction, pairs in found.items() if _is(direction, src, tgt) for pair in pairs)


def _training_pairs(folder: Path, src: str, tgt: str, counts: Counts) -> Iterator[Pair]:
    try:
        sources = training_sources(DataInfo.read(folder))
    except (OSError, ValueError):
        raise DataError(f"{folder}: its data/info.json cannot be read; give the pairs that it was trained on") from None
    if not any(_is(source.direction, src, tgt) for source in sources):
        directions = ", ".join(dict.fromkeys(str(source.direction) for source in sources))
        raise DataError(f"{folder}: has pairs of {directions}, not of {src} → {tgt}; give --src and --tgt")
    tokenizer = Tokenizer.load(folder / "tokenizer.json")
    encoded = EncodedPairs(folder / "data" / "train.arrow")
    first = 0
    for source in sources:
        if _is(source.direction, src, tgt):
            for start in range(first, first + source.pairs, CHUNK):
                yield from _decoded(encoded, range(start, min(start + CHUNK, first + source.pairs)), tokenizer, counts)
        first += source.pairs


def _decoded(encoded: EncodedPairs, rows: range, tokenizer: Tokenizer, counts: Counts) -> Iterator[Pair]:
    """Yield encoded pairs as text, with `BACK_TRANSLATION_TAG` if they have it."""
    pairs = []
    for _, tags, (src, tgt) in encoded.texts(rows, tokenizer):
        pairs.append((BACK_TRANSLATION_TAG + src if tokenizer.back_translation_tag in tags else src, tgt))
    again = zip(
        tokenizer.encode_src([src for src, _ in pairs]), tokenizer.encode_tgt([tgt for _, tgt in pairs]), strict=True
    )
    tags_of_languages = frozenset(tokenizer.tags.values())
    for row, pair, (src_ids, tgt_ids) in zip(rows, pairs, again, strict=True):
        source, target = (side.tolist() for side in encoded[row])
        if source and source[0] in tags_of_languages:
            del source[0]
        if (src_ids, tgt_ids) == (source, target):
            yield pair
        else:
            counts.read += 1
            counts.skip(NOT_AS_TEXT)


def _is(direction: Direction, src: str, tgt: str) -> bool:
    return same(direction.src, src) and same(direction.tgt, tgt)
