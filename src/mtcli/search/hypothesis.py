"""A finished translation."""

from dataclasses import dataclass


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
