"""Defaults for unset options, derived from corpus size, device and budget.

They are chosen once, when a run begins, as a function of the `Workload` and of the options that are set. `config.toml`
keeps the values and lists which of them were chosen. A resumed run keeps them, even with a larger budget.

Figures marked "guess" are not backed by a measurement yet.
"""

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, NamedTuple, get_args

import numpy as np

from mtcli.config.build import filled
from mtcli.config.presets import PRESETS, Preset
from mtcli.config.schema import (
    BUDGET,
    OPEN,
    OPEN_IN_FINE_TUNING,
    SHAPE,
    Config,
    ModelConfig,
    TrainConfig,
    left_open,
    value_of,
)
from mtcli.data.batching import weight_of_rows, weights_within
from mtcli.data.prepare import Prepared
from mtcli.runtime.progress import clock
from mtcli.runtime.wording import counted
from mtcli.training.budget import MAX_VALIDATIONS, MIN_VALIDATIONS, SAVE_SECONDS, SAVES, TOKENS_PER_PAIR, WARMUP_SHARE


class Band(NamedTuple):
    """Defaults for corpora with fewer than `below` training pairs."""

    below: float
    preset: Preset
    """The largest preset that is worth its time."""
    dropout: float
    """Dropout of that preset if it sees the pairs often."""
    epochs: int
    """Epochs of a run without a budget; early stopping may end it sooner."""
    batch: int
    """Tokens per batch on a CPU."""
    gpu_batch: int
    """Tokens per batch on a GPU, which small batches do not keep busy."""


BANDS = (
    # Multi30K, 29,000 pairs: 2,048 tokens were measured (configs/multi30k.toml). tiny with dropout 0.3 is the
    # published setting (Wu et al. 2021).
    Band(50_000, "tiny", 0.3, 40, 2048, 4096),
    # Tatoeba, 117,000 pairs: tiny with 4,096 tokens and dropout 0.1 was measured (docs/results.md). small and its
    # dropout are guesses, between that and d_model 512 with dropout 0.3, which is usual for IWSLT14's 160,000 pairs.
    Band(500_000, "small", 0.2, 30, 4096, 8192),
    # The paper, 4.5 million pairs: base, dropout 0.1 and 25,000 tokens (§5.1, §5.4, Table 3), about 20 epochs (§5.2).
    Band(5_000_000, "base", 0.1, 20, 4096, 25_000),
    # The paper's big on 36 million pairs: dropout 0.1 (§6.1), about 7 epochs.
    Band(math.inf, "big", 0.1, 7, 4096, 25_000),
)

MIN_DROPOUT = 0.1
"""The paper's dropout. Also used for a preset smaller than the corpus would allow."""

MANY_EPOCHS = 20
FEW_EPOCHS = 10
"""From `MANY_EPOCHS` on, dropout is the band's; below, it is 0.1 less, and below `FEW_EPOCHS` 0.2 less.

Multi30K used 0.2 for 17 epochs, in which it overfits with 0.1 (configs/multi30k.toml), and 0.3 for 34
(scripts/results). The bounds between are guesses.
"""

SMALL_BATCH = 2048
SMALL_BATCH_PEAK: dict[str, Any] = {"lr": 4e-3, "warmup_steps": 400}
"""Learning rate and warm-up of tiny with batches of at most `SMALL_BATCH` tokens (configs/multi30k.toml)."""

MIN_WARMUP_STEPS = 100
MAX_WARMUP_SHARE = 1 / 3
"""A warm-up is at least `MIN_WARMUP_STEPS` long, unless that is more than this share of the steps; guesses."""

TOKENS_PER_WEIGHT = 2
"""Target tokens of training per weight from which on a preset is worth its size; a guess.

tiny had 3 when 20 minutes were enough for Multi30K, base had 50 in the paper. For the weights, see `_matrix_weights`.
"""

SPEED = {"cpu": 1.85e10, "cuda": 2e12, "mps": 2e11}
"""Weights × target tokens per second.

CPU: 7,130 tokens per second of tiny on two cores (scripts/bench_train.py); a step of small took 4.4 times as long as
one of tiny, a step of base 14.8 times, with 5.2 and 19 times the weights. CUDA: five times one of the paper's P100s
(25,000 tokens in 0.4 s on eight, §5.2), a guess; so is Apple's GPU.
"""

MIN_GPU_SECONDS = 0.05
"""Seconds per batch on a GPU at least: it takes this long to launch the kernels of even a small model; a guess."""

PATIENCE = {"cpu": 3 * 3600, "cuda": 24 * 3600, "mps": 24 * 3600}
"""About how many seconds a run without a budget may take; a guess at how long people wait."""

MIN_STEPS = 5000
"""Steps of a run without a budget at least: 40 epochs of a few hundred pairs would be too few steps."""

TOKENS_PER_VALIDATION = 430_000
"""Target tokens between validations. tiny trains on as many in a minute on two cores."""

MAX_VALIDATION_SHARE = 0.2
"""Share of a budget of steps that all validations together may cost, counted in tokens (`TOKENS_PER_PAIR`)."""

FINE_TUNING_LR_SHARE = 0.1
"""Peak learning rate of fine-tuning, as a share of the preset's: 7e-5 for a model as wide as `base`.

Hugging Face fine-tunes opus-mt-en-fr, which is as wide, with 2e-5 and AdamW in its translation tutorial. In a
measurement with the demo's model (docs/training.md), a third of the preset's learning rate was better and forgot more.
"""

FINE_TUNING_WARMUP_STEPS = 100
FINE_TUNING_WARMUP_SHARE = 0.1
"""A warm-up has at most as many steps, and takes at most this share of them. It only has to fill Adam's second moment,
which is a mean over about 50 steps with the paper's β₂; the weights need no warm-up."""

FINE_TUNING_PATIENCE = 5
"""Validations without a better score before the cool-down: half of what training from scratch waits. A small corpus is
learned within a few epochs, and then overfitted."""

FINE_TUNING_EPOCHS = 10
MIN_FINE_TUNING_STEPS = 300
"""Epochs and steps of fine-tuning without a budget; early stopping may end it sooner. Guesses."""

STEPS_PER_EPOCH = 50
MIN_FINE_TUNING_BATCH = {"cpu": 512, "cuda": 2048, "mps": 2048}
"""Batches of fine-tuning are so small that an epoch has `STEPS_PER_EPOCH`, but not smaller than this; guesses."""

FOLLOWS_BUDGET = ("train.valid_every", "train.save_every", "train.warmup_steps")
"""Options that are chosen again if a run is resumed with another budget."""


@dataclass(frozen=True)
class Workload:
    """What the defaults depend on, besides the options that are set."""

    pairs: int
    """Training pairs."""
    epoch_tokens: int
    """Tokens per epoch as batches count them: the longer side of each pair, `</s>` included, times its weight."""
    device: str
    """`cpu`, `cuda` or `mps`."""
    ranks: int = 1
    valid: int = 0
    """Validation pairs."""
    fine_tunes: bool = False
    """Training starts from another model."""
    tgt_vocab: int = 10_000
    """Size of the target vocabulary, which matters for the speed of fine-tuning."""

    @classmethod
    def of(cls, data: Prepared, device: str, ranks: int) -> "Workload":
        """Count the prepared data.

        Args:
            data: The prepared data.
            device: Type of the device of one rank.
            ranks: Number of processes that train together.
        """
        pairs = data.train
        epoch_tokens = 0.0
        for chunk in range(pairs.chunks):
            rows, src, tgt = pairs.lengths([chunk])
            widths = np.maximum(src, tgt) + 1
            weights = weight_of_rows(weights_within(rows, data.weights))
            epoch_tokens += float((weights * widths).sum())
        return cls(
            len(pairs),
            round(epoch_tokens),
            device,
            ranks,
            len(data.valid),
            fine_tunes=data.init is not None,
            tgt_vocab=data.tokenizer.tgt_size,
        )

    @property
    def band(self) -> Band:
        """The band of this corpus size."""
        return next(band for band in BANDS if self.pairs < band.below)


def with_defaults(config: Config, workload: Workload, began: Config | None = None) -> Config:
    """Return a configuration in which all options are set.

    Args:
        config: The configuration, with some options unset.
        workload: What is trained on, and where.
        began: The configuration of the run that is resumed. Its values are kept; if the budget is another, those in
            `FOLLOWS_BUDGET` are chosen again.
    """
    names = OPEN_IN_FINE_TUNING if workload.fine_tunes else OPEN
    unset = left_open(config, names)
    chosen = set(unset)
    if workload.fine_tunes:
        complete = _choose_for_fine_tuning(config, unset, workload, began)
    else:
        complete = _choose_all(config, unset, workload)
    if began is not None:
        complete = _keep_values_of(began, complete, unset)
        chosen = set(began.chosen) - {BUDGET}
        if BUDGET in unset:
            chosen.add(BUDGET)
    return filled(complete, {"chosen": [name for name in names if name in chosen]})


def _keep_values_of(began: Config, complete: Config, unset: Collection[str]) -> Config:
    """Replace values that were chosen now by those of the run that is resumed."""
    kept = set(unset)
    if BUDGET not in began.chosen:
        kept.discard(BUDGET)
    if BUDGET in kept:
        complete = filled(complete, {BUDGET: began.train.max_steps})
    budget_now = (complete.train.time, complete.train.max_steps)
    budget_before = (began.train.time, began.train.max_steps)
    if budget_now != budget_before:
        kept -= set(FOLLOWS_BUDGET)
    return filled(complete, {name: value_of(began, name) for name in kept})


def _choose_all(config: Config, unset: Collection[str], workload: Workload) -> Config:
    """Choose a value for every unset option. Later choices depend on earlier ones."""
    band = workload.band
    batch = band.batch if workload.device == "cpu" else band.gpu_batch
    config = _fill(config, unset, {"train.batch_tokens": batch})
    if "preset" in unset:
        preset = _choose_preset(config, workload)
        values = PRESETS[preset]["model"]
        shape = {name: values[name.removeprefix("model.")] for name in SHAPE}
        config = _fill(config, unset, {"preset": preset, **shape})
    if BUDGET in unset:
        config = _fill(config, unset, {BUDGET: _choose_max_steps(config, workload)})
    peak = PRESETS[config.preset]["train"]
    if config.preset == "tiny" and config.train.batch_tokens <= SMALL_BATCH:
        peak = SMALL_BATCH_PEAK
    save_every = _choose_save_every(config, workload)
    choices = {
        "model.dropout": _choose_dropout(config, workload),
        "train.lr": peak["lr"],
        "train.warmup_steps": _choose_warmup_steps(config, workload, peak["warmup_steps"]),
        "train.save_every": save_every,
        "train.valid_every": _choose_valid_every(config, workload, save_every),
    }
    return _fill(config, unset, choices)


def _choose_for_fine_tuning(config: Config, unset: Collection[str], workload: Workload, began: Config | None) -> Config:
    """Choose a value for every unset option of a run that starts from another model, which sets the shape.

    Args:
        config: The configuration, with some options unset.
        unset: Their names.
        workload: What is trained on, and where.
        began: The configuration of the run that is resumed. It has the shape if the model is not named again.
    """
    if began is not None:
        config = _fill(config, unset, {name: value_of(began, name) for name in ("preset", *SHAPE)})
    config = _fill(config, unset, {"train.batch_tokens": _choose_fine_tuning_batch(config, workload)})
    if BUDGET in unset:
        config = _fill(config, unset, {BUDGET: _choose_fine_tuning_steps(config, workload)})
    save_every = _choose_save_every(config, workload)
    choices = {
        "model.dropout": MIN_DROPOUT,
        "train.lr": float(f"{FINE_TUNING_LR_SHARE * PRESETS[config.preset]['train']['lr']:.2g}"),
        "train.warmup_steps": _choose_fine_tuning_warmup(config, workload),
        "train.patience": FINE_TUNING_PATIENCE,
        "train.save_every": save_every,
        "train.valid_every": _choose_valid_every(config, workload, save_every),
    }
    return _fill(config, unset, choices)


def _choose_fine_tuning_batch(config: Config, workload: Workload) -> int:
    """Return the tokens per batch: a power of two, at most the band's, and less if the corpus is small."""
    largest = workload.band.batch if workload.device == "cpu" else workload.band.gpu_batch
    step_tokens = workload.epoch_tokens / STEPS_PER_EPOCH
    batch_tokens = max(step_tokens / (config.train.accumulate * workload.ranks), 1.0)
    power_of_two: int = 2 ** int(math.log2(batch_tokens))
    return min(max(power_of_two, MIN_FINE_TUNING_BATCH[workload.device]), largest)


def _choose_fine_tuning_steps(config: Config, workload: Workload) -> int:
    """Return the steps of fine-tuning without a budget."""
    epochs = FINE_TUNING_EPOCHS * workload.epoch_tokens / _tokens_per_step(config, workload)
    affordable = PATIENCE[workload.device] * _steps_per_second(config, workload, config.preset)
    return _rounded(min(max(epochs, MIN_FINE_TUNING_STEPS), affordable))


def _choose_fine_tuning_warmup(config: Config, workload: Workload) -> int:
    """Return the steps of the warm-up. With the paper's schedule, a short one would raise the peak learning rate."""
    if config.train.schedule == "paper":
        return int(PRESETS[config.preset]["train"]["warmup_steps"])
    if config.train.time:
        return FINE_TUNING_WARMUP_STEPS  # at most: the run measures later how many it can afford
    return min(FINE_TUNING_WARMUP_STEPS, _rounded(FINE_TUNING_WARMUP_SHARE * _num_steps(config, workload)))


def _fill(config: Config, unset: Collection[str], choices: dict[str, Any]) -> Config:
    """Set those of the chosen values whose options are unset."""
    return filled(config, {name: value for name, value in choices.items() if name in unset})


def _choose_preset(config: Config, workload: Workload) -> Preset:
    """Return the largest preset that the corpus allows and that sees enough tokens within the budget."""
    seconds = config.train.time or PATIENCE[workload.device]
    max_steps = config.train.max_steps or math.inf
    chosen: Preset = "tiny"
    for preset in _presets_up_to(workload.band.preset):
        steps = min(seconds * _steps_per_second(config, workload, preset), max_steps)
        if steps * _tokens_per_step(config, workload) >= _worthwhile_tokens(preset):
            chosen = preset
    return chosen


def _choose_max_steps(config: Config, workload: Workload) -> int:
    """Return the steps of a run without a budget: the epochs of the band, or as many as `PATIENCE` allows."""
    epochs = workload.band.epochs * workload.epoch_tokens / _tokens_per_step(config, workload)
    affordable = PATIENCE[workload.device] * _steps_per_second(config, workload, config.preset)
    return _rounded(min(max(epochs, MIN_STEPS), affordable))


def _choose_dropout(config: Config, workload: Workload) -> float:
    """Return the dropout: less of it for fewer epochs, and the least for a preset smaller than the band's."""
    band = workload.band
    dropout = MIN_DROPOUT
    if band.preset in _presets_up_to(config.preset):
        dropout = band.dropout
    epochs = _num_epochs(config, workload)
    if epochs < FEW_EPOCHS:
        dropout -= 0.2
    elif epochs < MANY_EPOCHS:
        dropout -= 0.1
    return max(round(dropout, 2), MIN_DROPOUT)


def _choose_warmup_steps(config: Config, workload: Workload, preset_steps: int) -> int:
    """Return the steps of the warm-up: those of the preset, or fewer in a short run.

    A run with a time budget measures later how many of them it can afford (`Budget.warmup_steps`). With the paper's
    schedule, a shorter warm-up would raise the peak learning rate.
    """
    if config.train.time or config.train.schedule == "paper":
        return preset_steps
    steps = _num_steps(config, workload)
    lower_bound = min(MIN_WARMUP_STEPS, _rounded(MAX_WARMUP_SHARE * steps))
    return min(preset_steps, max(_rounded(WARMUP_SHARE * steps), lower_bound))


def _choose_save_every(config: Config, workload: Workload) -> int:
    """Return the steps between checkpoints."""
    steps_in_save_seconds = SAVE_SECONDS * _steps_per_second(config, workload, config.preset)
    return _rounded(min(_num_steps(config, workload) / SAVES, steps_in_save_seconds))


def _choose_valid_every(config: Config, workload: Workload, save_every: int) -> int:
    """Return the steps between validations, a multiple of those between checkpoints."""
    steps = _num_steps(config, workload)
    tokens = steps * _tokens_per_step(config, workload)
    validations = min(max(tokens / TOKENS_PER_VALIDATION, MIN_VALIDATIONS), MAX_VALIDATIONS)
    if not config.train.time:  # a run with a time budget measures what it can afford
        affordable = MAX_VALIDATION_SHARE * tokens / (TOKENS_PER_PAIR * max(workload.valid, 1))
        validations = max(min(validations, affordable), 1)
    return save_every * max(1, round(steps / validations / save_every))


def describe_choice(config: Config, workload: Workload, *, resumed: bool) -> str:
    """Describe which values were chosen, and for what, on one line.

    Args:
        config: The configuration that `with_defaults` returned.
        workload: The workload it was given.
        resumed: A run is resumed, which keeps the values that were chosen when it began.
    """
    train = config.train
    basis = _describe_basis(config, workload)
    chosen = set(config.chosen)
    texts = {
        "preset": _describe_preset(config, workload, resumed=resumed or workload.fine_tunes),
        "model.dropout": f"dropout {config.model.dropout:g}",
        "train.batch_tokens": f"batches of {train.batch_tokens:,} tokens",
        "train.lr": f"peak learning rate {train.lr:g}",
        "train.warmup_steps": f"{_at_most(train)}{train.warmup_steps:,} warm-up steps",
        "train.patience": f"patience of {train.patience} validations",
        BUDGET: f"{train.max_steps or 0:,} steps",
        "train.valid_every": f"validated every {train.valid_every:,} steps",
        "train.save_every": f"saved every {train.save_every:,}",
    }
    if train.time:
        texts["train.valid_every"] = "validated and saved as the time allows"
        chosen.discard("train.save_every")
    if not chosen:
        return f"{basis}: all settings as given"
    kept = "as chosen when the run began, " if resumed else ""
    return f"{basis}: {kept}{', '.join(text for name, text in texts.items() if name in chosen)}"


def _describe_basis(config: Config, workload: Workload) -> str:
    """Describe what the choice is based on: the corpus, the budget and the device."""
    budget = []
    if config.train.max_steps and BUDGET not in config.chosen:
        budget.append(counted(config.train.max_steps, "step"))
    if config.train.time:
        budget.append(clock(config.train.time))
    device = {"cpu": "CPU", "cuda": "GPU", "mps": "Apple GPU"}[workload.device]
    purpose = "fine-tuning on " if workload.fine_tunes else ""
    pairs = counted(workload.pairs, "pair")
    basis = f"{purpose}{pairs}, {' or '.join(budget) or 'no budget'}, {device}"
    if config.train.time:
        return basis  # the speed is not measured yet; training reports the steps that fit into the time
    epochs = float(f"{_num_epochs(config, workload):.2g}")
    return f"{basis}, about {epochs:,g} epochs"


def _describe_preset(config: Config, workload: Workload, *, resumed: bool) -> str:
    """Name the preset, and the time budget from which on the next larger one would be chosen."""
    text = f"preset {config.preset}"
    smaller = _presets_up_to(config.preset)
    larger = [preset for preset in _presets_up_to(workload.band.preset) if preset not in smaller]
    if larger and not resumed:
        seconds = _worthwhile_tokens(larger[0]) * _matrix_weights(larger[0]) / SPEED[workload.device]
        text += f" ({larger[0]} from {clock(seconds)})"
    return text


def _at_most(train: TrainConfig) -> str:
    """With a time budget, the warm-up may turn out shorter than configured."""
    return "at most " if train.time else ""


def _tokens_per_step(config: Config, workload: Workload) -> int:
    return config.train.batch_tokens * config.train.accumulate * workload.ranks


def _num_steps(config: Config, workload: Workload) -> float:
    """Estimate the steps that the budget allows."""
    steps = config.train.max_steps or math.inf
    if config.train.time:
        steps = min(steps, config.train.time * _steps_per_second(config, workload, config.preset))
    return max(1.0, steps)


def _num_epochs(config: Config, workload: Workload) -> float:
    """Estimate the epochs that the budget allows."""
    return _num_steps(config, workload) * _tokens_per_step(config, workload) / workload.epoch_tokens


def _steps_per_second(config: Config, workload: Workload, preset: Preset) -> float:
    """Estimate the speed of a preset with the configured batches; in fine-tuning, that of the configured model."""
    weights = _matrix_weights(preset)
    if workload.fine_tunes:
        weights = _matrix_weights_of(config.model, workload.tgt_vocab)
    batch_seconds = weights * config.train.batch_tokens / SPEED[workload.device]
    if workload.device != "cpu":
        batch_seconds = max(batch_seconds, MIN_GPU_SECONDS)
    return 1 / batch_seconds / config.train.accumulate


def _matrix_weights(preset: Preset) -> int:
    """Return the weights of a preset's layers, and of an output matrix for 10,000 tokens: its cost per token."""
    return _matrix_weights_of(ModelConfig(**PRESETS[preset]["model"]), 10_000)


def _matrix_weights_of(model: ModelConfig, tgt_vocab: int) -> int:
    """Return the weights of a model's layers and of its output matrix, without biases."""
    D = model.d_model
    F = model.d_ff
    encoder_layer = 4 * D * D + 2 * D * F
    decoder_layer = 8 * D * D + 2 * D * F
    return model.num_encoder_layers * encoder_layer + model.num_decoder_layers * decoder_layer + tgt_vocab * D


def _worthwhile_tokens(preset: Preset) -> int:
    """Return the target tokens of training from which on a preset is worth its size."""
    return TOKENS_PER_WEIGHT * _matrix_weights(preset)


def _presets_up_to(preset: Preset) -> tuple[Preset, ...]:
    """Return a preset and the smaller ones, the smallest first."""
    presets: tuple[Preset, ...] = get_args(Preset)
    return presets[: presets.index(preset) + 1]


def _rounded(steps: float) -> int:
    """Round to two digits, so that the numbers in the log are easy to read."""
    return max(1, int(float(f"{steps:.1e}")))
