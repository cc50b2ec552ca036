"""What the training pairs of a run consist of: each corpus with its pairs, weight, tags, and origin."""

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from mtcli.corpus.cache.encoded_pairs import EncodedPairs
from mtcli.corpus.readers.sources import parse_source, resolve
from mtcli.text.lines import read_lines

SCORES = ("log_prob", "reverse_log_prob", "score")
"""Columns or keys of the scores in a file of synthetic pairs, in their order."""

ALWAYS = {"log_prob", "score"}
"""Those of `SCORES` that every such file has."""

DEMO = "the built-in demo"


@dataclass(frozen=True)
class TrainingSource:
    """One training corpus of a run."""

    name: str
    pairs: int
    """Pairs that are trained on."""
    weight: float
    share: float
    """Its share of the pairs that an epoch draws, 0 to 1."""
    tagged: int
    """Pairs whose source begins with `BACK_TRANSLATION_TAG`."""
    synthetic: bool
    """`mtcli augment` wrote the file."""


def is_synthetic(spec: str, src: str, tgt: str) -> bool:
    """Return True if a corpus is a file that `mtcli augment` wrote, by the columns or keys of its scores.

    Raises:
        DataError: The file cannot be read.
    """
    form, files = resolve(spec, src, tgt)
    if form not in ("tsv", "json"):
        return False
    first = next(read_lines(files[0], lenient=True), "")
    return set(_names(form, first)) >= ALWAYS


def _names(form: str, line: str) -> Sequence[str]:
    """Return the columns or keys that the first line of a file names."""
    if form == "tsv":
        return line.split("\t")
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return ()
    return tuple(record) if isinstance(record, dict) else ()


def count_tagged(path: Path, rows: Sequence[int], tags: Collection[int]) -> list[int]:
    """Return the number of encoded pairs of each corpus whose source begins with one of some tokens.

    Args:
        path: The encoded pairs.
        rows: Pairs of each corpus, in order.
        tags: The tokens.
    """
    if not tags:
        return [0] * len(rows)
    ends = list(accumulate(rows))
    found = np.zeros(len(rows), dtype=np.int64)
    first = 0
    for ids, offsets in EncodedPairs(path).sources():
        nonempty = np.flatnonzero(np.diff(offsets))
        tagged = first + nonempty[np.isin(ids[offsets[nonempty]], [*tags])]
        found += np.bincount(np.searchsorted(ends, tagged, side="right"), minlength=len(rows))
        first += len(offsets) - 1
    return found.tolist()


def training_sources(info: dict[str, Any]) -> list[TrainingSource]:
    """Return the corpora that the `info.json` of a run describes."""
    specs = info["settings"]["data"]["train"]
    names = [parse_source(spec).path for spec in specs] or [DEMO]
    weights = info["weights"]
    drawn = sum(pairs * weight for pairs, weight in weights)
    return [
        TrainingSource(name, int(pairs), float(weight), pairs * weight / drawn, one["tagged"], one["synthetic"])
        for name, (pairs, weight), one in zip(names, weights, info["sources"], strict=False)
    ]
