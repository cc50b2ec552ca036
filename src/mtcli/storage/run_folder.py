"""A run folder besides its checkpoints: the claim that training lays to it, the model that is published
there, and the record of its figures.
"""

import json
import logging
import os
import re
import shutil
from collections.abc import Callable, Iterable, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

from mtcli.config.differences import differences
from mtcli.config.schema import Config
from mtcli.config.toml_file import load as load_config
from mtcli.config.toml_file import to_toml
from mtcli.errors import ModelError, UsageError
from mtcli.runtime import files
from mtcli.runtime.regular_file import check_regular, open_regular
from mtcli.storage import checkpoint
from mtcli.storage.averaging import averaged_bytes, mean
from mtcli.storage.events import read_events
from mtcli.storage.model_file import ModelInfo
from mtcli.storage.state import State

log = logging.getLogger(__name__)

MADE = (
    "README.md", "checkpoints", "config.toml", "data", "metrics.jsonl", "model.safetensors", "report.html",
    "tensorboard", "tokenizer.json",
)  # fmt: skip
"""What training writes there, and all that `--overwrite` may find and delete."""


def claim(config: Config, run: Path, overwrite: bool) -> Config | None:
    """Make sure that the folder is empty, or holds this very run, and return what that was configured with.

    Raises:
        UsageError: It holds a run of another configuration, or something else.
        StorageError: It cannot be written.
    """
    path = run / "config.toml"
    if overwrite or not _begun(run):
        made = MADE if path.exists() else ()
        strangers = (
            p.name for p in run.iterdir() if p.name not in made and not re.fullmatch(r"\.lock|\..+\.tmp", p.name)
        )
        if stranger := min(strangers, default=None):
            raise UsageError(f"{run}: holds {stranger}, which is no part of a run of mtcli; choose another --out")
    if overwrite and path.exists():
        with files.storage_errors(run):
            # What makes the folder a run goes last: whatever a kill leaves of it is still known as one.
            for entry in sorted(run.iterdir(), key=lambda p: (p == path, p.name == "metrics.jsonl")):
                if entry.name != ".lock":
                    shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
    if began := standing(config, run):
        return began
    if not path.exists():
        files.replace_file(path, to_toml(config).encode())
    return None


def standing(config: Config, run: Path) -> Config | None:
    """What the run that this configuration goes on with was configured with; None where none has begun.

    Raises:
        UsageError: It was configured otherwise.
    """
    path = run / "config.toml"
    if not path.exists() or not _begun(run):
        return None
    began = load_config(path)
    if found := differences(began, with_split_of(config, began)):
        raise UsageError(
            f"{run}: holds a run of another configuration ({'; '.join(found)}); "
            "use these values again, choose another --out, or start over with --overwrite"
        )
    return began


def with_split_of(config: Config, began: Config | None) -> Config:
    """The configuration with the held-out pairs of the run that is resumed, unless it names others itself."""
    if began is None or "split_seed" in config.data.model_fields_set:
        return config
    data = config.data.model_copy(update={"split_seed": began.data.split_seed})
    return config.model_copy(update={"data": data})


def _begun(run: Path) -> bool:
    """Whether there is something to lose."""
    saved = (run / "config.toml").exists() and checkpoint.steps(run / "checkpoints")
    return (run / "metrics.jsonl").exists() or bool(saved)


def publish(run: Path, steps: Sequence[int], info: ModelInfo) -> None:
    """Make the model of a checkpoint, or the mean of several, the run's model.

    Args:
        run: The run folder.
        steps: Of the checkpoints; where one of several is gone or one is damaged, the run's model stays as it is.
        info: Of any of its models.
    """
    folders = [checkpoint.path_of(run / "checkpoints", step) for step in steps]
    target = run / "model.safetensors"
    if len(folders) > 1 and not all(folder.exists() for folder in folders):
        # A run that was extended has deleted some, long after the mean was published.
        if not target.exists():
            log.warning(
                "%s is missing, and so are checkpoints whose mean it was; `mtcli average` makes another", target
            )
        return
    for folder in folders:
        if problem := checkpoint.verify(folder):
            log.warning("%s is damaged (%s); model.safetensors stays as it is", folder, problem)
            return
    if len(folders) > 1:
        content = averaged_bytes(mean(folders), info, steps)
    else:
        content = (folders[0] / "model.safetensors").read_bytes()
    if not _holds(target, content):
        files.replace_file(target, content)


def _holds(path: Path, content: bytes) -> bool:
    """Return True if a file has this content."""
    try:
        with open_regular(path) as file:
            return os.fstat(file.fileno()).st_size == len(content) and file.read() == content
    except OSError:
        return False


def _present(path: Path) -> bool:
    """Return True if there is anything of this name, be it a link that leads nowhere."""
    return path.is_symlink() or path.exists()


def best_of(events: Iterable[dict[str, Any]]) -> dict[str, Any] | None:
    """Of the events of `metrics.jsonl`, the validation of the run's model: of a step, or of a mean that was kept.

    It is chosen as training chooses it (`State.improves`).
    """
    best: dict[str, Any] | None = None
    state: State | None = None
    for event in events:
        if event["event"] == "valid" or (event["event"] == "average" and event.get("kept")):
            state = state or State(metric="chrf" if metric_of(event) == "chrf" else "bleu")
            if state.improves({"pairs": 1, "of": 1} | event):  # early runs did not count the pairs
                best = event
    return best


def metric_of(event: dict[str, Any]) -> str:
    """The score that selects the best model, `bleu` or `chrf`, as a validation names it; early runs had BLEU alone."""
    return str(event.get("metric", "bleu"))


class Metrics:
    """`metrics.jsonl`: a line an event, so that a checkpoint can name how much of it belongs to the past.

    Args:
        run: The run folder.
    """

    def __init__(self, run: Path):
        self.path = run / "metrics.jsonl"
        self.on_event: Callable[[dict[str, Any]], None] | None = None
        """Is called with each event after it was written."""

    def append(self, event: str, step: int, values: dict[str, Any]) -> int:
        """Write a line and return its length in bytes."""
        happened = {"event": event, "step": step, **values}
        line = (json.dumps(happened, ensure_ascii=False) + "\n").encode()
        new = not self.path.exists()
        with files.storage_errors(self.path), self.path.open("ab") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())  # before the checkpoint that counts it
            if new:
                files.sync_folder(self.path.parent)
        if self.on_event is not None:
            self.on_event(happened)
        return len(line)

    def _check_own(self) -> None:
        """Make sure that writing changes no file but the run's own.

        Raises:
            ModelError: The name leads elsewhere, or to what is no regular file.
        """
        try:
            check_regular(self.path, inside=self.path.parent)
        except OSError as error:
            raise ModelError(f"{self.path}: cannot write it ({error.strerror}); move it away") from None

    def read(self) -> tuple[list[dict[str, Any]], int]:
        """All events, and how many lines are none; see `read_events`."""
        return read_events(self.path) if _present(self.path) else ([], 0)

    def cut(self, length: int) -> int:
        """Forget what was measured after a checkpoint that saw so many bytes; return how many are left."""
        if _present(self.path):
            self._check_own()
        with files.storage_errors(self.path), self.path.open("r+b") if self.path.exists() else BytesIO() as file:
            size = file.seek(0, os.SEEK_END)
            if size < length:
                log.warning("%s was cut short; what is missing stays missing", self.path)
                file.seek(0)
                length = file.read(size).rfind(b"\n") + 1
            if size > length:
                file.truncate(length)
            files.sync_folder(self.path.parent)  # a process that was killed may just have made the file
        return length
