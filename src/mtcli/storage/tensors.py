"""Tensors as safetensors files. Reading one cannot run code, and every number read is checked."""

import os
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from mtcli.errors import ModelError
from mtcli.runtime.files import check_regular

Tensors = dict[str, Tensor]
"""Tensors by name."""

DTYPES = {"F64", "F32", "F16", "BF16", "I64", "I32", "U8", "BOOL"}
"""Types that tensors of a model or an optimizer have, as safetensors names them."""

MAX_DIMENSIONS = 2

NAME = "_embedding.tokens."
OLD_NAME = "_embedding.pieces."
"""A part of the names of token embeddings, and what it is in format 1, which version 0.2.0 wrote."""


def to_bytes(tensors: Tensors, metadata: Mapping[str, str] | None = None) -> bytes:
    """Return the content of a safetensors file."""
    from safetensors.torch import save

    contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    content: bytes = save(contiguous, metadata=dict(metadata) if metadata else None)
    return content


def read_tensors(path: Path) -> tuple[Tensors, dict[str, str]]:
    """Read the tensors, with the names of format 2, and the metadata of a safetensors file.

    Raises:
        ModelError: The file is missing or damaged, or a tensor contains NaN or infinity.
    """
    from safetensors import SafetensorError

    try:
        tensors, metadata = _read(path)
    except FileNotFoundError:
        raise ModelError(f"{path}: no such file") from None
    except (SafetensorError, OSError, ValueError) as error:
        raise ModelError(f"{path}: not a readable safetensors file: {error}") from None
    except BaseException as error:
        # The Rust library panics with an exception that is not an `Exception`.
        if type(error).__name__ == "PanicException":
            raise ModelError(f"{path}: not a readable safetensors file: {error}") from None
        raise
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise ModelError(f"{path}: {name} holds NaN or infinity; use another checkpoint")
    return tensors, metadata


def _read(path: Path) -> tuple[Tensors, dict[str, str]]:
    """Read a file after checking its size and the shape and type of each tensor.

    Raises:
        SafetensorError, OSError, ValueError: The file is missing or damaged.
    """
    from safetensors import safe_open

    check_regular(path)
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if path.stat().st_size > memory:
        raise ValueError("it is larger than this machine's memory")
    with safe_open(path, framework="pt") as file:
        names = list(file.keys())
        for name in names:
            header = file.get_slice(name)
            if len(header.get_shape()) > MAX_DIMENSIONS or header.get_dtype() not in DTYPES:
                raise ValueError(f"{name} is not a vector or matrix of a type that models have")
        tensors = {name.replace(OLD_NAME, NAME): file.get_tensor(name).clone() for name in names}
        return tensors, file.metadata() or {}
