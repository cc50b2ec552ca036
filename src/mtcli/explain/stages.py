"""The forward pass of one explanation as stages: matrices with a name, a formula and their place in the paper.

The order is that of Figure 1: source embedding, encoder layer, memory, target embedding, decoder layer, output.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from torch import Tensor

from mtcli.explain.explanation import Explanation
from mtcli.nn.transformer import DecoderLayer, Embedding, EncoderLayer, MultiHeadAttention, Residual


@dataclass(frozen=True)
class Stage:
    """One intermediate result of the forward pass: a matrix whose rows belong to tokens."""

    key: str
    """Name in JSON, such as `encoder.1.self.q`."""
    title: str
    paper: str
    """Section, equation or figure."""
    formula: str
    """With `_` and `^` before subscripts and superscripts; `{…}` around more than one word."""
    description: str
    """The formula in one sentence."""
    rows: Sequence[str]
    """The token of each row."""
    values: Tensor
    """(rows, columns)."""
    columns: Sequence[str] | None = None
    """The token of each column, for scores and weights of an attention."""
    of_head: bool = False
    """True if the matrix belongs to one head (head i in the formula)."""


def stages(found: Explanation, layer: int, head: int) -> list[Stage]:
    """All stages in the order of computation, for one layer and head.

    Args:
        found: The explanation.
        layer: Encoder and decoder layer, from 0; a stack with fewer layers shows its last one.
        head: Head, from 0.
    """
    model = found.translator.model
    return [
        *embedding_stages(found, "src"),
        *encoder_stages(found, min(layer, len(model.encoder) - 1), head),
        memory_stage(found),
        *embedding_stages(found, "tgt"),
        *decoder_stages(found, min(layer, len(model.decoder) - 1), head),
        *output_stages(found),
    ]


def embedding_stages(found: Explanation, side: str) -> list[Stage]:
    """From token ids to the input of the first layer; `side` is `src` or `tgt`."""
    embedding = cast(Embedding, getattr(found.translator.model, f"{side}_embedding"))
    calls = found.recording.calls[embedding.tokens]
    if side == "src":
        rows = found.src_tokens
        looked_up = calls[0].output[0]  # a table shared with the target is called for the source first
        name = "x"
    else:
        rows = found.decoder_tokens
        looked_up = calls[-1].output[0]
        name = "y"
    if embedding.learned is None:
        position_formula = "PE(pos, 2i) = sin(pos / 10000^{2i/d_model}), PE(pos, 2i+1) = cos(pos / 10000^{2i/d_model})"
        position_description = "Sines and cosines of different wavelengths give each position a pattern of its own."
    else:
        position_formula = "PE(pos) = P[pos]"
        position_description = "Each position selects a row of a learned matrix P (Table 3, row E)."
    return [
        Stage(
            key=f"{side}.embedding",
            title="Token embedding",
            paper="§3.4",
            formula=f"E[id] · √d_model = E[id] · {embedding.scale:.4g}",
            description="Each token id selects a row of the embedding matrix E, which is scaled by √d_model.",
            rows=rows,
            values=looked_up * embedding.scale,
        ),
        Stage(
            key=f"{side}.position",
            title="Positional encoding",
            paper="§3.5",
            formula=position_formula,
            description=position_description,
            rows=rows,
            values=embedding.positions(0, len(rows)),
        ),
        Stage(
            key=f"{side}.sum",
            title="Embedding plus position",
            paper="§3.5",
            formula=f"{name} = E[id] · √d_model + PE",
            description="The sum says which token it is and where it stands; it is the input of the first layer.",
            rows=rows,
            values=found.recording.output(embedding)[0],
        ),
    ]


def encoder_stages(found: Explanation, layer: int, head: int) -> list[Stage]:
    """The stages of one encoder layer (§3.1): self-attention, then the feed-forward network."""
    module = cast(EncoderLayer, found.translator.model.encoder[layer])
    rows = found.src_tokens
    key = f"encoder.{layer + 1}"
    attention = _attention_stages(found, f"{key}.self", module.self_attention, head, "x", rows, rows)
    feed_forward = _feed_forward_stages(found, key, module, rows)
    after_attention = _residual_sum(found, module.self_residual, module.ffn_residual)
    after_feed_forward = _residual_sum(found, module.ffn_residual, module)
    return [
        *_with_residual(found, f"{key}.self", module.self_residual, attention, after_attention),
        *_with_residual(found, f"{key}.ffn", module.ffn_residual, feed_forward, after_feed_forward),
    ]


def memory_stage(found: Explanation) -> Stage:
    """The encoder's output, which every decoder layer attends to."""
    return Stage(
        key="memory",
        title="Encoder output (memory)",
        paper="§3.1, Figure 1",
        formula="z = Encoder(x)",
        description="The last encoder layer's output: the keys and values of every cross-attention come from it.",
        rows=found.src_tokens,
        values=found.recording.output(found.translator.model.encoder_norm)[0],
    )


def decoder_stages(found: Explanation, layer: int, head: int) -> list[Stage]:
    """The stages of one decoder layer (§3.1): masked self-attention, cross-attention, then the feed-forward network."""
    module = cast(DecoderLayer, found.translator.model.decoder[layer])
    rows = found.decoder_tokens
    key = f"decoder.{layer + 1}"
    own = _attention_stages(found, f"{key}.self", module.self_attention, head, "y", rows, rows)
    cross = _attention_stages(found, f"{key}.cross", module.cross_attention, head, "z", rows, found.src_tokens)
    feed_forward = _feed_forward_stages(found, key, module, rows)
    after_self = _residual_sum(found, module.self_residual, module.cross_residual)
    after_cross = _residual_sum(found, module.cross_residual, module.ffn_residual)
    after_feed_forward = _residual_sum(found, module.ffn_residual, module)
    return [
        *_with_residual(found, f"{key}.self", module.self_residual, own, after_self),
        *_with_residual(found, f"{key}.cross", module.cross_residual, cross, after_cross),
        *_with_residual(found, f"{key}.ffn", module.ffn_residual, feed_forward, after_feed_forward),
    ]


def output_stages(found: Explanation) -> list[Stage]:
    """The decoder's output and the logits; `Explanation.steps` has the most probable tokens of each row."""
    model = found.translator.model
    tied = ", here the target embedding matrix" if model.config.tie_embeddings else ""
    return [
        Stage(
            key="hidden",
            title="Decoder output",
            paper="§3.1, Figure 1",
            formula="h = Decoder(y, z)",
            description="The last decoder layer's output: one vector for each position of the translation.",
            rows=found.decoder_tokens,
            values=found.recording.input(model.output)[0],
        ),
        Stage(
            key="logits",
            title="Logits",
            paper="§3.4",
            formula="logits = h E^T, p = softmax(logits)",
            description=f"A linear layer{tied} gives each vocabulary entry a logit; softmax makes probabilities.",
            rows=found.decoder_tokens,
            values=found.recording.output(model.output)[0],
        ),
    ]


def _attention_stages(
    found: Explanation,
    key: str,
    module: MultiHeadAttention,
    head: int,
    memory: str,
    queries: Sequence[str],
    keys: Sequence[str],
) -> list[Stage]:
    """One head from its queries to its output, then the concatenated heads.

    Args:
        found: The explanation.
        key: Prefix of the stages' keys.
        module: The attention.
        head: Head, from 0.
        memory: What keys and values are made from, in formulas: `x`, `y` or `z`.
        queries: The tokens of the queries.
        keys: The tokens of the keys.
    """
    seen = found.recording.attention[module]
    read = "x" if memory == "x" else "y"
    d_k = seen.q.size(-1)
    masked = ".self" in key and key.startswith("decoder")
    softmax_description = "Softmax turns each row of scores into weights that sum to 1"
    softmax_description += "; later positions are masked." if masked else "."

    def of_head(name: str, title: str, formula: str, description: str, rows: Sequence[str], values: Tensor) -> Stage:
        columns = keys if name in ("scores", "weights") else None
        section = "§3.2.2" if name in ("q", "k", "v") else "§3.2.1, equation 1"
        return Stage(
            f"{key}.{name}", title, section, formula, description, rows, values[0, head], columns, of_head=True
        )

    return [
        of_head("q", "Queries Q", f"Q = {read} W_i^Q", "What each position looks for.", queries, seen.q),
        of_head("k", "Keys K", f"K = {memory} W_i^K", "What each position offers to be found by.", keys, seen.k),
        of_head("v", "Values V", f"V = {memory} W_i^V", "What each position passes on when attended to.", keys, seen.v),
        of_head(
            "scores",
            "Scores",
            f"Q K^T / √d_k = Q K^T / √{d_k}",
            "The dot product of each query with each key, divided by √d_k to keep softmax out of its flat region.",
            queries,
            seen.scores,
        ),
        of_head(
            "weights", "Attention weights", "A = softmax(Q K^T / √d_k)", softmax_description, queries, seen.weights
        ),
        of_head(
            "head",
            "Head output",
            "head_i = softmax(Q K^T / √d_k) V",
            "Each row is the average of the values, weighted by that row's attention weights.",
            queries,
            seen.output,
        ),
        Stage(
            key=f"{key}.multihead",
            title="Multi-head output",
            paper="§3.2.2",
            formula="Concat(head_1, …, head_h) W^O",
            description="All heads are concatenated and projected back to d_model.",
            rows=queries,
            values=found.recording.output(module.w_o)[0],
        ),
    ]


def _feed_forward_stages(
    found: Explanation, key: str, layer: EncoderLayer | DecoderLayer, rows: Sequence[str]
) -> list[Stage]:
    second = layer.feed_forward.w_2
    return [
        Stage(
            key=f"{key}.ffn.inner",
            title="Feed-forward network, inner layer",
            paper="§3.3, equation 2",
            formula="max(0, x W_1 + b_1)",
            description="Each position alone is projected to d_ff; negative values become 0 (ReLU).",
            rows=rows,
            values=found.recording.input(second)[0],
        ),
        Stage(
            key=f"{key}.ffn.output",
            title="Feed-forward network, output",
            paper="§3.3, equation 2",
            formula="FFN(x) = max(0, x W_1 + b_1) W_2 + b_2",
            description="A second projection leads back to d_model.",
            rows=rows,
            values=found.recording.output(second)[0],
        ),
    ]


def _residual_sum(found: Explanation, residual: Residual, following: Residual | EncoderLayer | DecoderLayer) -> Tensor:
    """x + Sublayer(x) of one sub-layer, (rows, D).

    No module outputs the sum itself. With post-norm it is the input of the sub-layer's own norm; with pre-norm it is
    the input of the `following` sub-layer's norm, or the output of the whole layer.
    """
    if not residual.pre:
        return found.recording.input(residual.norm)[0]
    if isinstance(following, Residual):
        return found.recording.input(following.norm)[0]
    return found.recording.output(following)[0]


def _with_residual(
    found: Explanation, key: str, module: Residual, sublayer: Sequence[Stage], total: Tensor
) -> list[Stage]:
    """The stages of a sub-layer with its layer normalisation and residual connection (§3.1), in order."""
    rows = sublayer[-1].rows
    norm = Stage(
        key=f"{key}.norm",
        title="Layer normalisation",
        paper="§3.1",
        formula="LayerNorm(x)" if module.pre else "LayerNorm(x + Sublayer(x))",
        description="Each row is shifted and scaled to mean 0 and variance 1, then by a learned gain and bias.",
        rows=rows,
        values=found.recording.output(module.norm)[0],
    )
    residual = Stage(
        key=f"{key}.residual",
        title="Residual connection",
        paper="§3.1",
        formula="x + Sublayer(LayerNorm(x))" if module.pre else "x + Sublayer(x)",
        description="The sub-layer's output is added to its input.",
        rows=rows,
        values=total,
    )
    if module.pre:
        return [norm, *sublayer, residual]
    return [*sublayer, residual, norm]


def rounded(values: Tensor, decimals: int) -> Any:
    """Nested lists of numbers rounded to `decimals`; masked positions (−∞) become None."""
    return _rounded(values.float().cpu().tolist(), decimals)


def _rounded(x: Any, decimals: int) -> Any:
    if isinstance(x, list):
        return [_rounded(item, decimals) for item in x]
    return round(x, decimals) if math.isfinite(x) else None
