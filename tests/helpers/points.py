"""The points at which a process changes its files: record them, or send the process a signal at one of them.

The functions run inside the process and replace functions of `os` and `io`. A point is named by the call and the path
in the run folder, with N for the number of a checkpoint: `fsync checkpoints/.tmp-step-N/state.json`. A write is split
into two halves, with the point `tear` between them.
"""

import builtins
import importlib
import io
import os
import re
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

CALLS = ("fsync", "rename", "replace", "unlink", "remove", "mkdir", "rmdir", "ftruncate", "symlink", "link", "write")
"""The functions of `os` that are watched. Files that are opened for writing are watched too."""


def strike(folder: Path, point: str | None, nth: int, *signals: int) -> None:
    """Make this process send itself signals when it reaches a point of a folder for the nth time.

    Args:
        folder: The run folder.
        point: The point; None: any.
        nth: From 1.
        signals: SIGKILL if none is given.
    """
    seen = 0

    def note(name: str) -> None:
        nonlocal seen
        seen += point in (None, name)
        if seen == nth and point in (None, name):
            for number in signals or (signal.SIGKILL,):
                os.kill(os.getpid(), number)

    watch(folder, note)


BACKWARD = "torch.autograd:grad"
"""The function that computes the gradients of a micro-batch on a CPU, for `strike_in`."""


def strike_in(function: str, nth: int, *signals: int) -> None:
    """Make this process send itself signals at the nth call of a function, `module:name` or `module:Class.name`."""
    module, _, name = function.partition(":")
    place: Any = importlib.import_module(module)
    *outer, name = name.split(".")
    for part in outer:
        place = getattr(place, part)
    real = getattr(place, name)
    calls = Counter[str]()

    def call(*args: Any, **options: Any) -> Any:
        calls[name] += 1
        if calls[name] == nth:
            for number in signals or (signal.SIGKILL,):
                os.kill(os.getpid(), number)
        return real(*args, **options)

    setattr(place, name, call)


def write_in_background() -> None:
    """Let a thread write the checkpoints of this process, as on a GPU."""
    from mtcli.training import saving

    patch.object(saving, "writes_in_background", lambda device: True).start()


def record(folder: Path, log: Path) -> None:
    """Append the points that this process reaches to a file, one per line."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    write = os.write
    watch(folder, lambda name: write(descriptor, f"{name}\n".encode()) and None)


def watch(folder: Path, note: Callable[[str], None]) -> None:
    """Call `note` with each point of a folder before the change is made."""

    def within(path: Any, base: int | None = None) -> str | None:
        full = Path(f"/proc/self/fd/{path}").readlink() if isinstance(path, int) else Path(os.fsdecode(path)).absolute()
        if base is not None:
            full = Path(f"/proc/self/fd/{base}").readlink() / os.fsdecode(path)
        return re.sub(r"\d{8,}", "N", str(full.relative_to(folder))) if full.is_relative_to(folder) else None

    def watch_call(name: str) -> None:
        real = getattr(os, name)

        def call(first: Any, *rest: Any, **options: Any) -> Any:
            if (path := within(first, options.get("dir_fd"))) is not None:
                to = f" {within(rest[0])}" if name in ("rename", "replace") else ""
                note(f"{name} {path}{to}")
            return real(first, *rest, **options)

        setattr(os, name, call)

    class Raw(io.FileIO):
        def write(self, data: Any) -> int:
            data = memoryview(data).cast("B")
            path = within(self.name)
            note(f"write {path}")
            written = super().write(data[: len(data) // 2])
            note(f"tear {path}")
            return written + super().write(data[written:])

        def truncate(self, size: int | None = None) -> int:
            note(f"truncate {within(self.name)}")
            return super().truncate(size)

    real_open = io.open

    def open_file(file: Any, mode: str = "r", buffering: int = -1, *rest: Any, **options: Any) -> Any:
        if isinstance(file, int) or not set(mode) & set("wax+") or (path := within(file)) is None:
            return real_open(file, mode, buffering, *rest, **options)
        note(f"open {path}")
        raw = Raw(file, mode.replace("b", "").replace("t", ""))
        buffered = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
        return buffered if "b" in mode else io.TextIOWrapper(buffered, *rest, **options)

    for name in CALLS:
        watch_call(name)
    io.open = builtins.open = open_file
