"""Work that must end in time: it is done in parts, and each part is as large as the measured speed allows."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from mtcli.data.batching import generator

T = TypeVar("T")

Clock = Callable[[], float]
"""Seconds since some fixed moment, such as `time.monotonic`."""

FIRST_PART = 16
"""Sentences of the first part, which measures the speed; no further part is smaller, except the last."""

GROWTH = 8
"""How many times larger than the part before it a part may be."""

CAUTION = 4
"""A part takes at most this fraction of the time that is left, since the speed may change while it runs."""


LEAST_MARGINAL = 0.2
"""The time for one more item is at least this fraction of the mean time: the speed may have changed in between."""


@dataclass(frozen=True)
class Deadline:
    """A moment by which work must end."""

    at: float
    clock: Clock = time.monotonic

    def left(self) -> float:
        """Seconds until then; negative afterwards."""
        return self.at - self.clock()


@dataclass
class Speed:
    """What a part takes, as a fixed time and a time for each item, from the last two parts of different sizes."""

    size: int = 0
    seconds: float = 0.0
    fixed: float = 0.0
    each: float = 0.0

    def add(self, size: int, seconds: float) -> None:
        """Learn from a part. Of a single one, or of equal ones, all the time counts as that of its items."""
        mean = max(seconds / size, 1e-9)
        self.each = mean
        if size > self.size > 0:
            marginal = (seconds - self.seconds) / (size - self.size)
            self.each = min(max(marginal, LEAST_MARGINAL * mean), mean)
        self.fixed = seconds - self.each * size
        self.size = size
        self.seconds = seconds

    def affordable(self, seconds: float) -> int:
        """How many items take at most this long."""
        return int(max(seconds - self.fixed, 0.0) / self.each)


def parts(total: int, deadline: Deadline | None) -> Iterator[range]:
    """Consecutive ranges that cover 0 … total, or as much of it as the deadline allows; always at least the first.

    The caller works on a range before it asks for the next one: the time in between measures the speed. Without a
    deadline there is one range, which covers everything.
    """
    if deadline is None:
        yield range(total)
        return
    speed = Speed()
    done = 0
    size = min(total, FIRST_PART)
    while size:
        started = deadline.clock()
        yield range(done, done + size)
        done += size
        speed.add(size, deadline.clock() - started)
        left = deadline.left()
        rest = total - done
        if speed.affordable(left) < min(FIRST_PART, rest):
            return
        size = min(rest, max(FIRST_PART, min(GROWTH * size, speed.affordable(left / CAUTION))))


def spread(items: Sequence[T]) -> list[T]:
    """The items in a fixed random order, so that the first ones are a sample of all."""
    return [items[int(i)] for i in generator(0).permutation(len(items))]
