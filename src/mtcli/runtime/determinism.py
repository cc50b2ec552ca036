"""Equal bits in repeated runs on a GPU."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


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
