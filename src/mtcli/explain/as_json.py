"""Convert an explanation to JSON values: all of it for programs (`to_dict`), no stages for the page (`summary`)."""

import math
from typing import Any

from torch import Tensor

from mtcli.explain.explanation import ATTENTIONS, Explanation, Neighbours, Step, Vote
from mtcli.explain.stages import ModelStage, stages

FORMAT = "mtcli-explain-2"
DECIMALS = 5
"""Every number of `to_dict` is rounded to this many decimals."""


def to_dict(explanation: Explanation, layer: int, head: int) -> dict[str, Any]:
    """Return all of an explanation. docs/files.md lists the keys.

    Args:
        explanation: The explanation.
        layer: Layer of the `stages`, from 0.
        head: Head of the `stages`, from 0.
    """
    found = [stage_to_dict(stage) for stage in stages(explanation, layer, head)]
    return summary(explanation, DECIMALS) | {
        "layer": layer + 1,
        "head": head + 1,
        "stages": rounded(found, DECIMALS),
    }


def summary(explanation: Explanation, decimals: int) -> dict[str, Any]:
    """Return everything except the stages, with rounded numbers."""
    options = explanation.options
    content = {
        "format": FORMAT,
        "decimals": decimals,
        "source": explanation.source,
        "translation": explanation.texts[0],
        "model": _model(explanation),
        "search": {
            "beam_size": options.beam_size,
            "length_penalty": options.length_penalty,
            "length_normalization": options.length_normalization,
        },
        "src": {"ids": explanation.src_ids, "tokens": explanation.src_tokens},
        "tgt": {
            "ids": explanation.tgt_ids,
            "tokens": explanation.tgt_tokens,
            "decoder_input": explanation.decoder_tokens,
        },
        "steps": [_step(step) for step in explanation.steps],
        "hypotheses": [
            {"text": text, "ids": hypothesis.ids, "log_prob": hypothesis.log_prob, "score": hypothesis.score}
            for text, hypothesis in zip(explanation.texts, explanation.hypotheses, strict=True)
        ],
        "beam": [vars(node) for node in explanation.tree],
        "attention": {kind: explanation.weights(kind) for kind in ATTENTIONS},
        "sharpest_cross_attention": {
            "layer": explanation.sharpest_layer() + 1,
            "sharpness": explanation.sharpness(),
        },
        "votes": [[_vote(vote) for vote in of_step] for of_step in explanation.votes],
        "neighbours": {side: [_neighbours(row) for row in rows] for side, rows in explanation.neighbours.items()},
    }
    rounded_content: dict[str, Any] = rounded(content, decimals)
    return rounded_content


def stage_to_dict(stage: ModelStage) -> dict[str, Any]:
    """Return one stage. The logits are returned without values, whose V columns would be most of the output."""
    return {
        "key": stage.key,
        "title": stage.title,
        "paper": stage.paper,
        "formula": stage.formula,
        "description": stage.description,
        "shape": list(stage.values.shape),
        "rows": stage.rows,
        "columns": stage.columns,
        "values": None if stage.key == "logits" else stage.values,
    }


def _model(explanation: Explanation) -> dict[str, Any]:
    backend = explanation.backend
    config = backend.model.config
    return {
        "d_model": config.d_model,
        "d_ff": config.d_ff,
        "num_heads": config.num_heads,
        "d_k": config.d_k or config.d_model // config.num_heads,
        "d_v": config.d_v or config.d_model // config.num_heads,
        "num_encoder_layers": config.num_encoder_layers,
        "num_decoder_layers": config.num_decoder_layers,
        "norm": config.norm,
        "positions": config.positions,
        "parameters": sum(parameter.numel() for parameter in backend.model.parameters()),
        "src_vocab": backend.tokenizer.src_size,
        "tgt_vocab": backend.tokenizer.tgt_size,
    }


def _step(step: Step) -> dict[str, Any]:
    return {
        "token": step.token,
        "id": step.id,
        "log_prob": step.log_prob,
        "probability": step.probability,
        "top": [
            {"token": token, "id": token_id, "probability": probability} for token_id, token, probability in step.top
        ],
    }


def _vote(vote: Vote) -> dict[str, Any]:
    return {
        "probability": vote.probability,
        "favourite": vote.favourite,
        "favourite_probability": vote.favourite_probability,
    }


def _neighbours(row: Neighbours) -> dict[str, Any]:
    return {"token": row.token, "near": [{"token": token, "cosine": cosine} for token, cosine in row.near]}


def rounded(value: Any, decimals: int) -> Any:
    """Return a value as JSON has it: tensors and sequences as lists, and their numbers rounded.

    A number that is not finite, such as a masked position (−∞), becomes None.
    """
    if isinstance(value, Tensor):
        value = value.float().cpu().tolist()
    if isinstance(value, dict):
        return {key: rounded(each, decimals) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(each, decimals) for each in value]
    if isinstance(value, float):
        return round(value, decimals) if math.isfinite(value) else None
    return value
