"""Fingerprints of files: size, modification time and SHA-256, by which a resumed run notices a changed corpus."""

import hashlib
from pathlib import Path
from typing import Any

from mtcli.config.schema import Config
from mtcli.corpus.readers.sources import parse_source, source_files
from mtcli.errors import DataError
from mtcli.runtime.regular_file import open_regular

Json = dict[str, Any]


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
    with open_regular(path) as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if known and digest == known["sha256"]:
        return known
    return {"size": status.st_size, "mtime_ns": status.st_mtime_ns, "sha256": digest}


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


def input_specs(config: Config) -> list[str]:
    """Return the names of all corpora, without weights."""
    data = config.data
    held_out = [spec for spec in (data.valid, data.test) if spec is not None]
    return [parse_source(spec).path for spec in data.train] + held_out


def input_files(config: Config) -> list[Path]:
    """Return every local file behind the corpora.

    Raises:
        DataError: A file is missing.
    """
    data = config.data
    return [path for spec in input_specs(config) for path in source_files(spec, data.src, data.tgt)]
