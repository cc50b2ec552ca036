"""The `--set` of recipes, which pass these settings on to the trainings of their stages."""

from collections.abc import Sequence

from mtcli.errors import UsageError

GIVEN_BY_OPTIONS = (
    "data.train", "data.valid", "data.test", "data.src", "data.tgt", "data.swap", "data.replace", "train.time",
    "train.max_steps", "preset",
)  # fmt: skip
"""Settings that a recipe has options for, or chooses itself, and gives to its stages."""


def setting_name(text: str) -> str:
    """Return the name in a `--set section.key=value`."""
    return text.partition("=")[0].strip()


def check_settings(sets: Sequence[str], command: str) -> None:
    """Check that `--set` names no setting in `GIVEN_BY_OPTIONS`. It would contradict the other stages.

    Args:
        sets: `section.key=value` strings.
        command: The command of the recipe, for the message.

    Raises:
        UsageError: It names one.
    """
    for text in sets:
        name = setting_name(text)
        if name in GIVEN_BY_OPTIONS:
            raise UsageError(f"--set {text}: give {name} by the option of its own; see mtcli {command} --help")
