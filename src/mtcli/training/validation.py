"""Validation and test scores of a model, by the decoder that `mtcli translate` uses."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mtcli.config.schema import Config
from mtcli.config.scores import DEFAULT, tokenizer_of
from mtcli.corpus.batching import Batch, plan_epoch
from mtcli.corpus.cache.encoded_pairs import Ints
from mtcli.errors import UsageError
from mtcli.evaluation import metrics
from mtcli.runtime.device import cores_for
from mtcli.runtime.wording import counted
from mtcli.text.lines import Pair
from mtcli.training.time.timed_parts import FIRST_PART, Deadline, parts, spread
from mtcli.translate.backends.pytorch import PyTorchBackend
from mtcli.translate.translation import Options
from mtcli.translate.translator import Translator

BatchLoss = Callable[[Batch], tuple[Tensor, Tensor]]
"""Returns two sums over the target tokens of a batch, in nats: the training loss and the negative log-likelihood."""


@dataclass(frozen=True)
class Validation:
    """The figures of a validation, and three sample translations."""

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

    def __str__(self) -> str:
        tokenizer = "" if self.tokenize == DEFAULT else f" ({self.tokenize})"
        sample = f", {self.pairs:,} of {self.of:,} pairs" if self.pairs < self.of else ""
        return f"valid loss {self.loss:.3f}, BLEU {self.bleu:.1f}{tokenizer}, chrF {self.chrf:.1f} (greedy{sample})"


def check_bleu_tokenizer(config: Config) -> None:
    """Check that BLEU of a run can be computed here.

    Raises:
        UsageError: The tokenizer of BLEU is unknown, or needs a package that is not installed.
    """
    try:
        metrics.check_tokenizer(tokenizer_of(config))
    except UsageError as error:
        raise UsageError(f"train.bleu_tokenizer: {error}") from None


def validate(
    backend: PyTorchBackend,
    pairs: list[Pair],
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
    tokenize = tokenizer_of(config)
    hypotheses: list[str] = []
    nll = 0.0
    tokens = 0
    for part in parts(min(max_pairs, len(pairs)), deadline):
        some = pairs[part.start : part.stop]
        translations = Translator(backend).translate([src for src, _ in some], greedy, total=len(some), warn=False)
        hypotheses += [translation.text for translation in translations]
        part_nll, part_tokens = _negative_log_likelihood(backend, some, batch_loss, config.train.batch_tokens)
        nll += part_nll
        tokens += part_tokens
    sources = [src for src, _ in pairs[: len(hypotheses)]]
    references = [tgt for _, tgt in pairs[: len(hypotheses)]]
    bleu, chrf = metrics.score(hypotheses, [references], metrics=("bleu", "chrf"), tokenize=tokenize)
    # With a deadline, other validations may have fewer pairs, but all have those of the first part.
    always_there = len(sources) if deadline is None else min(FIRST_PART, len(sources))
    sampled = sorted({0, always_there // 2, always_there - 1})
    samples = [{"src": sources[i], "ref": references[i], "hyp": hypotheses[i]} for i in sampled]
    return Validation(
        loss=nll / tokens,
        bleu=bleu.value,
        chrf=chrf.value,
        samples=samples,
        tokenize=tokenize,
        pairs=len(sources),
        of=len(pairs),
    )


@dataclass(frozen=True)
class TestScores:
    """The scores on the test pairs."""

    pairs: int
    """Pairs that were scored."""
    of: int
    """Test pairs of the run."""
    beam_size: int
    scores: list[dict[str, Any]]
    """Each with `name`, `score`, `confidence` (the bootstrap's mean and half of its 95% interval) and `signature`."""

    def __str__(self) -> str:
        figures = ", ".join(f"{score['name']} {score['score']:.1f}" for score in self.scores)
        part = f"a sample of {self.pairs:,} of " if self.pairs < self.of else ""
        return f"{part}{counted(self.of, 'test pair')}, beam {self.beam_size}: {figures}"


def score_test(
    backend: PyTorchBackend, pairs: list[Pair], config: Config, max_pairs: int, deadline: Deadline | None = None
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
        rows = spread(rows)[:max_pairs]
    translated: dict[int, str] = {}
    for part in parts(len(rows), deadline):
        some = rows[part.start : part.stop]
        translations = Translator(backend).translate(
            [pairs[row][0] for row in some], options, total=len(some), warn=False
        )
        translated.update(zip(some, (translation.text for translation in translations), strict=True))
    rows = sorted(translated)
    hypotheses = [translated[row] for row in rows]
    references = [[pairs[row][1] for row in rows]]
    tokenize = tokenizer_of(config)
    scored = metrics.score(hypotheses, references, metrics=("bleu", "chrf"), confidence=True, tokenize=tokenize)
    scores = [
        {"name": score.name, "score": score.value, "confidence": score.confidence, "signature": score.signature}
        for score in scored
    ]
    return TestScores(len(rows), len(pairs), options.beam_size, scores)


def _negative_log_likelihood(
    backend: PyTorchBackend, pairs: list[Pair], batch_loss: BatchLoss, batch_tokens: int
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
