"""The forward pass of one explanation as stages: matrices with a title, a formula and their section in the paper.

The order is that of Figure 1: source embedding, encoder layer, memory, target embedding, decoder layer, output.
"""

from collections.abc import Sequence
from typing import cast

from mtcli.explain.explanation import Explanation
from mtcli.explain.stage import Stage
from mtcli.explain.sublayers import AttentionHead, Sublayer, feed_forward_stages, layer_stages
from mtcli.model.transformer import DecoderLayer, Embedding, EncoderLayer


def stages(explanation: Explanation, layer: int, head: int) -> list[Stage]:
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


def embedding_stages(explanation: Explanation, side: str) -> list[Stage]:
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
        Stage(
            key=f"{side}.embedding",
            title="Token embedding",
            paper="§3.4",
            formula=f"E[id] · √d_model = E[id] · {embedding.scale:.4g}",
            description="Each token id selects a row of the embedding matrix E, which is scaled by √d_model.",
            rows=rows,
            values=looked_up * embedding.scale,
        ),
        _position_stage(embedding, f"{side}.position", rows),
        Stage(
            key=f"{side}.sum",
            title="Embedding plus position",
            paper="§3.5",
            formula=f"{name} = E[id] · √d_model + PE",
            description="The sum encodes the token and its position; it is the input of the first layer.",
            rows=rows,
            values=explanation.recording.output(embedding)[0],
        ),
    ]


def _position_stage(embedding: Embedding, key: str, rows: Sequence[str]) -> Stage:
    if embedding.learned is None:
        formula = "PE(pos, 2i) = sin(pos / 10000^{2i/d_model}), PE(pos, 2i+1) = cos(pos / 10000^{2i/d_model})"
        description = "Sines and cosines of different wavelengths give each position a pattern of its own."
    else:
        formula = "PE(pos) = P[pos]"
        description = "Each position selects a row of a learned matrix P (Table 3, row E)."
    return Stage(
        key=key,
        title="Positional encoding",
        paper="§3.5",
        formula=formula,
        description=description,
        rows=rows,
        values=embedding.positions(0, len(rows)),
    )


def encoder_stages(explanation: Explanation, layer: int, head: int) -> list[Stage]:
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


def memory_stage(explanation: Explanation) -> Stage:
    """Return the encoder's output, which every decoder layer attends to."""
    return Stage(
        key="memory",
        title="Encoder output (memory)",
        paper="§3.1, Figure 1",
        formula="z = Encoder(x)",
        description="The last encoder layer's output: the keys and values of every cross-attention come from it.",
        rows=explanation.src_tokens,
        values=explanation.recording.output(explanation.backend.model.encoder_norm)[0],
    )


def decoder_stages(explanation: Explanation, layer: int, head: int) -> list[Stage]:
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


def output_stages(explanation: Explanation) -> list[Stage]:
    """Return the decoder's output and the logits. `Explanation.steps` has the most probable tokens of each row."""
    model = explanation.backend.model
    tied = ", here the target embedding matrix" if model.config.tie_embeddings else ""
    bias = " + b" if model.config.output_bias else ""
    return [
        Stage(
            key="hidden",
            title="Decoder output",
            paper="§3.1, Figure 1",
            formula="h = Decoder(y, z)",
            description="The last decoder layer's output: one vector for each position of the translation.",
            rows=explanation.decoder_tokens,
            values=explanation.recording.input(model.output)[0],
        ),
        Stage(
            key="logits",
            title="Logits",
            paper="§3.4",
            formula=f"logits = h E^T{bias}, p = softmax(logits)",
            description=f"A linear layer{tied} gives each vocabulary entry a logit; softmax makes probabilities.",
            rows=explanation.decoder_tokens,
            values=explanation.recording.output(model.output)[0],
        ),
    ]
