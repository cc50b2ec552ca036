"""The optimizer and its learning rate schedule (§5.3)."""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

from mtcli.config.schema import TrainConfig
from mtcli.errors import ModelError
from mtcli.runtime.cores import ONE_CORE, Cores


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


class Adam:
    """Adam with the paper's β and ε (§5.3). Weight decay is decoupled (AdamW), and applies to matrices only.

    It is `torch.optim.AdamW` without its base class, which imports the compiler of PyTorch, in more than a second. On a
    CPU, each core updates a part of the parameters. Each number is computed alone, so the parts change no bits.

    Args:
        config: β, ε and weight decay.
        parameters: The parameters by name. Frozen ones are skipped, so Adam keeps no moments of them.
        cores: The threads that compute on a CPU.
    """

    def __init__(self, config: TrainConfig, parameters: Iterable[tuple[str, nn.Parameter]], cores: Cores = ONE_CORE):
        trainable = {name: parameter for name, parameter in parameters if parameter.requires_grad}
        self.config = config
        self.names = list(trainable)
        self.parameters = list(trainable.values())
        self.cores = cores
        self.first_moments: list[Tensor] = []
        """Of each parameter; empty before the first step."""
        self.second_moments: list[Tensor] = []
        self.steps = torch.zeros((), device=self.parameters[0].device if self.parameters else None)
        """Number of steps taken, in float32 on the device of the parameters."""

    def step(self, gradients: Sequence[Tensor], learning_rate: float, skipped: Tensor | None = None) -> None:
        """Update the parameters.

        Args:
            gradients: The gradient of each parameter.
            learning_rate: Learning rate of this step.
            skipped: () on the device of the parameters: 1 if this step is to change nothing, otherwise 0. The host does
                not wait for it.
        """
        if not self.first_moments:
            self.first_moments = [torch.zeros_like(parameter) for parameter in self.parameters]
            self.second_moments = [torch.zeros_like(parameter) for parameter in self.parameters]
        self.steps += 1 if skipped is None else 1 - skipped

        @torch.no_grad()  # of the thread that computes
        def update(share: slice) -> None:
            for weight_decay, indices in self._by_weight_decay(share):
                torch._fused_adamw_(
                    [self.parameters[i] for i in indices],
                    [gradients[i].contiguous() for i in indices],  # on a CPU, the kernel ignores the strides
                    [self.first_moments[i] for i in indices],
                    [self.second_moments[i] for i in indices],
                    [],
                    [self.steps for _ in indices],
                    lr=learning_rate,
                    beta1=self.config.betas[0],
                    beta2=self.config.betas[1],
                    weight_decay=weight_decay,
                    eps=self.config.eps,
                    amsgrad=False,
                    maximize=False,
                    found_inf=skipped,
                )

        list(self.cores.map(update, shares(self.parameters, self.cores.size)))

    def _by_weight_decay(self, share: slice) -> list[tuple[float, list[int]]]:
        """Return each weight decay, and the indices of those parameters of a share that have it."""
        indices = list(range(len(self.parameters))[share])
        weight_decay = self.config.weight_decay
        if weight_decay == 0:
            return [(0.0, indices)]
        matrices = [i for i in indices if self.parameters[i].dim() > 1]
        vectors = [i for i in indices if self.parameters[i].dim() <= 1]
        return [(decay, indices) for decay, indices in ((weight_decay, matrices), (0.0, vectors)) if indices]

    def state(self) -> dict[str, Tensor]:
        """Return the state by `parameter name/key`; nothing before the first step."""
        tensors: dict[str, Tensor] = {}
        for name, first, second in zip(self.names, self.first_moments, self.second_moments, strict=False):
            tensors |= {f"{name}/step": self.steps.clone(), f"{name}/exp_avg": first, f"{name}/exp_avg_sq": second}
        return tensors

    def set_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore what `state` returned.

        Raises:
            ModelError: The state does not fit the trainable parameters.
        """
        wanted: dict[str, Tensor] = {}
        for name, parameter in zip(self.names, self.parameters, strict=True) if tensors else ():
            wanted |= {f"{name}/step": self.steps, f"{name}/exp_avg": parameter, f"{name}/exp_avg_sq": parameter}
        for name in sorted(wanted.keys() ^ tensors.keys()):
            problem = "missing" if name in wanted else "not of this model"
            raise ModelError(f"the optimizer's {name} is {problem}")
        for name, like in wanted.items():
            value = tensors[name]
            if value.shape != like.shape or value.dtype != like.dtype:
                raise ModelError(f"the optimizer's {name} has the shape {tuple(value.shape)} and type {value.dtype}")
        device = self.steps.device
        self.first_moments = [tensors[f"{name}/exp_avg"].to(device) for name in self.names if tensors]
        self.second_moments = [tensors[f"{name}/exp_avg_sq"].to(device) for name in self.names if tensors]
        if tensors:
            self.steps = tensors[f"{self.names[0]}/step"].to(device, copy=True)


def clip_norm_(gradients: list[Tensor], max_norm: float, cores: Cores = ONE_CORE) -> Tensor:
    """Scale gradients, in place, so that their norm is at most `max_norm`. Return their norm before, ().

    Each core takes some of them. The norm is that of the norms of the tensors, so it does not depend on the shares.
    """
    parts = shares(gradients, cores.size)

    def norms_of(share: slice) -> list[Tensor]:
        return list(torch._foreach_norm(gradients[share]))

    norms = [norm for part in cores.map(norms_of, parts) for norm in part]
    norm: Tensor = torch.linalg.vector_norm(torch.stack(norms))
    scale: Tensor = (max_norm / (norm + 1e-6)).clamp(max=1.0)

    def multiply(share: slice) -> None:
        torch._foreach_mul_(gradients[share], scale)

    if math.isfinite(max_norm):
        list(cores.map(multiply, parts))
    return norm


def shares(tensors: Sequence[Tensor], number: int) -> list[slice]:
    """Divide tensors into at most so many slices, none of which is empty, with about equally many elements."""
    sizes = np.array([tensor.numel() for tensor in tensors])
    if not len(sizes):
        return []
    ends = np.cumsum(sizes)
    middles = ends - sizes / 2
    bounds = np.searchsorted(middles, ends[-1] * np.arange(number + 1) / number)
    bounds[0], bounds[-1] = 0, len(ends)
    return [slice(int(first), int(end)) for first, end in pairwise(bounds) if first < end]
