"""Frozen parameters: those that fine-tuning leaves as they are (`train.freeze`).

Each value of the setting freezes a connected part of the model that begins at its input. So no gradient passes through
a frozen layer: it has a forward pass only, and autograd keeps nothing of it. The only frozen parameters with a backward
pass are those of the output projection, where it is the embedding matrix.
"""

from collections.abc import Iterator

from torch import nn

from mtcli.config.schema import Freeze, ModelConfig
from mtcli.model.transformer import Transformer


def freeze_parameters(model: Transformer, freeze: Freeze) -> None:
    """Make the frozen parameters of a model need no gradient.

    Args:
        model: The model, with all parameters trainable.
        freeze: The part to freeze.
    """
    for module in _frozen_modules(model, freeze):
        module.requires_grad_(False)


def _frozen_modules(model: Transformer, freeze: Freeze) -> Iterator[nn.Module]:
    """Yield the modules whose parameters are frozen. Each value of `freeze` includes those before it."""
    if freeze == "none":
        return
    yield model.src_embedding
    yield model.tgt_embedding
    if model.config.tie_embeddings:
        yield model.output
    if freeze == "embeddings":
        return
    yield model.encoder
    yield model.encoder_norm
    if freeze == "encoder":
        return
    yield from list(model.decoder)[:-1]


def num_trainable_layers(model: ModelConfig, freeze: Freeze) -> tuple[int, int]:
    """Return how many encoder and decoder layers are not frozen."""
    if freeze in ("none", "embeddings"):
        return model.num_encoder_layers, model.num_decoder_layers
    if freeze == "encoder":
        return 0, model.num_decoder_layers
    return 0, 1


def output_is_frozen(model: ModelConfig, freeze: Freeze) -> bool:
    """Return True if the output projection is frozen, which it is together with the embedding that it shares."""
    return freeze != "none" and model.tie_embeddings
