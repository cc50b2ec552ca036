"""The optimizer and its learning rate schedule (§5.3)."""

import math
from collections.abc import Iterable

import torch
from torch import nn

from mtcli.config.schema import TrainConfig
from mtcli.errors import ModelError


def learning_rate(
    config: TrainConfig, d_model: int, step: int, progress: float, warmup_steps: float | None = None
) -> float:
    """Return the learning rate of one step.

    All schedules rise linearly over the warm-up. After it, they are

    - `paper`: lr · d_model^−0.5 · step^−0.5 (equation 3; lr is a factor, 1 in the paper);
    - `inverse_sqrt`: lr · √(warmup / step), and down to zero over the last `cooldown` of the budget;
    - `cosine`, `linear`: down from lr to zero, from the end of the warm-up to the end of the budget.

    Args:
        config: Schedule, peak and warm-up.
        d_model: Width of the model, for the paper's formula.
        step: Number of the step, from 1.
        progress: The share of the budget (steps or time) that is used, 0 to 1.
        warmup_steps: Length of the warm-up; None: that of the configuration.
    """
    warmup = warmup_steps or config.warmup_steps
    if config.schedule == "paper":
        return float(config.lr * d_model**-0.5 * min(step**-0.5, step * warmup**-1.5))
    progress = min(max(progress, 0.0), 1.0)
    rise = min(1.0, step / warmup)
    if config.schedule == "inverse_sqrt":
        cooling = min(1.0, (1 - progress) / config.cooldown) if config.cooldown else 1.0
        return config.lr * min(rise, math.sqrt(warmup / step)) * cooling
    left = _decay_left(step - 1, progress, warmup)
    if config.schedule == "cosine":
        return config.lr * rise * 0.5 * (1 - math.cos(math.pi * left))
    return config.lr * rise * left


def _decay_left(steps: int, progress: float, warmup_steps: float) -> float:
    """Return how much of the decay from the end of the warm-up to the end of the budget is left, 1 to 0.

    Args:
        steps: Steps taken.
        progress: The share of the budget that they used, 0 to 1.
        warmup_steps: Length of the warm-up. At the mean speed, it used its part of `progress`.
    """
    if steps <= warmup_steps:
        return 1.0
    warmup_share = progress * warmup_steps / steps
    return (1 - progress) / (1 - warmup_share)


def cooldown_begins(config: TrainConfig) -> float | None:
    """Return the share of the budget at which the cool-down begins; None for a schedule without a cool-down."""
    if config.schedule != "inverse_sqrt" or config.cooldown == 0:
        return None
    return 1 - config.cooldown


def build_optimizer(config: TrainConfig, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    """Return Adam with the paper's β and ε. Weight decay is decoupled (AdamW), and applies to matrices only.

    Args:
        config: Peak learning rate, β, ε and weight decay.
        parameters: The parameters of the model. Frozen ones are skipped, so Adam keeps no moments of them.
    """
    matrices = []
    vectors = []
    for parameter in parameters:
        if not parameter.requires_grad:
            continue
        if parameter.dim() > 1:
            matrices.append(parameter)
        else:
            vectors.append(parameter)
    groups = [
        {"params": matrices, "weight_decay": config.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=config.lr, betas=config.betas, eps=config.eps, fused=True)


_STATE_KEYS = ("step", "exp_avg", "exp_avg_sq")
"""Adam's state of each parameter: number of steps, first and second moment."""


def state_tensors(optimizer: torch.optim.Optimizer, model: nn.Module) -> dict[str, torch.Tensor]:
    """Return the optimizer's state by `parameter name/key`."""
    names: dict[torch.Tensor, str] = {parameter: name for name, parameter in model.named_parameters()}
    return {
        f"{names[parameter]}/{key}": value
        for parameter, state in optimizer.state.items()
        for key, value in state.items()
        if isinstance(value, torch.Tensor)
    }


def set_state_tensors(optimizer: torch.optim.Optimizer, model: nn.Module, tensors: dict[str, torch.Tensor]) -> None:
    """Restore the state that `state_tensors` returned.

    Args:
        optimizer: The optimizer of the model's trainable parameters.
        model: The model.
        tensors: The state by `parameter name/key`; empty before the first step.

    Raises:
        ModelError: The state does not fit the trainable parameters of the model.
    """
    parameters = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    wanted = {f"{name}/{key}" for name in parameters for key in _STATE_KEYS} if tensors else set()
    for name in sorted(wanted ^ tensors.keys()):
        problem = "missing" if name in wanted else "not of this model"
        raise ModelError(f"the optimizer's {name} is {problem}")
    for name, value in tensors.items():
        parameter_name, _, key = name.rpartition("/")
        parameter = parameters[parameter_name]
        shape = () if key == "step" else parameter.shape
        if value.shape != shape or value.dtype != parameter.dtype:
            raise ModelError(f"the optimizer's {name} has the shape {tuple(value.shape)} and type {value.dtype}")
        # The fused optimizer needs the number of steps on the parameter's device too.
        optimizer.state[parameter][key] = value.to(parameter.device)
