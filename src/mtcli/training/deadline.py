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


@dataclass(frozen=True)
class Deadline:
    """A moment by which work must end."""

    at: float
    clock: Clock = time.monotonic

    def left(self) -> float:
        """Seconds until then; negative afterwards."""
        return self.at - self.clock()


def parts(total: int, deadline: Deadline | None) -> Iterator[range]:
    """Consecutive ranges that cover 0 … total, or as much of it as the deadline allows; always at least the first.

    The caller works on a range before it asks for the next one: the time in between measures the speed. Without a
    deadline there is one range, which covers everything.
    """
    if deadline is None:
        yield range(total)
        return
    done, size = 0, min(total, FIRST_PART)
    while size:
        started = deadline.clock()
        yield range(done, done + size)
        done += size
        seconds_each = max((deadline.clock() - started) / size, 1e-9)
        affordable = int(max(deadline.left(), 0) / seconds_each)
        rest = total - done
        if affordable < min(FIRST_PART, rest):
            return
        size = min(rest, max(FIRST_PART, min(GROWTH * size, affordable // CAUTION)))


def spread(items: Sequence[T]) -> list[T]:
    """The items in a fixed random order, so that the first ones are a sample of all."""
    return [items[int(i)] for i in generator(0).permutation(len(items))]
