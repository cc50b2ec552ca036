"""Defaults for the child of a model of other languages, which sets the shape.

They were measured with `tiny`, a parent of English and German, and children of English and Spanish
(docs/small-languages.md).
"""

from collections.abc import Collection

from mtcli.config.build import fill
from mtcli.config.presets import PRESETS
from mtcli.config.schema import MAX_STEPS, Config
from mtcli.training.defaults.fine_tuning import choose_batch_tokens, choose_warmup_steps, with_shape_of
from mtcli.training.defaults.from_scratch import PAPER_FACTOR, choose_dropout, choose_micro_batches
from mtcli.training.defaults.intervals import choose_intervals
from mtcli.training.defaults.speed import affordable_steps, round_steps, tokens_per_step
from mtcli.training.defaults.workload import Workload

LR_SHARE = 2 / 3
"""Peak learning rate as a share of the preset's: 2e-3 for `tiny`. A child has more to learn than a fine-tuned model and
nothing to remember. Other shares have not been measured."""

STEPS_PER_EPOCH = 25
"""Batches are so small that an epoch has so many steps: 1,024 tokens for 3,000 short pairs."""

MIN_STEPS = 1000
"""Steps of a run without a budget at least. 3,000 pairs gain little after them."""

PATIENCE = 10
"""Validations without a better score before the cool-down, as in training from scratch."""


def choose_for_transfer(
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
    lr = LR_SHARE * (PAPER_FACTOR if config.train.schedule == "paper" else PRESETS[config.preset]["train"]["lr"])
    choices = {
        "model.dropout": choose_dropout(config, workload),
        "train.lr": float(f"{lr:.2g}"),
        "train.warmup_steps": choose_warmup_steps(config, workload),
        "train.patience": PATIENCE,
        **choose_intervals(config, workload),
    }
    return fill(config, unset, choices)


def _choose_max_steps(config: Config, workload: Workload) -> int:
    """Return the steps without a budget: the epochs of the corpus size, or as many as are affordable."""
    steps = workload.size.epochs * workload.epoch_tokens / tokens_per_step(config, workload)
    return round_steps(min(max(steps, MIN_STEPS), affordable_steps(config, workload)))
