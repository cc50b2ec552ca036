"""A run as its folder records it: the source of the report and of the model card."""

import platform
import shlex
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from mtcli.config.schema import Config
from mtcli.config.scores import DEFAULT, METRIC_NAMES, SELECTION_NAMES
from mtcli.config.toml_file import load
from mtcli.corpus.cache.info import DataInfo, info_path
from mtcli.corpus.cache.parent import TakenOver
from mtcli.corpus.cache.training_sources import TrainingSource, training_sources
from mtcli.corpus.variants import SourceLengths
from mtcli.evaluation.remarks import FEW_TEST_PAIRS
from mtcli.report.plan import Plan, describe_transfer
from mtcli.report.robustness import FormScore, recorded
from mtcli.runtime.progress import clock
from mtcli.runtime.wording import counted
from mtcli.storage.events import Metrics, best_of
from mtcli.storage.state import mean_in_words
from mtcli.translate.confidence import Confidence, read_confidence

Event = dict[str, Any]
"""One line of `metrics.jsonl`."""

LIBRARIES = ("mtcli", "torch", "tokenizers", "datasets", "sacrebleu", "safetensors", "numpy", "pyarrow")


@dataclass(frozen=True)
class RecipeRecord:
    """How a recipe, such as `mtcli improve`, made a run as one of its stages."""

    name: str
    """The name of the folder of the recipe, which the run is known by."""
    description: str
    """What the recipe did, in sentences."""
    table: Sequence[Sequence[str]]
    """The models that were compared: a row of headings, and a row for each model."""
    commands: Sequence[str]
    """The commands of the stages, in their order."""


@dataclass(frozen=True)
class RunRecord:
    """Configuration, figures and scores of a run, and how it was made."""

    folder: Path
    config: Config
    counts: Event | None
    """Pairs read, used and skipped."""
    inputs: dict[str, Any]
    """Size and SHA-256 of each data file, by its name."""
    sources: list[TrainingSource]
    """The training corpora; none without the prepared data."""
    transfer: TakenOver | None
    """What was taken from a model of other languages."""
    lengths: SourceLengths | None
    """How long the sources of the training are."""
    plan: Plan | None
    train: list[Event]
    valid: list[Event]
    best: Event | None
    """The validation of the run's model."""
    test: Event | None
    """The test scores of the run's model; None until the run has ended."""
    start_test: Event | None
    """With corrections, the test scores of the model that training started from."""
    robust: list[FormScore]
    """Its scores on text as people type it, if they were measured."""
    confidence: Confidence | None
    """The confidence of its translations, if it is calibrated."""
    end: Event | None
    """None while the run is in training."""
    speeds: list[tuple[float, float]]
    """Pairs of a step and the target tokens per second before it."""
    device: str
    command: str
    versions: list[str]
    recipe: RecipeRecord | None = None
    """The recipe that made the run; None: the run was trained by itself."""

    @property
    def name(self) -> str:
        """The name of the run folder, or of the recipe that made the run."""
        return self.recipe.name if self.recipe else self.folder.resolve().name

    @property
    def status(self) -> str:
        """How far the training is, in words."""
        if self.end:
            return f"finished {_step_and_time(self.end)} ({self.end['reason']})"
        measured = self.valid or self.train
        return f"in training: {_step_and_time(measured[-1])}" if measured else "training has begun"

    @property
    def start_is_best(self) -> bool:
        """True if no validation is better than that of the model which fine-tuning started from."""
        return self.best is not None and "steps" not in self.best and self.best["step"] == 0

    @property
    def remark(self) -> str:
        """A sentence about a finished fine-tuning that made the model no better; otherwise empty."""
        if not self.end or not self.start_is_best:
            return ""
        return "Fine-tuning made the model no better, so this is the model that it started from (step 0)."

    @property
    def plan_rows(self) -> list[tuple[str, str]]:
        """The plan in words, after what was taken from a model of other languages."""
        return describe_transfer(self.transfer) + (self.plan.rows(self.config) if self.plan else [])

    @property
    def corrections(self) -> Event | None:
        """How many corrections the run's model gives, if it learns corrections; see `CorrectionFigures`."""
        return self.best.get("corrections") if self.best else None

    @property
    def selection_metric(self) -> str:
        """What selects the run's model: `combined`, `bleu`, `chrf`, `loss` or `corrections`."""
        return str(self.valid[-1]["metric"]) if self.valid else "bleu"


@dataclass(frozen=True)
class ScoreRow:
    """One score in words."""

    metric: str
    split: str
    """`test` or `validation`, in words."""
    value: str
    margin: str
    """Half of the 95% interval, with its sign; empty if it was not computed, or computed on too few pairs."""
    measured: str
    """On which pairs, and how."""
    signature: str = ""
    """sacrebleu's signature of a test score."""

    @property
    def figure(self) -> str:
        """The value with its margin, such as `31.4 ± 1.2`."""
        return f"{self.value} {self.margin}".strip()


def read_run(folder: Path, device: str, recipe: RecipeRecord | None = None) -> RunRecord:
    """Read a run folder.

    Args:
        folder: The run folder.
        device: The device that trains, in words.
        recipe: The recipe that made the run, if one did.

    Raises:
        OSError, LookupError, ValueError, TypeError, ModelError: It is not a run folder, or it is damaged.
    """
    events, _ = Metrics(folder).read()
    end = _last(events, "end")
    if end is not events[-1]:
        end = None  # the run was continued after that end
    test = _last(events, "test")
    if end is None or test is None or test["steps"] != (end["averaged"] or [end["best_step"]]):
        test = None  # not of the run's model
    data = DataInfo.read(folder) if info_path(folder).exists() else None
    return RunRecord(
        folder=folder,
        config=load(folder / "config.toml"),
        counts=_last(events, "data"),
        inputs=data.inputs if data else {},
        sources=training_sources(data) if data else [],
        transfer=data.transfer if data else None,
        lengths=_lengths(events),
        plan=_plan(events),
        train=_all(events, "train"),
        valid=_all(events, "valid"),
        best=best_of(events),
        test=test,
        start_test=_last(events, "start_test") if test else None,
        robust=recorded(folder),
        confidence=read_confidence(folder),
        end=end,
        speeds=speeds(events),
        device=device,
        command=shlex.join(["mtcli", *sys.argv[1:]]),
        versions=[*_library_versions(), f"Python {platform.python_version()}", platform.platform()],
        recipe=recipe,
    )


@cache
def _library_versions() -> tuple[str, ...]:
    """Return the versions of the libraries. Each is parsed from a file, so training reads them once, not per report."""
    return tuple(f"{name} {version(name)}" for name in LIBRARIES)


def _all(events: Sequence[Event], kind: str) -> list[Event]:
    return [event for event in events if event["event"] == kind]


def _last(events: Sequence[Event], kind: str) -> Event | None:
    found = _all(events, kind)
    return found[-1] if found else None


def _plan(events: Sequence[Event]) -> Plan | None:
    """Return the recorded plan, or None if there is none, or it is incomplete."""
    event = _last(events, "plan")
    if event is None:
        return None
    names = Plan.__dataclass_fields__.keys()
    if not names <= event.keys():
        return None
    return Plan(**{name: event[name] for name in names})


def _lengths(events: Sequence[Event]) -> SourceLengths | None:
    """Return the recorded lengths of the sources; None: an older version began the run."""
    event = _last(events, "lengths")
    return SourceLengths(**{name: event[name] for name in SourceLengths.__dataclass_fields__}) if event else None


def _step_and_time(event: Event) -> str:
    return f"at step {event['step']:,} after {clock(event['seconds'])}"


def score_rows(record: RunRecord) -> list[ScoreRow]:
    """Return all scores of the run's model, the most important one first."""
    rows = _test_rows(record, record.test, "test")
    if record.corrections is None:
        return [*rows, *_validation_rows(record)]
    before = _test_rows(record, record.start_test, "test before training")
    return [*rows, _corrections_row(record), *before, *_validation_rows(record)]


def _corrections_row(record: RunRecord) -> ScoreRow:
    """Return how many corrections the run's model gives, and how many the model that it started from gave."""
    assert record.corrections is not None
    before = record.valid[0].get("corrections") or {"given": 0}
    measured = f"of {record.corrections['of']:,}; {before['given']:,} before training; the exact text, beam "
    measured += str(record.config.decode.beam_size)
    return ScoreRow("corrections given", "training", f"{record.corrections['given']:,}", "", measured)


def _test_rows(record: RunRecord, test: Event | None, split: str) -> list[ScoreRow]:
    """Return the scores of a model on the test pairs; none if it was not scored."""
    if test is None:
        return []
    pairs = test["pairs"]
    is_few = pairs < FEW_TEST_PAIRS
    measured = f"{_mean_of_directions(test)}{counted(pairs, 'test pair')}, beam {test['beam_size']}"
    if is_few:
        measured = f"{measured}; too few pairs for the score to mean anything"
    rows = []
    for score in test["scores"]:
        interval = score["confidence"]
        margin = f"± {interval[1]:.1f}" if interval and not is_few else ""
        rows.append(ScoreRow(score["name"], split, f"{score['score']:.1f}", margin, measured, score["signature"]))
    return _selecting_first(record, rows)


def _validation_rows(record: RunRecord) -> list[ScoreRow]:
    best = record.best
    if best is None:
        return []
    model = mean_in_words(best["steps"]).removeprefix("the ") if "steps" in best else f"step {best['step']:,}"
    rows = []
    for key, name in METRIC_NAMES.items():
        measured = f"{_mean_of_directions(best)}validation pairs, greedy, {model}"
        if key == "bleu":
            measured += f"; tokenizer {best.get('tokenize', DEFAULT)}"
        measured += selection_remark(key, best["metric"])
        rows.append(ScoreRow(name, "validation", f"{best[key]:.1f}", "", measured))
    measured = f"validation pairs, nats per token, {model}" + selection_remark("loss", best["metric"])
    loss = ScoreRow("loss", "validation", f"{best['loss']:.3f}", "", measured)
    return [*_selecting_first(record, rows), loss]


def direction_table(record: RunRecord) -> list[list[str]]:
    """Return a table of the scores of each direction, headings first; empty if the run has one direction.

    It has the test scores or, until the run has ended, those of the validation of the run's model.
    """
    if record.test is not None and record.test.get("directions"):
        directions = record.test["directions"]
        rows = [
            [each["src"], each["tgt"], each["pairs"], *(f"{score['score']:.1f}" for score in each["scores"])]
            for each in directions
        ]
        names = [f"{score['name']}, test" for score in directions[0]["scores"]]
    elif record.best is not None and record.best.get("directions"):
        directions = record.best["directions"]
        rows = [[each[key] for key in ("src", "tgt", "pairs")] for each in directions]
        for row, each in zip(rows, directions, strict=True):
            row += [f"{each['bleu']:.1f}", f"{each['chrf']:.1f}", f"{each['loss']:.3f}"]
        names = [f"{name}, validation" for name in (*METRIC_NAMES.values(), "loss")]
    else:
        return []
    shares = [each.get("other_language") for each in directions]
    others = ["not measured" if share is None else f"{100 * share:.1f}%" for share in shares]
    table = [["direction", "pairs", *names, "translations in another language"]]
    for (src, tgt, pairs, *scores), share in zip(rows, others, strict=True):
        table.append([f"{src} → {tgt}", f"{pairs:,}", *scores, share])
    return table


def _mean_of_directions(event: Event) -> str:
    """Return what the figures of an event are means of, for the start of a description; empty for one direction."""
    directions = event.get("directions")
    return f"mean of {len(directions)} directions; " if directions else ""


def selection_remark(figure: str, metric: str) -> str:
    """Return a remark on a figure that selects the best model, alone or with others; empty: it does not.

    Args:
        figure: `bleu`, `chrf` or `loss`.
        metric: What selects the best model.
    """
    if metric == "combined":
        return "; together with two other figures, selects the best model"
    return "; selects the best model" if figure == metric else ""


def _selecting_first(record: RunRecord, rows: list[ScoreRow]) -> list[ScoreRow]:
    """Sort the metric that selects the model before the others."""
    name = SELECTION_NAMES[record.selection_metric]
    return sorted(rows, key=lambda row: not row.metric.startswith(name))


class SpeedMeter:
    """Computes the target tokens per second between two `train` events.

    The time of a validation does not count if it comes right after a `train` event. A validation between two `train`
    events counts: the time at which it began is not recorded.
    """

    def __init__(self) -> None:
        self._step = 0
        """The step of the last `train` event."""
        self._seconds = 0.0
        """The time used until that event, and until the end of the validations that directly follow it."""

    def add(self, event: dict[str, Any]) -> float | None:
        """Add the next event. All events must be added, in order.

        Returns:
            The target tokens per second since the previous `train` event; None for the first one and other events.
        """
        before = self._seconds
        if event["event"] == "train":
            self._step = event["step"]
            self._seconds = event["seconds"]
            if 0 < before < self._seconds:
                return float(event["tokens"] / (self._seconds - before))
        elif before > 0 and event["step"] == self._step and "seconds" in event:
            self._seconds = event["seconds"]
        return None


def speeds(events: Iterable[dict[str, Any]]) -> list[tuple[float, float]]:
    """Return pairs of a step and the target tokens per second before it."""
    meter = SpeedMeter()
    found = []
    for event in events:
        speed = meter.add(event)
        if speed is not None:
            found.append((float(event["step"]), speed))
    return found
