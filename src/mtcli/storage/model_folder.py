"""What belongs to the folder of a model, which may be a checkpoint of a run. Needs no PyTorch."""

from pathlib import Path


def run_of(model: Path) -> Path:
    """Return the folder of the run that a model belongs to: its own, or that of its checkpoint."""
    is_checkpoint = (model / "manifest.json").exists()
    if not is_checkpoint:
        return model
    if model.parent.name == "checkpoints":  # which may be a link to another disk, so it is not followed
        return model.parent.parent
    return model.resolve().parent.parent  # `model` is `.`, or a link to a checkpoint


def tokenizer_file(model: Path) -> Path:
    """Return the `tokenizer.json` of a model, which need not exist: its own, or that of the run of a checkpoint."""
    own = model / "tokenizer.json"
    return own if own.exists() else run_of(model) / "tokenizer.json"
