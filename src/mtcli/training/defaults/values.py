"""Set chosen values, and round them."""

from collections.abc import Collection, Mapping
from typing import Any

from mtcli.config.build import filled
from mtcli.config.schema import Config


def fill(config: Config, unset: Collection[str], choices: Mapping[str, Any]) -> Config:
    """Set those of the chosen values whose settings are unset.

    Args:
        config: The configuration.
        unset: Names of the unset settings.
        choices: A value for each of some settings, by dotted name.
    """
    return filled(config, {name: value for name, value in choices.items() if name in unset})


def round_steps(steps: float) -> int:
    """Round to two digits, so that the numbers in the log are easy to read."""
    return max(1, int(float(f"{steps:.1e}")))
