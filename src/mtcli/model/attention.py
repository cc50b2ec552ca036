"""Scaled dot-product attention (§3.2.1): equation 1 as written, and a faster function with the same result.

Shapes: B batch, H heads, T queries, S keys, K size of a head (d_k for queries and keys, d_v for values), D d_model.
A mask is that of `torch.nn.functional.scaled_dot_product_attention`: boolean and True where a query may attend, or a
number that is added to the score.
"""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from mtcli.model.fast.cpu_kernels import MIN_SOFTMAX_WIDTH, narrow_softmax, short_attention

Attention = Callable[[Tensor, Tensor, Tensor, Tensor | None, bool], Tensor]
"""A function of `q` (B, H, T, d_k), `k` (B, H, S, d_k), `v` (B, H, S, d_v), `mask` and `causal` to (B, H, T, d_v).

See `attention_scores` for the mask and `causal`.
"""


def attention_scores(q: Tensor, k: Tensor, mask: Tensor | None = None, causal: bool = False) -> Tensor:
    """Return the scores QKᵀ / √d_k of equation 1 (§3.2.1), −∞ where a query may not attend.

    Args:
        q: Queries, (B, H, T, d_k).
        k: Keys, (B, H, S, d_k).
        mask: Broadcastable to (B, H, T, S). Boolean, True where a query may attend; or of the type of `q`, 0 there and
            −∞ elsewhere, see `additive_mask`. Each query may attend to some key.
        causal: True if query t may attend to keys 0 … t only (§3.2.3), so that a prediction depends on earlier tokens.

    Returns:
        (B, H, T, S).
    """
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    if causal:
        scores = scores.masked_fill(~causal_mask(q.size(-2), k.size(-2), q.device), -torch.inf)
    if mask is None:
        return scores
    if mask.dtype != torch.bool:
        return scores.add_(mask)
    return scores.masked_fill(~mask, -torch.inf)


def attention_weights(q: Tensor, k: Tensor, mask: Tensor | None = None, causal: bool = False) -> Tensor:
    """Return the weights softmax(QKᵀ / √d_k) of equation 1 (§3.2.1): (B, H, T, S), each row sums to 1.

    Arguments are those of `attention_scores`.
    """
    return attention_scores(q, k, mask, causal).softmax(dim=-1)


def reference_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, causal: bool = False) -> Tensor:
    """Equation 1 (§3.2.1) as written: Attention(Q, K, V) = softmax(QKᵀ / √d_k) V. See `Attention` for shapes."""
    return attention_weights(q, k, mask, causal) @ v


MAX_UNFUSED_SIZE = 128**2
"""Queries × keys up to which equation 1 as written is faster than PyTorch's fused kernel on a CPU.

With gradients it is twice as fast.
"""


def fused_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, causal: bool = False) -> Tensor:
    """Equation 1 (§3.2.1) with PyTorch's fused kernel, or as written where that is faster. See `Attention` for shapes.

    The kernel does not store the (B, H, T, S) weights. As written means `short_attention` in training, whose derivative
    is written out too. The twin of all three is `reference_attention`.
    """
    if _unfused_is_faster(q, k, masked=mask is not None or causal):
        needs_grad = torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v))
        if needs_grad and (mask is None or mask.dtype == torch.bool):
            return short_attention(q, k, v, _forbidden(q, k, mask, causal))
        return narrow_softmax(attention_scores(q, k, mask, causal)) @ v
    if mask is not None and causal:  # the kernel takes either a mask or `is_causal`
        earlier = causal_mask(q.size(-2), k.size(-2), q.device)
        mask = mask & earlier if mask.dtype == torch.bool else mask.masked_fill(~earlier, -torch.inf)
        causal = False
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal)


def _unfused_is_faster(q: Tensor, k: Tensor, *, masked: bool) -> bool:
    T = q.size(-2)
    S = k.size(-2)
    # A compiled function must not depend on the size: it would need a second graph.
    if q.device.type != "cpu" or torch.compiler.is_compiling() or T * S > MAX_UNFUSED_SIZE:
        return False
    # Without a mask, as in self-attention during a search, the kernel is faster for few keys.
    return masked or S >= MIN_SOFTMAX_WIDTH


def _forbidden(q: Tensor, k: Tensor, mask: Tensor | None, causal: bool) -> Tensor | None:
    """Return what `mask` and `causal` forbid together: boolean, broadcastable to (B, H, T, S)."""
    forbidden = None if mask is None else ~mask
    if not causal:
        return forbidden
    later = ~causal_mask(q.size(-2), k.size(-2), q.device)
    return later if forbidden is None else forbidden | later


def causal_mask(T: int, S: int, device: torch.device | None = None) -> Tensor:
    """Return the mask of the decoder's self-attention (§3.2.3): (T, S), True on and below the diagonal."""
    return torch.ones(T, S, dtype=torch.bool, device=device).tril()


MASK_ALIGNMENT = 8
"""The kernels of a GPU read a mask whose rows begin at multiples of this many numbers; PyTorch copies any other one."""


def additive_mask(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Convert a boolean mask to the numbers that a GPU's attention kernel adds to the scores: 0 or −∞.

    PyTorch converts and aligns a boolean mask in each call, with seven launches. Converting it once serves all layers.

    Args:
        mask: Boolean, (B, 1, 1, S).
        dtype: The type of the queries.

    Returns:
        (B, 1, 1, S), with rows that begin at multiples of `MASK_ALIGNMENT`.
    """
    S = mask.size(-1)
    # At least one column is added, so that a compiled function needs no second graph for a mask that is aligned.
    aligned = F.pad(mask, (0, MASK_ALIGNMENT - S % MASK_ALIGNMENT))
    zeros = torch.zeros(aligned.shape, dtype=dtype, device=mask.device)
    return zeros.masked_fill(~aligned, -torch.inf)[..., :S]


KeysValues = tuple[Tensor, Tensor]
"""Keys (B, H, S, d_k) and values (B, H, S, d_v)."""
