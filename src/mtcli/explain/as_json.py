"""Convert an explanation to JSON values: all of it for programs (`to_dict`), no stages for the page (`summary`)."""

import math
from collections.abc import Sequence
from typing import Any

from torch import Tensor

from mtcli.explain.explanation import ATTENTIONS, BeamNode, Explanation, Neighbours, Step, Vote
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
    return summary(explanation, DECIMALS) | {
        "layer": layer + 1,
        "head": head + 1,
        "stages": [stage_to_dict(stage, DECIMALS) for stage in stages(explanation, layer, head)],
    }


def summary(explanation: Explanation, decimals: int) -> dict[str, Any]:
    """Return everything except the stages."""
    return {
        "format": FORMAT,
        "decimals": decimals,
        "source": explanation.source,
        "translation": explanation.texts[0],
        "model": _model(explanation),
        "search": {
            "beam_size": explanation.options.beam_size,
            "length_penalty": explanation.options.length_penalty,
            "length_normalization": explanation.options.length_normalization,
        },
        "src": {"ids": list(explanation.src_ids), "tokens": explanation.src_tokens},
        "tgt": {
            "ids": list(explanation.tgt_ids),
            "tokens": explanation.tgt_tokens,
            "decoder_input": explanation.decoder_tokens,
        },
        "steps": [_step(step, decimals) for step in explanation.steps],
        "hypotheses": [
            {
                "text": text,
                "ids": hypothesis.ids,
                "log_prob": round(hypothesis.log_prob, decimals),
                "score": round(hypothesis.score, decimals),
            }
            for text, hypothesis in zip(explanation.texts, explanation.hypotheses, strict=True)
        ],
        "beam": [_node(node, decimals) for node in explanation.tree],
        "attention": {
            kind: [rounded(weights, decimals) for weights in explanation.weights(kind)] for kind in ATTENTIONS
        },
        "sharpest_cross_attention": {
            "layer": explanation.sharpest_layer() + 1,
            "sharpness": [round(value, decimals) for value in explanation.sharpness()],
        },
        "votes": [[_vote(vote, decimals) for vote in of_step] for of_step in explanation.votes],
        "neighbours": {side: _neighbours(rows, decimals) for side, rows in explanation.neighbours.items()},
    }


def stage_to_dict(stage: ModelStage, decimals: int) -> dict[str, Any]:
    """Return one stage. The logits are returned without values, whose V columns would be most of the output."""
    return {
        "key": stage.key,
        "title": stage.title,
        "paper": stage.paper,
        "formula": stage.formula,
        "description": stage.description,
        "shape": list(stage.values.shape),
        "rows": list(stage.rows),
        "columns": None if stage.columns is None else list(stage.columns),
        "values": None if stage.key == "logits" else rounded(stage.values, decimals),
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


def _step(step: Step, decimals: int) -> dict[str, Any]:
    top = [
        {"token": token, "id": token_id, "probability": round(probability, decimals)}
        for token_id, token, probability in step.top
    ]
    return {
        "token": step.token,
        "id": step.id,
        "log_prob": round(step.log_prob, decimals),
        "probability": round(step.probability, decimals),
        "top": top,
    }


def _vote(vote: Vote, decimals: int) -> dict[str, Any]:
    return {
        "probability": round(vote.probability, decimals),
        "favourite": vote.favourite,
        "favourite_probability": round(vote.favourite_probability, decimals),
    }


def _node(node: BeamNode, decimals: int) -> dict[str, Any]:
    return {
        "parent": node.parent,
        "step": node.step,
        "token": node.token,
        "id": node.id,
        "log_prob": round(node.log_prob, decimals),
        "state": node.state,
        "score": None if node.score is None else round(node.score, decimals),
        "rank": node.rank,
        "on_path": node.on_path,
    }


def _neighbours(rows: Sequence[Neighbours], decimals: int) -> list[dict[str, Any]]:
    return [
        {
            "token": row.token,
            "near": [{"token": token, "cosine": round(cosine, decimals)} for token, cosine in row.near],
        }
        for row in rows
    ]


def rounded(values: Tensor, decimals: int) -> Any:
    """Return a tensor as nested lists of numbers rounded to `decimals`; masked positions (−∞) become None."""
    return _rounded(values.float().cpu().tolist(), decimals)


def _rounded(x: Any, decimals: int) -> Any:
    if isinstance(x, list):
        return [_rounded(item, decimals) for item in x]
    return round(x, decimals) if math.isfinite(x) else None
