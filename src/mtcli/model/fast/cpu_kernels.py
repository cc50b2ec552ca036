"""Operations that PyTorch computes slowly on a CPU, and the tricks that make them faster.

`tests/test_cpu_kernels.py` compares each with the same operation as PyTorch has it.

Shapes: B sentences, W beams, N = B × W hypotheses, V vocabulary.
"""

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

# Linear: oneDNN instead of MKL.

HAS_ONEDNN = (
    torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    and torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]
    and hasattr(torch.ops.mkldnn, "_linear_pointwise")
)


def onednn_is_faster(x: Tensor) -> bool:
    """Return True if `linear` can multiply `x` faster than PyTorch: in float32, where PyTorch would use MKL."""
    return HAS_ONEDNN and x.device.type == "cpu" and x.dtype == torch.float32


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x @ weightᵀ + bias with oneDNN, which is 10 to 15% faster than MKL on AMD's CPUs.

    oneDNN generates code for each new shape, which takes as long as 40 million multiplications. So this is for shapes
    that come again. It has no gradient.

    Args:
        x: (N, K), in float32.
        weight: (M, K).
        bias: (M,).

    Returns:
        (N, M), in new memory.
    """
    output: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return output


# Dropout: 16 random bits for each element.

_thread = threading.local()
"""`generator`: what draws in the calling thread; PyTorch's default generator if there is none."""


@contextmanager
def dropout_seed(seed: int) -> Iterator[None]:
    """Let dropout in the calling thread draw from a generator with this seed, until the context ends."""
    _thread.generator = torch.Generator().manual_seed(seed)
    try:
        yield
    finally:
        _thread.generator = None


def dropout(x: Tensor, p: float) -> Tensor:
    """Dropout (§5.4) several times as fast as PyTorch's, with the same distribution.

    PyTorch draws one random number for each element. Here one draw of 64 random bits decides four elements.

    Args:
        x: On the CPU, of any shape and floating-point type.
        p: Probability of zeroing an element, rounded to a multiple of 2^−16.
    """
    return x * _dropout_mask(x, p)


def add_dropout(x: Tensor, sublayer: Tensor, p: float) -> Tensor:
    """x + dropout(sublayer) with one pass less. Arguments of any shape, which both have; `p` is that of `dropout`."""
    return torch.addcmul(x, sublayer, _dropout_mask(sublayer, p))


def _dropout_mask(x: Tensor, p: float) -> Tensor:
    """Return the factors of the elements of `x`, 0 or 1 / (1 − p), in float32 or float64."""
    num_draws = math.ceil(x.numel() / 4)
    generator = getattr(_thread, "generator", None)
    draws = torch.empty(num_draws, dtype=torch.int64).random_(-(2**63), None, generator=generator)
    bits = draws.view(torch.int16)[: x.numel()].view(x.shape)  # uniform over −2^15 … 2^15 − 1
    threshold = round(p * 2**16) - 2**15
    # The comparison writes 0 or 1 as floating-point numbers, which saves the conversion of a boolean mask.
    mask = torch.empty(x.shape, dtype=torch.promote_types(x.dtype, torch.float32))
    torch.ge(bits, threshold, out=mask)
    return mask.mul_(1 / (1 - p))


# Softmax over few columns: padded to the width of vector instructions.

MIN_SOFTMAX_WIDTH = 16
"""Columns below which PyTorch's softmax uses no vector instructions on a CPU, and takes ten times as long."""


def narrow_softmax(scores: Tensor) -> Tensor:
    """Softmax over the last dimension, padded with −∞ to at least `MIN_SOFTMAX_WIDTH` columns.

    Args:
        scores: (…, S).

    Returns:
        (…, S).
    """
    S = scores.size(-1)
    if S < MIN_SOFTMAX_WIDTH:
        scores = F.pad(scores, (0, MIN_SOFTMAX_WIDTH - S), value=-torch.inf)
    return scores.softmax(dim=-1)[..., :S]


# Log-softmax: in place.


def log_softmax_(logits: Tensor) -> Tensor:
    """Log-softmax over the last dimension, in the memory of `logits`.

    A new tensor of (N, V) in each step of a search takes longer to allocate than its numbers take to compute.
    """
    return torch.log_softmax(logits, dim=-1, out=logits)


# Argmax and top-k over the vocabulary: maxima of blocks first.


def argmax(log_p: Tensor) -> Tensor:
    """Return the index of the largest value of each row: (N, V) → (N,).

    PyTorch finds a maximum (`amax`) many times as fast as its index (`argmax`). So the maxima of about √V blocks are
    found first, then the index of the best block, then the index within that block.
    """
    V = log_p.size(1)
    size = math.isqrt(V)  # of a block
    maxima = log_p[:, : V - V % size].view(len(log_p), V // size, size).amax(dim=2)
    if V % size:  # one more block, which overlaps the one before
        maxima = torch.cat((maxima, log_p[:, V - size :].amax(dim=1, keepdim=True)), dim=1)
    best_block = maxima.argmax(dim=1, keepdim=True)
    first = (best_block * size).clamp(max=V - size)
    within = log_p.gather(1, first + torch.arange(size, device=log_p.device)).argmax(dim=1, keepdim=True)
    return (first + within).squeeze(1)


def top_continuations(scores: Tensor, log_p: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the k most likely continuations of each sentence's hypotheses, best first.

    They are the top k of a sentence's W · V sums of `scores` and `log_p`, and ranking all the sums is slow. So the
    vocabulary is divided into about √V blocks. The top k are within the k blocks with the largest maxima, because
    these blocks have k sums that are at least as large as any sum of another block. Only the sums of these blocks are
    ranked, and those of the last tokens, fewer than √V, which are in no block.

    Args:
        scores: Log-probability of each hypothesis, (B, W).
        log_p: Log-probability of each next token, (N, V).
        k: At most W · V.

    Returns:
        Three tensors of (B, k): the log-probability of each continuation, its parent (which of the W hypotheses it
        continues), and its token.
    """
    B, W = scores.shape
    V = log_p.size(1)
    num_blocks = math.isqrt(V)
    if k > W * num_blocks:
        return reference_continuations(scores, log_p, k)
    size = V // num_blocks  # of a block
    blocks = log_p[:, : num_blocks * size].view(B, W, num_blocks, size)
    maxima = blocks.amax(dim=3) + scores.unsqueeze(2)  # (B, W, num_blocks)
    best_blocks = maxima.flatten(1).topk(k, dim=1, sorted=False).indices  # (B, k)
    block_parents = (best_blocks // num_blocks).repeat_interleave(size, dim=1)  # (B, k · size)
    first_tokens = best_blocks % num_blocks * size
    block_tokens = (first_tokens.unsqueeze(2) + torch.arange(size, device=scores.device)).flatten(1)
    last_tokens = torch.arange(num_blocks * size, V, device=scores.device)
    last_parents = torch.arange(W, device=scores.device).repeat_interleave(len(last_tokens))
    parent = torch.cat((block_parents, last_parents.expand(B, -1)), dim=1)
    token = torch.cat((block_tokens, last_tokens.repeat(W).expand(B, -1)), dim=1)
    total = log_p.view(B, W * V).gather(1, parent * V + token) + scores.gather(1, parent)
    best, index = total.topk(k, dim=1)
    return best, parent.gather(1, index), token.gather(1, index)


def reference_continuations(scores: Tensor, log_p: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
    """`top_continuations` by ranking all W · V sums of each sentence."""
    B, W = scores.shape
    V = log_p.size(1)
    total = scores.unsqueeze(2) + log_p.view(B, W, V)
    best, index = total.flatten(1).topk(k, dim=1)
    return best, index // V, index % V


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
