"""Options that several commands share, and helpers that make options.

A helper passes the arguments that it does not name itself to `typer.Option`. `panel` is the panel in `--help`.
"""

import os
import re
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from mtcli import limits
from mtcli.cli import completion, panels
from mtcli.errors import ModelError, UsageError

STANDARD_OUTPUT = "-"


def option(*names: str, panel: str, **how: Any) -> Any:
    """Return an option that takes a value."""
    return typer.Option(*names, rich_help_panel=panel, **how)


def flag(*names: str, panel: str, **how: Any) -> Any:
    """Return an option without a value; its help omits typer's `<bool>`."""
    return typer.Option(*names, rich_help_panel=panel, metavar="", **how)


def integer(text: object) -> object:
    """Return the integer of a text, for `parser` of an option. Python itself also reads `1_0` and other digits."""
    if not isinstance(text, str):
        return text  # the default
    if not re.fullmatch(r"[+-]?[0-9]{1,30}", text):
        raise typer.BadParameter(f"{text!r} is not a whole number.")
    return int(text)


def decimal(text: object) -> object:
    """Return the number of a text, for `parser` of an option. Python itself also reads `1_0`."""
    if not isinstance(text, str):
        return text  # the default
    try:
        if "_" not in text:
            return float(text)
    except ValueError:
        pass
    raise typer.BadParameter(f"{text!r} is not a number.")


def number(
    *names: str,
    panel: str,
    within: limits.Range,
    parser: Callable[[object], object] = integer,
    metavar: str = "N",
    **how: Any,
) -> Any:
    """Return a numeric option with bounds. Its help omits them, since they are far from any sensible value.

    Args:
        names: The names of the option.
        panel: Its panel.
        within: Its bounds.
        parser: `integer` or `decimal`.
        metavar: Stands for the value in the help.
        how: Passed to `typer.Option`.
    """

    def check(value: float | None) -> float | None:
        if value is not None and not within.min <= value <= within.max:  # nan is within no bounds
            raise typer.BadParameter(f"{value} is out of range; give a number from {within.min:,} to {within.max:,}.")
        return value

    return typer.Option(*names, rich_help_panel=panel, metavar=metavar, callback=check, parser=parser, **how)


def choice(*names: str, panel: str, values: tuple[str, ...], **how: Any) -> Any:
    """Return an option that takes one of a few values, which the Tab key completes."""

    def check(parameter: typer.CallbackParam, value: str | None) -> str | None:
        if value is not None and value not in values:
            raise UsageError(f"{_shown_name(parameter)} {value}: choose from {', '.join(values)}")
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


def json_flag(help: str) -> Any:
    """Return the option that chooses JSON as the output format."""
    return flag("--json", panel=panels.OUTPUT, help=help)


def output_file(*names: str, panel: str, **how: Any) -> Any:
    """Return an option that names a file to write, as a `Path`. Standard output is refused."""

    def check(parameter: typer.CallbackParam, value: str | None) -> Path | None:
        if value is None:
            return None
        name = _shown_name(parameter)
        if value == STANDARD_OUTPUT:
            raise UsageError(f"{name} -: is written to a file, not to standard output; name a file")
        if not value:
            raise UsageError(f"{name}: the name is empty; name a file")
        if value.endswith(os.sep):  # `Path` drops it
            raise UsageError(f"{name} {value}: names a folder; name a file")
        return Path(value)

    return option(*names, panel=panel, callback=check, parser=str, **how)


def output_folder(*names: str, **how: Any) -> Any:
    """Return an option that names a folder to write, as a `Path`."""

    def check(parameter: typer.CallbackParam, value: str | None) -> Path | None:
        if value is None:
            return None
        name = _shown_name(parameter)
        if value == STANDARD_OUTPUT:
            raise UsageError(f"{name} -: is a folder, not standard output; name a folder")
        if not value:
            raise UsageError(f"{name}: the name is empty; name a folder")
        return Path(value)

    return option(*names, panel=panels.OUTPUT, metavar="DIR", callback=check, parser=str, **how)


def output_folder_option(help: str, show_default: str) -> Any:
    """Return the option `--output` of a command that writes a folder."""
    return output_folder("-o", "--output", help=help, show_default=show_default)


def _shown_name(parameter: typer.CallbackParam) -> str:
    """Return the name of an option for messages: the long one."""
    return max(parameter.opts, key=len)


TERMS_MODES = ("auto", "soft", "hard")

TermsOption = Annotated[
    Path | None,
    option(
        "--terms",
        panel=panels.SEARCH,
        metavar="FILE",
        parser=Path,
        help="Terms and their translations, one per line with a tab between them. A term alone is copied.",
        show_default="none",
    ),
]
TermsModeOption = Annotated[
    str | None,
    choice(
        "--terms-mode",
        panel=panels.SEARCH,
        values=TERMS_MODES,
        help="With --terms: hard allows only translations with the terms; soft is as fast, for a model trained on it.",
        show_default="auto: hard; if the model was trained with terms, soft, then hard for the lines that lack one",
    ),
]

LATEST = Path("runs/latest")
"""A link to the run that was trained last."""

MODEL_VARIABLE = "MTCLI_MODEL"
LATEST_SHOWN = "runs/latest, the run trained last"


def check_model(folder: Path | None) -> Path | None:
    """Check that a model can be read. If there is nothing of this name, the command itself explains that.

    Raises:
        ModelError: It cannot be read.
    """
    if folder is None:
        return None
    try:
        status = folder.stat()
    except (FileNotFoundError, NotADirectoryError):
        return folder
    except OSError as error:  # no permission, a name that is too long
        raise ModelError(f"{folder}: cannot read this model ({error.strerror})") from None
    needed = os.R_OK | os.X_OK if stat.S_ISDIR(status.st_mode) else os.R_OK
    if not os.access(folder, needed):
        raise ModelError(f"{folder}: cannot read this model (Permission denied)")
    return folder


def check_models(context: typer.Context, parameter: typer.CallbackParam, folders: Sequence[Path] | None) -> list[Path]:
    """Check that each of several models can be read, see `check_model`. None are the run trained last."""
    source = context.get_parameter_source(str(parameter.name))
    if source is not None and source.name == "ENVIRONMENT":
        folders = [Path(os.environ[MODEL_VARIABLE])]  # the variable names one model; typer would split it at `:`
    for folder in folders or ():
        check_model(folder)
    return list(folders or [LATEST])


def model_argument(help: str, metavar: str = "MODEL") -> Any:
    """Return an argument that names a run or a model."""
    return typer.Argument(
        metavar=metavar,
        envvar=MODEL_VARIABLE,
        autocompletion=completion.models,
        callback=check_model,
        readable=False,  # otherwise typer reports a folder that cannot be read as a wrong option
        help=help,
        show_default=LATEST_SHOWN,
    )


def model_option(*names: str, **how: Any) -> Any:
    """Return an option that names a run or a model to read."""
    return typer.Option(
        *names,
        rich_help_panel=panels.MODEL,
        autocompletion=completion.models,
        callback=check_model,
        readable=False,  # see `model_argument`
        **how,
    )


ModelOption = Annotated[
    Path,
    model_option(
        "--model",
        envvar=MODEL_VARIABLE,
        metavar="DIR",
        help="The run, checkpoint or exported model to use.",
        show_default=LATEST_SHOWN,
    ),
]


def models_option(help: str) -> Any:
    """Return an option that names one or several models to read."""
    return typer.Option(
        "--model",
        rich_help_panel=panels.MODEL,
        autocompletion=completion.models,
        callback=check_models,
        readable=False,  # see `model_argument`
        envvar=MODEL_VARIABLE,
        metavar="DIR",
        help=help,
        show_default=LATEST_SHOWN,
    )


ModelsOption = Annotated[
    list[Path] | None,
    models_option(
        "The run, checkpoint or exported model to use. Repeat the option to average the probabilities of several."
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
AutoEngineOption = Annotated[
    str,
    choice(
        "--engine",
        panel=panels.OTHER,
        values=("auto", "torch", "ctranslate2"),
        help="The library that computes. auto is ctranslate2 for models exported to it, and on a CPU for a run whose "
        "model training has converted and compared; mtcli info shows which.",
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
        parser=decimal,
        metavar="NUMBER",
        help="Exponent α of the length penalty; higher values prefer longer translations.",
        show_default="the model's, usually 0.6",
    ),
]
RerankOption = Annotated[
    Path | None,
    model_option(
        "--rerank",
        metavar="DIR",
        help="A model of the reverse direction, which ranks the hypotheses of the beam too; a beam of 20 gains most.",
        show_default="none",
    ),
]
RerankWeightOption = Annotated[
    float | None,
    number(
        "--rerank-weight",
        panel=panels.MODEL,
        within=limits.RERANK_WEIGHT,
        parser=decimal,
        metavar="NUMBER",
        help="Weight of the log-probability of the reverse model.",
        show_default="0.3",
    ),
]
TopKOption = Annotated[
    int | None,
    number(
        "--top-k",
        panel=panels.SAMPLING,
        within=limits.TOP_K,
        metavar="K",
        help="When sampling: draw from the K most likely tokens; 0 is all of them.",
        show_default="all tokens",
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
