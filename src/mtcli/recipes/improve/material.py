"""The training pairs of the stages: real pairs, monolingual text, and the synthetic pairs that are made of it.

Pairs are held out for all stages alike, and synthetic pairs are merged without repetitions.
"""

import hashlib
import json
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from mtcli.config.schema import DataConfig
from mtcli.corpus.cache.corpora import SYNTHETIC_HELD_OUT
from mtcli.corpus.cache.training_sources import is_synthetic
from mtcli.corpus.held_out import HeldOut, choose_held_out, held_out_size, source_key
from mtcli.corpus.readers.pairs import read_pairs
from mtcli.corpus.readers.sources import parse_source
from mtcli.errors import DataError
from mtcli.recipes.improve.budget import SAMPLE_LINES, SYNTHETIC_PER_PAIR, weight_of_pairs
from mtcli.recipes.improve.request import ImproveRequest
from mtcli.recipes.improve.stages import Stages
from mtcli.recipes.monolingual import Text, held_out_keys, warning_about, write_lines
from mtcli.recipes.recipe import weighted
from mtcli.runtime.files import new_file
from mtcli.runtime.wording import counted
from mtcli.text.lines import Counts, Pair, read_lines
from mtcli.text.tokenizer.tokenizer import BACK_TRANSLATION_TAG
from mtcli.translate.backends.exported import sha256
from mtcli.translate.streams import report_counts

Record = dict[str, Any]
"""A line of a file of pairs: `translation`, and the scores of a synthetic pair."""

MIN_VALIDATION_PAIRS = 100
"""Validation pairs that are held out if the corpus has ten times as many: models are compared by them."""

REPEATED = "repeated or real pair"
HELD_OUT = "held-out sentence"

log = logging.getLogger(__name__)

HeldOutSplit = Literal["valid", "test"]

LANGUAGE_SAMPLE = 20_000
"""Sentences of the pairs, and lines of a text, whose languages are compared."""


@dataclass(frozen=True)
class CorpusSplits:
    """Which pairs of the training corpora are held out."""

    held_out: HeldOut
    can_hold_out: tuple[bool, ...]
    """For each corpus, True if validation and test pairs may be taken from it."""

    def training_pairs(self, corpus: int, pairs: Iterable[Pair], counts: Counts) -> Iterator[Pair]:
        """Yield the pairs of a corpus that are not held out.

        Args:
            corpus: The index of the corpus.
            pairs: All its pairs.
            counts: Receives the number of synthetic pairs that are skipped because their source is held out.
        """
        can_hold_out = self.can_hold_out[corpus]
        for pair in pairs:
            source = pair[0] if can_hold_out else without_tag(pair[0])
            if self.held_out.split_of(source) == "train":
                yield pair
            elif not can_hold_out:
                counts.used -= 1
                counts.skip(SYNTHETIC_HELD_OUT)

    def held_out_pairs(self, split: str, data: DataConfig) -> Iterator[Pair]:
        """Yield the validation or test pairs that are taken from the training corpora."""
        for spec, can_hold_out in zip(data.train, self.can_hold_out, strict=True):
            if can_hold_out:
                for pair in corpus_pairs(parse_source(spec).path, data):
                    if self.held_out.split_of(pair[0]) == split:
                        yield pair


def choose_splits(data: DataConfig) -> CorpusSplits:
    """Choose the held-out pairs for validation and test, unless files name them.

    As in `mtcli train`, synthetic pairs are chosen only if there are no others: a score on them says little about text
    that people write.

    Raises:
        DataError: The pairs cannot be read, or are too few.
    """
    corpora = [parse_source(spec).path for spec in data.train]
    synthetic = [is_synthetic(path, data.src, data.tgt) for path in corpora]
    can_hold_out = tuple(all(synthetic) or not one for one in synthetic)
    sizes = [sum(1 for _ in corpus_pairs(path, data)) for path in corpora]
    if not any(sizes):
        raise DataError("the training pairs are empty")
    own = [path for path, may in zip(corpora, can_hold_out, strict=True) if may]
    n_own = sum(size for size, may in zip(sizes, can_hold_out, strict=True) if may)
    wanted = max(held_out_size(n_own), min(MIN_VALIDATION_PAIRS, n_own // 10))
    valid = wanted if data.valid is None else 0
    test = None if data.test is None else 0
    pairs = (pair for path in own for pair in corpus_pairs(path, data))
    held_out = choose_held_out(pairs, valid, test, data.split_seed)
    if data.valid is None and held_out.n_valid == 0:
        raise DataError(f"{n_own:,} pairs are too few to hold out validation pairs; name some with --valid")
    return CorpusSplits(held_out, can_hold_out)


def training_pairs(data: DataConfig) -> Iterator[Pair]:
    """Yield the pairs of all training corpora."""
    for spec in data.train:
        yield from corpus_pairs(parse_source(spec).path, data)


def corpus_pairs(path: str, data: DataConfig, counts: Counts | None = None) -> Iterator[Pair]:
    """Yield the pairs of one corpus.

    Args:
        path: The corpus, without its weight.
        data: The languages, and how to read it.
        counts: Receives the numbers of pairs and of replaced bytes.
    """
    return read_pairs(path, data.src, data.tgt, swap=data.swap, replace=data.replace, counts=counts)


def write_pairs(path: Path, pairs: Iterable[Pair], src: str, tgt: str) -> int:
    """Write pairs as JSON lines with a key for each language, and return their number."""
    return _write_records(path, ({"translation": {src: src_text, tgt: tgt_text}} for src_text, tgt_text in pairs))


def _write_records(path: Path, records: Iterable[Record]) -> int:
    """Write JSON objects, one on each line, and return their number."""
    number = 0
    with new_file(path) as file:
        for record in records:
            file.write(json.dumps(record, ensure_ascii=False).encode() + b"\n")
            number += 1
    return number


def is_chosen(index: int, wanted: int, of: int) -> bool:
    """Return True for the indices that choose `wanted` of `of` items at even distances."""
    return index * wanted // of != (index + 1) * wanted // of


def merge(
    synthetic: Sequence[Path], real: Sequence[Path], path: Path, src: str, tgt: str, held_out: frozenset[str]
) -> tuple[int, Counter[str]]:
    """Write the synthetic pairs of several files once each, without real pairs and held-out sentences.

    The pairs keep their scores, by which `training_sources.is_synthetic` recognises the file.

    Args:
        synthetic: Files of `mtcli augment`, as JSON lines.
        real: Files of real pairs.
        path: The file to write.
        src: Source language.
        tgt: Target language.
        held_out: Keys of the held-out sentences.

    Returns:
        The number of pairs that were written, and the number of others by reason.
    """
    digests = {_digest(_pair_of(record, src, tgt)) for record in _records(synthetic)}
    seen = {digest for file in real for digest in map(_digest, read_pairs(str(file), src, tgt)) if digest in digests}
    dropped = Counter[str]()

    def kept() -> Iterator[Record]:
        for record in _records(synthetic):
            pair = _pair_of(record, src, tgt)
            digest = _digest(pair)
            is_repeated = digest in seen
            seen.add(digest)
            if is_repeated:
                dropped[REPEATED] += 1
            elif any(source_key(without_tag(text)) in held_out for text in pair):
                dropped[HELD_OUT] += 1
            else:
                yield record

    written = _write_records(path, kept())
    return written, dropped


def _records(files: Sequence[Path]) -> Iterator[Record]:
    """Yield the JSON objects of files, one on each line."""
    for file in files:
        for line in read_lines(file):
            yield json.loads(line)


def _pair_of(record: Record, src: str, tgt: str) -> Pair:
    translation = record["translation"]
    return translation[src].strip(), translation[tgt].strip()


def without_tag(text: str) -> str:
    """Return a source without the tag that a synthetic one may begin with."""
    return text.removeprefix(BACK_TRANSLATION_TAG)


def _digest(pair: Pair) -> bytes:
    src, tgt = pair
    text = f"{without_tag(src)}\t{tgt}"
    return hashlib.blake2b(text.encode(), digest_size=8).digest()


@dataclass(frozen=True)
class Lines:
    """Text to translate, and how much of it there is."""

    text: Text
    number: int
    """Number of usable lines."""
    digest: str | None = None
    """SHA-256 of the file of the user; None: the text is a file of the recipe."""


@dataclass(frozen=True)
class Synthetic:
    """Synthetic pairs for one training."""

    path: Path
    number: int


class Material:
    """The pairs and texts of one request, in the folder of the command.

    Args:
        stages: Runs the commands that translate, and stores the results.
    """

    def __init__(self, stages: Stages):
        self.stages = stages
        self.request = stages.request
        self.data = stages.request.config.data
        self.folder = stages.request.out / "pairs"
        self.sizes: dict[str, Any] = stages.decide("pairs", self._write_pairs)
        """Number of pairs: `train` for each corpus, `valid`, `test`."""

    @property
    def num_pairs(self) -> int:
        """Number of real training pairs."""
        return sum(self.sizes["train"])

    @property
    def pairs_per_epoch(self) -> float:
        """Number of real training pairs that an epoch of the plain model draws, by the weights of their corpora."""
        sizes = zip(self.sizes["train"], self.data.train, strict=True)
        return float(sum(number * parse_source(spec).weight for number, spec in sizes))

    # ---- real pairs ----

    def _write_pairs(self) -> dict[str, Any]:
        """Write the training pairs, and the held-out pairs that all stages use, and return their numbers.

        Raises:
            DataError: The pairs cannot be read, or are too few.
        """
        splits = choose_splits(self.data)
        counts = Counts()
        sizes: dict[str, Any] = {"train": []}
        for corpus, (file, spec) in enumerate(zip(self._corpora(), self.data.train, strict=True)):
            pairs = corpus_pairs(parse_source(spec).path, self.data, counts)
            kept = splits.training_pairs(corpus, pairs, counts)
            sizes["train"].append(write_pairs(file, kept, self.data.src, self.data.tgt))
        held_out_files: tuple[tuple[HeldOutSplit, str | None], ...] = (
            ("valid", self.data.valid),
            ("test", self.data.test),
        )
        for name, given in held_out_files:
            if given is not None:
                held_out = corpus_pairs(given, self.data, counts)
            else:
                held_out = splits.held_out_pairs(name, self.data)
            sizes[name] = write_pairs(self.folder / f"{name}.jsonl", held_out, self.data.src, self.data.tgt)
            _check_held_out(self.data, name, sizes[name])
        report_counts(counts)
        for reason, number in counts.skipped.items():
            log.info("skipped %s: %s", counted(number, "pair"), reason)
        train = counted(sum(sizes["train"]), "pair")
        log.info("%s for training, %s for validation, %s for the test", train, sizes["valid"], sizes["test"])
        return sizes

    def _corpora(self) -> list[Path]:
        return _corpora(self.request)

    def specs(self, synthetic: Synthetic | None = None, *, forward: bool = True) -> list[str]:
        """Return the corpora of a training, with their weights.

        Args:
            synthetic: Pairs to add. If there are many, the real pairs have a larger weight.
            forward: The model translates in the direction of the request. Otherwise tags are removed from sources,
                which are the targets of this model: it would learn to write tags.
        """
        factor = weight_of_pairs(self.pairs_per_epoch, synthetic.number) if synthetic else 1.0
        found = []
        for corpus, spec in zip(self._corpora(), self.data.train, strict=True):
            file = corpus if forward else self._untagged(corpus)
            weight = factor * parse_source(spec).weight
            found.append(weighted(file, weight))
        return [*found, str(synthetic.path)] if synthetic else found

    def _untagged(self, corpus: Path) -> Path:
        """Return a file with the pairs of a corpus whose sources have no tags, which may be the same file."""
        path = corpus.with_name(f"{corpus.stem}-untagged.jsonl")

        def write() -> bool:
            has_tags = any(without_tag(src) != src for src, _ in read_pairs(str(corpus), self.data.src, self.data.tgt))
            if has_tags:
                pairs = read_pairs(str(corpus), self.data.src, self.data.tgt)
                write_pairs(path, ((without_tag(src), tgt) for src, tgt in pairs), self.data.src, self.data.tgt)
            return has_tags

        return path if self.stages.decide(f"{corpus.name} has tags", write) else corpus

    def side(self, *, source: bool) -> Lines:
        """Return one side of the training pairs as text."""
        path = _text_file(self.request, "train", source)

        def write() -> int:
            pairs = (pair for file in self._corpora() for pair in read_pairs(str(file), self.data.src, self.data.tgt))
            texts = (without_tag(src) if source else tgt for src, tgt in pairs)
            return write_lines(texts, path, lambda index: True)

        number = self.stages.decide(f"pairs as text: {path.name}", write)
        return Lines(Text(path), number)

    def _held_out(self) -> frozenset[str]:
        files = [str(self.folder / f"{name}.jsonl") for name in ("valid", "test")]
        return held_out_keys(files, self.data.src, self.data.tgt)

    # ---- monolingual text ----

    def check_texts(self) -> None:
        """Check the monolingual texts.

        Raises:
            DataError: One cannot be read, or has no usable line.
        """
        for source in (False, True):
            self.text_lines(source=source)

    def text_lines(self, *, source: bool) -> Lines | None:
        """Return the monolingual text in the source or the target language; None: there is none.

        Raises:
            DataError: It cannot be read, or has no usable line.
        """
        path = _monolingual(self.request, source)
        if path is None:
            return None
        text = Text(path, self._held_out(), self.data.replace)
        option = "--mono-src" if source else "--mono-tgt"
        number = self.stages.decide(option, lambda: _check_text(text, self.data, option))
        return Lines(text, number, self.request.digests[str(path)])

    # ---- tokenizer ----

    def train_tokenizer(self) -> None:
        """Train one tokenizer for all models, unless the request names one or wants separate vocabularies.

        Its text is both sides of the training pairs, and of each monolingual text at most as many lines as an epoch
        has synthetic pairs. So the size of the vocabulary suits the pairs, and no language outweighs the other.
        """
        if not self.request.trains_tokenizer:
            return
        for source in (True, False):
            self.side(source=source)
            lines = self.text_lines(source=source)
            if lines is not None:
                self._write_text_for_tokenizer(lines, source=source)
        self.stages.train_tokenizer(tokenizer_texts(self.request))

    def _write_text_for_tokenizer(self, lines: Lines, *, source: bool) -> None:
        """Write lines of a monolingual text, at even distances."""
        path = _text_file(self.request, "text", source)
        wanted = min(lines.number, int(SYNTHETIC_PER_PAIR * self.num_pairs))

        def write() -> int:
            return _write_chosen(lines, path, lambda index: is_chosen(index, wanted, lines.number))

        self.stages.decide(f"text for the tokenizer: {path.name}", write)

    # ---- synthetic pairs ----

    def translate(
        self, name: str, model: str, lines: Lines, how: Sequence[str], *, at_most: int, amount: float
    ) -> list[Path]:
        """Make synthetic pairs of lines that are chosen at even distances.

        With a budget of time, a sample is translated first. Its speed decides how many lines follow.

        Args:
            name: The name of the files, such as `synthetic-1/back`.
            model: The model that translates.
            lines: The text.
            how: Options of `mtcli augment`.
            at_most: Largest number of lines.
            amount: Seconds for all of it, if the budget is a time.

        Returns:
            The files of pairs.
        """
        wanted = min(lines.number, at_most)
        sample = min(wanted, SAMPLE_LINES) if self.stages.budget.is_time else wanted
        first = f"{name}-1"
        in_sample = partial(is_chosen, wanted=sample, of=lines.number)
        translated = self._write_part(first, lines, in_sample)
        files = [self._augment(first, model, how)]
        number = sample
        if sample < wanted:
            number = self.stages.decide(f"{name}: lines", partial(self._affordable, first, sample, wanted, amount))
        if number > sample:
            second = f"{name}-2"
            in_rest = partial(_is_chosen_of_rest, wanted=number, sample=sample, of=lines.number)
            translated += self._write_part(second, lines, in_rest)
            files.append(self._augment(second, model, how))
        log.info("%s: translated %s of %s", name, f"{translated:,}", counted(lines.number, "line"))
        return files

    def _affordable(self, stage: str, sample: int, wanted: int, amount: float) -> int:
        """Return how many lines can be translated in an amount of seconds, at the speed of a sample.

        Args:
            stage: The stage that translated the sample.
            sample: Number of lines of the sample.
            wanted: The largest number to return.
            amount: Seconds, those of the sample included.
        """
        return min(wanted, int(sample * amount / self.stages.recipe.seconds_of(stage)))

    def _write_part(self, name: str, lines: Lines, chosen: Callable[[int], bool]) -> int:
        """Write the chosen lines to a file, and return their number."""
        path = self.request.out / f"{name}.txt"
        return int(self.stages.decide(f"{name}: text", lambda: _write_chosen(lines, path, chosen)))

    def _augment(self, name: str, model: str, how: Sequence[str]) -> Path:
        output = self.request.out / f"{name}.jsonl"
        self.stages.augment(name, model, output.with_suffix(".txt"), output, how)
        return output

    def merge(self, name: str, files: Sequence[Path]) -> Synthetic:
        """Write the synthetic pairs of several files once each, without real pairs and held-out sentences.

        Args:
            name: The name of the new file, such as `synthetic-1/pairs`.
            files: What `translate` returned.
        """
        path = self.request.out / f"{name}.jsonl"

        def work() -> int:
            written, dropped = merge(files, self._corpora(), path, self.data.src, self.data.tgt, self._held_out())
            for reason, number in dropped.items():
                log.info("%s: dropped %s: %s", name, counted(number, "pair"), reason)
            log.info("%s: %s", name, counted(written, "synthetic pair"))
            return written

        return Synthetic(path, int(self.stages.decide(name, work)))


def _corpora(request: ImproveRequest) -> list[Path]:
    """Return the files of the real training pairs, one for each corpus of the request."""
    return [request.out / "pairs" / f"train-{number}.jsonl" for number in range(1, len(request.config.data.train) + 1)]


def plain_corpora(request: ImproveRequest) -> list[str]:
    """Return the corpora of the plain model, with their weights."""
    weights = [parse_source(spec).weight for spec in request.config.data.train]
    return [weighted(file, weight) for file, weight in zip(_corpora(request), weights, strict=True)]


def tokenizer_texts(request: ImproveRequest) -> list[Path]:
    """Return the files that the tokenizer of all models is trained on; see `Material.train_tokenizer`."""
    texts = [_text_file(request, "train", source) for source in (True, False)]
    given = [source for source in (True, False) if _monolingual(request, source) is not None]
    return texts + [_text_file(request, "text", source) for source in given]


def _text_file(request: ImproveRequest, name: str, source: bool) -> Path:
    """Return the file for one side of the pairs (`train`), or for some of a monolingual text (`text`)."""
    data = request.config.data
    return request.out / "pairs" / f"{name}.{data.src if source else data.tgt}.txt"


def _monolingual(request: ImproveRequest, source: bool) -> Path | None:
    return request.mono_src if source else request.mono_tgt


def check_material(request: ImproveRequest) -> int:
    """Check the pairs and texts of a request, write nothing, and return the number of validation pairs.

    Raises:
        DataError: They cannot be read, or are too few.
    """
    data = request.config.data
    held_out = choose_splits(data).held_out
    num_valid = sum(1 for _ in corpus_pairs(data.valid, data)) if data.valid else held_out.n_valid
    num_test = sum(1 for _ in corpus_pairs(data.test, data)) if data.test else held_out.n_test
    _check_held_out(data, "valid", num_valid)
    _check_held_out(data, "test", num_test)
    for option, path in (("--mono-tgt", request.mono_tgt), ("--mono-src", request.mono_src)):
        if path is not None:
            _check_text(Text(path, replace=data.replace), data, option)
    return num_valid


def _check_held_out(data: DataConfig, name: HeldOutSplit, number: int) -> None:
    """Check that there are validation or test pairs.

    Raises:
        DataError: There are none.
    """
    if not number:
        given = data.valid if name == "valid" else data.test
        raise DataError(f"{given or ', '.join(data.train)}: no {name} pairs; name some with --{name}")


def _check_text(text: Text, data: DataConfig, option: str) -> int:
    """Count the usable lines of a text, report the others, and warn if its language seems to be wrong.

    Args:
        text: The text.
        data: The training pairs, with which its language is compared.
        option: `--mono-src` or `--mono-tgt`.

    Raises:
        DataError: It cannot be read, or has no usable line.
    """
    number = sum(1 for _ in text.usable(report=True))
    if not number:
        raise DataError(f"{option} {text.path}: has no usable line; give text with one sentence per line")
    size = min(number, LANGUAGE_SAMPLE)
    sample = [line for index, line in enumerate(text.usable()) if is_chosen(index, size, number)]
    pairs = list(islice(training_pairs(data), LANGUAGE_SAMPLE))
    sources = [src for src, _ in pairs]
    targets = [tgt for _, tgt in pairs]
    if option == "--mono-src":
        problem = warning_about(sample, sources, targets, data.src)
    else:
        problem = warning_about(sample, targets, sources, data.tgt)
    if problem:
        log.warning("%s %s: %s", option, text.path, problem)
    return number


def _write_chosen(lines: Lines, path: Path, chosen: Callable[[int], bool]) -> int:
    """Write the chosen lines of a text, and return their number.

    Raises:
        DataError: The text was changed while the recipe runs.
    """
    number = write_lines(lines.text.usable(), path, chosen)
    if lines.digest is not None and sha256(lines.text.path) != lines.digest:
        raise DataError(
            f"{lines.text.path}: was changed while this command runs; restore it and run the same command again, or "
            "start over with --overwrite"
        )
    return number


def _is_chosen_of_rest(index: int, wanted: int, sample: int, of: int) -> bool:
    """Return True for the indices that complete a sample to `wanted` of `of` items; see `is_chosen`."""
    index_in_rest = index - index * sample // of
    return not is_chosen(index, sample, of) and is_chosen(index_in_rest, wanted - sample, of - sample)
