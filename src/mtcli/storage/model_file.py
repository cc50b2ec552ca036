"""`model.safetensors`: the parameters of a model, with the metadata that describes it and names its tokenizer."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import BaseModel, ValidationError

from mtcli import limits
from mtcli.config.fields import Count, Within
from mtcli.config.schema import ModelConfig
from mtcli.errors import ModelError
from mtcli.model.transformer import Transformer
from mtcli.storage import PROVENANCE
from mtcli.storage.checkpoint import FORMAT
from mtcli.storage.model_folder import tokenizer_file
from mtcli.storage.tensors import NAME, OLD_NAME, Tensors, read_tensors, to_bytes
from mtcli.storage.translation_info import TranslationInfo
from mtcli.text.tokenizer.tokenizer import Tokenizer


class _Header(BaseModel):
    """The fields that are checked first, so that a file of another version is refused by its format."""

    format: Literal[1, 2] = FORMAT
    model: ModelConfig


class ModelInfo(TranslationInfo, _Header):
    """The metadata of a model file."""

    src_vocab: Annotated[int, Within(limits.VOCABULARY)]
    """Vocabulary size of the source."""
    tgt_vocab: Annotated[int, Within(limits.VOCABULARY)]
    joint: bool
    """Source and target share one vocabulary."""
    tokenizer: str
    """SHA-256 of the `tokenizer.json` that the model was trained with."""
    step: Count
    """Optimizer steps taken."""
    averaged: tuple[Count, ...] = ()
    """The steps of the checkpoints whose mean this model is; empty if it is the checkpoint of `step`."""


# Parameters ------------------------------------------------------------------------------------------------------


def parameters(model: torch.nn.Module) -> Tensors:
    """Return the parameters by name. A shared parameter appears once, under its first name."""
    return {name: parameter.data for name, parameter in model.named_parameters()}


def set_parameters(model: torch.nn.Module, tensors: Tensors, where: Path) -> None:
    """Copy tensors into the parameters of a model.

    Args:
        model: The model.
        tensors: Its new parameters.
        where: The path of the tensors, for the message of an error.

    Raises:
        ModelError: A name, shape or type differs. The message names the first that does.
    """
    own = parameters(model)
    _check_parameters(own, tensors, where)
    for name, tensor in own.items():
        tensor.copy_(tensors[name])


def _check_parameters(own: Tensors, tensors: Tensors, where: Path) -> None:
    """Check that tensors have the names, shapes and types of the parameters of a model.

    Args:
        own: The parameters of the model.
        tensors: The tensors to check.
        where: Their path, for the message of an error.

    Raises:
        ModelError: A name, shape or type differs. The message names the first that does.
    """
    for name in sorted(own.keys() ^ tensors.keys()):
        raise ModelError(f"{where}: {name} is {'missing' if name in own else 'not of this model'}")
    for name, tensor in own.items():
        found = tensors[name]
        if found.shape != tensor.shape:
            shapes = f"{tuple(found.shape)}, where this model has {tuple(tensor.shape)}"
            raise ModelError(f"{where}: {name} has the shape {shapes}")
        if found.dtype != tensor.dtype:
            raise ModelError(f"{where}: {name} is of type {found.dtype}, where this model has {tensor.dtype}")


def mean_parameters(folders: Sequence[Path]) -> Tensors:
    """Return the mean of the parameters of several models (§6.1), summed in float64.

    Args:
        folders: One or more folders with a `model.safetensors`.

    Raises:
        ModelError: A file is missing or damaged, or its tensors have other names, shapes or types.
    """
    first, _ = read_tensors(folders[0] / "model.safetensors")
    total = {name: tensor.double() for name, tensor in first.items()}
    for folder in folders[1:]:
        tensors, _ = read_tensors(folder / "model.safetensors")
        _check_parameters(first, tensors, folder)
        for name, tensor in tensors.items():
            total[name] += tensor
    return {name: (tensor / len(folders)).to(first[name].dtype) for name, tensor in total.items()}


# Writing ---------------------------------------------------------------------------------------------------------


def model_bytes(tensors: Tensors, info: ModelInfo) -> bytes:
    """Return the content of a `model.safetensors` for `load_model`, with a checksum in its metadata."""
    return to_bytes(tensors, metadata_of(tensors, info.model_dump(mode="json")))


def averaged_bytes(tensors: Tensors, info: ModelInfo, steps: Sequence[int]) -> bytes:
    """Return the content of a `model.safetensors` for the mean of the checkpoints of these steps."""
    return model_bytes(tensors, info.model_copy(update={"step": steps[-1], "averaged": tuple(steps)}))


def metadata_of(tensors: Tensors, info: dict[str, Any]) -> dict[str, str]:
    """Return the metadata of a model file.

    It has one key, because safetensors writes several keys in random order and the same model must give the same file.
    """
    return {"mtcli": json.dumps({"sha256": checksum(tensors, info), "info": info})}


def checksum(tensors: Tensors, info: object) -> str:
    """Return the SHA-256 of the metadata of a model and of its tensors, in the order of their names.

    The names are those of format 1, so that the same weights have the same checksum in both formats.
    """
    digest = hashlib.sha256(json.dumps(info, sort_keys=True).encode())
    old_names = {name.replace(NAME, OLD_NAME): name for name in tensors}
    for old_name in sorted(old_names):
        digest.update(old_name.encode())
        digest.update(tensors[old_names[old_name]].detach().cpu().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


# Reading ---------------------------------------------------------------------------------------------------------


def build_model(info: ModelInfo) -> Transformer:
    """Return a newly initialised model of this shape."""
    return Transformer(info.model, info.src_vocab, info.tgt_vocab, joint=info.joint)


def load_model(folder: Path) -> tuple[Transformer, ModelInfo, Tokenizer]:
    """Load the model and the tokenizer of a run folder, or of one of its checkpoints.

    Returns:
        The model, on the CPU and in evaluation mode, its metadata and its tokenizer.

    Raises:
        ModelError: The folder has no model, the model is damaged, or the tokenizer is not the one it was trained with.
    """
    path = folder / "model.safetensors"
    _check_present(folder, path)
    tensors, metadata = read_tensors(path)
    info = _info(path, tensors, metadata)
    tokenizer = _tokenizer(folder, info)
    _check_size(info, tensors, path)
    model = build_model(info)
    set_parameters(model, tensors, path)
    return model.eval(), info, tokenizer


def _check_present(folder: Path, path: Path) -> None:
    """Check that a folder has a model, and say why it may have none.

    Raises:
        ModelError: It has none.
    """
    if (folder / PROVENANCE).exists():
        raise ModelError(
            f"{folder}: an exported model, which only translate, eval, serve and info can use; "
            "name the run that it was exported from"
        )
    if path.exists():
        return
    if (folder / "config.toml").exists():
        raise ModelError(
            f"{folder}: this run has no model yet: the first validation writes it; "
            "run the same training command to resume"
        )
    raise ModelError(f"{folder}: no model here; train one with `mtcli train`, or name the folder of another")


def _info(path: Path, tensors: Tensors, metadata: dict[str, str]) -> ModelInfo:
    """Return the metadata of a model file after checking it and the checksum.

    Raises:
        ModelError: The metadata is missing or invalid, or the checksum differs.
    """
    found = _json_object(metadata.get("mtcli", ""))
    try:
        info = ModelInfo.model_validate(found.get("info"))
    except ValidationError as error:
        problem = error.errors()[0]
        key = ".".join(map(str, problem["loc"])) or "metadata"
        value = f", not {problem['input']}" if isinstance(problem["input"], int | float) else ""
        raise ModelError(f"{path}: not a model of this version of mtcli ({key}: {problem['msg']}{value})") from None
    if found.get("sha256") != checksum(tensors, found["info"]):
        raise ModelError(f"{path}: damaged (its checksum differs); use a checkpoint instead")
    return info


def _json_object(text: str) -> dict[str, Any]:
    """Parse a JSON object. Anything else gives an empty one."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _tokenizer(folder: Path, info: ModelInfo) -> Tokenizer:
    """Load the tokenizer of a model: beside it, or in the run folder of a checkpoint.

    Raises:
        ModelError: The tokenizer is missing, or is not the one that the model was trained with.
    """
    tokenizer = Tokenizer.load(tokenizer_file(folder))
    sizes = (tokenizer.src_size, tokenizer.tgt_size)
    if sizes != (info.src_vocab, info.tgt_vocab) or tokenizer.digest() != info.tokenizer:
        raise ModelError(
            f"{folder}: the tokenizer has {sizes[0]} and {sizes[1]} tokens, the model {info.src_vocab} and "
            f"{info.tgt_vocab}: tokenizer.json is not the one this model was trained with; put that one back"
        )
    return tokenizer


def _check_size(info: ModelInfo, tensors: Tensors, where: Path) -> None:
    """Check that the tensors are as large as the metadata says, before memory for such a model is allocated.

    Raises:
        ModelError: They are not.
    """
    model = info.model
    head_size = model.d_model // model.num_heads
    rows = {
        "tgt_embedding.tokens": info.tgt_vocab,
        "decoder.0.self_attention.w_q": model.num_heads * (model.d_k or head_size),
        "decoder.0.self_attention.w_v": model.num_heads * (model.d_v or head_size),
        "decoder.0.feed_forward.w_1": model.d_ff,
    }
    if model.positions == "learned":
        rows["tgt_embedding.learned"] = model.max_positions
    for name, num_rows in rows.items():
        tensor = tensors.get(f"{name}.weight")
        expected = (num_rows, model.d_model)
        if tensor is None or tensor.shape != expected:
            found = "is missing" if tensor is None else f"has the shape {tuple(tensor.shape)}"
            raise ModelError(f"{where}: {name}.weight {found}, where this model has {expected}")
    for layers in ("num_encoder_layers", "num_decoder_layers"):
        if getattr(model, layers) > len(tensors):
            raise ModelError(f"{where}: {layers} = {getattr(model, layers)}, with {len(tensors)} tensors")
