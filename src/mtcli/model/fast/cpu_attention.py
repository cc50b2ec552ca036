"""Attention of training on a CPU, for sentences so short that the (T, S) weights are smaller than queries and keys.

PyTorch's fused kernel, and autograd through equation 1, spend most of their time outside of the matrix products here.
`short_attention` is the equation and its derivative written out: each head is copied once, scores are scaled, masked
and normalised in place, and softmax is in float32, because PyTorch's softmax of bf16 is slow. Its twin is
`reference_attention` in `model/attention.py`.

Shapes: B batch, H heads, T queries, S keys, K size of a head.
"""

import math
from typing import Any

import torch
from torch import Tensor

from mtcli.model.fast.cpu_kernels import MIN_SOFTMAX_WIDTH


def short_attention(q: Tensor, k: Tensor, v: Tensor, forbidden: Tensor | None) -> Tensor:
    """Equation 1 (§3.2.1): softmax(QKᵀ / √d_k) V.

    Args:
        q: Queries, (B, H, T, d_k).
        k: Keys, (B, H, S, d_k).
        v: Values, (B, H, S, d_v).
        forbidden: Boolean, broadcastable to (B, H, T, S), True where a query may not attend.

    Returns:
        (B, H, T, d_v).
    """
    output: Tensor = _ShortAttention.apply(q, k, v, forbidden)  # type: ignore[no-untyped-call]
    return output


class _ShortAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, forbidden: Tensor | None) -> Tensor:
        B, H, T, d_k = q.shape
        S = k.size(2)
        ctx.scale = 1 / math.sqrt(d_k)
        ctx.heads = (B, H)
        q = q.flatten(0, 1)
        k = k.flatten(0, 1)
        v = v.flatten(0, 1)
        scores = torch.bmm(q, k.transpose(1, 2)).view(B, H, T, S)
        weights = _softmax(scores, ctx.scale, forbidden).to(q.dtype).view(B * H, T, S)
        ctx.save_for_backward(q, k, v, weights)
        return torch.bmm(weights, v).view(B, H, T, -1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        q, k, v, weights = ctx.saved_tensors
        grad = grads[0].flatten(0, 1)
        grad_v = torch.bmm(weights.transpose(1, 2), grad)
        grad_weights = torch.bmm(grad, v.transpose(1, 2))
        grad_scores = _softmax_gradient(weights, grad_weights).mul_(ctx.scale).to(q.dtype)
        grad_q = torch.bmm(grad_scores, k)
        grad_k = torch.bmm(grad_scores.transpose(1, 2), q)
        grad_q, grad_k, grad_v = (x.view(*ctx.heads, *x.shape[1:]) for x in (grad_q, grad_k, grad_v))
        return grad_q, grad_k, grad_v, None


def _softmax(scores: Tensor, scale: float, forbidden: Tensor | None) -> Tensor:
    """Return softmax(scale · scores) over the last dimension, 0 where forbidden, contiguous in float32 or float64.

    A narrow row is padded with −∞, because PyTorch's softmax is slow below `MIN_SOFTMAX_WIDTH` columns.
    """
    dtype = torch.promote_types(scores.dtype, torch.float32)
    S = scores.size(-1)
    padded = scores.new_empty(*scores.shape[:-1], max(S, MIN_SOFTMAX_WIDTH), dtype=dtype)
    padded[..., S:] = -torch.inf
    weights = padded[..., :S]
    if forbidden is None:
        torch.mul(scores, scale, out=weights)
    else:  # adding numbers is faster than filling where a mask is True
        bias = torch.zeros(forbidden.shape, dtype=dtype).masked_fill_(forbidden, -torch.inf)
        torch.add(bias, scores, alpha=scale, out=weights)
    torch.softmax(padded, dim=-1, out=padded)
    return weights.contiguous()


def _softmax_gradient(weights: Tensor, grad: Tensor) -> Tensor:
    """Return the gradient of the scores, w · (g − Σ w g), from the weights w and their gradient g.

    In float32 or float64. In these types it overwrites `grad`.
    """
    dtype = torch.promote_types(grad.dtype, torch.float32)
    weights = weights.to(dtype)
    product = grad.to(dtype).mul_(weights)
    return product.sub_(weights * product.sum(dim=-1, keepdim=True))
