"""Choose the unset settings of a new run, and keep those of a run that is resumed."""

from collections.abc import Collection

from mtcli.config.build import filled
from mtcli.config.schema import (
    CHOSEN_IF_UNSET,
    CHOSEN_IF_UNSET_IN_FINE_TUNING,
    MAX_STEPS,
    Config,
    unset_settings,
    value_of,
)
from mtcli.training.defaults.fine_tuning import choose_for_fine_tuning
from mtcli.training.defaults.from_scratch import choose_from_scratch
from mtcli.training.defaults.workload import Workload

DEPENDS_ON_BUDGET = ("train.valid_every", "train.save_every", "train.warmup_steps")
"""Settings that are chosen again if a run is resumed with another budget."""


def with_defaults(config: Config, workload: Workload, existing_config: Config | None = None) -> Config:
    """Return a configuration in which all settings are set.

    Args:
        config: The configuration, with some settings unset.
        workload: The corpus and the machine.
        existing_config: The configuration of the run that is resumed. Its values are kept; if the budget is another,
            those in `DEPENDS_ON_BUDGET` are chosen again.
    """
    names = CHOSEN_IF_UNSET_IN_FINE_TUNING if workload.fine_tunes else CHOSEN_IF_UNSET
    unset = unset_settings(config, names)
    if workload.fine_tunes:
        complete = choose_for_fine_tuning(config, unset, workload, existing_config)
    else:
        complete = choose_from_scratch(config, unset, workload)
    chosen = set(unset)
    if existing_config is not None:
        complete = _keep_values_of(existing_config, complete, unset)
        chosen = (set(existing_config.chosen) | (chosen & unset_settings(existing_config))) - {MAX_STEPS}
        if MAX_STEPS in unset:
            chosen.add(MAX_STEPS)
    return filled(complete, {"chosen": [name for name in names if name in chosen]})


def _keep_values_of(existing_config: Config, complete: Config, unset: Collection[str]) -> Config:
    """Replace the values that were chosen now by those of the run that is resumed.

    Args:
        existing_config: The configuration of that run.
        complete: The configuration of this command, completed.
        unset: The settings that were chosen to complete it.
    """
    kept = set(unset) - unset_settings(existing_config)  # an earlier version did not have some settings
    if MAX_STEPS not in existing_config.chosen:
        kept.discard(MAX_STEPS)
    if MAX_STEPS in kept:
        complete = filled(complete, {MAX_STEPS: existing_config.train.max_steps})
    budget_now = (complete.train.time, complete.train.max_steps)
    budget_before = (existing_config.train.time, existing_config.train.max_steps)
    if budget_now != budget_before:
        kept -= set(DEPENDS_ON_BUDGET)
    return filled(complete, {name: value_of(existing_config, name) for name in kept})
