"""The processes of one job: torchrun starts them, and each has a rank, from 0.

A single process communicates with no other. Several exchange gradients and sums with `torch.distributed`. When one
ends with an error or is killed, torchrun stops the others. Without torchrun (a scheduler may set its variables), the
others end too: their next collective finds the connection closed or reaches its timeout.

There are two process groups, because there are two kinds of waiting:

- Ranks take a step together. One that is not there within `STEP_TIMEOUT` is hung, and the job ends.
- Rank 0 prepares, validates and writes for all ranks, and ranks translate different parts of a file. Others wait for
  hours, which is no failure, so this waiting has a Gloo group of its own with `WORK_TIMEOUT`. A rank that is killed
  ends this waiting at once; only one that hangs during such work is noticed as late as that.

On CUDA, a collective of NCCL that reaches its timeout ends the process with SIGABRT instead of an error: PyTorch's
watchdog does that, because the call itself cannot return.
"""

import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from mtcli.errors import RankError
from mtcli.runtime import torchrun

T = TypeVar("T")

STEP_TIMEOUT = timedelta(minutes=10)
"""The longest time a collective of a training step may take. All ranks must have started within it, too."""

WORK_TIMEOUT = timedelta(hours=24)
"""The longest time that ranks wait for the work of another, such as rank 0's preparation of the data."""


class Group:
    """The ranks of one job. This base class is the group of a single process, which communicates with no other."""

    rank = 0
    size = 1

    @property
    def is_main(self) -> bool:
        """True on rank 0, the only one that writes."""
        return self.rank == 0

    def broadcast(self, value: T) -> T:
        """Return rank 0's value on all ranks. The others wait for it up to `WORK_TIMEOUT`.

        Args:
            value: Anything that can be pickled. The argument of the other ranks is ignored.
        """
        return value

    def barrier(self) -> None:
        """Wait up to `WORK_TIMEOUT` until all ranks call this."""

    def all_reduce_sum(self, values: Sequence[float]) -> list[float]:
        """Return the sum over all ranks of each number. All ranks must call this, with equally many numbers."""
        return list(values)

    def all_reduce_max(self, values: Sequence[float]) -> list[float]:
        """Return the maximum over all ranks of each number. All ranks must call this, with equally many numbers."""
        return list(values)

    def parallel(self, module: nn.Module) -> nn.Module:
        """Return the module wrapped so that its backward pass averages each gradient over all ranks."""
        return module

    def no_sync(self, module: nn.Module) -> AbstractContextManager[Any]:
        """Return a context in which a `parallel` module accumulates this rank's gradients without exchanging them."""
        return nullcontext()


class _DistributedGroup(Group):
    """The group of several processes.

    Args:
        device: The device of the gradients. On CUDA they are exchanged with NCCL, otherwise with Gloo.

    Raises:
        RankError: Not all ranks started within `STEP_TIMEOUT`.
    """

    def __init__(self, device: torch.device):
        self.rank = torchrun.rank()
        self.size = torchrun.size()
        self._device = device
        backend = "gloo"
        if device.type == "cuda":
            torch.cuda.set_device(device)
            backend = "cpu:gloo,cuda:nccl"
        try:
            store, _, _ = next(rendezvous("env://", timeout=STEP_TIMEOUT))
            # torchrun has one store for all its restarts: without a prefix, Gloo finds the addresses of ended ranks.
            store = PrefixStore(f"restart-{torchrun.restarts_of_store()}", store)
            dist.init_process_group(backend, store=store, rank=self.rank, world_size=self.size, timeout=STEP_TIMEOUT)
            self._work_group = dist.new_group(backend="gloo", timeout=WORK_TIMEOUT)
        except (ValueError, RuntimeError) as error:
            reason = str(error).partition("\n")[0]
            raise RankError(
                f"rank {self.rank} cannot connect to the other {self.size - 1} ({reason}); start all with torchrun"
            ) from error

    def broadcast(self, value: T) -> T:
        values = [value]
        dist.broadcast_object_list(values, src=0, group=self._work_group)
        return values[0]

    def barrier(self) -> None:
        dist.monitored_barrier(self._work_group, timeout=WORK_TIMEOUT)

    def all_reduce_sum(self, values: Sequence[float]) -> list[float]:
        return self._all_reduce(values, dist.ReduceOp.SUM)

    def all_reduce_max(self, values: Sequence[float]) -> list[float]:
        return self._all_reduce(values, dist.ReduceOp.MAX)

    def _all_reduce(self, values: Sequence[float], operation: Any) -> list[float]:
        tensor = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(tensor, operation)
        return tensor.tolist()

    def parallel(self, module: nn.Module) -> nn.Module:
        ids = [self._device] if self._device.type == "cuda" else None
        with warnings.catch_warnings(action="ignore", category=FutureWarning):  # PyTorch 2.13 renames an argument
            return nn.parallel.DistributedDataParallel(
                module, device_ids=ids, broadcast_buffers=False, gradient_as_bucket_view=True
            )

    def no_sync(self, module: nn.Module) -> AbstractContextManager[Any]:
        assert isinstance(module, nn.parallel.DistributedDataParallel)
        return module.no_sync()


@contextmanager
def join(device: torch.device) -> Iterator[Group]:
    """Join the ranks that were started together, for as long as the context lasts.

    A rank that fails does not wait for the others. Its process ends with its own exit code and closes its connections,
    which ends the others with `RankError`, unless torchrun has stopped them before.

    Args:
        device: See `_DistributedGroup`.

    Raises:
        RankError: A rank did not start, has ended, or did not answer in time.
    """
    if torchrun.size() == 1:
        yield Group()
        return
    try:
        yield _DistributedGroup(device)
    except Exception as error:
        if _is_lost_connection(error):
            raise RankError(_lost_connection(error)) from error
        raise
    dist.destroy_process_group()


_CONNECTION_ERRORS = r"gloo|NCCL|monitoredBarrier|[Cc]onnection (closed|reset|refused)|[Bb]roken pipe"
"""Gloo raises `RuntimeError` for all its failures, so only the text distinguishes them from others."""


def _is_lost_connection(error: Exception) -> bool:
    if isinstance(error, dist.DistError):
        return True
    return isinstance(error, RuntimeError) and re.search(_CONNECTION_ERRORS, str(error)) is not None


def _lost_connection(error: Exception) -> str:
    timed_out = re.search(r"[Tt]imed? ?out", str(error)) is not None
    reason = "another rank did not answer in time" if timed_out else "the connection to another rank was closed"
    return f"rank {torchrun.rank()}: {reason}; run the same command again to resume"
