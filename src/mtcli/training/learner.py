"""The model that is trained, its optimizer, and one optimizer step."""

import hashlib
import math
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from mtcli.config.schema import Config
from mtcli.data.batching import PlannedBatch, collate
from mtcli.data.encoded_pairs import EncodedPairs
from mtcli.errors import DivergedError
from mtcli.nn.freezing import freeze_parameters
from mtcli.nn.precision import uses_bf16
from mtcli.nn.transformer import Transformer
from mtcli.report.memory_estimate import check_model_memory
from mtcli.runtime.distributed import Group
from mtcli.storage import model_file
from mtcli.storage.model_file import ModelInfo
from mtcli.training.compiled import compile_objective
from mtcli.training.loading import LoadedBatch
from mtcli.training.objective import Objective
from mtcli.training.optimizer import build_optimizer


@dataclass(frozen=True)
class StepResult:
    """The figures of one optimizer step, over the batches of all ranks."""

    loss: float
    """The training loss in nats, summed over the target tokens."""
    nll: float
    """The negative log-likelihood in nats, summed over the target tokens."""
    tokens: int
    """Target tokens, `</s>` included."""
    grad_norm: float
    """Norm of the gradient of the trainable parameters, before clipping."""


class PendingStep:
    """An optimizer step whose figures a GPU may not have computed yet.

    The figures are copied to the host behind the work of this step. So reading them does not wait for later steps.

    Args:
        number: Number of the step, from 1.
        batches: The batches of all ranks.
        figures: (loss, nll, gradient norm) as in `StepResult`, on the device.
    """

    def __init__(self, number: int, batches: Sequence[PlannedBatch], figures: Tensor):
        self.number = number
        self.batches = batches
        self._figures = figures
        self._copied: torch.cuda.Event | None = None
        if figures.is_cuda:
            self._figures = figures.to("cpu", non_blocking=True)
            self._copied = torch.cuda.current_stream(figures.device).record_event()

    def read(self) -> StepResult:
        """Return the figures, once the device has computed them.

        Raises:
            DivergedError: The loss or the gradient is not finite.
        """
        if self._copied:
            self._copied.synchronize()
        loss, nll, grad_norm = self._figures.tolist()
        tokens = sum(batch.tokens for batch in self.batches)
        if not (math.isfinite(loss) and math.isfinite(grad_norm)):
            rows = ", ".join(str(row) for batch in self.batches for row in batch.rows[:5])
            raise diverged(
                self.number,
                f"the loss is {loss / tokens} and the gradient's norm {grad_norm}, on the training pairs {rows} …",
            )
        return StepResult(loss, nll, tokens, grad_norm)


class Learner:
    """The model and its optimizer.

    Args:
        config: The configuration of the run.
        info: Shape of the model.
        pairs: The training pairs.
        device: The device of this rank.
        group: The ranks that train together.

    Raises:
        StorageError: There is too little memory for such a model.
    """

    def __init__(self, config: Config, info: ModelInfo, pairs: EncodedPairs, device: torch.device, group: Group):
        check_model_memory(info, device, config.train.freeze)
        self.settings = config.train
        self.pairs = pairs
        self.device = device
        self.group = group
        torch.manual_seed(derived_seed(config.train.seed, "weights"))
        self.model: Transformer = model_file.build_model(info).to(device)
        freeze_parameters(self.model, config.train.freeze)  # first: optimizer and DDP use what is trainable now
        self.optimizer = build_optimizer(config.train, self.model.parameters())
        self.objective = Objective(self.model, config.train.label_smoothing, uses_bf16(config.train, device))
        self._parallel = group.parallel(self.objective)
        self._has_diverged = torch.zeros((), device=device)
        """1 after a step whose loss or gradient is not finite, otherwise 0."""

    def compile(self) -> None:
        """Compile the model if `train.compile` asks for it. All ranks must call this before the first step.

        DDP wraps the objective, and the compiled function is inside of it. So the gradients of encoder and decoder are
        exchanged together, after their backward pass.

        Raises:
            UsageError: The setting is `on`, and the compiler fails.
        """
        compile_objective(self.objective, self.settings, self.device)

    def settle_gradient_buckets(self) -> None:
        """Let DDP arrange its gradient buckets, which it does after the first backward pass.

        The order of a sum of more than two numbers depends on the buckets. With this pass before the first step, a
        resumed run adds in the same order as an uninterrupted one. All ranks must call this.
        """
        if self.group.size == 1:
            return
        batch = collate(self.pairs, np.arange(1)).to(self.device)
        loss, _ = self._parallel(batch)
        loss.backward()
        self.optimizer.zero_grad()

    def step(self, batches: Sequence[LoadedBatch], number: int, learning_rate: float) -> PendingStep:
        """Take one optimizer step. The loss is divided by the number of target tokens of all batches together.

        The ranks take the batches in turn. So the step is the same for any number of ranks that share these batches.
        If the loss or the gradient is not finite, neither this step nor a later one changes the weights, and reading
        the figures raises `DivergedError`. The host does not wait for a GPU.

        Args:
            batches: The batches of all ranks.
            number: Number of the step, from 1.
            learning_rate: Learning rate of this step.
        """
        for param_group in self.optimizer.param_groups:
            param_group["lr"] = learning_rate
        planned = [each.planned for each in batches]
        sums = self._accumulate_gradient(batches, number, tokens=sum(batch.tokens for batch in planned))
        max_norm = self.settings.clip_norm or math.inf
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), max_norm)
        figures = torch.cat([self.group.all_reduce_sum(sums), norm[None]])
        is_finite = figures.isfinite().all()
        self._has_diverged = torch.maximum(self._has_diverged, (~is_finite).float())
        # As `torch.amp.GradScaler` does: the fused optimizer changes nothing where this is 1.
        self.optimizer.found_inf = self._has_diverged  # type: ignore[attr-defined]
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return PendingStep(number, planned, figures)

    def _accumulate_gradient(self, batches: Sequence[LoadedBatch], number: int, tokens: int) -> Tensor:
        """Run the forward and backward passes of this rank's batches. DDP exchanges gradients in the last one.

        Returns:
            The loss and the negative log-likelihood in nats, (2,), summed over this rank's target tokens.
        """
        self.model.train()
        loss_sum = torch.zeros((), device=self.device)
        nll_sum = torch.zeros((), device=self.device)
        own = [(index, each.batch) for index, each in enumerate(batches) if each.batch is not None]
        for index, batch in own:
            torch.manual_seed(derived_seed(self.settings.seed, "dropout", number - 1, index))
            is_last = index == own[-1][0]
            with nullcontext() if is_last else self.group.no_sync(self._parallel):
                loss, nll = self._parallel(batch.to(self.device))
                scaled = loss * self.group.size / tokens  # DDP averages over the ranks: this makes it a sum again
                scaled.backward()
            loss_sum = loss_sum + loss.detach()
            nll_sum = nll_sum + nll
        return torch.stack([loss_sum, nll_sum])


def diverged(step: int, reason: str) -> DivergedError:
    """Return the error that ends a training whose numbers are no longer finite."""
    remedy = "the last checkpoint is untouched; start over with --overwrite and a lower --set train.lr"
    return DivergedError(f"step {step:,}: {reason}; {remedy}")


def derived_seed(seed: int, purpose: str, *numbers: int) -> int:
    """Return a seed that is a function of its arguments alone, so that no generator state has to be saved.

    Args:
        seed: `train.seed`.
        purpose: What is drawn: `weights` or `dropout`.
        numbers: What distinguishes this draw from others with the same purpose, such as step and batch.
    """
    text = ":".join(map(str, (seed, purpose, *numbers)))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=7).digest(), "little")
