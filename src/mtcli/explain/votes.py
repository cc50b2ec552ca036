"""The models of an ensemble, one by one: how probable each finds the chosen tokens, and which it would choose."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Vote:
    """One model at one decoder step."""

    probability: float
    """Of the chosen token."""
    favourite: str
    """The most probable token."""
    favourite_probability: float
    agrees: bool
    """The favourite is the chosen token."""


def votes(
    log_probs: Sequence[Tensor], tgt_ids: Sequence[int], show: Callable[[Sequence[int]], list[str]]
) -> list[list[Vote]]:
    """Return the vote of each model at each step.

    Args:
        log_probs: Log-probabilities of each model, (T, V).
        tgt_ids: The chosen tokens, (T,).
        show: `Tokenizer.tgt_tokens`.

    Returns:
        T lists with a vote for each model.
    """
    found = []
    for position, chosen in enumerate(tgt_ids):
        of_step = []
        for log_p in log_probs:
            best = int(log_p[position].argmax())
            probability = float(log_p[position, chosen].exp())
            of_step.append(Vote(probability, show([best])[0], float(log_p[position, best].exp()), best == chosen))
        found.append(of_step)
    return found
