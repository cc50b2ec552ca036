"""Read `metrics.jsonl`: a line an event, each checked, since the file may come from anywhere."""

import json
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from mtcli import limits
from mtcli.config.fields import Within
from mtcli.errors import ModelError
from mtcli.runtime.regular_file import read_regular

Count = Annotated[int, Within(limits.COUNT)]


class _Event(BaseModel):
    """What every event has."""

    model_config = ConfigDict(strict=True, extra="allow")

    event: str
    step: Count


class _Timed(_Event):
    seconds: float


class _Train(_Timed):
    tokens: Count


class _Valid(_Event):
    loss: float
    bleu: float
    chrf: float
    metric: Literal["bleu", "chrf"] = "bleu"


class _Data(_Event):
    read: Count
    train: Count
    valid: Count
    test: Count
    skipped: dict[str, Count]


_KINDS: dict[str, type[_Event]] = {"train": _Train, "valid": _Valid, "average": _Valid, "data": _Data, "end": _Timed}


def read_events(path: Path) -> tuple[list[dict[str, Any]], int]:
    """All events of a `metrics.jsonl`, and the number of lines that are none.

    Raises:
        ModelError: It is missing, no regular file, or too large.
    """
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
        return kind.model_validate(found).model_dump()
    except (ValueError, KeyError, TypeError, RecursionError, ValidationError):
        return None
