"""A model as a file, `model.safetensors`: its tensors, and what they are and of which tokenizer; checked before use."""

import hashlib
import json
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, ValidationError

from mtcli import limits
from mtcli.config.fields import Within
from mtcli.config.schema import DecodeConfig, ModelConfig
from mtcli.data.tokenizer import Tokenizer
from mtcli.errors import ModelError
from mtcli.nn.transformer import Transformer
from mtcli.storage.checkpoint import FORMAT, Tensors, read_tensors, to_bytes
from mtcli.storage.names import PROVENANCE


def parameters(model: torch.nn.Module) -> Tensors:
    """The parameters by name; one that is shared counts once, under its first name."""
    return {name: p.data for name, p in model.named_parameters()}


def set_parameters(model: torch.nn.Module, tensors: Tensors, where: Path) -> None:
    """Copy tensors into a model.

    Raises:
        ModelError: A name or shape differs; the message names the first that does.
    """
    own = parameters(model)
    check_parameters(own, tensors, where)
    for name, tensor in own.items():
        tensor.copy_(tensors[name])


def check_parameters(own: Tensors, tensors: Tensors, where: Path) -> None:
    """Compare names, shapes and types with those of a model.

    Raises:
        ModelError: One differs; the message names the first that does.
    """
    for name in sorted(own.keys() ^ tensors.keys()):
        raise ModelError(f"{where}: {name} is {'missing' if name in own else 'not of this model'}")
    for name, tensor in own.items():
        if tensor.shape != tensors[name].shape:
            shapes = f"{tuple(tensors[name].shape)}, where this model has {tuple(tensor.shape)}"
            raise ModelError(f"{where}: {name} has the shape {shapes}")
        if tensor.dtype != tensors[name].dtype:
            raise ModelError(f"{where}: {name} is of type {tensors[name].dtype}, where this model has {tensor.dtype}")


Count = Annotated[int, Within(limits.COUNT)]


class ModelInfo(BaseModel):
    """What a model file says of itself, besides its tensors."""

    model_config = ConfigDict(frozen=True)

    format: Literal[1] = FORMAT
    model: ModelConfig
    decode: DecodeConfig
    src: str
    tgt: str
    src_vocab: Annotated[int, Within(limits.VOCABULARY)]
    tgt_vocab: Annotated[int, Within(limits.VOCABULARY)]
    joint: bool
    tokenizer: str
    """SHA-256 of the `tokenizer.json` it was trained with."""
    step: Count
    averaged: tuple[Count, ...] = ()
    """The steps whose checkpoints it is the mean of; none: it is that of `step`."""
    longest_src: Count
    """Pieces of the longest source in training, without `</s>`."""


def model_bytes(tensors: Tensors, info: ModelInfo) -> bytes:
    """The content of a `model.safetensors` that `load_model` reads; with a checksum, for it has no manifest."""
    return to_bytes(tensors, metadata_of(tensors, info.model_dump(mode="json")))


def metadata_of(tensors: Tensors, info: dict[str, Any]) -> dict[str, str]:
    """What a model file says of itself; one key, since safetensors writes several in no fixed order."""
    return {"mtcli": json.dumps({"sha256": checksum(tensors, info), "info": info})}


def checksum(tensors: Tensors, info: object) -> str:
    """SHA-256 of a model's information and of its tensors in the order of their names."""
    digest = hashlib.sha256(json.dumps(info, sort_keys=True).encode())
    for name in sorted(tensors):
        digest.update(name.encode())
        digest.update(tensors[name].detach().cpu().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _json_object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def build_model(info: ModelInfo) -> Transformer:
    """A model of this shape, with fresh weights."""
    return Transformer(info.model, info.src_vocab, info.tgt_vocab, joint=info.joint)


def _check_size(info: ModelInfo, tensors: Tensors, where: Path) -> None:
    """See that the file holds tensors as large as it says, before memory is taken for such a model.

    Raises:
        ModelError: It does not.
    """
    model = info.model
    heads, share = model.num_heads, model.d_model // model.num_heads
    rows = {
        "tgt_embedding.pieces": info.tgt_vocab,
        "decoder.0.self_attention.w_q": heads * (model.d_k or share),
        "decoder.0.self_attention.w_v": heads * (model.d_v or share),
        "decoder.0.feed_forward.w_1": model.d_ff,
        **({"tgt_embedding.learned": model.max_positions} if model.positions == "learned" else {}),
    }
    for name, n in rows.items():
        tensor = tensors.get(f"{name}.weight")
        if tensor is None or tensor.shape != (n, model.d_model):
            shape = "is missing" if tensor is None else f"has the shape {tuple(tensor.shape)}"
            raise ModelError(f"{where}: {name}.weight {shape}, where this model has {(n, model.d_model)}")
    for layers in ("num_encoder_layers", "num_decoder_layers"):
        if getattr(model, layers) > len(tensors):
            raise ModelError(f"{where}: {layers} = {getattr(model, layers)}, with {len(tensors)} tensors")


def load_model(folder: Path) -> tuple[Transformer, ModelInfo, Tokenizer]:
    """The model of a run folder, or of one of its checkpoints, on the CPU and in evaluation mode.

    Raises:
        ModelError: There is none, or it is damaged, or does not fit its tokenizer.
    """
    path = folder / "model.safetensors"
    if (folder / PROVENANCE).exists():
        raise ModelError(
            f"{folder}: an exported model, which only translate, eval, serve and info can use; "
            "name the run that it was exported from"
        )
    if not path.exists():
        if (folder / "config.toml").exists():
            told = "this run has no model yet: the first validation writes it; run the same training command to resume"
            raise ModelError(f"{folder}: {told}")
        raise ModelError(f"{folder}: no model here; train one with `mtcli train`, or name one with --model")
    tensors, metadata = read_tensors(path)
    about = _json_object(metadata.get("mtcli", ""))
    try:
        info = ModelInfo.model_validate(about.get("info"))
    except ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(map(str, problem["loc"])) or "metadata"
        found = f", not {problem['input']}" if isinstance(problem["input"], int | float) else ""
        raise ModelError(f"{path}: not a model of this version of mtcli ({where}: {problem['msg']}{found})") from None
    if about.get("sha256") != checksum(tensors, about["info"]):
        raise ModelError(f"{path}: its content does not have the checksum it names: damaged; use a checkpoint instead")
    beside = [folder / "tokenizer.json", folder.parent.parent / "tokenizer.json"]
    tokenizer = Tokenizer.load(next((p for p in beside if p.exists()), beside[0]))
    sizes = (tokenizer.src_size, tokenizer.tgt_size)
    if sizes != (info.src_vocab, info.tgt_vocab) or tokenizer.digest() != info.tokenizer:
        raise ModelError(
            f"{folder}: the tokenizer has {sizes[0]} and {sizes[1]} pieces, the model {info.src_vocab} and "
            f"{info.tgt_vocab}: tokenizer.json is not the one this model was trained with; put that one back"
        )
    _check_size(info, tensors, path)
    model = build_model(info)
    set_parameters(model, tensors, path)
    return model.eval(), info, tokenizer
