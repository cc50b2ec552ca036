"""`data/info.json` of a run: what its data was prepared from. It is used only if it is complete and well-formed.

Fingerprints of files (size, modification time and SHA-256) show a resumed run that a corpus has changed.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict
from typing_extensions import TypedDict  # before Python 3.12, pydantic does not accept that of `typing`

from mtcli import limits
from mtcli.config.fields import Count, Within
from mtcli.config.schema import Config
from mtcli.config.toml_file import with_older_defaults
from mtcli.corpus.cache.parent import TakenOver
from mtcli.corpus.readers.sources import parse_source, source_files
from mtcli.errors import DataError
from mtcli.runtime.files import read_regular, replace_file, sha256
from mtcli.text.languages import Direction

Json = dict[str, Any]
Weight = Annotated[float, Within(limits.WEIGHT)]


class Fingerprint(TypedDict):
    """What shows if a file has changed."""

    size: Count
    mtime_ns: int
    sha256: str


class PairCounts(TypedDict):
    """Pairs read, and what they were used for or why they were skipped."""

    read: Count
    train: Count
    valid: Count
    test: Count
    skipped: dict[str, Count]


class SourcePairs(TypedDict):
    """What the pairs of a training corpus are."""

    tagged: Count
    """Pairs whose source begins with `BACK_TRANSLATION_TAG`."""
    synthetic: bool
    """`mtcli augment` wrote them."""


class Settings(TypedDict):
    """The part of the configuration that the prepared data depends on."""

    data: Json
    tokenizer: Json


class DataInfo(BaseModel):
    """The content of `data/info.json`, without its checksum."""

    model_config = ConfigDict(strict=True, extra="forbid")

    inputs: dict[str, Fingerprint]
    """Those of the corpora, by name."""
    settings: Settings
    init: str | None
    """Checksum of the weights that training starts from; None: they are random."""
    transfer: TakenOver | None = None
    """What was taken from a model of other languages."""
    weights: list[tuple[Count, Weight]]
    """(rows, weight) of each training corpus, with the weights that the user gave."""
    sources: list[SourcePairs]
    """Each training corpus, see `training_sources`."""
    counts: PairCounts
    files: dict[str, Fingerprint]
    """Those of the other prepared files, by name."""

    @classmethod
    def read(cls, run: Path) -> "DataInfo":
        """Read that of a run folder.

        Raises:
            OSError: The file cannot be read.
            ValueError: The file is damaged.
        """
        try:
            content = json.loads(read_regular(info_path(run)))
            checksum = content.pop("sha256")
        except (LookupError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"not an object with a checksum ({error})") from None
        if checksum != digest(content):
            raise ValueError("its content does not match its checksum")
        return cls.model_validate_json(json.dumps(content))  # strict about types, except that JSON has lists for tuples

    def write(self, run: Path) -> None:
        """Write that of a run folder, with its checksum.

        Raises:
            StorageError: It cannot be written.
        """
        content = self.model_dump(mode="json")
        replace_file(info_path(run), json.dumps({**content, "sha256": digest(content)}, indent=1).encode())

    def recorded_settings(self) -> Settings:
        """Return the settings, completed by the defaults of options that are newer than the file.

        Raises:
            ValueError: They are malformed.
        """
        return data_settings(Config.model_validate(with_older_defaults({**self.settings})))


def info_path(run: Path) -> Path:
    """Return the path of the `info.json` of a run folder."""
    return run / "data" / "info.json"


def digest(content: Json) -> str:
    """Return the checksum of the content of an `info.json`, which its key `sha256` holds."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def data_settings(config: Config) -> Settings:
    """Return the part of a configuration that the prepared data depends on."""
    data = config.data.model_dump(mode="json", exclude={"note"})
    return {"data": data, "tokenizer": config.tokenizer.model_dump(mode="json")}


def fingerprint(path: Path, known: Fingerprint | None = None) -> Fingerprint:
    """Return the fingerprint of a file.

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


def fingerprint_inputs(config: Config, known: Mapping[str, Fingerprint] | None = None) -> dict[str, Fingerprint]:
    """Return the fingerprint of every local file behind the corpora, by name.

    Args:
        config: Names the corpora.
        known: Earlier fingerprints by name. Hashing gigabytes at every start would take minutes.

    Raises:
        DataError: A file is missing or cannot be read.
    """
    found: dict[str, Fingerprint] = {}
    for path in input_files(config):
        try:
            found[str(path)] = fingerprint(path, (known or {}).get(str(path)))
        except OSError as error:
            raise DataError(f"{path}: cannot be read ({error.strerror or error})") from None
    return found


def check_unchanged(config: Config, known: Mapping[str, Fingerprint]) -> None:
    """Check that the corpora are those of earlier fingerprints.

    Raises:
        DataError: A file changed, disappeared or is new.
    """
    now = fingerprint_inputs(config, known)
    for name in {**known, **now}:
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
