"""`data/info.json` of a run: what its data was prepared from. It is used only if it is complete and well-formed.

Fingerprints of files (size, modification time and SHA-256) show a resumed run that a corpus has changed.
"""

import hashlib
import json
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Strict

from mtcli import limits
from mtcli.config.fields import Count, Within
from mtcli.config.schema import Config
from mtcli.config.toml_file import with_older_defaults
from mtcli.corpus.readers.sources import parse_source, source_files
from mtcli.errors import DataError
from mtcli.runtime.files import read_regular, replace_file, sha256
from mtcli.text.languages import Direction

Json = dict[str, Any]
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


class _Matched(_Part):
    same: Count
    parts: Count
    new: Count


class _Transfer(_Part):
    parent: str
    src: str
    tgt: str
    choice: str
    src_tokens: _Matched
    tgt_tokens: _Matched


class _Info(_Part):
    inputs: dict[str, _File]
    """Fingerprints of the corpora, by name."""
    settings: dict[str, dict[str, Any]]
    """See `data_settings`."""
    init: str | None
    """Checksum of the weights that training starts from; None: they are random."""
    transfer: _Transfer | None = None
    """What was taken from a model of other languages, see `TakenOver`."""
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
    return data_settings(Config.model_validate(with_older_defaults(info["settings"])))


def fingerprint(path: Path, known: Json | None = None) -> Json:
    """Return `size`, `mtime_ns` and `sha256` of a file.

    Args:
        path: The file.
        known: An earlier fingerprint. It is returned if size and time are the same, without reading the file, or if
            the content is the same, after a copy for example.

    Raises:
        OSError: The file cannot be read.
    """
    status = path.stat()
    if known and (known["size"], known["mtime_ns"]) == (status.st_size, status.st_mtime_ns):
        return known
    digest_of_file = sha256(path)
    if known and digest_of_file == known["sha256"]:
        return known
    return {"size": status.st_size, "mtime_ns": status.st_mtime_ns, "sha256": digest_of_file}


def fingerprint_inputs(config: Config, known: Json | None = None) -> Json:
    """Return the fingerprint of every local file behind the corpora, by name.

    Args:
        config: Names the corpora.
        known: Earlier fingerprints by name. Hashing gigabytes at every start would take minutes.

    Raises:
        DataError: A file is missing or cannot be read.
    """
    found: Json = {}
    for path in input_files(config):
        try:
            found[str(path)] = fingerprint(path, (known or {}).get(str(path)))
        except OSError as error:
            raise DataError(f"{path}: cannot be read ({error.strerror or error})") from None
    return found


def check_unchanged(config: Config, known: Json) -> None:
    """Check that the corpora are those of earlier fingerprints.

    Raises:
        DataError: A file changed, disappeared or is new.
    """
    now = fingerprint_inputs(config, known)
    for name in known | now:
        if now.get(name) != known.get(name):
            then_hash = known[name]["sha256"][:12] if name in known else "not there"
            now_hash = now[name]["sha256"][:12] if name in now else "not there"
            raise DataError(
                f"{name}: changed since this run began (SHA-256 then {then_hash}, now {now_hash}); "
                "put the old file back, or start over with --overwrite"
            )


def input_specs(config: Config) -> list[tuple[str, Direction]]:
    """Return the names of all corpora, without weights, and their languages."""
    data = config.data
    training = [(parse_source(corpus.train).path, corpus.languages) for corpus in data.directed]
    return list(dict.fromkeys([*training, *data.given_splits("valid"), *data.given_splits("test")]))


def input_files(config: Config) -> list[Path]:
    """Return every local file behind the corpora.

    Raises:
        DataError: A file is missing.
    """
    return [path for spec, languages in input_specs(config) for path in source_files(spec, *languages)]
