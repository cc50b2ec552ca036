"""A model as a search uses it, and several models that search together.

Shapes: B sentences, L hypotheses of each, N = B × L, V target vocabulary.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from mtcli.model.cache import Cache


class SearchModel(Protocol):
    """A model as a search uses it: a `Transformer` or an `Ensemble`."""

    def start(self, src: Tensor, *, share_rows: bool = False) -> Any:
        """Encode `src`, and return the cache before the first step: an object with the `select` of `Cache`.

        Args:
            src: Source ids that end in `</s>`, padded, (B, S).
            share_rows: The layout of the cache: see `Cache`.
        """

    def step(self, last: Tensor, cache: Any) -> Iterator[tuple[slice, Tensor]]:
        """Compute the log-probabilities of the next token of every hypothesis, in blocks of sentences.

        Args:
            last: The last token of each hypothesis, (N,), grouped by sentence.
            cache: What `start` returned. `last` is added to it.

        Returns:
            For each block its sentences, as a slice of B, and the log-probabilities of their hypotheses, (rows of the
            block, V), in float32 or float64. The caller may overwrite them.
        """


class EnsembleCache:
    """The caches of the models of an ensemble, see `Cache`."""

    def __init__(self, parts: Sequence[Cache]):
        self.parts = list(parts)

    def select(self, parents: Tensor | None, sentences: npt.NDArray[np.int64] | None = None) -> None:
        """Reorder the hypotheses and remove sentences in each cache, see `Cache.select`."""
        for part in self.parts:
            part.select(parents, sentences)


class Ensemble:
    """Several models in the place of one: in each step, the probability of a token is the mean over the models.

    Args:
        members: Models with one vocabulary and on one device; at least one.
    """

    def __init__(self, members: Sequence[SearchModel]):
        self.members = list(members)

    def start(self, src: Tensor, *, share_rows: bool = False) -> EnsembleCache:
        """See `SearchModel.start`."""
        return EnsembleCache([member.start(src, share_rows=share_rows) for member in self.members])

    def step(self, last: Tensor, cache: EnsembleCache) -> Iterator[tuple[slice, Tensor]]:
        """See `SearchModel.step`."""
        pairs = zip(self.members, cache.parts, strict=True)
        for blocks in zip(*(member.step(last, part) for member, part in pairs), strict=True):
            sentences, _ = blocks[0]  # the same of each model, because their vocabulary is the same
            yield sentences, log_mean([log_p for _, log_p in blocks])


def log_mean(log_probs: Sequence[Tensor]) -> Tensor:
    """Return log((p_1 + … + p_K) / K) from log p_1, …, log p_K, all of the same shape. It overwrites the first."""
    total = log_probs[0]
    for log_p in log_probs[1:]:
        torch.logaddexp(total, log_p, out=total)
    return total.sub_(math.log(len(log_probs)))
