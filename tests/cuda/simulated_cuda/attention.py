"""The attention kernels of a GPU, computed as equation 1 is written.

Shapes: q (B, H, T, K), k and v (B, H, S, K). The bias is what PyTorch made of a boolean mask: 0 or −∞.
"""

import math
from typing import Any

import torch
from torch import Tensor

from simulated_cuda.counts import active


def _weights(q: Tensor, k: Tensor, bias: Tensor | None, causal: bool, scale: float | None) -> Tensor:
    """Return softmax(q kᵀ · scale + bias) in float32: (B, H, T, S)."""
    scores = q.float() @ k.float().transpose(-2, -1) * _scale(q, scale)
    if bias is not None:
        scores = scores + bias.float()
    if causal:
        allowed = torch.ones(q.size(-2), k.size(-2), dtype=torch.bool).tril()
        scores = scores.masked_fill(~allowed, -torch.inf)
    return scores.softmax(dim=-1)


def _scale(q: Tensor, scale: float | None) -> float:
    return 1 / math.sqrt(q.size(-1)) if scale is None else scale


def _forward(kernel: str, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, causal: bool, scale: Any) -> Tensor:
    """Return the output (B, H, T, K), whose memory is (B, T, H, K) as that of the kernels."""
    mask = "masked" if bias is not None else "causal" if causal else "full"
    for counts in active:
        counts.attention[f"{kernel} {q.dtype}".replace("torch.", "") + f" {mask}"] += 1
    output = _weights(q, k, bias, causal, scale) @ v.float()
    return output.to(q.dtype).transpose(1, 2).contiguous().transpose(1, 2)


def _backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, causal: bool, scale: float | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of q, k and v."""
    weights = _weights(q, k, bias, causal, scale)
    grad_v = weights.transpose(-2, -1) @ grad.float()
    grad_weights = grad.float() @ v.float().transpose(-2, -1)
    grad_scores = weights * (grad_weights - (weights * grad_weights).sum(dim=-1, keepdim=True))
    grad_q = grad_scores @ k.float() * _scale(q, scale)
    grad_k = grad_scores.transpose(-2, -1) @ q.float() * _scale(q, scale)
    return grad_q.to(q.dtype), grad_k.to(k.dtype), grad_v.to(v.dtype)


def _seed() -> Tensor:
    """Return what a kernel returns for its random numbers, which nothing uses without dropout."""
    return torch.zeros((), dtype=torch.int64)


def _statistics(q: Tensor) -> Tensor:
    """Return a placeholder for the log-sum-exp of each query, (B, H, T), which the kernels keep for their backward."""
    return q.new_zeros(q.shape[:-1], dtype=torch.float32)


def efficient(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, _: bool, dropout: float = 0.0, causal: bool = False,
    *, scale: float | None = None,
) -> tuple[Any, ...]:  # fmt: skip
    """Memory-efficient attention: any type, with or without a mask."""
    return _forward("efficient", q, k, v, bias, causal, scale), _statistics(q), _seed(), _seed()


def efficient_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, out: Tensor, statistics: Tensor, seed: Tensor,
    offset: Tensor, dropout: float, wanted: list[bool], causal: bool = False, *, scale: float | None = None,
) -> tuple[Any, ...]:  # fmt: skip
    """Return the gradients of q, k, v and (none) of the bias."""
    return (*_backward(grad, q, k, v, bias, causal, scale), None)


def flash(
    q: Tensor, k: Tensor, v: Tensor, dropout: float = 0.0, causal: bool = False, _: bool = False,
    *, scale: float | None = None,
) -> tuple[Any, ...]:  # fmt: skip
    """Flash attention: half precision, no mask."""
    output = _forward("flash", q, k, v, None, causal, scale)
    return output, _statistics(q), None, None, q.size(-2), k.size(-2), _seed(), _seed(), q.new_zeros(())


def flash_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, statistics: Tensor, first: Any, second: Any, T: int,
    S: int, dropout: float, causal: bool, seed: Tensor, offset: Tensor, *, scale: float | None = None,
) -> tuple[Any, ...]:  # fmt: skip
    """Return the gradients of q, k and v."""
    return _backward(grad, q, k, v, None, causal, scale)


def cudnn(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, _: bool, dropout: float = 0.0, causal: bool = False,
    __: bool = False, *, scale: float | None = None,
) -> tuple[Any, ...]:  # fmt: skip
    """cuDNN's attention, which builds a graph for each new shape: half precision, with or without a mask."""
    output = _forward("cudnn", q, k, v, bias, causal, scale)
    return output, _statistics(q), None, None, q.size(-2), k.size(-2), _seed(), _seed(), q.new_zeros(())


def cudnn_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, statistics: Tensor, seed: Tensor, offset: Tensor,
    bias: Tensor | None, first: Any, second: Any, T: int, S: int, dropout: float, causal: bool,
    *, scale: float | None = None,
) -> tuple[Any, ...]:  # fmt: skip
    """Return the gradients of q, k and v."""
    return _backward(grad, q, k, v, bias, causal, scale)


KERNELS = {
    "_scaled_dot_product_efficient_attention": efficient,
    "_scaled_dot_product_efficient_attention_backward": efficient_backward,
    "_scaled_dot_product_flash_attention": flash,
    "_scaled_dot_product_flash_attention_backward": flash_backward,
    "_scaled_dot_product_cudnn_attention": cudnn,
    "_scaled_dot_product_cudnn_attention_backward": cudnn_backward,
}
"""The operations that the CPU does not have."""
