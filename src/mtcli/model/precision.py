"""The choice between bf16 and float32 for matrix products."""

import logging
from collections.abc import Mapping
from typing import Any

import torch

from mtcli.config.schema import TrainConfig

log = logging.getLogger(__name__)


def uses_bf16(config: TrainConfig, device: torch.device) -> bool:
    """Return True if training on this device computes matrix products in bf16.

    Weights, sums and the optimizer's moments are float32 in either case.
    """
    if config.precision != "auto":
        return config.precision == "bf16"
    return has_bf16(device)


def decodes_in_bf16(precision: str, device: torch.device) -> bool:
    """Return True if a search on this device computes in bf16, weights included.

    Log-probabilities and their sums are float32 in either case. On a CPU, `auto` is float32: its speed is bound by
    small operations, and its translations are compared with those of other libraries.
    """
    if precision != "auto":
        return precision == "bf16"
    return device.type == "cuda" and has_bf16(device)


def has_bf16(device: torch.device) -> bool:
    """Return True if this device has instructions for bf16. Without them, bf16 is slower than float32.

    On CUDA, the answer is that of the current device. GPUs before Ampere, such as V100 and T4, only emulate bf16.
    """
    if device.type == "cpu":
        return _cpu_has_bf16()
    return device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)


def warn_of_emulated_bf16(config: TrainConfig, device: torch.device) -> None:
    """Warn if `train.precision = "bf16"` is set for a GPU that only emulates bf16."""
    if config.precision == "bf16" and device.type == "cuda" and not has_bf16(device):
        name = torch.cuda.get_device_name(device)
        log.warning("train.precision = bf16: %s only emulates bf16, which is slow; omit it to train in float32", name)


def _cpu_has_bf16() -> bool:
    if not hasattr(torch.cpu, "get_capabilities"):  # older versions of PyTorch
        return False
    if torch.backends.cpu.get_cpu_capability() in ("DEFAULT", "AVX2"):  # the processor's, or as the user limits it
        return False
    capabilities: Mapping[str, Any] = torch.cpu.get_capabilities()
    return any(capabilities.get(name, False) for name in ("avx512_bf16", "amx_bf16"))
