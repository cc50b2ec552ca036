"""Build the data of a run from its corpora: splits, tokenizer, encoded cache, and `data/info.json`."""

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from mtcli.config.schema import Config, DataConfig
from mtcli.corpus.cache.corpora import (
    Corpora,
    TrainingPairs,
    counts_in_words,
    hold_out,
    log_counts,
    read_given_splits,
)
from mtcli.corpus.cache.encoded_pairs import NumberedPair, encode_pairs
from mtcli.corpus.cache.info import DataInfo, data_settings, fingerprint, fingerprint_inputs
from mtcli.corpus.cache.parent import Parent, TakenOver, child_tokenizer
from mtcli.corpus.cache.training_sources import by_temperature, count_tagged
from mtcli.corpus.held_out import write_split
from mtcli.corpus.quality.languages import LanguageCheck, SpreadSample
from mtcli.corpus.variants import with_capitals
from mtcli.errors import DataError, UsageError
from mtcli.runtime.files import replace_file
from mtcli.runtime.wording import counted
from mtcli.terms.annotation import TermAnnotator, annotators_to_json
from mtcli.text.languages import Direction
from mtcli.text.lines import Counts
from mtcli.text.tokenizer.learning import train_tokenizer
from mtcli.text.tokenizer.tokenizer import Tokenizer

log = logging.getLogger(__name__)

T = TypeVar("T")

FILES = ("tokenizer.json", "data/train.arrow", "data/valid.jsonl", "data/test.jsonl")
"""The files that `build_data` writes in addition to `data/info.json`, relative to the run folder."""

CORRECTIONS_FILE = "data/corrections.jsonl"
"""The file that it also writes with `data.corrections`: the corrections that are trained on."""

TERMS_FILE = "data/terms.json"
"""The file that it also writes with `data.terms`: which words translate each other, see `TermAnnotator`."""

MAX_UNKNOWN = 0.01
"""Share of targets with unknown characters from which on a warning says so."""


def build_data(
    config: Config,
    run: Path,
    tokenizer: Tokenizer | None,
    init: str | None,
    *,
    parent: Parent | None = None,
    transfer: TakenOver | None = None,
) -> DataInfo:
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
    corpora = Corpora(config)
    splits, given_counts = read_given_splits(config, corpora)
    training = TrainingPairs(corpora, hold_out(config, corpora), splits)
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
    annotators = _learn_terms(config, training, tokenizer)
    if annotators:
        replace_file(run / TERMS_FILE, annotators_to_json(annotators))
        files.append(TERMS_FILE)
    counts = Counts()
    cache = run / "data" / "train.arrow"
    samples = {direction: SpreadSample() for direction in corpora.directions}

    def pairs() -> Iterator[NumberedPair]:
        for number, pair in training.read("encoding", counts, splits):
            samples[corpora.all[number].direction].add(pair)
            yield number, pair

    tags = _tags(corpora, tokenizer)
    rows = encode_pairs(pairs(), tokenizer, cache, max_length=data.max_length, counts=counts, tags=tags)
    log_counts(corpora.name, counts)
    weights = _mixed([(rows[number], corpus.source.weight) for number, corpus in enumerate(corpora.all)], data)
    _check_rows(corpora, weights, counts)
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

    sizes = [rows[index] for index in range(len(corpora.all))]
    tag = tokenizer.back_translation_tag
    tagged = count_tagged(cache, sizes, [] if tag is None else [tag], behind=tokenizer.tags.values())
    info = DataInfo(
        inputs=inputs,
        settings=data_settings(config),
        init=init,
        transfer=transfer,
        weights=weights,
        sources=[
            {"tagged": number, "synthetic": corpus.is_synthetic}
            for number, corpus in zip(tagged, corpora.all, strict=True)
        ],
        counts={
            "read": counts.read + given_counts.read,
            "train": rows.total(),
            "valid": sum(map(len, splits["valid"].values())),
            "test": sum(map(len, splits["test"].values())),
            "skipped": dict(Counter(counts.skipped) + Counter(given_counts.skipped)),
        },
        files={name: fingerprint(run / name) for name in files},
    )
    info.write(run)
    return info


def _train_tokenizer(config: Config, training: TrainingPairs, parent: Parent | None) -> Tokenizer:
    choice = "new" if parent is None else parent.choice(config)
    log.info("%s the tokenizer", {"keep": "keeping", "extend": "extending"}.get(choice, "training"))
    data = config.data
    settings = config.tokenizer
    corpora = training.corpora
    numbers: list[int] | None = None
    if settings.joint:  # both directions have the same text
        numbers = [number for number, corpus in enumerate(corpora.all) if not corpus.is_reversed]

    def read() -> Iterator[NumberedPair]:
        numbered = training.read("reading for the tokenizer", Counts(), numbers=numbers)
        sampled = by_weight(numbered, _sampling_weights(training))
        return with_capitals(sampled, corpora.directions) if data.variants == "on" else sampled

    if parent is not None and choice != "new":
        return child_tokenizer(parent, config, lambda: ((corpora.directions[number], pair) for number, pair in read()))
    return train_tokenizer(
        (pair for _, pair in read()),
        kind=settings.type,
        vocab_size=settings.vocab_size,
        joint=settings.joint,
        placeholders=data.placeholders,
        target_languages=data.target_languages if len(data.target_languages) > 1 else (),
    )


def _sampling_weights(training: TrainingPairs) -> list[float]:
    """Return how often the text of each corpus is read to learn a vocabulary: as often as epochs draw its pairs.

    The weights that the user gave do not count.
    """
    corpora = training.corpora
    if len(set(corpora.directions)) == 1:
        return [1.0] * len(corpora.directions)
    counts = Counter(index for index, _ in training.read("counting", Counts()))
    sizes = [(counts[index], 1.0) for index in range(len(corpora.directions))]
    return [weight for _, weight in by_temperature(sizes, corpora.directions, corpora.data.temperature)]


def by_weight(items: Iterable[tuple[int, T]], weights: Sequence[float]) -> Iterator[tuple[int, T]]:
    """Repeat or omit items evenly, so that each comes as often as the weight of its corpus on average.

    Args:
        items: Each with the number of its corpus.
        weights: Those of the corpora.
    """
    due = [0.0] * len(weights)
    for index, item in items:
        due[index] += weights[index]
        while due[index] >= 1:
            due[index] -= 1
            yield index, item


def _tags(corpora: Corpora, tokenizer: Tokenizer) -> list[int | None]:
    """Return the tag of each corpus, None for a language without one; empty if the vocabulary has no tags.

    Raises:
        UsageError: See `_check_tags`.
    """
    targets = [direction.tgt for direction in corpora.directions]
    tags = {target: tokenizer.tag_of(target) if tokenizer.has_tag(target) else None for target in targets}
    if len(tags) > 1:
        _check_tags(tags, tokenizer)
    return [tags[target] for target in targets] if tokenizer.tags else []


def _check_tags(tags: Mapping[str, int | None], tokenizer: Tokenizer) -> None:
    """Check that each of several target languages has a tag of its own.

    Raises:
        UsageError: One has none, or that of another.
    """
    target_of: dict[int, str] = {}
    for target, tag in tags.items():
        if tag is None:
            problem = "no tag for this target language"
        elif target_of.setdefault(tag, target) != target:
            problem = f"the tag of {target_of[tag]} for this target language"
        else:
            continue
        choices = f"only for {', '.join(sorted(tokenizer.tags))}" if tokenizer.tags else "for none"
        raise UsageError(
            f"{target}: the vocabulary has {problem}, {choices}; let training learn a new vocabulary, or name one "
            "with these tags"
        )


def _learn_terms(config: Config, training: TrainingPairs, tokenizer: Tokenizer) -> dict[Direction, TermAnnotator]:
    """Return what finds terms in the training pairs of each direction, if `data.terms` is set; otherwise nothing.

    Raises:
        UsageError: The vocabulary has no markers for terms, or no target words on the source side.
    """
    if not config.data.terms:
        return {}
    if not tokenizer.joint or tokenizer.sentencepiece:
        raise UsageError("data.terms: needs one vocabulary for both sides (tokenizer.joint), trained by mtcli")
    log.info("looking for terms in the pairs")
    found = {}
    for direction in dict.fromkeys(training.corpora.directions):
        pairs = training.read("reading for terms", Counts(), numbers=training.corpora.numbers_of(direction))
        found[direction] = TermAnnotator.learn(pair for _, pair in pairs)
    return found


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


def _check_rows(corpora: Corpora, weights: list[tuple[int, float]], counts: Counts) -> None:
    """Check that an epoch has at least one pair, and each direction has a pair to train on.

    Raises:
        DataError: All pairs were skipped, or all of one direction.
        UsageError: The weights are too small.
    """
    if not any(rows for rows, _ in weights):
        remedy = "give shorter ones, or a larger --set data.max_length"
        raise DataError(f"{corpora.name}: no pair to train on ({counts_in_words(counts)}); {remedy}")
    if sum(rows * weight for rows, weight in weights) < 1:
        raise UsageError(f"{corpora.name}: an epoch has less than one pair by these weights; give larger ones")
    for direction in dict.fromkeys(corpora.directions):
        if not any(weights[number][0] for number in corpora.numbers_of(direction)):
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


def _warn_of_swapped_sides(corpora: Corpora, samples: Mapping[Direction, SpreadSample]) -> None:
    """Warn if the sources are in the target language and the targets in the source language."""
    data = corpora.data
    for direction, sample in samples.items():
        languages = LanguageCheck(*direction, swap=data.swap)
        for pair in sample.pairs:
            languages.is_swapped(*pair)
        notice = languages.swapped_notice("sampled pair")
        if notice:
            log.warning("%s: %s", corpora.names_of(direction), notice)
