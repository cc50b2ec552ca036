"""Where a training run stands: all that a checkpoint holds besides tensors."""

import json
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import TypeAdapter

from mtcli import limits
from mtcli.errors import ModelError
from mtcli.fields import Within
from mtcli.regular_file import read_regular
from mtcli.spacing import METRIC_NAMES

Count = Annotated[int, Within(limits.COUNT)]
Amount = Annotated[float, Within(limits.AMOUNT)]


@dataclass
class State:
    """Sums and positions; equal on all workers, but for what only the first one uses."""

    workers: Count = 1
    """Processes that train together."""
    step: Count = 0
    epoch: Count = 0
    block: Count = 0
    batch: Count = 0
    seconds: Amount = 0.0
    """Time used, over all runs of the command."""
    best_step: Count | None = None
    metric: Literal["bleu", "chrf"] = "bleu"
    """The score that selects the best model."""
    best: tuple[Amount, Amount] | None = None
    """(that score, −loss) of the best validation."""
    averaged: list[Count] = field(default_factory=list)
    """The steps of which the best model is the mean; none: it is that of `best_step`."""
    validated_step: Count = 0
    stale: Count = 0
    """Validations since the best one."""
    share: Annotated[float, Within(limits.SHARE)] = 1.0
    """Of the budget, what training will use: less once nothing improved and the cool-down began before its time."""
    validation_seconds: Amount = 0.0
    """How long the last validation took."""
    metrics_bytes: Count = 0
    """Length of `metrics.jsonl`."""
    loss: Amount = 0.0
    nll: Amount = 0.0
    tokens: Count = 0
    """Sums since the last line of `metrics.jsonl`; loss and negative log-likelihood in nats."""
    finished: str | None = None
    """Why training ended, once it has."""
    budget: list[Amount | None] | None = None
    """The steps and seconds it was allowed when it ended, or was cut short."""

    @classmethod
    def of(cls, path: Path) -> "State":
        """That of a checkpoint, without its tensors.

        Raises:
            ModelError: It cannot be read, or is of another version.
        """
        try:
            known = _known(json.loads(read_regular(path / "state.json")))
            return TypeAdapter(cls).validate_python(known)
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            reason = " ".join(str(error).split())[:200]
            raise ModelError(f"{path / 'state.json'}: not a state of this version of mtcli ({reason})") from None

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
        known = _known(found)
        known["best"] = tuple(known["best"]) if known["best"] else None
        vars(self).update(known)

    def values(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return asdict(self)


def _known(found: dict[str, Any]) -> dict[str, Any]:
    """The values of a state among others; older states lack some.

    Raises:
        KeyError, TypeError: One is missing.
    """
    found = {"block": 0, "share": 1.0, "metric": "bleu", **found}
    return {each.name: found[each.name] for each in fields(State)}
