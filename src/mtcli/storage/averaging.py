"""The mean of the weights of several checkpoints (§6.1), as tensors and as a model file."""

from collections.abc import Sequence
from pathlib import Path

from mtcli.storage import checkpoint, model_file
from mtcli.storage.checkpoint import Tensors
from mtcli.storage.model_file import ModelInfo


def mean(paths: Sequence[Path]) -> Tensors:
    """The mean of models of one shape, summed in float64.

    Args:
        paths: Folders with a `model.safetensors`, at least one.

    Raises:
        ModelError: A file is missing or damaged, or holds a model of another shape.
    """
    first, _ = checkpoint.read_tensors(paths[0] / "model.safetensors")
    total = {name: t.double() for name, t in first.items()}
    for path in paths[1:]:
        tensors, _ = checkpoint.read_tensors(path / "model.safetensors")
        model_file.check_parameters(first, tensors, path)
        for name, t in tensors.items():
            total[name] += t
    return {name: (t / len(paths)).to(first[name].dtype) for name, t in total.items()}


def averaged_bytes(tensors: Tensors, info: ModelInfo, steps: Sequence[int]) -> bytes:
    """The content of a `model.safetensors` with the mean of these steps."""
    return model_file.model_bytes(tensors, info.model_copy(update={"step": steps[-1], "averaged": tuple(steps)}))
