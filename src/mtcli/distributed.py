"""Where a process computes."""

import torch

from mtcli.errors import UsageError


def pick_device(name: str = "auto") -> torch.device:
    """The device of this name; auto: CUDA, then Apple's MPS, then the CPU.

    Raises:
        UsageError: There is no such device here.
    """
    available = {
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
        "cpu": True,
    }
    if name == "auto":
        name = next(n for n, there in available.items() if there)
    if name.partition(":")[0] not in available:
        raise UsageError(f"--device {name}: choose from auto, {', '.join(available)}")
    if not available[name.partition(":")[0]]:
        raise UsageError(f"--device {name}: this PyTorch ({torch.__version__}) finds no such device; use --device auto")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UsageError(f"--device {name}: write a number after the colon, as in cuda:0") from None
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UsageError(f"--device {name}: there are {torch.cuda.device_count()}, counted from 0")
    return device


def describe(device: torch.device) -> str:
    """The device in words, for the first line of the log."""
    if device.type == "cuda":
        return f"{device} ({torch.cuda.get_device_name(device)})"
    return f"{device} ({torch.get_num_threads()} threads)" if device.type == "cpu" else str(device)
