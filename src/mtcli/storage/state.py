"""Where a training run stands: all that a checkpoint holds besides tensors."""

import json
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import TypeAdapter

from mtcli import limits
from mtcli.config.fields import Within
from mtcli.config.writing_systems import METRIC_NAMES
from mtcli.errors import ModelError
from mtcli.runtime.regular_file import read_regular

Count = Annotated[int, Within(limits.COUNT)]
Amount = Annotated[float, Within(limits.AMOUNT)]

LATER = (
    "block", "share", "metric", "best_pairs", "prepared", "pair_seconds", "validated_at", "save_seconds", "saved_at",
    "valid_pairs",
)  # fmt: skip
"""Fields that older checkpoints do not have; the defaults are right for them."""

COMPARABLE_PAIRS = 100
"""Validation pairs that say enough to prefer an earlier model; of fewer than twice as many, half of them do."""


@dataclass
class State:
    """Sums and positions; equal on all ranks, except for values that only rank 0 uses."""

    ranks: Count = 1
    """Number of processes that train together."""
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
    best_pairs: Count = 0
    """How many pairs that validation had."""
    averaged: list[Count] = field(default_factory=list)
    """The steps of which the best model is the mean; none: it is that of `best_step`."""
    validated_step: Count = 0
    stale: Count = 0
    """Validations since the best one."""
    share: Annotated[float, Within(limits.SHARE)] = 1.0
    """Of the budget, what training will use: less once nothing improved and the cool-down began before its time."""
    prepared: Amount = 0.0
    """`seconds` before the first step. Like the following, it is 0 in a run without a time."""
    pair_seconds: Amount = 0.0
    """How long a pair of the last validation took; a measurement."""
    validation_seconds: Amount = 0.0
    """How long that validation took."""
    validated_at: Amount = 0.0
    """`seconds` at its end."""
    save_seconds: Amount = 0.0
    """How long the last checkpoint took."""
    saved_at: Amount = 0.0
    """`seconds` at its end."""
    valid_pairs: Count | None = None
    """How many validation pairs a validation takes before the last step; None: all."""
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
        """Return True if no validation before was as good by this run's score; it is then the one to beat.

        Figures of different pairs, or of a few of many, are not comparable: the newer model then counts as better.
        """
        figures = (float(validation[self.metric]), -float(validation["loss"]))
        pairs = validation["pairs"]
        comparable = self.best_pairs in (0, pairs)  # 0: an older checkpoint, whose validations had all pairs
        few = pairs < min(COMPARABLE_PAIRS, validation["of"] // 2)
        if self.best is not None and comparable and not few and figures <= self.best:
            return False
        self.best, self.best_pairs = figures, pairs
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
    """Return the fields of a state among other keys; older states lack some fields, and one had another name.

    Raises:
        KeyError, TypeError: One is missing.
    """
    found = {name: getattr(State(), name) for name in LATER} | found
    if "ranks" not in found:
        found["ranks"] = found["workers"]  # the name until version 0.1
    return {each.name: found[each.name] for each in fields(State)}
