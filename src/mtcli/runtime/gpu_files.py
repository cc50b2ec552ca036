"""The device files of GPUs, which show without PyTorch that a machine may have one."""

import sys
from pathlib import Path

GPU_FILES = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/nvhost-gpu", "/dev/nvgpu", "/dev/dxg", "/dev/kfd")
"""Device files of GPUs: NVIDIA, its Tegra systems, Windows Subsystem for Linux, AMD."""


def may_have_gpu() -> bool:
    """Return False if PyTorch cannot find a GPU here. If this returns True, only PyTorch knows."""
    return sys.platform == "darwin" or any(Path(file).exists() for file in GPU_FILES)
