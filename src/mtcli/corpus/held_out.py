"""Choose validation and test pairs by source sentence, so that no source is in two splits.

The choice depends on the pairs and a seed, not on the order of the pairs: sources are ordered by a keyed hash.
The folder of a run keeps the pairs as text, in `data/valid.jsonl` and `data/test.jsonl`.
"""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from mtcli.errors import DataError, ModelError
from mtcli.runtime.files import check_regular, replace_file
from mtcli.text.languages import Direction
from mtcli.text.lines import Pair, read_lines

Split = Literal["train", "valid", "test"]
HeldOutSplit = Literal["valid", "test"]
HELD_OUT_SPLITS: tuple[HeldOutSplit, ...] = get_args(HeldOutSplit)
ByDirection = dict[Direction, list[Pair]]
"""The pairs of each direction."""
Hashes = npt.NDArray[np.uint64]
Sizes = npt.NDArray[np.int64]

CANDIDATES = 1_000_000
"""Sources at each end of the order that may be held out. The limit bounds memory."""
FEWEST_PAIRS = 20
"""A smaller corpus has no held-out pairs."""


def source_key(src: str) -> str:
    """Return a key that is equal for sources which count as the same: NFC, case-folded, single spaces."""
    folded = unicodedata.normalize("NFC", src).casefold()
    normalized = unicodedata.normalize("NFC", folded)  # again: case folding can undo NFC
    return " ".join(normalized.split())


def held_out_size(n_pairs: int) -> int:
    """Return the default size of one held-out set: 2% of the pairs, at least 1 and at most 1,000; 0 below 20 pairs."""
    return min(1000, max(1, n_pairs // 50)) if n_pairs >= FEWEST_PAIRS else 0


@dataclass(frozen=True)
class HeldOut:
    """The sources that are held out of training."""

    seed: int
    valid: frozenset[int] = frozenset()
    """Hashes of the sources of the validation set."""
    test: frozenset[int] = frozenset()
    """Hashes of the sources of the test set."""
    n_pairs: int = 0
    """Pairs in the whole corpus."""
    n_valid: int = 0
    """Pairs in the validation set."""
    n_test: int = 0
    """Pairs in the test set."""
    targets: frozenset[int] = frozenset()
    """Hashes of the targets of both sets, for a model that also translates in the other direction."""

    def split_of(self, src: str) -> Split:
        """Return the split of all pairs with this source, in any case, spacing or Unicode form."""
        if not (self.valid or self.test):
            return "train"
        key = _hash(src, self.seed)
        if key in self.valid:
            return "valid"
        return "test" if key in self.test else "train"

    def with_targets(self, pairs: Iterable[Pair]) -> HeldOut:
        """Return it with the targets of the held-out pairs among the pairs of the corpus."""
        held_out = (tgt for src, tgt in pairs if self.split_of(src) != "train")
        return replace(self, targets=frozenset(_hash(tgt, self.seed) for tgt in held_out))

    def has_target(self, text: str) -> bool:
        """Return True if a text is the target of a held-out pair, in any case, spacing or Unicode form."""
        return bool(self.targets) and _hash(text, self.seed) in self.targets


def choose_held_out(
    pairs: Iterable[Pair], valid: int | None, test: int | None, seed: int, *, min_valid: int = 0
) -> HeldOut:
    """Choose the sources to hold out. Read the pairs a second time and divide them with `HeldOut.split_of`.

    Sources are ordered by a hash keyed with `seed`. The test set takes them from the start of the order and the
    validation set from its end. A source is taken with all its pairs, and skipped if they no longer fit. Neither set
    gets more than a tenth of the pairs. Only `CANDIDATES` sources at each end are considered.

    Args:
        pairs: The corpus, read once.
        valid: Largest number of validation pairs; None: `held_out_size`, 0: no validation set.
        test: The same for the test set.
        seed: Key of the hash.
        min_valid: Smallest number of validation pairs instead of a smaller `held_out_size`.
    """
    hashes: Hashes = np.zeros(0, dtype=np.uint64)
    sizes: Sizes = np.zeros(0, dtype=np.int64)
    n_pairs = 0
    remaining = (_hash(src, seed) for src, _ in pairs)
    while True:
        more = np.fromiter(islice(remaining, CANDIDATES), dtype=np.uint64)
        if not len(more):
            break
        n_pairs += len(more)
        hashes, sizes = _add(hashes, sizes, more)

    default = held_out_size(n_pairs)
    limit = n_pairs // 10 if n_pairs >= FEWEST_PAIRS else 0
    test_limit = min(default if test is None else test, limit)
    valid_limit = min(max(default, min_valid) if valid is None else valid, limit)
    test_set, n_test = _take(hashes, sizes, test_limit, frozenset())
    valid_set, n_valid = _take(hashes[::-1], sizes[::-1], valid_limit, test_set)
    return HeldOut(seed, valid_set, test_set, n_pairs, n_valid, n_test)


def _take(hashes: Hashes, sizes: Sizes, limit: int, taken: frozenset[int]) -> tuple[frozenset[int], int]:
    """Take sources in order while their pairs fit into `limit`; return their hashes and the number of pairs."""
    chosen = set[int]()
    total = 0
    for value, size in zip(hashes, sizes, strict=True):
        if total >= limit:
            break
        if total + size <= limit and int(value) not in taken:
            chosen.add(int(value))
            total += int(size)
    return frozenset(chosen), total


def _add(hashes: Hashes, sizes: Sizes, more: Hashes) -> tuple[Hashes, Sizes]:
    """Count more hashes. Of more than 2 × `CANDIDATES` different ones, keep `CANDIDATES` at each end.

    A dropped hash never has to return, because the kept ranges only shrink towards the ends. All pairs of a hash that
    is kept have therefore been counted.

    Args:
        hashes: The different hashes so far, ascending.
        sizes: The number of pairs of each.
        more: Hashes of more pairs, in any order.
    """
    distinct, inverse = np.unique(np.concatenate([hashes, more]), return_inverse=True)
    counts = np.concatenate([sizes, np.ones(len(more), dtype=np.int64)])
    totals = np.bincount(inverse, counts).astype(np.int64)
    if len(distinct) > 2 * CANDIDATES:
        distinct = np.concatenate([distinct[:CANDIDATES], distinct[-CANDIDATES:]])
        totals = np.concatenate([totals[:CANDIDATES], totals[-CANDIDATES:]])
    return distinct, totals


def _hash(src: str, seed: int) -> int:
    """Return 64 bits of a keyed hash of a source."""
    digest = hashlib.blake2b(source_key(src).encode(), digest_size=8, key=str(seed).encode()).digest()
    return int.from_bytes(digest, "little")


def write_split(run: Path, name: str, split: ByDirection) -> None:
    """Write the pairs of the `valid` or `test` split."""
    lines = []
    for (src, tgt), pairs in split.items():
        for src_text, tgt_text in pairs:
            row = {"translation": {src: src_text, tgt: tgt_text}}
            lines.append(json.dumps(row, ensure_ascii=False) + "\n")
    replace_file(_path(run, name), "".join(lines).encode())


def read_split(run: Path, name: str) -> list[Pair]:
    """Read the pairs of a split, those of all directions; see `read_directions`."""
    return list(chain.from_iterable(read_directions(run, name).values()))


def read_directions(run: Path, name: str, *, empty_ok: bool = False) -> ByDirection:
    """Read the pairs of the `valid` or `test` split by their direction.

    Args:
        run: The run folder.
        name: `valid` or `test`.
        empty_ok: The split may be empty.

    Raises:
        DataError: The split is missing or damaged, or empty without `empty_ok`.
        ModelError: The file is not a regular file.
    """
    path = _path(run, name)
    try:
        check_regular(path)
    except FileNotFoundError:
        remedy = "give --src-file and --ref-file, or the folder of a run as --model"
        raise DataError(f"{run}: has no {name} pairs (an exported model has none); {remedy}") from None
    except OSError as error:
        raise ModelError(f"{path}: cannot read it ({error.strerror}); move it away") from None
    split: ByDirection = {}
    for number, line in enumerate(read_lines(path), 1):
        try:
            direction, pair = _parse(line)
            split.setdefault(direction, []).append(pair)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            remedy = "run the training command again to write it again"
            raise DataError(f"{path}:{number}: damaged; {remedy}") from None
    if not split and not empty_ok:
        raise DataError(f"{path}: the {name} split is empty; give --src-file and --ref-file")
    return split


def _path(run: Path, name: str) -> Path:
    return run / "data" / f"{name}.jsonl"


def _parse(line: str) -> tuple[Direction, Pair]:
    """Return the languages and the pair of a line; any exception means that the line is damaged."""
    (src_language, src), (tgt_language, tgt) = json.loads(line)["translation"].items()
    if not (isinstance(src, str) and isinstance(tgt, str)):
        raise TypeError
    f"{src}{tgt}".encode()  # fails for half a surrogate pair
    return Direction(src_language, tgt_language), (src, tgt)
