"""Defaults that know the corpus: what nobody gave, chosen from the pairs, the device and the budget.

The choice is made once, when a run begins, and is a function of `Facts` and of what was given; `config.toml` keeps the
numbers and names those that were chosen, and the run goes on with them whatever becomes of its budget. Figures marked
"guess" have no measurement behind them yet.
"""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple, get_args

import numpy as np

from mtcli.config.build import filled
from mtcli.config.presets import PRESETS, Preset
from mtcli.config.schema import BUDGET, OPEN, SHAPE, Config, TrainConfig, left_open, value_of
from mtcli.data.prepare import Prepared
from mtcli.runtime.progress import clock
from mtcli.training.budget import SAVE_SECONDS, SAVES, TOKENS_PER_PAIR, VALIDATIONS, WARM_UP


class Band(NamedTuple):
    """What suits corpora of fewer than so many pairs."""

    below: float
    preset: Preset
    """The largest worth its time."""
    dropout: float
    """Of that preset, if it sees the pairs often."""
    epochs: int
    """Where no budget is given; early stopping may end it sooner."""
    batch: int
    """Pieces of a batch on a CPU."""
    gpu_batch: int
    """On a GPU, which small batches leave idle."""


BANDS = (
    # Multi30K, 29,000 pairs: 2,048 pieces measured here (configs/multi30k.toml); tiny with dropout 0.3 is what is
    # published for it (Wu et al. 2021).
    Band(50_000, "tiny", 0.3, 40, 2048, 4096),
    # Tatoeba, 117,000 pairs: tiny with 4,096 pieces and dropout 0.1 measured here (the results in the README). small
    # and its dropout are guesses, between that and the d_model 512, dropout 0.3 usual for IWSLT14's 160,000 pairs.
    Band(500_000, "small", 0.2, 30, 4096, 8192),
    # The paper, 4.5 million pairs: base, dropout 0.1 and 25,000 pieces (§5.1, §5.4, Table 3), some 20 epochs (§5.2).
    Band(5_000_000, "base", 0.1, 20, 4096, 25_000),
    # The paper's big on 36 million pairs: dropout 0.1 (§6.1), some 7 epochs.
    Band(math.inf, "big", 0.1, 7, 4096, 25_000),
)
LEAST_DROPOUT = 0.1  # the paper's; also for a preset smaller than the pairs could feed
OFTEN, SELDOM = 20, 10
"""Epochs from which dropout is the band's, and below which it is the least. Multi30K had 0.2 for 17 epochs, in which it
overfits with 0.1 (configs/multi30k.toml), and 0.3 for 34 (scripts/results); the bounds between are guesses."""

SMALL_BATCH, AT_SMALL_BATCH = 2048, {"lr": 4e-3, "warmup_steps": 400}
"""tiny with batches up to so many pieces (configs/multi30k.toml); every other rate is its preset's."""
SHORT_WARM_UP, SHORT_SHARE = 100, 1 / 3
"""A warm-up of a fifth of the steps is lengthened to this many, if they are at most this part of the steps; a guess."""

PIECES_PER_WEIGHT = 2
"""Target pieces to train on for each weight that a piece passes, for a preset to be worth its size: tiny had 3 when
20 minutes sufficed for Multi30K, base 50 in the paper; the bound is a guess."""

SPEED = {"cpu": 1.85e10, "cuda": 2e12, "mps": 2e11}
"""Weights times target pieces a second. CPU: 7,130 pieces of tiny on two cores (scripts/bench_train.py); a step of
small took 4.4 times tiny's and one of base 14.8 times, of 5.2 and 19 times the weights. CUDA: five times one of the
paper's P100s (25,000 pieces in 0.4 s on eight, §5.2), a guess, as is Apple's GPU."""
GPU_SECONDS = 0.05  # of a batch at least, however small the model: its kernels take so long to start; a guess
PATIENCE = {"cpu": 3 * 3600, "cuda": 24 * 3600, "mps": 24 * 3600}
"""Seconds that a run without a budget may take, about; a guess at what people wait for."""
LEAST_STEPS = 5000  # of a run without a budget: 40 epochs of a few hundred pairs would be over before they began

VALIDATE_PIECES = 430_000
"""Target tokens between validations: tiny trains on so many in a minute on two cores."""
VALIDATING = 0.2
"""Part of the training that all validations of a budget of steps may cost, counted in tokens (`TOKENS_PER_PAIR`)."""


@dataclass(frozen=True)
class Facts:
    """What is known when training is about to begin."""

    pairs: int
    pieces: int
    """Of an epoch: the longer side of each pair, `</s>` included, as batches count."""
    device: str
    """`cpu`, `cuda` or `mps`."""
    ranks: int = 1
    valid: int = 0
    """Validation pairs."""

    @classmethod
    def of(cls, data: Prepared, device: str, ranks: int) -> "Facts":
        """Count."""
        pairs = data.train
        lengths = (pairs.lengths([chunk])[1:] for chunk in range(pairs.chunks))
        longer = sum(int(np.maximum(src, tgt).sum()) for src, tgt in lengths)
        return cls(len(pairs), longer + len(pairs), device, ranks, len(data.valid))

    @property
    def band(self) -> Band:
        """That of so many pairs."""
        return next(band for band in BANDS if self.pairs < band.below)


def settle(config: Config, facts: Facts, began: Config | None = None) -> Config:
    """Choose what is left open.

    Args:
        config: What was given.
        facts: What is known.
        began: The configuration of the run that is resumed, whose values hold; but its warm-up, and how often it
            validates and saves, follow a new budget.
    """
    names, settled = left_open(config), _choose(config, facts)
    chosen = {*names}
    if began:
        kept = names if BUDGET in began.chosen else names - {BUDGET}
        settled = filled(settled, {BUDGET: began.train.max_steps} if BUDGET in kept else {})
        if (settled.train.time, settled.train.max_steps) != (began.train.time, began.train.max_steps):
            kept -= {"train.valid_every", "train.save_every", "train.warmup_steps"}
        settled = filled(settled, {name: value_of(began, name) for name in kept})
        chosen = {*began.chosen} - {BUDGET} | names & {BUDGET}
    return filled(settled, {"chosen": [name for name in OPEN if name in chosen]})


def in_words(config: Config, facts: Facts, *, began: bool) -> str:
    """What was chosen and why, on one line.

    Args:
        config: As `settle` left it.
        facts: As `settle` had them.
        began: Whether the choice is that of a run which goes on.
    """
    train, names = config.train, {*config.chosen}
    budget = [f"{train.max_steps:,} steps"] if train.max_steps and BUDGET not in names else []
    budget += [clock(train.time)] if train.time else []
    device = {"cpu": "CPU", "cuda": "GPU", "mps": "Apple GPU"}[facts.device]
    epochs = float(f"{_steps(config, facts) * _per_step(config, facts) / facts.pieces:.2g}")
    known = f"{facts.pairs:,} pairs, {' or '.join(budget) or 'no budget'}, {device}, about {epochs:,g} epochs"
    preset = f"preset {config.preset}"
    larger = [p for p in _up_to(facts.band.preset) if p not in _up_to(config.preset)]
    if larger and not began:
        preset += f" ({larger[0]} from {clock(_worth(larger[0]) * _cost(larger[0]) / SPEED[facts.device])})"
    found = {
        "preset": preset,
        "model.dropout": f"dropout {config.model.dropout:g}",
        "train.batch_tokens": f"batches of {train.batch_tokens:,} tokens",
        "train.lr": f"peak learning rate {train.lr:g}",
        "train.warmup_steps": f"{_at_most(train)}{train.warmup_steps:,} warm-up steps",
        BUDGET: f"{train.max_steps or 0:,} steps",
        "train.valid_every": f"validated every {train.valid_every:,} steps",
        "train.save_every": f"saved every {train.save_every:,}",
    }
    if train.time:
        found |= {"train.valid_every": "validated and saved as the time allows"}
        names -= {"train.save_every"}
    if not names:
        return f"{known}: all settings as given"
    kept = "as chosen when the run began, " if began else ""
    return f"{known}: {kept}{', '.join(text for name, text in found.items() if name in names)}"


def _at_most(train: TrainConfig) -> str:
    """The warm-up of a run with a time may turn out shorter than configured."""
    return "at most " if train.time else ""


def _choose(config: Config, facts: Facts) -> Config:
    """Fill in what is left open, each choice resting on what was given and chosen before it."""
    names, band = left_open(config), facts.band

    def choose(choices: dict[str, Any]) -> None:
        nonlocal config
        config = filled(config, {name: value for name, value in choices.items() if name in names})

    choose({"train.batch_tokens": band.batch if facts.device == "cpu" else band.gpu_batch})
    if "preset" in names:
        seconds, most = config.train.time or PATIENCE[facts.device], config.train.max_steps or math.inf
        afforded = {p: min(seconds * _rate(config, facts, p), most) * _per_step(config, facts) for p in PRESETS}
        preset = [p for p in _up_to(band.preset) if p == "tiny" or afforded[p] >= _worth(p)][-1]
        choose({"preset": preset, **{name: PRESETS[preset]["model"][name.removeprefix("model.")] for name in SHAPE}})
    per_step, rate = _per_step(config, facts), _rate(config, facts, config.preset)
    if BUDGET in names:
        enough = max(band.epochs * facts.pieces / per_step, LEAST_STEPS)
        choose({BUDGET: _round(min(enough, PATIENCE[facts.device] * rate))})
    steps = _steps(config, facts)
    epochs = steps * per_step / facts.pieces
    dropout = band.dropout if band.preset in _up_to(config.preset) else LEAST_DROPOUT
    dropout -= 0 if epochs >= OFTEN else 0.1 if epochs >= SELDOM else 0.2
    at_peak = PRESETS[config.preset]["train"]
    if config.preset == "tiny" and config.train.batch_tokens <= SMALL_BATCH:
        at_peak = AT_SMALL_BATCH
    save_every = _round(min(steps / SAVES, SAVE_SECONDS * rate))
    affordable = VALIDATING * steps * per_step / (TOKENS_PER_PAIR * max(facts.valid, 1))
    validations = min(max(steps * per_step / VALIDATE_PIECES, VALIDATIONS[0]), VALIDATIONS[1])
    if not config.train.time:  # a run with a time measures what it can afford
        validations = max(min(validations, affordable), 1)
    choose(
        {
            "model.dropout": max(round(dropout, 2), LEAST_DROPOUT),
            "train.lr": at_peak["lr"],
            "train.warmup_steps": _warmup(config, at_peak["warmup_steps"], steps),
            "train.save_every": save_every,
            "train.valid_every": save_every * max(1, round(steps / validations / save_every)),
        }
    )
    return config


def _warmup(config: Config, usual: int, steps: float) -> int:
    """Steps of the warm-up: as usual for the preset, or fewer in a short run.

    A run with a time measures how many of them it can afford (`Budget.warmup_steps`), and the paper's schedule has a
    peak that rises where the warm-up is shortened.
    """
    if config.train.time or config.train.schedule == "paper":
        return usual
    return min(usual, max(_round(WARM_UP * steps), min(SHORT_WARM_UP, _round(SHORT_SHARE * steps))))


def _per_step(config: Config, facts: Facts) -> int:
    """Pieces of a step."""
    return config.train.batch_tokens * config.train.accumulate * facts.ranks


def _steps(config: Config, facts: Facts) -> float:
    """Steps that the budget allows, about."""
    by_time = config.train.time * _rate(config, facts, config.preset) if config.train.time else math.inf
    return max(1.0, min(by_time, config.train.max_steps or math.inf))


def _rate(config: Config, facts: Facts, preset: Preset) -> float:
    """Steps a second, about, were it this preset."""
    busy = _cost(preset) * config.train.batch_tokens / SPEED[facts.device]  # seconds of a batch
    return 1 / max(busy, 0.0 if facts.device == "cpu" else GPU_SECONDS) / config.train.accumulate


def _cost(preset: Preset) -> int:
    """Weights that a source and a target piece pass together: the layers' matrices, and 10,000 rows of the output's."""
    D, F, N = (PRESETS[preset]["model"][key] for key in ("d_model", "d_ff", "num_encoder_layers"))
    return int(N * (12 * D * D + 4 * D * F) + 10_000 * D)


def _worth(preset: Preset) -> int:
    """Target pieces to train on for a preset to be worth its size."""
    return PIECES_PER_WEIGHT * _cost(preset)


def _up_to(preset: Preset) -> tuple[Preset, ...]:
    """The presets no larger, the smallest first."""
    every: tuple[Preset, ...] = get_args(Preset)
    return every[: every.index(preset) + 1]


def _round(steps: float) -> int:
    """To two digits, for the reader's sake."""
    return max(1, int(float(f"{steps:.1e}")))
