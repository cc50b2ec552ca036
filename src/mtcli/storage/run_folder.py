"""A run folder: its configuration, which identifies the run, and the model that training publishes there."""

import json
import logging
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mtcli.config.schema import CHOSEN_IF_UNSET_IN_FINE_TUNING, NAMES, Config, CorpusConfig, unset_settings, value_of
from mtcli.config.toml_file import load as load_config
from mtcli.config.toml_file import to_toml
from mtcli.errors import UsageError
from mtcli.runtime.files import open_regular, replace_file, storage_errors
from mtcli.storage import CONFIDENCE, ENGINE, ROBUSTNESS, checkpoint
from mtcli.storage.events import check_version
from mtcli.storage.model_file import ModelInfo, averaged_bytes, mean_parameters
from mtcli.storage.state import State

log = logging.getLogger(__name__)

RUN_FILES = (
    "README.md", "checkpoints", CONFIDENCE, "config.toml", "data", ENGINE, "metrics.jsonl", "model.safetensors",
    "report.html", ROBUSTNESS, "tensorboard", "tokenizer.json",
)  # fmt: skip
"""The files and folders that mtcli writes into a run folder, and the only ones that `--overwrite` deletes."""

_TEMPORARY_FILES = re.compile(r"\.lock|\..+\.tmp")

MAY_DIFFER = frozenset({
    "train.max_steps", "train.time", "train.keep", "train.tensorboard", "train.compile", "train.engine",
    "train.micro_batches", "data.note",
})  # fmt: skip
"""The budget, which may grow, and other settings that a resumed run may change.

With another `train.compile` or `train.micro_batches`, the rounding and the random numbers of dropout are others, so the
run does not end with the bits of an undisturbed one.
"""


def claim(config: Config, run: Path, overwrite: bool) -> Config | None:
    """Prepare a run folder for a new run, or check that it holds a run of this configuration.

    Args:
        config: The configuration of this command.
        run: The run folder, which exists and is locked.
        overwrite: Delete an earlier run.

    Returns:
        The configuration of the run to resume, or None for a new run.

    Raises:
        UsageError: The folder holds other files, or a run of another configuration.
        StorageError: The folder cannot be written.
    """
    path = run / "config.toml"
    refuse_other_files(run, overwrite)
    if overwrite and path.exists():
        with storage_errors(run):
            _delete_run(run)
    existing_config = resumed_config(config, run)
    if existing_config is None and not path.exists():
        replace_file(path, to_toml(config).encode())
    return existing_config


def check_freezing(config: Config, run: Path, *, fine_tunes: bool, overwrite: bool) -> None:
    """Check that only a run which starts from another model freezes parameters.

    A run that is resumed has been checked when it began, and another value of the setting is refused by `claim`.

    Args:
        config: The configuration of this command.
        run: The run folder, which need not exist.
        fine_tunes: The command names a model to start from.
        overwrite: The run in the folder would be deleted.

    Raises:
        UsageError: The frozen parameters would keep random values.
    """
    freeze = config.train.freeze
    is_resumed = _has_begun(run) and not overwrite
    if freeze != "none" and not fine_tunes and not is_resumed:
        raise UsageError(
            f"train.freeze = {freeze}: is for fine-tuning, and a new model needs all its parameters trained; "
            "name the model to start from with --init, or omit train.freeze"
        )


def refuse_other_files(run: Path, overwrite: bool) -> None:
    """Check that a folder is empty, or holds only the files of a run. A run that is resumed may have other files too.

    Args:
        run: The folder.
        overwrite: The run in it would be deleted.

    Raises:
        UsageError: It holds another file.
    """
    if _has_begun(run) and not overwrite:
        return
    allowed = RUN_FILES if (run / "config.toml").exists() else ()
    for name in sorted(path.name for path in run.iterdir()):
        if name not in allowed and not _TEMPORARY_FILES.fullmatch(name):
            raise UsageError(f"{run}: holds {name}, which is not part of an mtcli run; choose another --out")


def has_run(run: Path) -> bool:
    """Return True if a folder holds a run, even one that has not begun to train."""
    return (run / "config.toml").exists()


def delete_unbegun(run: Path) -> None:
    """Delete what a new run wrote into its folder, except the lock, if training has not begun.

    Args:
        run: The run folder. `claim` has found nothing else in it.
    """
    if _has_begun(run):
        return
    for name in RUN_FILES:
        _delete(run / name)


def _delete(path: Path) -> None:
    """Delete a file, a link or a folder, if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _delete_run(run: Path) -> None:
    """Delete everything except the lock.

    `metrics.jsonl` and then `config.toml` are deleted last, so that a folder which is deleted in part is still
    recognised as a run.
    """
    last = ("metrics.jsonl", "config.toml")
    entries = [path for path in run.iterdir() if path.name not in (".lock", *last)]
    for entry in [*sorted(entries), *(run / name for name in last)]:
        _delete(entry)


def begun_config(run: Path) -> Config | None:
    """Return the configuration of the run in a folder, or None if no run has begun there.

    Raises:
        ModelError: It is damaged, or of version 0.1.
    """
    path = run / "config.toml"
    if not path.exists() or not _has_begun(run):
        return None
    check_version(run / "metrics.jsonl")
    return load_config(path)


def resumed_config(config: Config, run: Path) -> Config | None:
    """Return the configuration of the run in a folder, or None if no run has begun there.

    Raises:
        UsageError: It differs from `config`.
    """
    existing_config = begun_config(run)
    if existing_config is None:
        return None
    if differing := differences(existing_config, config):
        raise UsageError(
            f"{run}: holds a run of another configuration ({'; '.join(differing)}); "
            "use these values again, choose another --out, or start over with --overwrite"
        )
    return existing_config


def _has_begun(run: Path) -> bool:
    """Return True if a folder holds results of training."""
    if (run / "metrics.jsonl").exists():
        return True
    return (run / "config.toml").exists() and bool(checkpoint.steps(run / "checkpoints"))


def resumable_state(run: Path) -> State:
    """Return the state that training would resume from, or the initial state.

    Raises:
        ModelError: The state is of another version.
    """
    for path in reversed(checkpoint.steps(run / "checkpoints")):
        if checkpoint.verify(path) is None:
            return State.of(path)
    return State()


def publish(run: Path, steps: Sequence[int], info: ModelInfo) -> None:
    """Write the model of a checkpoint, or the mean of several, as the run's `model.safetensors`.

    If a checkpoint is damaged, or one of several is missing, the file stays as it is.

    Args:
        run: The run folder.
        steps: The steps of the checkpoints.
        info: Metadata of a model of this run; its steps are replaced.

    Raises:
        StorageError: The file cannot be written.
    """
    folders = [checkpoint.path_of(run / "checkpoints", step) for step in steps]
    target = run / "model.safetensors"
    is_mean = len(folders) > 1
    if is_mean and not all(folder.exists() for folder in folders):
        # A run that was extended deletes old checkpoints, some time after their mean was published.
        if not target.exists():
            log.warning(
                "%s is missing, and so are checkpoints it was averaged from; `mtcli average` makes another model",
                target,
            )
        return
    for folder in folders:
        if problem := checkpoint.verify(folder):
            log.warning("%s is damaged (%s); model.safetensors stays as it is", folder, problem)
            return
    if is_mean:
        content = averaged_bytes(mean_parameters(folders), info, steps)
    else:
        content = (folders[0] / "model.safetensors").read_bytes()
    if not _has_content(target, content):
        replace_file(target, content)


def _has_content(path: Path, content: bytes) -> bool:
    """Return True if a file has this content."""
    try:
        with open_regular(path) as file:
            return os.fstat(file.fileno()).st_size == len(content) and file.read() == content
    except OSError:
        return False


def differences(old: Config, new: Config) -> list[str]:
    """Return `section.key: old → new` for every value that differs.

    Settings in `MAY_DIFFER` are skipped, and so are settings that training chose for the old run and that are unset in
    the new configuration.
    """
    skipped = MAY_DIFFER | (unset_settings(new, CHOSEN_IF_UNSET_IN_FINE_TUNING) & {*old.chosen})
    differing = []
    for name in NAMES:
        before = value_of(old, name)
        after = value_of(new, name)
        if name not in skipped and before != after:
            differing.append(f"{name}: {_readable(before)} → {_readable(after)}")
    return differing


def _readable(value: Any) -> str:
    """Return a value for a message: plain text without quotation marks, and "not set" for none."""
    if value is None or value == ():
        return "not set"
    if isinstance(value, tuple):
        return ", ".join(map(_readable, value))
    if isinstance(value, CorpusConfig):
        held_out = (f", {name} {spec}" for name, spec in (("valid", value.valid), ("test", value.test)) if spec)
        return f"{value.train} ({value.src} → {value.tgt}{''.join(held_out)})"
    if isinstance(value, str) and value.isprintable() and value == value.strip() != "":
        return value
    return json.dumps(value)
