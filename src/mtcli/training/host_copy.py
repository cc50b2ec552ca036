"""A copy of tensors in the memory of the host, taken while a GPU continues."""

from collections.abc import Mapping

import torch
from torch import Tensor


class HostCopy:
    """A copy of tensors in the memory of the host, which is allocated once and used for every copy.

    On CUDA, the copies are queued on the current stream: they see the values of this step, and the next step, which is
    queued after them, cannot change these. Pinned memory lets the host continue without waiting for them.
    """

    def __init__(self) -> None:
        self._buffers: dict[str, Tensor] = {}
        self._copied: torch.cuda.Event | None = None

    def take(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Start to copy tensors, and return the copies. They are complete after `wait`.

        Args:
            tensors: Tensors by name. Their names and shapes may not change between calls.
        """
        for name, tensor in tensors.items():
            if name not in self._buffers:
                self._buffers[name] = _host_buffer(tensor)
            self._buffers[name].copy_(tensor.detach(), non_blocking=True)
        if any(tensor.is_cuda for tensor in tensors.values()):
            self._copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._copied.record()
        return {name: self._buffers[name] for name in tensors}

    def wait(self) -> None:
        """Wait until the copies are complete. Any thread may call this."""
        if self._copied is not None:
            self._copied.synchronize()


def _host_buffer(tensor: Tensor) -> Tensor:
    """Return memory of the host for a copy of a tensor; pinned if the tensor is on a GPU."""
    return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda)
