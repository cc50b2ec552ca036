"""Defaults of the steps between checkpoints and between validations."""

from mtcli.config.schema import Config
from mtcli.training.budget import MAX_VALIDATIONS, MIN_VALIDATIONS, SAVE_SECONDS, SAVES, TOKENS_PER_PAIR
from mtcli.training.defaults.speed import num_steps, steps_per_second, tokens_per_step
from mtcli.training.defaults.values import round_steps
from mtcli.training.defaults.workload import Workload

TOKENS_PER_VALIDATION = 430_000
"""Target tokens between validations. tiny trains on as many in a minute on two cores."""

MAX_VALIDATION_SHARE = 0.2
"""Share of a budget of steps that all validations together may cost, counted in tokens (`TOKENS_PER_PAIR`)."""


def choose_intervals(config: Config, workload: Workload) -> dict[str, int]:
    """Return `train.save_every` and `train.valid_every`, in steps. The second is a multiple of the first."""
    save_every = _choose_save_every(config, workload)
    return {
        "train.save_every": save_every,
        "train.valid_every": _choose_valid_every(config, workload, save_every),
    }


def _choose_save_every(config: Config, workload: Workload) -> int:
    steps_in_save_seconds = SAVE_SECONDS * steps_per_second(config, workload, config.preset)
    return round_steps(min(num_steps(config, workload) / SAVES, steps_in_save_seconds))


def _choose_valid_every(config: Config, workload: Workload, save_every: int) -> int:
    steps = num_steps(config, workload)
    tokens = steps * tokens_per_step(config, workload)
    validations = min(max(tokens / TOKENS_PER_VALIDATION, MIN_VALIDATIONS), MAX_VALIDATIONS)
    if not config.train.time:  # a run with a time budget measures what it can afford
        affordable = MAX_VALIDATION_SHARE * tokens / (TOKENS_PER_PAIR * max(workload.valid, 1))
        validations = max(min(validations, affordable), 1)
    return save_every * max(1, round(steps / validations / save_every))
