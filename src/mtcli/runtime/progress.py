"""Progress and log lines on stderr: a bar on a terminal, a log line about every minute elsewhere.

A status text changes little from one moment to the next: rates are always per second, and the remaining time is
averaged over minutes and rounded.
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
from mtcli.runtime.wording import printable

log = logging.getLogger(__name__)

LOG_SECONDS = 60.0
"""Interval of the log lines without a terminal."""

RATE_SECONDS = 60.0
"""Averaging window of the loss and of the tokens per second."""

ESTIMATE_SECONDS = 300.0
"""Averaging window of the speed from which the remaining time is estimated."""

SETTLE_SECONDS = 5.0
"""No remaining time is estimated before this, because the first steps are slower than the others."""


class Recent:
    """Sums over about the last `window` seconds. Older amounts decay exponentially."""

    def __init__(self, window: float):
        self.window = window
        self.sums: dict[str, float] = {"seconds": 0.0}

    def add(self, seconds: float, **amounts: float) -> None:
        """Add the amounts of the next `seconds` seconds."""
        decay = math.exp(-seconds / self.window)
        for name, amount in {"seconds": seconds, **amounts}.items():
            self.sums[name] = self.sums.get(name, 0.0) * decay + amount

    def ratio(self, amount: str, per: str = "seconds") -> float:
        """Return one sum divided by another, or 0 if the divisor is 0."""
        divisor = self.sums.get(per, 0.0)
        return self.sums.get(amount, 0.0) / divisor if divisor else 0.0


class _Bar(tqdm):  # type: ignore[misc]
    """A tqdm bar with our own status text instead of tqdm's two clocks and its seconds per item."""

    def __init__(self, status: Callable[[], str], **options: Any):
        self._status = status
        super().__init__(**options)

    @property
    def format_dict(self) -> dict[str, Any]:
        """The values that the format of the bar can name."""
        return {**super().format_dict, "status": self._status()}


class _Display:
    """Shows a status text: beside a bar on a terminal, in a log line about every LOG_SECONDS elsewhere."""

    def __init__(self, description: str, status: Callable[[], str], *, bounded: bool, quiet: bool):
        self.description = description
        self.status = status
        self.shown = not quiet and torchrun.rank() == 0
        self.bar: _Bar | None = None
        self.logged = 0.0
        if self.shown and on_terminal(sys.stderr):
            bar_format = "{desc}: {percentage:3.0f}%|{bar}| {status}" if bounded else "{desc}: {status}"
            self.bar = _Bar(
                status,
                desc=description,
                total=1.0 if bounded else None,
                bar_format=bar_format,
                leave=False,
                dynamic_ncols=True,
                mininterval=0.5,
                miniters=0,
                delay=0.5,  # shorter work shows no bar
            )

    def refresh(self, share: float, seconds: float) -> None:
        """Show the status if it is due: `share` (0 to 1) of the work is done after `seconds`."""
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
        description: The work, such as `translating`.
        total: The number of items; None if it is not known.
        done: Items that an earlier process did. They do not count for the speed.
        unit: The name of the items, in the plural.
        quiet: Show nothing.
        now: The clock, in seconds.
    """

    def __init__(
        self,
        description: str,
        *,
        total: int | None = None,
        done: int = 0,
        unit: str = "items",
        quiet: bool = False,
        now: Callable[[], float] = time.monotonic,
    ):
        self.total = total
        self.unit = unit
        self.done = done
        self._now = now
        self._began = now()
        self._before = self._began
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
        """Return a text such as `420 of 1,000 lines, 61 lines/s, about 0:10 left`."""
        rate = self._recent.ratio("items")
        done = f"{self.done:,} of {self.total:,}" if self.total else f"{self.done:,}"
        parts = [f"{done} {self.unit}"]
        if rate:
            digits = f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"
            parts.append(f"{digits} {self.unit}/s")
        if rate and self.total:
            parts.append(f"about {estimate((self.total - self.done) / rate)} left")
        elif not self.total:
            parts.append(f"{clock(self._before - self._began)} elapsed")
        return ", ".join(parts)


class TrainingProgress:
    """Progress of a training run: step, loss, tokens per second and remaining time.

    Args:
        step: The step at which this process starts.
        seconds: The time used before, in all processes of the run.
        max_steps: The budget of steps.
        max_seconds: The budget of time. The remaining time is exact, not estimated, if this ends the run.
        share: The share of the budget that will be used, 0 to 1.
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
        self.step = step
        self.seconds = seconds
        self.share = share
        self._has_begun = False
        self._max_steps = max_steps or math.inf
        self._max_seconds = max_seconds or math.inf
        self._recent = Recent(RATE_SECONDS)
        self._speed = Recent(ESTIMATE_SECONDS)
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
            nll: The sum of their negative log-likelihoods in nats, without label smoothing. So the loss that is shown
                is comparable with the validation loss.
        """
        self.step += 1
        self._recent.add(seconds - self.seconds, tokens=tokens, nll=nll)
        if self._has_begun:  # the first step takes several times as long as the others
            self._speed.add(seconds - self.seconds, steps=1)
        self._has_begun = True
        self.seconds = seconds
        self._display.refresh(self._used(), seconds)

    def pause(self, seconds: float, share: float = 1.0) -> None:
        """Count the time since the last step as validation: for the remaining time, not for the tokens per second.

        Args:
            seconds: The time used so far.
            share: The share of the budget that will be used; the validation may have lowered it.
        """
        self._speed.add(seconds - self.seconds, steps=0)
        self.seconds = seconds
        self.share = share

    def status(self) -> str:
        """Return a text such as `step 1,234 of 3,000, loss 2.345, 9,355 tokens/s, about 3:20 left`."""
        max_steps, _ = self._budget()
        step = f"step {self.step:,}"
        if max_steps < math.inf:
            step += f" of {max_steps:,.0f}"
        parts = [step]
        if tokens_per_second := self._recent.ratio("tokens"):
            loss = self._recent.ratio("nll", "tokens")
            parts += [f"loss {loss:.3f}", f"{tokens_per_second:,.0f} tokens/s"]
        if self._display.bar is None:  # a log line does not show how far the run is
            parts.append(f"{clock(self.seconds)} elapsed")
        if remaining := self._remaining():
            parts.append(f"{remaining} left")
        return ", ".join(parts)

    def _budget(self) -> tuple[float, float]:
        """Return the steps and seconds at which training ends; infinity means no limit."""
        return self._max_steps * self.share, self._max_seconds * self.share

    def _used(self) -> float:
        """Return the share of this budget that is used, 0 to 1."""
        max_steps, max_seconds = self._budget()
        return min(max(self.step / max_steps, self.seconds / max_seconds), 1.0)

    def _remaining(self) -> str:
        """Return the time until the end as text, or an empty string while it is not known."""
        max_steps, max_seconds = self._budget()
        by_time = max(max_seconds - self.seconds, 0.0)
        speed = self._speed.ratio("steps") if self._speed.sums["seconds"] >= SETTLE_SECONDS else 0.0
        by_steps = max(max_steps - self.step, 0.0) / speed if speed else math.inf
        if by_steps < by_time:
            return f"about {estimate(by_steps)}"
        return clock(by_time) if by_time < math.inf else ""


def on_terminal(stream: Any) -> bool:
    """Return True if a stream is a terminal. A stream that is closed at the start of Python is None."""
    return stream is not None and stream.isatty()


def estimate(seconds: float) -> str:
    """Return a clock rounded up: to 5 seconds below a minute, 10 seconds below ten minutes, then to a minute."""
    if seconds < 60:
        unit = 5
    elif seconds < 600:
        unit = 10
    else:
        unit = 60
    return clock(unit * math.ceil(seconds / unit))


class _Handler(logging.Handler):
    """Writes log lines above a progress bar."""

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(BrokenPipeError):  # a closed log must not end the work
            tqdm.write(self.format(record), file=sys.stderr)


def show_log() -> None:
    """Send the log of the package to stderr.

    Ranks other than 0 log only warnings, and none of the training, which is the same on every rank.
    """
    if torchrun.size() > 1:  # `RankError` reports a lost connection; PyTorch would add a C++ stack trace
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    os.environ.setdefault("HF_HUB_VERBOSITY", "error")  # our own message reports a failed request
    logging.getLogger("httpx").setLevel(logging.WARNING)
    logger = logging.getLogger("mtcli")
    if not logger.handlers:
        handler = _Handler()
        handler.setFormatter(_Formatter())
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        if torchrun.rank():
            logger.setLevel(logging.WARNING)
            logging.getLogger("mtcli.training").setLevel(logging.ERROR)
        logger.propagate = False


class _Formatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        message = printable(super().format(record))
        return f"warning: {message}" if record.levelno >= logging.WARNING else message


def clock(seconds: float) -> str:
    """Return seconds as `1:02:03` or `2:03`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
