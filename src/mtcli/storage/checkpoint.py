"""Crash-safe checkpoints: write to a temporary folder, sync each file, write the manifest last, rename the folder.

    checkpoints/step-00001000/{model,optimizer}.safetensors, state.json, manifest.json

The manifest has the size and SHA-256 of every other file. A checkpoint is complete if its files agree with it. Tensors
are stored as safetensors and everything else as JSON, so reading a checkpoint cannot run code.
"""

import hashlib
import json
import logging
import os
import re
import shutil
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from mtcli.errors import ModelError
from mtcli.runtime.files import open_regular, read_regular, storage_errors, sync_folder, write_file
from mtcli.storage.tensors import Tensors, read_tensors, to_bytes

log = logging.getLogger(__name__)

FORMAT: Literal[2] = 2
"""Version of the format of checkpoints and models. In format 1, token embeddings have another name, see
`tensors.OLD_NAME`. Newer formats are refused."""

FILES = {"model.safetensors", "optimizer.safetensors", "state.json"}
"""The files of a checkpoint besides its manifest."""


@dataclass(frozen=True)
class Checkpoint:
    """The content of a checkpoint: all that training needs to resume."""

    path: Path
    model: Tensors
    optimizer: Tensors
    """Optimizer state by `parameter name/key`."""
    state: dict[str, Any]
    """The content of `state.json`; see `state.State`."""


def write(folder: Path, step: int, model: bytes, optimizer: Tensors, state: dict[str, Any]) -> Path:
    """Write the checkpoint of a step and return its folder.

    Args:
        folder: `checkpoints/` of the run.
        step: Optimizer steps taken.
        model: The content of `model.safetensors`.
        optimizer: Optimizer state by `parameter name/key`.
        state: Everything else, as JSON values.

    Raises:
        StorageError: The checkpoint cannot be written. Earlier checkpoints are unchanged.
    """
    final = path_of(folder, step)
    temporary = folder / f".tmp-{final.name}"
    files = {
        "model.safetensors": model,
        "optimizer.safetensors": to_bytes(optimizer),
        "state.json": json.dumps({"format": FORMAT, "step": step, **state}, indent=1).encode(),
    }
    manifest = {
        name: {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()} for name, content in files.items()
    }
    with storage_errors(folder):
        if not folder.exists():
            folder.mkdir()  # without its parents: a run folder that was deleted is an error
            sync_folder(folder.parent)
        for leftover in folder.glob(".tmp-step-*"):  # of a process that was killed: its space may be needed
            shutil.rmtree(leftover)
        try:
            temporary.mkdir()
            for name, content in files.items():
                write_file(temporary / name, content)
            write_file(temporary / "manifest.json", json.dumps(manifest, indent=1).encode())
            sync_folder(temporary)
            _rename_into_place(temporary, final)
        except OSError:
            shutil.rmtree(temporary, ignore_errors=True)  # a part of a checkpoint must not keep the disk full
            raise
    return final


def _rename_into_place(temporary: Path, final: Path) -> None:
    """Rename a complete temporary folder. An earlier checkpoint of the same step is replaced.

    After a crash between the two renames, `latest` restores the earlier checkpoint. After a later one, it deletes it.
    """
    earlier = final.with_name(f".old-{final.name}")
    if final.exists():
        if earlier.exists():
            shutil.rmtree(earlier)
        final.rename(earlier)
    temporary.rename(final)
    sync_folder(final.parent)
    if earlier.exists():
        shutil.rmtree(earlier)


def verify(path: Path) -> str | None:
    """Return what is wrong with a checkpoint, in a few words, or None if it is complete and undamaged."""
    try:
        manifest = json.loads(read_regular(path / "manifest.json"))
        if not isinstance(manifest, dict) or set(manifest) != FILES:
            return "its manifest names other files"
        for name, entry in manifest.items():
            with open_regular(path / name) as file:
                if os.fstat(file.fileno()).st_size != entry["size"]:
                    return f"{name} has another size than its manifest says"
                if hashlib.file_digest(file, "sha256").hexdigest() != entry["sha256"]:
                    return f"{name} has another SHA-256 than its manifest says"
    except FileNotFoundError as error:
        return f"{Path(error.filename).name} is missing"
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        return f"its manifest cannot be read ({error})"
    return None


def steps(folder: Path) -> list[Path]:
    """Return the folders of all checkpoints, oldest first, damaged ones included."""
    found = [path for path in folder.glob("step-*") if re.fullmatch(r"step-\d{8,}", path.name) and path.is_dir()]
    return sorted(found, key=step_of)


def path_of(folder: Path, step: int) -> Path:
    """Return the folder of the checkpoint of a step, which need not exist."""
    return folder / f"step-{step:08d}"


def step_of(path: Path) -> int:
    """Return the step in the name of a checkpoint's folder."""
    return int(path.name.removeprefix("step-"))


def latest(folder: Path) -> Checkpoint | None:
    """Load the newest checkpoint that is not damaged. Damaged ones are reported in the log.

    Returns:
        The checkpoint, or None if the folder has no checkpoints.

    Raises:
        ModelError: All checkpoints are damaged, or the newest was written by a later version.
    """
    for earlier in folder.glob(".old-step-*"):
        final = folder / earlier.name.removeprefix(".old-")
        if not final.exists():
            earlier.rename(final)
        elif verify(final) is None:  # a run that has finished writes no checkpoint after which it would be deleted
            shutil.rmtree(earlier)
    found = steps(folder)
    for path in reversed(found):
        if problem := verify(path):
            log.warning("%s is damaged: %s; trying the one before", path, problem)
            continue
        return load(path)
    if found:
        raise ModelError(f"{folder}: every checkpoint is damaged ({len(found)} found); start over with --overwrite")
    return None


def load(path: Path) -> Checkpoint:
    """Load a checkpoint that `verify` has checked.

    Raises:
        ModelError: A tensor contains NaN, or the checkpoint was written by a later version.
    """
    try:
        state = json.loads(read_regular(path / "state.json"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{path / 'state.json'}: cannot be read ({error})") from None
    if not isinstance(state, dict):
        raise ModelError(f"{path / 'state.json'}: not a state of training")
    if state.get("format") not in (1, FORMAT):
        raise ModelError(f"{path}: format {state.get('format')}; this version reads format {FORMAT}: update mtcli")
    model, _ = read_tensors(path / "model.safetensors")
    optimizer, _ = read_tensors(path / "optimizer.safetensors")
    return Checkpoint(path, model, optimizer, state)


def prune(folder: Path, keep: int, pinned: Collection[int]) -> None:
    """Delete old checkpoints and temporary folders.

    The newest `keep` checkpoints are kept, and the newest undamaged one with all that are newer. If every checkpoint is
    damaged, nothing is deleted.

    Args:
        folder: `checkpoints/` of the run.
        keep: The number of checkpoints to keep.
        pinned: Steps of checkpoints that are kept too.
    """
    found = steps(folder)
    undamaged = next((index for index in reversed(range(len(found))) if verify(found[index]) is None), None)
    if undamaged is None:
        return
    for leftover in [*folder.glob(".tmp-step-*"), *folder.glob(".old-step-*")]:
        shutil.rmtree(leftover)
    num_old = max(0, min(undamaged, len(found) - keep))
    for path in found[:num_old]:
        if step_of(path) in pinned:
            continue
        temporary = folder / f".tmp-{path.name}"
        path.rename(temporary)  # a folder that is deleted in part must not look like a checkpoint
        shutil.rmtree(temporary)
