"""Progress and log lines, all on stderr: bars on a terminal, a log line about every minute elsewhere.

Everything is calm: one clock in a line, a rate that is always "per second", and an estimate that is averaged over
minutes and rounded.
"""

import logging
import math
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Self

from tqdm import tqdm

from mtcli.runtime import torchrun
from mtcli.runtime.terminal import printable

log = logging.getLogger(__name__)

LOG_SECONDS = 60.0
"""Between two log lines where there is no terminal."""

RATE_SECONDS = 60.0
"""Over about how long the loss and the tokens per second are averaged."""

ESTIMATE_SECONDS = 300.0
"""Over about how long the speed behind an estimate of the end is averaged."""


SETTLE_SECONDS = 5.0
"""Without an estimate at the beginning, when the first steps are slower than all others."""


class Recent:
    """Sums over about the last `window` seconds: older amounts fade out."""

    def __init__(self, window: float):
        self.window = window
        self.sums: dict[str, float] = {"seconds": 0.0}

    def add(self, seconds: float, **amounts: float) -> None:
        """Count what happened in the next so many seconds."""
        faded = math.exp(-seconds / self.window)
        for name, amount in {"seconds": seconds, **amounts}.items():
            self.sums[name] = self.sums.get(name, 0.0) * faded + amount

    def ratio(self, amount: str, per: str = "seconds") -> float:
        """One sum divided by another; 0 while there is nothing to divide by."""
        divisor = self.sums.get(per, 0.0)
        return self.sums.get(amount, 0.0) / divisor if divisor else 0.0


class _Bar(tqdm):  # type: ignore[misc]
    """A tqdm bar with a status text of our own instead of tqdm's two clocks and its inverted rates."""

    def __init__(self, status: Callable[[], str], **options: Any):
        self._status = status
        super().__init__(**options)

    @property
    def format_dict(self) -> dict[str, Any]:
        """What the bar's format can name."""
        return {**super().format_dict, "status": self._status()}


class _Display:
    """Shows a status text: beside a bar on a terminal, as a log line about every LOG_SECONDS elsewhere."""

    def __init__(self, description: str, status: Callable[[], str], *, bounded: bool, quiet: bool):
        self.description, self.status = description, status
        self.shown = not quiet and torchrun.rank() == 0
        self.bar: _Bar | None = None
        self.logged = 0.0
        if self.shown and on_terminal(sys.stderr):
            form = "{desc}: {percentage:3.0f}%|{bar}| {status}" if bounded else "{desc}: {status}"
            self.bar = _Bar(
                status,
                desc=description,
                total=1.0 if bounded else None,
                bar_format=form,
                leave=False,
                dynamic_ncols=True,
                mininterval=0.5,
                miniters=0,
                delay=0.5,  # so that what takes no longer shows none
            )

    def refresh(self, share: float, seconds: float) -> None:
        """Show the status, if it is time to; `share` of the work is done after so many seconds."""
        if self.bar is not None:
            self.bar.n = min(share, 1.0)
            self.bar.update(0)
        elif self.shown and seconds - self.logged >= LOG_SECONDS:
            self.logged = seconds
            log.info("%s: %s", self.description, self.status())

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()


class Progress:
    """Progress through many items of one kind, such as lines.

    Args:
        description: What is being done: `translating`.
        total: How many items there are, if that is known.
        unit: Their name, in the plural.
        quiet: Show nothing.
        now: The clock.
    """

    def __init__(
        self,
        description: str,
        *,
        total: int | None = None,
        unit: str = "items",
        quiet: bool = False,
        now: Callable[[], float] = time.monotonic,
    ):
        self.total, self.unit, self.done, self._now = total, unit, 0, now
        self._began = self._before = now()
        self._recent = Recent(ESTIMATE_SECONDS)
        self._display = _Display(description, self.status, bounded=bool(total), quiet=quiet)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._display.close()

    def update(self, n: int = 1) -> None:
        """Count `n` more items as done."""
        now = self._now()
        self._recent.add(now - self._before, items=n)
        self._before = now
        self.done += n
        self._display.refresh(self.done / self.total if self.total else 0.0, now - self._began)

    def status(self) -> str:
        """`420 of 1,000 lines, 61 lines/s, about 0:10 left`."""
        rate = self._recent.ratio("items")
        done = f"{self.done:,} of {self.total:,}" if self.total else f"{self.done:,}"
        parts = [f"{done} {self.unit}"]
        if rate:
            parts.append(f"{_three_digits(rate)} {self.unit}/s")
        if rate and self.total:
            parts.append(f"about {estimate((self.total - self.done) / rate)} left")
        elif not self.total:
            parts.append(f"{clock(self._before - self._began)} elapsed")
        return ", ".join(parts)


class TrainingProgress:
    """Progress of a training run: step, loss, tokens per second and how long it will take.

    Args:
        step: The step at which this process starts.
        seconds: The time used until then, over all resumptions.
        max_steps: The budget of steps.
        max_seconds: The budget of time; its remainder is shown as it is, and not estimated.
        share: How much of the budget will be used.
    """

    def __init__(
        self,
        step: int,
        seconds: float,
        *,
        max_steps: int | None = None,
        max_seconds: float | None = None,
        share: float = 1.0,
    ):
        self.step, self.seconds, self.share = step, seconds, share
        self._limits = max_steps or math.inf, max_seconds or math.inf
        self._recent, self._speed = Recent(RATE_SECONDS), Recent(ESTIMATE_SECONDS)
        self._display = _Display("training", self.status, bounded=True, quiet=False)
        self._display.logged = seconds

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._display.close()

    def update(self, seconds: float, *, tokens: int, nll: float) -> None:
        """Count one more step.

        Args:
            seconds: The time used so far.
            tokens: Target tokens of the step, `</s>` included.
            nll: Their negative log-likelihood in nats, summed: the loss that is shown is comparable with validation's.
        """
        self.step += 1
        self._recent.add(seconds - self.seconds, tokens=tokens, nll=nll)
        self._speed.add(seconds - self.seconds, steps=1)
        self.seconds = seconds
        self._display.refresh(self._used(), seconds)

    def pause(self, seconds: float, share: float = 1.0) -> None:
        """Count the time up to here as validation: part of the estimate, but not of the tokens per second.

        Args:
            seconds: The time used so far.
            share: How much of the budget will be used, as validation may have ended it early.
        """
        self._speed.add(seconds - self.seconds, steps=0)
        self.seconds, self.share = seconds, share

    def status(self) -> str:
        """`step 1,234 of 3,000, loss 2.345, 9,355 tokens/s, about 3:20 left`."""
        max_steps, _ = self._budget()
        parts = [f"step {self.step:,}" + (f" of {max_steps:,.0f}" if max_steps < math.inf else "")]
        if tokens_per_second := self._recent.ratio("tokens"):
            loss = self._recent.ratio("nll", "tokens")
            parts += [f"loss {loss:.3f}", f"{tokens_per_second:,.0f} tokens/s"]
        if self._display.bar is None:  # a log line has no bar that shows how far it is
            parts.append(f"{clock(self.seconds)} elapsed")
        if remaining := self._remaining():
            parts.append(f"{remaining} left")
        return ", ".join(parts)

    def _budget(self) -> tuple[float, float]:
        """The steps and seconds at which training ends, infinite where there is no such limit."""
        max_steps, max_seconds = self._limits
        return max_steps * self.share, max_seconds * self.share

    def _used(self) -> float:
        """How much of that is used, 0 to 1."""
        max_steps, max_seconds = self._budget()
        return min(max(self.step / max_steps, self.seconds / max_seconds), 1.0)

    def _remaining(self) -> str:
        """The time until the end; empty while it is not known."""
        max_steps, max_seconds = self._budget()
        by_time = max(max_seconds - self.seconds, 0.0)
        speed = self._speed.ratio("steps") if self._speed.sums["seconds"] >= SETTLE_SECONDS else 0.0
        by_steps = max(max_steps - self.step, 0.0) / speed if speed else math.inf
        if by_steps < by_time:
            return f"about {estimate(by_steps)}"
        return clock(by_time) if by_time < math.inf else ""


def on_terminal(stream: Any) -> bool:
    """Return True if a stream is a terminal; a closed one is None."""
    return stream is not None and stream.isatty()


def estimate(seconds: float) -> str:
    """A clock as coarse as an estimate is: to 5 seconds below a minute, 10 below ten minutes, then to a minute."""
    grain = 5 if seconds < 60 else 10 if seconds < 600 else 60
    return clock(grain * math.ceil(seconds / grain))


def _three_digits(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"


class _Handler(logging.Handler):
    """Writes above a bar instead of through it."""

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(BrokenPipeError):  # nobody reads the log any more: no reason to lose the work
            tqdm.write(self.format(record), file=sys.stderr)


def show_log() -> None:
    """Send the package's log to stderr, with warnings marked. Of several ranks, only rank 0 sends messages."""
    if torchrun.size() > 1:  # PyTorch logs a lost connection, which we report, with a C++ stack trace
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    os.environ.setdefault("HF_HUB_VERBOSITY", "error")  # a failed request ends in one message of ours
    logging.getLogger("httpx").setLevel(logging.WARNING)
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
