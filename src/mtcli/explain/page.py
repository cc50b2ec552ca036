"""An explanation as one HTML page without external resources."""

import json
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from mtcli.explain.as_json import stage_to_dict, summary
from mtcli.explain.explanation import Explanation
from mtcli.explain.stages import (
    Stage,
    decoder_stages,
    embedding_stages,
    encoder_stages,
    memory_stage,
    output_stages,
    rounded,
)

MAX_COLUMNS = 8
"""Columns of a matrix that the page shows."""
DECIMALS = 4
MIN_POSITIONS = 32
"""Rows of the positional encoding that the page shows at least."""


def to_html(found: Explanation, layer: int | None = None, head: int | None = None) -> str:
    """The page, with every layer and head.

    Args:
        found: The explanation.
        layer: The cross-attention shown first, from 0; None: the layer with the sharpest alignment.
        head: Its head, from 0; None: the mean of the heads, or head 0 if `layer` is given.
    """
    if layer is None and head is not None:
        layer = 0
    if layer is not None and head is None:
        head = 0
    model = found.translator.model
    num_positions = max(len(found.src_ids), len(found.tgt_ids), MIN_POSITIONS)
    data = summary(found, DECIMALS) | {
        "start": {"layer": found.sharpest_layer() if layer is None else layer, "head": head},
        "trace": _trace(found),
        "positions": rounded(model.src_embedding.positions(0, num_positions), 3),
    }
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    text = text.replace("<", "\\u003c")  # no text in the data can end the script element or open a tag
    template = files("mtcli").joinpath("explain/page.html").read_text(encoding="utf-8")
    return template.replace("/*DATA*/null", text, 1)


def _trace(found: Explanation) -> dict[str, Any]:
    """The stages of every layer and head."""
    model = found.translator.model
    heads = range(model.config.num_heads)
    num_encoder_layers = len(model.encoder)
    num_decoder_layers = len(model.decoder)
    return {
        "src": _all_heads([embedding_stages(found, "src")]),
        "encoder": [_all_heads([encoder_stages(found, i, h) for h in heads]) for i in range(num_encoder_layers)],
        "memory": _all_heads([[memory_stage(found)]]),
        "tgt": _all_heads([embedding_stages(found, "tgt")]),
        "decoder": [_all_heads([decoder_stages(found, i, h) for h in heads]) for i in range(num_decoder_layers)],
        "output": _all_heads([output_stages(found)]),
    }


def _all_heads(stages_by_head: Sequence[Sequence[Stage]]) -> list[dict[str, Any]]:
    """The stages that differ by head only, merged: `heads` has the values of each, `values` those of all."""
    merged = []
    for versions in zip(*stages_by_head, strict=True):
        first = versions[0]
        values = [rounded(stage.values[:, :MAX_COLUMNS], DECIMALS) for stage in versions]
        stage = stage_to_dict(first, DECIMALS)
        if first.of_head:
            stage["heads"] = values
            stage["values"] = None
        elif first.key != "logits":
            stage["values"] = values[0]
        merged.append(stage)
    return merged
