"""Options that several commands share, and helpers that make options.

A helper passes the arguments that it does not name itself to `typer.Option`. `panel` is the panel in `--help`.
"""

from pathlib import Path
from typing import Annotated, Any

import typer

from mtcli import limits
from mtcli.cli import completion, panels
from mtcli.errors import UsageError


def option(*names: str, panel: str, **how: Any) -> Any:
    """Return an option that takes a value."""
    return typer.Option(*names, rich_help_panel=panel, **how)


def flag(*names: str, panel: str, **how: Any) -> Any:
    """Return an option without a value; its help omits typer's `<bool>`."""
    return typer.Option(*names, rich_help_panel=panel, metavar="", **how)


def number(*names: str, panel: str, within: limits.Range, metavar: str = "N", **how: Any) -> Any:
    """Return a numeric option with bounds. Its help omits them, since they are far from any sensible value."""

    def check(value: float | None) -> float | None:
        if value is not None and not within.min <= value <= within.max:  # nan is within no bounds
            raise typer.BadParameter(f"{value} is out of range; give a number from {within.min:,} to {within.max:,}.")
        return value

    return typer.Option(*names, rich_help_panel=panel, metavar=metavar, callback=check, **how)


def choice(*names: str, panel: str, values: tuple[str, ...], **how: Any) -> Any:
    """Return an option that takes one of a few values, which the Tab key completes."""

    def check(parameter: typer.CallbackParam, value: str | None) -> str | None:
        if value is not None and value not in values:
            name = max(parameter.opts, key=len)
            raise UsageError(f"{name} {value}: choose from {', '.join(values)}")
        return value

    complete = completion.values(values)
    return typer.Option(
        *names, rich_help_panel=panel, metavar="|".join(values), autocompletion=complete, callback=check, **how
    )


def pairs_option(*names: str, help: str, show_default: str) -> Any:
    """Return an option that names sentence pairs."""
    return option(*names, panel=panels.DATA, metavar="PATH", help=help, show_default=show_default)


def language_option(*names: str, help: str, show_default: str) -> Any:
    """Return an option that names a language."""
    return option(*names, panel=panels.DATA, metavar="CODE", help=help, show_default=show_default)


def text_file_option(*names: str, help: str, **how: Any) -> Any:
    """Return an option that names a file of lines, or standard input."""
    return option(*names, panel=panels.DATA, metavar="FILE|-", help=help, **how)


def output_folder_option(help: str, show_default: str) -> Any:
    """Return the option that names the folder to write."""
    return option("-o", "--output", panel=panels.OUTPUT, metavar="DIR", help=help, show_default=show_default)


def json_flag(help: str) -> Any:
    """Return the option that chooses JSON as the output format."""
    return flag("--json", panel=panels.OUTPUT, help=help)


LATEST = Path("runs/latest")
"""A link to the run that was trained last."""

MODEL_VARIABLE = "MTCLI_MODEL"
LATEST_SHOWN = "runs/latest, the run trained last"


def model_argument(help: str, metavar: str = "MODEL") -> Any:
    """Return an argument that names a run or a model."""
    return typer.Argument(
        metavar=metavar,
        envvar=MODEL_VARIABLE,
        autocompletion=completion.models,
        help=help,
        show_default=LATEST_SHOWN,
    )


ModelOption = Annotated[
    Path,
    option(
        "--model",
        panel=panels.MODEL,
        envvar=MODEL_VARIABLE,
        metavar="DIR",
        autocompletion=completion.models,
        help="The run, checkpoint or exported model to use.",
        show_default=LATEST_SHOWN,
    ),
]
ToOption = Annotated[
    str | None,
    option(
        "--to",
        panel=panels.MODEL,
        metavar="CODE",
        help="Target language of an imported multilingual model; mtcli info lists them.",
        show_default="the tag that a line begins with, such as >>fra<<",
    ),
]
DeviceOption = Annotated[
    str,
    option(
        "--device",
        panel=panels.OTHER,
        metavar="|".join(completion.DEVICES),
        autocompletion=completion.values(completion.DEVICES),
        help="The device to compute on. auto is a GPU if there is one, otherwise the CPU.",
    ),
]
EngineOption = Annotated[
    str | None,
    choice(
        "--engine",
        panel=panels.OTHER,
        values=("torch", "ctranslate2"),
        help="The library that computes.",
        show_default="ctranslate2 for models exported to it, otherwise torch",
    ),
]
ReplaceOption = Annotated[
    bool,
    flag(
        "--replace",
        panel=panels.DATA,
        help="Read invalid UTF-8 as U+FFFD and report how many bytes, instead of stopping.",
    ),
]
SwapOption = Annotated[
    bool, flag("--swap", panel=panels.DATA, help="Swap source and target, unless columns or keys name a language.")
]
ForceOption = Annotated[bool, flag("--force", panel=panels.OUTPUT, help="Overwrite existing output files.")]
BeamOption = Annotated[
    int | None,
    number(
        "-b",
        "--beam-size",
        panel=panels.SEARCH,
        within=limits.BEAM_SIZE,
        help="Number of hypotheses in beam search; 1 is greedy search.",
        show_default="the model's, usually 4",
    ),
]
LengthPenaltyOption = Annotated[
    float | None,
    number(
        "--length-penalty",
        panel=panels.SEARCH,
        within=limits.LENGTH_PENALTY,
        metavar="NUMBER",
        help="Exponent α of the length penalty; higher values prefer longer translations.",
        show_default="the model's, usually 0.6",
    ),
]
BleuTokenizerOption = Annotated[
    str | None,
    option(
        "--tokenize",
        panel=panels.SCORES,
        metavar="NAME",
        autocompletion=completion.values(completion.BLEU_TOKENIZERS),
        help="The tokenizer that sacrebleu uses for BLEU.",
        show_default="chosen by target language, usually 13a",
    ),
]
SrcOption = Annotated[
    str | None,
    language_option(
        "--src",
        help="Source language code, as in the names of files and columns.",
        show_default="taken from the names of files and columns",
    ),
]
TgtOption = Annotated[
    str | None,
    language_option(
        "--tgt",
        help="Target language code.",
        show_default="taken from the names of files and columns",
    ),
]
