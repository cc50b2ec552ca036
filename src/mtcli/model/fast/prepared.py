"""The decoder of a search on a CPU: weights prepared once, and few operations in each step.

`Transformer.step` is its reference twin; `tests/test_prepared.py` compares the two.

Shapes: B sentences, L hypotheses of each, N = B × L, D d_model, H heads, K size of a head, S source length, V target
vocabulary. The cache has R rows of n hypotheses: N of 1, or B of L if the hypotheses of a sentence share a row.
"""

import math
from collections.abc import Sequence
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mtcli.model.attention import KeysValues
from mtcli.model.cache import Cache, one_block
from mtcli.model.fast.cpu_kernels import MIN_SOFTMAX_WIDTH
from mtcli.model.multi_head import MultiHeadAttention
from mtcli.model.transformer import DecoderLayer, FeedForward, Residual, Transformer

SOURCE_ALIGNMENT = 8
"""Sources are padded to a multiple of this many columns: a vector instruction processes 8 numbers in float32."""

PACKED_ROWS = 32
"""Rows for which oneDNN chooses the layout of packed weights. It suits other numbers of rows as well."""


def prepared(model: Transformer) -> "Transformer | PreparedTransformer":
    """Return `model` with prepared weights, or `model` itself where there is no faster step.

    The result does not follow later changes of the model's weights.
    """
    weight = model.output.weight
    if weight.device.type != "cpu" or weight.dtype != torch.float32 or model.config.attention != "fused":
        return model
    return PreparedTransformer(model)


class PreparedTransformer:
    """A Transformer whose `step` is fast on a CPU. The other methods are those of the model."""

    @torch.inference_mode()
    def __init__(self, model: Transformer):
        """Prepare the weights of `model`, which is on a CPU, in float32 and in evaluation mode."""
        self.model = model
        self.embedding = model.tgt_embedding
        self.layers = [_Layer(cast(DecoderLayer, layer)) for layer in model.decoder]
        self.norm = _Norm(model.decoder_norm) if isinstance(model.decoder_norm, nn.LayerNorm) else None
        self.output = VocabularyProjection(model.output)

    def encode(self, src: Tensor) -> tuple[Tensor, Tensor]:
        """See `Transformer.encode`."""
        return self.model.encode(src)

    def start(self, parts: Sequence[tuple[Tensor, Tensor]], *, share_rows: bool = False) -> Cache:
        """Return the cache before the first step.

        Args:
            parts: Memory and mask of groups of sentences, see `Transformer.encode`. Their widths may differ.
            share_rows: The layout of the cache: see `Cache`.
        """
        longest = max(memory.size(1) for memory, _ in parts)
        S = max(MIN_SOFTMAX_WIDTH, longest + -longest % SOURCE_ALIGNMENT)
        masks = []
        for _, mask in parts:
            padded = F.pad(mask, (0, S - mask.size(-1)))  # with False
            masks.append(torch.zeros(padded.shape).masked_fill_(~padded, -torch.inf))
        memories = [memory for memory, _ in parts]
        B = sum(map(len, memories))
        buffers = one_block(memories[0], [shape for layer in self.layers for shape in layer.memory_shapes(B, S)])
        memory_kv = list(zip(buffers[::2], buffers[1::2], strict=True))
        for layer, (keys, values) in zip(self.layers, memory_kv, strict=True):
            layer.write_keys_values(memories, keys.zero_(), values.zero_())
        return Cache(memory_kv, torch.cat(masks), [], share_rows=share_rows)

    def step(self, last: Tensor, cache: Cache) -> Tensor:
        """Compute the logits of the next token of every hypothesis: (N,) → (N, V). See `Transformer.step`."""
        return self.output(self.hidden(last, cache))

    def hidden(self, last: Tensor, cache: Cache) -> Tensor:
        """Compute what `output` maps to the logits of a step: (N,) → (N, D). The cache changes as in `step`."""
        position = self.embedding.positions(cache.length, 1)
        embedded = F.embedding(last, self.embedding.tokens.weight)
        y = torch.add(position, embedded, alpha=self.embedding.scale)
        B = cache.mask.size(0)
        cache.add_columns(len(last) // B)
        H = self.model.config.num_heads
        memory_mask = _of_heads(cache.mask, H)
        own_mask = None if cache.aligned_mask is None else _of_heads(cache.aligned_mask, H)
        for number, layer in enumerate(self.layers):
            y = layer.step(y, cache, number, own_mask, memory_mask)
        if self.norm is not None:
            y = self.norm(y)
        return y


class _Layer:
    """A decoder layer with prepared weights, see `DecoderLayer`."""

    def __init__(self, layer: DecoderLayer):
        own = layer.self_attention
        memory = layer.cross_attention
        self.num_heads = own.num_heads
        self.own_qkv = _Linear.joined(_scaled_queries(own), own.w_k, own.w_v)
        self.own_sizes = [own.w_q.out_features, own.w_k.out_features, own.w_v.out_features]
        self.own_output = _Linear.joined(own.w_o)
        self.memory_q = _Linear.joined(_scaled_queries(memory))
        self.memory_kv = _Linear.joined(memory.w_k, memory.w_v)
        self.memory_sizes = [memory.w_k.out_features, memory.w_v.out_features]
        self.memory_output = _Linear.joined(memory.w_o)
        self.feed_forward = _FeedForward(layer.feed_forward)
        self.own_residual = _Residual(layer.self_residual)
        self.memory_residual = _Residual(layer.cross_residual)
        self.ffn_residual = _Residual(layer.ffn_residual)

    def memory_shapes(self, B: int, S: int) -> list[tuple[int, ...]]:
        """Return the shapes of the keys and of the values of the source: (B, H, S, d_k) and (B, H, S, d_v)."""
        H = self.num_heads
        return [(B, H, S, size // H) for size in self.memory_sizes]

    def write_keys_values(self, memories: Sequence[Tensor], keys: Tensor, values: Tensor) -> None:
        """Compute keys and values of the source, and write them to their place.

        A copy of each group would double the memory of a search.

        Args:
            memories: The encoder's output of groups of sentences, (b, width, D) each.
            keys: (B, H, S, d_k), 0 at first. Shorter sources are padded with 0.
            values: (B, H, S, d_v), in the same way.
        """
        first = 0
        for memory in memories:
            b, width, _ = memory.shape
            k, v = torch.split(self.memory_kv(memory.flatten(0, 1)), self.memory_sizes, dim=1)
            keys[first : first + b, :, :width] = self._heads(k, b)
            values[first : first + b, :, :width] = self._heads(v, b)
            first += b

    def step(self, y: Tensor, cache: Cache, number: int, own_mask: Tensor | None, memory_mask: Tensor) -> Tensor:
        """Compute the next position of every hypothesis, see `DecoderLayer.step`.

        Args:
            y: (N, D).
            cache: Its entries of this layer get keys and values of the new position.
            number: The number of this layer, from 0.
            own_mask: 0 or −∞, (R · H, n, columns); None: each hypothesis has its own row.
            memory_mask: 0 or −∞, (B · H, 1, S).

        Returns:
            (N, D).
        """
        attended = self._attend_to_own(self.own_residual.before(y), cache, number, own_mask)
        y = self.own_residual.after(y, attended)
        attended = self._attend_to_memory(self.memory_residual.before(y), cache.memory[number], memory_mask)
        y = self.memory_residual.after(y, attended)
        return self.ffn_residual.after(y, self.feed_forward(self.ffn_residual.before(y)))

    def _attend_to_own(self, x: Tensor, cache: Cache, number: int, mask: Tensor | None) -> Tensor:
        """Self-attention: (N, D) → (N, D)."""
        R = x.size(0) if mask is None else cache.mask.size(0)
        projected = torch.split(self.own_qkv(x), self.own_sizes, dim=1)
        q, k, v = (self._heads(part, R) for part in projected)
        cache.write(number, k, v)
        keys, values = cache.aligned_own(number)  # (R, H, columns, K)
        q = q.flatten(0, 1)
        keys = keys.flatten(0, 1).transpose(1, 2)
        if mask is None:
            scores = torch.bmm(q, keys)
            unused = scores.size(2) - cache.width
            if unused:
                scores.narrow(2, cache.width, unused).fill_(-torch.inf)
        else:
            scores = torch.baddbmm(mask, q, keys)
        return self.own_output(self._weighted(scores, values.flatten(0, 1)))

    def _attend_to_memory(self, x: Tensor, memory_kv: KeysValues, mask: Tensor) -> Tensor:
        """Cross-attention: (N, D) → (N, D)."""
        keys, values = memory_kv  # (B, H, S, K)
        q = self._heads(self.memory_q(x), keys.size(0)).flatten(0, 1)
        scores = torch.baddbmm(mask, q, keys.flatten(0, 1).transpose(1, 2))
        return self.memory_output(self._weighted(scores, values.flatten(0, 1)))

    def _heads(self, projected: Tensor, R: int) -> Tensor:
        """Split a projection into heads: (N, H · K) → (R, H, n, K)."""
        N, size = projected.shape
        return projected.view(R, N // R, self.num_heads, size // self.num_heads).transpose(1, 2)

    def _weighted(self, scores: Tensor, values: Tensor) -> Tensor:
        """Return softmax(scores) · values with the heads of each hypothesis side by side.

        Args:
            scores: (R · H, n, columns), overwritten.
            values: (R · H, columns, K).

        Returns:
            (N, H · K).
        """
        weights = torch.softmax(scores, -1, out=scores)
        heads = torch.bmm(weights, values)
        H = self.num_heads
        R_H, n, K = heads.shape
        return heads.view(R_H // H, H, n, K).transpose(1, 2).reshape(-1, H * K)


class _FeedForward:
    """`FeedForward` with ReLU in place."""

    def __init__(self, feed_forward: FeedForward):
        self.w_1 = _Linear.joined(feed_forward.w_1)
        self.w_2 = _Linear.joined(feed_forward.w_2)
        self.activation = torch.relu_ if feed_forward.activation is F.relu else feed_forward.activation

    def __call__(self, x: Tensor) -> Tensor:
        """(N, D) → (N, D)."""
        return self.w_2(self.activation(self.w_1(x)))


class _Residual:
    """`Residual` in evaluation mode."""

    def __init__(self, residual: Residual):
        self.norm = _Norm(residual.norm)
        self.pre = residual.pre

    def before(self, x: Tensor) -> Tensor:
        """(N, D) → (N, D)."""
        return self.norm(x) if self.pre else x

    def after(self, x: Tensor, sublayer: Tensor) -> Tensor:
        """Add `x` to `sublayer`, which is overwritten; both (N, D)."""
        total = sublayer.add_(x)
        return total if self.pre else self.norm(total)


class _Norm:
    """`nn.LayerNorm` without the calls of a module."""

    def __init__(self, norm: nn.LayerNorm):
        self.shape = norm.normalized_shape
        self.weight = norm.weight
        self.bias = norm.bias
        self.eps = norm.eps

    def __call__(self, x: Tensor) -> Tensor:
        """(N, D) → (N, D)."""
        return torch.layer_norm(x, self.shape, self.weight, self.bias, self.eps)


class _Linear:
    """`nn.Linear` in one operation."""

    def __init__(self, weight: Tensor, bias: Tensor):
        """Initialise it with `weight` (in, out) and `bias` (out,)."""
        self.weight = weight
        self.bias = bias

    @classmethod
    def joined(cls, *linears: nn.Linear) -> "_Linear":
        """Join projections side by side. One alone shares the memory of the module."""
        if len(linears) == 1:
            return cls(linears[0].weight.detach().T, linears[0].bias.detach())
        weight = torch.cat([linear.weight for linear in linears])
        return cls(weight.T.contiguous(), torch.cat([linear.bias for linear in linears]))

    def __call__(self, x: Tensor) -> Tensor:
        """(N, in) → (N, out)."""
        return torch.addmm(self.bias, x, self.weight)


def _scaled_queries(attention: MultiHeadAttention) -> nn.Linear:
    """Return W^Q divided by √d_k, so that scores need no division."""
    w_q = attention.w_q
    scale = math.sqrt(w_q.out_features // attention.num_heads)
    scaled = nn.Linear(w_q.in_features, w_q.out_features, device="meta")
    scaled.weight = nn.Parameter(w_q.weight / scale, requires_grad=False)
    scaled.bias = nn.Parameter(w_q.bias / scale, requires_grad=False)
    return scaled


def _of_heads(mask: Tensor, H: int) -> Tensor:
    """Repeat a mask for each head: (B, 1, n, S) → (B · H, n, S)."""
    return mask.expand(-1, H, -1, -1).flatten(0, 1)


class VocabularyProjection:
    """The output projection with weights in a layout of oneDNN: `nn.Linear` a third faster for few rows.

    Its operators are private to PyTorch. Where a version lacks them, it is `F.linear`, its reference twin.
    """

    def __init__(self, output: nn.Linear):
        """Pack the weights, which takes as long as one product of a few rows, and a copy of them."""
        self.weight = output.weight.detach()
        self.bias = None if output.bias is None else output.bias.detach()
        self.packed: Tensor | None = None
        try:
            self.packed = _operators()._reorder_linear_weight(self.weight, PACKED_ROWS)
            self(self.weight[:1])
        except (AttributeError, RuntimeError):
            self.packed = None

    def __call__(self, x: Tensor) -> Tensor:
        """(N, D) → (N, V)."""
        if self.packed is None:
            return F.linear(x, self.weight, self.bias)
        logits: Tensor = _operators()._linear_pointwise(x, self.packed, self.bias, "none", [], "")
        return logits


def _operators() -> Any:
    return torch.ops.mkldnn
