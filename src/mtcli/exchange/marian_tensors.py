"""Convert between the parameters of a `Transformer` and the tensors of a Marian model of `transformers`.

The layers are the same under other names. Marian does not store sinusoids. It computes all sines, then all cosines,
where the paper alternates them (§3.5). So the d_model dimensions of the residual stream are reordered, in every tensor
that reads or writes them.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from mtcli.config.schema import ModelConfig
from mtcli.storage.tensors import Tensors

EMBEDDING = "model.shared.weight"
OUTPUT_BIAS = "final_logits_bias"
OUR_EMBEDDING = "tgt_embedding.tokens.weight"
OUR_OUTPUT_BIAS = "output.bias"

ATTENTIONS = (("self_attn", "self_attention", "self_residual"), ("encoder_attn", "cross_attention", "cross_residual"))
"""Marian's name of an attention, our name, and our name of the residual connection around it."""

PROJECTIONS = (("q_proj", "w_q"), ("k_proj", "w_k"), ("v_proj", "w_v"))


@dataclass(frozen=True)
class Parameter:
    """One tensor of a layer."""

    theirs: str
    ours: str
    reads: bool = False
    """True if its columns are the d_model dimensions of the residual stream."""
    writes: bool = False
    """True if its rows are the d_model dimensions of the residual stream."""

    def permuted(self, tensor: Tensor, order: Tensor) -> Tensor:
        """Return the tensor with its d_model dimensions in another order."""
        if self.writes:
            tensor = tensor[order]
        return tensor[:, order] if self.reads else tensor


def order_of_export(d_model: int) -> Tensor:
    """Return our dimension for each of Marian's dimensions, (d_model,): all sines, then all cosines."""
    return torch.cat((torch.arange(0, d_model, 2), torch.arange(1, d_model, 2)))


def order_of_import(d_model: int) -> Tensor:
    """Return Marian's dimension for each of ours, (d_model,): sines and cosines alternate."""
    half = d_model // 2
    return torch.stack((torch.arange(half), torch.arange(half) + half), dim=1).flatten()


def layer_parameters(config: ModelConfig) -> Iterator[Parameter]:
    """Yield every tensor of the encoder's and decoder's layers."""
    for index in range(config.num_encoder_layers):
        yield from _layer(f"model.encoder.layers.{index}", f"encoder.{index}", ATTENTIONS[:1])
    for index in range(config.num_decoder_layers):
        yield from _layer(f"model.decoder.layers.{index}", f"decoder.{index}", ATTENTIONS)


def _layer(theirs: str, ours: str, attentions: tuple[tuple[str, str, str], ...]) -> Iterator[Parameter]:
    for their_attention, our_attention, residual in attentions:
        for their_projection, our_projection in PROJECTIONS:
            their_name = f"{theirs}.{their_attention}.{their_projection}"
            yield from _linear(their_name, f"{ours}.{our_attention}.{our_projection}", reads=True)
        yield from _linear(f"{theirs}.{their_attention}.out_proj", f"{ours}.{our_attention}.w_o", writes=True)
        yield from _norm(f"{theirs}.{their_attention}_layer_norm", f"{ours}.{residual}.norm")
    yield from _linear(f"{theirs}.fc1", f"{ours}.feed_forward.w_1", reads=True)
    yield from _linear(f"{theirs}.fc2", f"{ours}.feed_forward.w_2", writes=True)
    yield from _norm(f"{theirs}.final_layer_norm", f"{ours}.ffn_residual.norm")


def _linear(theirs: str, ours: str, *, reads: bool = False, writes: bool = False) -> Iterator[Parameter]:
    yield Parameter(f"{theirs}.weight", f"{ours}.weight", reads, writes)
    yield Parameter(f"{theirs}.bias", f"{ours}.bias", writes=writes)


def _norm(theirs: str, ours: str) -> Iterator[Parameter]:
    yield Parameter(f"{theirs}.weight", f"{ours}.weight", writes=True)
    yield Parameter(f"{theirs}.bias", f"{ours}.bias", writes=True)


def to_marian(parameters: Tensors, config: ModelConfig) -> Tensors:
    """Return our parameters with Marian's names and order of dimensions. Tokens keep our order."""
    order = order_of_export(config.d_model)
    embedding = parameters[OUR_EMBEDDING]
    bias = parameters[OUR_OUTPUT_BIAS] if config.output_bias else torch.zeros(len(embedding))
    tensors = {EMBEDDING: embedding[:, order], OUTPUT_BIAS: bias[None]}
    for parameter in layer_parameters(config):
        tensors[parameter.theirs] = parameter.permuted(parameters[parameter.ours], order)
    return tensors


def from_marian(tensors: Tensors, config: ModelConfig) -> Tensors:
    """Return Marian's tensors with our names and order of dimensions. Tokens keep Marian's order."""
    order = order_of_import(config.d_model)
    parameters = {OUR_EMBEDDING: tensors[EMBEDDING][:, order], OUR_OUTPUT_BIAS: tensors[OUTPUT_BIAS].flatten()}
    for parameter in layer_parameters(config):
        parameters[parameter.ours] = parameter.permuted(tensors[parameter.theirs], order)
    return parameters
