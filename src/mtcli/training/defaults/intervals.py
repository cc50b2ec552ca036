"""Defaults of the steps between checkpoints and between validations."""

from mtcli.config.schema import Config
from mtcli.training.defaults.speed import matrix_weights, num_steps, round_steps, steps_per_second, tokens_per_step
from mtcli.training.defaults.workload import Workload
from mtcli.training.time.budget import (
    GPU_SHARE_FACTOR,
    MAX_VALIDATIONS,
    MIN_VALIDATIONS,
    SAVE_SECONDS,
    SAVE_SHARE,
    SAVES,
    TOKENS_PER_PAIR,
    VALIDATION_SHARE,
)

TOKENS_PER_VALIDATION = 430_000
"""Target tokens between validations. tiny trains on as many in a minute on two cores."""

MAX_VALIDATION_SHARE = 0.2
"""Share of a budget of steps that all validations together may cost on a CPU, counted in tokens (`TOKENS_PER_PAIR`)."""

SPEED_MARGIN = 3.0
"""On CUDA, training may be this many times as fast as assumed: validations and saves stay within their share."""

MIN_VALIDATIONS_SECONDS = 20.0
MIN_SAVES_SECONDS = 2.0
"""On CUDA, all validations together may always take this long, and all saves. In a run of a few minutes, a good choice
of the model is worth more than this time."""

GPU_VALIDATION_SECONDS = 1.0
GPU_PAIR_SECONDS = 0.002
"""Assumed duration of a validation on CUDA: a fixed part, and a part per pair. A prediction.

A step of greedy search has 124 launches with base, a sentence has 30 to 100 steps, and the scores take 0.25 ms per pair
on a core.
"""

GPU_SAVE_SECONDS = 0.03
GPU_SAVE_BYTES_PER_SECOND = 5e9
"""Assumed duration of a save on CUDA, as far as it stops training: a fixed part, and the copy of the tensors to the
host, with 12 bytes per weight. A prediction."""


def choose_intervals(config: Config, workload: Workload) -> dict[str, int]:
    """Return `train.save_every` and `train.valid_every`, in steps. The second is a multiple of the first.

    They are a function of the configuration and the workload, so a run with a budget of steps can be repeated. A run
    with a time budget adapts them to the speed that it measures, unless they are set (`Budget.adapts`).
    """
    save_every = _choose_save_every(config, workload)
    return {
        "train.save_every": save_every,
        "train.valid_every": _choose_valid_every(config, workload, save_every),
    }


def _choose_save_every(config: Config, workload: Workload) -> int:
    steps = num_steps(config, workload)
    speed = steps_per_second(config, workload, config.model)
    save_every = min(steps / SAVES, SAVE_SECONDS * speed)
    if workload.device == "cuda":
        num_bytes = 12 * matrix_weights(config.model, workload.tgt_vocab)
        save_seconds = GPU_SAVE_SECONDS + num_bytes / GPU_SAVE_BYTES_PER_SECOND
        affordable_seconds = max(MIN_SAVES_SECONDS, _affordable_seconds(SAVE_SHARE, steps / speed))
        save_every = max(save_every, steps * save_seconds / affordable_seconds)
    return round_steps(save_every)


def _choose_valid_every(config: Config, workload: Workload, save_every: int) -> int:
    steps = num_steps(config, workload)
    tokens = steps * tokens_per_step(config, workload)
    validations = min(max(tokens / TOKENS_PER_VALIDATION, MIN_VALIDATIONS), MAX_VALIDATIONS)
    if workload.device == "cuda":
        seconds = steps / steps_per_second(config, workload, config.model)
        validation_seconds = GPU_VALIDATION_SECONDS + GPU_PAIR_SECONDS * workload.valid
        affordable_seconds = max(MIN_VALIDATIONS_SECONDS, _affordable_seconds(VALIDATION_SHARE, seconds))
        validations = max(min(validations, affordable_seconds / validation_seconds), 1)
    elif not config.train.time:  # a run with a time budget measures what it can afford
        affordable = MAX_VALIDATION_SHARE * tokens / (TOKENS_PER_PAIR * max(workload.valid, 1))
        validations = max(min(validations, affordable), 1)
    return save_every * max(1, round(steps / validations / save_every))


def _affordable_seconds(share: float, seconds: float) -> float:
    """Return how long the validations, or the saves, of a run on CUDA may take together.

    Args:
        share: Their share of the time on a CPU.
        seconds: The estimated duration of the run.
    """
    return GPU_SHARE_FACTOR * share * seconds / SPEED_MARGIN
