"""The curves of `metrics.jsonl` for TensorBoard, in the run's `tensorboard/` folder. Needs the extra `tensorboard`."""

import logging
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from torch.utils.tensorboard import SummaryWriter

from mtcli.report.run_record import SpeedMeter

log = logging.getLogger(__name__)

CURVE_EVENTS = ("train", "valid")
"""The events of `metrics.jsonl` whose figures are points of curves."""


class CurveWriter:
    """Writes the figures of each event as scalars such as `train/loss` and `valid/bleu`.

    Every start of a run opens a new event file and writes all earlier events to it again. `purge_step=0` tells
    TensorBoard to ignore the older files. They are not deleted, because an open TensorBoard could not continue to read.

    When a run resumes, `metrics.jsonl` is first cut back to the checkpoint, so no step appears twice. The curves are
    also complete if TensorBoard is turned on for a run that has already begun.

    A failure is logged once and ends the writing. It never ends the training.

    Args:
        run: The run folder.
        history: The events of the run so far.
    """

    def __init__(self, run: Path, history: Iterable[dict[str, Any]]):
        history = list(history)
        seconds_used = max((event["seconds"] for event in history if "seconds" in event), default=0.0)
        # When training would have started if it had run until now without pauses. The times of points count from it.
        self._start = time.time() - seconds_used
        self._speed = SpeedMeter()
        self._writer: SummaryWriter | None = None
        try:
            self._writer = SummaryWriter(str(run / "tensorboard"), purge_step=0)
        except Exception as error:
            self._give_up(error)
        for event in history:
            self._add(event)
        self._flush()

    def add(self, event: dict[str, Any]) -> None:
        """Write one event of `metrics.jsonl`; events without curves are ignored."""
        self._add(event)
        self._flush()

    def _add(self, event: dict[str, Any]) -> None:
        if self._writer is None:
            return
        kind = event["event"]
        tokens_per_second = self._speed.add(event)
        if kind not in CURVE_EVENTS or "seconds" not in event:
            return
        scalars = {name: value for name, value in event.items() if isinstance(value, float) and name != "seconds"}
        if tokens_per_second is not None:
            scalars["tokens_per_second"] = tokens_per_second
        walltime = self._start + event["seconds"]
        try:
            for name, value in scalars.items():
                self._writer.add_scalar(f"{kind}/{name}", value, event["step"], walltime)
        except Exception as error:
            self._give_up(error)

    def _flush(self) -> None:
        """Wait for the writer's thread, so that a killed run loses no point."""
        if self._writer is None:
            return
        try:
            self._writer.flush()
        except Exception as error:
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        log.warning("cannot write tensorboard/ (%s); its figures are also in metrics.jsonl", error)
        self._writer = None
