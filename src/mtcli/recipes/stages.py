"""The stages of a recipe: plain `mtcli` commands that run in subprocesses, one after the other.

Each command is shown as a user can run it. A recipe that was interrupted skips the stages that are done, and runs the
interrupted command again, which continues where it stopped.
"""

import json
import logging
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mtcli.errors import StageError, StoppedError, StorageError, UsageError
from mtcli.runtime.files import replace_file, storage_errors
from mtcli.runtime.regular_file import read_regular
from mtcli.runtime.signals import noted_signals, stopped
from mtcli.storage.run_lock import lock

log = logging.getLogger(__name__)

Json = dict[str, Any]

STATE = "recipe.json"
"""The file in the folder of a recipe that records its progress."""

PROGRAM = (sys.executable, "-m", "mtcli")
"""The start of every command."""

POLL_SECONDS = 0.1
"""Seconds between two checks for signals while a command runs."""

STANDARD_ERROR = 2


@dataclass(frozen=True)
class Stage:
    """One command of a recipe. It must do no harm if it runs again, and continue if it was interrupted."""

    name: str
    """A name that no other stage of the recipe has."""
    arguments: tuple[str, ...]
    """The words after `mtcli`."""

    def __str__(self) -> str:
        return shlex.join(["mtcli", *self.arguments])


class Recipe:
    """The folder of a recipe, and its progress. Create it with `open_recipe`.

    Args:
        folder: The folder. It must exist.
        identity: What the recipe was asked for, by the name that a message can use.

    Raises:
        UsageError: The folder belongs to a recipe with another identity.
        StorageError: Its state is damaged.
    """

    def __init__(self, folder: Path, identity: Mapping[str, Any]):
        self.folder = folder
        self._path = folder / STATE
        self._identity = json.loads(json.dumps(identity))  # tuples become lists, as in the file
        self._state: Json = {"identity": self._identity, "stages": {}, "values": {}}
        if self._path.exists():
            self._state = self._load()

    def _load(self) -> Json:
        try:
            state: Json = json.loads(read_regular(self._path))
            found = state["identity"]
            differences = [name for name in self._identity | found if found.get(name) != self._identity.get(name)]
            _ = state["stages"], state["values"]
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise StorageError(f"{self._path}: cannot be read ({error}); choose another --out") from None
        if differences:
            raise UsageError(
                f"{self.folder}: was begun by a command that differs in {', '.join(sorted(differences))}; run that "
                "command again to continue it, or choose another --out"
            )
        return state

    def _save(self) -> None:
        replace_file(self._path, json.dumps(self._state, indent=1, ensure_ascii=False).encode())

    def run(self, stage: Stage) -> None:
        """Run a stage, unless it is done.

        Raises:
            StageError: The command failed. It has reported why.
            StoppedError: A signal arrived. The command was stopped first.
            StorageError: The state cannot be written.
        """
        done = self._state["stages"].get(stage.name)
        if done is not None:
            log.info("%s: done in %.0f s", stage.name, done["seconds"])
            return
        log.info("%s: %s", stage.name, stage)
        started = time.monotonic()
        run_command(stage)
        seconds = time.monotonic() - started
        self._state["stages"][stage.name] = {"command": str(stage), "seconds": seconds}
        self._save()

    def seconds(self, stage: Stage) -> float | None:
        """Return the seconds that a stage took in the process that finished it; None: it is not done."""
        done = self._state["stages"].get(stage.name)
        return None if done is None else float(done["seconds"])

    def value(self, name: str, compute: Callable[[], Any]) -> Any:
        """Return a value that is computed once, such as a measured speed. It consists of JSON types."""
        values = self._state["values"]
        if name not in values:
            values[name] = compute()
            self._save()
        return values[name]


@contextmanager
def open_recipe(folder: Path, identity: Mapping[str, Any]) -> Iterator[Recipe]:
    """Create, open and lock the folder of a recipe.

    Args:
        folder: The folder.
        identity: See `Recipe`.

    Raises:
        LockedError: Another process works in the folder.
        UsageError: The folder holds something other than this recipe.
        StorageError: The folder cannot be written.
    """
    if folder.is_dir() and not (folder / STATE).exists():
        others = sorted(path.name for path in folder.iterdir() if path.name != ".lock")
        if others:
            raise UsageError(f"{folder}: holds {others[0]}, which is not of this command; choose another --out")
    with storage_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with lock(folder, "works in this folder"):
        recipe = Recipe(folder, identity)
        recipe._save()
        yield recipe


def run_command(stage: Stage) -> None:
    """Run the command of a stage in a subprocess, and stop it if a signal arrives.

    Its output goes to standard error, since standard output carries the results of the recipe only.

    Raises:
        StageError, StoppedError: See `Recipe.run`.
    """
    with noted_signals() as received:
        child = subprocess.Popen([*PROGRAM, *stage.arguments], stdin=subprocess.DEVNULL, stdout=STANDARD_ERROR)
        code = _wait(child, received)
    if received:
        message = f"{stage.name}: {stopped(received[0])}; run the same command again to continue"
        raise StoppedError(message, received[0])
    if code:
        raise StageError(stage.name, str(stage), code)


def _wait(child: subprocess.Popen[bytes], received: Sequence[int]) -> int:
    """Wait until a command ends, and return its exit code; negative: the signal that ended it.

    A signal is passed on as SIGTERM: after Ctrl-C the terminal has sent SIGINT to the command too, and a second one
    would end it before it has saved its work.
    """
    is_stopping = False
    while True:
        try:
            return child.wait(POLL_SECONDS)
        except subprocess.TimeoutExpired:
            if received and not is_stopping:
                child.terminate()
                is_stopping = True
