"""Defaults for fine-tuning: a run that starts from another model, which sets the shape."""

import math
from collections.abc import Collection

from mtcli.config.build import fill
from mtcli.config.presets import PRESETS
from mtcli.config.schema import MAX_STEPS, SHAPE, Config, value_of
from mtcli.training.defaults.from_scratch import MIN_DROPOUT, PAPER_FACTOR, choose_micro_batches
from mtcli.training.defaults.intervals import choose_intervals
from mtcli.training.defaults.speed import affordable_steps, num_steps, round_steps, tokens_per_step
from mtcli.training.defaults.workload import Workload

LR_SHARE = 0.1
"""Peak learning rate of fine-tuning, as a share of the preset's: 7e-5 for a model as wide as `base`.

Hugging Face fine-tunes opus-mt-en-fr, which is as wide, with 2e-5 and AdamW in its translation tutorial. In a
measurement with the demo's model (docs/training.md), a third of the preset's learning rate was better and forgot more.
"""

MAX_WARMUP_STEPS = 100
MAX_WARMUP_SHARE = 0.1
"""A warm-up has at most this many steps, and at most this share of all steps. It only has to fill Adam's second moment,
which is a mean over about 50 steps with the paper's β₂; the weights need no warm-up."""

PATIENCE = 5
"""Validations without a better score before the cool-down: half as many as in training from scratch. A small corpus is
learned within a few epochs, and then overfitted."""

EPOCHS = 10
MIN_STEPS = 300
"""Epochs, and steps at least, of fine-tuning without a budget; early stopping may end it sooner. Guesses."""

STEPS_PER_EPOCH = 50
MIN_BATCH_TOKENS = {"cpu": 512, "cuda": 2048, "mps": 2048}
"""Batches are so small that an epoch has `STEPS_PER_EPOCH` steps, but not smaller than `MIN_BATCH_TOKENS`; guesses."""


def choose_for_fine_tuning(
    config: Config, unset: Collection[str], workload: Workload, existing_config: Config | None
) -> Config:
    """Choose a value for every unset setting. Later choices depend on earlier ones.

    Args:
        config: The configuration, with some settings unset.
        unset: Their names.
        workload: The corpus and the machine.
        existing_config: The configuration of the run that is resumed. It has the shape if the model is not named again.
    """
    config = with_shape_of(existing_config, config, unset)
    config = fill(config, unset, {"train.batch_tokens": choose_batch_tokens(config, workload, STEPS_PER_EPOCH)})
    config = fill(config, unset, {"train.micro_batches": choose_micro_batches(config, workload)})
    if MAX_STEPS in unset:
        config = fill(config, unset, {MAX_STEPS: _choose_max_steps(config, workload)})
    lr = PAPER_FACTOR if config.train.schedule == "paper" else PRESETS[config.preset]["train"]["lr"]
    choices = {
        "model.dropout": MIN_DROPOUT,
        "train.lr": float(f"{LR_SHARE * lr:.2g}"),
        "train.warmup_steps": choose_warmup_steps(config, workload),
        "train.patience": PATIENCE,
        **choose_intervals(config, workload),
    }
    return fill(config, unset, choices)


def with_shape_of(existing_config: Config | None, config: Config, unset: Collection[str]) -> Config:
    """Return a configuration with the unset settings of the shape as in the run that is resumed, if one is."""
    if existing_config is None:
        return config
    return fill(config, unset, {name: value_of(existing_config, name) for name in ("preset", *SHAPE)})


def choose_batch_tokens(config: Config, workload: Workload, steps_per_epoch: int) -> int:
    """Return the tokens per batch: a power of two, at most the corpus size's, and less if the corpus is small."""
    step_tokens = workload.epoch_tokens / steps_per_epoch
    batch_tokens = max(step_tokens / (config.train.accumulate * workload.ranks), 1.0)
    power_of_two: int = 2 ** int(math.log2(batch_tokens))
    return min(max(power_of_two, MIN_BATCH_TOKENS[workload.device]), workload.batch_tokens)


def _choose_max_steps(config: Config, workload: Workload) -> int:
    """Return the steps of fine-tuning without a budget."""
    steps = EPOCHS * workload.epoch_tokens / tokens_per_step(config, workload)
    return round_steps(min(max(steps, MIN_STEPS), affordable_steps(config, workload)))


def choose_warmup_steps(config: Config, workload: Workload) -> int:
    """Return the steps of the warm-up. With the paper's schedule, a short one would raise the peak learning rate."""
    if config.train.schedule == "paper":
        return int(PRESETS[config.preset]["train"]["warmup_steps"])
    if config.train.time:
        return MAX_WARMUP_STEPS  # at most: the run measures later how many it can afford
    return min(MAX_WARMUP_STEPS, round_steps(MAX_WARMUP_SHARE * num_steps(config, workload)))
