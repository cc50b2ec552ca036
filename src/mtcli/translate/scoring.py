"""Score given translations: log P(y | x) of pairs under a model, by teacher forcing as in training. Rerank by it.

A translation is scored with the tokens into which the tokenizer splits its text. Other token sequences may decode to
the same text. Their probability, which is usually small, is not added.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count, islice

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from mtcli.corpus.batching import Batch, plan_epoch
from mtcli.corpus.cache.encoded_pairs import Ints
from mtcli.errors import DataError, NotFiniteError
from mtcli.model.ensemble import log_mean
from mtcli.model.transformer import Transformer
from mtcli.runtime.device import cores_for
from mtcli.runtime.progress import Progress
from mtcli.text.lines import Pair
from mtcli.text.tokenizer.tokenizer import Tokenizer
from mtcli.translate.backends.pytorch import BATCH_TOKENS, PyTorchBackend
from mtcli.translate.line_warnings import check_tags, warn_about_missing_tags
from mtcli.translate.translation import Candidate, sorted_by_score
from mtcli.translate.windows import MAX_LINE_TOKENS, WINDOW, Window, tagged

LOGITS_CHUNK = 512
"""Target positions whose logits are in memory at a time."""

DEFAULT_WEIGHT = 0.3
"""λ. It has the highest BLEU on the validation pairs of Multi30K, see docs/results.md."""


@dataclass(frozen=True)
class Likelihood:
    """The likelihood of one translation given its source."""

    log_prob: float
    """log P(y | x) in nats."""
    tokens: int
    """Tokens of the translation, with `</s>`."""

    @property
    def mean(self) -> float:
        """log P(y | x) per token, in nats."""
        return self.log_prob / self.tokens


def likelihoods(
    backend: PyTorchBackend, pairs: Iterable[Pair], *, to: str = "", quiet: bool = False
) -> Iterator[Likelihood | None]:
    """Score pairs, in their order. A pair with a blank side is not scored: its result is None.

    Args:
        backend: The model with its tokenizer and device.
        pairs: Source and translation as text. They are read in windows, so there may be any number of them.
        to: Target language of a multilingual model; empty: the one whose tag a source begins with.
        quiet: Show no progress bar.

    Raises:
        DataError: A side has more than `MAX_LINE_TOKENS` tokens.
        UsageError: The model has no such target language.
        NotFiniteError: The model's scores are not finite numbers.
    """
    remaining = iter(pairs)
    with Progress("scoring", unit="pairs", quiet=quiet) as bar:
        for first in count(0, WINDOW):
            window = list(islice(remaining, WINDOW))
            if not window:
                return
            yield from _score_window(backend, window, first, to, bar)


def _score_window(
    backend: PyTorchBackend, window: Sequence[Pair], first: int, to: str, bar: Progress
) -> list[Likelihood | None]:
    """Score the pairs of one window; `first` is the number of the first, from 0."""
    kept = [i for i, (src, tgt) in enumerate(window) if src.strip() and tgt.strip()]
    src_window = _src_window(backend.tokenizer, window, first, to)
    src_ids = [src_window.ids[i] for i in kept]
    tgt_ids = backend.tokenizer.encode_tgt([window[i][1] for i in kept])
    for i, src, tgt in zip(kept, src_ids, tgt_ids, strict=True):
        longest = max(len(src), len(tgt))
        if longest > MAX_LINE_TOKENS:
            raise DataError(
                f"pair {first + i + 1} has a side of {longest:,} tokens; the limit is {MAX_LINE_TOKENS:,}; "
                "remove the pair or split it"
            )
    found: list[Likelihood | None] = [None] * len(window)
    log_probs = log_probs_of(backend, src_ids, tgt_ids, bar.update)
    for i, tgt, log_prob in zip(kept, tgt_ids, log_probs, strict=True):
        found[i] = Likelihood(log_prob, len(tgt) + 1)
    return found


def log_probs_of(
    backend: PyTorchBackend,
    src: Sequence[Sequence[int]],
    tgt: Sequence[Sequence[int]],
    on_scored: Callable[[int], object] = lambda num_pairs: None,
) -> list[float]:
    """Return log P(y | x) of each pair, in nats.

    Args:
        backend: The model.
        src: Source ids of each pair, without `</s>`.
        tgt: Target ids of each pair, without `</s>`.
        on_scored: Called after each batch with its number of pairs.

    Raises:
        NotFiniteError: The model's scores are not finite numbers.
    """
    log_probs = [0.0] * len(src)
    src_lengths = np.array([len(ids) for ids in src], dtype=np.int32)
    tgt_lengths = np.array([len(ids) for ids in tgt], dtype=np.int32)
    batch_tokens = BATCH_TOKENS[backend.device.type]
    batches = plan_epoch(src_lengths, tgt_lengths, batch_tokens=batch_tokens, key=None)

    def score(rows: Ints) -> list[float]:
        return _score_rows(backend, [src[row] for row in rows], [tgt[row] for row in rows])

    scored = cores_for(backend.device).map(score, batches)
    for rows, found in zip(batches, scored, strict=True):
        for row, log_prob in zip(rows, found, strict=True):
            log_probs[row] = log_prob
        on_scored(len(rows))
    return log_probs


def _src_window(tokenizer: Tokenizer, window: Sequence[Pair], first: int, to: str) -> Window:
    """Encode the sources of one window, with the tag of the target language if `to` names it."""
    sources = [src for src, _ in window]
    check_tags(sources, first, tokenizer, to)
    src_window = Window(first, sources, tokenizer.encode_src(sources))
    if to:
        return tagged(src_window, tokenizer, to)
    warn_about_missing_tags(src_window, tokenizer)
    return src_window


def _score_rows(backend: PyTorchBackend, src: Sequence[Sequence[int]], tgt: Sequence[Sequence[int]]) -> list[float]:
    """Return log P(y | x) of each pair of a batch, in smaller batches if a GPU runs out of memory."""
    try:
        return _score_batch(backend, src, tgt)
    except torch.OutOfMemoryError:
        if len(src) == 1:
            raise
    # Outside the `except` block, the traceback no longer keeps the tensors of the failed batch.
    torch.cuda.empty_cache()
    middle = len(src) // 2
    first = _score_rows(backend, src[:middle], tgt[:middle])
    return first + _score_rows(backend, src[middle:], tgt[middle:])


@torch.inference_mode()
def _score_batch(backend: PyTorchBackend, src: Sequence[Sequence[int]], tgt: Sequence[Sequence[int]]) -> list[float]:
    """log P(y | x) of each of B pairs of ids without `</s>`."""
    batch = Batch.of(src, tgt)
    pair_of_target = batch.target_index // batch.tgt_in.size(1)  # (N,)
    batch = batch.to(backend.device)
    token_log_probs = log_mean([_token_log_probs(model, batch) for model in backend.members])
    log_probs = torch.zeros(len(tgt), dtype=torch.float64).index_add_(0, pair_of_target, token_log_probs.cpu().double())
    result: list[float] = log_probs.tolist()
    if not all(map(math.isfinite, result)):
        raise NotFiniteError
    return result


def _token_log_probs(model: Transformer, batch: Batch) -> Tensor:
    """Return the log-probability of each of the N target tokens of a batch, (N,)."""
    hidden = batch.at_targets(model.decode(batch.tgt_in, *model.encode(batch.src)))  # (N, D)
    chunks = zip(torch.split(hidden, LOGITS_CHUNK), torch.split(batch.target, LOGITS_CHUNK), strict=True)
    return -torch.cat([F.cross_entropy(model.output(h), t, reduction="none") for h, t in chunks])


class Reranker:
    """A model of the reverse direction, which reranks the hypotheses of a beam search as in a noisy channel.

    The search of a model finds translations y of a source x with a high P(y | x). Among them, those from which the
    reverse model can predict x omit less of it: Li and Jurafsky 2016; Yee, Dauphin and Auli 2019. The score of a
    hypothesis is

        (log P(y | x) + λ log P(x | y)) / length penalty of y.

    Args:
        reverse: The model that translates from the target language to the source language.
        weight: λ, the weight of its log-probability.
    """

    def __init__(self, reverse: PyTorchBackend, weight: float = DEFAULT_WEIGHT):
        self.reverse = reverse
        self.weight = weight

    def rerank(self, lines: Sequence[str], candidates: Sequence[Sequence[Candidate]]) -> list[list[Candidate]]:
        """Return the candidates of each line in the order of their new scores, the best one first.

        Args:
            lines: The source of each line.
            candidates: The candidates of each line, with different texts.

        Raises:
            NotFiniteError: The scores of the reverse model are not finite numbers.
        """
        tokenizer = self.reverse.tokenizer
        texts = [candidate.text for of_line in candidates for candidate in of_line]
        src_ids = [ids[:MAX_LINE_TOKENS] for ids in tokenizer.encode_src(texts)]
        line_ids = [ids[:MAX_LINE_TOKENS] for ids in tokenizer.encode_tgt(lines)]
        tgt_ids = [ids for ids, of_line in zip(line_ids, candidates, strict=True) for _ in of_line]
        log_probs = iter(log_probs_of(self.reverse, src_ids, tgt_ids))
        return [
            sorted_by_score(self._rescored(candidate, next(log_probs)) for candidate in of_line)
            for of_line in candidates
        ]

    def _rescored(self, candidate: Candidate, reverse_log_prob: float) -> Candidate:
        """Give a candidate the score of both models; `reverse_log_prob` is log P(x | y) in nats."""
        score = (candidate.log_prob + self.weight * reverse_log_prob) / candidate.penalty
        return replace(candidate, reverse_log_prob=reverse_log_prob, score=score)
