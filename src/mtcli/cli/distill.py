"""`mtcli distill`."""

import re
from pathlib import Path
from typing import Annotated

import typer

from mtcli.cli import completion, panels
from mtcli.cli.input_files import check_monolingual
from mtcli.cli.option_kinds import flag, option, output_folder, pairs_option
from mtcli.cli.options import (
    OF_EACH,
    BothDirectionsOption,
    DeviceOption,
    ReplaceOption,
    SourcesOption,
    SwapOption,
    TargetsOption,
    check_models,
    max_steps_option,
    preset_option,
    set_option,
    time_option,
    train_option,
)

EXAMPLES = (
    "mtcli distill --teacher runs/ende --train pairs.tsv",
    "mtcli distill --teacher runs/a --teacher runs/b --train data/train --mono-src mono.en --parameters 2M",
    "mtcli distill --teacher runs/both --train es-gn.tsv --train es-nah.tsv --src es",
    "mtcli distill --teacher runs/ende --train pairs.tsv --latency 10ms --dry-run",
)

THOUSANDS = {"": 1, "k": 1_000, "m": 1_000_000}

OF_TEACHER = "those of the first teacher's run"


def _parameters(text: object) -> object:
    """Return the number of a text such as `2M`, `500k` or `2000000`."""
    if not isinstance(text, str):
        return text
    found = re.fullmatch(r"([0-9]{1,12}(?:\.[0-9]+)?)([kKmM]?)", text)
    if found is None or not float(found[1]):
        raise typer.BadParameter(f"{text!r} is not a number of parameters, such as 2M or 500k.")
    return round(float(found[1]) * THOUSANDS[found[2].lower()])


def _latency(text: object) -> object:
    """Return the seconds of a text such as `10ms` or `0.5s`."""
    if not isinstance(text, str):
        return text
    found = re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]+)?)(ms|s)", text)
    if found is None or not float(found[1]):
        raise typer.BadParameter(f"{text!r} is not a time of a sentence, such as 10ms or 0.5s.")
    return float(found[1]) / (1000 if found[2] == "ms" else 1)


def distill(
    teacher: Annotated[
        list[Path],
        typer.Option(
            "--teacher",
            rich_help_panel=panels.MODEL,
            autocompletion=completion.models,
            callback=check_models,
            readable=False,
            metavar="DIR",
            help="The model to learn from. Repeat the option to average the probabilities of several.",
        ),
    ],
    train: Annotated[
        list[str],
        train_option(
            help="Training pairs, whose sources the teachers translate. Repeat the option for several corpora."
        ),
    ],
    valid: Annotated[
        list[str] | None, pairs_option("--valid", help=f"Validation pairs.{OF_EACH}", show_default=OF_TEACHER)
    ] = None,
    test: Annotated[
        list[str] | None, pairs_option("--test", help=f"Test pairs.{OF_EACH}", show_default=OF_TEACHER)
    ] = None,
    src: SourcesOption = None,
    tgt: TargetsOption = None,
    both_directions: BothDirectionsOption = False,
    swap: SwapOption = False,
    replace: ReplaceOption = False,
    mono_src: Annotated[
        Path | None,
        option(
            "--mono-src",
            panel=panels.DATA,
            metavar="FILE",
            help="More text in the source language to translate, one sentence per line.",
            show_default="none",
        ),
    ] = None,
    keep_pairs: Annotated[
        bool,
        flag("--keep-pairs", panel=panels.DATA, help="Train on the training pairs too, not only on the translations."),
    ] = False,
    preset: Annotated[
        str | None,
        preset_option(help="Size of the student.", show_default="tiny"),
    ] = None,
    parameters: Annotated[
        int | None,
        option(
            "--parameters",
            panel=panels.MODEL,
            metavar="N",
            parser=_parameters,
            help="Choose the largest student with at most N parameters, such as 2M.",
            show_default="the size of --preset",
        ),
    ] = None,
    latency: Annotated[
        float | None,
        option(
            "--latency",
            panel=panels.MODEL,
            metavar="TIME",
            parser=_latency,
            help="Choose the largest student that translates a sentence in this time on one core, such as 10ms. It is "
            "measured.",
            show_default="the size of --preset",
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        set_option(help="Any setting of the student's training. Repeat the option for several."),
    ] = None,
    time: Annotated[
        str | None,
        time_option(help="Time for training the student, such as 30m. The translations take more."),
    ] = None,
    max_steps: Annotated[
        int | None,
        max_steps_option(help="Number of training steps of the student."),
    ] = None,
    out: Annotated[
        Path | None,
        output_folder("--out", help="The folder to write, or to continue.", show_default="runs/NAME-SRC-TGT-distilled"),
    ] = None,
    dry_run: Annotated[
        bool, flag("--dry-run", panel=panels.OUTPUT, help="Print the commands of the stages without running them.")
    ] = False,
    device: DeviceOption = "auto",
) -> None:
    """Train a small, fast student on the translations of larger models, and export it to CTranslate2.

    If it was interrupted, run the same command again. A larger --time or --max-steps trains the student further.
    """
    if mono_src is not None:
        check_monolingual({"--mono-src": str(mono_src)})

    from mtcli.recipes.distill.request import Request
    from mtcli.recipes.distill.run import distill, plan

    request = Request(
        teachers=tuple(teacher),
        train=tuple(train),
        valid=tuple(valid or ()),
        test=tuple(test or ()),
        src=tuple(src or ()),
        tgt=tuple(tgt or ()),
        both_directions=both_directions,
        swap=swap,
        replace=replace,
        mono_src=mono_src,
        keep_pairs=keep_pairs,
        preset=preset,
        parameters=parameters,
        latency=latency,
        time=time,
        max_steps=max_steps,
        sets=tuple(set_ or ()),
        out=out,
        device=device,
    )
    if dry_run:
        for stage in plan(request):
            print(stage)
    else:
        comparison, _ = distill(request)
        print(comparison)
