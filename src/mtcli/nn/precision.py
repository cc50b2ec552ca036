"""Whether matrix products run in bf16."""

from collections.abc import Mapping
from typing import Any

import torch

from mtcli.config.schema import TrainConfig


def uses_bf16(config: TrainConfig, device: torch.device) -> bool:
    """Whether matrix products are taken in bf16 there; weights, sums and moments are float32 in any case."""
    if config.precision != "auto":
        return config.precision == "bf16"
    if device.type == "cpu":  # others have no instructions for it, and take longer than in float32
        able: Mapping[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()  # older versions of PyTorch have not
        return any(able.get(name, False) for name in ("avx512_bf16", "amx_bf16"))
    return device.type == "cuda"
