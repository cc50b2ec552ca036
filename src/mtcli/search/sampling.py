"""The choice of the next token in a search without beams: the most likely one, or a random one."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from mtcli.errors import NotFiniteError
from mtcli.model.fast.cpu_kernels import argmax
from mtcli.search.constraints import Ids

Choice = Callable[[Tensor, Ids], Tensor]
"""Chooses the next tokens (B,) from log-probabilities (B, V) and the sentence of each row (B,)."""


def most_likely(log_p: Tensor, sentences: Ids) -> Tensor:
    """Return the most likely token of each row; a `Choice`."""
    return argmax(log_p)


def sampler(temperature: float, top_k: int, generators: Sequence[torch.Generator]) -> Choice:
    """Return a `Choice` that draws from softmax(log_p / temperature).

    Args:
        temperature: Above 0; below 1 it favours likely tokens.
        top_k: Draw from this many most likely tokens; 0: from all.
        generators: One for each sentence, on the CPU, so that what is drawn for it does not depend on the other
            sentences of the batch.

    The `Choice` returns a tensor on the CPU. It raises `NotFiniteError` if a probability is NaN.
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
