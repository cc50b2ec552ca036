"""The training corpora of a run: their directions, which pairs are held out, and the pairs that are left."""

import logging
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain

from mtcli.config.schema import Config, DirectedCorpus
from mtcli.corpus import demo
from mtcli.corpus.cache.encoded_pairs import NumberedPair
from mtcli.corpus.cache.training_sources import is_synthetic
from mtcli.corpus.corrections import CORRECTED, Corrections, read_corrections
from mtcli.corpus.held_out import FEWEST_PAIRS, ByDirection, HeldOut, choose_held_out, source_key
from mtcli.corpus.readers.pairs import read_pairs
from mtcli.corpus.readers.sources import Source, is_of_run, parse_source
from mtcli.errors import DataError, UsageError
from mtcli.runtime.progress import Progress
from mtcli.runtime.wording import counted
from mtcli.text.languages import Direction
from mtcli.text.lines import Counts, Pair
from mtcli.text.placeholders import with_tokens
from mtcli.text.tokenizer.tokenizer import BACK_TRANSLATION_TAG

log = logging.getLogger(__name__)

Splits = dict[str, ByDirection]
"""The pairs of `valid` and `test`."""

# The reasons for which a training pair is skipped; see also `CORRECTED`.
SYNTHETIC_HELD_OUT = "synthetic, with a held-out source"
FROM_RUN_HELD_OUT = "of another run, with a held-out source"
REVERSE_HELD_OUT = "with a held-out source in the other direction"
"""Its source is held out in its direction, and its target is not held out in the other one."""
GIVEN_HELD_OUT = "with the source of a validation or test pair"
"""Of a run that learns corrections: its validation and test pairs are those of its model, and show what it forgets,
which pairs that it is reminded of would hide."""


@dataclass(frozen=True, kw_only=True)
class TrainingCorpus(DirectedCorpus):
    """A training corpus of a run as one direction is trained on it."""

    source: Source
    pair: Direction
    """The two languages, in the order of the first corpus that has them."""
    is_synthetic: bool = False
    """`mtcli augment` wrote it."""
    is_known: bool = False
    """A model wrote it or was trained on it: that model would score too high on it."""

    @classmethod
    def of(cls, corpus: DirectedCorpus, pair: Direction) -> "TrainingCorpus":
        """Look at the files of a corpus.

        Raises:
            DataError: They are missing.
            UsageError: It is synthetic, and to be trained in both directions.
        """
        source = parse_source(corpus.train)
        synthetic = is_synthetic(source.path, *corpus.languages)
        if corpus.is_reversed and synthetic:
            raise UsageError(
                f"{corpus.train}: `mtcli augment` made these pairs, which are for one direction only; omit "
                "--both-directions, and name the corpora of the other direction too"
            )
        is_known = synthetic or is_of_run(source.path)
        return cls(**vars(corpus), source=source, pair=pair, is_synthetic=synthetic, is_known=is_known)


class Corpora:
    """The training corpora, which can be read several times. A corpus of both directions counts as two."""

    def __init__(self, config: Config):
        self.data = config.data
        self.demo = demo.load() if config.data.is_demo else None
        self.corrections = Corrections()
        """The pairs of the last corpus, if it has corrections."""
        direction = Direction(self.data.src, self.data.tgt)
        if self.data.corrections is not None:
            path = parse_source(self.data.corrections).path
            self.corrections = read_corrections(path, direction, swap=self.data.swap, replace=self.data.replace)
            log_counts(self.data.corrections, self.corrections.counts)
        directed = self.data.directed
        first = {frozenset(corpus.direction): corpus.direction for corpus in reversed(directed)}
        self.all = [TrainingCorpus.of(corpus, first[frozenset(corpus.direction)]) for corpus in directed]
        if not self.all:
            self.all = [TrainingCorpus("", direction, source=Source(""), pair=direction)]
        self._with_unknown = {corpus.pair for corpus in self.all if not corpus.is_known}
        self.name = ", ".join(config.data.specs) or "the built-in demo"

    def can_hold_out(self, corpus: TrainingCorpus) -> bool:
        """Return True if validation and test pairs may be taken from a corpus."""
        return not corpus.corrects and (not corpus.is_known or corpus.pair not in self._with_unknown)

    @property
    def directions(self) -> list[Direction]:
        """The direction of each corpus."""
        return [corpus.direction for corpus in self.all]

    def numbers_of(self, direction: Direction) -> list[int]:
        """Return the numbers of the corpora of a direction."""
        return [number for number, corpus in enumerate(self.all) if corpus.direction == direction]

    def names_of(self, direction: Direction) -> str:
        """Return the names of the corpora of a direction."""
        return ", ".join(dict.fromkeys(self.all[number].train for number in self.numbers_of(direction))) or self.name

    def pairs_of_languages(self) -> list[Direction]:
        """Return the pairs of languages, each once."""
        return list(dict.fromkeys(corpus.pair for corpus in self.all))

    def read(
        self, description: str, counts: Counts, numbers: Collection[int] | None = None
    ) -> Generator[NumberedPair, None, None]:
        """Read the pairs of the corpora in turn, with a progress bar, or those of the built-in demo.

        Args:
            description: The name of the bar.
            counts: Updated with the pairs.
            numbers: The numbers of the corpora to read; None: all.
        """
        if self.demo:
            yield from _in_memory(0, self.demo.train, counts)
            return
        with Progress(description, unit="pairs") as progress:
            for number, corpus in enumerate(self.all):
                if numbers is not None and number not in numbers:
                    continue
                if corpus.corrects:
                    yield from _in_memory(number, self.corrections.pairs, counts)
                    continue
                for pair in self.read_from(corpus.source.path, corpus.languages, counts, progress):
                    yield number, pair[::-1] if corpus.is_reversed else pair

    def read_from(self, spec: str, languages: Direction, counts: Counts, progress: Progress) -> Iterator[Pair]:
        """Read the pairs of any corpus with the options of the configuration."""
        data = self.data
        return read_pairs(spec, *languages, swap=data.swap, replace=data.replace, counts=counts, progress=progress)


def _in_memory(number: int, pairs: Sequence[Pair], counts: Counts) -> Iterator[NumberedPair]:
    """Yield the pairs of a corpus, and count them."""
    counts.read += len(pairs)
    counts.used += len(pairs)
    return ((number, pair) for pair in pairs)


class TrainingPairs:
    """The pairs of the training corpora that are not held out.

    Args:
        corpora: The corpora.
        held_out: What is held out of each pair of languages.
        given: The splits that have a corpus of their own. If the run learns corrections, it skips pairs with a source
            of these.
        placeholders: Write placeholder tokens into the pairs; None: as the configuration says.
    """

    def __init__(
        self,
        corpora: Corpora,
        held_out: Mapping[Direction, HeldOut],
        given: Splits | None = None,
        *,
        placeholders: bool | None = None,
    ):
        self.corpora = corpora
        self.held_out = held_out
        self._given_sources: frozenset[str] = frozenset()
        if corpora.corrections.pairs and given is not None:
            directions = chain.from_iterable(split.values() for split in given.values())
            self._given_sources = frozenset(source_key(source) for pairs in directions for source, _ in pairs)
        self.placeholders = corpora.data.placeholders if placeholders is None else placeholders

    def read(
        self,
        description: str,
        counts: Counts,
        splits: Splits | None = None,
        numbers: Collection[int] | None = None,
    ) -> Generator[NumberedPair, None, None]:
        """Read the training pairs, with a progress bar.

        Args:
            description: The name of the bar.
            counts: Updated with all pairs of the corpora.
            splits: Receives the pairs that are held out.
            numbers: The numbers of the corpora to read; None: all.
        """
        for number, pair in self.corpora.read(description, counts, numbers):
            corpus = self.corpora.all[number]
            use = self._use_of(pair, corpus)
            if use == "train":
                yield number, _with_placeholders(pair) if self.placeholders else pair
            elif use != "valid" and use != "test":
                counts.drop(use)
            elif splits is not None:
                splits[use].setdefault(corpus.direction, []).append(pair)

    def _use_of(self, pair: Pair, corpus: TrainingCorpus) -> str:
        """Return the split of a pair, or the reason for which it is skipped."""
        if corpus.corrects:
            return "train"
        source, target = pair
        untagged = source.removeprefix(BACK_TRANSLATION_TAG)
        if self.corpora.corrections.has_source(untagged):
            return CORRECTED
        if self._given_sources and source_key(source) in self._given_sources:
            return GIVEN_HELD_OUT
        held_out = self.held_out[corpus.pair]
        is_reverse = corpus.direction != corpus.pair
        can_hold_out = self.corpora.can_hold_out(corpus)
        key = target if is_reverse else source
        split = held_out.split_of(key if can_hold_out else key.removeprefix(BACK_TRANSLATION_TAG))
        if split == "train":
            return REVERSE_HELD_OUT if is_reverse and held_out.has_target(untagged) else split
        if can_hold_out:
            return split
        return SYNTHETIC_HELD_OUT if corpus.is_synthetic else FROM_RUN_HELD_OUT

    def check_not_empty(self) -> None:
        """Raise a DataError if there is no training pair."""
        counts = Counts()
        with closing(self.read("reading", counts)) as pairs:
            first = next(pairs, None)
        if first is None:
            raise DataError(f"{self.corpora.name}: no pair to train on ({counts_in_words(counts)}); give more pairs")


def _with_placeholders(pair: Pair) -> Pair:
    """Return a training pair with placeholder tokens. The tag of a synthetic source remains at its start."""
    src, tgt = pair
    tag = BACK_TRANSLATION_TAG if src.startswith(BACK_TRANSLATION_TAG) else ""
    src, tgt = with_tokens(src.removeprefix(tag), tgt)
    return tag + src, tgt


def read_given_splits(config: Config, corpora: Corpora) -> tuple[Splits, Counts]:
    """Return the splits that have their own corpus, and the counts of reading them. The other splits are empty."""
    splits: Splits = {"valid": {}, "test": {}}
    total = Counts()
    for name, split in splits.items():
        if corpora.demo and getattr(config.data, name) is None:
            pairs = list(corpora.demo.valid if name == "valid" else corpora.demo.test)
            split[corpora.directions[0]] = pairs
            total.read += len(pairs)
        for spec, languages in config.data.given_splits(name):
            counts = Counts()
            with Progress("reading", unit="pairs") as progress:
                found = list(corpora.read_from(spec, languages, counts, progress))
            pairs = [pair for pair in found if not corpora.corrections.has_source(pair[0])]
            if len(pairs) < len(found):
                counts.drop(CORRECTED, len(found) - len(pairs))
            for direction, oriented in ((languages, pairs), (languages.reversed(), [pair[::-1] for pair in pairs])):
                if direction in config.data.directions:
                    split.setdefault(direction, []).extend(oriented)
            log_counts(f"{spec} ({name})", counts)
            total.read += counts.read
            for reason, number in counts.skipped.items():
                total.skip(reason, number)
    return splits, total


def hold_out(config: Config, corpora: Corpora, *, min_valid: int = 0) -> dict[Direction, HeldOut]:
    """Choose the pairs of the splits that have no corpus of their own, for each pair of languages.

    Synthetic pairs are chosen only if there are no others: a score on them says little about text that people write,
    and a run has the same test set with and without them. So are the pairs of another run, whose model may be the one
    that training starts from, and knows them.

    Args:
        config: Names the corpora.
        corpora: The corpora.
        min_valid: See `choose_held_out`.
    """
    return {pair: _hold_out_of(pair, config, corpora, min_valid) for pair in corpora.pairs_of_languages()}


def _hold_out_of(pair_of_languages: Direction, config: Config, corpora: Corpora, min_valid: int) -> HeldOut:
    """Choose the held-out pairs of a pair of languages; warn if none can be held out."""
    data = config.data
    has_own = {
        name: any({*languages} == {*pair_of_languages} for _, languages in data.given_splits(name))
        for name in ("valid", "test")
    }
    if corpora.demo or all(has_own.values()):
        return HeldOut(data.split_seed)
    numbers = [
        number
        for number, corpus in enumerate(corpora.all)
        # A corpus that is trained in both directions is read once, in the first one.
        if corpus.pair == pair_of_languages and corpora.can_hold_out(corpus) and not corpus.is_reversed
    ]

    def read() -> Iterator[Pair]:
        for number, pair in corpora.read("choosing held-out pairs", Counts(), numbers):
            yield pair if corpora.all[number].direction == pair_of_languages else pair[::-1]

    held_out = choose_held_out(
        read(),
        valid=0 if has_own["valid"] else None,
        test=0 if has_own["test"] else None,
        seed=data.split_seed,
        min_valid=min_valid,
    )
    missing = []
    if not has_own["valid"] and held_out.n_valid == 0:
        missing.append("--valid")
    if not has_own["test"] and held_out.n_test == 0:
        missing.append("--test")
    if missing and held_out.n_pairs:
        few = held_out.n_pairs < FEWEST_PAIRS
        reason = f"fewer than {FEWEST_PAIRS} pairs" if few else "every source repeats too often"
        of_languages = f" of {pair_of_languages}" if len(corpora.pairs_of_languages()) > 1 else ""
        message = "%s%s: none are held out; give %s, or the model cannot be scored"
        log.warning(message, reason, of_languages, " and ".join(missing))
    is_two_way = pair_of_languages.reversed() in corpora.directions
    return held_out.with_targets(read()) if is_two_way else held_out


def counts_in_words(counts: Counts) -> str:
    """Return how many pairs were read, used, and skipped, by reason."""
    parts = [f"{counted(counts.read, 'pair')} read", f"{counts.used:,} used"]
    parts += [f"{number:,} skipped: {reason}" for reason, number in counts.skipped.items()]
    return ", ".join(parts)


def log_counts(name: str, counts: Counts) -> None:
    """Log what reading a corpus has counted."""
    log.info("%s: %s", name, counts_in_words(counts))
    for notice in dict.fromkeys(counts.notices):
        log.info("%s", notice)
    if counts.replaced:
        log.warning("%s: read %s as U+FFFD", name, counted(counts.replaced, "invalid byte"))
