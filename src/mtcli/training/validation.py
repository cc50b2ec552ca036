"""Validation and test scores of a model, by the decoder that `mtcli translate` uses."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from mtcli.config.schema import Config
from mtcli.config.scores import DEFAULT, tokenizer_of
from mtcli.corpus.batching import Batch, plan_epoch
from mtcli.corpus.cache.encoded_pairs import Ints
from mtcli.errors import UsageError
from mtcli.evaluation import metrics
from mtcli.evaluation.metrics import Score
from mtcli.runtime.device import cores_for
from mtcli.runtime.wording import counted
from mtcli.text.language_identifier import LanguageIdentifier
from mtcli.text.languages import Direction
from mtcli.text.lines import Pair
from mtcli.training.time.timed_parts import FIRST_PART, Deadline, parts, spread
from mtcli.translate.backends.pytorch import PyTorchBackend
from mtcli.translate.translation import Options
from mtcli.translate.translator import ModelTranslator
from mtcli.translate.windows import Reading

T = TypeVar("T")

BatchLoss = Callable[[Batch], tuple[Tensor, Tensor]]
"""Returns two sums over the target tokens of a batch, in nats: the training loss and the negative log-likelihood."""


@dataclass(frozen=True)
class DirectionFigures:
    """The figures of one direction in a validation; see `Validation`."""

    src: str
    tgt: str
    loss: float
    bleu: float
    chrf: float
    tokenize: str
    pairs: int
    other_language: float | None = None
    """Share of the translations that are in another language of the run; None: not measured."""

    def __str__(self) -> str:
        tokenizer = "" if self.tokenize == DEFAULT else f" ({self.tokenize})"
        return (
            f"{self.src} → {self.tgt}: loss {self.loss:.3f}, BLEU {self.bleu:.1f}{tokenizer}, chrF {self.chrf:.1f}"
            f"{describe_other_language(self.other_language)}, {counted(self.pairs, 'pair')}"
        )


def describe_other_language(share: float | None) -> str:
    """Return the share of translations in another language, for the end of a line; nothing if it is not measured."""
    return "" if share is None else f", {100 * share:.1f}% in another language"


@dataclass(frozen=True)
class CorrectionFigures:
    """How many corrections a model gives."""

    given: int
    """Corrections whose source the model translates into the corrected text; white space may differ."""
    of: int
    """All corrections."""
    others: list[dict[str, str]] = field(default_factory=list)
    """The first of the others: source, correction and translation (`src`, `ref`, `hyp`)."""
    forgets: bool = False
    """The validation pairs have lost more than `train.corrections_limit`."""

    def __str__(self) -> str:
        return f"{self.given:,} of {counted(self.of, 'correction')} given"


@dataclass(frozen=True)
class Validation:
    """The figures of a validation, and sample translations. The figures are means over the directions."""

    loss: float
    """Negative log-likelihood in nats per target token, without label smoothing."""
    bleu: float
    """BLEU of greedy translations, 0 to 100."""
    chrf: float
    """chrF of greedy translations, 0 to 100."""
    samples: list[dict[str, str]]
    """Source, reference and translation (`src`, `ref`, `hyp`) of three pairs, the same in all validations of a run."""
    tokenize: str = DEFAULT
    """sacrebleu's tokenizer for BLEU."""
    pairs: int = 0
    """Pairs that were translated."""
    of: int = 0
    """Validation pairs of the run."""
    directions: list[DirectionFigures] = field(default_factory=list)
    """The figures of each direction."""
    corrections: CorrectionFigures | None = None
    """How many corrections the model gives, if it learns corrections."""

    def __str__(self) -> str:
        tokenizer = "" if self.tokenize == DEFAULT else f" ({self.tokenize})"
        sample = f", {self.pairs:,} of {self.of:,} pairs" if self.pairs < self.of else ""
        mean = _mean_in_words(self.directions)
        given = f", {self.corrections}" if self.corrections else ""
        return (
            f"valid loss {self.loss:.3f}, BLEU {self.bleu:.1f}{tokenizer}, chrF {self.chrf:.1f} (greedy{mean}{sample})"
            f"{given}"
        )


def _mean_in_words(directions: Sequence[Any]) -> str:
    """Return what figures are means of, for a line of the log; empty for one direction."""
    return f", mean of {len(directions)} directions" if len(directions) > 1 else ""


def check_bleu_tokenizer(config: Config) -> None:
    """Check that BLEU of a run can be computed here.

    Raises:
        UsageError: The tokenizer of BLEU is unknown, or needs a package that is not installed.
    """
    try:
        for language in config.data.target_languages:
            metrics.check_tokenizer(tokenizer_of(config, language))
    except UsageError as error:
        raise UsageError(f"train.bleu_tokenizer: {error}") from None


@dataclass(frozen=True)
class PairsToScore:
    """Validation or test pairs, of one direction or several.

    Each direction is scored as if it was alone, and all have the same weight.
    """

    pairs: Sequence[Pair]
    """Their sources have the tags that the model needs."""
    directions: Sequence[Direction]
    """The direction of each pair."""
    identifier: LanguageIdentifier | None = None
    """Tells the languages of the run apart; None: translations in another language are not counted."""

    def __len__(self) -> int:
        return len(self.pairs)

    def in_turn(self) -> "PairsToScore":
        """Return them in another order: the first ones are a sample of all; see `in_turn`."""
        directions = self.directions
        return replace(self, pairs=in_turn(directions, self.pairs), directions=in_turn(directions, directions))

    def translate(
        self, backend: PyTorchBackend, rows: Sequence[int], options: Options, deadline: Deadline | None
    ) -> Iterator[tuple[Direction, list[int], list[str]]]:
        """Translate the sources of some pairs in parts, until the deadline; see `parts`.

        Args:
            backend: The model, in evaluation mode.
            rows: The numbers of the pairs, in the order in which they are translated.
            options: Those of the search.
            deadline: Stop before the last row at this time; None: take all.

        Yields:
            A direction, rows of it, and their translations.
        """
        for part in parts(len(rows), deadline):
            for direction, some in rows_by_direction(rows[part.start : part.stop], self.directions).items():
                sources = [self.pairs[row][0] for row in some]
                reading = Reading(total=len(some), warn=False)
                found = ModelTranslator(backend).translate(sources, options, reading)
                yield direction, some, [translation.text for translation in found]

    def scores(
        self, translations: Mapping[int, str], config: Config, *, confidence: bool = False
    ) -> "list[DirectionScores]":
        """Return the scores of each direction.

        Args:
            translations: The translation of each row that was translated.
            config: The configuration of the run.
            confidence: Compute confidence intervals.
        """
        scored = []
        for direction, rows in rows_by_direction(sorted(translations), self.directions).items():
            hypotheses = [translations[row] for row in rows]
            references = [self.pairs[row][1] for row in rows]
            tokenize = tokenizer_of(config, direction.tgt)
            bleu, chrf = metrics.score(
                hypotheses, [references], metrics=("bleu", "chrf"), tokenize=tokenize, confidence=confidence
            )
            others = None
            if self.identifier is not None:
                sources = [self.pairs[row][0] for row in rows]
                others = self.identifier.share_of_others(hypotheses, sources, direction.tgt)
            scored.append(DirectionScores(direction, len(rows), bleu, chrf, tokenize, others))
        return scored


class DirectionScores(NamedTuple):
    """The scores of one direction."""

    direction: Direction
    pairs: int
    bleu: Score
    chrf: Score
    tokenize: str
    """sacrebleu's tokenizer for BLEU."""
    other_language: float | None
    """See `DirectionFigures`."""


def rows_by_direction(rows: Iterable[int], directions: Sequence[Direction]) -> dict[Direction, list[int]]:
    """Return those of the rows that are of each direction, in their order.

    Args:
        rows: The rows.
        directions: The direction of every row.
    """
    found: dict[Direction, list[int]] = {}
    for row in rows:
        found.setdefault(directions[row], []).append(row)
    return found


def in_turn(directions: Sequence[Direction], items: Sequence[T]) -> list[T]:
    """Return items in another order: from each direction in turn, so that the first ones are a sample of all.

    Args:
        directions: The direction of each item.
        items: The items.
    """
    of_each = [
        spread([items[row] for row in rows]) for rows in rows_by_direction(range(len(items)), directions).values()
    ]
    placed = [(place, number, item) for number, of_one in enumerate(of_each) for place, item in enumerate(of_one)]
    return [item for _, _, item in sorted(placed, key=lambda each: each[:2])]


def validate(
    backend: PyTorchBackend,
    pairs: PairsToScore,
    config: Config,
    batch_loss: BatchLoss,
    max_pairs: int,
    deadline: Deadline | None = None,
) -> Validation:
    """Score a model on validation pairs. It translates greedily, which is faster than the beam search of `mtcli eval`.

    Args:
        backend: The model, in evaluation mode.
        pairs: The validation pairs, at least one.
        config: The configuration of the run.
        batch_loss: The loss of a batch.
        max_pairs: Take at most this many pairs, from the first one on.
        deadline: Stop with fewer pairs at this time; None: take all.
    """
    greedy = replace(Options.of(config.decode), beam_size=1)
    hypotheses: dict[int, str] = {}
    nll: dict[Direction, float] = {}
    tokens: dict[Direction, int] = {}
    for direction, rows, texts in pairs.translate(backend, range(min(max_pairs, len(pairs))), greedy, deadline):
        hypotheses.update(zip(rows, texts, strict=True))
        some = [pairs.pairs[row] for row in rows]
        part_nll, part_tokens = _negative_log_likelihood(backend, some, batch_loss, config.train.batch_tokens)
        nll[direction] = nll.get(direction, 0.0) + part_nll
        tokens[direction] = tokens.get(direction, 0) + part_tokens
    figures = [
        DirectionFigures(
            *each.direction,
            loss=nll[each.direction] / tokens[each.direction],
            bleu=each.bleu.value,
            chrf=each.chrf.value,
            tokenize=each.tokenize,
            pairs=each.pairs,
            other_language=each.other_language,
        )
        for each in pairs.scores(hypotheses, config)
    ]
    done = len(hypotheses)
    # With a deadline, other validations may have fewer pairs, but all have those of the first part.
    always_there = done if deadline is None else min(FIRST_PART, done)
    sampled = sorted({0, always_there // 2, always_there - 1})
    return Validation(
        loss=_mean(each.loss for each in figures),
        bleu=_mean(each.bleu for each in figures),
        chrf=_mean(each.chrf for each in figures),
        samples=[{"src": pairs.pairs[row][0], "ref": pairs.pairs[row][1], "hyp": hypotheses[row]} for row in sampled],
        tokenize=", ".join(dict.fromkeys(each.tokenize for each in figures)),
        pairs=done,
        of=len(pairs),
        directions=figures,
    )


def _mean(values: Iterable[float]) -> float:
    every = list(values)
    return sum(every) / len(every)


@dataclass(frozen=True)
class TestScores:
    """The scores on the test pairs. The scores are means over the directions."""

    pairs: int
    """Pairs that were scored."""
    of: int
    """Test pairs of the run."""
    beam_size: int
    scores: list[dict[str, Any]]
    """Each with `name`, `score`, `confidence` (the bootstrap's mean and half of its 95% interval) and `signature`."""
    directions: list[dict[str, Any]] = field(default_factory=list)
    """`src`, `tgt`, `pairs`, `scores` and `other_language` (see `DirectionFigures`) of each direction."""

    def __str__(self) -> str:
        part = f"a sample of {self.pairs:,} of " if self.pairs < self.of else ""
        mean = _mean_in_words(self.directions)
        return f"{part}{counted(self.of, 'test pair')}{mean}, beam {self.beam_size}: {describe_scores(self.scores)}"


def describe_scores(scores: Sequence[dict[str, Any]]) -> str:
    """Return scores in words: `BLEU 12.3, chrF 34.5`."""
    return ", ".join(f"{score['name']} {score['score']:.1f}" for score in scores)


def score_test(
    backend: PyTorchBackend, pairs: PairsToScore, config: Config, max_pairs: int, deadline: Deadline | None = None
) -> TestScores:
    """Score a model on test pairs. The scores are those of `mtcli eval --bleu --chrf --confidence`.

    Args:
        backend: The model, in evaluation mode.
        pairs: The test pairs, at least one.
        config: The configuration of the run.
        max_pairs: Take at most this many pairs, a random sample.
        deadline: Stop with a smaller sample at this time; None: take all.
    """
    options = Options.of(config.decode)
    rows = list(range(len(pairs)))
    if deadline or max_pairs < len(rows):
        rows = in_turn(pairs.directions, rows)[:max_pairs]
    translated: dict[int, str] = {}
    for _, some, texts in pairs.translate(backend, rows, options, deadline):
        translated.update(zip(some, texts, strict=True))
    directions = [
        {
            "src": each.direction.src,
            "tgt": each.direction.tgt,
            "pairs": each.pairs,
            "scores": [_recorded_score(each.bleu), _recorded_score(each.chrf)],
            "other_language": each.other_language,
        }
        for each in pairs.scores(translated, config, confidence=True)
    ]
    means = [mean_score(of_metric) for of_metric in zip(*(each["scores"] for each in directions), strict=True)]
    return TestScores(len(translated), len(pairs), options.beam_size, means, directions)


def _recorded_score(score: Score) -> dict[str, Any]:
    """Return a score as `TestScores` has it."""
    return {"name": score.name, "score": score.value, "confidence": score.confidence, "signature": score.signature}


def mean_score(scores: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the mean of a score over the directions.

    Its interval is that of the mean of independent test sets. Its signature is that of all, if they have the same.

    Args:
        scores: The score of each direction, see `TestScores.scores`.
    """
    number = len(scores)
    signatures = {score["signature"] for score in scores}
    confidences = [score["confidence"] for score in scores if score["confidence"] is not None]
    confidence = None
    if len(confidences) == number:
        means, halves = zip(*confidences, strict=True)
        confidence = (sum(means) / number, math.sqrt(sum(half * half for half in halves)) / number)
    return {
        "name": scores[0]["name"],
        "score": sum(score["score"] for score in scores) / number,
        "confidence": confidence,
        "signature": signatures.pop() if len(signatures) == 1 else "",
    }


def _negative_log_likelihood(
    backend: PyTorchBackend, pairs: Sequence[Pair], batch_loss: BatchLoss, batch_tokens: int
) -> tuple[float, int]:
    """Return the negative log-likelihood of the targets in nats, and their number of tokens, `</s>` included."""
    src = backend.tokenizer.encode_src([source for source, _ in pairs])
    tgt = backend.tokenizer.encode_tgt([target for _, target in pairs])
    src_lengths = np.array([len(ids) for ids in src], dtype=np.int32)
    tgt_lengths = np.array([len(ids) for ids in tgt], dtype=np.int32)

    @torch.no_grad()
    def sum_of(rows: Ints) -> Tensor:
        batch = Batch.of([src[row] for row in rows], [tgt[row] for row in rows])
        _, nll = batch_loss(batch.to(backend.device))
        return nll

    batches = plan_epoch(src_lengths, tgt_lengths, batch_tokens=batch_tokens, key=None)
    sums = torch.stack(list(cores_for(backend.device).map(sum_of, batches)))
    tokens = sum(map(len, tgt)) + len(tgt)  # with `</s>`
    return sum(sums.tolist()), tokens  # read once: reading each sum would stop the GPU each time
