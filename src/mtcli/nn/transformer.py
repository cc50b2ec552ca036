"""The Transformer of "Attention Is All You Need" (Vaswani et al. 2017), §3, from its parts to the whole (Figure 1).

Equation 1, scaled dot-product attention, is in `attention.py`; the softmax that ends Figure 1 (§3.4) is taken by
`loss.py` while training and by `decode.py` while searching, so the model ends in logits.

Shapes: B batch, S source length, T target length, D d_model, H heads, K head size, V vocabulary, W beam,
N = B × W hypotheses. `src` and `tgt` are piece ids; `memory` is the encoder's output (B, S, D).
"""

import math
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mtcli.config.schema import ModelConfig
from mtcli.data.tokenizer import PAD
from mtcli.nn.attention import Attention, Cache, KeysValues, fused_attention, reference_attention


class MultiHeadAttention(nn.Module):
    """§3.2.2: MultiHead(Q, K, V) = Concat(head_1 … head_h) W^O, head_i = Attention(QW_i^Q, KW_i^K, VW_i^V).

    `nn.Linear` keeps W transposed, and adds a bias that the paper leaves unmentioned.
    """

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.num_heads = config.num_heads
        d_k = config.d_k or config.d_model // config.num_heads
        d_v = config.d_v or config.d_model // config.num_heads
        self.w_q = nn.Linear(config.d_model, config.num_heads * d_k)  # every head's W_i^Q, side by side
        self.w_k = nn.Linear(config.d_model, config.num_heads * d_k)
        self.w_v = nn.Linear(config.d_model, config.num_heads * d_v)
        self.w_o = nn.Linear(config.num_heads * d_v, config.d_model)
        self.attend: Attention = fused_attention if config.attention == "fused" else reference_attention  # equation 1

    def heads(self, projection: nn.Linear, x: Tensor) -> Tensor:
        """A projection of (B, T, D), split into heads: (B, H, T, K)."""
        H = self.num_heads
        return cast(Tensor, projection(x)).view(*x.shape[:2], H, projection.out_features // H).transpose(1, 2)

    def keys_values(self, memory: Tensor) -> KeysValues:
        """Keys and values (B, H, S, K) of (B, S, D)."""
        return self.heads(self.w_k, memory), self.heads(self.w_v, memory)

    def combine(self, q: Tensor, kv: KeysValues, mask: Tensor | None, causal: bool = False) -> Tensor:
        """Attend, put the heads side by side again and apply W^O: (B, H, T, K) → (B, T, D)."""
        heads = self.attend(q, *kv, mask, causal)
        out: Tensor = self.w_o(heads.transpose(1, 2).flatten(2))
        return out

    def from_self(self, x: Tensor, mask: Tensor | None, causal: bool = False) -> Tensor:
        """Queries, keys and values all from `x` (B, T, D)."""
        return self.combine(self.heads(self.w_q, x), self.keys_values(x), mask, causal)

    def from_memory(self, x: Tensor, memory_kv: KeysValues, mask: Tensor | None) -> Tensor:
        """Queries from `x` (B, T, D), the `keys_values` from the memory."""
        return self.combine(self.heads(self.w_q, x), memory_kv, mask)


class FeedForward(nn.Module):
    """§3.3, equation 2: FFN(x) = max(0, xW_1 + b_1)W_2 + b_2, at each position alike."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.w_1 = nn.Linear(config.d_model, config.d_ff)
        self.w_2 = nn.Linear(config.d_ff, config.d_model)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, D) → (B, T, D)."""
        out: Tensor = self.w_2(F.relu(self.w_1(x)))
        return out


class Dropout(nn.Module):
    """§5.4, residual dropout: zero with probability p while training, and scale the rest by 1 / (1 − p)."""

    def __init__(self, p: float):
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        """Same shape as `x`."""
        if not self.training or not self.p:
            return x
        if x.device.type != "cpu":
            return F.dropout(x, self.p)
        # On a CPU one draw of 64 random bits decides four elements, several times faster than a draw for each;
        # p is then met to 1/65,536.
        bits = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None).view(torch.int16)
        bits, least = bits[: x.numel()].view(x.shape), round(self.p * 2**16) - 2**15
        numbers = torch.empty(x.shape, dtype=torch.promote_types(x.dtype, torch.float32))
        keep = torch.ge(bits, least, out=numbers)  # 0 or 1, and no truth values to be turned into them
        return x * keep.mul_(1 / (1 - self.p))


class Residual(nn.Module):
    """§3.1, around each sub-layer: LayerNorm(x + Sublayer(x)).

    With pre-norm, which is not the paper's, x + Sublayer(LayerNorm(x)). Either way a layer writes
    `residual.after(x, sublayer(residual.before(x)))`.
    """

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.norm = nn.LayerNorm(config.d_model)
        self.dropout = Dropout(config.dropout)
        self.pre = config.norm == "pre"

    def before(self, x: Tensor) -> Tensor:
        """What the sub-layer reads."""
        return self.norm(x) if self.pre else x

    def after(self, x: Tensor, sublayer: Tensor) -> Tensor:
        """The sub-layer's output joined to what came in."""
        x = x + self.dropout(sublayer)
        return x if self.pre else self.norm(x)


class EncoderLayer(nn.Module):
    """§3.1: self-attention, then the feed-forward network."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.self_attention, self.self_residual = MultiHeadAttention(config), Residual(config)
        self.feed_forward, self.ffn_residual = FeedForward(config), Residual(config)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """(B, S, D) → (B, S, D); `mask` (B, 1, 1, S) hides padding."""
        attended = self.self_attention.from_self(self.self_residual.before(x), mask)
        x = self.self_residual.after(x, attended)
        transformed = self.feed_forward(self.ffn_residual.before(x))
        return self.ffn_residual.after(x, transformed)


class DecoderLayer(nn.Module):
    """§3.1: masked self-attention, attention over the memory, then the feed-forward network.

    `memory_kv` is the memory as this layer's cross-attention sees it: its keys and values (B, H, S, K).
    """

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.self_attention, self.self_residual = MultiHeadAttention(config), Residual(config)
        self.cross_attention, self.cross_residual = MultiHeadAttention(config), Residual(config)
        self.feed_forward, self.ffn_residual = FeedForward(config), Residual(config)

    def forward(self, y: Tensor, memory_kv: KeysValues, mask: Tensor | None) -> Tensor:
        """All target positions at once, each seeing only those before it: (B, T, D) → (B, T, D).

        Padding stands at the end of a target, where the causal mask hides it from every real position.
        """
        attended = self.self_attention.from_self(self.self_residual.before(y), None, causal=True)
        return self.attend_and_transform(self.self_residual.after(y, attended), memory_kv, mask)

    def attend_and_transform(self, y: Tensor, memory_kv: KeysValues, mask: Tensor | None) -> Tensor:
        """The second and third sub-layer, which look at each target position alone: (B, T, D) → (B, T, D)."""
        attended = self.cross_attention.from_memory(self.cross_residual.before(y), memory_kv, mask)
        y = self.cross_residual.after(y, attended)
        transformed = self.feed_forward(self.ffn_residual.before(y))
        return self.ffn_residual.after(y, transformed)

    def step(
        self, y: Tensor, past: KeysValues | None, memory_kv: KeysValues, mask: Tensor
    ) -> tuple[Tensor, KeysValues]:
        """One further position of every hypothesis: (B, W, D) → (B, W, D), and this layer's longer past.

        Attention over the memory does not look at target positions, so the W hypotheses of a sentence take the
        place of T there and share the sentence's keys and values.
        """
        x_N1D = self.self_residual.before(y).flatten(0, 1).unsqueeze(1)
        attention = self.self_attention
        q, (k, v) = attention.heads(attention.w_q, x_N1D), attention.keys_values(x_N1D)
        if past is not None:
            k, v = torch.cat((past[0], k), dim=2), torch.cat((past[1], v), dim=2)
        attended = attention.combine(q, (k, v), None).view_as(y)  # no mask: nothing later exists yet
        return self.attend_and_transform(self.self_residual.after(y, attended), memory_kv, mask), (k, v)


def sinusoids(length: int, d_model: int, start: int = 0) -> Tensor:
    """§3.5: PE(pos, 2i) = sin(pos / 10000^(2i/d_model)), PE(pos, 2i+1) = cos(the same). (length, D).

    Computed in float64: at position 500 a float32 angle is off in the fifth decimal.
    """
    pos = torch.arange(start, start + length, dtype=torch.float64)[:, None]
    angle = pos / 10000 ** (torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
    return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(1).float()


class Embedding(nn.Module):
    """§3.4 and §3.5: pieces to vectors × √d_model, plus positions, then dropout."""

    def __init__(self, config: ModelConfig, vocab_size: int):
        super().__init__()
        self.pieces = nn.Embedding(vocab_size, config.d_model)
        self.scale = math.sqrt(config.d_model)
        self.learned = nn.Embedding(config.max_positions, config.d_model) if config.positions == "learned" else None
        # The first positions are at hand, as many as most sentences need; `positions` makes further ones.
        self.register_buffer("table", sinusoids(512, config.d_model), persistent=False)
        self.table: Tensor
        self.dropout = Dropout(config.dropout)

    def positions(self, start: int, length: int) -> Tensor:
        """Positional encodings start … start + length − 1: (length, D)."""
        if self.learned is not None:  # past the table's end the last position stands for all further ones
            rows = torch.arange(start, start + length, device=self.table.device)
            out: Tensor = self.learned(rows.clamp(max=self.learned.num_embeddings - 1))
            return out
        if start + length > len(self.table):
            return sinusoids(length, self.table.size(1), start).to(self.table)
        return self.table[start : start + length]

    def forward(self, ids: Tensor, start: int = 0) -> Tensor:
        """(B, T) → (B, T, D), position `start` first."""
        out: Tensor = self.dropout(self.pieces(ids) * self.scale + self.positions(start, ids.size(1)))
        return out


class Transformer(nn.Module):
    """§3.1, Figure 1: the encoder maps `src` to `memory`, the decoder `memory` and earlier pieces to the next piece."""

    def __init__(self, config: ModelConfig, src_vocab: int, tgt_vocab: int, *, joint: bool):
        """Build it with fresh weights.

        Args:
            config: Shape and options.
            src_vocab: Pieces of the source vocabulary.
            tgt_vocab: Pieces of the target vocabulary.
            joint: Both are one vocabulary, so that all three embeddings can be one matrix.
        """
        super().__init__()
        self.config = config
        self.tgt_embedding = Embedding(config, tgt_vocab)
        self.src_embedding = Embedding(config, src_vocab)
        if joint and config.tie_embeddings:  # positions stay apart, as learned ones mean different things
            self.src_embedding.pieces = self.tgt_embedding.pieces
        self.encoder = nn.ModuleList(EncoderLayer(config) for _ in range(config.num_encoder_layers))
        self.decoder = nn.ModuleList(DecoderLayer(config) for _ in range(config.num_decoder_layers))
        # Post-norm stacks end in a norm as they are; pre-norm stacks need one more.
        self.encoder_norm, self.decoder_norm = (
            nn.LayerNorm(config.d_model) if config.norm == "pre" else nn.Identity() for _ in range(2)
        )
        self.output = nn.Linear(config.d_model, tgt_vocab, bias=False)
        if config.tie_embeddings:
            self.output.weight = self.tgt_embedding.pieces.weight
        self.initialise()

    def initialise(self) -> None:
        """Xavier for the projections, no bias; embeddings of variance 1/d_model, so that × √d_model makes it 1.

        The projections that a sub-layer's output passes through start at half of Xavier's bound: each sub-layer then
        adds little to its residual at first, without which a post-norm stack learns much more slowly (Wang et al.
        2022 derive such gains).
        """
        for name, module in self.named_modules():
            if isinstance(module, nn.Linear):
                carries = name.rpartition(".")[2] in ("w_v", "w_o", "w_1", "w_2")
                nn.init.xavier_uniform_(module.weight, gain=0.5 if carries else 1.0)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        for module in self.modules():  # after the projections: the output may be an embedding
            if isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, std=self.config.d_model**-0.5)

    def encode(self, src: Tensor) -> tuple[Tensor, Tensor]:
        """`src` (B, S) → `memory` (B, S, D) and its mask (B, 1, 1, S), False at padding."""
        mask = (src != PAD)[:, None, None, :]
        x = self.src_embedding(src)
        for layer in self.encoder:
            x = layer(x, mask)
        return self.encoder_norm(x), mask

    def decode(self, tgt: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        """`tgt` (B, T), shifted right, → hidden states (B, T, D), from which `output` makes logits."""
        y = self.tgt_embedding(tgt)
        for layer, memory_kv in zip(self.decoder, self.memory_keys_values(memory), strict=True):
            y = layer(y, memory_kv, mask)
        out: Tensor = self.decoder_norm(y)
        return out

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        """Logits (B, T, V) of each next piece, given `src` (B, S) and `tgt` (B, T) shifted right."""
        out: Tensor = self.output(self.decode(tgt, *self.encode(src)))
        return out

    def memory_keys_values(self, memory: Tensor) -> tuple[KeysValues, ...]:
        """Keys and values (B, H, S, K) of the memory (B, S, D), for each decoder layer."""
        return tuple(cast(DecoderLayer, layer).cross_attention.keys_values(memory) for layer in self.decoder)

    def start(self, memory: Tensor, mask: Tensor) -> Cache:
        """The cache before the first step."""
        kept = tuple((k.contiguous(), v.contiguous()) for k, v in self.memory_keys_values(memory))  # read at each step
        return Cache(own=(), memory=kept, mask=mask)

    def step(self, last: Tensor, cache: Cache) -> tuple[Tensor, Cache]:
        """Logits of the next piece of every hypothesis.

        Args:
            last: The newest piece of each hypothesis, (N,), sentence by sentence.
            cache: Of the pieces before it.

        Returns:
            Logits (N, V), and the cache with `last` in it.
        """
        y = self.tgt_embedding(last[:, None], cache.length).view(cache.mask.size(0), -1, self.config.d_model)
        own = []
        for i, layer in enumerate(self.decoder):
            past = cache.own[i] if cache.own else None
            y, kv = cast(DecoderLayer, layer).step(y, past, cache.memory[i], cache.mask)
            own.append(kv)
        logits: Tensor = self.output(self.decoder_norm(y)).flatten(0, 1)
        return logits, Cache(tuple(own), cache.memory, cache.mask)
