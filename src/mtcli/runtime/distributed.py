"""Where a process computes, and with whom: torchrun starts several workers for one job, each with a rank from 0.

Alone, nothing here communicates. Together, gradients and sums go through `torch.distributed`; whatever one worker does
for all (the first: it prepares, validates, writes) is told through torchrun's key-value store, since it may last hours
and a collective would have to be given as long to notice that a worker is dead. That is noticed by heartbeats instead:
each worker counts in the store and watches the count of the one before it, and whoever fails leaves its exit code
there, which ends the others with the same.
"""

import ctypes
import json
import os
import re
import signal
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from datetime import timedelta
from typing import Any, TypeVar
from uuid import uuid4

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from mtcli.errors import UsageError, WorkerError
from mtcli.runtime import torchrun

T = TypeVar("T")

BEAT = 1.0
"""Seconds between two heartbeats."""

SILENCE = 60
"""Beats of its own after which a worker gives up one that it has not heard: counted, not timed, so that a machine that
slept with all its workers finds them well."""

JOINING = 300.0
"""Seconds within which all workers must have come."""

GOODBYE = 5.0
"""Seconds that a failing worker waits for the others to hear of it: torchrun stops them as soon as it ends."""

FOREVER = timedelta(days=20)
"""For collectives: less than 2³¹ milliseconds."""


class Group:
    """The workers of one job, as one of them sees them; this one is alone."""

    rank = 0
    size = 1

    @property
    def leads(self) -> bool:
        """Whether this is the first worker, the one that writes."""
        return self.rank == 0

    def tell(self, value: T) -> T:
        """What the first worker calls this with, on every worker; the others wait for it, however long it takes.

        Args:
            value: As JSON can hold it; counts on the first worker only.
        """
        return value

    def sum(self, values: Sequence[float]) -> list[float]:
        """The sum over all workers of each of these numbers; all must call it, with as many."""
        return list(values)

    def most(self, values: Sequence[float]) -> list[float]:
        """The largest of all workers of each of these numbers; all must call it, with as many."""
        return list(values)

    def parallel(self, module: nn.Module) -> nn.Module:
        """The module whose backward pass leaves the mean over all workers in each gradient."""
        return module

    def accumulating(self, module: nn.Module) -> AbstractContextManager[Any]:
        """While it lasts, passes through a `parallel` module add to this worker's gradients and exchange nothing."""
        return nullcontext()


class _Workers(Group):
    """Several of them."""

    def __init__(self, device: torch.device):
        self.device = device
        self.rank, self.size = torchrun.rank(), torchrun.size()
        self._told = 0
        self._ended = threading.Event()
        self._listener: threading.Thread | None = None
        self._unanswered = 0

    def connect(self) -> None:
        """Find the others.

        Raises:
            WorkerError: Not all came.
        """
        try:  # of torchrun, or of the first worker where another launcher sets the environment
            store, *_ = next(rendezvous("env://", timeout=timedelta(seconds=JOINING)))
        except (ValueError, dist.DistError) as error:
            raise WorkerError(f"worker {self.rank} finds no other ({error}); start all with torchrun") from None
        store.set_timeout(timedelta(seconds=BEAT * SILENCE))
        self.store = self._meet(PrefixStore("mtcli", store))
        # With a store of its own: a client is locked while it waits for an answer.
        clone = self.store.clone()  # type: ignore[attr-defined]
        self._listener = threading.Thread(target=self._listen, args=(clone,), daemon=True)
        self._listener.start()
        threading.Thread(target=self._watch, daemon=True).start()
        cuda = self.device.type == "cuda"
        if cuda:
            torch.cuda.set_device(self.device)
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if cuda else "gloo",
            store=PrefixStore("torch", self.store),
            rank=self.rank,
            world_size=self.size,
            timeout=FOREVER,
        )

    def _meet(self, store: Store) -> Store:
        """The part of the store that belongs to the workers that are here now.

        torchrun has one store for all its restarts, and each machine counts those by itself. So each worker leaves a
        name of its own, the first worker lists the names it finds, and who reads its name there has come to that list.

        Raises:
            WorkerError: Not all came.
        """
        name, end = uuid4().hex, time.monotonic() + JOINING
        places = [f"here/{rank}" for rank in range(self.size)]
        store.set(places[self.rank], name)
        while time.monotonic() < end:
            if self.leads and store.check(places):
                store.set("list", " ".join(found.decode() for found in store.multi_get(places)))
            if store.check(["list"]) and name in (names := store.get("list").decode().split()):
                part = PrefixStore(names[0], store)
                part.set(_beat(self.rank), "0")
                if part.check([_beat(rank) for rank in range(self.size)]):
                    return part
            time.sleep(BEAT / 10)
        missing = ", ".join(str(rank) for rank, place in enumerate(places) if not store.check([place]))
        raise WorkerError(f"worker {missing or 'of this start'} did not come within {JOINING:.0f} s; start all again")

    def tell(self, value: T) -> T:
        key, self._told = f"told/{self._told}", self._told + 1
        if self.leads:
            self.store.set(key, json.dumps(value))
            return value
        while not self.store.check([key]):  # rather than wait(), which would let no signal through
            time.sleep(BEAT / 10)
        found: T = json.loads(self.store.get(key))
        return found

    def sum(self, values: Sequence[float]) -> list[float]:
        return self._reduce(values, dist.ReduceOp.SUM)

    def most(self, values: Sequence[float]) -> list[float]:
        return self._reduce(values, dist.ReduceOp.MAX)

    def _reduce(self, values: Sequence[float], operation: Any) -> list[float]:
        tensor = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(tensor, operation)
        return tensor.tolist()

    def parallel(self, module: nn.Module) -> nn.Module:
        ids = [self.device] if self.device.type == "cuda" else None
        with warnings.catch_warnings(action="ignore", category=FutureWarning):  # 2.13 has another name for it
            return nn.parallel.DistributedDataParallel(
                module, device_ids=ids, broadcast_buffers=False, gradient_as_bucket_view=True
            )

    def accumulating(self, module: nn.Module) -> AbstractContextManager[Any]:
        assert isinstance(module, nn.parallel.DistributedDataParallel)
        return module.no_sync()

    def leave(self) -> None:
        """End well; the store's host last."""
        self._fall_silent()
        dist.destroy_process_group()
        self.store.set(_beat(self.rank), _LEFT)
        if self.leads:
            self._see_off(self.store)

    def fail(self, error: BaseException) -> None:
        """Let the others end as this worker does; or end as the one does that failed before it, which has said why.

        Raises:
            SystemExit: Another failed before.
        """
        self._fall_silent()
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(int(4 * GOODBYE))  # should the connections, once broken, not be torn down either
        code = 130 if isinstance(error, KeyboardInterrupt) else getattr(error, "exit_code", WorkerError.exit_code)
        try:
            first, said = self._post(self.store, code)
            if first != self.rank:
                self._depart(self.store, said)
                raise SystemExit(said)
            if not isinstance(error, WorkerError):
                self._see_off(self.store)
            self.store.set(_beat(self.rank), _LEFT)
        except (dist.DistError, RuntimeError, AttributeError):  # no store any more, or none yet
            return

    def _fall_silent(self) -> None:
        """No beat any more: one that came behind the mark of leaving would leave the others waiting for the next."""
        self._ended.set()
        if self._listener:
            self._listener.join(GOODBYE)

    def _post(self, store: Store, code: int) -> tuple[int, int]:
        """Leave an exit code for the others; the rank and the code of the worker that came first."""
        rank, first = store.compare_set(_FAILED, "", f"{self.rank} {code}").split()
        return int(rank), int(first)

    def _depart(self, store: Store, code: int) -> None:
        """Leave after another's failure: the store's host last, so that all others still find the code there."""
        store.set(_beat(self.rank), _LEFT)
        if self.leads and code != WorkerError.exit_code:  # without a store they end with that anyway
            self._see_off(store)

    def _see_off(self, store: Store) -> None:
        """Wait for the others to leave, though not for ever."""
        end = time.monotonic() + GOODBYE
        others = [_beat(rank) for rank in range(self.size) if rank != self.rank]
        while any(store.get(beat) != _LEFT.encode() for beat in others) and time.monotonic() < end:
            time.sleep(BEAT / 10)

    def _listen(self, store: Store) -> None:
        """A thread: beat, listen to the worker before this one, and end the process if one has failed."""
        before, heard, silent, beats = (self.rank - 1) % self.size, b"", 0, 0
        while not self._ended.wait(BEAT):
            try:
                beats += 1
                store.set(_beat(self.rank), str(beats))
                if store.check([_FAILED]):
                    _, code = self._post(store, 0)
                    self._depart(store, code)
                    self._leave_at_once(code)
                now = store.get(_beat(before))
                silent = 0 if now != heard or now == _LEFT.encode() else silent + 1
                heard = now
                if silent >= SILENCE:
                    first, code = self._post(store, WorkerError.exit_code)
                    said = f"worker {before} has been silent for {SILENCE * BEAT:.0f} s; {_REMEDY}"
                    self._leave_at_once(code, said if first == self.rank else "")
            except (dist.DistError, RuntimeError):
                self._leave_at_once(WorkerError.exit_code, f"worker {self.rank}: {_STORE_GONE}")
            self._unanswered = 0

    def _watch(self) -> None:
        """The other thread: see that the listener gets its answers, for a call of the store has no sure end."""
        while not self._ended.wait(BEAT):
            self._unanswered += 1
            if self._unanswered > SILENCE:
                self._leave_at_once(WorkerError.exit_code, f"worker {self.rank}: {_STORE_GONE}")

    def _leave_at_once(self, code: int, message: str = "") -> None:
        """End the process from beside its main thread, which may wait for a worker that is no more."""
        if self._ended.is_set():
            return
        if message:
            print(f"mtcli: {message}", file=sys.stderr, flush=True)
        os._exit(code)


_FAILED, _LEFT = "failed", "left"
_REMEDY = "run the same command again to go on"
_STORE_GONE = f"torchrun, or the first worker, is gone or silent; {_REMEDY}"
_LOST = r"gloo|NCCL|[Cc]onnection (closed|reset|refused)|[Bb]roken pipe"


def _beat(rank: int) -> str:
    return f"beat/{rank}"


@contextmanager
def join(device: torch.device) -> Iterator[Group]:
    """The workers that torchrun started this process with, until the work is done or one of them fails.

    Args:
        device: Where gradients will be: on CUDA they go through NCCL, else through Gloo.

    Raises:
        WorkerError: One of them did not come, or was lost.
        SystemExit: Another worker failed first, and has said why; with its exit code.
    """
    if torchrun.size() == 1:
        yield Group()
        return
    workers = _Workers(device)
    try:
        workers.connect()
        yield workers
    except BaseException as error:
        lost = isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and re.search(_LOST, str(error)))
        told = f"worker {workers.rank} lost its connection to another, which has ended; {_REMEDY}"
        failure = WorkerError(told) if lost else error
        workers.fail(failure)
        if failure is not error:
            raise failure from error
        raise
    workers.leave()


def pick_device(name: str = "auto") -> torch.device:
    """The device of this name; auto: CUDA, then Apple's MPS, then the CPU. Workers of one machine take a GPU each.

    Raises:
        UsageError: There is no such device here.
    """
    available = {
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available() and torchrun.size() == 1,
        "cpu": True,
    }
    if name == "auto":
        name = next(n for n, there in available.items() if there)
    if name.partition(":")[0] not in available:
        raise UsageError(f"--device {name}: choose from auto, {', '.join(available)}")
    if not available[name.partition(":")[0]]:
        raise UsageError(f"--device {name}: this PyTorch ({torch.__version__}) finds no such device; use --device auto")
    if name.startswith("cuda") and torchrun.size() > 1:
        if name != "cuda":
            raise UsageError(f"--device {name}: several workers take a GPU each; write --device cuda")
        name = f"cuda:{torchrun.local_rank()}"
        if torch.device(name).index >= torch.cuda.device_count():
            raise UsageError(
                f"worker {name.partition(':')[2]} of this machine finds no GPU of its own; "
                f"there are {torch.cuda.device_count()}: give torchrun --nproc-per-node {torch.cuda.device_count()}"
            )
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UsageError(f"--device {name}: write a number after the colon, as in cuda:0") from None
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UsageError(f"--device {name}: there are {torch.cuda.device_count()}, counted from 0")
    return device


def keep_memory_in_hand() -> None:
    """Let this process keep what one step frees for the next, and nothing that the next does not need.

    glibc gives large blocks back at once; to be given them anew, page by page, took a twentieth of the time on a CPU.
    PyTorch and oneDNN keep a kernel for each of the last 1,024 shapes of a bf16 product on a CPU: batches have more
    shapes than that, so few come again in time, and the kernels grew by 8 MB a step.
    """
    for name in ("LRU_CACHE_CAPACITY", "ONEDNN_PRIMITIVE_CACHE_CAPACITY"):  # both are read at the first such product
        os.environ.setdefault(name, "64")
    with suppress(AttributeError, OSError):  # another C library
        library = ctypes.CDLL(None)
        library.mallopt(-3, 2**25)  # M_MMAP_THRESHOLD, at the largest value that every version takes
        library.mallopt(-1, 2**31 - 1)  # M_TRIM_THRESHOLD


def give_back_memory() -> None:
    """Let the system have what is kept in hand, where a process is about to ask for blocks of other sizes."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


def describe(device: torch.device) -> str:
    """The device in words, for the first line of the log."""
    if device.type == "cuda":
        return f"{device} ({torch.cuda.get_device_name(device)})"
    return f"{device} ({torch.get_num_threads()} threads)" if device.type == "cpu" else str(device)
