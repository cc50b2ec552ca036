"""What belongs to the folder of a model, which may be a checkpoint of a run. Needs no PyTorch."""

from pathlib import Path


def run_of(model: Path) -> Path:
    """Return the folder of the run that a model belongs to: its own, or that of its checkpoint."""
    is_checkpoint = (model / "manifest.json").exists()
    return model.resolve().parent.parent if is_checkpoint else model
