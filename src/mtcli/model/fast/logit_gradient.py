"""The fast parts of the loss: its matrix products, one chunk of positions at a time, and the gradient of its logits.

The gradient of the logits is computed together with the loss, by the formula or by a GPU kernel for it.

Shapes: N target positions, C positions of one chunk, D d_model, V vocabulary.
"""

import functools
import logging
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from mtcli.model.fast.cpu_kernels import linear, onednn_is_faster

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


class LossProducts:
    """The products logits = hidden @ weightᵀ, and the gradients of `hidden` and `weight` from that of the logits.

    Args:
        hidden: (N, D).
        weight: (V, D).
        chunk: Positions of a chunk. The last chunk may be smaller.
        needs_grad: Compute the gradient of `hidden`; of `weight`.
        hidden_grad_offset: Added to the gradient of each position, (D,).
        weight_grad_offset: Added to the gradient of each row of `weight`, (D,), in float32 or float64.
    """

    def __init__(
        self,
        hidden: Tensor,
        weight: Tensor,
        chunk: int,
        needs_grad: tuple[bool, bool],
        hidden_grad_offset: Tensor,
        weight_grad_offset: Tensor,
    ):
        self.hidden = hidden
        self.weight = weight
        self.chunk = chunk
        self.hidden_grad_offset = hidden_grad_offset.to(hidden.dtype)
        hidden_needs_grad, weight_needs_grad = needs_grad
        self._grad_hidden = torch.empty_like(hidden) if hidden_needs_grad else None
        self._grad_weight = self._initial_weight_grad(weight_grad_offset) if weight_needs_grad else None
        # Each chunk overwrites the logits. On a CPU, allocating new memory would take as long as the softmax.
        self._logits = hidden.new_empty(min(chunk, len(hidden)), len(weight))

    def _initial_weight_grad(self, row: Tensor) -> Tensor:
        return row.repeat(len(self.weight), 1)

    def logits(self, first: int) -> Tensor:
        """Return the logits of the chunk that starts at position `first`, (C, V). The next call overwrites them."""
        h = self.hidden[first : first + self.chunk]
        return torch.mm(h, self.weight.t(), out=self._logits[: len(h)])

    def accumulate(self, first: int, error: Tensor) -> None:
        """Accumulate both gradients, from the gradient of the logits of one chunk.

        Args:
            first: The first position of the chunk.
            error: The gradient of its logits, (C, V), in their type.
        """
        chunk = slice(first, first + self.chunk)
        if self._grad_hidden is not None:
            torch.addmm(self.hidden_grad_offset, error, self.weight, out=self._grad_hidden[chunk])
        if self._grad_weight is None:
            return
        if self._grad_weight.dtype == error.dtype:
            self._grad_weight.addmm_(error.t(), self.hidden[chunk])
        else:
            self._grad_weight += error.t() @ self.hidden[chunk]

    def gradients(self) -> tuple[Tensor | None, Tensor | None]:
        """Return the gradients of `hidden`, (N, D), and `weight`, (V, D); None for those that are not needed."""
        return self._grad_hidden, self._grad_weight


class OneDnnProducts(LossProducts):
    """The same products by oneDNN, in float32 on a CPU. The last chunk is left to the base class: see `linear`."""

    def _initial_weight_grad(self, row: Tensor) -> Tensor:
        # oneDNN computes the transposed gradient faster, so this is the transposed view of (D, V).
        return row[:, None].repeat(1, len(self.weight)).t()

    def logits(self, first: int) -> Tensor:
        """Return the logits of the chunk that starts at position `first`, (C, V)."""
        h = self.hidden[first : first + self.chunk]
        return linear(h, self.weight) if len(h) == self.chunk else super().logits(first)

    def accumulate(self, first: int, error: Tensor) -> None:
        """Accumulate both gradients, as the base class does."""
        if len(error) < self.chunk:
            super().accumulate(first, error)
            return
        chunk = slice(first, first + self.chunk)
        if self._grad_hidden is not None:
            self._grad_hidden[chunk] = linear(error, self.weight.t(), self.hidden_grad_offset)
        if self._grad_weight is not None:
            self._grad_weight.t().add_(linear(self.hidden[chunk].t(), error.t()))

    def gradients(self) -> tuple[Tensor | None, Tensor | None]:
        """Return the gradients of `hidden`, (N, D), and `weight`, (V, D); None for those that are not needed."""
        grad_weight = None if self._grad_weight is None else self._grad_weight.contiguous()
        return self._grad_hidden, grad_weight


def products_class(hidden: Tensor) -> type[LossProducts]:
    """Return the faster class for hidden states of this device and type."""
    return OneDnnProducts if onednn_is_faster(hidden) else LossProducts


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
