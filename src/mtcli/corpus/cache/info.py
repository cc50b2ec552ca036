"""`data/info.json` of a run: what its data was prepared from. It is used only if it is complete and well-formed."""

import hashlib
import json
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Strict

from mtcli import limits
from mtcli.config.fields import Within
from mtcli.config.schema import Config
from mtcli.runtime.files import replace_file
from mtcli.runtime.regular_file import read_regular

Json = dict[str, Any]
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


class _Source(_Part):
    tagged: Count
    synthetic: bool


class _Info(_Part):
    inputs: dict[str, _File]
    """Fingerprints of the corpora, by name."""
    settings: dict[str, dict[str, Any]]
    """See `data_settings`."""
    init: str | None
    """Checksum of the weights that training starts from; None: they are random."""
    weights: list[Annotated[tuple[Count, Weight], Strict(False)]]
    """(rows, weight) of each training corpus."""
    sources: list[_Source]
    """Each training corpus, see `training_sources`."""
    counts: _Counts
    files: dict[str, _File]
    """Fingerprints of the other prepared files, by name."""


def read_data_info(path: Path) -> Json:
    """Read an `info.json`.

    Raises:
        OSError: The file cannot be read.
        ValueError, KeyError, TypeError, AttributeError, RecursionError: The file is damaged.
    """
    info: Json = json.loads(read_regular(path))
    if info.pop("sha256") != digest(info):
        raise ValueError("its content does not match its checksum")
    _Info.model_validate(info)
    return info


def write_data_info(path: Path, info: Json) -> None:
    """Write an `info.json` with its checksum.

    Raises:
        StorageError: It cannot be written.
    """
    replace_file(path, json.dumps({**info, "sha256": digest(info)}, indent=1).encode())


def digest(info: Json) -> str:
    """Return the checksum of the content of an `info.json`.

    Args:
        info: The content without its key `sha256`, which holds this checksum.
    """
    return hashlib.sha256(json.dumps(info, sort_keys=True).encode()).hexdigest()


def data_settings(config: Config) -> Json:
    """Return the part of the configuration that the prepared data depends on."""
    return {
        "data": config.data.model_dump(mode="json", exclude={"note"}),
        "tokenizer": config.tokenizer.model_dump(mode="json"),
    }


def recorded_settings(info: Json) -> Json:
    """Return the settings in an `info.json`, completed by the defaults of options that are newer than the file.

    Raises:
        KeyError, TypeError, ValueError: They are malformed.
    """
    return data_settings(Config.model_validate(info["settings"]))
