"""Check the outputs of a command before it does any work: nothing that is needed may be overwritten.

Two paths are the same file if they have the same device and inode, so symbolic links, hard links and redirected
standard input and output are recognised.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from mtcli.errors import StorageError, UsageError
from mtcli.runtime.outputs import is_special, real_path

MODEL_PARTS = frozenset({
    "README.md", "checkpoints", "config.json", "config.toml", "data", "engine", "generation_config.json",
    "metrics.jsonl", "model.bin", "model.safetensors", "mtcli.json", "optimizer.safetensors", "manifest.json",
    "origin.json", "parity.json", "report.html", "shared_vocabulary.json", "source.spm", "source_vocabulary.json",
    "state.json", "target.spm", "target_vocabulary.json", "tensorboard", "tokenizer.json", "tokenizer_config.json",
    "vocab.json",
})  # fmt: skip
"""Names of the files and folders of a run, a checkpoint, or an exported or imported model.

Other files there are the user's own.
"""

Place = str | Path | None
"""A path; the string `-` for standard input or output; None for an option that is not set."""

Identity = tuple[int, int]
"""Device and inode of a file."""


def check_outputs(
    outputs: Iterable[Place], inputs: Iterable[Place] = (), *, models: Iterable[Place] = (), force: bool = True
) -> None:
    """Refuse outputs that would overwrite an input or cannot be written.

    Args:
        outputs: Files to write.
        inputs: Files to read. Of a folder, everything inside it counts.
        models: Folders (or files) of models, whose own files must not be overwritten.
        force: If False, an existing file that is not empty must not be replaced.

    Raises:
        UsageError: An output is an input, part of a model, named twice, a folder or in a folder that does not exist;
            or it exists and `force` is False.
        StorageError: The user may not write it.
    """
    read = [place for place in inputs if place is not None]
    # `Path.is_dir` raises an error if the name is too long; the reader of the input reports it.
    folders = [Path(place) for place in read if place != "-" and os.path.isdir(place)]  # noqa: PTH112
    model_folders = [Path(place) for place in models if place is not None]
    protected = {_identity(place, 0) for place in [*read, *model_folders]}
    protected |= {_identity(model / name, 0) for model in model_folders for name in MODEL_PARTS}
    written: set[Identity | Path] = set()
    for place in outputs:
        if place is None:
            continue
        name = "standard output" if place == "-" else str(place)
        identity = _identity(place, 1)
        if identity and identity in protected:
            raise UsageError(f"{name}: is read by this command, and would be overwritten; choose another output")
        if place != "-":
            _check_path(place, folders, model_folders, force=force)
        same_file: Identity | Path | None = identity
        if identity is None and place != "-" and not Path(place).exists():
            same_file = real_path(Path(place))
        if same_file in written:
            raise UsageError(f"{name}: named for two outputs; give two names")
        if same_file is not None:
            written.add(same_file)


def check_folder(folder: Path, inputs: Iterable[Place] = (), *, option: str = "--output") -> None:
    """Refuse an output folder that cannot be created, or that contains an input.

    Args:
        folder: The folder to write.
        inputs: Files to read.
        option: The option that names the folder, for the message.

    Raises:
        UsageError: The folder is a file or lies in one, is a link that leads nowhere, or contains an input.
        StorageError: The user may not write it.
    """
    try:
        folder.stat()
    except (FileNotFoundError, NotADirectoryError):
        if folder.is_symlink():
            raise UsageError(f"{folder}: a link that leads nowhere; choose another {option}") from None
    except PermissionError:
        raise StorageError(f"{folder}: may not be written; choose another {option}") from None
    except OSError as error:  # a loop of links, a name that is too long
        raise UsageError(f"{folder}: {error.strerror}; choose another {option}") from None
    real = real_path(folder)
    existing = next(place for place in (real, *real.parents) if place.exists())
    if not existing.is_dir():
        subject = "is" if existing == real else f"{existing} is"
        raise UsageError(f"{folder}: {subject} a file; choose another {option}")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise StorageError(f"{folder}: may not be written; choose another {option}")
    for place in inputs:
        if place is not None and _is_model_part(real_path(Path(place)), real):
            raise UsageError(f"{place}: is read, and belongs to {folder}, which is written; choose another {option}")


def check_replaceable(folder: Path, kind: str, marker: str, is_part: Callable[[str], bool]) -> None:
    """Refuse to replace a folder, unless it is new, empty or an earlier output of the same kind, even a damaged one.

    Args:
        folder: The folder to replace, or a link to it.
        kind: What is written, for messages: `exported model`.
        marker: The name of a file that every folder of this kind has.
        is_part: Returns True for the names of the files that such a folder may have.

    Raises:
        UsageError: The folder holds something else, or is or contains the current folder.
    """
    real = real_path(folder)
    if Path.cwd().is_relative_to(real):
        raise UsageError(f"{folder}: is or contains the current folder, which is not replaced; choose another --output")
    if not real.exists():
        return
    names = {path.name for path in real.iterdir()} if real.is_dir() else {real.name}
    if names and marker not in names:
        raise UsageError(f"{folder}: exists and holds no {kind}; choose another --output")
    others = sorted(name for name in names if not is_part(name))
    if others:
        raise UsageError(f"{folder}: holds {others[0]}, which is not part of an {kind}; choose another --output")


def _check_path(place: str | Path, folders: Sequence[Path], models: Sequence[Path], *, force: bool) -> None:
    """Check one output file.

    Args:
        place: The file.
        folders: Input folders.
        models: Folders of models.
        force: See `check_outputs`.

    Raises:
        UsageError, StorageError: See `check_outputs`.
    """
    if str(place).endswith(os.sep):  # `Path` drops it
        raise UsageError(f"{place}: names a folder; name a file")
    path = Path(place)
    _check_writable(path, force)
    real = real_path(path)
    for folder in folders:
        if real.is_relative_to(real_path(folder)):
            raise UsageError(f"{path}: lies in {folder}, all of which is read; choose another output")
    for model in models:
        if _is_model_part(real, real_path(model)):
            raise UsageError(f"{path}: belongs to the model in {model}; choose another output")


def _check_writable(path: Path, force: bool) -> None:
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        folder = real_path(path).parent
        if not folder.is_dir():
            raise UsageError(f"{path}: there is no folder {folder}; make it first") from None
        must_be_writable = [folder]
    except PermissionError:
        raise StorageError(f"{path}: may not be written; choose another output") from None
    except (OSError, ValueError) as error:  # a loop of links, a name that is too long
        raise UsageError(f"{path}: {getattr(error, 'strerror', error)}; choose another output") from None
    else:
        if stat.S_ISDIR(status.st_mode):
            raise UsageError(f"{path}: is a folder; name a file")
        if stat.S_ISBLK(status.st_mode):
            raise UsageError(f"{path}: is a disk; name a file")
        if not force and stat.S_ISREG(status.st_mode) and status.st_size:
            raise UsageError(f"{path}: exists; choose another name, or replace it with --force")
        must_be_writable = [path]
        if not is_special(path):
            must_be_writable.append(real_path(path).parent)
    if not all(os.access(place, os.W_OK) for place in must_be_writable):
        raise StorageError(f"{path}: may not be written; choose another output")


def _is_model_part(path: Path, folder: Path) -> bool:
    """Return True if a path is one of `MODEL_PARTS` of a folder, or lies inside one."""
    inside = path.relative_to(folder).parts if path.is_relative_to(folder) else ()
    return bool(inside) and inside[0] in MODEL_PARTS


def _identity(place: str | Path, descriptor: int) -> Identity | None:
    """Return device and inode of a file or named pipe. None: it is something else, which writing cannot overwrite.

    Args:
        place: A path, or `-` for the standard stream `descriptor`.
        descriptor: 0 for standard input, 1 for standard output.
    """
    try:
        status = os.fstat(descriptor) if place == "-" else os.stat(place)  # noqa: PTH116 - `place` may be a string
    except (OSError, ValueError):
        return None
    is_file = stat.S_ISREG(status.st_mode) or stat.S_ISFIFO(status.st_mode)
    return (status.st_dev, status.st_ino) if is_file else None
