"""What all searches share: the continuations of a step, the removal of finished sentences, and a finished translation.

A search encodes the sources (`SearchModel.start`). In each step the model computes the log-probabilities of the next
token (`SearchModel.step`), from which the search chooses. Then it removes finished sentences (`rows_to_keep`).

Shapes: B sentences, L ≤ W hypotheses of each before the step, C ≤ 2W continuations of each, V target vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from mtcli.model.fast.cpu_kernels import top_continuations
from mtcli.search.constraints import Ids
from mtcli.text.special_tokens import EOS

COMPACT_AT = 15 / 16
"""A search removes finished sentences from the batch once at most this share of its sentences is active.

Removing them one by one would launch more small copies than it saves.
"""


@dataclass(frozen=True)
class Hypothesis:
    """A finished translation."""

    ids: list[int]
    """Its tokens, without `<s>` and `</s>`."""
    log_prob: float
    """log P(y | x) in nats."""
    penalty: float = 1.0
    """The length penalty, see `search.length`."""

    @property
    def score(self) -> float:
        """The log-probability divided by the length penalty. Hypotheses are ranked by it."""
        return self.log_prob / self.penalty


class Continuations(NamedTuple):
    """The best continuations of B sentences, best first, on the device."""

    log_prob: Tensor
    """Log-probability of each, (B, C); −∞: there are fewer than C."""
    parent: Tensor
    """The hypothesis that each continues, as an index into L, (B, C)."""
    token: Tensor
    """The token that each appends, (B, C)."""
    kept: Tensor
    """Those that stay in the beam, as indices into C, (B, ≤ W)."""

    @classmethod
    def best(cls, scores: Tensor, log_p: Tensor, beam_size: int) -> "Continuations":
        """Find the best continuations.

        Args:
            scores: Log-probability of each hypothesis, (B, L).
            log_p: Log-probability of each next token, (B × L, V).
            beam_size: W.
        """
        most = scores.size(1) * log_p.size(1)
        # A hypothesis ends in one way only, so at least W of 2W continuations do not end.
        log_prob, parent, token = top_continuations(scores, log_p, min(2 * beam_size, most))
        unfinished = log_prob.masked_fill(token == EOS, -torch.inf)
        kept = unfinished.topk(min(beam_size, log_prob.size(1)), dim=1).indices
        return cls(log_prob, parent, token, kept)

    @classmethod
    def joined(cls, parts: "Sequence[Continuations]") -> "Continuations":
        """Concatenate the continuations of several groups of sentences."""
        if len(parts) == 1:
            return parts[0]
        return cls(*map(torch.cat, zip(*parts, strict=True)))

    def beams(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return the log-probabilities, the parents and the tokens of the hypotheses that stay, (B, ≤ W) each."""
        parent = self.parent.gather(1, self.kept)
        token = self.token.gather(1, self.kept)
        # Continuations that end are kept only where there are too few others, and are never continued.
        log_prob = self.log_prob.gather(1, self.kept).masked_fill(token == EOS, -torch.inf)
        return log_prob, parent, token

    def to_host(self) -> "Expansion":
        """Copy them to the host, in one transfer. A floating-point number represents each token exactly."""
        numbers = [x.to(self.log_prob.dtype) for x in self]
        packed = torch.cat(numbers, dim=1).cpu().numpy()
        C = self.log_prob.size(1)
        log_prob, parent, token, kept = np.split(packed, (C, 2 * C, 3 * C), axis=1)
        return Expansion(
            log_prob.astype(np.float64), parent.astype(np.int64), token.astype(np.int64), kept.astype(np.int64)
        )


@dataclass(frozen=True)
class Expansion:
    """The same on the host: one step of a beam search."""

    log_prob: npt.NDArray[np.float64]
    """Log-probability of each continuation, (B, C); −∞: there are fewer than C."""
    parent: Ids
    """The hypothesis that each continues, (B, C), as an index into the previous step's `kept`."""
    token: Ids
    """The token that each appends, (B, C)."""
    kept: Ids
    """The continuations that stay in the beam, as indices into C, (B, ≤ W)."""
    finished: Sequence[tuple[int, int]] = ()
    """Row and index into C of each continuation that is a finished translation."""


def rows_to_keep(is_active: npt.NDArray[np.bool_]) -> Ids | None:
    """Return the rows that the batch keeps, or None if it stays as it is.

    The last active sentences take the places of the finished ones, so that few rows are copied.

    Args:
        is_active: True for each sentence that is not finished, (B,).

    Returns:
        The row that takes each place, (B′,).
    """
    kept = int(is_active.sum())
    if kept > COMPACT_AT * len(is_active):
        return None
    rows = np.arange(kept)
    rows[~is_active[:kept]] = kept + np.flatnonzero(is_active[kept:])
    return rows
