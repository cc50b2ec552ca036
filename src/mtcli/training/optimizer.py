"""The optimiser and its learning rate (§5.3)."""

import math
from collections.abc import Iterable

import torch
from torch import nn

from mtcli.config.schema import TrainConfig
from mtcli.errors import ModelError


def learning_rate(
    config: TrainConfig, d_model: int, step: int, progress: float, warmup_steps: float | None = None
) -> float:
    """The rate of one step.

    All schedules rise linearly over `warmup_steps`; then
    `paper`: lr · d_model^−0.5 · step^−0.5 (equation 3; lr is a factor, 1 in the paper);
    `inverse_sqrt`: lr · √(warmup / step), and to zero over the last `cooldown` of the budget;
    `cosine`, `linear`: from lr to zero over the budget.

    Args:
        config: Schedule, peak and warm-up.
        d_model: Width of the model, for the paper's formula.
        step: The step to be taken, from 1.
        progress: The share of the budget (steps or time) already used, 0 … 1.
        warmup_steps: Those of the configuration, unless given.
    """
    warmup = warmup_steps or config.warmup_steps
    if config.schedule == "paper":
        return float(config.lr * d_model**-0.5 * min(step**-0.5, step * warmup**-1.5))
    left = 1 - min(max(progress, 0.0), 1.0)
    rise = min(1.0, step / warmup)
    if config.schedule == "inverse_sqrt":
        cooling = min(1.0, left / config.cooldown) if config.cooldown else 1.0
        return config.lr * min(rise, math.sqrt(warmup / step)) * cooling
    if config.schedule == "cosine":
        return config.lr * rise * 0.5 * (1 - math.cos(math.pi * left))
    return config.lr * rise * left


def cooldown_begins(config: TrainConfig) -> float | None:
    """The share of the budget after which the rate falls to zero; None where a schedule has no such part of its own."""
    return 1 - config.cooldown if config.schedule == "inverse_sqrt" and config.cooldown else None


def build_optimizer(config: TrainConfig, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Adam with the paper's β and ε; `weight_decay`, where given, is decoupled (AdamW) and spares vectors."""
    every = list(parameters)
    matrices, vectors = [p for p in every if p.dim() > 1], [p for p in every if p.dim() <= 1]
    groups = [
        {"params": matrices, "weight_decay": config.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=config.lr, betas=config.betas, eps=config.eps, fused=True)


_STATE = ("step", "exp_avg", "exp_avg_sq")
"""What Adam keeps of each parameter."""


def state_tensors(optimizer: torch.optim.Optimizer, model: nn.Module) -> dict[str, torch.Tensor]:
    """The optimiser's state by `parameter name/key`."""
    names: dict[torch.Tensor, str] = {p: name for name, p in model.named_parameters()}
    return {
        f"{names[p]}/{key}": value
        for p, state in optimizer.state.items()
        for key, value in state.items()
        if isinstance(value, torch.Tensor)
    }


def set_state_tensors(optimizer: torch.optim.Optimizer, model: nn.Module, tensors: dict[str, torch.Tensor]) -> None:
    """Put back what `state_tensors` gave.

    Raises:
        ModelError: It is not of this model.
    """
    parameters = dict(model.named_parameters())
    wanted = {f"{name}/{key}" for name in parameters for key in _STATE} if tensors else set()
    for name in sorted(wanted ^ tensors.keys()):
        raise ModelError(f"the optimizer's {name} is {'missing' if name in wanted else 'not of this model'}")
    for name, value in tensors.items():
        parameter, _, key = name.rpartition("/")
        p = parameters[parameter]
        if value.shape != (() if key == "step" else p.shape) or value.dtype != p.dtype:
            raise ModelError(f"the optimizer's {name} has the shape {tuple(value.shape)} and type {value.dtype}")
        optimizer.state[p][key] = value.to(p.device)  # the step count too: the fused optimiser wants it there
