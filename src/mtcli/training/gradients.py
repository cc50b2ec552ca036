"""The training objective, and its gradient in one optimizer step.

The objective is label-smoothed cross-entropy with teacher forcing (§5.4). On a CPU, the cores compute micro-batches at
the same time.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

import numpy as np
import torch
from torch import Tensor, nn

from mtcli.config.schema import TrainConfig
from mtcli.corpus.batching import Batch, collate
from mtcli.corpus.cache.encoded_pairs import EncodedPairs
from mtcli.model.fast.cpu_kernels import dropout_seed
from mtcli.model.loss import projected_loss
from mtcli.model.transformer import Transformer
from mtcli.runtime.cores import Cores
from mtcli.runtime.distributed import Group
from mtcli.training.loading import LoadedBatch


class Objective(nn.Module):
    """The loss of a batch. It is a module, so that DDP can average its gradients over the ranks.

    Args:
        model: The model.
        smoothing: ε of label smoothing.
        bf16: Compute matrix products in bf16.
    """

    def __init__(self, model: Transformer, smoothing: float, bf16: bool):
        super().__init__()
        self.model = model
        self.smoothing = smoothing
        self.bf16 = bf16
        self.hidden_states: Callable[[Tensor, Tensor], Tensor] = model.hidden_states
        """The model's function, or `CompiledBody`, which computes the same."""

    def autocast(self, device: torch.device) -> AbstractContextManager[object]:
        """Return the context of a forward pass, which chooses the precision of matrix products."""
        if not self.bf16:
            return nullcontext()
        # On a CPU, threads share the parameters: each must have converted copies of its own, for its own graph.
        return torch.autocast(device.type, dtype=torch.bfloat16, cache_enabled=device.type != "cpu")

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the smoothed cross-entropy and the negative log-likelihood, in nats, summed over the target tokens.

        Padding does not count. Only the first sum has a gradient.
        """
        with self.autocast(batch.src.device):
            hidden = self.hidden_states(batch.src, batch.tgt_in)
            output = self.model.output
            return projected_loss(
                batch.at_targets(hidden), output.weight, batch.target, self.smoothing, bias=output.bias
            )


class Gradients(ABC):
    """Computes the gradient of the loss over the batches of all ranks.

    Args:
        objective: The loss of a batch.
        parameters: The trainable parameters.
        settings: The settings of the run.
        group: The ranks that train together.
    """

    def __init__(self, objective: Objective, parameters: Sequence[nn.Parameter], settings: TrainConfig, group: Group):
        self.objective = objective
        self.parameters = parameters
        self.settings = settings
        self.group = group

    @abstractmethod
    def of(self, batches: Sequence[LoadedBatch], step: int, tokens: int) -> tuple[list[Tensor], Tensor]:
        """Compute the gradient of the mean loss per target token.

        Args:
            batches: The batches of all ranks.
            step: Number of the step, from 1.
            tokens: Target tokens of all batches.

        Returns:
            The gradient of each trainable parameter, the same on all ranks, and the loss and the negative
            log-likelihood in nats, (2,), summed over this rank's target tokens.
        """

    def prepare(self, pairs: EncodedPairs) -> None:  # noqa: B027 - most have nothing to do
        """Do what must come before the first step. All ranks must call this."""

    def _seeded(self, batches: Sequence[LoadedBatch], step: int) -> list[tuple[int, Batch]]:
        """Return the micro-batches of this rank, each with its seed of dropout, which does not depend on the rank."""
        return [
            (derived_seed(self.settings.seed, "dropout", step - 1, index * self.settings.micro_batches + number), batch)
            for index, loaded in enumerate(batches)
            for number, batch in enumerate(loaded.micro_batches)
        ]


class CoreGradients(Gradients):
    """Gradients on a CPU. Each core computes one micro-batch after the other. All use the same parameters.

    The gradients are added in the order of the micro-batches, whose number is a part of the configuration. So the sum
    has the same bits on any number of cores.

    Args:
        objective: The loss of a batch.
        parameters: The trainable parameters.
        settings: The settings of the run.
        group: The ranks that train together.
        cores: The threads that compute.
    """

    def __init__(
        self,
        objective: Objective,
        parameters: Sequence[nn.Parameter],
        settings: TrainConfig,
        group: Group,
        cores: Cores,
    ):
        super().__init__(objective, parameters, settings, group)
        self.cores = cores

    def of(self, batches: Sequence[LoadedBatch], step: int, tokens: int) -> tuple[list[Tensor], Tensor]:
        """Compute the gradient; see the base class."""

        def compute(seeded: tuple[int, Batch]) -> tuple[tuple[Tensor, ...], Tensor]:
            seed, batch = seeded
            with dropout_seed(seed):
                loss, nll = self.objective(batch)
            gradients = torch.autograd.grad(loss / tokens, self.parameters)
            return gradients, torch.stack([loss.detach(), nll])

        total: list[Tensor] = []
        sums = torch.zeros(2)
        for gradients, losses in self.cores.map(compute, self._seeded(batches, step)):
            if total:
                torch._foreach_add_(total, gradients)
            else:
                total = list(gradients)
            sums = sums + losses
        self.group.all_reduce_gradients(total)
        return total, sums


class GpuGradients(Gradients):
    """Gradients on a GPU. DDP adds those of the ranks while the backward pass still computes others.

    Args:
        objective: The loss of a batch.
        parameters: The trainable parameters.
        settings: The settings of the run.
        group: The ranks that train together.
        device: The device of this rank.
    """

    def __init__(
        self,
        objective: Objective,
        parameters: Sequence[nn.Parameter],
        settings: TrainConfig,
        group: Group,
        device: torch.device,
    ):
        super().__init__(objective, parameters, settings, group)
        self.device = device
        self._parallel = group.parallel(objective)

    def prepare(self, pairs: EncodedPairs) -> None:
        """Let DDP arrange its gradient buckets, which it does after the first backward pass.

        The order of a sum of more than two numbers depends on the buckets. With this pass before the first step, a
        resumed run adds in the same order as an uninterrupted one.
        """
        if self.group.size == 1:
            return
        loss, _ = self._parallel(collate(pairs, np.arange(1)).to(self.device))
        loss.backward()
        self._remove_gradients()

    def of(self, batches: Sequence[LoadedBatch], step: int, tokens: int) -> tuple[list[Tensor], Tensor]:
        """Compute the gradient; see the base class. DDP exchanges gradients in the backward pass of the last batch."""
        sums = torch.zeros(2, device=self.device)
        seeded = self._seeded(batches, step)
        for number, (seed, batch) in enumerate(seeded, 1):
            torch.manual_seed(seed)
            is_last = number == len(seeded)
            with nullcontext() if is_last else self.group.no_sync(self._parallel):
                loss, nll = self._parallel(batch.to(self.device))
                scaled = loss * self.group.size / tokens  # DDP averages over the ranks: this makes it a sum again
                scaled.backward()
            sums = sums + torch.stack([loss.detach(), nll])
        gradients = []
        for parameter in self.parameters:
            assert parameter.grad is not None, "the optimizer counts on a gradient for each parameter"
            gradients.append(parameter.grad)
        self._remove_gradients()  # before the model is used for anything else, which may copy it
        return gradients, sums

    def _remove_gradients(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None


def derived_seed(seed: int, purpose: str, *numbers: int) -> int:
    """Return a seed that is a function of its arguments alone, so that no generator state has to be saved.

    Args:
        seed: `train.seed`.
        purpose: What is drawn: `weights` or `dropout`.
        numbers: What distinguishes this draw from others with the same purpose, such as step and micro-batch.
    """
    text = ":".join(map(str, (seed, purpose, *numbers)))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=7).digest(), "little")
