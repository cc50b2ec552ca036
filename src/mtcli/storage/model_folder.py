"""The folder of a model, which may be a checkpoint of a run, and the identity of its file. Needs no PyTorch."""

import hashlib
import json
from pathlib import Path

from pydantic import BaseModel

from mtcli.runtime.files import open_regular, sha256
from mtcli.storage import PROVENANCE

MAX_HEADER = 100 * 2**20
"""Size limit of the header of a safetensors file, in bytes; it is that of the safetensors library."""


def run_of(model: Path) -> Path:
    """Return the folder of the run that a model belongs to: its own, or that of its checkpoint."""
    is_checkpoint = (model / "manifest.json").exists()
    if not is_checkpoint:
        return model
    if model.parent.name == "checkpoints":  # which may be a link to another disk, so it is not followed
        return model.parent.parent
    return model.resolve().parent.parent  # `model` is `.`, or a link to a checkpoint


def tokenizer_file(model: Path) -> Path:
    """Return the `tokenizer.json` of a model, which need not exist: its own, or that of the run of a checkpoint."""
    own = model / "tokenizer.json"
    return own if own.exists() else run_of(model) / "tokenizer.json"


def model_weights(folder: Path) -> Path:
    """Return the file with the weights of a run, a checkpoint or an exported model, which exists."""
    file = folder / "model.safetensors"
    return file if file.is_file() else folder / "model.bin"


def model_digest(folder: Path) -> str:
    """Return a SHA-256 of everything in a model folder that decides its translations, in hexadecimal digits.

    The weights of a run name its settings. Those of an exported model are in its `mtcli.json`, with the checksums of
    its other files.
    """
    digest = sha256(model_weights(folder))
    about = folder / PROVENANCE
    if not about.is_file():
        return digest
    return hashlib.sha256(f"{digest} {sha256(about)}".encode()).hexdigest()


class ModelIdentity(BaseModel):
    """What identifies the content of a model file."""

    digest: str
    """The checksum of the tensors and the metadata, which the header of the file names; see `model_file.checksum`."""
    size: int
    """In bytes."""
    mtime_ns: int
    """Time of the last modification, in nanoseconds."""
    sha256: str
    """SHA-256 of the whole file."""


def identity_of(path: Path) -> ModelIdentity:
    """Return the identity of a model file, which is read completely.

    Raises:
        OSError: It cannot be read.
        ValueError: It is not a model of mtcli.
    """
    status = path.stat()
    return ModelIdentity(digest=_digest(path), size=status.st_size, mtime_ns=status.st_mtime_ns, sha256=sha256(path))


def has_identity(path: Path, identity: ModelIdentity) -> bool:
    """Return True if a model file has not changed since its identity was taken.

    The digest in the header differs if the file was replaced by another model. Equal size and time mean that it was not
    edited either. If only the time differs, as after copying a run, the whole file is read.
    """
    try:
        if _digest(path) != identity.digest:
            return False
        status = path.stat()
        if status.st_size != identity.size:
            return False
        return status.st_mtime_ns == identity.mtime_ns or sha256(path) == identity.sha256
    except (OSError, ValueError):
        return False


def _digest(path: Path) -> str:
    """Return the checksum that the header of a model file names: 8 bytes of length, then JSON.

    Raises:
        OSError: The file cannot be read.
        ValueError: It is not a model of mtcli.
    """
    with open_regular(path) as file:
        length = int.from_bytes(file.read(8), "little")
        if length > MAX_HEADER:
            raise ValueError(f"{path}: not a safetensors file")
        header = file.read(length)
    try:
        about = json.loads(json.loads(header)["__metadata__"]["mtcli"])
        return str(about["sha256"])
    except (KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"{path}: not a model of mtcli") from error
