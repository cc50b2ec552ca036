"""Communication between the processes (ranks) of one distributed job, which torchrun starts.

The ranks exchange gradients and sums with `torch.distributed`. If one rank fails or is killed, torchrun stops the
others. Without torchrun (a scheduler can set the same environment variables), the other ranks end too: their next
collective operation finds the connection closed or reaches its timeout.

There are two process groups with different timeouts:

- The default group, for the collectives of a training step. A rank that does not join one within `STEP_TIMEOUT` is
  considered hung, and the job ends.
- A Gloo group for long waits: rank 0 prepares, validates and writes while the others wait, and ranks that translate
  parts of a file finish at different times. Its timeout is `WORK_TIMEOUT`. The death of a rank ends such a wait at
  once; only a rank that hangs is noticed after the full timeout.

On CUDA, an NCCL collective that reaches its timeout cannot return an error: PyTorch's watchdog ends the process with
SIGABRT.
"""

import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from mtcli.errors import RankError
from mtcli.runtime import torchrun

T = TypeVar("T")

STEP_TIMEOUT = timedelta(minutes=10)
"""Timeout of a collective in a training step, and of the start of all ranks."""

WORK_TIMEOUT = timedelta(hours=24)
"""Timeout of waiting for another rank's work, such as the preparation of the data by rank 0."""

CONNECTION_ERRORS = r"gloo|NCCL|monitoredBarrier|[Cc]onnection (closed|reset|refused)|[Bb]roken pipe"
"""In the messages of errors of communication that are plain `RuntimeError`s."""


class Group:
    """The ranks of one job. This base class is a group of one process: its methods return their argument."""

    rank = 0
    size = 1

    @property
    def is_main(self) -> bool:
        """True on rank 0, the only rank that writes files."""
        return self.rank == 0

    def broadcast(self, value: T) -> T:
        """Return rank 0's value on all ranks. The other ranks wait for it up to `WORK_TIMEOUT`.

        Args:
            value: An object that can be pickled. Only the argument of rank 0 is used.
        """
        return value

    def barrier(self) -> None:
        """Wait until all ranks have called this, up to `WORK_TIMEOUT`."""

    def all_reduce_sum(self, values: Tensor) -> Tensor:
        """Return the sum of each number over all ranks, in float64. All ranks must pass the same count of numbers.

        If the numbers are on a CUDA device, so are the sums, and the host does not wait for them. A group of one
        process returns its argument.
        """
        return values

    def all_reduce_gradients(self, gradients: Sequence[Tensor]) -> None:
        """Replace gradients on the CPU, of the same shapes on all ranks, by their sums over all ranks."""

    def all_reduce_max(self, values: Sequence[float]) -> list[float]:
        """Return the maximum of each number over all ranks. All ranks must pass the same count of numbers."""
        return list(values)

    def parallel(self, module: nn.Module) -> nn.Module:
        """Return the module wrapped in `DistributedDataParallel`, whose backward pass averages gradients over ranks."""
        return module

    def no_sync(self, module: nn.Module) -> AbstractContextManager[Any]:
        """Return a context in which a `parallel` module accumulates gradients without exchanging them."""
        return nullcontext()


class _DistributedGroup(Group):
    """A group of several processes.

    Args:
        device: The device of the gradients, which are exchanged with NCCL on CUDA and with Gloo elsewhere.

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
            # torchrun keeps one store over its restarts. Without a prefix, Gloo would find the addresses of dead ranks.
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

    def all_reduce_sum(self, values: Tensor) -> Tensor:
        return self._all_reduce(values.to(torch.float64, copy=True), dist.ReduceOp.SUM)

    def all_reduce_gradients(self, gradients: Sequence[Tensor]) -> None:
        sums = self._all_reduce(torch.cat([gradient.flatten() for gradient in gradients]), dist.ReduceOp.SUM)
        parts = torch.split(sums, [gradient.numel() for gradient in gradients])
        for gradient, total in zip(gradients, parts, strict=True):
            gradient.copy_(total.view_as(gradient))

    def all_reduce_max(self, values: Sequence[float]) -> list[float]:
        maxima = self._all_reduce(torch.tensor(values, dtype=torch.float64), dist.ReduceOp.MAX)
        return maxima.tolist()

    def _all_reduce(self, values: Tensor, operation: Any) -> Tensor:
        dist.all_reduce(values, operation)
        return values

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
    """Join the group of the ranks that were started together, and leave it when the block ends.

    A rank that fails does not wait for the others: its process ends with its own exit code and closes its
    connections. The other ranks then raise `RankError`, unless torchrun has stopped them before.

    Args:
        device: The device of the gradients.

    Raises:
        RankError: A rank did not start, has ended, or did not answer in time.
    """
    if torchrun.size() == 1:
        yield Group()
        return
    try:
        yield _DistributedGroup(device)
    except Exception as error:
        # Gloo raises a plain `RuntimeError`, so only the message distinguishes its failures from others.
        is_of_gloo = isinstance(error, RuntimeError) and re.search(CONNECTION_ERRORS, str(error)) is not None
        if not is_of_gloo and not isinstance(error, dist.DistError):
            raise
        timed_out = re.search(r"[Tt]imed? ?out", str(error)) is not None
        reason = "another rank did not answer in time" if timed_out else "the connection to another rank was closed"
        raise RankError(f"rank {torchrun.rank()}: {reason}; run the same command again to resume") from error
    dist.destroy_process_group()
