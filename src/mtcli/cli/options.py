"""Options that several commands share."""

import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from mtcli import limits
from mtcli.cli import completion, panels
from mtcli.cli.option_kinds import (
    choice,
    decimal,
    flag,
    integer,
    languages_option,
    number,
    only,
    option,
    pairs_option,
)
from mtcli.errors import ModelError

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
    list[str] | None,
    option(
        "--to",
        panel=panels.MODEL,
        metavar="CODE",
        help="Target language of a model with several; mtcli info lists them.",
        show_default="the tag that a line begins with, such as >>fra<<",
    ),
]


def only_target(to: Sequence[str] | None) -> str | None:
    """Return the value of `--to`; None: it is not set.

    Raises:
        UsageError: It is given more than once.
    """
    return only("--to", to, "run the command once for each target language")


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
NoRepeatNgramOption = Annotated[
    int | None,
    number(
        "--no-repeat-ngram",
        panel=panels.SEARCH,
        within=limits.LENGTH,
        help="Never repeat a sequence of N tokens within a translation.",
        show_default="repetitions are allowed",
    ),
]
RerankOption = Annotated[
    Path | None,
    model_option(
        "--rerank",
        metavar="DIR",
        help="A model of the reverse direction, which also scores the hypotheses of the beam; a beam of 20 gains most.",
        show_default="none",
    ),
]
PivotOption = Annotated[
    Path | None,
    model_option(
        "--pivot",
        metavar="DIR",
        help="A second model, which translates the result further: with --model from Spanish to English and this one "
        "from English to Nahuatl, Spanish is translated into Nahuatl.",
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
        values=("auto", "soft", "hard"),
        help="With --terms: hard allows only translations with the terms; soft is as fast, for a model trained on it.",
        show_default="auto: hard; if the model was trained with terms, soft, then hard for the lines that lack one",
    ),
]
NEAR_PERCENT = 85
"""The default of `--memory-match`."""

MemoryOption = Annotated[
    list[Path] | None,
    option(
        "--memory",
        panel=panels.SEARCH,
        metavar="FILE",
        parser=Path,
        help="A translation memory, such as a .tsv, .tmx or .xliff file: sentences that it has are translated by it. "
        "Repeat the option for several; of several translations of a sentence, the last one is used.",
        show_default="none",
    ),
]
MemoryMatchOption = Annotated[
    int | None,
    number(
        "--memory-match",
        panel=panels.SEARCH,
        within=limits.PERCENT,
        metavar="PERCENT",
        help="With --memory: share of the words that an entry must have in common with a sentence to be offered beside "
        "the translation; 100 offers none.",
        show_default="85",
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
    list[str] | None,
    languages_option(
        "--src",
        help="Source language code, as in the names of files and columns.",
        show_default="taken from the names of files and columns",
    ),
]
TgtOption = Annotated[
    list[str] | None,
    languages_option(
        "--tgt",
        help="Target language code.",
        show_default="taken from the names of files and columns",
    ),
]

OF_EACH = " For several pairs of languages, once for each --train."

FROM_NAMES = "taken from the names of files and columns"

HELD_OUT = "held out of the training pairs"

SourcesOption = Annotated[
    list[str] | None, languages_option("--src", help=f"Source language code.{OF_EACH}", show_default=FROM_NAMES)
]
TargetsOption = Annotated[
    list[str] | None, languages_option("--tgt", help=f"Target language code.{OF_EACH}", show_default=FROM_NAMES)
]
BothDirectionsOption = Annotated[
    bool, flag("--both-directions", panel=panels.DATA, help="Train each pair of languages in both directions.")
]
ValidOption = Annotated[
    list[str] | None, pairs_option("--valid", help=f"Validation pairs.{OF_EACH}", show_default=HELD_OUT)
]
TestOption = Annotated[list[str] | None, pairs_option("--test", help=f"Test pairs.{OF_EACH}", show_default=HELD_OUT)]

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
