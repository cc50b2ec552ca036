"""The forward pass of one explanation as stages: matrices with a title, a formula and their section in the paper.

The order is that of Figure 1: source embedding, encoder layer, memory, target embedding, decoder layer, output.

Shapes: H heads, D d_model; rows and columns belong to tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from torch import Tensor

from mtcli.explain.explanation import Explanation
from mtcli.model.hooks import AttentionRecord, Recording
from mtcli.model.multi_head import MultiHeadAttention
from mtcli.model.transformer import DecoderLayer, Embedding, EncoderLayer, Residual


@dataclass(frozen=True)
class ModelStage:
    """One intermediate result of the forward pass: a matrix whose rows belong to tokens."""

    key: str
    """Name in JSON, such as `encoder.1.self.q`."""
    title: str
    paper: str
    """Section, equation or figure."""
    formula: str
    """`_` and `^` start a subscript or superscript; `{…}` encloses one that is longer than a word."""
    description: str
    """The formula in one sentence."""
    rows: Sequence[str]
    """The token of each row."""
    values: Tensor
    """(rows, columns)."""
    columns: Sequence[str] | None = None
    """The token of each column, for attention scores and weights; None for other matrices."""
    of_head: bool = False
    """True if the matrix belongs to one head (head i in the formula)."""


def stages(explanation: Explanation, layer: int, head: int) -> list[ModelStage]:
    """Return all stages in the order of computation, for one layer and head.

    Args:
        explanation: The explanation.
        layer: Encoder and decoder layer, from 0; a stack with fewer layers shows its last one.
        head: Head, from 0.
    """
    model = explanation.backend.model
    return [
        *embedding_stages(explanation, "src"),
        *encoder_stages(explanation, min(layer, len(model.encoder) - 1), head),
        memory_stage(explanation),
        *embedding_stages(explanation, "tgt"),
        *decoder_stages(explanation, min(layer, len(model.decoder) - 1), head),
        *output_stages(explanation),
    ]


def embedding_stages(explanation: Explanation, side: str) -> list[ModelStage]:
    """Return the stages from token ids to the input of the first layer; `side` is `src` or `tgt`."""
    embedding = cast(Embedding, getattr(explanation.backend.model, f"{side}_embedding"))
    calls = explanation.recording.calls[embedding.tokens]
    if side == "src":
        name = "x"
        rows = explanation.src_tokens
        looked_up = calls[0].output[0]  # a table shared with the target is called for the source first
    else:
        name = "y"
        rows = explanation.decoder_tokens
        looked_up = calls[-1].output[0]
    return [
        ModelStage(
            key=f"{side}.embedding",
            title="Token embedding",
            paper="§3.4",
            formula=f"E[id] · √d_model = E[id] · {embedding.scale:.4g}",
            description="Each token id selects a row of the embedding matrix E, which is scaled by √d_model.",
            rows=rows,
            values=looked_up * embedding.scale,
        ),
        _position_stage(embedding, f"{side}.position", rows),
        ModelStage(
            key=f"{side}.sum",
            title="Embedding plus position",
            paper="§3.5",
            formula=f"{name} = E[id] · √d_model + PE",
            description="The sum encodes the token and its position; it is the input of the first layer.",
            rows=rows,
            values=explanation.recording.output(embedding)[0],
        ),
    ]


def _position_stage(embedding: Embedding, key: str, rows: Sequence[str]) -> ModelStage:
    if embedding.learned is None:
        formula = "PE(pos, 2i) = sin(pos / 10000^{2i/d_model}), PE(pos, 2i+1) = cos(pos / 10000^{2i/d_model})"
        description = "Sines and cosines of different wavelengths give each position a pattern of its own."
    else:
        formula = "PE(pos) = P[pos]"
        description = "Each position selects a row of a learned matrix P (Table 3, row E)."
    return ModelStage(
        key=key,
        title="Positional encoding",
        paper="§3.5",
        formula=formula,
        description=description,
        rows=rows,
        values=embedding.positions(0, len(rows)),
    )


def encoder_stages(explanation: Explanation, layer: int, head: int) -> list[ModelStage]:
    """Return the stages of one encoder layer (§3.1): self-attention, then the feed-forward network."""
    module = cast(EncoderLayer, explanation.backend.model.encoder[layer])
    rows = explanation.src_tokens
    key = f"encoder.{layer + 1}"
    attention = AttentionHead(f"{key}.self", module.self_attention, head, "x", "x", rows, rows, masked=False)
    sublayers = [
        Sublayer(attention.key, module.self_residual, attention.stages(explanation.recording)),
        Sublayer(f"{key}.ffn", module.ffn_residual, feed_forward_stages(explanation, key, module, rows)),
    ]
    return layer_stages(explanation.recording, module, sublayers)


def memory_stage(explanation: Explanation) -> ModelStage:
    """Return the encoder's output, which every decoder layer attends to."""
    return ModelStage(
        key="memory",
        title="Encoder output (memory)",
        paper="§3.1, Figure 1",
        formula="z = Encoder(x)",
        description="The last encoder layer's output: the keys and values of every cross-attention come from it.",
        rows=explanation.src_tokens,
        values=explanation.recording.output(explanation.backend.model.encoder_norm)[0],
    )


def decoder_stages(explanation: Explanation, layer: int, head: int) -> list[ModelStage]:
    """Return the stages of one decoder layer (§3.1): masked self-attention, cross-attention, feed-forward network."""
    module = cast(DecoderLayer, explanation.backend.model.decoder[layer])
    rows = explanation.decoder_tokens
    memory = explanation.src_tokens
    key = f"decoder.{layer + 1}"
    recording = explanation.recording
    own = AttentionHead(f"{key}.self", module.self_attention, head, "y", "y", rows, rows, masked=True)
    cross = AttentionHead(f"{key}.cross", module.cross_attention, head, "y", "z", rows, memory, masked=False)
    sublayers = [
        Sublayer(own.key, module.self_residual, own.stages(recording)),
        Sublayer(cross.key, module.cross_residual, cross.stages(recording)),
        Sublayer(f"{key}.ffn", module.ffn_residual, feed_forward_stages(explanation, key, module, rows)),
    ]
    return layer_stages(recording, module, sublayers)


def output_stages(explanation: Explanation) -> list[ModelStage]:
    """Return the decoder's output and the logits. `Explanation.steps` has the most probable tokens of each row."""
    model = explanation.backend.model
    tied = ", here the target embedding matrix" if model.config.tie_embeddings else ""
    bias = " + b" if model.config.output_bias else ""
    return [
        ModelStage(
            key="hidden",
            title="Decoder output",
            paper="§3.1, Figure 1",
            formula="h = Decoder(y, z)",
            description="The last decoder layer's output: one vector for each position of the translation.",
            rows=explanation.decoder_tokens,
            values=explanation.recording.input(model.output)[0],
        ),
        ModelStage(
            key="logits",
            title="Logits",
            paper="§3.4",
            formula=f"logits = h E^T{bias}, p = softmax(logits)",
            description=f"A linear layer{tied} gives each vocabulary entry a logit; softmax makes probabilities.",
            rows=explanation.decoder_tokens,
            values=explanation.recording.output(model.output)[0],
        ),
    ]


@dataclass(frozen=True)
class InnerLayer:
    """The first half of equation 2 with one activation."""

    formula: str
    factor: str
    """The formula where W_2 multiplies it."""
    description: str
    """What the activation does."""


INNER_LAYERS = {
    "relu": InnerLayer("max(0, x W_1 + b_1)", "max(0, x W_1 + b_1)", "negative values become 0 (ReLU)"),
    "swish": InnerLayer(
        "u · σ(u), u = x W_1 + b_1",
        "(u · σ(u))",
        "each value u becomes u · σ(u) = u / (1 + exp(−u)) (swish, in place of the paper's ReLU)",
    ),
    "gelu": InnerLayer(
        "u · Φ(u), u = x W_1 + b_1",
        "(u · Φ(u))",
        "each value u becomes u · Φ(u), Φ the normal distribution (GELU, in place of the paper's ReLU)",
    ),
}
"""By `model.activation`."""


@dataclass(frozen=True)
class AttentionHead:
    """One head of an attention module, and how its stages are named."""

    key: str
    """Prefix of the keys of the stages."""
    module: MultiHeadAttention
    head: int
    """From 0."""
    query_name: str
    """The matrix that queries are computed from, in formulas: `x` or `y`."""
    memory_name: str
    """The matrix that keys and values are computed from: `x`, `y` or `z`."""
    queries: Sequence[str]
    """The tokens of the queries."""
    keys: Sequence[str]
    """The tokens of the keys."""
    masked: bool
    """Later positions are masked (§3.2.3)."""

    def stages(self, recording: Recording) -> list[ModelStage]:
        """Return the stages of the head from its queries to its output, then the concatenated heads."""
        record = recording.attention[self.module]
        concatenated = ModelStage(
            key=f"{self.key}.multihead",
            title="Multi-head output",
            paper="§3.2.2",
            formula="Concat(head_1, …, head_h) W^O",
            description="All heads are concatenated and projected back to d_model.",
            rows=self.queries,
            values=recording.output(self.module.w_o)[0],
        )
        return [*self._projections(record), *self._weighted_average(record), concatenated]

    def _projections(self, record: AttentionRecord) -> list[ModelStage]:
        """Return queries, keys and values (§3.2.2)."""
        section = "§3.2.2"
        return [
            self._of_head(
                "q",
                title="Queries Q",
                paper=section,
                formula=f"Q = {self.query_name} W_i^Q",
                description="What each position looks for.",
                rows=self.queries,
                values=record.q,
            ),
            self._of_head(
                "k",
                title="Keys K",
                paper=section,
                formula=f"K = {self.memory_name} W_i^K",
                description="What each position offers to be found by.",
                rows=self.keys,
                values=record.k,
            ),
            self._of_head(
                "v",
                title="Values V",
                paper=section,
                formula=f"V = {self.memory_name} W_i^V",
                description="What each position passes on when attended to.",
                rows=self.keys,
                values=record.v,
            ),
        ]

    def _weighted_average(self, record: AttentionRecord) -> list[ModelStage]:
        """Return scores, weights and output of the head (equation 1)."""
        d_k = record.q.size(-1)
        section = "§3.2.1, equation 1"
        softmax = "Softmax turns each row of scores into weights that sum to 1"
        return [
            self._of_head(
                "scores",
                title="Scores",
                paper=section,
                formula=f"Q K^T / √d_k = Q K^T / √{d_k}",
                description="The dot product of each query with each key, divided by √d_k to keep softmax out of its "
                "flat region.",
                rows=self.queries,
                values=record.scores,
                columns=self.keys,
            ),
            self._of_head(
                "weights",
                title="Attention weights",
                paper=section,
                formula="A = softmax(Q K^T / √d_k)",
                description=f"{softmax}; later positions are masked." if self.masked else f"{softmax}.",
                rows=self.queries,
                values=record.weights,
                columns=self.keys,
            ),
            self._of_head(
                "head",
                title="Head output",
                paper=section,
                formula="head_i = softmax(Q K^T / √d_k) V",
                description="Each row is the average of the values, weighted by that row's attention weights.",
                rows=self.queries,
                values=record.output,
            ),
        ]

    def _of_head(self, name: str, *, values: Tensor, **stage: Any) -> ModelStage:
        """Return a stage of this head.

        Args:
            name: The last part of its key.
            values: The matrices of all heads, (1, H, rows, columns).
            stage: The other fields of `ModelStage`.
        """
        return ModelStage(key=f"{self.key}.{name}", values=values[0, self.head], of_head=True, **stage)


def feed_forward_stages(
    explanation: Explanation, key: str, layer: EncoderLayer | DecoderLayer, rows: Sequence[str]
) -> list[ModelStage]:
    """Return the stages of the feed-forward network of a layer (§3.3, equation 2).

    Args:
        explanation: The explanation.
        key: Prefix of the keys of the layer's stages.
        layer: The layer.
        rows: The tokens of its input.
    """
    recording = explanation.recording
    second = layer.feed_forward.w_2
    inner = INNER_LAYERS[explanation.backend.model.config.activation]
    return [
        ModelStage(
            key=f"{key}.ffn.inner",
            title="Feed-forward network, inner layer",
            paper="§3.3, equation 2",
            formula=inner.formula,
            description=f"Each position alone is projected to d_ff; {inner.description}.",
            rows=rows,
            values=recording.input(second)[0],
        ),
        ModelStage(
            key=f"{key}.ffn.output",
            title="Feed-forward network, output",
            paper="§3.3, equation 2",
            formula=f"FFN(x) = {inner.factor} W_2 + b_2",
            description="A second projection leads back to d_model.",
            rows=rows,
            values=recording.output(second)[0],
        ),
    ]


@dataclass(frozen=True)
class Sublayer:
    """A sub-layer with its layer normalisation and residual connection (§3.1)."""

    key: str
    """Prefix of the keys of the stages."""
    residual: Residual
    stages: Sequence[ModelStage]
    """The stages of the sub-layer itself."""


def layer_stages(
    recording: Recording, layer: EncoderLayer | DecoderLayer, sublayers: Sequence[Sublayer]
) -> list[ModelStage]:
    """Return the stages of all sub-layers of a layer, each with normalisation and residual connection, in order."""
    following: list[Residual | EncoderLayer | DecoderLayer] = [sublayer.residual for sublayer in sublayers[1:]]
    following.append(layer)
    found = []
    for sublayer, next_module in zip(sublayers, following, strict=True):
        total = _residual_sum(recording, sublayer.residual, next_module)
        found += _with_residual(recording, sublayer, total)
    return found


def _residual_sum(
    recording: Recording, residual: Residual, following: Residual | EncoderLayer | DecoderLayer
) -> Tensor:
    """Return x + Sublayer(x) of one sub-layer, (rows, D).

    No module outputs the sum itself. With post-norm it is the input of the sub-layer's own norm; with pre-norm it is
    the input of the `following` sub-layer's norm, or the output of the whole layer.
    """
    if not residual.pre:
        return recording.input(residual.norm)[0]
    if isinstance(following, Residual):
        return recording.input(following.norm)[0]
    return recording.output(following)[0]


def _with_residual(recording: Recording, sublayer: Sublayer, total: Tensor) -> list[ModelStage]:
    """Return the stages of a sub-layer with its normalisation and residual connection, in order.

    Args:
        recording: The recorded forward pass.
        sublayer: The sub-layer.
        total: x + Sublayer(x), (rows, D).
    """
    rows = sublayer.stages[-1].rows
    pre = sublayer.residual.pre
    norm = ModelStage(
        key=f"{sublayer.key}.norm",
        title="Layer normalisation",
        paper="§3.1",
        formula="LayerNorm(x)" if pre else "LayerNorm(x + Sublayer(x))",
        description="Each row is shifted and scaled to mean 0 and variance 1, then by a learned gain and bias.",
        rows=rows,
        values=recording.output(sublayer.residual.norm)[0],
    )
    residual = ModelStage(
        key=f"{sublayer.key}.residual",
        title="Residual connection",
        paper="§3.1",
        formula="x + Sublayer(LayerNorm(x))" if pre else "x + Sublayer(x)",
        description="The sub-layer's output is added to its input.",
        rows=rows,
        values=total,
    )
    if pre:
        return [norm, *sublayer.stages, residual]
    return [*sublayer.stages, residual, norm]
