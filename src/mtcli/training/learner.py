"""The model that is trained, its optimizer, and one optimizer step."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mtcli.config.schema import Config
from mtcli.corpus.batching import PlannedBatch
from mtcli.corpus.cache.encoded_pairs import EncodedPairs
from mtcli.errors import DivergedError
from mtcli.model.freezing import freeze_parameters
from mtcli.model.precision import uses_bf16
from mtcli.model.transformer import Transformer
from mtcli.report.memory_estimate import check_model_memory
from mtcli.runtime.device import cores_for
from mtcli.runtime.distributed import Group
from mtcli.storage import model_file
from mtcli.storage.model_file import ModelInfo
from mtcli.training.compiled import compile_objective, should_compile
from mtcli.training.gradients import CoreGradients, GpuGradients, Gradients, Objective, derived_seed
from mtcli.training.loading import LoadedBatch
from mtcli.training.optimizer import Adam, clip_norm_


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
        measured: (loss, nll, gradient norm) as in `StepResult`, on the device.
    """

    def __init__(self, number: int, batches: Sequence[PlannedBatch], measured: Tensor):
        self.number = number
        self.batches = batches
        self._measured = measured
        self._copied: torch.cuda.Event | None = None
        if measured.is_cuda:
            self._measured = measured.to("cpu", non_blocking=True)
            self._copied = torch.cuda.current_stream(measured.device).record_event()

    def read(self) -> StepResult:
        """Return the figures, once the device has computed them.

        Raises:
            DivergedError: The loss or the gradient is not finite.
        """
        if self._copied:
            self._copied.synchronize()
        loss, nll, grad_norm = self._measured.tolist()
        tokens = sum(batch.tokens for batch in self.batches)
        if not (math.isfinite(loss) and math.isfinite(grad_norm)):
            rows = ", ".join(str(row) for batch in self.batches for row in batch.origins[:5])
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

    def __init__(
        self,
        config: Config,
        info: ModelInfo,
        pairs: EncodedPairs,
        device: torch.device,
        group: Group,
    ):
        check_model_memory(info, device, config.train.freeze)
        self.settings = config.train
        self.pairs = pairs
        self.device = device
        self.group = group
        torch.manual_seed(derived_seed(config.train.seed, "weights"))
        self.model: Transformer = model_file.build_model(info).to(device)
        freeze_parameters(self.model, config.train.freeze)  # first: optimizer and DDP use what is trainable now
        self.cores = cores_for(device)
        self.optimizer = Adam(config.train, self.model.named_parameters(), self.cores)
        self.objective = Objective(self.model, config.train.label_smoothing, uses_bf16(config.train, device))
        parameters = self.optimizer.parameters
        self.gradients: Gradients
        if device.type != "cpu" or should_compile(config.train, device):  # a graph is used by one thread
            self.gradients = GpuGradients(self.objective, parameters, config.train, group, device)
        else:
            self.gradients = CoreGradients(self.objective, parameters, config.train, group, self.cores)
        self._has_diverged = torch.zeros((), device=device)
        """1 after a step whose loss or gradient is not finite, otherwise 0."""

    def prepare(self) -> None:
        """Compile the model if `train.compile` asks for it, and what else precedes the first step, on all ranks.

        DDP wraps the objective, and the compiled function is inside of it. So the gradients of encoder and decoder are
        exchanged together, after their backward pass.

        Raises:
            UsageError: The setting is `on`, and the compiler fails.
        """
        compile_objective(self.objective, self.settings, self.device)
        self.gradients.prepare(self.pairs)

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
        planned = [each.planned for each in batches]
        tokens = sum(batch.tokens for batch in planned)
        self.model.train()
        gradients, sums = self.gradients.of(batches, number, tokens)
        norm = clip_norm_(gradients, self.settings.clip_norm or math.inf, self.cores)
        measured = torch.cat([self.group.all_reduce_sum(sums), norm[None]])
        is_finite = measured.isfinite().all()
        self._has_diverged = torch.maximum(self._has_diverged, (~is_finite).float())
        self.optimizer.step(gradients, learning_rate, skipped=self._has_diverged)
        return PendingStep(number, planned, measured)


def diverged(step: int, reason: str) -> DivergedError:
    """Return the error that ends a training whose numbers are no longer finite."""
    remedy = "the last checkpoint is untouched; start over with --overwrite and a lower --set train.lr"
    return DivergedError(f"step {step:,}: {reason}; {remedy}")
