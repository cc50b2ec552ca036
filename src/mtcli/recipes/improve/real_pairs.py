"""The real pairs of `mtcli improve`: those to train on, and those that are held out for all stages alike."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from mtcli.corpus.cache.corpora import Corpora, Splits, TrainingPairs, hold_out, read_given_splits
from mtcli.corpus.held_out import HELD_OUT_SPLITS, HeldOutSplit
from mtcli.errors import DataError
from mtcli.recipes.commands import same_languages
from mtcli.recipes.improve.request import ImproveRequest
from mtcli.text.languages import Direction
from mtcli.text.lines import Counts, Pair

MIN_VALIDATION_PAIRS = 100
"""Validation pairs that are held out if the corpus has ten times as many: models are compared by them."""


def divide_pairs(
    request: ImproveRequest, save: Callable[[Path, Iterable[Pair], Direction], int]
) -> tuple[dict[str, Any], Counts]:
    """Divide the pairs of a request into those to train on and those that are held out.

    The held-out pairs that the request does not name are chosen as `mtcli train` does, but more for validation.

    Args:
        request: The request.
        save: Receives the pairs of each file and their direction, and returns their number.

    Returns:
        The number of pairs: `train` for each corpus and direction, `valid` and `test` for each pair of languages or,
        if there is one direction, as a number. And the counts of the corpora.

    Raises:
        DataError: The pairs cannot be read, or are too few.
    """
    config = request.config
    corpora = Corpora(config)
    given, _ = read_given_splits(config, corpora)
    held_out = hold_out(config, corpora, min_valid=MIN_VALIDATION_PAIRS)
    training = TrainingPairs(corpora, held_out, placeholders=False)
    counts = Counts()
    chosen: Splits = {"valid": {}, "test": {}}
    sizes: dict[str, Any] = {"train": []}
    for number, corpus in enumerate(request.corpora):
        with_numbers = training.read("reading", counts, chosen, [number])
        sizes["train"].append(save(corpus.path, (pair for _, pair in with_numbers), corpus.direction))
    if not counts.read:
        raise DataError("the training pairs are empty")
    for name in HELD_OUT_SPLITS:
        numbers = []
        for direction in corpora.pairs_of_languages():
            pairs: list[Pair] = []
            for split in (given[name], chosen[name]):
                pairs += split.get(direction, ())
                pairs += (pair[::-1] for pair in split.get(direction.reversed(), ()))
            if direction.reversed() in corpora.directions:
                pairs = list(dict.fromkeys(pairs))
            if not pairs:
                raise _without_held_out(name, direction, corpora, held_out[direction].n_pairs)
            numbers.append(save(request.held_out_file(name, direction), pairs, direction))
        sizes[name] = numbers if request.has_several else sum(numbers)
    return sizes, counts


def _without_held_out(name: HeldOutSplit, direction: Direction, corpora: Corpora, size: int) -> DataError:
    """Return the error about a pair of languages without validation or test pairs, of a number of pairs."""
    data = corpora.data
    given = [spec for spec, languages in data.given_splits(name) if {*languages} == {*direction}]
    if not given and name == "valid" and size:
        pairs = f"{size:,} pairs" if len(data.directions) == 1 else f"{size:,} pairs of {direction}"
        return DataError(f"{pairs} are too few to hold out validation pairs; name some with --valid")
    where = ", ".join(given) or corpora.names_of(direction)
    return DataError(f"{where}: no {name} pairs; name some with --{name}")


def numbers_of(request: ImproveRequest, numbers: int | Sequence[int]) -> list[tuple[str, int]]:
    """Return the target language and the number of held-out pairs of each direction.

    Args:
        request: The request.
        numbers: What `divide_pairs` returned for `valid` or `test`.
    """
    pairs_of_languages = dict.fromkeys(same_languages(request.directions, each) for each in request.directions)
    every = [numbers] if isinstance(numbers, int) else numbers
    by_pair = dict(zip(pairs_of_languages, every, strict=True))
    return [(each.tgt, by_pair[same_languages(request.directions, each)]) for each in request.directions]
