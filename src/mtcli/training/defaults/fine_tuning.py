"""Defaults for a run that starts from another model, which sets the shape: fine-tuning, or a child of a parent."""

import math
from collections.abc import Collection
from dataclasses import dataclass

from mtcli.config.build import fill
from mtcli.config.presets import PRESETS
from mtcli.config.schema import LENGTH_PENALTY, MAX_STEPS, SHAPE, Config, value_of
from mtcli.training.defaults.from_scratch import (
    MIN_DROPOUT,
    PAPER_FACTOR,
    choose_dropout,
    choose_length_penalty,
    choose_micro_batches,
)
from mtcli.training.defaults.intervals import choose_intervals
from mtcli.training.defaults.speed import affordable_steps, num_steps, round_steps, tokens_per_step
from mtcli.training.defaults.workload import Workload


@dataclass(frozen=True)
class _Start:
    """How a run that starts from another model is trained."""

    lr_share: float
    """Peak learning rate as a share of the preset's."""
    steps_per_epoch: int
    """Batches are so small that an epoch has so many steps, but not smaller than `MIN_BATCH_TOKENS`."""
    min_steps: int
    """Steps of a run without a budget at least."""
    patience: int
    """Validations without a better score before the cool-down."""


FINE_TUNING = _Start(lr_share=0.1, steps_per_epoch=50, min_steps=300, patience=5)
"""The model continues with its languages.

Its learning rate is 7e-5 for a model as wide as `base`. Hugging Face fine-tunes opus-mt-en-fr, which is as wide, with
2e-5 and AdamW in its translation tutorial. In a measurement with the demo's model (docs/training.md), a third of the
preset's learning rate was better and forgot more. The patience is half of that in training from scratch: a small corpus
is learned within a few epochs, and then overfitted. The numbers of steps are guesses.
"""

TRANSFER = _Start(lr_share=2 / 3, steps_per_epoch=25, min_steps=1000, patience=10)
"""A child learns other languages than its parent.

The values were measured with `tiny`, a parent of English and German, and children of English and Spanish
(docs/small-languages.md). A child has more to learn than a fine-tuned model and nothing to remember: its learning rate
is 2e-3 for `tiny`; other shares have not been measured. 3,000 short pairs have batches of 1,024 tokens, and gain little
after 1,000 steps.
"""

CORRECTING = _Start(lr_share=1 / 3, steps_per_epoch=15, min_steps=100, patience=5)
"""The model learns corrections, and is reminded of other pairs.

With `tiny` and a tenth of the preset's learning rate, a quarter of the corrections was given after five epochs; with a
third of it, more than half. Larger batches learned more for the same loss of score (docs/results.md, "Corrections").
There is no dropout: the corrections are to be learned by heart.
"""

CORRECTING_EPOCHS = 30
"""Epochs of learning corrections without a budget. After half of them, fewer corrections were given, and the score of
the validation pairs had not recovered (see there)."""

EPOCHS = 10
"""Epochs of fine-tuning without a budget; early stopping may end it sooner. A guess."""

MIN_BATCH_TOKENS = {"cpu": 512, "cuda": 2048, "mps": 2048}
"""Guesses."""

MAX_WARMUP_STEPS = 100
MAX_WARMUP_SHARE = 0.1
"""A warm-up has at most this many steps, and at most this share of all steps. It only has to fill Adam's second moment,
which is a mean over about 50 steps with the paper's β₂; the weights need no warm-up."""


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
    start = TRANSFER if workload.has_parent else CORRECTING if workload.corrections else FINE_TUNING
    if existing_config is not None:
        config = fill(config, unset, {name: value_of(existing_config, name) for name in ("preset", *SHAPE)})
    config = fill(config, unset, {"train.batch_tokens": _choose_batch_tokens(config, workload, start)})
    config = fill(config, unset, {"train.micro_batches": choose_micro_batches(config, workload)})
    if MAX_STEPS in unset:
        config = fill(config, unset, {MAX_STEPS: _choose_max_steps(config, workload, start)})
    dropout = choose_dropout(config, workload) if workload.has_parent else MIN_DROPOUT
    lr = PAPER_FACTOR if config.train.schedule == "paper" else PRESETS[config.preset]["train"]["lr"]
    choices = {
        "model.dropout": 0.0 if start is CORRECTING else dropout,
        "train.lr": float(f"{start.lr_share * lr:.2g}"),
        "train.warmup_steps": _choose_warmup_steps(config, workload),
        "train.patience": start.patience,
        LENGTH_PENALTY: choose_length_penalty(config, workload),
        **choose_intervals(config, workload),
    }
    return fill(config, unset, choices)


def _choose_batch_tokens(config: Config, workload: Workload, start: _Start) -> int:
    """Return the tokens per batch: a power of two, at most the corpus size's, and less if the corpus is small."""
    step_tokens = workload.epoch_tokens / start.steps_per_epoch
    batch_tokens = max(step_tokens / (config.train.accumulate * workload.ranks), 1.0)
    power_of_two: int = 2 ** int(math.log2(batch_tokens))
    return min(max(power_of_two, MIN_BATCH_TOKENS[workload.device]), workload.batch_tokens)


def _choose_max_steps(config: Config, workload: Workload, start: _Start) -> int:
    """Return the steps without a budget: a number of epochs, or as many as are affordable."""
    epochs = CORRECTING_EPOCHS if workload.corrections else EPOCHS
    if workload.has_parent:
        epochs = workload.size.epochs
    steps = epochs * workload.epoch_tokens / tokens_per_step(config, workload)
    return round_steps(min(max(steps, start.min_steps), affordable_steps(config, workload)))


def _choose_warmup_steps(config: Config, workload: Workload) -> int:
    """Return the steps of the warm-up. With the paper's schedule, a short one would raise the peak learning rate."""
    if config.train.schedule == "paper":
        return int(PRESETS[config.preset]["train"]["warmup_steps"])
    if config.train.time:
        return MAX_WARMUP_STEPS  # at most: the run measures later how many it can afford
    return min(MAX_WARMUP_STEPS, round_steps(MAX_WARMUP_SHARE * num_steps(config, workload)))
