"""The kernels of mtcli that need Triton, computed by their reference."""

import sys
from types import ModuleType

from torch import Tensor

from simulated_cuda.tensor import DeviceTensor, host
from simulated_cuda.work import count_kernel


def install() -> None:
    """Replace the modules that need Triton."""
    module = ModuleType("mtcli.model.fast.triton_loss")
    module.logit_gradient_ = logit_gradient_  # type: ignore[attr-defined]
    sys.modules[module.__name__] = module


def logit_gradient_(logits: Tensor, target: Tensor, smoothing: float, write_gradient: bool) -> tuple[Tensor, Tensor]:
    """Compute `model.fast.triton_loss.logit_gradient_` as one launch that reads the logits and overwrites them."""
    from mtcli.model.fast.logit_gradient import reference_logit_gradient_

    on_host = host(logits)
    loss, nll = reference_logit_gradient_(on_host, host(target), smoothing, write_gradient)
    times = 2 if write_gradient else 1
    num_bytes = times * on_host.numel() * on_host.element_size()
    count_kernel("logit_gradient_", num_bytes, flops=0)
    return DeviceTensor(loss), DeviceTensor(nll)
