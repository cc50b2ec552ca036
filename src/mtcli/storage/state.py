"""The state of a training run, apart from its tensors: the content of `state.json` in a checkpoint."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_args

from pydantic import PlainValidator, TypeAdapter

from mtcli import limits
from mtcli.config.fields import Count, Within
from mtcli.config.scores import SELECTION_NAMES, SelectionMetric, combined_score
from mtcli.errors import ModelError
from mtcli.runtime.files import read_regular

Amount = Annotated[float, Within(limits.AMOUNT)]

COMPARABLE_PAIRS = 100
"""A validation on fewer pairs, and on fewer than half of all pairs, is compared by its loss.

BLEU and chrF of so few sentences jump with single words. The loss is the mean over all tokens of the references.
"""


class OneFigure(NamedTuple):
    """The figures of a validation of a run whose best model one of them selects; the higher the better."""

    selecting: float
    """BLEU, chrF or −loss."""
    negative_loss: float

    @property
    def score(self) -> tuple[float, ...]:
        """Orders validations. Of equal BLEU or chrF, the lower loss is the better one."""
        return self.selecting, self.negative_loss


class ThreeFigures(NamedTuple):
    """The figures of a validation of a run whose best model all of them select; the higher the better."""

    bleu: float
    chrf: float
    negative_loss: float

    @property
    def score(self) -> tuple[float, ...]:
        """Orders validations."""
        return (combined_score(self.bleu, self.chrf, -self.negative_loss),)


class FiguresWithCorrections(NamedTuple):
    """The figures of a validation of a run that learns corrections; the higher the better."""

    bleu: float
    chrf: float
    negative_loss: float
    given: float
    """Corrections that the model gives."""
    not_forgotten: float
    """−1 if the model has forgotten too much, otherwise 0."""

    @property
    def score(self) -> tuple[float, ...]:
        """Orders validations."""
        return self.not_forgotten, self.given, combined_score(self.bleu, self.chrf, -self.negative_loss)


Figures = OneFigure | ThreeFigures | FiguresWithCorrections
"""Which of them a run has follows from `State.metric`. In a file they are lists, which differ in length."""

_KINDS: dict[int, type[Figures]] = {len(kind._fields): kind for kind in get_args(Figures)}
_AMOUNTS = TypeAdapter(tuple[Amount, ...])


def _figures(values: object) -> Figures:
    """Return figures that were a list in a file, or on another rank.

    Raises:
        ValueError: They are something else.
    """
    amounts = _AMOUNTS.validate_python(values)
    if len(amounts) not in _KINDS:
        raise ValueError(f"{len(amounts)} figures of a validation")
    return _KINDS[len(amounts)](*amounts)


RecordedFigures = Annotated[Figures, PlainValidator(_figures)]


@dataclass
class State:
    """Counters, positions and measurements. Equal on all ranks, except for fields that only rank 0 uses."""

    ranks: Count = 1
    """Number of processes that train together."""
    step: Count = 0
    """Optimizer steps taken."""
    epoch: Count = 0
    """Finished epochs."""
    block: Count = 0
    """Position in the epoch: the block of the corpus, from 0."""
    batch: Count = 0
    """Position in the block: the next batch, from 0."""
    seconds: Amount = 0.0
    """Time used, over all resumptions."""
    best_step: Count | None = None
    """The step of the best validation."""
    metric: SelectionMetric = "bleu"
    """What selects the best model, if validations score enough pairs."""
    compared_by: SelectionMetric | None = None
    """What compares the best validation with others on its pairs: `metric`, or the loss on few pairs. None
    before the first validation."""
    best: RecordedFigures | None = None
    """The figures of the best validation."""
    best_pairs: Count = 0
    """Pairs of the best validation; 0 before the first one."""
    start: RecordedFigures | None = None
    """The figures of the model that fine-tuning started from; None in other runs."""
    start_pairs: Count = 0
    """Pairs of the validation that measured `start`."""
    averaged: list[Count] = field(default_factory=list)
    """The steps of the checkpoints whose mean is the best model; empty if it is the checkpoint of `best_step`."""
    validated_step: Count = 0
    """The step of the last validation."""
    validations_since_best: Count = 0
    """Validations since the best one; at least `train.patience` if no better one is expected, see `Budget`."""
    share_of_budget: Annotated[float, Within(limits.SHARE)] = 1.0
    """The share of the budget that training will use. It is less than 1 after the cool-down started early."""
    seconds_before_first_step: Amount = 0.0
    """`seconds` before the first step. Without a time budget, this field and those up to `write_seconds` are 0."""
    pair_seconds: Amount = 0.0
    """Time per pair in the last validation of all pairs; if there was none, of as many as it could take."""
    validation_seconds: Amount = 0.0
    """Duration of the last validation."""
    validated_at: Amount = 0.0
    """`seconds` at its end."""
    save_seconds: Amount = 0.0
    """Time that saving the last checkpoint took from training: less than writing it if a thread writes."""
    saved_at: Amount = 0.0
    """`seconds` at its end."""
    write_seconds: Amount = 0.0
    """Duration of writing the last complete checkpoint."""
    valid_pairs: Count | None = None
    """Pairs that a validation before the last step takes; None: all."""
    metrics_bytes: Count = 0
    """Length of `metrics.jsonl`."""
    loss: Amount = 0.0
    """Sum of the training loss, in nats, since the last `train` line of `metrics.jsonl`."""
    nll: Amount = 0.0
    """Sum of the negative log-likelihood, in nats, since that line."""
    tokens: Count = 0
    """Target tokens since that line."""
    finished: str | None = None
    """Why training ended; None while it has not."""
    budget: list[Amount | None] | None = None
    """The budget (steps, seconds) when training ended, or when its early end began."""

    @classmethod
    def of(cls, path: Path) -> "State":
        """Read the state of a checkpoint.

        Args:
            path: The folder of the checkpoint.

        Raises:
            ModelError: The state cannot be read, or is of another version.
        """
        try:
            values = _known_values(json.loads(read_regular(path / "state.json")))
            return TypeAdapter(cls).validate_python(values)
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            reason = " ".join(str(error).split())[:200]
            raise ModelError(f"{path / 'state.json'}: not a state of this version of mtcli ({reason})") from None

    @property
    def checkpoint_seconds(self) -> float:
        """The duration of a checkpoint that nothing else runs beside."""
        return max(self.save_seconds, self.write_seconds)

    @property
    def best_steps(self) -> list[int]:
        """The steps of the checkpoints whose mean is the best model: one or several, none before a validation.

        Step 0 is the model that fine-tuning started from.
        """
        if self.averaged:
            return self.averaged
        return [] if self.best_step is None else [self.best_step]

    @property
    def start_is_best(self) -> bool:
        """True if the best model is the one that fine-tuning started from."""
        return self.best_steps == [0]

    @property
    def selection_metric(self) -> SelectionMetric:
        """What selects the best model: `metric`, or the loss while validations score few pairs."""
        return self.compared_by or self.metric

    @property
    def metric_name(self) -> str:
        """The name of what selects the best model."""
        return SELECTION_NAMES[self.selection_metric]

    def record_if_best(self, validation: dict[str, Any]) -> bool:
        """Record the figures of a validation and return True, unless an earlier validation was as good.

        Figures on different pairs are not comparable. The newer model then counts as better.

        Args:
            validation: `bleu`, `chrf`, `loss`, `pairs` (scored) and `of` (all pairs); with corrections, `corrections`
                has `given` and `forgets`.
        """
        if self.best_pairs in (0, validation["pairs"]):
            return self.record_if_better(validation)
        self.record(validation)
        return True

    def record_if_better(self, validation: dict[str, Any]) -> bool:
        """Record the figures of a validation and return True if they are better than those of the best one.

        Args:
            validation: As in `record_if_best`, on the pairs of the best validation.
        """
        metric = self.metric_for(validation)
        figures = figures_of(validation, self.metric)
        if self.best is not None and score_of(figures, metric) <= score_of(self.best, metric):
            return False
        self.record(validation)
        return True

    def record(self, validation: dict[str, Any]) -> None:
        """Record the figures of a validation as those of the best one."""
        self.best = figures_of(validation, self.metric)
        self.best_pairs = validation["pairs"]
        self.compared_by = self.metric_for(validation)

    def metric_for(self, validation: dict[str, Any]) -> SelectionMetric:
        """Return what compares a validation with others on the same pairs."""
        has_few_pairs = validation["pairs"] < min(COMPARABLE_PAIRS, validation["of"] // 2)
        return "loss" if has_few_pairs else self.metric

    def record_start(self, validation: dict[str, Any]) -> None:
        """Record the figures of the model that fine-tuning started from."""
        self.start = figures_of(validation, self.metric)
        self.start_pairs = validation["pairs"]

    def restore_start(self, validation: dict[str, Any]) -> None:
        """Make the model that fine-tuning started from the best one, with the figures of this validation of it."""
        self.best_step = 0
        self.averaged = []
        self.record(validation)

    def start_is_better(self) -> bool:
        """Return True unless the best validation is better than that of the model which fine-tuning started from.

        Both must have the same pairs.
        """
        assert self.best is not None
        assert self.start is not None
        return score_of(self.best, self.selection_metric) <= score_of(self.start, self.selection_metric)

    def values(self) -> dict[str, Any]:
        """Return all fields as JSON values."""
        return asdict(self)

    def set_values(self, values: dict[str, Any]) -> None:
        """Set all fields to what `values` returned, before or after conversion to JSON.

        Raises:
            KeyError, TypeError: A field is missing.
        """
        known = _known_values(values)
        for name in ("best", "start"):
            known[name] = _figures(known[name]) if known[name] else None
        vars(self).update(known)


def mean_in_words(steps: Sequence[int]) -> str:
    """Return what a model is the mean of.

    Args:
        steps: The steps of the checkpoints. Step 0, which may come several times, is the model that fine-tuning started
            from.
    """
    later = [step for step in steps if step > 0]
    text = f"the mean of {len(later)} checkpoints"
    share = 1 - len(later) / len(steps)
    return f"{text} and, with a share of {share:.0%}, the model before" if share else text


def figures_of(validation: dict[str, Any], metric: SelectionMetric) -> Figures:
    """Return the figures of a validation that a metric needs."""
    negative_loss = -float(validation["loss"])
    if metric == "loss":
        return OneFigure(negative_loss, negative_loss)
    if metric in ("bleu", "chrf"):
        return OneFigure(float(validation[metric]), negative_loss)
    bleu = float(validation["bleu"])
    chrf = float(validation["chrf"])
    if metric == "combined":
        return ThreeFigures(bleu, chrf, negative_loss)
    corrections = validation["corrections"]
    return FiguresWithCorrections(
        bleu, chrf, negative_loss, float(corrections["given"]), -float(corrections["forgets"])
    )


def score_of(figures: Figures, metric: SelectionMetric) -> tuple[float, ...]:
    """Return what orders validations on the same pairs, the higher the better.

    Args:
        figures: The figures of a validation.
        metric: What compares them: the loss, or what the figures are for.
    """
    return (figures.negative_loss,) if metric == "loss" else figures.score


def _known_values(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values of the fields of a state.

    Raises:
        KeyError, TypeError: A field is missing.
    """
    return {each.name: values[each.name] for each in fields(State)}
