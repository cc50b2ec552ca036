"""`metrics.jsonl`: one event of training per line, as JSON.

A checkpoint records the length of the file. Events after that length belong to steps that a resumed run repeats: they
are deleted when it starts. The file may come from another machine, so every event that is read is validated.
"""

import json
import logging
import os
from collections.abc import Callable, Iterable
from io import BytesIO
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from mtcli import limits
from mtcli.config.fields import Count, Within
from mtcli.config.scores import SelectionMetric
from mtcli.errors import ModelError
from mtcli.runtime.files import check_regular, open_regular, read_regular, storage_errors, sync_folder
from mtcli.storage.state import State

log = logging.getLogger(__name__)

MAX_FIRST_LINE = 2**20
"""Longest first line, in bytes, of which the version is read."""


class _Event(BaseModel):
    """The keys of every event. Other keys are accepted."""

    model_config = ConfigDict(strict=True, extra="allow")

    event: str
    step: Count


class _Timed(_Event):
    seconds: float


class _Train(_Timed):
    tokens: Count


class _Corrections(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow")

    given: Count
    of: Count
    forgets: bool


class _Valid(_Event):
    loss: float
    bleu: float
    chrf: float
    metric: SelectionMetric
    pairs: Count
    of: Count
    corrections: _Corrections | None = None


class _Data(_Event):
    read: Count
    train: Count
    valid: Count
    test: Count
    skipped: dict[str, Count]


class _Lengths(_Event):
    median: Count
    usual: Count
    longest: Count
    unit: Literal["words", "characters"]
    tokens_per_unit: Annotated[float, Within(limits.WEIGHT)]


_KINDS: dict[str, type[_Event]] = {
    "train": _Train,
    "valid": _Valid,
    "average": _Valid,
    "start": _Valid,
    "data": _Data,
    "lengths": _Lengths,
    "end": _Timed,
}


def read_events(path: Path) -> tuple[list[dict[str, Any]], int]:
    """Read a `metrics.jsonl`.

    Returns:
        The valid events in order, and the number of invalid lines.

    Raises:
        ModelError: The file is missing, not a regular file, or too large, or version 0.1 began it.
    """
    check_version(path)
    try:
        content = read_regular(path, most=limits.METRICS)
    except OSError as error:
        raise ModelError(f"{path}: cannot read it ({error.strerror}); move it away") from None
    events = []
    damaged = 0
    for line in content.splitlines():
        event = _event(line)
        if event is None:
            damaged += 1
        else:
            events.append(event)
    return events, damaged


def _event(line: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
        kind = _KINDS.get(found["event"], _Event)
        return kind.model_validate(found).model_dump(exclude_unset=True)
    except (ValueError, KeyError, TypeError, RecursionError, ValidationError):
        return None


def best_of(events: Iterable[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the validation of the run's model, or None before the first validation.

    It is a `valid` or `average` event, chosen as training chooses (`State.record_if_best`). If the model that
    fine-tuning started from is better at the end, it is the `start` event, with 0 as its step.
    """
    best: dict[str, Any] | None = None
    state = State()
    for event in events:
        kind = event["event"]
        if kind == "valid":
            state.metric = event["metric"]
            if state.record_if_best(event):
                best = event
        elif kind == "average" and event.get("kept"):
            state.metric = event["metric"]
            state.record(event)
            best = event
        elif kind == "start" and event.get("kept") and best is not None:
            state.restore_start(event)
            best = event | {"step": 0}
    return best


METRICS_FORMAT = 2
"""Format of `metrics.jsonl`, which the first line of a file names. A file without it was begun by version 0.1."""


def check_version(path: Path) -> None:
    """Check that version 0.1 did not begin a `metrics.jsonl`, which need not exist.

    Raises:
        ModelError: It did: this version can use the model of the run, but neither resume nor describe the run.
    """
    try:
        with open_regular(path) as file:
            first = json.loads(file.readline(MAX_FIRST_LINE))
    except (OSError, ValueError, RecursionError):
        return  # missing or damaged, which those report that read it
    if isinstance(first, dict) and "event" in first and "format" not in first:
        raise ModelError(
            f"{path.parent}: a run of mtcli 0.1, which this version can neither resume nor describe; its model can "
            "still be used; train again with --overwrite or another --out"
        )


class Metrics:
    """The `metrics.jsonl` of a run, to append events to.

    Args:
        run: The run folder.
    """

    def __init__(self, run: Path):
        self.path = run / "metrics.jsonl"
        self.on_event: Callable[[dict[str, Any]], None] | None = None
        """Called with each event after it is written."""

    def append(self, event: str, step: int, values: dict[str, Any]) -> int:
        """Write an event, sync the file, and return the length of the line in bytes.

        The first event of a file also gets the key `format`.

        Raises:
            StorageError: The file cannot be written.
        """
        is_new = not self.path.exists()
        content: dict[str, Any] = {"event": event, "step": step}
        if is_new or self.path.stat().st_size == 0:
            content["format"] = METRICS_FORMAT
        content |= values
        line = (json.dumps(content, ensure_ascii=False) + "\n").encode()
        with storage_errors(self.path), self.path.open("ab") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())  # before a checkpoint that records the length
            if is_new:
                sync_folder(self.path.parent)
        if self.on_event is not None:
            self.on_event(content)
        return len(line)

    def read(self) -> tuple[list[dict[str, Any]], int]:
        """Return the valid events and the number of invalid lines (see `read_events`); none without a file."""
        return read_events(self.path) if self._is_present() else ([], 0)

    def cut(self, length: int) -> int:
        """Delete the events after the first `length` bytes, which a checkpoint has recorded.

        Returns:
            The new length: less than `length` if the file was cut short by a crash.

        Raises:
            ModelError: The file is not a regular file of the run folder.
            StorageError: The file cannot be written.
        """
        if self._is_present():
            self._check_own()
        with storage_errors(self.path), self.path.open("r+b") if self.path.exists() else BytesIO() as file:
            size = file.seek(0, os.SEEK_END)
            if size < length:
                log.warning("%s was cut short; the missing events are lost", self.path)
                file.seek(0)
                length = file.read(size).rfind(b"\n") + 1
            if size > length:
                file.truncate(length)
            sync_folder(self.path.parent)  # the file may be new, made by a process that was killed before its own sync
        return length

    def _is_present(self) -> bool:
        """Return True if the name exists, also as a link that leads nowhere."""
        return self.path.is_symlink() or self.path.exists()

    def _check_own(self) -> None:
        """Check that writing changes no other file.

        Raises:
            ModelError: The name is a link to a file elsewhere, or not a regular file.
        """
        try:
            check_regular(self.path, inside=self.path.parent)
        except OSError as error:
            raise ModelError(f"{self.path}: cannot write it ({error.strerror}); move it away") from None
