"""A recipe: its stages, and the folder with its progress.

The stages are plain `mtcli` commands that run in subprocesses, one after the other. Each is shown as a user can run it.
A recipe that was interrupted skips the stages that are done, and runs the interrupted command again, which continues
where it stopped.
"""

import ctypes
import json
import logging
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

from mtcli.corpus.cache.info import Fingerprint, fingerprint
from mtcli.errors import DataError, StageError, StoppedError, StorageError, UsageError
from mtcli.runtime.files import folder_lock, read_regular, replace_file, sha256, storage_errors
from mtcli.runtime.signals import noted_signals, stopped
from mtcli.storage.run_name import RUNS, point_to

log = logging.getLogger(__name__)

STATE = "recipe.json"
"""The file in the folder of a recipe that records its progress."""

RESULT = "result "
"""The start of the name of a value that is stored for each model that a recipe made, followed by its SHA-256."""

SAVE_SECONDS = 20.0
"""Seconds between two saves of the used time while a command runs."""

PROGRAM = (sys.executable, "-P", "-m", "mtcli")
"""The start of every command. Without `-P`, Python would import files in the current folder, such as `typing.py`."""

POLL_SECONDS = 0.1
"""Seconds between two checks for signals while a command runs."""

SET_SIGNAL_OF_PARENTS_DEATH = 1
"""`PR_SET_PDEATHSIG` of prctl(2)."""

STANDARD_ERROR = 2


@dataclass(frozen=True)
class Stage:
    """One command of a recipe. Running it again must do no harm, and must continue it if it was interrupted."""

    name: str
    """A name that no other stage of the recipe has."""
    arguments: tuple[str, ...]
    """The words after `mtcli`."""
    is_captured: bool = False
    """Its standard output is returned, instead of going to standard error."""

    def __str__(self) -> str:
        return shlex.join(["mtcli", *self.arguments])


@dataclass(frozen=True)
class Changes:
    """How a command may differ from the one that began its recipe, and what is then done again."""

    may_grow: Sequence[str] = ()
    """Names of the identity that are budgets: None is the default. A larger value than before, or a first one where
    there was none, extends the recipe."""
    may_change: Sequence[str] = ()
    """Names of the identity that may change as long as none of the stages in `repeated` has ended: the others do not
    depend on them."""
    repeated: Sequence[str] = ()
    """Names of the stages and values that are no longer up to date after any of these changes."""
    chosen: Sequence[str] = ()
    """Names of the values that are no longer up to date if one of `may_change` has changed."""
    remedy: str = "choose another --out"
    """What the user can do if the command differs in another way."""


NO_CHANGES = Changes()
NO_INPUTS: Mapping[str, Fingerprint] = {}


class _DoneStage(BaseModel):
    """A stage that has ended."""

    command: str
    seconds: float
    """Time that it took, also before it was interrupted."""
    output: str
    """Its standard output, if that is captured; otherwise empty."""


class _State(BaseModel):
    """The content of the file `STATE`."""

    format: Literal[1]
    recipe: str
    """The command of the recipe, such as `improve`."""
    identity: dict[str, Any]
    """What the recipe was asked for, by the name that a message can use."""
    stages: dict[str, _DoneStage] = {}
    """The stages that have ended, in their order."""
    begun: dict[str, float] = {}
    """By the name of each stage: how long the recipe had run when it began."""
    values: dict[str, Any] = {}
    """Decisions and results, see `Recipe.value`."""
    seconds: float = 0.0
    """Time that the recipe has run."""


class Recipe:
    """The folder of a recipe, and its progress. Create it with `open_recipe`.

    Args:
        folder: The folder. It must exist.
        name: The command of the recipe, such as `improve`.
        identity: What the recipe was asked for, by the name that a message can use.
        changes: How the command may differ from the one that began the recipe.
        inputs: The `fingerprint` of each file of the user that stages read, when the command began, by name.

    Raises:
        UsageError: The folder belongs to another recipe, or to one with another identity.
        StorageError: Its state is damaged, or is that of another version.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        identity: Mapping[str, Any],
        changes: Changes = NO_CHANGES,
        inputs: Mapping[str, Fingerprint] = NO_INPUTS,
    ):
        self.folder = folder
        self.name = name
        self._path = folder / STATE
        self._identity = json.loads(json.dumps(identity))  # tuples become lists, as in the file
        self._changes = changes
        self._inputs = inputs
        self._state = _State(format=1, recipe=name, identity=self._identity)
        if self._path.exists():
            self._state = self._load()
        self._counted_at = time.monotonic()
        self._saved_at = time.monotonic()

    def _load(self) -> _State:
        """Return the state in the folder, with the identity of this command."""
        try:
            state = _State.model_validate_json(read_regular(self._path))
        except (OSError, ValueError) as error:
            reason = " ".join(str(error).split())[:200]
            raise StorageError(
                f"{self._path}: cannot be read, or was written by another version of mtcli ({reason}); choose another "
                "--out"
            ) from None
        if state.recipe != self.name:
            raise UsageError(
                f"{self.folder}: was begun by mtcli {state.recipe}, not by mtcli {self.name}; choose another --out"
            )
        changes = self._changes
        has_ended = any(name in state.stages for name in changes.repeated)
        may_change = () if has_ended else changes.may_change
        self._check_identity(state.identity, may_change)
        if state.identity != self._identity:
            has_changed = any(state.identity.get(name) != self._identity.get(name) for name in may_change)
            for name in (*changes.repeated, *(changes.chosen if has_changed else ())):
                state.stages.pop(name, None)
                state.begun.pop(name, None)
                state.values.pop(name, None)
        state.identity = self._identity
        return state

    def _check_identity(self, found: Mapping[str, Any], may_change: Sequence[str]) -> None:
        """Check that this command continues or extends the one that wrote an identity.

        Args:
            found: The identity.
            may_change: Names that may differ.

        Raises:
            UsageError: It does not.
        """
        names = [
            name
            for name in sorted({*self._identity, *found} - {*may_change})
            if found.get(name) != self._identity.get(name) and not self._has_grown(name, found)
        ]
        if not names:
            return
        differences = [f"{name} ({_shown(found.get(name))} → {_shown(self._identity.get(name))})" for name in names]
        raise UsageError(
            f"{self.folder}: was begun by a command that differs in {', '.join(differences)}; run that command again "
            f"to continue it{self._how_to_extend(found)}, or {self._changes.remedy}"
        )

    def _has_grown(self, name: str, found: Mapping[str, Any]) -> bool:
        """Return True if a budget is larger than the one that was found, or is given where there was none."""
        now = self._identity.get(name)
        if name not in self._changes.may_grow or name not in found or now is None:
            return False
        before = found[name]
        if before is None:
            return not self._budgets_in(found)  # another kind of budget does not extend the first one
        return bool(now > before)

    def _budgets_in(self, identity: Mapping[str, Any]) -> list[str]:
        """Return the names of the budgets that an identity has a value for."""
        return [name for name in self._changes.may_grow if identity.get(name) is not None]

    def _how_to_extend(self, found: Mapping[str, Any]) -> str:
        """Return the part of a message that names the budgets which extend a recipe; empty: none does."""
        ways = [f"a larger {name}" for name in self._budgets_in(found)]
        if not ways:
            ways = [name for name in self._changes.may_grow if name in found]
        return f" ({' or '.join(ways)} extends it)" if ways else ""

    @property
    def has_begun(self) -> bool:
        """True if a stage has begun."""
        return bool(self._state.begun)

    @property
    def commands(self) -> list[str]:
        """The commands of the stages that have ended, in their order."""
        return [done.command for done in self._state.stages.values()]

    def elapsed(self) -> float:
        """Return the seconds that the recipe has run, also in processes that were interrupted."""
        now = time.monotonic()
        self._state.seconds += now - self._counted_at
        self._counted_at = now
        return self._state.seconds

    def _save_sometimes(self) -> None:
        """Save the used time, unless this was done a moment ago."""
        if time.monotonic() - self._saved_at >= SAVE_SECONDS:
            self._save()

    def _save(self) -> None:
        self.elapsed()
        self._saved_at = time.monotonic()
        replace_file(self._path, self._state.model_dump_json(indent=1).encode())

    def run(self, stage: Stage) -> str:
        """Run a stage, unless it is done, and return its standard output, if that is captured.

        Raises:
            StageError: The command failed. It has reported why, unless a signal ended it.
            StoppedError: A signal arrived. The command was stopped first.
            DataError: An input was changed.
            StorageError: The state cannot be written.
        """
        done = self._state.stages.get(stage.name)
        if done is not None:
            log.info("%s: done in %.0f s", stage.name, done.seconds)
            return done.output
        log.info("%s: %s", stage.name, stage)
        begun = self._state.begun.setdefault(stage.name, self.elapsed())
        try:
            output = run_command(stage, self._save_sometimes)
            self._check_inputs()
        finally:
            self._save()
        seconds = self.elapsed() - begun
        self._state.stages[stage.name] = _DoneStage(command=str(stage), seconds=seconds, output=output)
        self._save()
        return output

    def _check_inputs(self) -> None:
        """Check that no input was changed: several stages read the same file, and some only after hours.

        Raises:
            DataError: One was changed, or cannot be read.
        """
        for name, before in self._inputs.items():
            try:
                now = fingerprint(Path(name), before)
            except OSError as error:
                raise DataError(f"{name}: cannot be read any more ({error.strerror or error}); restore it") from None
            if now != before:
                raise DataError(
                    f"{name}: was changed while this command runs; restore it and run the same command again, or "
                    f"{self._changes.remedy}"
                )

    def seconds_of(self, name: str) -> float:
        """Return how long a stage that has ended took, also before it was interrupted."""
        return self._state.stages[name].seconds

    def value(self, name: str, compute: Callable[[], Any]) -> Any:
        """Return a value that is computed once, such as a measured speed. It consists of JSON types."""
        values = self._state.values
        if name not in values:
            found = compute()
            self._check_inputs()
            values[name] = found
            self._save()
        return values[name]

    def complete(self, name: str, work: Callable[[], bool]) -> None:
        """Do some work, unless it is done. It returns True if it succeeds; otherwise the next command tries again."""
        if name not in self._state.values and work():
            self.value(name, lambda: True)

    def note_result(self, model: Path) -> None:
        """Store that a model file is a result of this recipe. Call it before the file is copied to its last place."""
        self.value(_result(model), lambda: True)

    def is_result(self, model: Path) -> bool:
        """Return True if a model file is a result of this recipe, or if no result was ever stored."""
        known = [name for name in self._state.values if name.startswith(RESULT)]
        return not known or _result(model) in known

    def link_result(self, run: Path) -> None:
        """Make `runs/latest` lead to the run of a result, once per model: not again when the same command is run."""

        def link() -> bool:
            point_to(RUNS / "latest", run)
            return True

        self.complete(f"link to {_result(run / 'model.safetensors')}", link)


def _result(model: Path) -> str:
    """Return the name of the value that a recipe stores for a model file."""
    with storage_errors(model):
        return RESULT + sha256(model)[:16]


def _shown(value: Any) -> str:
    """Return a value for a message."""
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "not set"
    if isinstance(value, float):
        return f"{value:g}"
    return "not set" if value is None else str(value)


@contextmanager
def open_recipe(
    folder: Path,
    name: str,
    identity: Mapping[str, Any],
    changes: Changes = NO_CHANGES,
    inputs: Mapping[str, Fingerprint] = NO_INPUTS,
) -> Iterator[Recipe]:
    """Create, open and lock the folder of a recipe. See `Recipe` for the arguments.

    If the block refuses the request before a stage has begun, the folder of a new recipe is left as it was found.

    Raises:
        LockedError: Another process works in the folder.
        UsageError: The folder holds something other than this recipe.
        StorageError: The folder cannot be written, or its state cannot be read.
    """
    is_new = not (folder / STATE).exists()
    others = sorted(path.name for path in folder.iterdir() if path.name != ".lock") if folder.is_dir() else []
    if is_new and others:
        raise UsageError(f"{folder}: holds {others[0]}, which is not of this command; choose another --out")
    created = [path for path in (folder, *folder.parents) if not path.exists()]
    with storage_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    try:
        with folder_lock(folder, "works in this folder"):
            recipe = Recipe(folder, name, identity, changes, inputs)
            recipe._save()
            try:
                yield recipe
            except (DataError, UsageError):
                if is_new and not recipe.has_begun:
                    delete_files(path for path in folder.iterdir() if path.name != ".lock")
                raise
    except (DataError, UsageError):
        with suppress(OSError):  # a folder that is not empty stays
            for path in created:
                path.rmdir()
        raise


def delete_files(paths: Iterable[Path]) -> None:
    """Delete files, and folders with their content."""
    for path in list(paths):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def is_stage(run: Path) -> bool:
    """Return True if a run is a stage of a recipe: its folder is inside that of the recipe."""
    return (run.resolve().parent / STATE).is_file()


def run_command(stage: Stage, while_waiting: Callable[[], None] = lambda: None) -> str:
    """Run the command of a stage in a subprocess, and stop it if a signal arrives.

    Its output goes to standard error, unless it is captured: standard output carries the results of the recipe only.
    If this process is killed, Linux kills the command too. Otherwise it would continue, and lock its output.

    Args:
        stage: The stage.
        while_waiting: Called at every check for signals.

    Returns:
        Its standard output, if that is captured.

    Raises:
        StageError, StoppedError: See `Recipe.run`.
        Exception: What `while_waiting` raises. The command was stopped first.
    """
    with noted_signals() as received:
        child = subprocess.Popen(
            [*PROGRAM, *stage.arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if stage.is_captured else STANDARD_ERROR,
            preexec_fn=_ending_with_parent() if sys.platform == "linux" else None,
        )
        try:
            output = _wait(child, received, while_waiting)
        except BaseException:
            child.terminate()
            child.wait()
            raise
    code = child.returncode
    if received:
        message = f"{stage.name}: {stopped(received[0])}; run the same command again to continue"
        raise StoppedError(message, received[0])
    if code:
        raise StageError(stage.name, code)
    return output.decode()


def _ending_with_parent() -> Callable[[], None]:
    """Return a function that a child calls before its command starts: the kernel then kills it when its parent dies.

    The library is loaded here, in the parent. In the child, loading could wait forever for a lock that another thread
    of the parent held during the fork.
    """
    return partial(_end_with_parent, os.getpid(), ctypes.CDLL(None))


def _end_with_parent(parent: int, libc: ctypes.CDLL) -> None:
    libc.prctl(SET_SIGNAL_OF_PARENTS_DEATH, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # the parent died before the call
        os._exit(128 + signal.SIGKILL)


def _wait(child: subprocess.Popen[bytes], received: Sequence[int], while_waiting: Callable[[], None]) -> bytes:
    """Wait until a command ends, and return its standard output, if that is captured.

    A signal is passed on as SIGTERM: after Ctrl-C the terminal has sent SIGINT to the command too, and a second one
    would end it before it has saved its work.
    """
    is_stopping = False
    while True:
        try:
            output, _ = child.communicate(timeout=POLL_SECONDS)
            return output or b""
        except subprocess.TimeoutExpired:
            while_waiting()
            if received and not is_stopping:
                child.terminate()
                is_stopping = True
