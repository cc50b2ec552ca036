"""How good the model is now: loss, BLEU and chrF on the validation pairs, by the decoder that `translate` uses."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mtcli.config import writing_systems
from mtcli.config.schema import Config
from mtcli.data.batching import Batch, plan_epoch
from mtcli.data.corpus import Pair
from mtcli.evaluation import metrics
from mtcli.inference.pytorch_backend import Options, Translator
from mtcli.training.deadline import Deadline, parts, spread

BatchLoss = Callable[[Batch], tuple[Tensor, Tensor]]
"""Sums over a batch's target pieces: the training loss, and the negative log-likelihood in nats."""


@dataclass(frozen=True)
class Validation:
    """The figures, and three sentences as the model translates them."""

    loss: float
    """Negative log-likelihood in nats a target piece, without label smoothing."""
    bleu: float
    chrf: float
    samples: list[dict[str, str]]
    """`src`, `ref` and `hyp` of the first, the middle and the last pair."""
    tokenize: str = writing_systems.DEFAULT
    """sacrebleu's tokenizer for BLEU."""
    pairs: int = 0
    """How many pairs were translated."""
    of: int = 0
    """How many validation pairs there are."""

    def __str__(self) -> str:
        tokenizer = "" if self.tokenize == writing_systems.DEFAULT else f" ({self.tokenize})"
        sample = f", {self.pairs:,} of {self.of:,} pairs" if self.pairs < self.of else ""
        return f"valid loss {self.loss:.3f}, BLEU {self.bleu:.1f}{tokenizer}, chrF {self.chrf:.1f} (greedy{sample})"


def validate(
    translator: Translator,
    pairs: list[Pair],
    config: Config,
    batch_loss: BatchLoss,
    most: int,
    deadline: Deadline | None = None,
) -> Validation:
    """Score a model on raw pairs, greedily, for the sake of speed; `mtcli eval` searches with the beam.

    Args:
        translator: The model, in evaluation mode.
        pairs: At least one.
        config: That of the run; its beam is not used.
        batch_loss: On the model's device.
        most: How many of the pairs to translate, from the first on.
        deadline: When to stop with fewer; None: `most` are translated.
    """
    greedy = replace(Options.of(config.decode), beam_size=1)
    tokenize = writing_systems.tokenizer_of(config)
    hypotheses: list[str] = []
    loss, tokens = 0.0, 0
    for part in parts(min(most, len(pairs)), deadline):
        some = pairs[part.start : part.stop]
        translations = translator.translate([src for src, _ in some], greedy, total=len(some), warn=False)
        hypotheses += [t.text for t in translations]
        part_loss, part_tokens = _loss(translator, some, batch_loss, config.train.batch_tokens)
        loss += part_loss
        tokens += part_tokens
    sources = [src for src, _ in pairs[: len(hypotheses)]]
    references = [tgt for _, tgt in pairs[: len(hypotheses)]]
    scores = metrics.score(hypotheses, [references], metrics=("bleu", "chrf"), tokenize=tokenize)
    bleu, chrf = (score.value for score in scores)
    shown = sorted({0, len(sources) // 2, len(sources) - 1})
    samples = [{"src": sources[i], "ref": references[i], "hyp": hypotheses[i]} for i in shown]
    return Validation(loss / tokens, bleu, chrf, samples, tokenize, len(sources), len(pairs))


@dataclass(frozen=True)
class TestScores:
    """The figures that a run is judged by."""

    pairs: int
    of: int
    """How many test pairs there are."""
    beam_size: int
    scores: list[dict[str, Any]]
    """`name`, `score`, `confidence` (the bootstrap's mean and half of its 95% interval) and `signature` of each."""

    def __str__(self) -> str:
        figures = ", ".join(f"{one['name']} {one['score']:.1f}" for one in self.scores)
        part = f"a sample of {self.pairs:,} of " if self.pairs < self.of else ""
        return f"{part}{self.of:,} test pairs, beam {self.beam_size}: {figures}"


def score_test(
    translator: Translator, pairs: list[Pair], config: Config, most: int, deadline: Deadline | None = None
) -> TestScores:
    """BLEU and chrF on raw pairs, at least one, as `mtcli eval --bleu --chrf --confidence` has them.

    Args:
        translator: The model, in evaluation mode.
        pairs: All of them.
        config: That of the run.
        most: How many to score; fewer than all are a sample.
        deadline: When to stop, with a smaller sample; None: `most` are scored.
    """
    options = Options.of(config.decode)
    rows = list(range(len(pairs)))
    if deadline or most < len(rows):
        rows = spread(rows)[:most]
    translated: dict[int, str] = {}
    for part in parts(len(rows), deadline):
        some = rows[part.start : part.stop]
        translations = translator.translate([pairs[row][0] for row in some], options, total=len(some), warn=False)
        translated.update(zip(some, (t.text for t in translations), strict=True))
    rows = sorted(translated)
    hypotheses = [translated[row] for row in rows]
    references = [[pairs[row][1] for row in rows]]
    tokenize = writing_systems.tokenizer_of(config)
    found = metrics.score(hypotheses, references, metrics=("bleu", "chrf"), confidence=True, tokenize=tokenize)
    scores = [{"name": s.name, "score": s.value, "confidence": s.confidence, "signature": s.signature} for s in found]
    return TestScores(len(rows), len(pairs), options.beam_size, scores)


@torch.no_grad()
def _loss(translator: Translator, pairs: list[Pair], batch_loss: BatchLoss, batch_tokens: int) -> tuple[float, int]:
    """The summed negative log-likelihood of the pairs' targets, and how many tokens these have."""
    src = translator.tokenizer.encode_src([src for src, _ in pairs])
    tgt = translator.tokenizer.encode_tgt([tgt for _, tgt in pairs])
    lengths = (np.array([len(row) for row in side], dtype=np.int32) for side in (src, tgt))
    total, tokens = 0.0, 0
    for rows in plan_epoch(*lengths, batch_tokens=batch_tokens, key=None):
        batch = Batch.of([src[r] for r in rows], [tgt[r] for r in rows])
        total += float(batch_loss(batch.to(translator.device))[1])
        tokens += batch.tokens
    return total, tokens
