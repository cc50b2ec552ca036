"""The training pairs of the stages: real pairs, monolingual text, and the synthetic pairs that are made of it.

Pairs are held out for all stages alike, and synthetic pairs are merged without repetitions.
"""

import hashlib
import json
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

from mtcli.config.schema import Config
from mtcli.corpus.cache.build import by_weight
from mtcli.corpus.cache.corpora import Corpora
from mtcli.corpus.cache.training_sources import by_temperature
from mtcli.corpus.held_out import HELD_OUT_SPLITS, source_key
from mtcli.corpus.readers.pairs import read_pairs
from mtcli.errors import DataError
from mtcli.recipes.commands import StageCorpus, augment_command, weighted
from mtcli.recipes.improve.budget import SAMPLE_LINES, SYNTHETIC_PER_PAIR, weight_of_pairs
from mtcli.recipes.improve.real_pairs import divide_pairs, numbers_of
from mtcli.recipes.improve.request import GivenText, ImproveRequest, RealCorpus
from mtcli.recipes.improve.stages import Stages, tokenizer_command
from mtcli.recipes.monolingual import Record, Text, warning_about, write_lines, write_pairs, write_records
from mtcli.runtime.wording import counted
from mtcli.text.languages import Direction
from mtcli.text.lines import Counts, Pair, read_lines
from mtcli.text.tokenizer.tokenizer import BACK_TRANSLATION_TAG
from mtcli.translate.streams import report_counts

REPEATED = "repeated or real pair"
HELD_OUT = "held-out sentence"

log = logging.getLogger(__name__)

LANGUAGE_SAMPLE = 20_000
"""Sentences of the pairs, and lines of a text, whose languages are compared."""


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

    written = write_records(kept(), path)
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
        self.sizes: dict[str, Any] = stages.decide("pairs", self._write_pairs)
        """Number of pairs, see `divide_pairs`."""

    def _write_pairs(self) -> dict[str, Any]:
        """Write the training pairs, and the held-out pairs that all stages use, and return their numbers.

        Raises:
            DataError: The pairs cannot be read, or are too few.
        """
        sizes, counts = divide_pairs(self.request, write_pairs)
        report_counts(counts)
        for reason, number in counts.skipped.items():
            log.info("skipped %s: %s", counted(number, "pair"), reason)
        train = counted(sum(sizes["train"]), "pair")
        valid, test = (sizes[name] if isinstance(sizes[name], int) else sum(sizes[name]) for name in HELD_OUT_SPLITS)
        log.info("%s for training, %s for validation, %s for the test", train, f"{valid:,}", f"{test:,}")
        return sizes

    @property
    def num_pairs(self) -> int:
        """Number of real training pairs."""
        return sum(self.sizes["train"])

    @property
    def pairs_per_epoch(self) -> float:
        """Number of real training pairs that an epoch of the plain model draws, by the weights of their corpora."""
        return sum(map(self._drawn_of, self.request.directions))

    @property
    def num_valid(self) -> list[tuple[str, int]]:
        """The target language and the number of validation pairs of each direction."""
        return numbers_of(self.request, self.sizes["valid"])

    def num_pairs_of(self, direction: Direction) -> int:
        """Return the number of real training pairs of a direction."""
        return sum(number for corpus, number in self._corpora_of(direction))

    def _drawn_of(self, direction: Direction) -> float:
        """Return the number of real pairs of a direction that an epoch of the plain model draws."""
        return sum(corpus.weight * number for corpus, number in self._corpora_of(direction))

    def _corpora_of(self, direction: Direction) -> list[tuple[RealCorpus, int]]:
        """Return the real training pairs of a direction, and their numbers."""
        numbered = zip(self.request.corpora, self.sizes["train"], strict=True)
        return [(corpus, number) for corpus, number in numbered if corpus.direction == direction]

    # ---- real pairs ----

    def specs(self, synthetic: Mapping[Direction, Synthetic], *, forward: bool) -> list[StageCorpus]:
        """Return the corpora of a training, with their weights.

        Args:
            synthetic: Pairs to add, by their direction. If there are many, the real pairs of the direction have a
                larger weight.
            forward: The model translates in the directions of the request. Otherwise tags are removed from sources,
                which are the targets of this model: it would learn to write tags.
        """
        added = {direction: pairs for direction, pairs in synthetic.items() if pairs.number}
        found = []
        for corpus in self.request.corpora:
            direction = corpus.direction
            number = added[direction].number if direction in added else 0
            factor = weight_of_pairs(self._drawn_of(direction), number) if number else 1.0
            path = corpus.path if forward else self._untagged(corpus)
            found.append(StageCorpus(direction, weighted(path, factor * corpus.weight)))
        found += [StageCorpus(direction, str(pairs.path)) for direction, pairs in added.items()]
        return found if forward else [StageCorpus(direction.reversed(), spec) for direction, spec in found]

    def _untagged(self, corpus: RealCorpus) -> Path:
        """Return a file with the pairs of a corpus whose sources have no tags, which may be the same file."""
        path = corpus.path.with_name(f"{corpus.path.stem}-untagged.jsonl")
        direction = corpus.direction

        def write() -> bool:
            has_tags = any(without_tag(src) != src for src, _ in read_pairs(str(corpus.path), *direction))
            if has_tags:
                pairs = read_pairs(str(corpus.path), *direction)
                write_pairs(path, ((without_tag(src), tgt) for src, tgt in pairs), direction)
            return has_tags

        return path if self.stages.decide(f"{corpus.path.name} has tags", write) else corpus.path

    def side(self, direction: Direction, *, source: bool) -> Lines:
        """Return one side of the training pairs of a direction as text."""
        path = _text_file(self.request, "train", direction, source)

        def write() -> int:
            corpora = [corpus for corpus, _ in self._corpora_of(direction)]
            pairs = (pair for corpus in corpora for pair in read_pairs(str(corpus.path), *direction))
            return write_lines((without_tag(src) if source else tgt for src, tgt in pairs), path)

        number = self.stages.decide(f"pairs as text: {path.name}", write)
        return Lines(Text(path), number)

    @cached_property
    def _held_out(self) -> frozenset[str]:
        """The keys (see `source_key`) of both sides of all held-out pairs."""
        pairs: Iterator[Pair] = chain.from_iterable(
            read_pairs(str(self.request.held_out_file(name, direction)), *direction)
            for direction in self.request.directions
            for name in HELD_OUT_SPLITS
        )
        return frozenset(source_key(text) for pair in pairs for text in pair)

    # ---- monolingual text ----

    def lines_of(self, given: GivenText) -> Lines:
        """Return the usable lines of a monolingual text.

        Raises:
            DataError: It cannot be read, or has no usable line.
        """
        config = self.request.config
        text = Text(given.path, self._held_out, config.data.replace)
        return Lines(text, self.stages.decide(given.option, lambda: _check_text(text, config, given)))

    # ---- tokenizer ----

    def train_tokenizer(self) -> None:
        """Train one tokenizer for all models, unless the request names one or wants separate vocabularies.

        Its text is both sides of the training pairs, and of each monolingual text at most as many lines as an epoch
        has synthetic pairs. So the size of the vocabulary suits the pairs, and no language outweighs the other. With
        several directions, each has the share of the text that it has in an epoch.
        """
        request = self.request
        if not request.trains_tokenizer:
            return
        sizes = [(number, 1.0) for number in self.sizes["train"]]
        directions = [corpus.direction for corpus in request.corpora]
        sampled = by_temperature(sizes, directions, request.config.data.temperature)
        weights = {direction: weight for direction, (_, weight) in zip(directions, sampled, strict=True)}
        for direction in _read_directions(request):
            for source in (True, False):
                self._write_side_for_tokenizer(direction, weights[direction], source=source)
        for text in request.texts:
            pairs = sum(
                weights[each] * self.num_pairs_of(each)
                for each, own in request.texts_of(is_source=text.is_source).items()
                if own == text
            )
            lines = self.lines_of(text)
            path = _given_text_file(request, text)
            chosen = partial(is_chosen, wanted=min(lines.number, int(SYNTHETIC_PER_PAIR * pairs)), of=lines.number)
            self.stages.decide(f"text for the tokenizer: {path.name}", partial(_write_chosen, lines, path, chosen))
        self.stages.run("tokenizer", lambda: tokenizer_command(request, tokenizer_texts(request)))

    def _write_side_for_tokenizer(self, direction: Direction, weight: float, *, source: bool) -> None:
        """Write one side of the pairs of a direction, each line as often as the weight of the direction says."""
        lines = self.side(direction, source=source)
        path = _side_for_tokenizer(self.request, direction, source)
        if path != lines.text.path:
            numbered = ((0, line) for line in lines.text.usable())
            texts = (text for _, text in by_weight(numbered, [weight]))
            self.stages.decide(f"text for the tokenizer: {path.name}", lambda: write_lines(texts, path))

    # ---- synthetic pairs ----

    def translate(
        self,
        name: str,
        model: str,
        direction: Direction,
        lines: Lines,
        how: Sequence[str],
        *,
        at_most: int,
        amount: float,
    ) -> list[Path]:
        """Make synthetic pairs of lines that are chosen at even distances.

        With a budget of time, a sample is translated first. Its speed decides how many lines follow.

        Args:
            name: The name of the files, such as `synthetic-1/back`.
            model: The model that translates.
            direction: The direction in which it translates.
            lines: The text.
            how: Options of `mtcli augment`.
            at_most: Largest number of lines.
            amount: Seconds for all of it, if the budget is a time.

        Returns:
            The files of pairs.
        """
        wanted = min(lines.number, at_most)
        sample = min(wanted, SAMPLE_LINES) if self.stages.budget.is_time else wanted
        in_sample = partial(is_chosen, wanted=sample, of=lines.number)
        parts = [self._translate_part(f"{name}-1", model, direction, lines, in_sample, how)]

        def affordable() -> int:
            return min(wanted, int(sample * amount / self.stages.recipe.seconds_of(f"{name}-1")))

        number = self.stages.decide(f"{name}: lines", affordable) if sample < wanted else sample
        if number > sample:
            in_rest = partial(_is_chosen_of_rest, wanted=number, sample=sample, of=lines.number)
            parts.append(self._translate_part(f"{name}-2", model, direction, lines, in_rest, how))
        translated = sum(number for _, number in parts)
        log.info("%s: translated %s of %s", name, f"{translated:,}", counted(lines.number, "line"))
        return [pairs for pairs, _ in parts]

    def _translate_part(
        self,
        name: str,
        model: str,
        direction: Direction,
        lines: Lines,
        chosen: Callable[[int], bool],
        how: Sequence[str],
    ) -> tuple[Path, int]:
        """Translate the chosen lines, and return the file of pairs and the number of lines. See `translate`."""
        text = self.request.out / f"{name}.txt"
        pairs = self.request.out / f"{name}.jsonl"
        number = self.stages.decide(f"{name}: text", partial(_write_chosen, lines, text, chosen))
        languages = direction if self.request.has_several else None
        command = augment_command([model], text, pairs, how, languages, self.request.device)
        self.stages.run(name, lambda: command)
        return pairs, number

    def merge(self, name: str, files: Mapping[Direction, Sequence[Path]]) -> dict[Direction, Synthetic]:
        """Write the synthetic pairs of several files once each, without real pairs and held-out sentences.

        Args:
            name: The name of the new file, such as `synthetic-1/pairs`; see `ImproveRequest.named`.
            files: What `translate` returned, by the direction of the pairs.
        """
        found = {}
        for direction, own in files.items():
            if own:
                path = self.request.out / f"{self.request.named(name, direction)}.jsonl"
                work = partial(self._merge, direction, own, path)
                found[direction] = Synthetic(path, self.stages.decide(self.request.named(name, direction), work))
        return found

    def _merge(self, direction: Direction, files: Sequence[Path], path: Path) -> int:
        """Write one file of `merge`, and return the number of its pairs."""
        real = [corpus.path for corpus, _ in self._corpora_of(direction)]
        written, dropped = merge(files, real, path, *direction, self._held_out)
        name = path.relative_to(self.request.out).with_suffix("")
        for reason, number in dropped.items():
            log.info("%s: dropped %s: %s", name, counted(number, "pair"), reason)
        log.info("%s: %s", name, counted(written, "synthetic pair"))
        return written


def _read_directions(request: ImproveRequest) -> list[Direction]:
    """Return the directions in which corpora are read. With both directions, the others have the same text."""
    directed = request.config.data.directed
    return list(dict.fromkeys(corpus.direction for corpus in directed if not corpus.is_reversed))


def tokenizer_texts(request: ImproveRequest) -> list[Path]:
    """Return the files that the tokenizer of all models is trained on; see `Material.train_tokenizer`."""
    sides = [
        _side_for_tokenizer(request, direction, source)
        for direction in _read_directions(request)
        for source in (True, False)
    ]
    return sides + [_given_text_file(request, text) for text in request.texts]


def _side_for_tokenizer(request: ImproveRequest, direction: Direction, source: bool) -> Path:
    return _text_file(request, "sampled" if request.has_several else "train", direction, source)


def _text_file(request: ImproveRequest, name: str, direction: Direction, source: bool) -> Path:
    """Return the file for one side of the pairs of a direction."""
    language = direction.src if source else direction.tgt
    return request.pairs / f"{request.named(name, direction)}.{language}.txt"


def _given_text_file(request: ImproveRequest, text: GivenText) -> Path:
    """Return the file for some lines of a monolingual text."""
    return request.pairs / f"text.{text.language}.txt"


def check_material(request: ImproveRequest) -> list[tuple[str, int]]:
    """Check the pairs and texts of a request, and write nothing.

    Returns:
        The target language and the number of validation pairs of each direction.

    Raises:
        DataError: They cannot be read, or are too few.
    """
    sizes, _ = divide_pairs(request, lambda path, pairs, direction: sum(1 for _ in pairs))
    for given in request.texts:
        _check_text(Text(given.path, replace=request.config.data.replace), request.config, given)
    return numbers_of(request, sizes["valid"])


def _check_text(text: Text, config: Config, given: GivenText) -> int:
    """Count the usable lines of a text, report the others, and warn if its language seems to be wrong.

    Args:
        text: The text.
        config: Names the training pairs, with which its language is compared.
        given: The option and the language.

    Raises:
        DataError: It cannot be read, or has no usable line.
    """
    number = sum(1 for _ in text.usable(report=True))
    if not number:
        raise DataError(f"{given.option} {text.path}: has no usable line; give text with one sentence per line")
    size = min(number, LANGUAGE_SAMPLE)
    sample = [line for index, line in enumerate(text.usable()) if is_chosen(index, size, number)]
    corpora = Corpora(config)
    numbers = [row for row, direction in enumerate(corpora.directions) if _is_side(given, direction)]
    with closing(corpora.read("reading", Counts(), numbers)) as numbered:
        pairs = [pair for _, pair in islice(numbered, LANGUAGE_SAMPLE)]
    sides = list(zip(*pairs, strict=True))
    own, other = sides if given.is_source else reversed(sides)
    problem = warning_about(sample, own, other, given.language)
    if problem:
        log.warning("%s %s: %s", given.option, text.path, problem)
    return number


def _is_side(text: GivenText, direction: Direction) -> bool:
    """Return True if a text is in the source or in the target language of a direction, whichever it is for."""
    return text.language == (direction.src if text.is_source else direction.tgt)


def _write_chosen(lines: Lines, path: Path, chosen: Callable[[int], bool]) -> int:
    """Write the chosen lines of a text, and return their number."""
    return write_lines((line for index, line in enumerate(lines.text.usable()) if chosen(index)), path)


def _is_chosen_of_rest(index: int, wanted: int, sample: int, of: int) -> bool:
    """Return True for the indices that complete a sample to `wanted` of `of` items; see `is_chosen`."""
    index_in_rest = index - index * sample // of
    return not is_chosen(index, sample, of) and is_chosen(index_in_rest, wanted - sample, of - sample)
