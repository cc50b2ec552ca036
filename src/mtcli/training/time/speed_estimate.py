"""An estimate of the training speed, from a few real steps of a model that is thrown away."""

import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from mtcli.config.build import filled
from mtcli.config.schema import Config
from mtcli.corpus.cache.prepare import Prepared
from mtcli.report.plan import Plan
from mtcli.runtime.device import UNKNOWN_GPU, describe, gpu_of
from mtcli.runtime.distributed import Group
from mtcli.runtime.wording import counted
from mtcli.training.defaults.speed import cost_share, seconds_per_token
from mtcli.training.time.timed_parts import PartDuration
from mtcli.training.trainer import LOG_EVERY, Trainer

NUM_UNTIMED_STEPS = 2
"""Steps before the timed ones: the first steps are slower."""

MAX_TIMED_STEPS = 20
MAX_TIMED_SECONDS = 1.0
"""Timing ends after this many steps or, after a whole step, this many seconds."""

MAX_STEP_SECONDS = 0.5
"""If a step probably takes longer than this, a smaller batch is timed."""

MIN_BATCH_TOKENS = 64
"""Tokens of the smallest batch that is timed."""

LAYER_SECONDS = 0.002
"""About the least time that a step takes per layer, to launch its operations, however small the batch is."""


@dataclass(frozen=True)
class SpeedEstimate:
    """The speed of training."""

    steps_per_second: float
    method: str
    """How it was found, in words."""


def estimate_speed(config: Config, data: Prepared, device: torch.device, plan: Plan) -> SpeedEstimate:
    """Time some steps of training. If they are slow, time two smaller batches. If they are too slow, only estimate.

    The two sizes separate the time per token from that of Adam, which is the same for every batch and large in a model
    with a large vocabulary.

    Args:
        config: The complete configuration.
        data: The prepared data.
        device: The device to train on.
        plan: The plan of the run.

    Raises:
        StorageError: There is too little memory for the model or its batches.
    """
    plan.check_memory(config)
    rows, num_src, num_tgt = plan.largest
    batch_tokens = min(config.train.batch_tokens, rows * max(num_src, num_tgt))
    step_tokens = batch_tokens * config.train.accumulate
    share = cost_share(config.model, plan.tgt_vocab, config.train.freeze)
    gpu = gpu_of(device) if device.type == "cuda" else UNKNOWN_GPU
    token_seconds = seconds_per_token(config.model, plan.tgt_vocab, device.type, gpu, share)
    launch_seconds = LAYER_SECONDS * (config.model.num_encoder_layers + config.model.num_decoder_layers)
    where = describe(device)
    if MIN_BATCH_TOKENS * token_seconds + launch_seconds > MAX_STEP_SECONDS:
        seconds = step_tokens * token_seconds + config.train.accumulate * launch_seconds
        return SpeedEstimate(1 / seconds, f"an estimate from the number of parameters, too many to try on {where}")
    timed_tokens = min(batch_tokens, max(MIN_BATCH_TOKENS, int(MAX_STEP_SECONDS / token_seconds)))
    if step_tokens <= timed_tokens:
        steps, seconds = _time_steps(config, data, device)
        return SpeedEstimate(steps / seconds, f"{counted(steps, 'step')} of a throwaway model on {where}")
    steps, duration = _time_two_sizes(config, data, device, timed_tokens)
    # Adam takes as long for a small batch: that time must not be multiplied.
    step_seconds = duration.fixed_seconds + duration.seconds_per_item * step_tokens
    method = f"{counted(steps, 'step')} of a throwaway model with {timed_tokens:,} tokens each on {where}"
    return SpeedEstimate(1 / step_seconds, method)


def _time_two_sizes(
    config: Config, data: Prepared, device: torch.device, batch_tokens: int
) -> tuple[int, PartDuration]:
    """Time steps with batches of this size and of half of it.

    Returns:
        The number of steps with the larger batches, and the duration of a step by its number of tokens.
    """
    duration = PartDuration()
    steps = 0
    for tokens in sorted({max(MIN_BATCH_TOKENS, batch_tokens // 2), batch_tokens}):
        smaller = filled(config, {"train.batch_tokens": tokens, "train.accumulate": 1})
        steps, seconds = _time_steps(smaller, data, device)
        duration.add(tokens, seconds / steps)
    return steps, duration


def _time_steps(config: Config, data: Prepared, device: torch.device) -> tuple[int, float]:
    """Take some steps, and return how many were timed and how many seconds they took."""
    assert NUM_UNTIMED_STEPS + MAX_TIMED_STEPS < LOG_EVERY  # so that no event is recorded
    with TemporaryDirectory(prefix="mtcli-") as folder:
        trainer = Trainer(config, Path(folder), device, data, time.monotonic(), Group())
        with closing(trainer.batches()) as batches:
            for _ in range(NUM_UNTIMED_STEPS):
                trainer.step(batches)
            _wait_for(device)
            started = time.monotonic()
            steps = 0
            seconds = 0.0
            while steps < MAX_TIMED_STEPS and seconds < MAX_TIMED_SECONDS:
                trainer.step(batches)
                _wait_for(device)
                steps += 1
                seconds = time.monotonic() - started
    return steps, seconds


def _wait_for(device: torch.device) -> None:
    """Wait until a GPU has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
