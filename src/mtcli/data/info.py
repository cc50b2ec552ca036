"""`data/info.json` of a run: what its prepared data was made from, read only if it is whole and of the right types."""

import hashlib
import json
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Strict

from mtcli import limits
from mtcli.config.fields import Within
from mtcli.runtime.regular_file import read_regular

Count = Annotated[int, Within(limits.COUNT)]
Weight = Annotated[float, Within(limits.WEIGHT)]


class _Part(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")


class _File(_Part):
    size: Count
    mtime_ns: int
    sha256: str


class _Counts(_Part):
    read: Count
    train: Count
    valid: Count
    test: Count
    skipped: dict[str, Count]


class _Info(_Part):
    inputs: dict[str, _File]
    settings: dict[str, dict[str, Any] | int]
    init: str | None
    weights: list[Annotated[tuple[Count, Weight], Strict(False)]]
    counts: _Counts
    files: dict[str, _File]


def read_data_info(path: Path) -> dict[str, Any]:
    """The content of an `info.json`.

    Raises:
        OSError: It cannot be read.
        ValueError, KeyError, TypeError, AttributeError, RecursionError: It is damaged.
    """
    info: dict[str, Any] = json.loads(read_regular(path))
    if info.pop("sha256") != digest(info):
        raise ValueError("its content does not have the checksum it names")
    _Info.model_validate(info)
    return info


def digest(info: dict[str, Any]) -> str:
    """The checksum of what an `info.json` holds besides it."""
    return hashlib.sha256(json.dumps(info, sort_keys=True).encode()).hexdigest()
