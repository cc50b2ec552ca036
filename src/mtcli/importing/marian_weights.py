"""Convert the weights of a Marian model to the parameters of our Transformer."""

import os
import pickle
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mtcli.config.schema import ModelConfig
from mtcli.data.sentencepiece import MarianVocabulary
from mtcli.data.tokenizer import BOS
from mtcli.errors import ModelError
from mtcli.export.marian import (
    EMBEDDING,
    OUR_EMBEDDING,
    OUR_OUTPUT_BIAS,
    OUTPUT_BIAS,
    from_marian,
    layer_parameters,
    order_of_export,
)
from mtcli.nn.transformer import sinusoids
from mtcli.runtime.regular_file import check_regular
from mtcli.storage.tensors import Tensors, read_tensors

COPIES = ("lm_head.weight", "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight")
"""Names under which a file may hold the embedding again."""

POSITIONS = ("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight")
"""Names under which a file may hold the sinusoids."""

START_BIAS = -100.0
"""Bias of the start token. It makes the probability of the token 0 in float32, so that the other tokens have the
probabilities of the origin, which has no start token."""

FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


def read_weights(path: Path) -> Tensors:
    """Read the tensors of `model.safetensors` or `pytorch_model.bin`, in float32.

    Raises:
        ModelError: The file is missing or damaged, holds anything but tensors, or a number that is not finite in
            float32.
    """
    if path.suffix == ".safetensors":
        tensors, _ = read_tensors(path)
    else:
        tensors = _read_pickled(path)
    for name, tensor in tensors.items():
        if tensor.dtype not in FLOATS:
            raise ModelError(f"{path}: {name} is of type {tensor.dtype}, and weights are floating-point numbers")
    weights = {name: tensor.float() for name, tensor in tensors.items()}
    for name, tensor in weights.items():
        if not bool(torch.isfinite(tensor).all()):  # a finite float64 number may be infinite in float32
            raise ModelError(f"{path}: {name} holds NaN, infinity or a number beyond the range of float32")
    return weights


def _read_pickled(path: Path) -> Tensors:
    """Read the tensors of a file that `torch.save` wrote, with PyTorch's restricted reader, which runs no code."""
    try:
        check_regular(path)
        if path.stat().st_size > os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"):
            raise ModelError(f"{path}: larger than this machine's memory")
        content: Any = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror or error})") from None
    except pickle.UnpicklingError:
        raise ModelError(
            f"{path}: damaged, or holds code or objects besides tensors, which mtcli never loads; "
            "if you trust it, convert it to model.safetensors"
        ) from None
    except (RuntimeError, ValueError, KeyError, EOFError, TypeError, AttributeError, IndexError) as error:
        reason = str(error).partition("\n")[0][:200]
        raise ModelError(f"{path}: not a readable file of PyTorch tensors: {reason}") from None
    if not isinstance(content, dict):
        raise ModelError(f"{path}: holds a {type(content).__name__} in place of tensors by name")
    for name, tensor in content.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor) or tensor.layout != torch.strided:
            raise ModelError(f"{path}: {str(name)[:100]} is no tensor with a name")
        if tensor.is_nested or tensor.is_meta or tensor.nbytes > tensor.untyped_storage().nbytes():
            # An expanded tensor of a few bytes would take all memory once it is read.
            raise ModelError(f"{path}: {name} does not hold the values of its shape")
    return content


def parameters_of(tensors: Tensors, shape: ModelConfig, vocabulary: MarianVocabulary, start: int) -> Tensors:
    """Convert tensors of a Marian model to the parameters of a Transformer.

    Args:
        tensors: The tensors of the Marian model.
        shape: The shape of the Transformer.
        vocabulary: The vocabulary, which gives the order of the tokens.
        start: The id in the origin of the token that a translation starts with.

    Raises:
        ModelError: A tensor is missing, has another shape, or does not belong to our Transformer.
    """
    tensors = dict(tensors)
    size = len(vocabulary.tokens) - 1
    _drop_copies(tensors)
    tensors.setdefault(OUTPUT_BIAS, torch.zeros(1, size))
    _check_shapes(tensors, shape, size)
    parameters = from_marian(tensors, shape)
    rows = torch.tensor(vocabulary.origin_ids)
    rows[BOS] = start
    parameters[OUR_EMBEDDING] = parameters[OUR_EMBEDDING][rows]
    parameters[OUR_OUTPUT_BIAS] = parameters[OUR_OUTPUT_BIAS][rows]
    parameters[OUR_OUTPUT_BIAS][BOS] = START_BIAS
    return parameters


def _drop_copies(tensors: Tensors) -> None:
    """Remove the copies of the embedding, and the sinusoids, which our Transformer computes.

    Raises:
        ModelError: A copy differs from the embedding, or a table of positions has no sinusoids.
    """
    embedding = tensors.get(EMBEDDING)
    for name in COPIES:
        copy = tensors.pop(name, None)
        if copy is None:
            continue
        if embedding is None:
            embedding = copy
            tensors[EMBEDDING] = embedding
        elif not torch.equal(copy, embedding):
            raise ModelError(f"a model that mtcli cannot express: {name} differs from {EMBEDDING}")
    for name in POSITIONS:
        table = tensors.pop(name, None)
        if table is not None and not _is_sinusoidal(table):
            raise ModelError(f"a model that mtcli cannot express: {name} is not a table of sinusoids")


def _is_sinusoidal(table: Tensor) -> bool:
    """Return True for the sinusoids of `transformers`, also if they were stored in float16."""
    if table.dim() != 2 or table.size(1) % 2:
        return False
    expected = sinusoids(len(table), table.size(1))[:, order_of_export(table.size(1))]
    return torch.allclose(table, expected, rtol=0, atol=2e-3)


def _check_shapes(tensors: Tensors, shape: ModelConfig, size: int) -> None:
    """Check the names and shapes of all tensors against the configuration.

    Raises:
        ModelError: One differs. The message names it.
    """
    expected = _shapes(shape, size)
    for name in sorted(expected.keys() - tensors.keys()):
        raise ModelError(f"the weights lack {name}, which config.json asks for")
    for name in sorted(tensors.keys() - expected.keys()):
        raise ModelError(f"a model that mtcli cannot express: the weights hold {name[:100]}")
    for name, wanted in expected.items():
        found = tuple(tensors[name].shape)
        if found != wanted:
            raise ModelError(f"{name} has the shape {found}, where config.json and vocab.json ask for {wanted}")


def _shapes(shape: ModelConfig, size: int) -> dict[str, tuple[int, ...]]:
    """Return the shape of each tensor of a Marian model with a vocabulary of `size` tokens."""
    shapes: dict[str, tuple[int, ...]] = {EMBEDDING: (size, shape.d_model), OUTPUT_BIAS: (1, size)}
    for parameter in layer_parameters(shape):
        rows = shape.d_ff if ".fc1." in parameter.theirs else shape.d_model
        columns = shape.d_ff if ".fc2." in parameter.theirs else shape.d_model
        is_matrix = parameter.theirs.endswith(".weight") and "layer_norm" not in parameter.theirs
        shapes[parameter.theirs] = (rows, columns) if is_matrix else (rows,)
    return shapes
