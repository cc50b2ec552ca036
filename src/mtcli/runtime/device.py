"""The device that a process computes on: which one, its speed limits, and equal bits in repeated runs on a GPU."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch

from mtcli.errors import UsageError
from mtcli.runtime import torchrun
from mtcli.runtime.cores import ONE_CORE, Cores, all_cores, usable_cores
from mtcli.runtime.wording import counted


def pick_device(name: str = "auto") -> torch.device:
    """Return the device of this name, and set up PyTorch for it.

    On a CPU, PyTorch gets one thread for each operation, because `runtime/cores.py` divides work among the cores.
    On CUDA, cuDNN's attention is disabled. PyTorch prefers it on Hopper, where it builds a graph for each new shape,
    in up to 0.4 s, and an epoch has hundreds of shapes. The other kernels have no such cost.

    Args:
        name: `cpu`, `cuda`, `cuda:1`, `mps`, or `auto`: CUDA where there is a GPU, then Apple's MPS, then the CPU.
            In a group of several ranks, each uses the GPU of its local rank.

    Raises:
        UsageError: This machine has no such device, or no GPU for this rank.
    """
    available = {
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available() and torchrun.size() == 1,
        "cpu": True,
    }
    if name == "auto":
        name = next(kind for kind, is_available in available.items() if is_available)
    kind = name.partition(":")[0]
    if kind == "cpu":
        torch.set_num_threads(1)  # what is divided among the cores is the work: see `runtime/cores.py`
    if kind == "cuda":
        torch.backends.cuda.enable_cudnn_sdp(False)
    if kind not in available:
        raise UsageError(f"--device {name}: choose from auto, {', '.join(available)}")
    if not available[kind]:
        raise UsageError(f"--device {name}: this PyTorch ({torch.__version__}) finds no such device; use --device auto")
    if kind == "cuda" and torchrun.size() > 1:
        return _gpu_of_this_rank(name)
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UsageError(f"--device {name}: write a number after the colon, as in cuda:0") from None
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UsageError(f"--device {name}: there are {torch.cuda.device_count()}, counted from 0")
    if device.index:
        torch.cuda.set_device(device)  # so that queries and kernels without a device use this one too
    return device


def cores_for(device: torch.device) -> Cores:
    """Return the threads that divide the work for a device: one for each core on a CPU, otherwise the calling one."""
    return all_cores() if device.type == "cpu" else ONE_CORE


def runs_ahead(device: torch.device) -> bool:
    """Return True if the host should launch and prepare work while the device still computes.

    That is so on CUDA: an operation returns before it is computed, and the host waits only where it reads a result.
    """
    return device.type == "cuda"


def _gpu_of_this_rank(name: str) -> torch.device:
    """Return the GPU whose index is the local rank.

    Raises:
        UsageError: `name` is a particular GPU, or there are fewer GPUs than local ranks.
    """
    if name != "cuda":
        raise UsageError(f"--device {name}: each rank uses a GPU of its own; write --device cuda")
    rank = torchrun.local_rank()
    gpus = torch.cuda.device_count()
    if rank >= gpus:
        raise UsageError(
            f"local rank {rank} has no GPU of its own; there are {gpus}: give torchrun --nproc-per-node {gpus}"
        )
    return torch.device("cuda", rank)


def describe(device: torch.device) -> str:
    """Return a description for the log, such as `cpu (2 cores)`."""
    if device.type == "cuda":
        return f"{device} ({torch.cuda.get_device_name(device)})"
    if device.type == "cpu":
        return f"{device} ({counted(usable_cores(), 'core')})"
    return str(device)


def copy_to(device: torch.device, tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor on a device. A copy from the CPU to a CUDA device does not wait for it."""
    if device.type == "cuda" and tensor.device.type == "cpu":  # pinned memory makes the copy asynchronous
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


class Gpu(NamedTuple):
    """Two limits that no program exceeds."""

    flops: float
    """Floating-point operations per second of matrix products, in the precision that training uses."""
    bandwidth: float
    """Bytes per second that its memory can read and write."""


UNKNOWN_GPU = Gpu(flops=50e12, bandwidth=400e9)
"""Assumed for a GPU whose limits cannot be computed: those of a small one of 2020."""

FLOP_PER_CLOCK = {
    (6, 0): 128, (6, 1): 256, (7, 0): 128, (7, 5): 128,
    (8, 0): 2048, (8, 6): 512, (8, 9): 512, (9, 0): 4096, (10, 0): 8192, (10, 3): 8192, (12, 0): 512,
}  # fmt: skip
"""Operations of a multiprocessor per clock cycle, by compute capability: in bf16, and in float32 without bf16 units.

From NVIDIA's data sheets, without sparsity and with sums in float32.
"""


def gpu_of(device: torch.device) -> Gpu:
    """Return the limits of a GPU, or `UNKNOWN_GPU` if PyTorch does not report its clocks.

    Args:
        device: A CUDA device.
    """
    properties = torch.cuda.get_device_properties(device)
    flop_per_clock = FLOP_PER_CLOCK.get((properties.major, properties.minor), 0)
    clock = 1e3 * getattr(properties, "clock_rate", 0)  # reported in kHz
    memory_clock = 1e3 * getattr(properties, "memory_clock_rate", 0)
    bytes_per_transfer = getattr(properties, "memory_bus_width", 0) / 8
    flops = properties.multi_processor_count * clock * flop_per_clock
    bandwidth = 2 * memory_clock * bytes_per_transfer  # double data rate
    if not (flops and bandwidth):
        return UNKNOWN_GPU
    return Gpu(flops, bandwidth)


@contextmanager
def deterministic_algorithms(device: torch.device) -> Iterator[None]:
    """Use only deterministic operations on CUDA in the block. On other devices all operations of training are.

    Otherwise several operations of a training step add numbers on CUDA in an order that changes from run to run: the
    backward passes of the attention kernels, of `index_select` and of `gather`, and products of cuBLAS, which shares
    its workspace between streams. cuBLAS reads its setting at the first product, which must be in the block.

    Args:
        device: The device of this rank.
    """
    if device.type != "cuda":
        yield
        return
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    memory: Any = torch.utils.deterministic  # its attribute is a property of the module, which has no type
    fills_memory = memory.fill_uninitialized_memory
    cudnn = torch.backends.cudnn
    cudnn_settings = (cudnn.deterministic, cudnn.benchmark)
    memory.fill_uninitialized_memory = False  # only helps to find errors, and takes time
    cudnn.deterministic = True
    cudnn.benchmark = False
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)
        cudnn.deterministic, cudnn.benchmark = cudnn_settings
        memory.fill_uninitialized_memory = fills_memory
