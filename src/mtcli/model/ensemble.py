"""Several models that search together: in each step, the probability of a token is the mean over the models.

Shapes: B sentences, N hypotheses, V target vocabulary.
"""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from mtcli.model.cache import Cache
from mtcli.model.fast.cpu_kernels import log_softmax_
from mtcli.model.fast.prepared import PreparedTransformer
from mtcli.model.transformer import Transformer


class EnsembleCache:
    """The caches of the models of an ensemble, see `Cache`."""

    def __init__(self, parts: Sequence[Cache]):
        self.parts = list(parts)

    def select(self, parents: Tensor | None, sentences: npt.NDArray[np.int64] | None = None) -> None:
        """Reorder the hypotheses and remove sentences in each cache, see `Cache.select`."""
        for part in self.parts:
            part.select(parents, sentences)


class Ensemble:
    """Models with one vocabulary, in the place of a model in a search.

    Args:
        members: The models, as a search uses them; at least one.
    """

    def __init__(self, members: Sequence[Transformer | PreparedTransformer]):
        self.members = list(members)

    def step(self, last: Tensor, cache: EnsembleCache) -> Tensor:
        """Return log of the mean probability of the next token of every hypothesis: (N,) → (N, V).

        See `Transformer.step`.
        """
        pairs = zip(self.members, cache.parts, strict=True)
        return log_mean([log_softmax_(member.step(last, part)) for member, part in pairs])


def log_mean(log_probs: Sequence[Tensor]) -> Tensor:
    """Return log((p_1 + … + p_K) / K) from log p_1, …, log p_K, all of the same shape. It overwrites the first."""
    total = log_probs[0]
    for log_p in log_probs[1:]:
        torch.logaddexp(total, log_p, out=total)
    return total.sub_(math.log(len(log_probs)))
