"""Build the data of a run from its corpora: splits, tokenizer, encoded cache, and `data/info.json`."""

import logging
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from mtcli.config.schema import Config
from mtcli.corpus import demo
from mtcli.corpus.cache.encoded_pairs import NumberedPair, encode_pairs
from mtcli.corpus.cache.info import data_settings, fingerprint, fingerprint_inputs, write_data_info
from mtcli.corpus.cache.parent import Parent, TakenOver, child_tokenizer
from mtcli.corpus.cache.training_sources import count_tagged, is_synthetic
from mtcli.corpus.held_out import FEWEST_PAIRS, HeldOut, choose_held_out, write_split
from mtcli.corpus.quality.languages import LanguageCheck, SpreadSample
from mtcli.corpus.readers.pairs import read_pairs
from mtcli.corpus.readers.sources import parse_source
from mtcli.corpus.variants import with_capitals
from mtcli.errors import DataError, UsageError
from mtcli.runtime.files import replace_file
from mtcli.runtime.progress import Progress
from mtcli.runtime.wording import counted
from mtcli.terms.annotation import TermAnnotator
from mtcli.text.lines import Counts, Pair
from mtcli.text.placeholders import with_tokens
from mtcli.text.tokenizer.learning import train_tokenizer
from mtcli.text.tokenizer.tokenizer import BACK_TRANSLATION_TAG, Tokenizer

log = logging.getLogger(__name__)

Splits = dict[str, list[Pair]]
"""The pairs of `valid` and `test`."""

FILES = ("tokenizer.json", "data/train.arrow", "data/valid.jsonl", "data/test.jsonl")
"""The files that `build_data` writes in addition to `data/info.json`, relative to the run folder."""

TERMS_FILE = "data/terms.json"
"""The file that it also writes with `data.terms`: which words translate each other, see `TermAnnotator`."""


SYNTHETIC_HELD_OUT = "synthetic, with a held-out source"
"""The reason for which a synthetic pair is skipped if its source is in the validation or test set."""


def build_data(
    config: Config,
    run: Path,
    tokenizer: Tokenizer | None,
    init: str | None,
    *,
    parent: Parent | None = None,
    transfer: TakenOver | None = None,
) -> dict[str, Any]:
    """Write `FILES`, `TERMS_FILE` with `data.terms`, and `data/info.json` into a run folder.

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
    sample = SpreadSample()
    pairs = _sampled(training.read("encoding", counts, splits), sample)
    rows = encode_pairs(pairs, tokenizer, cache, max_length=data.max_length, counts=counts)
    _log_counts(corpora.name, counts)
    weights = [(rows[index], weight) for index, weight in enumerate(corpora.weights)]
    _check_rows(corpora.name, weights, counts)
    _warn_of_missing_tags(corpora.name, cache, rows.total(), tokenizer)
    if parent is not None:
        _warn_of_unknown_text(corpora.name, sample, tokenizer)
    if not corpora.demo:
        _warn_of_swapped_sides(corpora, sample)
    for name, held_out in splits.items():
        write_split(run, name, held_out, data.src, data.tgt)

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
            **{name: len(held_out) for name, held_out in splits.items()},
            "skipped": dict(Counter(counts.skipped) + Counter(given_counts.skipped)),
        },
        "files": {name: fingerprint(run / name) for name in files},
    }
    write_data_info(run / "data" / "info.json", info)
    return info


def _sources(corpora: "_Corpora", cache: Path, rows: list[int], tokenizer: Tokenizer) -> list[dict[str, int | bool]]:
    """Return how many pairs of each training corpus are tagged, and whether it is synthetic, for `info.json`."""
    tag = tokenizer.back_translation_tag
    tagged = count_tagged(cache, rows, [] if tag is None else [tag])
    origins = zip(tagged, corpora.synthetic, strict=True)
    return [{"tagged": number, "synthetic": synthetic} for number, synthetic in origins]


class _Corpora:
    """The training corpora, which can be read several times."""

    def __init__(self, config: Config):
        self.data = config.data
        self.demo = None if config.data.train else demo.load()
        self.sources = [parse_source(spec) for spec in config.data.train]
        self.weights = [source.weight for source in self.sources] or [1.0]
        self.synthetic = [is_synthetic(source.path, self.data.src, self.data.tgt) for source in self.sources] or [False]
        """For each corpus, True if `mtcli augment` wrote it."""
        only_synthetic = all(self.synthetic)
        self.can_hold_out = [only_synthetic or not synthetic for synthetic in self.synthetic]
        """For each corpus, True if validation and test pairs may be taken from it."""
        self.name = ", ".join(config.data.train) or "the built-in demo"

    def read(self, description: str, counts: Counts) -> Iterator[NumberedPair]:
        """Read the pairs of all corpora in turn, with a progress bar, or those of the built-in demo."""
        if self.demo:
            for pair in self.demo.train:
                counts.read += 1
                counts.used += 1
                yield 0, pair
            return
        with Progress(description, unit="pairs") as progress:
            for index, source in enumerate(self.sources):
                for pair in self.read_from(source.path, counts, progress):
                    yield index, pair

    def read_from(self, spec: str, counts: Counts, progress: Progress) -> Iterator[Pair]:
        """Read the pairs of any corpus with the options of the configuration."""
        data = self.data
        return read_pairs(
            spec, data.src, data.tgt, swap=data.swap, replace=data.replace, counts=counts, progress=progress
        )


class _TrainingPairs:
    """The pairs of the training corpora that are not held out."""

    def __init__(self, corpora: _Corpora, held_out: HeldOut):
        self.corpora = corpora
        self.held_out = held_out
        self.placeholders = corpora.data.placeholders

    def read(
        self, description: str, counts: Counts, splits: Splits | None = None
    ) -> Generator[NumberedPair, None, None]:
        """Read the training pairs, with a progress bar.

        Args:
            description: The name of the bar.
            counts: Updated with all pairs of the corpora.
            splits: Receives the pairs that are held out.
        """
        for index, pair in self.corpora.read(description, counts):
            can_hold_out = self.corpora.can_hold_out[index]
            source = pair[0] if can_hold_out else pair[0].removeprefix(BACK_TRANSLATION_TAG)
            split = self.held_out.split_of(source)
            if split == "train":
                yield index, _with_placeholders(pair) if self.placeholders else pair
            elif not can_hold_out:
                counts.used -= 1
                counts.skip(SYNTHETIC_HELD_OUT)
            elif splits is not None:
                splits[split].append(pair)

    def check_not_empty(self) -> None:
        """Raise a DataError if there is no training pair."""
        counts = Counts()
        with closing(self.read("reading", counts)) as pairs:
            first = next(pairs, None)
        if first is None:
            raise DataError(f"{self.corpora.name}: no pair to train on ({_in_words(counts)}); give more pairs")


def _sampled(pairs: Iterator[NumberedPair], sample: SpreadSample) -> Iterator[NumberedPair]:
    """Yield all pairs, and add them to a sample."""
    for index, pair in pairs:
        sample.add(pair)
        yield index, pair


def _with_placeholders(pair: Pair) -> Pair:
    """Return a training pair with placeholder tokens. The tag of a synthetic source remains at its start."""
    src, tgt = pair
    tag = BACK_TRANSLATION_TAG if src.startswith(BACK_TRANSLATION_TAG) else ""
    src, tgt = with_tokens(src.removeprefix(tag), tgt)
    return tag + src, tgt


def _read_given_splits(config: Config, corpora: _Corpora) -> tuple[Splits, Counts]:
    """Return the splits that have their own corpus, and the counts of reading them. The other splits are empty."""
    splits: Splits = {}
    total = Counts()
    for name, spec in (("valid", config.data.valid), ("test", config.data.test)):
        if spec is not None:
            counts = Counts()
            with Progress("reading", unit="pairs") as progress:
                splits[name] = list(corpora.read_from(spec, counts, progress))
            _log_counts(f"{spec} ({name})", counts)
            total.read += counts.read
            for reason, number in counts.skipped.items():
                total.skip(reason, number)
        elif corpora.demo:
            splits[name] = list(corpora.demo.valid if name == "valid" else corpora.demo.test)
            total.read += len(splits[name])
        else:
            splits[name] = []
    return splits, total


def _hold_out(config: Config, corpora: _Corpora) -> HeldOut:
    """Choose the pairs of the splits that have no corpus of their own; warn if none can be held out.

    Synthetic pairs are chosen only if there are no others: a score on them says little about text that people write,
    and a run has the same test set with and without them.
    """
    data = config.data
    if corpora.demo or (data.valid is not None and data.test is not None):
        return HeldOut(data.split_seed)
    numbered = corpora.read("choosing held-out pairs", Counts())
    held_out = choose_held_out(
        (pair for index, pair in numbered if corpora.can_hold_out[index]),
        valid=None if data.valid is None else 0,
        test=None if data.test is None else 0,
        seed=data.split_seed,
    )
    missing = []
    if data.valid is None and held_out.n_valid == 0:
        missing.append("--valid")
    if data.test is None and held_out.n_test == 0:
        missing.append("--test")
    if missing and held_out.n_pairs:
        few = held_out.n_pairs < FEWEST_PAIRS
        reason = f"fewer than {FEWEST_PAIRS} pairs" if few else "every source repeats too often"
        log.warning("%s: none are held out; give %s, or the model cannot be scored", reason, " and ".join(missing))
    return held_out


def _train_tokenizer(config: Config, training: _TrainingPairs, parent: Parent | None) -> Tokenizer:
    log.info("training the tokenizer")

    data = config.data

    def read() -> Iterator[Pair]:
        pairs = (pair for _, pair in training.read("reading for the tokenizer", Counts()))
        return with_capitals(pairs, (data.src, data.tgt)) if data.variants == "on" else pairs

    if parent is not None and parent.choice(config) != "new":
        return child_tokenizer(parent, config, read)
    settings = config.tokenizer
    return train_tokenizer(
        read(),
        kind=settings.type,
        vocab_size=settings.vocab_size,
        joint=settings.joint,
        placeholders=data.placeholders,
    )


def _learn_terms(config: Config, training: _TrainingPairs, tokenizer: Tokenizer) -> TermAnnotator | None:
    """Return what finds terms in the training pairs, if `data.terms` is set.

    Raises:
        UsageError: The vocabulary has no markers for terms, or no target words on the source side.
    """
    if not config.data.terms:
        return None
    if not tokenizer.joint or tokenizer.sentencepiece:
        raise UsageError("data.terms: needs one vocabulary for both sides (tokenizer.joint), trained by mtcli")
    log.info("looking for terms in the pairs")
    pairs = (pair for _, pair in training.read("reading for terms", Counts()))
    return TermAnnotator.learn(pairs)


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


def _warn_of_missing_tags(name: str, cache: Path, pairs: int, tokenizer: Tokenizer) -> None:
    """Warn if sources lack the tag by which a multilingual model knows the target language."""
    if not tokenizer.tags:
        return
    (tagged,) = count_tagged(cache, [pairs], tokenizer.tags.values())
    if tagged < pairs:
        log.warning(
            "%s: no target language in %s of %s, and the model has several; begin each source with the tag of one, "
            "such as >>%s<<",
            name,
            f"{pairs - tagged:,}",
            counted(pairs, "source"),
            min(tokenizer.tags),
        )


MAX_UNKNOWN = 0.01
"""Share of targets with unknown characters from which on a warning says so."""


def _warn_of_unknown_text(name: str, sample: SpreadSample, tokenizer: Tokenizer) -> None:
    """Warn if the vocabulary of an imported parent lacks characters of a child's targets."""
    targets = [tgt for _, tgt in sample.pairs]
    unknown = sum(tokenizer.unknown in row for row in tokenizer.encode_tgt(targets))
    if unknown > MAX_UNKNOWN * len(targets):
        log.warning(
            "%s: %.2g%% of the targets have characters that the model's vocabulary lacks and that it can never write; "
            "--set tokenizer.transfer=new trains a vocabulary that has them",
            name,
            100 * unknown / len(targets),
        )


def _warn_of_swapped_sides(corpora: _Corpora, sample: SpreadSample) -> None:
    """Warn if the sources are in the target language and the targets in the source language."""
    data = corpora.data
    languages = LanguageCheck(data.src, data.tgt, swap=data.swap)
    for pair in sample.pairs:
        languages.is_swapped(*pair)
    notice = languages.swapped_notice("sampled pair")
    if notice:
        log.warning("%s: %s", corpora.name, notice)


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
