"""What the training pairs of a run consist of: each corpus with its pairs, weight, tags, and origin."""

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import numpy as np

from mtcli.config.schema import DataConfig
from mtcli.corpus.cache.encoded_pairs import EncodedPairs
from mtcli.corpus.cache.info import DataInfo
from mtcli.corpus.readers.sources import parse_source, resolve
from mtcli.text.languages import Direction
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
    direction: Direction
    """The direction that is trained on it."""
    pairs: int
    """Pairs that are trained on."""
    weight: float
    share: float
    """Its share of the pairs that an epoch draws, 0 to 1."""
    tagged: int
    """Pairs whose source begins with `BACK_TRANSLATION_TAG`."""
    synthetic: bool
    """`mtcli augment` wrote the file."""
    is_reversed: bool = False
    """The corpus is trained in both directions, and this is the second one."""


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


def count_tagged(path: Path, rows: Sequence[int], tags: Collection[int], behind: Collection[int] = ()) -> list[int]:
    """Return the number of encoded pairs of each corpus whose source begins with one of some tokens.

    Args:
        path: The encoded pairs.
        rows: Pairs of each corpus, in order.
        tags: The tokens.
        behind: Tokens that may be before them.
    """
    if not tags:
        return [0] * len(rows)
    ends = list(accumulate(rows))
    found = np.zeros(len(rows), dtype=np.int64)
    first = 0
    for ids, offsets in EncodedPairs(path).sources():
        nonempty = np.flatnonzero(np.diff(offsets))
        places = offsets[nonempty]
        if behind:
            has_another = np.isin(ids[places], [*behind]) & (np.diff(offsets)[nonempty] > 1)
            places = places + has_another
        tagged = first + nonempty[np.isin(ids[places], [*tags])]
        found += np.bincount(np.searchsorted(ends, tagged, side="right"), minlength=len(rows))
        first += len(offsets) - 1
    return found.tolist()


def training_sources(info: DataInfo) -> list[TrainingSource]:
    """Return the corpora that the `info.json` of a run describes."""
    data = DataConfig.model_validate(info.settings["data"])
    corpora = [(parse_source(corpus.train).path, corpus.direction, corpus.is_reversed) for corpus in data.directed]
    if not corpora:
        corpora = [(DEMO, Direction(data.src, data.tgt), False)]
    sampled = sampling_weights(info)
    drawn = sum(pairs * weight for pairs, weight in sampled)
    return [
        TrainingSource(name, direction, pairs, weight, pairs * own / drawn, one["tagged"], one["synthetic"], reversed_)
        for (name, direction, reversed_), (pairs, weight), (_, own), one in zip(
            corpora, info.weights, sampled, info.sources, strict=False
        )
    ]


def sampling_weights(info: DataInfo) -> list[tuple[int, float]]:
    """Return (pairs, weight) of each training corpus in order, as epochs draw them.

    The weights are those that the user gave. With several directions, they are multiplied so that the share of each
    direction is proportional to n^(1/T), for n pairs and the temperature T (Arivazhagan et al. 2019), and that an epoch
    has as many pairs as without a temperature.
    """
    data = DataConfig.model_validate(info.settings["data"])
    return by_temperature(info.weights, [corpus.direction for corpus in data.directed], data.temperature)


def by_temperature(
    weights: Sequence[tuple[int, float]], directions: Sequence[Direction], temperature: float
) -> list[tuple[int, float]]:
    """Return (pairs, weight) of each corpus, see `sampling_weights`.

    Args:
        weights: (pairs, weight) of each corpus, as the user gave them.
        directions: The direction of each corpus; empty: all have one.
        temperature: T.
    """
    if len(set(directions)) < 2 or temperature == 1:
        return [*weights]
    sizes: dict[Direction, float] = {}
    for direction, (pairs, weight) in zip(directions, weights, strict=True):
        sizes[direction] = sizes.get(direction, 0.0) + pairs * weight
    total = sum(sizes.values())
    flattened = {direction: (size / total) ** (1 / temperature) for direction, size in sizes.items() if size}
    sum_of_all = sum(flattened.values())
    factors = {direction: total * part / (sum_of_all * sizes[direction]) for direction, part in flattened.items()}
    return [
        (pairs, weight * factors.get(direction, 1.0))
        for direction, (pairs, weight) in zip(directions, weights, strict=True)
    ]
