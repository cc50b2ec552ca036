"""Our weights in CTranslate2's own model specification."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from mtcli.data.tokenizer import BOS, EOS, PAD, Tokenizer
from mtcli.errors import UsageError
from mtcli.nn.transformer import DecoderLayer, Embedding, EncoderLayer, MultiHeadAttention, Transformer

QUANTIZATIONS = ("int8", "int8_float32", "int8_float16", "int8_bfloat16", "int16", "float16", "bfloat16", "float32")

FILES = (
    "config.json", "model.bin", "shared_vocabulary.json", "source_vocabulary.json", "target_vocabulary.json",
    "tokenizer.json",
)  # fmt: skip
"""What a folder for it can hold."""

MAX_POSITIONS = 2048
"""Positions written out, for source and target each, since CTranslate2 itself knows another order of sinusoids only.
They suffice for `translation.LONGEST` pieces and some more."""


def convert(model: Transformer, tokenizer: Tokenizer, folder: Path, quantization: str | None) -> None:
    """Write `model.bin`, `config.json` and the vocabularies into a folder.

    Args:
        model: Without `export.obstacles`.
        tokenizer: The model's.
        folder: Exists.
        quantization: One of `QUANTIZATIONS`; None: float32.

    Raises:
        UsageError: The ctranslate2 package is missing.
    """
    try:
        from ctranslate2.specs import TransformerSpec
    except ImportError:
        raise UsageError("ctranslate2 is not installed; `pip install ctranslate2` installs it") from None
    shape = model.config
    spec = TransformerSpec.from_config(
        (shape.num_encoder_layers, shape.num_decoder_layers), shape.num_heads, pre_norm=shape.norm == "pre"
    )
    _embedding(spec.encoder, spec.encoder.embeddings[0], model.src_embedding)
    _embedding(spec.decoder, spec.decoder.embeddings, model.tgt_embedding)
    for to, layer in zip(spec.encoder.layer, model.encoder, strict=True):
        assert isinstance(layer, EncoderLayer)
        _self_attention(to.self_attention, layer)
        _feed_forward(to.ffn, layer)
    for to, layer in zip(spec.decoder.layer, model.decoder, strict=True):
        assert isinstance(layer, DecoderLayer)
        _self_attention(to.self_attention, layer)
        cross = layer.cross_attention
        _linear(to.attention.linear[0], cross.w_q)
        _linear(to.attention.linear[1], cross.w_k, cross.w_v)
        _linear(to.attention.linear[2], cross.w_o)
        _norm(to.attention.layer_norm, layer.cross_residual.norm)
        _feed_forward(to.ffn, layer)
    if shape.norm == "pre":
        _norm(spec.encoder.layer_norm, model.encoder_norm)
        _norm(spec.decoder.layer_norm, model.decoder_norm)
    spec.decoder.projection.weight = _numbers(model.output.weight)

    spec.register_source_vocabulary(tokenizer.src_vocabulary)
    spec.register_target_vocabulary(tokenizer.tgt_vocabulary)
    names = tokenizer.tgt_vocabulary
    spec.config.bos_token = spec.config.decoder_start_token = names[BOS]
    spec.config.eos_token = names[EOS]
    spec.config.unk_token = names[PAD]  # our pieces leave nothing unknown, and one that is missing would be added
    spec.config.add_source_eos = True
    spec.validate()
    spec.optimize(quantization=quantization)
    spec.save(str(folder))


def _numbers(tensor: Tensor) -> npt.NDArray[np.float32]:
    """A copy, since quantisation works in place."""
    return tensor.detach().float().cpu().numpy().copy()


def _linear(to: Any, *layers: nn.Linear) -> None:
    """One projection, or several side by side."""
    to.weight = _numbers(torch.cat([layer.weight for layer in layers]))
    to.bias = _numbers(torch.cat([layer.bias for layer in layers]))


def _norm(to: Any, layer: nn.Module) -> None:
    assert isinstance(layer, nn.LayerNorm)
    to.gamma, to.beta = _numbers(layer.weight), _numbers(layer.bias)


def _self_attention(to: Any, layer: EncoderLayer | DecoderLayer) -> None:
    attention: MultiHeadAttention = layer.self_attention
    _linear(to.linear[0], attention.w_q, attention.w_k, attention.w_v)
    _linear(to.linear[1], attention.w_o)
    _norm(to.layer_norm, layer.self_residual.norm)


def _feed_forward(to: Any, layer: EncoderLayer | DecoderLayer) -> None:
    _linear(to.linear_0, layer.feed_forward.w_1)
    _linear(to.linear_1, layer.feed_forward.w_2)
    _norm(to.layer_norm, layer.ffn_residual.norm)


def _embedding(stack: Any, to: Any, embedding: Embedding) -> None:
    to.weight = _numbers(embedding.tokens.weight)
    stack.position_encodings.encodings = _numbers(embedding.positions(0, MAX_POSITIONS))
