"""The cores that this process may use, one thread for each of them, and threads that work ahead of their consumer.

On a CPU, mtcli divides work among the cores: each thread computes its own micro-batch or search, and PyTorch uses one
thread for each operation (`pick_device`). A small model's matrices are too small to be divided themselves, and a
thread that waits for nothing inside of a step gets its fair share of busy cores.

This module imports PyTorch only in the threads, because CTranslate2 is used without it.
"""

import math
import os
import re
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TypeVar, cast

from mtcli.runtime import torchrun
from mtcli.runtime.memory import CGROUP, control_groups

T = TypeVar("T")
R = TypeVar("R")


_thread = threading.local()
"""`is_core`: True in the threads of `Cores`."""


def _begin_thread() -> None:
    """Let PyTorch compute each operation of the calling thread in this thread alone."""
    import torch

    torch.set_num_threads(1)
    _thread.is_core = True


class Cores:
    """Threads that compute at the same time, each with one thread of PyTorch. They are started when they are needed.

    Args:
        size: Number of threads. With 1, the calling thread computes.
    """

    def __init__(self, size: int):
        self.size = size
        self._pool = ThreadPoolExecutor(size, initializer=_begin_thread)

    def map(self, function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        """Yield `function(item)` for each item in order, at most `size` results ahead of the consumer.

        No thread still computes when the iterator ends, is closed or raises. Called in one of the threads, such as to
        score what was searched there, it computes in this thread: the other ones have work already.

        Args:
            function: Its first exception is raised where its result would have been yielded.
            items: Iterated in the caller's thread.
        """
        if self.size == 1 or getattr(_thread, "is_core", False):
            yield from map(function, items)
            return
        yield from _map_ahead(self._pool, function, items, self.size)


ONE_CORE = Cores(1)
"""The calling thread."""


@cache
def all_cores() -> Cores:
    """Return the threads that all work of this process shares, one for each usable core."""
    return Cores(usable_cores())


os.register_at_fork(after_in_child=all_cores.cache_clear)  # a child has none of the threads


def usable_cores() -> int:
    """Return the number of cores that this process may use, at least 1.

    The smallest of these counts:

    - the cores that the scheduler may give to this process (`taskset`), or those of the machine;
    - the quota of processor time of its control groups, as a container or a job of a cluster has it, rounded up;
    - `OMP_NUM_THREADS`, by which users limit other programs too.

    The ranks that a launcher starts on one machine share these cores, so it must not bind each to cores of its own.
    torchrun sets `OMP_NUM_THREADS=1` for them unless it is set, so there the value 1 does not count.
    """
    cores = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    quota = _quota()
    if quota is not None:
        cores = min(cores, math.ceil(quota))
    ranks = torchrun.local_size()
    cores = max(1, cores // ranks)
    wanted = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    is_number = re.fullmatch("[0-9]{1,9}", wanted) is not None and int(wanted) > 0
    is_torchruns = wanted == "1" and ranks > 1
    return min(cores, int(wanted)) if is_number and not is_torchruns else cores


def _quota() -> float | None:
    """Return the cores that the smallest quota around this process allows; None without a quota."""
    quotas = [_quota_of(group) for group in control_groups()]
    quotas.append(_old_quota())
    return min((quota for quota in quotas if quota is not None), default=None)


def _quota_of(group: Path) -> float | None:
    """Return the quota of one control group, from a file such as `150000 100000`: microseconds per period."""
    with suppress(OSError, ValueError):
        quota, period = (group / "cpu.max").read_text().split()
        if quota != "max":
            return int(quota) / int(period)
    return None


def _old_quota() -> float | None:
    """Return the quota in a container with version 1 of control groups."""
    folder = CGROUP / "cpu"
    with suppress(OSError, ValueError):
        quota = int((folder / "cpu.cfs_quota_us").read_text())
        period = int((folder / "cpu.cfs_period_us").read_text())
        if quota > 0 and period > 0:
            return quota / period
    return None


def prefetch_map(function: Callable[[T], R], items: Iterable[T], *, workers: int = 1) -> Iterator[R]:
    """Yield `function(item)` for each item in order, computing up to `workers` results ahead.

    Args:
        function: Called in a thread. Its exception is raised where its result would have been yielded.
        items: Iterated in the caller's thread. Their exception is raised after the results of the items before it.
        workers: Number of threads.
    """
    with ThreadPoolExecutor(workers) as pool:
        yield from _map_ahead(pool, function, items, workers)


def _map_ahead(pool: ThreadPoolExecutor, function: Callable[[T], R], items: Iterable[T], ahead: int) -> Iterator[R]:
    """Yield `function(item)` for each item in order, computed in a pool, at most `ahead` results ahead.

    An exception of the items is raised after the results of the items before it. No thread still computes at the end.
    """
    pending: deque[Future[R]] = deque()
    failures: list[Exception] = []
    try:
        for item in _until_failure(items, failures):
            pending.append(pool.submit(function, item))
            if len(pending) > ahead:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
        if failures:
            raise failures[0]
    finally:
        running = [future for future in pending if not future.cancel()]
        wait(running)


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
