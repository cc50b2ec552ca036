"""Build the data of a run from its corpora: splits, tokenizer, encoded cache, and `data/info.json`."""

import logging
from collections import Counter
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from mtcli.config.schema import Config, DataConfig
from mtcli.corpus import demo
from mtcli.corpus.cache.encoded_pairs import NumberedPair, encode_pairs
from mtcli.corpus.cache.info import data_settings, fingerprint, fingerprint_inputs, write_data_info
from mtcli.corpus.cache.parent import Parent, TakenOver, child_tokenizer
from mtcli.corpus.cache.training_sources import by_temperature, count_tagged, is_synthetic
from mtcli.corpus.corrections import CORRECTED, Corrections, read_corrections
from mtcli.corpus.held_out import FEWEST_PAIRS, ByDirection, HeldOut, choose_held_out, write_split
from mtcli.corpus.quality.languages import LanguageCheck, SpreadSample
from mtcli.corpus.readers.pairs import read_pairs
from mtcli.corpus.readers.sources import parse_source
from mtcli.corpus.variants import with_capitals
from mtcli.errors import DataError, UsageError
from mtcli.runtime.files import replace_file
from mtcli.runtime.progress import Progress
from mtcli.runtime.wording import counted
from mtcli.terms.annotation import TermAnnotator
from mtcli.text.languages import Direction
from mtcli.text.lines import Counts, Pair
from mtcli.text.placeholders import with_tokens
from mtcli.text.tokenizer.learning import train_tokenizer
from mtcli.text.tokenizer.tokenizer import BACK_TRANSLATION_TAG, Tokenizer

log = logging.getLogger(__name__)

Splits = dict[str, ByDirection]
"""The pairs of `valid` and `test`."""

FILES = ("tokenizer.json", "data/train.arrow", "data/valid.jsonl", "data/test.jsonl")
"""The files that `build_data` writes in addition to `data/info.json`, relative to the run folder."""

CORRECTIONS_FILE = "data/corrections.jsonl"
"""The file that it also writes with `data.corrections`: the corrections that are trained on."""

TERMS_FILE = "data/terms.json"
"""The file that it also writes with `data.terms`: which words translate each other, see `TermAnnotator`."""


SYNTHETIC_HELD_OUT = "synthetic, with a held-out source"
"""The reason for which a synthetic pair is skipped if its source is in the validation or test set."""

REVERSE_HELD_OUT = "with a held-out source in the other direction"
"""The reason for which a pair of a model of both directions is skipped if its source is held out in its direction, and
its target is not held out in the other one."""


def build_data(
    config: Config,
    run: Path,
    tokenizer: Tokenizer | None,
    init: str | None,
    *,
    parent: Parent | None = None,
    transfer: TakenOver | None = None,
) -> dict[str, Any]:
    """Write `FILES`, the other files that the settings ask for, and `data/info.json` into a run folder.

    `info.json` is written last, when all is complete.

    Args:
        config: Names the corpora.
        run: The run folder.
        tokenizer: The tokenizer to use; None: train one.
        init: The checksum of the weights that training starts from; None: they are random.
        parent: The model of other languages that training starts from, if the data is built for the first time.
        transfer: What was taken from it; None: nothing, or it is found out.

    Raises:
        DataError: The pairs cannot be read, or none is left to train on.
        UsageError: The weights of the corpora leave less than one pair per epoch.
        StorageError: A file cannot be written.

    Returns:
        The content of `info.json`.
    """
    data = config.data
    inputs = fingerprint_inputs(config)  # before reading, so that a change during reading is noticed
    corpora = _Corpora(config)
    splits, given_counts = _read_given_splits(config, corpora)
    training = _TrainingPairs(corpora, _hold_out(config, corpora))
    training.check_not_empty()
    if tokenizer is None:
        tokenizer = _train_tokenizer(config, training, parent)
    if data.placeholders and not tokenizer.has_placeholders:
        raise UsageError("data.placeholders: the given tokenizer has no placeholder tokens; omit one of the two")
    if tokenizer.has_placeholders and not data.placeholders and init is None:
        log.warning(
            "the given tokenizer has placeholder tokens, with which documents are translated, and this training does "
            "not learn them; add --set data.placeholders=true"
        )
    replace_file(run / "tokenizer.json", tokenizer.to_json().encode())
    if parent is not None:
        transfer = TakenOver.of(parent, tokenizer, config)

    files = list(FILES)
    annotator = _learn_terms(config, training, tokenizer)
    if annotator is not None:
        replace_file(run / TERMS_FILE, annotator.to_json())
        files.append(TERMS_FILE)
    counts = Counts()
    cache = run / "data" / "train.arrow"
    samples = {direction: SpreadSample() for direction in corpora.directions}
    pairs = _sampled(
        training.read("encoding", counts, splits), [samples[direction] for direction in corpora.directions]
    )
    tags = _tags(corpora, tokenizer)
    rows = encode_pairs(pairs, tokenizer, cache, max_length=data.max_length, counts=counts, tags=tags)
    _log_counts(corpora.name, counts)
    weights = _mixed([(rows[index], weight) for index, weight in enumerate(corpora.weights)], data)
    _check_rows(corpora.name, weights, counts)
    _check_each_direction(corpora, weights)
    if None in tags and parent is None:
        _refuse_missing_tags(corpora.name, cache, rows.total(), tokenizer)
    if parent is not None:
        _warn_of_unknown_text(corpora.name, list(samples.values()), tokenizer)
    if not corpora.demo:
        _warn_of_swapped_sides(corpora, samples)
    for name, held_out in splits.items():
        write_split(run, name, held_out)
    if data.corrections is not None:
        write_split(run, "corrections", {corpora.directions[-1]: corpora.corrections.pairs})
        files.append(CORRECTIONS_FILE)

    info = {
        "inputs": inputs,
        "settings": data_settings(config),
        "init": init,
        "transfer": transfer and transfer.to_json(),
        "weights": weights,
        "sources": _sources(corpora, cache, [rows[index] for index in range(len(corpora.weights))], tokenizer),
        "counts": {
            "read": counts.read + given_counts.read,
            "train": rows.total(),
            **{name: sum(map(len, held_out.values())) for name, held_out in splits.items()},
            "skipped": dict(Counter(counts.skipped) + Counter(given_counts.skipped)),
        },
        "files": {name: fingerprint(run / name) for name in files},
    }
    write_data_info(run / "data" / "info.json", info)
    return info


def _sources(corpora: "_Corpora", cache: Path, rows: list[int], tokenizer: Tokenizer) -> list[dict[str, int | bool]]:
    """Return how many pairs of each training corpus are tagged, and whether it is synthetic, for `info.json`."""
    tag = tokenizer.back_translation_tag
    tagged = count_tagged(cache, rows, [] if tag is None else [tag], behind=tokenizer.tags.values())
    origins = zip(tagged, corpora.synthetic, strict=True)
    return [{"tagged": number, "synthetic": synthetic} for number, synthetic in origins]


class _Corpora:
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
            self.corrections = read_corrections(self.sources[-1].path, languages, replace=self.data.replace)
            _log_counts(self.data.corrections, self.corrections.counts)
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
        only_synthetic = {
            pair: all(self.synthetic[index] for index in self.corpora_of(pair)) for pair in set(self.pair_of)
        }
        self.can_hold_out = [
            only_synthetic[pair] or not synthetic for pair, synthetic in zip(self.pair_of, self.synthetic, strict=True)
        ]
        if self.data.corrections is not None:
            self.can_hold_out[-1] = False
        """For each corpus, True if validation and test pairs may be taken from it."""
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

    def read(self, description: str, counts: Counts, numbers: Collection[int] | None = None) -> Iterator[NumberedPair]:
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


class _TrainingPairs:
    """The pairs of the training corpora that are not held out.

    Args:
        corpora: The corpora.
        held_out: What is held out of each pair of languages.
    """

    def __init__(self, corpora: _Corpora, held_out: Mapping[Direction, HeldOut]):
        self.corpora = corpora
        self.held_out = held_out
        self.placeholders = corpora.data.placeholders

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
                counts.skip(SYNTHETIC_HELD_OUT)
            elif splits is not None:
                splits[split].setdefault(corpora.directions[index], []).append(pair)

    def check_not_empty(self) -> None:
        """Raise a DataError if there is no training pair."""
        counts = Counts()
        with closing(self.read("reading", counts)) as pairs:
            first = next(pairs, None)
        if first is None:
            raise DataError(f"{self.corpora.name}: no pair to train on ({_in_words(counts)}); give more pairs")


def _sampled(pairs: Iterator[NumberedPair], samples: Sequence[SpreadSample]) -> Iterator[NumberedPair]:
    """Yield all pairs, and add them to the sample of their corpus."""
    for index, pair in pairs:
        samples[index].add(pair)
        yield index, pair


def _with_placeholders(pair: Pair) -> Pair:
    """Return a training pair with placeholder tokens. The tag of a synthetic source remains at its start."""
    src, tgt = pair
    tag = BACK_TRANSLATION_TAG if src.startswith(BACK_TRANSLATION_TAG) else ""
    src, tgt = with_tokens(src.removeprefix(tag), tgt)
    return tag + src, tgt


def _read_given_splits(config: Config, corpora: _Corpora) -> tuple[Splits, Counts]:
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
            _log_counts(f"{spec} ({name})", counts)
            total.read += counts.read
            for reason, number in counts.skipped.items():
                total.skip(reason, number)
    return splits, total


def _hold_out(config: Config, corpora: _Corpora) -> dict[Direction, HeldOut]:
    """Choose the pairs of the splits that have no corpus of their own, for each pair of languages.

    Synthetic pairs are chosen only if there are no others: a score on them says little about text that people write,
    and a run has the same test set with and without them.
    """
    return {pair: _hold_out_of(pair, config, corpora) for pair in corpora.pairs_of_languages()}


def _hold_out_of(pair_of_languages: Direction, config: Config, corpora: _Corpora) -> HeldOut:
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


def _train_tokenizer(config: Config, training: _TrainingPairs, parent: Parent | None) -> Tokenizer:
    log.info("training the tokenizer")

    data = config.data
    settings = config.tokenizer
    corpora = training.corpora
    numbers: list[int] | None = None
    if settings.joint and corpora.directed:  # both directions have the same text
        numbers = [index for index, corpus in enumerate(corpora.directed) if not corpus.is_reversed]

    def read() -> Iterator[NumberedPair]:
        numbered = training.read("reading for the tokenizer", Counts(), numbers=numbers)
        sampled = by_weight(numbered, _sampling_weights(training))
        return with_capitals(sampled, corpora.directions) if data.variants == "on" else sampled

    if parent is not None and parent.choice(config) != "new":
        return child_tokenizer(parent, config, lambda: ((corpora.directions[number], pair) for number, pair in read()))
    return train_tokenizer(
        (pair for _, pair in read()),
        kind=settings.type,
        vocab_size=settings.vocab_size,
        joint=settings.joint,
        placeholders=data.placeholders,
        target_languages=tagged_languages(data),
    )


def _sampling_weights(training: _TrainingPairs) -> list[float]:
    """Return how often the text of each corpus is read to learn a vocabulary: as often as epochs draw its pairs.

    The weights that the user gave do not count.
    """
    corpora = training.corpora
    if len(set(corpora.directions)) == 1:
        return [1.0] * len(corpora.directions)
    counts = Counter(index for index, _ in training.read("counting", Counts()))
    sizes = [(counts[index], 1.0) for index in range(len(corpora.directions))]
    return [weight for _, weight in by_temperature(sizes, corpora.directions, corpora.data.temperature)]


def by_weight(pairs: Iterable[NumberedPair], weights: Sequence[float]) -> Iterator[NumberedPair]:
    """Repeat or omit pairs evenly, so that each comes as often as the weight of its corpus on average."""
    due = [0.0] * len(weights)
    for index, pair in pairs:
        due[index] += weights[index]
        while due[index] >= 1:
            due[index] -= 1
            yield index, pair


def tagged_languages(data: DataConfig) -> tuple[str, ...]:
    """Return the languages for which a new vocabulary has tags: the target languages, if they are several."""
    languages = data.target_languages
    return languages if len(languages) > 1 else ()


def _tags(corpora: _Corpora, tokenizer: Tokenizer) -> list[int | None]:
    """Return the tag of each corpus, None for a language without one; empty if the vocabulary has no tags.

    Raises:
        UsageError: There are several target languages, and one has no tag.
    """
    targets = [direction.tgt for direction in corpora.directions]
    has_several = len(set(targets)) > 1
    if not tokenizer.tags and not has_several:
        return []
    tags: list[int | None] = []
    for target in targets:
        tags.append(tokenizer.tag_of(target) if tokenizer.has_tag(target) else None)
        if has_several and tags[-1] is None:
            choices = f"only for {', '.join(sorted(tokenizer.tags))}" if tokenizer.tags else "for none"
            raise UsageError(
                f"{target}: the vocabulary has no tag for this target language, {choices}; let training learn a new "
                "vocabulary, or name one with these tags"
            )
    return tags


def _learn_terms(config: Config, training: _TrainingPairs, tokenizer: Tokenizer) -> TermAnnotator | None:
    """Return what finds terms in the training pairs, if `data.terms` is set.

    Raises:
        UsageError: The vocabulary has no markers for terms, or no target words on the source side.
    """
    if not config.data.terms:
        return None
    if len(set(training.corpora.directions)) > 1:
        raise UsageError("data.terms: for one direction; a model of several directions cannot learn terms yet")
    if not tokenizer.joint or tokenizer.sentencepiece:
        raise UsageError("data.terms: needs one vocabulary for both sides (tokenizer.joint), trained by mtcli")
    log.info("looking for terms in the pairs")
    pairs = (pair for _, pair in training.read("reading for terms", Counts()))
    return TermAnnotator.learn(pairs)


def _mixed(weights: list[tuple[int, float]], data: DataConfig) -> list[tuple[int, float]]:
    """Return (rows, weight) of each corpus so that an epoch has `data.corrections_mix` other pairs for each correction.

    Args:
        weights: (rows, weight) of each corpus, as the user gave them. The corrections are the last one.
        data: The settings; without corrections, nothing changes.
    """
    *others, (corrections, weight) = weights
    drawn = sum(rows * own for rows, own in others)
    if data.corrections is None or drawn == 0:
        return weights
    factor = data.corrections_mix * corrections * weight / drawn
    return [*((rows, own * factor) for rows, own in others), (corrections, weight)]


def _check_rows(name: str, weights: list[tuple[int, float]], counts: Counts) -> None:
    """Check that an epoch has at least one pair.

    Raises:
        DataError: All pairs were skipped.
        UsageError: The weights are too small.
    """
    if not any(rows for rows, _ in weights):
        remedy = "give shorter ones, or a larger --set data.max_length"
        raise DataError(f"{name}: no pair to train on ({_in_words(counts)}); {remedy}")
    if sum(rows * weight for rows, weight in weights) < 1:
        raise UsageError(f"{name}: an epoch has less than one pair by these weights; give larger ones")


def _check_each_direction(corpora: _Corpora, weights: Sequence[tuple[int, float]]) -> None:
    """Check that each direction has a pair to train on.

    Raises:
        DataError: One has none.
    """
    for direction in dict.fromkeys(corpora.directions):
        if not any(weights[index][0] for index, own in enumerate(corpora.directions) if own == direction):
            problem = f"no pair of {direction} to train on"
            raise DataError(f"{corpora.names_of(direction)}: {problem}; give more pairs, or omit this corpus")


def _refuse_missing_tags(name: str, cache: Path, pairs: int, tokenizer: Tokenizer) -> None:
    """Check that all sources begin with the tag by which a multilingual model knows the target language.

    Raises:
        DataError: Some do not.
    """
    (tagged,) = count_tagged(cache, [pairs], tokenizer.tags.values())
    if tagged < pairs:
        missing = f"no target language in {pairs - tagged:,} of {counted(pairs, 'source')}"
        raise DataError(
            f"{name}: {missing}, and the model has several; "
            f"give one of {', '.join(sorted(tokenizer.tags))} with --tgt, or begin each source with the tag of one, "
            f"such as >>{min(tokenizer.tags)}<<"
        )


MAX_UNKNOWN = 0.01
"""Share of targets with unknown characters from which on a warning says so."""


def _warn_of_unknown_text(name: str, samples: Sequence[SpreadSample], tokenizer: Tokenizer) -> None:
    """Warn if the vocabulary of an imported parent lacks characters of a child's targets."""
    targets = [tgt for sample in samples for _, tgt in sample.pairs]
    unknown = sum(tokenizer.unknown in row for row in tokenizer.encode_tgt(targets))
    if unknown > MAX_UNKNOWN * len(targets):
        log.warning(
            "%s: %.2g%% of the targets have characters that the model's vocabulary lacks and that it can never write; "
            "--set tokenizer.transfer=new trains a vocabulary that has them",
            name,
            100 * unknown / len(targets),
        )


def _warn_of_swapped_sides(corpora: _Corpora, samples: Mapping[Direction, SpreadSample]) -> None:
    """Warn if the sources are in the target language and the targets in the source language."""
    data = corpora.data
    for direction, sample in samples.items():
        languages = LanguageCheck(*direction, swap=data.swap)
        for pair in sample.pairs:
            languages.is_swapped(*pair)
        notice = languages.swapped_notice("sampled pair")
        if notice:
            log.warning("%s: %s", corpora.names_of(direction), notice)


def _in_words(counts: Counts) -> str:
    parts = [f"{counted(counts.read, 'pair')} read", f"{counts.used:,} used"]
    parts += [f"{number:,} skipped: {reason}" for reason, number in counts.skipped.items()]
    return ", ".join(parts)


def _log_counts(name: str, counts: Counts) -> None:
    log.info("%s: %s", name, _in_words(counts))
    for notice in dict.fromkeys(counts.notices):
        log.info("%s", notice)
    if counts.replaced:
        log.warning("%s: read %s as U+FFFD", name, counted(counts.replaced, "invalid byte"))
