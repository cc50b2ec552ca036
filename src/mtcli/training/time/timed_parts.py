"""Do work in parts that end before a deadline, each as large as the measured speed allows.

Used by validation and scoring. When `--time` ends training is decided in `budget.py`.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from mtcli.corpus.batching import generator

T = TypeVar("T")

Clock = Callable[[], float]
"""Returns the seconds since some fixed time, as `time.monotonic` does."""

FIRST_PART = 16
"""Items of the first part, which measures the speed. Later parts are not smaller, except for the last one."""

MAX_GROWTH = 8
"""A part is at most this many times as large as the one before it."""

MAX_REMAINING_SHARE = 1 / 4
"""Share of the remaining time that a part may take, since the speed may change during it."""

MIN_MARGINAL_SHARE = 0.2
"""The time for one more item is at least this share of the mean time: the speed may have changed between two parts."""


@dataclass(frozen=True)
class Deadline:
    """The time at which work has to end.

    Args:
        at: The time, as `clock` shows it.
        clock: A monotonic clock, in seconds.
    """

    at: float
    clock: Clock = time.monotonic

    def left(self) -> float:
        """Return the seconds until the deadline; negative after it."""
        return self.at - self.clock()


@dataclass
class PartDuration:
    """A model of how long a part takes: a fixed time, and a time per item."""

    last_size: int = 0
    last_seconds: float = 0.0
    fixed_seconds: float = 0.0
    seconds_per_item: float = 0.0

    def add(self, size: int, seconds: float) -> None:
        """Fit the model to this part and, if that was smaller, the part before it. A first part has no fixed time.

        Args:
            size: Items of the part.
            seconds: Time that it took.
        """
        mean = max(seconds / size, 1e-9)
        self.seconds_per_item = mean
        if size > self.last_size > 0:
            marginal = (seconds - self.last_seconds) / (size - self.last_size)
            self.seconds_per_item = min(max(marginal, MIN_MARGINAL_SHARE * mean), mean)
        self.fixed_seconds = seconds - self.seconds_per_item * size
        self.last_size = size
        self.last_seconds = seconds

    def affordable_size(self, seconds: float) -> int:
        """Return how many items a part of this duration can have."""
        return int(max(seconds - self.fixed_seconds, 0.0) / self.seconds_per_item)


def parts(total: int, deadline: Deadline | None) -> Iterator[range]:
    """Yield consecutive ranges that cover 0 … total, or as much of it as the deadline allows.

    The caller works on each range before it asks for the next one. The time in between measures the speed. There is
    always a first range; without a deadline it covers everything.

    Args:
        total: Number of items.
        deadline: When the work has to end.
    """
    if deadline is None:
        yield range(total)
        return
    duration = PartDuration()
    done = 0
    size = min(total, FIRST_PART)
    while size:
        started = deadline.clock()
        yield range(done, done + size)
        done += size
        duration.add(size, deadline.clock() - started)
        left = deadline.left()
        rest = total - done
        if duration.affordable_size(left) < min(FIRST_PART, rest):
            return
        cautious_size = duration.affordable_size(MAX_REMAINING_SHARE * left)
        size = min(rest, max(FIRST_PART, min(MAX_GROWTH * size, cautious_size)))


def spread(items: Sequence[T]) -> list[T]:
    """Return the items in a fixed random order, so that the first ones are a sample of all."""
    return [items[int(i)] for i in generator(0).permutation(len(items))]
