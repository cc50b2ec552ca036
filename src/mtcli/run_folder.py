"""A run folder besides its checkpoints: the claim that training lays to it, and the record of its figures."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

from mtcli import checkpoint
from mtcli.config import Config, differences, to_toml
from mtcli.config import load as load_config
from mtcli.errors import UsageError

MADE = ("checkpoints", "config.toml", "data", "metrics.jsonl", "model.safetensors", "tokenizer.json")
"""What training writes there, and all that `--overwrite` may find and delete."""


def claim(config: Config, run: Path, overwrite: bool) -> None:
    """Make sure that the folder is empty, or holds this very run.

    Raises:
        UsageError: It holds a run of another configuration, or something else.
        StorageError: It cannot be written.
    """
    path = run / "config.toml"
    begun = (run / "metrics.jsonl").exists()  # before that there is nothing to lose
    if overwrite or not begun:
        made = MADE if path.exists() else ()
        strangers = (
            p.name for p in run.iterdir() if p.name not in made and not re.fullmatch(r"\.lock|\..+\.tmp", p.name)
        )
        if stranger := min(strangers, default=None):
            raise UsageError(f"{run}: holds {stranger}, which is no part of a run of mtcli; choose another --out")
    if overwrite and path.exists():
        with checkpoint.storage_errors(run):
            for entry in run.iterdir():
                if entry.name != ".lock":
                    shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
    if path.exists():
        if begun and (found := differences(load_config(path), config)):
            raise UsageError(
                f"{run}: holds a run of another configuration ({'; '.join(found)}); "
                "use these values again, choose another --out, or start afresh with --overwrite"
            )
        return
    checkpoint.replace_file(path, to_toml(config).encode())


class Metrics:
    """`metrics.jsonl`: a line an event, so that a checkpoint can name how much of it belongs to the past."""

    def __init__(self, run: Path):
        self.path = run / "metrics.jsonl"

    def append(self, event: str, step: int, values: dict[str, Any]) -> int:
        """Write a line and return its length in bytes."""
        line = (json.dumps({"event": event, "step": step, **values}, ensure_ascii=False) + "\n").encode()
        with checkpoint.storage_errors(self.path), self.path.open("ab") as file:
            file.write(line)
        return len(line)

    def cut(self, length: int) -> None:
        """Forget what was measured after a checkpoint that saw so many bytes."""
        with checkpoint.storage_errors(self.path), self.path.open("ab") as file:
            if file.tell() > length:
                file.truncate(length)
