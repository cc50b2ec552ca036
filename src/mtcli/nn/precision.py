"""The choice between bf16 and float32 for matrix products."""

from collections.abc import Mapping
from typing import Any

import torch

from mtcli.config.schema import TrainConfig


def uses_bf16(config: TrainConfig, device: torch.device) -> bool:
    """Return True if training on this device computes matrix products in bf16.

    Weights, sums and the optimizer's moments are float32 in either case.
    """
    if config.precision != "auto":
        return config.precision == "bf16"
    if device.type == "cpu":
        return _cpu_has_bf16_instructions()
    return device.type == "cuda"


def _cpu_has_bf16_instructions() -> bool:
    """Return True if bf16 is faster than float32 on this CPU. Without such instructions it is slower."""
    if not hasattr(torch.cpu, "get_capabilities"):  # older versions of PyTorch
        return False
    capabilities: Mapping[str, Any] = torch.cpu.get_capabilities()
    return any(capabilities.get(name, False) for name in ("avx512_bf16", "amx_bf16"))
