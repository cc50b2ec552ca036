"""Progress bars and log lines, both on stderr: bars show on a terminal and stay quiet in a pipe; time and pace."""

import logging
import os
import sys
from contextlib import suppress
from typing import Any

from tqdm import tqdm

from mtcli import torchrun
from mtcli.terminal import printable


def progress_bar(
    description: str, *, total: int | None = None, unit: str = "it", initial: int = 0, quiet: bool = False
) -> Any:
    """A tqdm bar that vanishes when it is done; a quiet one only counts."""
    return tqdm(
        desc=description,
        total=total,
        unit=unit,
        initial=initial,
        leave=False,
        dynamic_ncols=True,
        disable=quiet or torchrun.rank() > 0 or None,  # None: shown on a terminal
    )


class _Handler(logging.Handler):
    """Writes above a bar instead of through it."""

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(BrokenPipeError):  # nobody reads the log any more: no reason to lose the work
            tqdm.write(self.format(record), file=sys.stderr)


def show_log() -> None:
    """Send the package's log to stderr: messages as they are, warnings marked as such; of several workers, one's."""
    if torchrun.size() > 1:  # PyTorch says of a lost worker what we say, in a stack trace of C++
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    logger = logging.getLogger("mtcli")
    if not logger.handlers:
        handler = _Handler()
        handler.setFormatter(_Formatter())
        logger.addHandler(handler)
        logger.setLevel(logging.WARNING if torchrun.rank() else logging.INFO)
        logger.propagate = False


class _Formatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        message = printable(super().format(record))
        return f"warning: {message}" if record.levelno >= logging.WARNING else message


class Pace:
    """Target pieces a second between two `train` lines of `metrics.jsonl`; validating counts only inside of these."""

    def __init__(self) -> None:
        self.step, self.seconds = 0, 0.0  # up to which the training so far is counted

    def after(self, event: dict[str, Any]) -> float | None:
        """The pace that this line shows; to be given all lines in their order."""
        before = self.seconds
        if event["event"] == "train":
            self.step, self.seconds = event["step"], event["seconds"]
            return float(event["tokens"] / (self.seconds - before)) if 0 < before < self.seconds else None
        if before and event["step"] == self.step and "seconds" in event:
            self.seconds = event["seconds"]
        return None


def clock(seconds: float) -> str:
    """`1:02:03` or `2:03`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
