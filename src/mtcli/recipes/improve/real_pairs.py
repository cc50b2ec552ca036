"""The real pairs of `mtcli improve`: those to train on, and those that are held out for all stages alike."""

from collections.abc import Iterator
from dataclasses import dataclass

from mtcli.config.schema import Config
from mtcli.corpus.cache.corpora import Corpora, Splits, TrainingPairs, hold_out, read_given_splits
from mtcli.corpus.held_out import HELD_OUT_SPLITS, ByDirection, HeldOutSplit
from mtcli.errors import DataError
from mtcli.text.languages import Direction
from mtcli.text.lines import Counts, Pair

MIN_VALIDATION_PAIRS = 100
"""Validation pairs that are held out if the corpus has ten times as many: models are compared by them."""


@dataclass(frozen=True)
class RealPairs:
    """The real pairs of a request: those to train on, and those that are held out of them."""

    corpora: Corpora
    training: TrainingPairs
    given: Splits
    """The held-out pairs that the request names."""

    @classmethod
    def of(cls, config: Config) -> "RealPairs":
        """Choose the held-out pairs that the request does not name, as `mtcli train` does, but more for validation.

        Raises:
            DataError: The pairs cannot be read.
        """
        corpora = Corpora(config)
        given, _ = read_given_splits(config, corpora)
        held_out = hold_out(config, corpora, min_valid=MIN_VALIDATION_PAIRS)
        return cls(corpora, TrainingPairs(corpora, held_out, placeholders=False), given)

    def read(self, number: int, counts: Counts, splits: Splits) -> Iterator[Pair]:
        """Yield the training pairs of a corpus.

        Args:
            number: The number of the corpus, from 0.
            counts: Receives the numbers of pairs.
            splits: Receives the pairs that are held out of it.
        """
        for _, pair in self.training.read("reading", counts, splits, [number]):
            yield pair

    def held_out(self, splits: Splits) -> dict[HeldOutSplit, ByDirection]:
        """Return the held-out pairs of each pair of languages, in the order of its first corpus.

        Args:
            splits: What `read` has held out of the corpora.

        Raises:
            DataError: There are none of a pair of languages.
        """
        found: dict[HeldOutSplit, ByDirection] = {}
        for name in HELD_OUT_SPLITS:
            found[name] = {}
            for direction in self.corpora.pairs_of_languages():
                back = direction.reversed()
                pairs = [
                    *self.given[name].get(direction, ()),
                    *(pair[::-1] for pair in self.given[name].get(back, ())),
                    *splits[name].get(direction, ()),
                    *(pair[::-1] for pair in splits[name].get(back, ())),
                ]
                found[name][direction] = list(dict.fromkeys(pairs)) if back in self.corpora.directions else pairs
                self._check(name, direction, len(pairs))
        return found

    def _check(self, name: HeldOutSplit, direction: Direction, number: int) -> None:
        """Check that a pair of languages has validation or test pairs.

        Raises:
            DataError: It has none.
        """
        if number:
            return
        data = self.corpora.data
        given = [spec for spec, languages in data.given_splits(name) if {*languages} == {*direction}]
        size = self.training.held_out[direction].n_pairs
        if not given and name == "valid" and size:
            pairs = f"{size:,} pairs" if len(data.directions) == 1 else f"{size:,} pairs of {direction}"
            raise DataError(f"{pairs} are too few to hold out validation pairs; name some with --valid")
        where = ", ".join(given) or self.corpora.names_of(direction)
        raise DataError(f"{where}: no {name} pairs; name some with --{name}")
