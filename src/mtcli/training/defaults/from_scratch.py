"""Defaults for a new model: preset, batches, steps, dropout, learning rate and warm-up."""

import math
from collections.abc import Collection
from typing import Any, get_args

from mtcli.config.build import fill
from mtcli.config.presets import PRESETS, Preset
from mtcli.config.schema import LENGTH_PENALTY, MAX_STEPS, SHAPE, Config
from mtcli.training.defaults.intervals import choose_intervals
from mtcli.training.defaults.speed import (
    SECONDS_WITHOUT_BUDGET,
    affordable_steps,
    num_epochs,
    num_steps,
    preset_model,
    preset_weights,
    round_steps,
    steps_per_second,
    tokens_per_step,
)
from mtcli.training.defaults.workload import CORPUS_SIZES, PAPER_LENGTH_PENALTY, Workload
from mtcli.training.time.budget import WARMUP_SHARE

TOKENS_PER_WEIGHT = 2
"""Target tokens of training per weight from which on a preset is worth its size; a guess.

tiny had 3 when 20 minutes were enough for Multi30K, base had 50 in the paper. For the weights, see `preset_weights`.
"""

MIN_STEPS = 5000
"""Steps of a run without a budget at least: 40 epochs of a few hundred pairs would be too few steps."""

MIN_DROPOUT = 0.1
"""The paper's dropout."""

MANY_EPOCHS = 20
FEW_EPOCHS = 10
"""From `MANY_EPOCHS` on, dropout is that of the corpus size; below, it is 0.1 less, and below `FEW_EPOCHS` 0.2 less.

Multi30K used 0.2 for 17 epochs, in which it overfits with 0.1 (configs/multi30k.toml), and 0.3 for 34
(scripts/results). The bounds between are guesses.
"""

PAPER_FACTOR = 1.0
"""The factor of equation 3, `train.lr` with the schedule of the paper, as in the paper."""

SMALL_BATCH = 2048
SMALL_BATCH_PEAK: dict[str, Any] = {"lr": 4e-3, "warmup_steps": 400}
"""Learning rate and warm-up of tiny with batches of at most `SMALL_BATCH` tokens (configs/multi30k.toml)."""

SMALLER_BATCH = 1024
SMALLER_BATCH_PEAK: dict[str, Any] = {"lr": 3e-3, "warmup_steps": 400}
"""The same for at most `SMALLER_BATCH` tokens: the learning rate times about √½ (docs/results.md)."""

FEW_STEPS = 2500
"""On a CPU, tiny with a budget of time that has fewer steps than this gets batches of `SMALL_BATCH` tokens.

Tatoeba, 117,000 pairs in 18 minutes on one core: 46.3 BLEU after 4,203 steps with 2,048 tokens, 45.7 after 2,259 steps
with 4,096 (docs/results.md). Longer trainings have not been compared.
"""

NARROW = 256
MICRO_BATCH_TOKENS = {"narrow": 2048, "wide": 1024}
MIN_MICRO_BATCH_TOKENS = 256
"""Tokens of a micro-batch on a CPU, for models with d_model below `NARROW` and for others, and tokens at least.

Each micro-batch has costs of its own, which weigh more in a narrow model (docs/performance.md). Two cores are always
used, unless the micro-batches would be smaller than `MIN_MICRO_BATCH_TOKENS`.
"""

MIN_WARMUP_STEPS = 100
MAX_WARMUP_SHARE = 1 / 3
"""A warm-up is at least `MIN_WARMUP_STEPS` long, unless that is more than this share of the steps; guesses."""


def choose_from_scratch(config: Config, unset: Collection[str], workload: Workload) -> Config:
    """Choose a value for every unset setting. Later choices depend on earlier ones.

    Args:
        config: The configuration, with some settings unset.
        unset: Their names.
        workload: The corpus and the machine.
    """
    config = fill(config, unset, {"train.batch_tokens": workload.batch_tokens})
    if "preset" in unset:
        preset = _choose_preset(config, workload)
        values = PRESETS[preset]["model"]
        shape = {name: values[name.removeprefix("model.")] for name in SHAPE}
        config = fill(config, unset, {"preset": preset, **shape})
    if _needs_small_batches(config, workload):
        config = fill(config, unset, {"train.batch_tokens": SMALL_BATCH})
    config = fill(config, unset, {"train.micro_batches": choose_micro_batches(config, workload)})
    if MAX_STEPS in unset:
        config = fill(config, unset, {MAX_STEPS: _choose_max_steps(config, workload)})
    peak = PRESETS[config.preset]["train"]
    if config.preset == "tiny" and config.train.batch_tokens <= SMALLER_BATCH:
        peak = SMALLER_BATCH_PEAK
    elif config.preset == "tiny" and config.train.batch_tokens <= SMALL_BATCH:
        peak = SMALL_BATCH_PEAK
    choices = {
        "model.dropout": choose_dropout(config, workload),
        "train.lr": PAPER_FACTOR if config.train.schedule == "paper" else peak["lr"],
        "train.warmup_steps": _choose_warmup_steps(config, workload, peak["warmup_steps"]),
        LENGTH_PENALTY: choose_length_penalty(config, workload),
        **choose_intervals(config, workload),
    }
    return fill(config, unset, choices)


def _choose_preset(config: Config, workload: Workload) -> Preset:
    """Return the largest preset that the corpus allows and that sees enough tokens within the budget."""
    seconds = config.train.time or SECONDS_WITHOUT_BUDGET[workload.device]
    max_steps = config.train.max_steps or math.inf
    largest: Preset = "tiny"
    for preset in presets_up_to(workload.size.preset):
        steps = min(seconds * steps_per_second(config, workload, preset_model(preset)), max_steps)
        if steps * tokens_per_step(config, workload) >= worthwhile_tokens(preset):
            largest = preset
    return largest


def choose_micro_batches(config: Config, workload: Workload) -> int:
    """Return the parts of each batch, from its size and the width of the model; 1 on a GPU.

    The number of cores does not matter: a run has the same bits on another machine.
    """
    if workload.device != "cpu":
        return 1
    batch_tokens = config.train.batch_tokens
    width = "narrow" if config.model.d_model < NARROW else "wide"
    wanted = max(2, batch_tokens // MICRO_BATCH_TOKENS[width])
    return max(1, min(wanted, batch_tokens // MIN_MICRO_BATCH_TOKENS))


def worthwhile_tokens(preset: Preset) -> int:
    """Return the target tokens of training from which on a preset is worth its size."""
    return TOKENS_PER_WEIGHT * preset_weights(preset)


def presets_up_to(preset: Preset) -> tuple[Preset, ...]:
    """Return a preset and the smaller ones, the smallest first."""
    presets: tuple[Preset, ...] = get_args(Preset)
    return presets[: presets.index(preset) + 1]


def _needs_small_batches(config: Config, workload: Workload) -> bool:
    """Return True if the time is too short for many steps with the batches of the corpus size.

    On a CPU, half the tokens take half the time, so there are twice as many steps. `--max-steps` alone gives the number
    of steps, and larger batches then make them better.
    """
    is_timed = config.train.time is not None and config.train.max_steps is None
    is_large = config.train.batch_tokens > SMALL_BATCH
    is_cpu = workload.device == "cpu"
    return is_cpu and is_timed and is_large and config.preset == "tiny" and num_steps(config, workload) < FEW_STEPS


def _choose_max_steps(config: Config, workload: Workload) -> int:
    """Return the steps of a run without a budget: the epochs of the corpus size, or as many as are affordable."""
    steps = workload.size.epochs * workload.epoch_tokens / tokens_per_step(config, workload)
    return round_steps(min(max(steps, MIN_STEPS), affordable_steps(config, workload)))


def choose_dropout(config: Config, workload: Workload) -> float:
    """Return the dropout of the corpus size, or less for few epochs.

    A preset that is smaller than the corpus allows has 0.1 less than for the largest corpora that it is meant for. So
    tiny has 0.1 on Tatoeba, as measured, and not suddenly 0.1 from 50,000 pairs on in a long run.
    """
    dropout = workload.size.dropout
    if workload.size.preset not in presets_up_to(config.preset):
        dropout = [size.dropout for size in CORPUS_SIZES if size.preset == config.preset][-1] - 0.1
    epochs = num_epochs(config, workload)
    if epochs < FEW_EPOCHS:
        dropout -= 0.2
    elif epochs < MANY_EPOCHS:
        dropout -= 0.1
    return max(round(dropout, 2), MIN_DROPOUT)


def choose_length_penalty(config: Config, workload: Workload) -> float:
    """Return the exponent of the corpus size, which was measured with the paper's form of the length penalty."""
    has_paper_form = config.decode.length_normalization == "wu"
    return workload.length_penalty if has_paper_form else PAPER_LENGTH_PENALTY


def _choose_warmup_steps(config: Config, workload: Workload, preset_steps: int) -> int:
    """Return the steps of the warm-up: those of the preset, or fewer in a short run.

    A run with a time budget measures later how many of them it can afford (`Budget.warmup_steps`). With the paper's
    schedule, a shorter warm-up would raise the peak learning rate.
    """
    if config.train.time or config.train.schedule == "paper":
        return preset_steps
    steps = num_steps(config, workload)
    lower_bound = min(MIN_WARMUP_STEPS, round_steps(MAX_WARMUP_SHARE * steps))
    return min(preset_steps, max(round_steps(WARMUP_SHARE * steps), lower_bound))
