"""Compute results ahead of their consumer, in threads."""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar, cast

T = TypeVar("T")
R = TypeVar("R")


def prefetch_map(function: Callable[[T], R], items: Iterable[T], *, workers: int = 1) -> Iterator[R]:
    """Yield `function(item)` for each item in order, computing up to `workers` results ahead.

    Args:
        function: Called in a thread. Its exception is raised where its result would have been yielded.
        items: Iterated in the caller's thread. Their exception is raised after the results of the items before it.
        workers: Number of threads.
    """
    pending: deque[Future[R]] = deque()
    failures: list[Exception] = []
    pool = ThreadPoolExecutor(workers)
    try:
        for item in _until_failure(items, failures):
            pending.append(pool.submit(function, item))
            if len(pending) > workers:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
        if failures:
            raise failures[0]
    finally:
        pool.shutdown(cancel_futures=True)


def _until_failure(items: Iterable[T], failures: list[Exception]) -> Iterator[T]:
    """Yield the items. An exception ends them, and is put into `failures`."""
    try:
        yield from items
    except Exception as error:
        failures.append(error)


def iterate_ahead(items: Iterable[T], *, ahead: int) -> Generator[T]:
    """Yield the items in order. A thread iterates over them, and keeps up to `ahead` items ready.

    The thread ends with the generator: at the last item, or when `close` is called.

    Args:
        items: Iterated in one thread. Its exception is raised where its next item would have been yielded.
        ahead: Number of items.
    """
    iterator = iter(items)
    end = object()
    pool = ThreadPoolExecutor(1)
    try:
        pending = deque(pool.submit(next, iterator, end) for _ in range(ahead))
        while (item := pending.popleft().result()) is not end:
            pending.append(pool.submit(next, iterator, end))
            yield cast(T, item)
    finally:
        pool.shutdown(cancel_futures=True)
