"""Label-smoothed cross-entropy (§5.4), twice: as the formula, and joined to the output projection.

The smoothed target puts 1 − ε on the reference piece and ε/V on every piece of the vocabulary (Szegedy et al.
2015), as `torch.nn.CrossEntropyLoss(label_smoothing=ε)` does.
"""

from typing import Any

import torch
from torch import Tensor

CHUNK = 512
"""Rows of logits that exist at one time; 512 × 10,000 pieces are 20 MB, which a CPU's caches serve best. A GPU, to
which memory matters less than being called seldom, takes eight times as many."""


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
    stand in memory, nor does autograd revisit them. The smoothing's share, ε/V for every piece, is the same in each
    row: it is taken once, from the mean row of the weight and the sum of the hidden states, and never per logit.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, target: Tensor, smoothing: float, needed: bool
    ) -> tuple[Tensor, Tensor]:
        N, V = hidden.size(0), weight.size(0)
        exact = torch.promote_types(hidden.dtype, torch.float32)
        mean_row, hidden_sum = weight.mean(dim=0, dtype=exact), hidden.sum(dim=0, dtype=exact)
        total_nll, gold_sum = hidden.new_zeros((), dtype=exact), hidden.new_zeros((), dtype=exact)
        grad_hidden = torch.empty_like(hidden) if needed else None
        grad_weight = (hidden_sum * (-smoothing / V)).repeat(V, 1) if needed else None
        rows = CHUNK if hidden.device.type == "cpu" else 8 * CHUNK
        # Written again by each chunk: memory fresh from the system would cost a CPU as much as the softmax.
        logits_block = hidden.new_empty(min(rows, N), V)
        p_block = torch.empty_like(logits_block, dtype=exact)
        for first in range(0, N, rows):
            h, t = hidden[first : first + rows], target[first : first + rows, None]
            logits = torch.mm(h, weight.t(), out=logits_block[: len(h)])
            p = torch.softmax(logits, dim=-1, dtype=exact, out=p_block[: len(h)])
            log_z = logits.amax(dim=-1).to(exact) - p.amax(dim=-1).log()  # of the likeliest: no p of 0 has a logarithm
            gold = logits.gather(1, t).sum(dtype=exact)
            total_nll += log_z.sum() - gold
            gold_sum += gold
            if grad_hidden is None or grad_weight is None:
                continue
            error = p.scatter_add_(1, t, torch.full_like(t, -(1 - smoothing), dtype=exact))
            if exact != hidden.dtype:
                error = logits.copy_(error)  # in memory that is at hand
            torch.addmm(
                mean_row.to(hidden.dtype), error, weight, beta=-smoothing, out=grad_hidden[first : first + rows]
            )
            grad_weight += error.t() @ h
        loss = total_nll + smoothing * (gold_sum - hidden_sum @ mean_row)
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
