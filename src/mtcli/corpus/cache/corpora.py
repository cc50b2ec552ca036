"""The training corpora of a run: their directions, which pairs are held out, and the pairs that are left."""

import logging
from collections.abc import Collection, Generator, Iterator, Mapping
from contextlib import closing
from itertools import chain

from mtcli.config.schema import Config
from mtcli.corpus import demo
from mtcli.corpus.cache.encoded_pairs import NumberedPair
from mtcli.corpus.cache.training_sources import is_synthetic
from mtcli.corpus.corrections import CORRECTED, Corrections, read_corrections
from mtcli.corpus.held_out import FEWEST_PAIRS, ByDirection, HeldOut, choose_held_out, source_key
from mtcli.corpus.readers.pairs import read_pairs
from mtcli.corpus.readers.sources import is_of_run, parse_source
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

SYNTHETIC_HELD_OUT = "synthetic, with a held-out source"
"""The reason for which a synthetic pair is skipped if its source is in the validation or test set."""

FROM_RUN_HELD_OUT = "of another run, with a held-out source"
"""The same for a pair that another run was trained on."""

GIVEN_HELD_OUT = "with the source of a validation or test pair"
"""The reason for which a run that learns corrections skips a pair: its validation and test pairs are those of its
model, and show what it forgets, which pairs that it is reminded of would hide."""

REVERSE_HELD_OUT = "with a held-out source in the other direction"
"""The reason for which a pair of a model of both directions is skipped if its source is held out in its direction, and
its target is not held out in the other one."""


class Corpora:
    """The training corpora, which can be read several times. A corpus of both directions counts as two."""

    def __init__(self, config: Config):
        self.data = config.data
        self.demo = demo.load() if config.data.is_demo else None
        self.directed = config.data.directed
        self.sources = [parse_source(corpus.train) for corpus in self.directed]
        self.corrections = Corrections()
        """The pairs of the last corpus, if it has corrections."""
        if self.data.corrections is not None:
            languages = self.directed[-1].languages
            self.corrections = read_corrections(
                self.sources[-1].path, languages, swap=self.data.swap, replace=self.data.replace
            )
            log_counts(self.data.corrections, self.corrections.counts)
        self.weights = [source.weight for source in self.sources] or [1.0]
        self.directions = [corpus.direction for corpus in self.directed] or [Direction(self.data.src, self.data.tgt)]
        """The direction of each corpus."""
        self.synthetic = [
            is_synthetic(source.path, *corpus.languages)
            for source, corpus in zip(self.sources, self.directed, strict=True)
        ] or [False]
        """For each corpus, True if `mtcli augment` wrote it."""
        for corpus, synthetic in zip(self.directed, self.synthetic, strict=False):
            if corpus.is_reversed and synthetic:
                raise UsageError(
                    f"{corpus.train}: `mtcli augment` made these pairs, which are for one direction only; omit "
                    "--both-directions, and name the corpora of the other direction too"
                )
        first = {frozenset(direction): direction for direction in reversed(self.directions)}
        self.pair_of = [first[frozenset(direction)] for direction in self.directions]
        """The two languages of each corpus, in the order of the first corpus that has them."""
        self.is_known = [
            synthetic or is_of_run(source.path) for source, synthetic in zip(self.sources, self.synthetic, strict=False)
        ] or [False]
        """For each corpus, True if a model wrote it or was trained on it: that model would score too high on it."""
        only_known = {pair: all(self.is_known[index] for index in self.corpora_of(pair)) for pair in set(self.pair_of)}
        self.can_hold_out = [
            only_known[pair] or not is_known for pair, is_known in zip(self.pair_of, self.is_known, strict=True)
        ]
        """For each corpus, True if validation and test pairs may be taken from it."""
        if self.data.corrections is not None:
            self.can_hold_out[-1] = False
        self.name = ", ".join(config.data.specs) or "the built-in demo"

    def names_of(self, direction: Direction) -> str:
        """Return the names of the corpora of a direction."""
        specs = [corpus.train for corpus in self.directed if corpus.direction == direction]
        return ", ".join(dict.fromkeys(specs)) or self.name

    def corpora_of(self, pair: Direction) -> list[int]:
        """Return the numbers of the corpora of a pair of languages, in both directions."""
        return [index for index, own in enumerate(self.pair_of) if own == pair]

    def pairs_of_languages(self) -> list[Direction]:
        """Return the pairs of languages, each once."""
        return list(dict.fromkeys(self.pair_of))

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
            for pair in self.demo.train:
                counts.read += 1
                counts.used += 1
                yield 0, pair
            return
        with Progress(description, unit="pairs") as progress:
            for index, (source, corpus) in enumerate(zip(self.sources, self.directed, strict=True)):
                if numbers is not None and index not in numbers:
                    continue
                if corpus.corrects:
                    counts.read += len(self.corrections.pairs)
                    counts.used += len(self.corrections.pairs)
                    yield from ((index, pair) for pair in self.corrections.pairs)
                    continue
                for pair in self.read_from(source.path, corpus.languages, counts, progress):
                    yield index, pair[::-1] if corpus.is_reversed else pair

    def read_from(self, spec: str, languages: Direction, counts: Counts, progress: Progress) -> Iterator[Pair]:
        """Read the pairs of any corpus with the options of the configuration."""
        data = self.data
        return read_pairs(spec, *languages, swap=data.swap, replace=data.replace, counts=counts, progress=progress)


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
        corpora = self.corpora
        for index, pair in corpora.read(description, counts, numbers):
            if corpora.directed and corpora.directed[index].corrects:
                yield index, _with_placeholders(pair) if self.placeholders else pair
                continue
            if corpora.corrections.has_source(pair[0].removeprefix(BACK_TRANSLATION_TAG)):
                counts.used -= 1
                counts.skip(CORRECTED)
                continue
            if self._given_sources and source_key(pair[0]) in self._given_sources:
                counts.used -= 1
                counts.skip(GIVEN_HELD_OUT)
                continue
            can_hold_out = corpora.can_hold_out[index]
            held_out = self.held_out[corpora.pair_of[index]]
            is_reverse = corpora.directions[index] != corpora.pair_of[index]
            source = pair[1] if is_reverse else pair[0]
            if not can_hold_out:
                source = source.removeprefix(BACK_TRANSLATION_TAG)
            split = held_out.split_of(source)
            if split == "train" and is_reverse and held_out.has_target(pair[0].removeprefix(BACK_TRANSLATION_TAG)):
                counts.used -= 1
                counts.skip(REVERSE_HELD_OUT)
            elif split == "train":
                yield index, _with_placeholders(pair) if self.placeholders else pair
            elif not can_hold_out:
                counts.used -= 1
                counts.skip(SYNTHETIC_HELD_OUT if corpora.synthetic[index] else FROM_RUN_HELD_OUT)
            elif splits is not None:
                splits[split].setdefault(corpora.directions[index], []).append(pair)

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
                counts.used -= len(found) - len(pairs)
                counts.skip(CORRECTED, len(found) - len(pairs))
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
    numbers = [index for index in corpora.corpora_of(pair_of_languages) if corpora.can_hold_out[index]]
    # A corpus that is trained in both directions is read once, in the first one.
    numbers = [index for index in numbers if not corpora.directed[index].is_reversed]

    def read() -> Iterator[Pair]:
        for index, pair in corpora.read("choosing held-out pairs", Counts(), numbers):
            yield pair if corpora.directions[index] == pair_of_languages else pair[::-1]

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
