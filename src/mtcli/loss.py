"""Label-smoothed cross-entropy (§5.4), twice: as the formula, and joined to the output projection.

The smoothed target puts 1 − ε on the reference piece and ε/V on every piece of the vocabulary (Szegedy et al.
2015), as `torch.nn.CrossEntropyLoss(label_smoothing=ε)` does.
"""

from typing import Any

import torch
from torch import Tensor

CHUNK = 512
"""Rows of logits that exist at one time; 512 × 10,000 pieces are 20 MB, which a CPU's caches serve best."""


def reference_loss(logits: Tensor, target: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """Sums over N positions of the smoothed cross-entropy and of the plain negative log-likelihood, in nats.

    Args:
        logits: (N, V).
        target: (N,), reference pieces; no padding.
        smoothing: ε.
    """
    log_p = logits.log_softmax(dim=-1)
    nll = -log_p.gather(1, target[:, None]).squeeze(1)
    return ((1 - smoothing) * nll - smoothing * log_p.mean(dim=-1)).sum(), nll.sum()


class _ProjectedLoss(torch.autograd.Function):
    """The gradient of softmax cross-entropy is known with the loss itself: softmax − target.

    So each chunk of logits is made, used for the loss and both gradients, and dropped; the (N, V) logits never
    stand in memory, nor does autograd revisit them.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, target: Tensor, smoothing: float, needed: bool
    ) -> tuple[Tensor, Tensor]:
        V = weight.size(0)
        loss = hidden.new_zeros((), dtype=torch.promote_types(hidden.dtype, torch.float32))
        total_nll = torch.zeros_like(loss)
        grad_hidden = torch.empty_like(hidden) if needed else None
        grad_weight = torch.zeros_like(weight, dtype=loss.dtype) if needed else None
        for first in range(0, hidden.size(0), CHUNK):
            h, t = hidden[first : first + CHUNK], target[first : first + CHUNK, None]
            logits = (h @ weight.t()).to(loss.dtype)
            logits.sub_(logits.amax(dim=-1, keepdim=True))
            gold, mean = logits.gather(1, t), logits.mean(dim=-1, keepdim=True)
            exp = logits.exp_()  # in place, and the only exponential: its sum gives the loss, its share the gradient
            z = exp.sum(dim=-1, keepdim=True)
            nll = (z.log() - gold).sum()
            loss += (1 - smoothing) * nll + smoothing * (z.log() - mean).sum()
            total_nll += nll
            if grad_hidden is None or grad_weight is None:
                continue
            error = exp.div_(z).sub_(smoothing / V)
            error.scatter_add_(1, t, torch.full_like(t, -(1 - smoothing), dtype=error.dtype))
            error = error.to(hidden.dtype)
            torch.mm(error, weight, out=grad_hidden[first : first + CHUNK])
            grad_weight += error.t() @ h
        if needed:
            ctx.save_for_backward(grad_hidden, grad_weight)
            ctx.weight_dtype = weight.dtype
        ctx.mark_non_differentiable(total_nll)
        return loss, total_nll

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        grad_hidden, grad_weight = ctx.saved_tensors
        scale = grads[0]
        return (
            grad_hidden * scale.to(grad_hidden.dtype),
            (grad_weight * scale).to(ctx.weight_dtype),
            None,
            None,
            None,
        )


def projected_loss(hidden: Tensor, weight: Tensor, target: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """`reference_loss(hidden @ weight.T, target, smoothing)` without the (N, V) logits in memory.

    Args:
        hidden: (N, D) decoder states at real target positions.
        weight: (V, D) output projection.
        target: (N,) reference pieces; no padding.
        smoothing: ε.

    Returns:
        Two sums over the N positions in nats: the smoothed cross-entropy, which has a gradient, and the plain
        negative log-likelihood, which has none.
    """
    if torch.is_autocast_enabled(hidden.device.type):  # autocast does not reach inside an autograd function
        dtype = torch.get_autocast_dtype(hidden.device.type)
        hidden, weight = hidden.to(dtype), weight.to(dtype)
    needed = torch.is_grad_enabled() and (hidden.requires_grad or weight.requires_grad)
    loss, nll = _ProjectedLoss.apply(hidden, weight, target, smoothing, needed)  # type: ignore[no-untyped-call]
    return loss, nll
