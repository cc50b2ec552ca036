"""Constraints on translations: maximum and minimum length, forbidden tokens, prefixes and repeated n-grams."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from mtcli.runtime.device import copy_to
from mtcli.text.special_tokens import EOS

Ids = npt.NDArray[np.int64]
"""Tokens, or indices of rows or sentences, on the host."""

FREE = -1
"""Stands for a token that is not forced."""


@dataclass(frozen=True)
class Limits:
    """Constraints on the translations of B sentences."""

    max_length: Sequence[int]
    """Maximum number of tokens of each translation, without `</s>`, (B,)."""
    forbidden: Sequence[int] = ()
    """Tokens that are never chosen."""
    prefix: Sequence[Sequence[int]] | None = None
    """Tokens that each translation must begin with, none of them in `forbidden`, (B,)."""
    no_repeat_ngram: int = 0
    """Block n-grams of this size from repeating, except inside the prefix; 0 disables."""
    min_length: int = 0
    """Minimum number of tokens of each translation, unless its maximum is lower."""


class Constraints:
    """Applies `Limits` to the log-probabilities of the next token, without waiting for the device."""

    def __init__(self, limits: Limits, device: torch.device):
        self.limits = limits
        self.device = device
        self.forbidden = self._upload(np.array(limits.forbidden, dtype=np.int64))
        self.max_length: Ids = np.array(limits.max_length, dtype=np.int64)
        self.prefix = _padded_prefixes(limits.prefix or [()] * len(limits.max_length))

    def apply(self, log_p: Tensor, sentences: Ids, t: int, history: Callable[[], Ids]) -> None:
        """Set the log-probabilities of tokens that may not come next to −∞, in place.

        Args:
            log_p: Log-probabilities of the token at position `t`, (N, V).
            sentences: The sentences that the rows of `log_p` belong to, (B,), in order, each with equally many rows.
            t: The position, from 0.
            history: Returns the tokens of each row so far, (N, t). Called only where they are needed.
        """
        log_p.index_fill_(1, self.forbidden, -torch.inf)
        forced = self._forced_tokens(sentences, t)
        if (forced == FREE).all():
            self._apply_to_free_tokens(log_p, t, history)
            return
        by_sentence = log_p.view(len(sentences), -1, log_p.size(1))
        rows = self._upload(np.flatnonzero(forced != FREE))
        tokens = self._upload(forced[forced != FREE])
        forced_log_p = by_sentence[rows, :, tokens]  # (forced sentences, hypotheses of each)
        self._apply_to_free_tokens(log_p, t, history)
        by_sentence.index_fill_(0, rows, -torch.inf)
        by_sentence[rows, :, tokens] = forced_log_p

    def _apply_to_free_tokens(self, log_p: Tensor, t: int, history: Callable[[], Ids]) -> None:
        """Apply the constraints that forced tokens are exempt from."""
        if t < self.limits.min_length:
            log_p[:, EOS] = -torch.inf
        n = self.limits.no_repeat_ngram
        if 0 < n <= t:
            block_repeated_ngrams(log_p, self._upload(history()), n)

    def _forced_tokens(self, sentences: Ids, t: int) -> Ids:
        """Return the only token that each of the sentences (B,) may have at position `t`, or `FREE`, (B,).

        It is the next token of the prefix, or `</s>` at the maximum length.
        """
        at_end = t >= self.max_length[sentences]
        forced = np.where(at_end, EOS, FREE)
        if t < self.prefix.shape[1]:
            prefix_token = self.prefix[sentences, t]
            forced = np.where(prefix_token != FREE, prefix_token, forced)
        return forced

    def _upload(self, array: Ids) -> Tensor:
        return copy_to(self.device, torch.from_numpy(array))


def _padded_prefixes(prefixes: Sequence[Sequence[int]]) -> Ids:
    """Return the prefixes as one array, padded with `FREE`, (B, longest)."""
    longest = max(map(len, prefixes), default=0)
    padded = np.full((len(prefixes), longest), FREE, dtype=np.int64)
    for row, prefix in zip(padded, prefixes, strict=True):
        row[: len(prefix)] = prefix
    return padded


def block_repeated_ngrams(log_p: Tensor, tokens: Tensor, n: int) -> None:
    """Set the log-probability of each token that would complete a repeated n-gram to −∞, in place.

    Args:
        log_p: (N, V).
        tokens: Tokens so far, (N, t), where t ≥ n.
        n: Tokens of an n-gram.
    """
    ngrams = tokens.unfold(1, n, 1)  # (N, t − n + 1, n)
    last = tokens[:, None, tokens.size(1) - n + 1 :]  # (N, 1, n − 1), to which the next token will be appended
    begins_alike = (ngrams[:, :, :-1] == last).all(dim=2)
    upper_bound = torch.zeros_like(begins_alike, dtype=log_p.dtype).masked_fill_(begins_alike, -torch.inf)
    # The indices of these n-grams would be read by the host. So all n-grams are added: −∞ or 0.
    log_p.scatter_add_(1, ngrams[:, :, -1], upper_bound)
