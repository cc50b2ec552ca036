"""The loss and the gradient of its logits together: the formula, and the choice of a GPU kernel for it.

Shapes: C positions of one chunk, V vocabulary.
"""

import functools
import logging
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

log = logging.getLogger(__name__)

LogitGradient = Callable[[Tensor, Tensor, float, bool], tuple[Tensor, Tensor]]
"""A function of `logits`, `target`, `smoothing` and `write_gradient` that overwrites the logits with their gradient.

Args:
    logits: (C, V), each row contiguous.
    target: Reference tokens without padding, (C,).
    smoothing: ε.
    write_gradient: Overwrite the logits with the gradient of the summed smoothed cross-entropy. False: keep them.

Returns:
    Smoothed cross-entropy (§5.4) and plain negative log-likelihood of each position in nats, (C,), in float32, or in
    float64 for logits in float64.
"""


def reference_logit_gradient_(
    logits: Tensor, target: Tensor, smoothing: float, write_gradient: bool
) -> tuple[Tensor, Tensor]:
    """`LogitGradient` as the formula has it: p − (1 − ε) · onehot(target) − ε/V with p = softmax(logits)."""
    V = logits.size(1)
    log_p = logits.log_softmax(dim=-1, dtype=torch.promote_types(logits.dtype, torch.float32))
    nll = -log_p.gather(1, target[:, None]).squeeze(1)
    loss = (1 - smoothing) * nll - smoothing * log_p.mean(dim=-1)
    if write_gradient:
        gradient = log_p.exp() - smoothing / V
        gradient[torch.arange(len(target), device=target.device), target] -= 1 - smoothing
        logits.copy_(gradient)
    return loss, nll


@functools.cache
def logit_gradient_kernel(device: torch.device) -> LogitGradient | None:
    """Return the Triton kernel for a device, or None if it cannot run there.

    It needs CUDA, the package `triton`, and a C compiler, which Triton uses to build the launcher. So the kernel is
    tried once, and its result is compared with the reference.
    """
    if device.type != "cuda":
        return None
    try:
        from mtcli.model.fast.triton_loss import logit_gradient_

        _check_kernel(logit_gradient_, device)
    except Exception as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        log.warning("the Triton kernel of the loss does not run, so a slower loss is used: %s", reason)
        return None
    return logit_gradient_


def _check_kernel(kernel: LogitGradient, device: torch.device) -> None:
    """Raise RuntimeError if a kernel's loss or gradient differs from the reference on a small example in bf16.

    As in training, the rows are padded, and longer than what the kernel reads at a time.
    """
    C, V = 4, 9000
    columns = torch.arange(V, device=device)
    values = torch.stack([(columns * (3 + i)).sin() * 5 for i in range(C)])
    logits = F.pad(values.bfloat16(), (0, -V % 64))[:, :V]
    target = columns[:C] * 7
    expected = logits.clone()
    expected_sums = reference_logit_gradient_(expected, target, 0.1, True)
    sums = kernel(logits, target, 0.1, True)
    # A gradient is rounded to 8 bits, so two roundings may differ by 2^-8 of its size.
    gradients_agree = torch.allclose(logits.float(), expected.float(), rtol=2**-7, atol=1e-6)
    sums_agree = torch.allclose(torch.stack(sums), torch.stack(expected_sums), rtol=1e-5, atol=1e-5)
    if not (gradients_agree and sums_agree):
        raise RuntimeError("its result differs from the reference")
