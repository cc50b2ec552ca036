"""The models that `mtcli improve` has trained and scored, and the best of them."""

from dataclasses import dataclass, field
from typing import Any

from mtcli.recipes.improve.commands import Scores, Training

PLAIN = "plain"
"""The model that learns from the pairs alone."""


@dataclass(frozen=True)
class Candidate:
    """A model that may be the result."""

    training: Training
    pairs: int
    """Number of training pairs, synthetic ones included."""
    scores: Scores


@dataclass(frozen=True)
class Ensemble:
    """Models that translate together, by averaging their probabilities."""

    folders: tuple[str, ...]
    """The folders of the models, the best one first."""
    scores: Scores
    is_better: bool
    """They translate the validation pairs better than the best one of them."""


@dataclass
class Result:
    """The models that were trained for the direction of the request, and the best of them."""

    candidates: dict[str, Candidate] = field(default_factory=dict)
    """By the name of their stage, in order."""
    best: str = PLAIN
    comparison: Any = None
    """The paired bootstrap of the plain model (A) and the best one (B); None if the plain one is the best."""
    ensemble: Ensemble | None = None
    """All models together; None if there is one, or if they have different tokenizers."""
    part: int = 1
    """1, and one more for each time that the command has ended and was then given a larger budget."""

    def in_part(self, name: str) -> str:
        """Return the name of a stage or a decision that each part has once."""
        return name if self.part == 1 else f"{name}, part {self.part}"
