"""Constraints on translations: maximum and minimum length, forbidden tokens, prefixes and repeated n-grams."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mtcli.data.tokenizer import EOS


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
    """Applies `Limits` to the log-probabilities of the next token."""

    def __init__(self, limits: Limits, device: torch.device):
        self.limits = limits
        self.forbidden = torch.tensor(list(limits.forbidden), dtype=torch.long, device=device)
        self.first_forced = 0 if limits.prefix else min(limits.max_length, default=0)
        """The first position at which some sentence has only one choice."""

    def apply(self, log_p: Tensor, sentences: Sequence[int], t: int, history: Callable[[], Tensor]) -> None:
        """Set the log-probabilities of tokens that may not come next to −∞, in place.

        Args:
            log_p: Log-probabilities of the token at position `t`, (N, V).
            sentences: The sentences that the rows of `log_p` belong to, in order, each with equally many rows.
            t: The position, from 0.
            history: Returns the t tokens of each row so far, (N, t). Called only where they are needed.
        """
        log_p.index_fill_(1, self.forbidden, -torch.inf)
        forced = self._forced_tokens(sentences, t)
        by_sentence = log_p.view(len(sentences), -1, log_p.size(1))
        forced_log_p = {i: by_sentence[i, :, token].clone() for i, token in forced.items()}
        if t < self.limits.min_length:
            log_p[:, EOS] = -torch.inf
        n = self.limits.no_repeat_ngram
        if 0 < n <= t:
            _block_repeated_ngrams(log_p, history(), n)
        for i, token in forced.items():  # last: a forced token may repeat an n-gram
            by_sentence[i] = -torch.inf
            by_sentence[i, :, token] = forced_log_p[i]

    def _forced_tokens(self, sentences: Sequence[int], t: int) -> dict[int, int]:
        """Return the token of each sentence that has no choice at position `t`, by index into `sentences`.

        It is the next token of the prefix, or `</s>` at the maximum length.
        """
        if t < self.first_forced:
            return {}
        forced = {}
        for i, sentence in enumerate(sentences):
            prefix = self.limits.prefix[sentence] if self.limits.prefix else ()
            if t < len(prefix):
                forced[i] = prefix[t]
            elif t >= self.limits.max_length[sentence]:
                forced[i] = EOS
        return forced


def _block_repeated_ngrams(log_p: Tensor, history: Tensor, n: int) -> None:
    """Set the log-probability of each token that would complete a repeated n-gram to −∞, in place.

    Args:
        log_p: (N, V).
        history: Tokens so far, (N, t), where t ≥ n.
        n: Tokens of an n-gram.
    """
    ngrams = history.unfold(1, n, 1)  # (N, t − n + 1, n)
    last = history[:, None, history.size(1) - n + 1 :]  # (N, 1, n − 1), to which the next token will be appended
    begins_alike = (ngrams[:, :, :-1] == last).all(dim=2)
    row, place = begins_alike.nonzero(as_tuple=True)
    log_p[row, ngrams[row, place, -1]] = -torch.inf
