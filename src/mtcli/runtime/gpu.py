"""The speed limits of a GPU, from what PyTorch knows of it."""

from typing import NamedTuple

import torch


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
