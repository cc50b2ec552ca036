"""The Transformer of "Attention Is All You Need" (Vaswani et al. 2017), §3, from its parts to the whole (Figure 1).

Equation 1, scaled dot-product attention, is in `model/attention.py`, and multi-head attention in `model/multi_head.py`.
The model ends in logits: the softmax of §3.4 is part of the loss (`model/loss.py`) and of the search
(`search/`).

Shapes: B batch, S source length, T target length, D d_model, H heads, K head size (d_k or d_v), V target vocabulary,
L hypotheses of each sentence in a search, N = B × L. `src` and `tgt` are token ids; `memory` is the encoder's output
(B, S, D).
"""

import math
from collections.abc import Callable, Iterator
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mtcli.config.schema import ModelConfig
from mtcli.model.attention import MASK_ALIGNMENT, KeysValues, additive_mask
from mtcli.model.cache import Cache
from mtcli.model.fast import cpu_kernels
from mtcli.model.fast.cpu_kernels import MIN_SOFTMAX_WIDTH, log_softmax_
from mtcli.model.multi_head import MultiHeadAttention
from mtcli.text.special_tokens import PAD

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "swish": F.silu, "gelu": F.gelu}
"""The activations that `model.activation` names. The paper's is ReLU."""


ENCODE_ROWS = 64
"""Sources that a search on a CPU encodes together."""

BLOCK_SIZE = 2_560_000
"""Log-probabilities that a search on a CPU computes together: 10 MB, those of 256 hypotheses for 10,000 tokens.

More take no less time.
"""


class FeedForward(nn.Module):
    """Position-wise feed-forward network (§3.3, equation 2): FFN(x) = max(0, xW_1 + b_1)W_2 + b_2.

    An imported model may have another activation in place of max(0, ·), which is ReLU.
    """

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.activation = ACTIVATIONS[config.activation]
        self.w_1 = nn.Linear(config.d_model, config.d_ff)
        self.w_2 = nn.Linear(config.d_ff, config.d_model)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, D) → (B, T, D)."""
        output: Tensor = self.w_2(self.activation(self.w_1(x)))
        return output


class Dropout(nn.Module):
    """Dropout (§5.4): while training, zero with probability p and scale the other elements by 1 / (1 − p)."""

    def __init__(self, p: float):
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """Any shape; the result has the same."""
        if not self.training or self.p == 0:
            return x
        if _runs_cpu_kernels(x):
            return cpu_kernels.dropout(x, self.p)
        return F.dropout(x, self.p)

    def add(self, x: Tensor, sublayer: Tensor) -> Tensor:
        """Return `x` + dropout(`sublayer`); both have the same shape."""
        if self.training and self.p > 0 and _runs_cpu_kernels(x):
            return cpu_kernels.add_dropout(x, sublayer, self.p)
        dropped: Tensor = self(sublayer)
        return x + dropped


def _runs_cpu_kernels(x: Tensor) -> bool:
    return x.device.type == "cpu" and not torch.compiler.is_compiling()


class Residual(nn.Module):
    """Residual connection and layer normalisation around a sub-layer (§3.1): LayerNorm(x + Sublayer(x)).

    With pre-norm, which is not the paper's, it is x + Sublayer(LayerNorm(x)). In both cases a layer computes
    `residual.after(x, sublayer(residual.before(x)))`. Dropout is applied to the sub-layer's output (§5.4).
    """

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.norm = nn.LayerNorm(config.d_model)
        self.dropout = Dropout(config.dropout)
        self.pre = config.norm == "pre"

    def before(self, x: Tensor) -> Tensor:
        """Return the input of the sub-layer: (B, T, D) → (B, T, D)."""
        return self.norm(x) if self.pre else x

    def after(self, x: Tensor, sublayer: Tensor) -> Tensor:
        """Add the sub-layer's output (B, T, D) to the layer's input `x` (B, T, D)."""
        x = self.dropout.add(x, sublayer)
        return x if self.pre else self.norm(x)


class EncoderLayer(nn.Module):
    """One encoder layer (§3.1): self-attention, then the feed-forward network."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.self_attention = MultiHeadAttention(config)
        self.self_residual = Residual(config)
        self.feed_forward = FeedForward(config)
        self.ffn_residual = Residual(config)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """(B, S, D) → (B, S, D); `mask` (B, 1, 1, S) is False at padding."""
        attended = self.self_attention.from_self(self.self_residual.before(x), mask)
        x = self.self_residual.after(x, attended)
        transformed = self.feed_forward(self.ffn_residual.before(x))
        return self.ffn_residual.after(x, transformed)


class DecoderLayer(nn.Module):
    """One decoder layer (§3.1): masked self-attention, cross-attention to the memory, then the feed-forward network.

    `memory_kv` holds the keys and values of this layer's cross-attention, (B, H, S, K).
    """

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.self_attention = MultiHeadAttention(config)
        self.self_residual = Residual(config)
        self.cross_attention = MultiHeadAttention(config)
        self.cross_residual = Residual(config)
        self.feed_forward = FeedForward(config)
        self.ffn_residual = Residual(config)

    def forward(self, y: Tensor, memory_kv: KeysValues, mask: Tensor | None) -> Tensor:
        """Compute all target positions at once, for training: (B, T, D) → (B, T, D).

        Each position attends to itself and earlier ones (§3.2.3). Targets need no padding mask: padding is at their
        end, so the causal mask hides it from all other positions.
        """
        attended = self.self_attention.from_self(self.self_residual.before(y), None, causal=True)
        return self.attend_and_transform(self.self_residual.after(y, attended), memory_kv, mask)

    def attend_and_transform(self, y: Tensor, memory_kv: KeysValues, mask: Tensor | None) -> Tensor:
        """Apply the second and third sub-layers, which treat target positions independently: (B, T, D) → (B, T, D)."""
        attended = self.cross_attention.from_memory(self.cross_residual.before(y), memory_kv, mask)
        y = self.cross_residual.after(y, attended)
        transformed = self.feed_forward(self.ffn_residual.before(y))
        return self.ffn_residual.after(y, transformed)

    def step(self, y: Tensor, cache: Cache, layer: int) -> Tensor:
        """Compute the next position of every hypothesis, for searching.

        Cross-attention treats target positions independently. So the L hypotheses of a sentence take the place of T
        there, and share the keys and values of the sentence.

        Args:
            y: (B, L, D).
            cache: Its entries of this layer get keys and values of the new position.
            layer: The number of this layer, from 0.

        Returns:
            (B, L, D).
        """
        attention = self.self_attention
        x = cache.rows(self.self_residual.before(y))
        q, k, v = map(attention.split_heads, cache.projections[layer](x))
        attended = attention.combine(q, cache.write(layer, k, v), cache.own_mask).view_as(y)
        y = self.self_residual.after(y, attended)
        return self.attend_and_transform(y, cache.memory[layer], cache.mask)


def sinusoids(length: int, d_model: int, start: int = 0) -> Tensor:
    """Return positional encodings (§3.5) of positions start … start + length − 1: (length, D).

    PE(pos, 2i) = sin(pos / 10000^(2i/d_model)) and PE(pos, 2i+1) = cos(pos / 10000^(2i/d_model)), computed in float64:
    at position 500 a float32 angle is off in the fifth decimal.
    """
    pos = torch.arange(start, start + length, dtype=torch.float64)[:, None]
    exponent = torch.arange(0, d_model, 2, dtype=torch.float64) / d_model
    angle = pos / 10000**exponent
    return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(1).float()


TABLE_LENGTH = 512
"""Sinusoids that are computed once, at construction. Few sentences are longer; `Embedding.positions` extends them."""


class Embedding(nn.Module):
    """Token embeddings times √d_model (§3.4) plus positional encodings (§3.5), then dropout (§5.4)."""

    def __init__(self, config: ModelConfig, vocab_size: int):
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, config.d_model)  # (V, D); model files have the name of the attribute
        self.scale = math.sqrt(config.d_model)
        self.learned = nn.Embedding(config.max_positions, config.d_model) if config.positions == "learned" else None
        self.register_buffer("table", sinusoids(TABLE_LENGTH, config.d_model), persistent=False)
        self.table: Tensor
        self.dropout = Dropout(config.dropout)

    def share_tokens(self, other: "Embedding") -> None:
        """Use the token embeddings of `other` (§3.4). Learned positions are not shared."""
        self.tokens = other.tokens

    def positions(self, start: int, length: int) -> Tensor:
        """Return positional encodings of positions start … start + length − 1: (length, D).

        Learned ones have `max_positions` rows, and all later positions use the last row.
        """
        if self.learned is not None:
            rows = torch.arange(start, start + length, device=self.table.device)
            learned: Tensor = self.learned(rows.clamp(max=self.learned.num_embeddings - 1))
            return learned
        if start + length > len(self.table):
            return sinusoids(length, self.table.size(1), start).to(self.table)
        return self.table[start : start + length]

    def forward(self, ids: Tensor, start: int = 0) -> Tensor:
        """Embed token ids, the first of which is at position `start`: (B, T) → (B, T, D)."""
        embedded = self.tokens(ids) * self.scale + self.positions(start, ids.size(1))
        output: Tensor = self.dropout(embedded)
        return output


class Transformer(nn.Module):
    """The Transformer (§3.1, Figure 1).

    The encoder maps `src` to `memory`. The decoder maps `memory` and the tokens so far to the next token.
    """

    def __init__(self, config: ModelConfig, src_vocab: int, tgt_vocab: int, *, joint: bool):
        """Build it with random weights.

        Args:
            config: Shape and options.
            src_vocab: Size of the source vocabulary.
            tgt_vocab: Size of the target vocabulary.
            joint: True if both are one vocabulary, so that one matrix can be both embeddings and the output (§3.4).
        """
        super().__init__()
        self.config = config
        self.tgt_embedding = Embedding(config, tgt_vocab)
        self.src_embedding = Embedding(config, src_vocab)
        if joint and config.tie_embeddings:
            self.src_embedding.share_tokens(self.tgt_embedding)
        self.encoder = nn.ModuleList(EncoderLayer(config) for _ in range(config.num_encoder_layers))
        self.decoder = nn.ModuleList(DecoderLayer(config) for _ in range(config.num_decoder_layers))
        self.encoder_norm = _final_norm(config)
        self.decoder_norm = _final_norm(config)
        self.output = nn.Linear(config.d_model, tgt_vocab, bias=config.output_bias)
        if config.tie_embeddings:
            self.output.weight = self.tgt_embedding.tokens.weight
        self.initialise()

    def initialise(self) -> None:
        """Draw random weights.

        Projections are Xavier uniform with biases of 0. Embeddings are normal with variance 1/d_model, which becomes 1
        when they are multiplied by √d_model.

        Projections on the way to a sub-layer's output have half of Xavier's bound, so that each sub-layer adds little
        to its residual at first. Without this, a post-norm stack learns much more slowly (Wang et al. 2022 derive such
        gains).
        """
        for name, module in self.named_modules():
            if isinstance(module, nn.Linear):
                is_on_residual_path = name.rpartition(".")[2] in ("w_v", "w_o", "w_1", "w_2")
                nn.init.xavier_uniform_(module.weight, gain=0.5 if is_on_residual_path else 1.0)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        for module in self.modules():  # after the projections, because the output may be an embedding
            if isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=self.config.d_model**-0.5)

    def encode(self, src: Tensor) -> tuple[Tensor, Tensor]:
        """Encode `src` (B, S) to `memory` (B, S, D) and its mask (B, 1, 1, S), False at padding."""
        mask = (src != PAD)[:, None, None, :]
        x = self.src_embedding(src)
        layer_mask = self.layer_mask(mask, x)
        for layer in self.encoder:
            x = layer(x, layer_mask)
        return self.encoder_norm(x), mask

    def decode(self, tgt: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        """Return hidden states (B, T, D) of `tgt` (B, T), shifted right. `output` maps them to logits."""
        y = self.tgt_embedding(tgt)
        layer_mask = self.layer_mask(mask, y)
        for layer, memory_kv in zip(self.decoder, self.memory_keys_values(memory), strict=True):
            y = layer(y, memory_kv, layer_mask)
        hidden: Tensor = self.decoder_norm(y)
        return hidden

    def layer_mask(self, mask: Tensor, x: Tensor) -> Tensor:
        """Return a boolean mask (B, 1, 1, S) in the form that is fastest for the layers whose input is `x`.

        On a GPU, it is converted once for all layers, to the type of the queries. A CPU reads a boolean mask faster.
        """
        device = x.device.type
        if device != "cuda" or self.config.attention == "reference":
            return mask
        in_half = torch.is_autocast_enabled(device)
        return additive_mask(mask, torch.get_autocast_dtype(device) if in_half else x.dtype)

    def hidden_states(self, src: Tensor, tgt: Tensor) -> Tensor:
        """Encode `src` (B, S), and return the hidden states (B, T, D) of `tgt` (B, T), shifted right."""
        return self.decode(tgt, *self.encode(src))

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        """Return logits (B, T, V) of each next token, given `src` (B, S) and `tgt` (B, T), shifted right."""
        logits: Tensor = self.output(self.hidden_states(src, tgt))
        return logits

    def memory_keys_values(self, memory: Tensor) -> tuple[KeysValues, ...]:
        """Return keys and values (B, H, S, K) of the memory (B, S, D) for the cross-attention of each decoder layer."""
        return tuple(cast(DecoderLayer, layer).cross_attention.keys_values(memory) for layer in self.decoder)

    def start(self, src: Tensor, *, share_rows: bool = False) -> Cache:
        """Encode `src` (B, S), and return the cache before the first step of a search.

        Args:
            src: Source ids that end in `</s>`, padded, (B, S).
            share_rows: The layout of the cache: see `Cache`.
        """
        memory, mask = self._encode_in_parts(src)
        memory_kv = self.memory_keys_values(memory)
        contiguous = [(k.contiguous(), v.contiguous()) for k, v in memory_kv]  # they are read in every step
        added = additive_mask(mask, memory.dtype)
        projections = [cast(DecoderLayer, layer).self_attention.joint_qkv() for layer in self.decoder]
        return Cache(contiguous, added, projections, share_rows=share_rows)

    def _encode_in_parts(self, src: Tensor) -> tuple[Tensor, Tensor]:
        """Encode `src` (B, S), and pad memory and mask to a width that suits the device.

        A CPU encodes a few rows at a time, each part as wide as its longest row. Neighbours have similar lengths, so
        there is less padding to compute, and the activations of a part stay in a core's own cache.
        """
        if src.device.type != "cpu" or len(src) == 0:
            return self.encode(F.pad(src, (0, -src.size(1) % MASK_ALIGNMENT), value=PAD))
        S = max(MIN_SOFTMAX_WIDTH, src.size(1))
        memories = []
        masks = []
        for part in torch.split(src, ENCODE_ROWS):
            width = int((part != PAD).sum(dim=1).max())
            memory, mask = self.encode(part[:, :width])
            memories.append(F.pad(memory, (0, 0, 0, S - width)))
            masks.append(F.pad(mask, (0, S - width)))  # with False
        return torch.cat(memories), torch.cat(masks)

    def step(self, last: Tensor, cache: Cache) -> Iterator[tuple[slice, Tensor]]:
        """Compute the log-probabilities of the next token of every hypothesis, in blocks of sentences.

        Args:
            last: The last token of each hypothesis, (N,), grouped by sentence.
            cache: The cache of the tokens before `last`, to which `last` is added.

        Returns:
            For each block its sentences, as a slice of B, and the log-probabilities of their hypotheses, (rows of the
            block, V), in float32 if the model is in bf16. The caller may overwrite them.
        """
        B = cache.mask.size(0)
        y = self.tgt_embedding(last[:, None], cache.length).view(B, -1, self.config.d_model)
        cache.add_columns(y.size(1))
        for i, layer in enumerate(self.decoder):
            y = cast(DecoderLayer, layer).step(y, cache, i)
        return self._log_probs(self.decoder_norm(y))

    def _log_probs(self, states: Tensor) -> Iterator[tuple[slice, Tensor]]:
        """Map the decoder's output (B, L, D) to what `step` returns."""
        B, L, _ = states.shape
        size = B
        if states.device.type == "cpu":
            size = max(1, BLOCK_SIZE // (L * self.output.out_features))
        for number, block in enumerate(torch.split(states, size)):
            logits = self.output(block).flatten(0, 1)
            logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
            yield slice(number * size, (number + 1) * size), log_softmax_(logits)


def _final_norm(config: ModelConfig) -> nn.Module:
    """Return the layer normalisation that a pre-norm stack needs at its end. Post-norm layers end in one already."""
    return nn.LayerNorm(config.d_model) if config.norm == "pre" else nn.Identity()
