"""Greedy search and sampling: one token after the other, without going back."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from mtcli.errors import NotFiniteError
from mtcli.model.ensemble import SearchModel
from mtcli.model.fast.cpu_kernels import argmax
from mtcli.runtime.device import copy_to
from mtcli.search.constraints import Constraints, Ids, Limits
from mtcli.search.step import Hypothesis, rows_to_keep
from mtcli.text.special_tokens import BOS, EOS

Choose = Callable[[Tensor, Ids], Tensor]
"""Chooses the next tokens (B,) from log-probabilities (B, V) and the sentence of each row (B,)."""

FINISHED = -1
"""Stands for the sentence of a row whose translation is finished."""


def most_likely(log_p: Tensor, sentences: Ids) -> Tensor:
    """Return the most likely token of each row; a `Choose`."""
    return argmax(log_p)


def sampler(temperature: float, top_k: int, generators: Sequence[torch.Generator]) -> Choose:
    """Return a `Choose` that draws from softmax(log_p / temperature).

    Args:
        temperature: Above 0; below 1 it favours likely tokens.
        top_k: Draw from this many most likely tokens; 0: from all.
        generators: One for each sentence, on the CPU, so that what is drawn for it does not depend on the other
            sentences of the batch.

    The `Choose` returns a tensor on the CPU. It raises `NotFiniteError` if a probability is NaN.
    """

    def choose(log_p: Tensor, sentences: Ids) -> Tensor:
        if 0 < top_k < log_p.size(-1):
            threshold = log_p.topk(top_k, dim=-1).values[:, -1:]
            log_p = log_p.masked_fill(log_p < threshold, -torch.inf)
        p = (log_p / temperature).softmax(dim=-1).cpu()
        if bool(p[:, 0].isnan().any()):  # a softmax with one NaN has only NaN
            raise NotFiniteError
        rows = zip(p, sentences.tolist(), strict=True)
        return torch.cat([torch.multinomial(row, 1, generator=generators[sentence]) for row, sentence in rows])

    return choose


@torch.inference_mode()
def greedy_search(model: SearchModel, src: Tensor, limits: Limits, choose: Choose = most_likely) -> list[Hypothesis]:
    """Translate each sentence token by token, without going back.

    The host waits for the device once a step: for the tokens.

    Args:
        model: In evaluation mode.
        src: Source ids that end in `</s>`, padded, (B, S).
        limits: Constraints for the B sentences.
        choose: `most_likely` or a `sampler`.

    Returns:
        One translation of each sentence. Its score is its log-probability.

    Raises:
        NotFiniteError: The log-probability of a translation is NaN or infinite.
    """
    device = src.device
    constraints = Constraints(limits, device)
    cache = model.start(src)
    translations = _Translations(len(src))
    sentences = np.arange(len(src))  # the sentence of each row
    last = torch.full((len(src),), BOS, device=device)
    while len(sentences):
        token_parts = []
        gain_parts = []
        for block, log_p in model.step(last, cache):
            constraints.apply(
                log_p, sentences[block], translations.length, partial(translations.tokens, sentences[block])
            )
            tokens = choose(log_p, sentences[block])
            token_parts.append(tokens)
            gain_parts.append(log_p.gather(1, copy_to(device, tokens)[:, None]).squeeze(1))
        del log_p  # to free its memory before the next step
        tokens = torch.cat(token_parts)
        last = copy_to(device, tokens)
        is_active = translations.append(sentences, tokens.cpu().numpy(), torch.cat(gain_parts))
        rows = rows_to_keep(is_active)
        if rows is not None:
            sentences = sentences[rows]
            index = copy_to(device, torch.from_numpy(rows))
            last = last.index_select(0, index)
            cache.select(None, rows)
    return translations.hypotheses()


class _Translations:
    """The translations of B sentences so far. Their log-probabilities stay on the device until the end."""

    def __init__(self, num_sentences: int):
        self.is_finished = np.zeros(num_sentences, dtype=bool)
        self.lengths = np.zeros(num_sentences, dtype=np.int64)
        self._columns: list[Ids] = []  # the tokens of all sentences, (B,) at each position
        self._sentences: list[Ids] = []  # of each row, at each position
        self._gains: list[Tensor] = []  # log-probability of the token of each row, at each position

    @property
    def length(self) -> int:
        """The number of positions so far, t."""
        return len(self._columns)

    def tokens(self, sentences: Ids) -> Ids:
        """Return the tokens of some sentences so far, (B′, t)."""
        if not self._columns:
            return np.empty((len(sentences), 0), dtype=np.int64)
        return np.stack([column[sentences] for column in self._columns], axis=1)

    def append(self, sentences: Ids, tokens: Ids, gains: Tensor) -> npt.NDArray[np.bool_]:
        """Append the tokens (B′,) of some sentences and their log-probabilities, and return the unfinished rows, (B′,).

        Tokens after `</s>` are ignored.
        """
        column = np.full(len(self.is_finished), EOS)
        column[sentences] = np.where(self.is_finished[sentences], EOS, tokens)
        self._columns.append(column)
        self._sentences.append(np.where(self.is_finished[sentences], FINISHED, sentences))
        self._gains.append(gains)
        self.is_finished = column == EOS
        self.lengths += ~self.is_finished
        unfinished: npt.NDArray[np.bool_] = ~self.is_finished[sentences]
        return unfinished

    def hypotheses(self) -> list[Hypothesis]:
        """Return the finished translations.

        Raises:
            NotFiniteError: A log-probability is NaN or infinite.
        """
        log_probs = self._log_probs()
        if not np.isfinite(log_probs).all():
            raise NotFiniteError
        tokens = self.tokens(np.arange(len(self.lengths)))
        rows = zip(tokens, self.lengths.tolist(), log_probs.tolist(), strict=True)
        return [Hypothesis(row[:length].tolist(), log_prob) for row, length, log_prob in rows]

    def _log_probs(self) -> npt.NDArray[np.float64]:
        """Return the sum of the log-probabilities of each sentence's tokens, in the order of the tokens, (B,)."""
        log_probs = np.zeros(len(self.lengths))
        if self._gains:
            sentences = np.concatenate(self._sentences)
            gains = torch.cat(self._gains).cpu().numpy()
            counted = sentences != FINISHED
            np.add.at(log_probs, sentences[counted], gains[counted].astype(np.float64))
        return log_probs
