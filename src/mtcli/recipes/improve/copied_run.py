"""Copies of the run of a model: the result of `mtcli improve`, and models before they are trained further."""

from collections.abc import Set
from pathlib import Path

from mtcli.runtime.files import copy_file, storage_errors
from mtcli.storage import checkpoint
from mtcli.storage.run_folder import RUN_FILES

COPIED = tuple(name for name in RUN_FILES if name not in ("checkpoints", "tensorboard"))
"""The files and folders of a run that are copied, together with its last checkpoint."""


def copy_run(run: Path, folder: Path) -> None:
    """Copy the model of a run and what describes it. They replace those of an earlier copy.

    With the last checkpoint, the copy is a run that has ended, for `mtcli info` and `mtcli train` too.

    Args:
        run: The run folder.
        folder: The folder of the copy, which is created.

    Raises:
        StorageError: The files cannot be read or written.
    """
    last = checkpoint.steps(run / "checkpoints")[-1:]
    copies = set()
    for source in [*(run / name for name in COPIED), *last]:
        files = sorted(source.rglob("*")) if source.is_dir() else [source]
        for file in files:
            if file.is_file():
                target = folder / file.relative_to(run)
                copy_file(file, target)
                copies.add(target)
    with storage_errors(folder):
        _delete_earlier_copy(folder, copies)


def _delete_earlier_copy(folder: Path, copies: Set[Path]) -> None:
    """Delete the files of an earlier run that are not replaced by those of the new one, and empty folders."""
    for name in RUN_FILES:
        for path in sorted((folder / name).rglob("*"), reverse=True):  # the content of a folder before the folder
            if path.is_dir():
                if not any(path.iterdir()):
                    path.rmdir()
            elif path not in copies:
                path.unlink()
