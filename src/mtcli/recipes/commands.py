"""The commands of the stages of recipes: the options that several of them share."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from mtcli.corpus.held_out import HELD_OUT_SPLITS, HeldOutSplit
from mtcli.errors import UsageError
from mtcli.text.languages import Direction

GIVEN_BY_OPTIONS = (
    "data.train", "data.corpora", "data.valid", "data.test", "data.src", "data.tgt", "data.both_directions",
    "data.swap", "data.replace", "train.time", "train.max_steps", "preset",
)  # fmt: skip
"""Settings that a recipe has options for, or chooses itself, and gives to its stages."""


class StageCorpus(NamedTuple):
    """Training pairs of a stage."""

    direction: Direction
    spec: str
    """For `--train`, with its weight."""


def as_argument(path: str | Path) -> str:
    """Return a path as an argument of a command. A name that begins with a dash would be read as an option."""
    return f"./{path}" if str(path).startswith("-") else str(path)


def weighted(corpus: Path, weight: float) -> str:
    """Return a corpus for `--train`, with its weight."""
    return str(corpus) if weight == 1 else f"{corpus}@{weight:g}"


def repeated(option: str, values: Sequence[str | Path]) -> list[str]:
    """Return an option once for each of its values."""
    return [word for value in values for word in (option, str(value))]


def device_option(device: str) -> list[str]:
    """Return the device of a command; nothing if it chooses one itself."""
    return [] if device == "auto" else ["--device", device]


def corpora_options(
    corpora: Sequence[StageCorpus], held_out: Callable[[HeldOutSplit, Direction], str | Path], *, for_each: bool
) -> list[str]:
    """Return the options of `mtcli train` for its pairs.

    Args:
        corpora: Training pairs.
        held_out: Returns the validation or test pairs of a direction.
        for_each: Name languages and held-out pairs for each corpus; otherwise once for all of them.
    """
    words = []
    for index, (direction, spec) in enumerate(corpora):
        words += ["--train", spec]
        if for_each or index == len(corpora) - 1:
            words += held_out_options(direction, held_out)
            words += ["--src", direction.src, "--tgt", direction.tgt]
    return words


def held_out_options(direction: Direction, held_out: Callable[[HeldOutSplit, Direction], str | Path]) -> list[str]:
    """Return the options for the validation and test pairs of a direction; see `corpora_options`."""
    return [word for split in HELD_OUT_SPLITS for word in (f"--{split}", str(held_out(split, direction)))]


def augment_command(
    models: Sequence[str | Path],
    text: str | Path,
    output: Path,
    how: Sequence[str],
    direction: Direction | None,
    device: str,
) -> list[str]:
    """Return the command that makes synthetic pairs of a text.

    Args:
        models: The models that translate together.
        text: The lines to translate.
        output: The pairs.
        how: Further options.
        direction: The direction in which the models translate; None: they have one.
        device: The device.
    """
    words = ["augment", *repeated("--model", models), *how, "-i", str(text), "-o", str(output), "--force"]
    languages = ["--from", direction.src, "--to", direction.tgt] if direction is not None else []
    return [*words, *device_option(device), *languages]


def same_languages(directions: Sequence[Direction], direction: Direction) -> Direction:
    """Return the first of some directions between the languages of a direction: opposite ones share held-out pairs."""
    return next(each for each in directions if each in (direction, direction.reversed()))


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
