"""Options of the commands that train: `train`, `improve` and `distill`. Each command gives its own help texts."""

from typing import Any

from mtcli.cli import completion, panels
from mtcli.cli.option_kinds import integer, option

HELD_OUT = "held out of the training pairs"
"""Where validation and test pairs come from if no option names them."""

WEIGHTED_PAIRS = "Training pairs, with an optional sampling weight. Repeat the option for several corpora."


def train_option(*, help: str = WEIGHTED_PAIRS, show_default: str | None = None) -> Any:
    """`--train PATH[@WEIGHT]`: training pairs. Without `show_default` it is required."""
    default: dict[str, Any] = {} if show_default is None else {"show_default": show_default}
    return option("--train", panel=panels.DATA, metavar="PATH[@WEIGHT]", help=help, **default)


def preset_option(*, help: str, show_default: str = "chosen by number of pairs and budget") -> Any:
    """`--preset NAME`: the size of a model."""
    return option(
        "--preset",
        panel=panels.MODEL,
        metavar="|".join(completion.PRESETS),
        autocompletion=completion.values(completion.PRESETS),
        help=help,
        show_default=show_default,
    )


def set_option(*, help: str) -> Any:
    """`--set section.key=value`: any setting of a training."""
    return option(
        "--set",
        panel=panels.MODEL,
        metavar="section.key=value",
        autocompletion=completion.settings,
        help=help,
        show_default="the settings of the preset",
    )


def time_option(*, help: str, show_default: str = "no limit") -> Any:
    """`--time TIME`: a budget of time."""
    return option("--time", panel=panels.BUDGET, metavar="TIME", help=help, show_default=show_default)


def max_steps_option(*, help: str, show_default: str = "chosen by number of pairs; no limit with --time") -> Any:
    """`--max-steps N`: a budget of training steps."""
    return option("--max-steps", panel=panels.BUDGET, metavar="N", parser=integer, help=help, show_default=show_default)
