"""Where a training run stands: all that a checkpoint holds besides tensors."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from mtcli.errors import ModelError
from mtcli.spacing import METRIC_NAMES


@dataclass
class State:
    """Sums and positions; equal on all workers, but for what only the first one uses."""

    workers: int = 1
    """Processes that train together."""
    step: int = 0
    epoch: int = 0
    block: int = 0
    batch: int = 0
    seconds: float = 0.0
    """Time used, over all runs of the command."""
    best_step: int | None = None
    metric: str = "bleu"
    """The score that selects the best model: `bleu` or `chrf`."""
    best: tuple[float, float] | None = None
    """(that score, −loss) of the best validation."""
    averaged: list[int] = field(default_factory=list)
    """The steps of which the best model is the mean; none: it is that of `best_step`."""
    validated_step: int = 0
    stale: int = 0
    """Validations since the best one."""
    share: float = 1.0
    """Of the budget, what training will use: less once nothing improved and the cool-down began before its time."""
    validation_seconds: float = 0.0
    """How long the last validation took."""
    metrics_bytes: int = 0
    """Length of `metrics.jsonl`."""
    loss: float = 0.0
    nll: float = 0.0
    tokens: int = 0
    """Sums since the last line of `metrics.jsonl`; loss and negative log-likelihood in nats."""
    finished: str | None = None
    """Why training ended, once it has."""
    budget: list[float | None] | None = None
    """The steps and seconds it was allowed when it ended, or was cut short."""

    @classmethod
    def of(cls, path: Path) -> "State":
        """That of a checkpoint, without its tensors.

        Raises:
            ModelError: It cannot be read, or is of another version.
        """
        state = cls()
        try:
            state.take(json.loads((path / "state.json").read_bytes()))
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise ModelError(f"{path / 'state.json'}: not a state of this version of mtcli ({error})") from None
        return state

    @property
    def best_steps(self) -> list[int]:
        """The checkpoints that the best model is, or is the mean of; none before the first validation."""
        return self.averaged or ([self.best_step] if self.best_step else [])

    @property
    def metric_name(self) -> str:
        """The name of the score that selects the best model."""
        return METRIC_NAMES[self.metric]

    def improves(self, validation: dict[str, Any]) -> bool:
        """Return True if no validation before was as good by this run's score; it is then the one to beat."""
        figures = (float(validation[self.metric]), -float(validation["loss"]))
        if self.best is not None and figures <= self.best:
            return False
        self.best = figures
        return True

    def take(self, found: dict[str, Any]) -> None:
        """Become what `values` gave, by way of JSON.

        Raises:
            KeyError, TypeError: It is not of that form.
        """
        found = {"block": 0, "share": 1.0, "metric": "bleu", **found}  # which older states do not say
        known = {name: found[name] for name in self.__dataclass_fields__}
        known["best"] = tuple(known["best"]) if known["best"] else None
        vars(self).update(known)

    def values(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return asdict(self)
