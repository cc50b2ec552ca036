"""Write a model in the format of CTranslate2, by filling its model specification with our weights."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from mtcli.errors import UsageError
from mtcli.model.multi_head import MultiHeadAttention
from mtcli.model.transformer import DecoderLayer, Embedding, EncoderLayer, Transformer
from mtcli.text.special_tokens import BOS, EOS, PAD
from mtcli.text.tokenizer.tokenizer import Tokenizer
from mtcli.translate.alignment import alignment_layer

QUANTIZATIONS = ("int8", "int8_float32", "int8_float16", "int8_bfloat16", "int16", "float16", "bfloat16", "float32")

FILES = (
    "config.json", "model.bin", "shared_vocabulary.json", "source_vocabulary.json", "target_vocabulary.json",
    "tokenizer.json",
)  # fmt: skip
"""All files that a folder for CTranslate2 may have."""

MAX_POSITIONS = 2048
"""Positions that are written, for source and target each.

CTranslate2 computes sinusoids in another order, so ours are written out. There are enough for `MAX_LINE_TOKENS` source
tokens.
"""


def convert(
    model: Transformer,
    tokenizer: Tokenizer,
    folder: Path,
    quantization: str | None,
    *,
    space: str = " ",
    tag: int | None = None,
) -> None:
    """Write `model.bin`, `config.json` and the vocabularies into a folder.

    Args:
        model: A model without `targets.obstacles`.
        tokenizer: The model's.
        folder: An existing folder.
        quantization: One of `QUANTIZATIONS`; None: float32.
        space: What the vocabularies have for a space inside a token.
        tag: The token that CTranslate2 puts before every source: the tag of the only target language; None: none.

    Raises:
        UsageError: The ctranslate2 package is missing.
    """
    try:
        from ctranslate2.specs import TransformerSpec
        from ctranslate2.specs.common_spec import Activation
    except ImportError:
        raise UsageError("ctranslate2 is not installed; install it with `pip install ctranslate2`") from None
    shape = model.config
    num_layers = (shape.num_encoder_layers, shape.num_decoder_layers)
    activation = Activation[shape.activation.upper()]
    is_pre_norm = shape.norm == "pre"
    spec = TransformerSpec.from_config(
        num_layers,
        shape.num_heads,
        pre_norm=is_pre_norm,
        activation=activation,
        alignment_layer=alignment_layer(shape.num_decoder_layers),
        alignment_heads=0,  # the mean of all heads, see `translate.alignment`
    )
    _fill_encoder(spec.encoder, model)
    _fill_decoder(spec.decoder, model)
    _set_vocabularies(spec, tokenizer, space)
    if tag is not None:  # it has the place of <s>, which our sources do not have
        spec.config.bos_token = tokenizer.src_vocabulary[tag]
        spec.config.add_source_bos = True
    spec.validate()
    spec.optimize(quantization=quantization)
    spec.save(str(folder))


def _fill_encoder(spec: Any, model: Transformer) -> None:
    _fill_embedding(spec, spec.embeddings[0], model.src_embedding)
    for layer_spec, layer in zip(spec.layer, model.encoder, strict=True):
        assert isinstance(layer, EncoderLayer)
        _fill_self_attention(layer_spec.self_attention, layer)
        _fill_feed_forward(layer_spec.ffn, layer)
    if model.config.norm == "pre":
        _fill_norm(spec.layer_norm, model.encoder_norm)


def _fill_decoder(spec: Any, model: Transformer) -> None:
    _fill_embedding(spec, spec.embeddings, model.tgt_embedding)
    for layer_spec, layer in zip(spec.layer, model.decoder, strict=True):
        assert isinstance(layer, DecoderLayer)
        _fill_self_attention(layer_spec.self_attention, layer)
        _fill_cross_attention(layer_spec.attention, layer)
        _fill_feed_forward(layer_spec.ffn, layer)
    if model.config.norm == "pre":
        _fill_norm(spec.layer_norm, model.decoder_norm)
    spec.projection.weight = _to_numpy(model.output.weight)
    if model.config.output_bias:
        spec.projection.bias = _to_numpy(model.output.bias)


def _set_vocabularies(spec: Any, tokenizer: Tokenizer, space: str) -> None:
    names = [token.replace(" ", space) for token in tokenizer.tgt_vocabulary]
    spec.register_source_vocabulary([token.replace(" ", space) for token in tokenizer.src_vocabulary])
    spec.register_target_vocabulary(names)
    spec.config.bos_token = names[BOS]
    spec.config.decoder_start_token = names[BOS]
    spec.config.eos_token = names[EOS]
    # A tokenizer with byte fallback has no unknown token. CTranslate2 would add one if none was named.
    spec.config.unk_token = names[PAD if tokenizer.unknown is None else tokenizer.unknown]
    spec.config.add_source_eos = True


def _fill_embedding(stack: Any, spec: Any, embedding: Embedding) -> None:
    spec.weight = _to_numpy(embedding.tokens.weight)
    stack.position_encodings.encodings = _to_numpy(embedding.positions(0, MAX_POSITIONS))


def _fill_self_attention(spec: Any, layer: EncoderLayer | DecoderLayer) -> None:
    attention: MultiHeadAttention = layer.self_attention
    _fill_linear(spec.linear[0], attention.w_q, attention.w_k, attention.w_v)
    _fill_linear(spec.linear[1], attention.w_o)
    _fill_norm(spec.layer_norm, layer.self_residual.norm)


def _fill_cross_attention(spec: Any, layer: DecoderLayer) -> None:
    attention = layer.cross_attention
    _fill_linear(spec.linear[0], attention.w_q)
    _fill_linear(spec.linear[1], attention.w_k, attention.w_v)
    _fill_linear(spec.linear[2], attention.w_o)
    _fill_norm(spec.layer_norm, layer.cross_residual.norm)


def _fill_feed_forward(spec: Any, layer: EncoderLayer | DecoderLayer) -> None:
    _fill_linear(spec.linear_0, layer.feed_forward.w_1)
    _fill_linear(spec.linear_1, layer.feed_forward.w_2)
    _fill_norm(spec.layer_norm, layer.ffn_residual.norm)


def _fill_linear(spec: Any, *layers: nn.Linear) -> None:
    """Fill in one projection, or several concatenated."""
    spec.weight = _to_numpy(torch.cat([layer.weight for layer in layers]))
    spec.bias = _to_numpy(torch.cat([layer.bias for layer in layers]))


def _fill_norm(spec: Any, layer: nn.Module) -> None:
    assert isinstance(layer, nn.LayerNorm)
    spec.gamma = _to_numpy(layer.weight)
    spec.beta = _to_numpy(layer.bias)


def _to_numpy(tensor: Tensor) -> npt.NDArray[np.float32]:
    """Copy a tensor, because CTranslate2 quantises in place."""
    return tensor.detach().float().cpu().numpy().copy()
