"""Compute results ahead of their consumer, in threads."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def prefetch_map(function: Callable[[T], R], items: Iterable[T], *, workers: int = 1) -> Iterator[R]:
    """Yield `function(item)` for each item in order, computing up to `workers` results ahead.

    Args:
        function: Called in a thread. Its exception is raised where its result would have been yielded.
        items: Iterated in the caller's thread.
        workers: Number of threads.
    """
    pending: deque[Future[R]] = deque()
    with ThreadPoolExecutor(workers) as pool:
        for item in items:
            pending.append(pool.submit(function, item))
            if len(pending) > workers:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
