"""Compare the configuration of a run with a new one, to see whether the run can resume with it."""

import json
from typing import Any

from mtcli.config.schema import CHOSEN_IF_UNSET_IN_FINE_TUNING, NAMES, Config, Corpus, unset_settings, value_of

MAY_DIFFER = frozenset({
    "train.max_steps", "train.time", "train.keep", "train.tensorboard", "train.compile", "train.engine",
    "train.micro_batches", "data.note",
})  # fmt: skip
"""The budget, which may grow, and settings that change no result.

`train.compile` and `train.micro_batches` change the rounding, and the random numbers of dropout.
"""


def differences(old: Config, new: Config) -> list[str]:
    """Return `section.key: old → new` for every value that differs.

    Settings in `MAY_DIFFER` are skipped, and so are settings that training chose for the old run and that are unset in
    the new configuration.
    """
    skipped = MAY_DIFFER | (unset_settings(new, CHOSEN_IF_UNSET_IN_FINE_TUNING) & {*old.chosen})
    differing = []
    for name in NAMES:
        before = value_of(old, name)
        after = value_of(new, name)
        if name not in skipped and before != after:
            differing.append(f"{name}: {_readable(before)} → {_readable(after)}")
    return differing


def _readable(value: Any) -> str:
    """Return a value for a message: plain text without quotation marks, and "not set" for none."""
    if value is None or value == ():
        return "not set"
    if isinstance(value, tuple):
        return ", ".join(map(_readable, value))
    if isinstance(value, Corpus):
        held_out = (f", {name} {spec}" for name, spec in (("valid", value.valid), ("test", value.test)) if spec)
        return f"{value.train} ({value.src} → {value.tgt}{''.join(held_out)})"
    if isinstance(value, str) and value.isprintable() and value == value.strip() != "":
        return value
    return json.dumps(value)
