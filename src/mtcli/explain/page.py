"""An explanation as one HTML page without external resources."""

import json
from collections.abc import Sequence
from typing import Any

from mtcli.explain.as_json import rounded, stage_to_dict, summary
from mtcli.explain.explanation import Explanation
from mtcli.explain.stages import (
    ModelStage,
    decoder_stages,
    embedding_stages,
    encoder_stages,
    memory_stage,
    output_stages,
)
from mtcli.runtime.page_template import page_template

MAX_COLUMNS = 8
"""Columns of a matrix that the page shows."""
DECIMALS = 4
MIN_POSITIONS = 32
"""Rows of the positional encoding that the page shows at least."""


def to_html(explanation: Explanation, layer: int | None = None, head: int | None = None) -> str:
    """Return the page, with every layer and head.

    Args:
        explanation: The explanation.
        layer: The cross-attention shown first, from 0; None: the layer with the sharpest alignment.
        head: Its head, from 0; None: the mean of the heads, or head 0 if `layer` is given.
    """
    if layer is None and head is not None:
        layer = 0
    if layer is not None and head is None:
        head = 0
    model = explanation.backend.model
    num_positions = max(len(explanation.src_ids), len(explanation.tgt_ids), MIN_POSITIONS)
    data = summary(explanation, DECIMALS) | {
        "start": {"layer": explanation.sharpest_layer() if layer is None else layer, "head": head},
        "trace": rounded(_trace(explanation), DECIMALS),
        "positions": rounded(model.src_embedding.positions(0, num_positions), 3),
    }
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    text = text.replace("<", "\\u003c")  # no text in the data can end the script element or open a tag
    return page_template("mtcli.explain").replace("/*DATA*/null", text, 1)


def _trace(explanation: Explanation) -> dict[str, Any]:
    """Return the stages of every layer and head."""
    model = explanation.backend.model
    heads = range(model.config.num_heads)
    num_encoder_layers = len(model.encoder)
    num_decoder_layers = len(model.decoder)
    return {
        "src": _all_heads([embedding_stages(explanation, "src")]),
        "encoder": [_all_heads([encoder_stages(explanation, i, h) for h in heads]) for i in range(num_encoder_layers)],
        "memory": _all_heads([[memory_stage(explanation)]]),
        "tgt": _all_heads([embedding_stages(explanation, "tgt")]),
        "decoder": [_all_heads([decoder_stages(explanation, i, h) for h in heads]) for i in range(num_decoder_layers)],
        "output": _all_heads([output_stages(explanation)]),
    }


def _all_heads(stages_by_head: Sequence[Sequence[ModelStage]]) -> list[dict[str, Any]]:
    """Merge the stages that differ by head only.

    Args:
        stages_by_head: For each head, its stages.

    Returns:
        Each stage with the values of every head in `heads`, or in `values` if they are the same for all heads.
    """
    merged = []
    for versions in zip(*stages_by_head, strict=True):
        first = versions[0]
        values = [stage.values[:, :MAX_COLUMNS] for stage in versions]
        stage = stage_to_dict(first)
        if first.of_head:
            stage["heads"] = values
            stage["values"] = None
        elif first.key != "logits":
            stage["values"] = values[0]
        merged.append(stage)
    return merged
