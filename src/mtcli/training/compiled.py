"""Encoder and decoder compiled with `torch.compile`, for training on a GPU (`train.compile`).

The compiled function fuses the operations between matrix products into few kernels. It draws other random numbers for
dropout than the model itself. One graph serves all shapes, and it is compiled before the first step: so the time of a
step is never that of the compiler, and a resumed run computes with the same graph as an uninterrupted one.

Shapes: B sentences, S source length, T target length, D d_model.
"""

import logging
import time
import warnings
from collections.abc import Callable
from importlib.util import find_spec

import torch
from torch import Tensor

from mtcli.config.schema import TrainConfig
from mtcli.errors import UsageError
from mtcli.model.transformer import Transformer
from mtcli.runtime.progress import clock
from mtcli.training.gradients import Objective

log = logging.getLogger(__name__)

BACKEND: str | Callable[..., object] = "inductor"
"""The compiler of `torch.compile`. Tests have one that needs no C++ compiler."""

MIN_SECONDS = 15 * 60
MIN_STEPS = 10_000
"""With `auto`, runs with a smaller budget are not compiled.

Compiling takes about a minute. It is predicted to make training a quarter faster, which pays after five minutes.
"""

TRITON_CAPABILITY = (7, 0)
"""The oldest compute capability that Triton supports, that of V100."""

EXAMPLE_WIDTH = 32
"""Width of the batch that is compiled: Inductor chooses its kernels for the size of this batch."""


def should_compile(settings: TrainConfig, device: torch.device) -> bool:
    """Return True if `train.compile` asks to compile on this device.

    With `train.deterministic`, `auto` does not: Inductor may choose its kernels by their measured speed, and the
    compiler may fail in one process and not in another.
    """
    if settings.compile != "auto":
        return settings.compile == "on"
    if settings.deterministic:
        return False
    has_time = settings.time is None or settings.time >= MIN_SECONDS
    has_steps = settings.max_steps is None or settings.max_steps * settings.accumulate >= MIN_STEPS
    if device.type != "cuda" or not (has_time and has_steps) or find_spec("triton") is None:
        return False
    return torch.cuda.get_device_capability(device) >= TRITON_CAPABILITY


class CompiledBody:
    """The hidden states of the decoder, with one compiled graph for training.

    The model itself computes what would need a second graph: evaluation, and the rare batches with a size of 1 or with
    positions beyond the table. Its twin is `Transformer.hidden_states`.

    Args:
        model: The model.
    """

    def __init__(self, model: Transformer):
        self.model = model
        self._compiled = torch.compile(model.hidden_states, dynamic=True, fullgraph=True, backend=BACKEND)

    def __call__(self, src: Tensor, tgt: Tensor) -> Tensor:
        """Return hidden states (B, T, D), given `src` (B, S) and `tgt` (B, T), shifted right."""
        hidden = self._compiled if self._has_graph(src, tgt) else self.model.hidden_states
        return hidden(src, tgt)

    def _has_graph(self, src: Tensor, tgt: Tensor) -> bool:
        sizes = (*src.shape, tgt.size(1))
        num_positions = min(len(self.model.src_embedding.table), len(self.model.tgt_embedding.table))
        return self.model.training and min(sizes) > 1 and max(sizes[1:]) <= num_positions


def compile_objective(objective: Objective, settings: TrainConfig, device: torch.device) -> None:
    """Let an objective use a compiled encoder and decoder, if `train.compile` asks for it.

    Args:
        objective: The objective. It stays as it is if the compiler fails and the setting is `auto`.
        settings: The settings of the run.
        device: The device of the model.

    Raises:
        UsageError: The setting is `on`, and the compiler fails.
    """
    if not should_compile(settings, device):
        return
    log.info("compiling the model (train.compile), which takes a minute or more")
    started = time.monotonic()
    body = CompiledBody(objective.model)
    try:
        _take_example_pass(body, objective, settings.batch_tokens, device)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # of Dynamo, Inductor, Triton, or the C compiler
        reason = _reason(error)
        if settings.compile == "on":
            raise UsageError(
                f"train.compile = on: PyTorch cannot compile the model ({reason}); "
                "a GPU needs Triton and a C compiler, a CPU a C++ compiler; or give --set train.compile=off"
            ) from error
        log.warning(
            "PyTorch cannot compile the model, so training is slower (%s); --set train.compile=off omits the attempt",
            reason,
        )
        return
    objective.hidden_states = body
    log.info("compiled the model in %s", clock(time.monotonic() - started))


def _take_example_pass(body: CompiledBody, objective: Objective, batch_tokens: int, device: torch.device) -> None:
    """Compile the forward and the backward pass, with a batch of the usual size. No gradient is kept.

    The three sizes differ, because the compiler takes equal ones for the same number.
    """
    model = objective.model
    model.train()
    B = max(EXAMPLE_WIDTH + 2, batch_tokens // EXAMPLE_WIDTH)
    src = torch.ones(B, EXAMPLE_WIDTH - 1, dtype=torch.long, device=device)
    tgt = torch.ones(B, EXAMPLE_WIDTH, dtype=torch.long, device=device)
    trainable = [p for p in model.parameters() if p.requires_grad]
    with warnings.catch_warnings():
        # `train.precision = fp32` means float32, so TF32 stays disabled.
        warnings.filterwarnings("ignore", message=".*TensorFloat32")
        with objective.autocast(device):
            hidden = body(src, tgt)
        torch.autograd.grad(hidden.float().sum(), trainable, allow_unused=True)


def _reason(error: Exception) -> str:
    """Return the first line of the message of an error, or of the compiler's error inside of it."""
    cause = getattr(error, "inner_exception", error)
    lines = str(cause).strip().splitlines()
    return lines[0] if lines else type(cause).__name__
