"""The forward pass of one explanation as stages: matrices with a title, a formula and their section in the paper.

The order is that of Figure 1: source embedding, encoder layer, memory, target embedding, decoder layer, output.

Shapes: H heads, D d_model; rows and columns belong to tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from torch import Tensor

from mtcli.explain.explanation import Explanation
from mtcli.model.hooks import Recording
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
    recording = explanation.recording
    rows = explanation.src_tokens
    own = f"encoder.{layer + 1}.self"
    ffn = f"encoder.{layer + 1}.ffn"
    attention = _attention_stages(
        recording, module.self_attention, own, head, names=("x", "x"), queries=rows, keys=rows
    )
    sublayers = [
        Sublayer(own, module.self_residual, attention),
        Sublayer(ffn, module.ffn_residual, _feed_forward_stages(explanation, ffn, module, rows)),
    ]
    return _layer_stages(recording, module, sublayers)


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
    recording = explanation.recording
    own = f"decoder.{layer + 1}.self"
    cross = f"decoder.{layer + 1}.cross"
    ffn = f"decoder.{layer + 1}.ffn"
    self_attention = _attention_stages(
        recording, module.self_attention, own, head, names=("y", "y"), queries=rows, keys=rows, masked=True
    )
    cross_attention = _attention_stages(
        recording, module.cross_attention, cross, head, names=("y", "z"), queries=rows, keys=explanation.src_tokens
    )
    sublayers = [
        Sublayer(own, module.self_residual, self_attention),
        Sublayer(cross, module.cross_residual, cross_attention),
        Sublayer(ffn, module.ffn_residual, _feed_forward_stages(explanation, ffn, module, rows)),
    ]
    return _layer_stages(recording, module, sublayers)


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


def _attention_stages(
    recording: Recording,
    module: MultiHeadAttention,
    key: str,
    head: int,
    *,
    names: tuple[str, str],
    queries: Sequence[str],
    keys: Sequence[str],
    masked: bool = False,
) -> list[ModelStage]:
    """Return the stages of one head of an attention from its queries to its output, then the concatenated heads.

    Args:
        recording: The recorded forward pass.
        module: The attention.
        key: Prefix of the keys of the stages.
        head: The head, from 0.
        names: In formulas, the matrix that queries are computed from, and that of keys and values.
        queries: The tokens of the queries.
        keys: The tokens of the keys.
        masked: Later positions are masked (§3.2.3).
    """
    record = recording.attention[module]
    d_k = record.q.size(-1)
    query_name, memory_name = names
    projection = "§3.2.2"
    equation = "§3.2.1, equation 1"
    flat = "divided by √d_k to keep softmax out of its flat region."
    end = "; later positions are masked." if masked else "."

    def of_head(
        name: str,
        title: str,
        paper: str,
        formula: str,
        description: str,
        rows: Sequence[str],
        values: Tensor,
        columns: Sequence[str] | None = None,
    ) -> ModelStage:
        """Return a stage of the head, given the matrices of all heads, (1, H, rows, columns)."""
        values = values[0, head]
        return ModelStage(f"{key}.{name}", title, paper, formula, description, rows, values, columns, of_head=True)

    return [
        of_head(
            "q", "Queries Q", projection, f"Q = {query_name} W_i^Q",
            "What each position looks for.",
            queries, record.q,
        ),
        of_head(
            "k", "Keys K", projection, f"K = {memory_name} W_i^K",
            "What each position offers to be found by.",
            keys, record.k,
        ),
        of_head(
            "v", "Values V", projection, f"V = {memory_name} W_i^V",
            "What each position passes on when attended to.",
            keys, record.v,
        ),
        of_head(
            "scores", "Scores", equation, f"Q K^T / √d_k = Q K^T / √{d_k}",
            f"The dot product of each query with each key, {flat}",
            queries, record.scores, keys,
        ),
        of_head(
            "weights", "Attention weights", equation, "A = softmax(Q K^T / √d_k)",
            f"Softmax turns each row of scores into weights that sum to 1{end}",
            queries, record.weights, keys,
        ),
        of_head(
            "head", "Head output", equation, "head_i = softmax(Q K^T / √d_k) V",
            "Each row is the average of the values, weighted by that row's attention weights.",
            queries, record.output,
        ),
        ModelStage(
            key=f"{key}.multihead",
            title="Multi-head output",
            paper=projection,
            formula="Concat(head_1, …, head_h) W^O",
            description="All heads are concatenated and projected back to d_model.",
            rows=queries,
            values=recording.output(module.w_o)[0],
        ),
    ]  # fmt: skip


def _feed_forward_stages(
    explanation: Explanation, key: str, layer: EncoderLayer | DecoderLayer, rows: Sequence[str]
) -> list[ModelStage]:
    """Return the stages of the feed-forward network of a layer (§3.3, equation 2).

    Args:
        explanation: The explanation.
        key: Prefix of the keys of the stages.
        layer: The layer.
        rows: The tokens of its input.
    """
    recording = explanation.recording
    second = layer.feed_forward.w_2
    inner = INNER_LAYERS[explanation.backend.model.config.activation]
    return [
        ModelStage(
            key=f"{key}.inner",
            title="Feed-forward network, inner layer",
            paper="§3.3, equation 2",
            formula=inner.formula,
            description=f"Each position alone is projected to d_ff; {inner.description}.",
            rows=rows,
            values=recording.input(second)[0],
        ),
        ModelStage(
            key=f"{key}.output",
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


def _layer_stages(
    recording: Recording, layer: EncoderLayer | DecoderLayer, sublayers: Sequence[Sublayer]
) -> list[ModelStage]:
    """Return the stages of all sub-layers of a layer, each with normalisation and residual connection, in order.

    No module outputs the sum x + Sublayer(x) itself. With post-norm it is the input of the sub-layer's own norm; with
    pre-norm it is the input of the next sub-layer's norm, or the output of the whole layer.
    """
    found = []
    for number, sublayer in enumerate(sublayers, 1):
        if not sublayer.residual.pre:
            total = recording.input(sublayer.residual.norm)[0]
        elif number < len(sublayers):
            total = recording.input(sublayers[number].residual.norm)[0]
        else:
            total = recording.output(layer)[0]
        found += _with_residual(recording, sublayer, total)
    return found


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
