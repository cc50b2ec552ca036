"""Convert between the parameters of a `Transformer` and the weights of a Marian model.

The layers are the same under other names. Marian does not store sinusoids. It computes all sines, then all cosines,
where the paper alternates them (§3.5). So the d_model dimensions of the residual stream are reordered, in every tensor
that reads or writes them.
"""

import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import ZIP_STORED, BadZipFile, ZipFile

import torch
from torch import Tensor

from mtcli.config.schema import ModelConfig
from mtcli.errors import ModelError
from mtcli.model.transformer import sinusoids
from mtcli.runtime import memory
from mtcli.runtime.files import check_regular, open_regular
from mtcli.storage.tensors import Tensors, read_tensors
from mtcli.text.special_tokens import BOS
from mtcli.text.tokenizer.sentencepiece import MarianVocabulary

EMBEDDING = "model.shared.weight"
OUTPUT_BIAS = "final_logits_bias"
OUR_EMBEDDING = "tgt_embedding.tokens.weight"
OUR_OUTPUT_BIAS = "output.bias"

ATTENTIONS = (("self_attn", "self_attention", "self_residual"), ("encoder_attn", "cross_attention", "cross_residual"))
"""Marian's name of an attention, our name, and our name of the residual connection around it."""

PROJECTIONS = (("q_proj", "w_q"), ("k_proj", "w_k"), ("v_proj", "w_v"))

COPIES = ("lm_head.weight", "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight")
"""Names under which a file may hold the embedding again."""

POSITIONS = ("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight")
"""Names under which a file may hold the sinusoids."""

START_BIAS = -100.0
"""Bias of the start token. It makes the probability of the token 0 in float32, so that the other tokens have the
probabilities of the origin, which has no start token."""

CONVERTED = 3
"""Copies of the weights in float32 at a time: those that were read, those in our order, and the file."""

READER_BYTES = 2**29
"""Memory for PyTorch's reader itself."""

REMEDY = "end other programs, or use a machine with more memory"

ZIP_START = b"PK\x03\x04"

FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


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


def read_weights(path: Path) -> Tensors:
    """Read the tensors of `model.safetensors` or `pytorch_model.bin`, in float32, without copies of the embedding.

    Raises:
        ModelError: The file is missing or damaged, holds anything but tensors, or a number that is not finite in
            float32. A copy differs from the embedding, or a table of positions has no sinusoids. The tensors are larger
            than the file.
        StorageError: There is too little memory.
    """
    try:
        num_bytes = path.stat().st_size
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror})") from None
    memory.require(num_bytes, f"{path}: reading it", REMEDY)
    if path.suffix == ".safetensors":
        tensors, _ = read_tensors(path)
    else:
        tensors = _read_pickled(path, num_bytes)
    for name, tensor in tensors.items():
        if tensor.dtype not in FLOATS:
            raise ModelError(f"{path}: {name} is of type {tensor.dtype}, and weights are floating-point numbers")
        if not bool(torch.isfinite(tensor.float()).all()):  # a finite float64 number may be infinite in float32
            raise ModelError(f"{path}: {name} holds NaN, infinity or a number beyond the range of float32")
    tensors = _without_copies(tensors)
    _check_sum(path, tensors, num_bytes)
    num_values = sum(tensor.numel() for tensor in tensors.values())
    memory.require(CONVERTED * 4 * num_values, f"{path}: importing it", REMEDY)
    # Copied, because safetensors refuses to write tensors that share values.
    return {name: tensor.to(torch.float32, copy=True) for name, tensor in tensors.items()}


def _check_sum(path: Path, tensors: Tensors, num_bytes: int) -> None:
    """Check that many tensors do not share few values, because each becomes a tensor of its own.

    Raises:
        ModelError: Together, they are larger than the file.
    """
    total = sum(tensor.nbytes for tensor in tensors.values())
    if total > num_bytes:
        raise ModelError(
            f"{path}: its tensors have {total:,} bytes, and the file {num_bytes:,}: tensors share their values, which "
            "those of a Marian model do not"
        )


def _read_pickled(path: Path, num_bytes: int) -> Tensors:
    """Read the tensors of a file that `torch.save` wrote, with PyTorch's restricted reader, which runs no code.

    A pickle of a few kilobytes can still ask for any number of bytes, so the memory of the reader is limited.

    Args:
        path: The file.
        num_bytes: Its size.

    Raises:
        ModelError: See `read_weights`.
    """
    try:
        check_regular(path)
        _check_records(path, num_bytes)
        with memory.limited(2 * num_bytes + READER_BYTES):
            content: Any = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror or error})") from None
    except MemoryError:
        raise ModelError(f"{path}: unpacks to far more than its {num_bytes:,} bytes") from None
    except pickle.UnpicklingError:
        raise ModelError(
            f"{path}: damaged, or holds code or objects besides tensors, which mtcli never loads; "
            "if you trust it, convert it to model.safetensors"
        ) from None
    except (RuntimeError, ValueError, KeyError, EOFError, TypeError, AttributeError, IndexError, BadZipFile) as error:
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


def _check_records(path: Path, num_bytes: int) -> None:
    """Check that the records of a ZIP archive are as large as in the file. Versions before 1.6 wrote no archives.

    Raises:
        ModelError: A record is compressed, or records overlap. `torch.save` writes neither.
        OSError, BadZipFile: The file cannot be read.
    """
    with open_regular(path) as file:
        if file.read(len(ZIP_START)) != ZIP_START:  # PyTorch recognises an archive by the same bytes
            return
        with ZipFile(file) as archive:
            records = archive.infolist()
    total = sum(record.file_size for record in records)
    if total > num_bytes or any(record.compress_type != ZIP_STORED for record in records):
        raise ModelError(
            f"{path}: has compressed records, which unpack to {total:,} bytes; torch.save writes none; "
            "if you trust it, convert it to model.safetensors"
        )


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
    tensors.setdefault(OUTPUT_BIAS, torch.zeros(1, size))
    _check_shapes(tensors, shape, size)
    parameters = from_marian(tensors, shape)
    rows = torch.tensor(vocabulary.origin_ids)
    rows[BOS] = start
    parameters[OUR_EMBEDDING] = parameters[OUR_EMBEDDING][rows]
    parameters[OUR_OUTPUT_BIAS] = parameters[OUR_OUTPUT_BIAS][rows]
    parameters[OUR_OUTPUT_BIAS][BOS] = START_BIAS
    return parameters


def _without_copies(tensors: Tensors) -> Tensors:
    """Return the tensors without the copies of the embedding and the sinusoids, which our Transformer computes.

    Raises:
        ModelError: A copy differs from the embedding, or a table of positions has no sinusoids.
    """
    kept = {name: tensor for name, tensor in tensors.items() if name not in (*COPIES, *POSITIONS)}
    for name in COPIES:
        copy = tensors.get(name)
        if copy is None:
            continue
        embedding = kept.setdefault(EMBEDDING, copy)
        if not torch.equal(copy.float(), embedding.float()):
            raise ModelError(f"a model that mtcli cannot express: {name} differs from {EMBEDDING}")
    for name in POSITIONS:
        if name in tensors and not _is_sinusoidal(tensors[name].float()):
            raise ModelError(f"a model that mtcli cannot express: {name} is not a table of sinusoids")
    return kept


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
