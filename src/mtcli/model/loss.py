"""Label-smoothed cross-entropy (§5.4): the formula, and a faster function that includes the output projection.

The smoothed target distribution is 1 − ε on the reference token plus ε/V on every token of the vocabulary (Szegedy et
al. 2015), as in `torch.nn.CrossEntropyLoss(label_smoothing=ε)`.

Shapes: N target positions, D d_model, V vocabulary, C positions of one chunk.
"""

import math
from typing import Any

import torch
from torch import Tensor

from mtcli.model.fast.logit_gradient import LogitGradient, logit_gradient_kernel, products_class

CPU_CHUNK = 512
"""Positions whose logits are in memory at a time on a CPU. 512 × 10,000 logits take 20 MB, which suits its caches."""

SOFTMAX_ROWS = 64
"""Positions whose softmax is computed at a time on a CPU. 64 × 10,000 numbers in float32 take 2.5 MB."""

MIN_P = 1e-30
"""Probabilities above this are exact to the last digits in float32. Smaller ones may have underflowed."""

GPU_CHUNK = 8 * CPU_CHUNK
"""The same on a GPU without the Triton kernel, where the cost of launching many small kernels outweighs memory."""

KERNEL_LOGITS_BYTES = 2 * 2**30
"""Memory for logits with the Triton kernel. The 25,000 × 37,000 logits of the paper's batches fit in bf16 (1.85 GB)."""

Sums = tuple[Tensor, Tensor, Tensor | None, Tensor | None]
"""Loss, negative log-likelihood, and the gradients of `hidden` and `weight`, None where not needed."""


def reference_loss(logits: Tensor, target: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """Smoothed cross-entropy (§5.4) and plain negative log-likelihood, summed over N positions, in nats.

    Args:
        logits: (N, V).
        target: Reference tokens without padding, (N,).
        smoothing: ε.
    """
    log_p = logits.log_softmax(dim=-1)
    nll = -log_p.gather(1, target[:, None]).squeeze(1)
    smoothed = (1 - smoothing) * nll - smoothing * log_p.mean(dim=-1)
    return smoothed.sum(), nll.sum()


def projected_loss(
    hidden: Tensor, weight: Tensor, target: Tensor, smoothing: float, bias: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """`reference_loss(hidden @ weight.T + bias, target, smoothing)` without storing the (N, V) logits.

    Args:
        hidden: Decoder states at target positions that are not padding, (N, D).
        weight: Output projection, (V, D).
        target: Reference tokens without padding, (N,).
        smoothing: ε.
        bias: Bias of the logits, (V,). None for no bias, as in the paper.

    Returns:
        The smoothed cross-entropy, which has a gradient, and the plain negative log-likelihood, which has none. Both
        are sums over the N positions in nats. The gradient of a frozen weight is not computed.
    """
    if bias is not None:  # as the weight of a further input that is always 1
        ones = hidden.new_ones(len(hidden), 1)
        hidden = torch.cat((hidden, ones), dim=1)
        weight = torch.cat((weight, bias[:, None]), dim=1)
    dtype = hidden.dtype
    device = hidden.device.type
    if torch.is_autocast_enabled(device):  # autocast does not apply to products that write to given memory
        dtype = torch.get_autocast_dtype(device)
    needs_grad = (False, False)
    if torch.is_grad_enabled():
        needs_grad = (hidden.requires_grad, weight.requires_grad)
    loss, nll = _ProjectedLoss.apply(hidden, weight, target, smoothing, dtype, needs_grad)  # type: ignore[no-untyped-call]
    return loss, nll


class _ProjectedLoss(torch.autograd.Function):
    """The loss and the gradients that are needed, computed together, one chunk of C positions at a time.

    With p = softmax(logits), the gradient of the loss with respect to a position's logits is

        p − (1 − ε) · onehot(target) − ε/V,

    which is known as soon as the logits are. So the logits of a chunk are computed, used and overwritten by those of
    the next chunk. The backward pass only scales the gradients.
    The gradient of a frozen weight, or of hidden states below which all is frozen, is not needed and not computed.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        target: Tensor,
        smoothing: float,
        dtype: torch.dtype,
        needs_grad: tuple[bool, bool],
    ) -> tuple[Tensor, Tensor]:
        hidden = hidden.to(dtype)
        weight = weight.to(dtype)
        kernel = logit_gradient_kernel(hidden.device)
        if kernel is None or dtype == torch.float64:
            sums = _sums_by_operators(hidden, weight, target, smoothing, needs_grad)
        else:
            sums = _sums_by_kernel(kernel, hidden, weight, target, smoothing, needs_grad)
        loss, nll, grad_hidden, grad_weight = sums
        ctx.save_for_backward(grad_hidden, grad_weight)
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, None, None, None, None]:
        # With a dimension, the float32 factor makes the products float32: bf16 is scaled and converted in one pass.
        factor = grads[0].reshape(1)
        grad_hidden, grad_weight = (None if grad is None else grad * factor for grad in ctx.saved_tensors)
        return grad_hidden, grad_weight, None, None, None, None


def _sums_by_kernel(
    kernel: LogitGradient,
    hidden: Tensor,
    weight: Tensor,
    target: Tensor,
    smoothing: float,
    needs_grad: tuple[bool, bool],
) -> Sums:
    """Compute the sums with a kernel that overwrites the logits with their gradient, in large chunks.

    A GPU's time here is that of its memory. For one chunk, bf16 and the paper's N = 25,000, V = 37,000, D = 512, the
    loss and its backward pass read and write, in GB:

        N × V in bf16, 1.85 GB: written by the product; read and overwritten by the kernel;
            read by the product for `hidden` and by that for `weight`                                    5 × 1.85 = 9.25
        V × D, 38 MB in bf16, 76 MB in float32: the cast 38 + 76; read by two products 2 × 38;
            the gradient written 38, read 38, scaled and written in float32 76                              0.34
        N × D, 26 MB in bf16, 51 MB in float32: the cast 26 + 51; read by two products 2 × 26;
            the gradient written 26, read 26, scaled and written in float32 51                              0.23

    in total 9.8 GB. The second reading of the logits by the kernel is served by the GPU's cache.
    """
    N = hidden.size(0)
    V = weight.size(0)
    hidden_needs_grad, weight_needs_grad = needs_grad
    write_gradient = hidden_needs_grad or weight_needs_grad
    row_size = math.ceil(V / 64) * 64  # rows begin at multiples of 128 bytes, which are read faster
    chunk = min(N, max(1, KERNEL_LOGITS_BYTES // (row_size * hidden.element_size())))
    buffer = hidden.new_empty(chunk, row_size)[:, :V]
    losses = []
    nlls = []
    grad_hidden = torch.empty_like(hidden) if hidden_needs_grad else None
    grad_weight = None
    for first in range(0, N, chunk):
        h = hidden[first : first + chunk]  # (C, D)
        logits = torch.mm(h, weight.t(), out=buffer[: len(h)])
        loss, nll = kernel(logits, target[first : first + chunk], smoothing, write_gradient)
        losses.append(loss.sum())
        nlls.append(nll.sum())
        if grad_hidden is not None:
            torch.mm(logits, weight, out=grad_hidden[first : first + chunk])
        if weight_needs_grad:
            product = logits.t() @ h  # accumulated in float32, and rounded once
            grad_weight = product if grad_weight is None else grad_weight.to(loss.dtype).add_(product)
    return sum(losses[1:], losses[0]), sum(nlls[1:], nlls[0]), grad_hidden, grad_weight


def _sums_by_operators(
    hidden: Tensor, weight: Tensor, target: Tensor, smoothing: float, needs_grad: tuple[bool, bool]
) -> Sums:
    """Compute the sums with PyTorch's operators, in small chunks.

    The term ε/V of the gradient is the same for all tokens, so it is added without looking at single logits. With the
    mean row of the weight, a position's mean logit is hidden · mean_row, and the loss is

        Σ nll + ε · (Σ logit of the target − Σ hidden · mean_row).
    """
    N = hidden.size(0)
    V = weight.size(0)
    dtype = torch.promote_types(hidden.dtype, torch.float32)  # of all sums
    on_cpu = hidden.device.type == "cpu"
    chunk = CPU_CHUNK if on_cpu else GPU_CHUNK
    mean_row = weight.mean(dim=0, dtype=dtype)
    hidden_sum = hidden.sum(dim=0, dtype=dtype)
    products = products_class(hidden)(
        hidden, weight, chunk, needs_grad,
        hidden_grad_offset=-smoothing * mean_row, weight_grad_offset=-smoothing / V * hidden_sum,
    )  # fmt: skip
    nll_sum = hidden.new_zeros((), dtype=dtype)
    target_logit_sum = hidden.new_zeros((), dtype=dtype)
    p_buffer = hidden.new_empty(min(SOFTMAX_ROWS if on_cpu else chunk, N), V, dtype=dtype)
    for first in range(0, N, chunk):
        logits = products.logits(first)  # (C, V)
        t = target[first : first + chunk, None]  # (C, 1)
        target_logit_sum += logits.gather(1, t).sum(dtype=dtype)
        for row in range(0, len(t), len(p_buffer)):
            rows = slice(row, row + len(p_buffer))
            nll_sum += _overwrite_with_gradient(logits[rows], t[rows], smoothing, p_buffer, any(needs_grad))
        products.accumulate(first, logits)
    logit_mean_sum = (hidden_sum * mean_row).sum()  # a matrix product would be in bf16 under autocast
    loss = nll_sum + smoothing * (target_logit_sum - logit_mean_sum)
    return loss, nll_sum, *products.gradients()


def _overwrite_with_gradient(
    logits: Tensor, target: Tensor, smoothing: float, p_buffer: Tensor, write_gradient: bool
) -> Tensor:
    """Overwrite the logits with p − (1 − ε) · onehot(target), and return their negative log-likelihood.

    Args:
        logits: (C, V).
        target: (C, 1).
        smoothing: ε.
        p_buffer: Memory for their softmax p, at least (C, V), in float32 or float64.
        write_gradient: False: keep the logits.

    Returns:
        The sum over the C positions, in the type of `p_buffer`.
    """
    p = torch.softmax(logits, dim=-1, dtype=p_buffer.dtype, out=p_buffer[: len(logits)])
    p_target = p.gather(1, target)
    if logits.device.type == "cpu" and p_target.min() > MIN_P:
        nll = -p_target.log().sum()
    else:
        target_logit = logits.gather(1, target).to(p.dtype)
        nll = (_log_normaliser(logits, p) - target_logit.squeeze(1)).sum()
    if write_gradient:
        p.scatter_(1, target, p_target - (1 - smoothing))
        logits.copy_(p)
    return nll


def _log_normaliser(logits: Tensor, p: Tensor) -> Tensor:
    """logsumexp(logits), (C,), from `logits` (C, V) and `p`, their softmax.

    For every token it is its logit − log p. The most likely token is used, whose p cannot underflow to 0.
    """
    return logits.amax(dim=-1).to(p.dtype) - p.amax(dim=-1).log()
