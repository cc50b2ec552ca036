"""Checkpoints that a crash cannot harm: written aside, each file synced, the manifest last, then renamed.

    checkpoints/step-00001000/{model,optimizer}.safetensors, state.json, manifest.json

The manifest holds the size and SHA-256 of every other file, so a checkpoint is whole if and only if it agrees.
Tensors are safetensors and everything else is JSON: nothing that is read can run code.
"""

import hashlib
import json
import logging
import os
import re
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from filelock import FileLock, Timeout
from torch import Tensor

from mtcli.errors import LockedError, ModelError
from mtcli.runtime.files import storage_errors, sync_folder, write_file
from mtcli.runtime.regular_file import check_regular, open_regular, read_regular

log = logging.getLogger(__name__)

Tensors = dict[str, Tensor]

FORMAT: Literal[1] = 1
"""Version of the run folder; a newer one is refused."""

DTYPES = {"F64", "F32", "F16", "BF16", "I64", "I32", "U8", "BOOL"}
"""Of tensors in a model or an optimiser."""

FILES = {"model.safetensors", "optimizer.safetensors", "state.json"}
"""Of a checkpoint, besides its manifest."""


@dataclass(frozen=True)
class Checkpoint:
    """One whole training state."""

    path: Path
    model: Tensors
    optimizer: Tensors
    state: dict[str, Any]


def to_bytes(tensors: Tensors, metadata: Mapping[str, str] | None = None) -> bytes:
    """Tensors as a safetensors file."""
    from safetensors.torch import save

    contiguous = {name: t.detach().cpu().contiguous() for name, t in tensors.items()}
    content: bytes = save(contiguous, metadata=dict(metadata) if metadata else None)
    return content


def read_tensors(path: Path) -> tuple[Tensors, dict[str, str]]:
    """Tensors and metadata of a safetensors file; every number in it finite.

    Raises:
        ModelError: The file is missing or damaged, or holds NaN or infinity.
    """
    from safetensors import SafetensorError, safe_open

    try:
        check_regular(path)
        if path.stat().st_size > os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"):
            raise ValueError("it is larger than this machine's memory")
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            for name in file.keys():  # noqa: SIM118 - no mapping
                part = file.get_slice(name)
                if len(part.get_shape()) > 2 or part.get_dtype() not in DTYPES:
                    raise ValueError(f"{name} is no vector or matrix of a type that models have")
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 - no mapping
    except FileNotFoundError:
        raise ModelError(f"{path}: no such file") from None
    except (SafetensorError, OSError, ValueError) as error:
        raise ModelError(f"{path}: not a readable safetensors file: {error}") from None
    except BaseException as error:
        if type(error).__name__ == "PanicException":  # of the native library; it is no Exception
            raise ModelError(f"{path}: not a readable safetensors file: {error}") from None
        raise
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise ModelError(f"{path}: {name} holds NaN or infinity; use another checkpoint")
    return tensors, metadata


def write(folder: Path, step: int, model: bytes, optimizer: Tensors, state: dict[str, Any]) -> Path:
    """Write the checkpoint of a step and return its folder.

    Args:
        folder: `checkpoints/` of the run.
        step: Optimiser steps taken.
        model: The content of `model.safetensors`.
        optimizer: Optimiser state by `parameter name/key`.
        state: Everything else, as JSON can hold it.

    Raises:
        StorageError: It could not be written; earlier checkpoints are as they were.
    """
    final = path_of(folder, step)
    aside = folder / f".tmp-{final.name}"
    with storage_errors(folder):
        if not folder.exists():
            folder.mkdir()  # not its parents: a run folder that was deleted is a failure, not a new run
            sync_folder(folder.parent)
        if aside.exists():
            shutil.rmtree(aside)
        aside.mkdir()
        files = {
            "model.safetensors": model,
            "optimizer.safetensors": to_bytes(optimizer),
            "state.json": json.dumps({"format": FORMAT, "step": step, **state}, indent=1).encode(),
        }
        for name, content in files.items():
            write_file(aside / name, content)
        manifest = {n: {"size": len(c), "sha256": hashlib.sha256(c).hexdigest()} for n, c in files.items()}
        write_file(aside / "manifest.json", json.dumps(manifest, indent=1).encode())
        sync_folder(aside)
        replaced = folder / f".old-{final.name}"
        if final.exists():  # a step that is saved again; `latest` takes the old one back after a crash between the two
            if replaced.exists():
                shutil.rmtree(replaced)
            final.rename(replaced)
        aside.rename(final)
        sync_folder(folder)
        if replaced.exists():
            shutil.rmtree(replaced)
    return final


def verify(path: Path) -> str | None:
    """What is wrong with a checkpoint, in a few words; None: it is whole."""
    try:
        manifest = json.loads(read_regular(path / "manifest.json"))
        if not isinstance(manifest, dict) or set(manifest) != FILES:
            return "its manifest names other files"
        for name, facts in manifest.items():
            with open_regular(path / name) as file:
                if os.fstat(file.fileno()).st_size != facts["size"]:
                    return f"{name} has another size than its manifest says"
                if hashlib.file_digest(file, "sha256").hexdigest() != facts["sha256"]:
                    return f"{name} has another SHA-256 than its manifest says"
    except FileNotFoundError as error:
        return f"{Path(error.filename).name} is missing"
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        return f"its manifest cannot be read ({error})"
    return None


def steps(folder: Path) -> list[Path]:
    """Folders of all checkpoints, oldest first, whole or not."""
    found = [p for p in folder.glob("step-*") if re.fullmatch(r"step-\d{8,}", p.name) and p.is_dir()]
    return sorted(found, key=step_of)


def path_of(folder: Path, step: int) -> Path:
    """Where the checkpoint of a step is, or would be."""
    return folder / f"step-{step:08d}"


def step_of(path: Path) -> int:
    """The step that a checkpoint's folder is named after."""
    return int(path.name.removeprefix("step-"))


def latest(folder: Path) -> Checkpoint | None:
    """The newest checkpoint that is whole, or None where there is none at all; damaged ones are named in the log.

    Raises:
        ModelError: There are checkpoints, and none is whole; or the newest was written by a later version.
    """
    for replaced in folder.glob(".old-step-*"):
        if not (final := folder / replaced.name.removeprefix(".old-")).exists():
            replaced.rename(final)
    found = steps(folder)
    for path in reversed(found):
        if problem := verify(path):
            log.warning("%s is damaged: %s; trying the one before", path, problem)
            continue
        return load(path)
    if found:
        raise ModelError(f"{folder}: none of the {len(found)} checkpoints is whole; start over with --overwrite")
    return None


def load(path: Path) -> Checkpoint:
    """Read a checkpoint that `verify` found whole.

    Raises:
        ModelError: It holds NaN, or was written by a later version.
    """
    try:
        state = json.loads(read_regular(path / "state.json"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{path / 'state.json'}: cannot be read ({error})") from None
    if not isinstance(state, dict):
        raise ModelError(f"{path / 'state.json'}: holds no state of training")
    if state.get("format") != FORMAT:
        raise ModelError(f"{path}: format {state.get('format')}; this version reads format {FORMAT}: update mtcli")
    model, _ = read_tensors(path / "model.safetensors")
    optimizer, _ = read_tensors(path / "optimizer.safetensors")
    return Checkpoint(path, model, optimizer, state)


def prune(folder: Path, keep: int, pinned: Collection[int]) -> None:
    """Delete leftovers and old checkpoints; keep the newest `keep`, the pinned, and the last whole one and later."""
    found = steps(folder)
    whole = next((i for i in reversed(range(len(found))) if verify(found[i]) is None), None)
    if whole is None:
        return
    for left in [*folder.glob(".tmp-step-*"), *folder.glob(".old-step-*")]:
        shutil.rmtree(left)
    for path in found[: max(0, min(whole, len(found) - keep))]:
        if step_of(path) in pinned:
            continue
        aside = folder / f".tmp-{path.name}"
        path.rename(aside)  # so that a half-deleted folder is never taken for a checkpoint
        shutil.rmtree(aside)


@contextmanager
def lock(run: Path) -> Iterator[None]:
    """Hold the lock of a run folder, the file `.lock`, which contains the number of the process that holds it.

    The lock is the kernel's (`flock`), so it ends with the process, even one that is killed. On a file system that
    does not support such locks, training is refused: the fallback of `filelock`, a file that exists while the lock is
    held, would outlive a killed process.

    Args:
        run: The run folder. It must exist.

    Raises:
        LockedError: Another process holds the lock. The message has its number.
        StorageError: The lock file cannot be written, or is a link or another special file.
    """
    path = run / ".lock"
    file_lock = FileLock(path, blocking=False, fallback_to_soft=False, on_acquired=_write_process_number)
    with storage_errors(path):
        try:
            if path.exists():
                check_regular(path)
            file_lock.acquire()
        except Timeout:
            holder = read_regular(path).decode(errors="replace") or "?"
            raise LockedError(
                f"{run}: process {holder} is training here; wait for it, or choose another --out"
            ) from None
    try:
        yield
    finally:
        file_lock.release()


def _write_process_number(descriptor: int) -> None:
    os.ftruncate(descriptor, 0)
    os.write(descriptor, str(os.getpid()).encode())
