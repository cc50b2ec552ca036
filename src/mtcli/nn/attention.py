"""Scaled dot-product attention (§3.2.1), twice: the equation as written, and PyTorch's fused kernel.

Shapes: B batch, H heads, T queries, S keys, K size of a head (d_k for queries and keys, d_v for values).
A mask is boolean and True means *may attend*, as in `torch.nn.functional.scaled_dot_product_attention`.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

Attention = Callable[[Tensor, Tensor, Tensor, Tensor | None, bool], Tensor]
"""(q_BHTK, k_BHSK, v_BHSK, mask, causal) → (B, H, T, d_v)."""


def attention_scores(q: Tensor, k: Tensor, mask: Tensor | None = None, causal: bool = False) -> Tensor:
    """QKᵀ / √d_k, −∞ where a query may not attend.

    Args:
        q: Queries (B, H, T, d_k).
        k: Keys (B, H, S, d_k).
        mask: Boolean, broadcastable to (B, H, T, S); True: may attend. No row is wholly False.
        causal: Query t attends to keys 0…t only (§3.2.3), so that a prediction depends on earlier pieces alone.

    Returns:
        (B, H, T, S).
    """
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    if causal:
        scores = scores.masked_fill(~causal_mask(q.size(-2), k.size(-2), q.device), -torch.inf)
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    return scores


def attention_weights(q: Tensor, k: Tensor, mask: Tensor | None = None, causal: bool = False) -> Tensor:
    """softmax(QKᵀ / √d_k): how much each query attends to each key, each row summing to 1. As `attention_scores`."""
    return attention_scores(q, k, mask, causal).softmax(dim=-1)


def reference_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, causal: bool = False) -> Tensor:
    """Equation 1: Attention(Q, K, V) = softmax(QKᵀ / √d_k) V. Shapes as in `Attention`."""
    return attention_weights(q, k, mask, causal) @ v


SHORT = 128**2
"""Queries × keys up to which a CPU is faster by the equation than in PyTorch's kernel, with gradients twice as fast."""

NARROW = 16
"""Keys below which PyTorch's softmax on a CPU makes no use of vector instructions, and takes ten times as long."""


def fused_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, causal: bool = False) -> Tensor:
    """Equation 1 in one kernel, which never stores the (T, S) weights, where that pays. Shapes as in `Attention`."""
    S = k.size(-2)
    masked = mask is not None or causal  # else, as in a step of a search, it pays for keys enough
    if q.device.type == "cpu" and q.size(-2) * S <= SHORT and (masked or S >= NARROW):
        scores = attention_scores(q, k, mask, causal)
        if S < NARROW:
            scores = F.pad(scores, (0, NARROW - S), value=-torch.inf)
        return scores.softmax(dim=-1)[..., :S] @ v
    if mask is not None and causal:  # the kernel takes one or the other
        mask, causal = mask & causal_mask(q.size(-2), k.size(-2), q.device), False
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal)


def causal_mask(T: int, S: int, device: torch.device | None = None) -> Tensor:
    """(T, S), True on and below the diagonal."""
    return torch.ones(T, S, dtype=torch.bool, device=device).tril()


KeysValues = tuple[Tensor, Tensor]
"""Keys (B, H, S, d_k) and values (B, H, S, d_v)."""


@dataclass(frozen=True)
class Cache:
    """What the decoder remembers between two steps: a value, owned by the search and never by the model.

    N hypotheses are B sentences × W beams, sentence by sentence. The keys and values of the source belong to the
    sentence, not to the hypothesis: they are computed once and shared by its beams.
    """

    own: tuple[KeysValues, ...]
    """For each layer, keys and values of the pieces so far: (N, H, T, K)."""
    memory: tuple[KeysValues, ...]
    """For each layer, keys and values of the source: (B, H, S, K)."""
    mask: Tensor
    """(B, 1, 1, S), True where the source has a piece."""

    @property
    def length(self) -> int:
        """Pieces decoded so far."""
        return self.own[0][0].size(2) if self.own else 0

    @classmethod
    def joined(cls, parts: "Sequence[Cache]") -> "Cache":
        """The caches of some sentences and of others as one, before the first step.

        As wide as the widest, and at least `NARROW`: a source has no piece at what is added.
        """
        S = max(NARROW, *(part.mask.size(-1) for part in parts))

        def together(layer: int, side: int) -> Tensor:
            kept = [part.memory[layer][side] for part in parts]
            return torch.cat([F.pad(t, (0, 0, 0, S - t.size(2))) for t in kept])

        memory = tuple((together(layer, 0), together(layer, 1)) for layer in range(len(parts[0].memory)))
        mask = torch.cat([F.pad(part.mask, (0, S - part.mask.size(-1))) for part in parts])
        return cls((), memory, mask)

    def select(self, hypotheses: Tensor, sentences: Tensor | None = None) -> "Cache":
        """The cache of these hypotheses (N′,) and, where given, of these sentences only (B′,)."""
        own = tuple((k.index_select(0, hypotheses), v.index_select(0, hypotheses)) for k, v in self.own)
        if sentences is None:
            return Cache(own, self.memory, self.mask)
        memory = tuple((k.index_select(0, sentences), v.index_select(0, sentences)) for k, v in self.memory)
        return Cache(own, memory, self.mask.index_select(0, sentences))
