"""`mtcli improve`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from mtcli.cli import completion, panels
from mtcli.cli.input_files import check_monolingual
from mtcli.cli.option_kinds import flag, option, output_folder
from mtcli.cli.options import (
    BothDirectionsOption,
    DeviceOption,
    ReplaceOption,
    SourcesOption,
    SwapOption,
    TargetsOption,
    TestOption,
    ValidOption,
    max_steps_option,
    model_option,
    preset_option,
    set_option,
    time_option,
    train_option,
)
from mtcli.errors import UsageError

if TYPE_CHECKING:
    from mtcli.recipes.improve.request import ImproveRequest

EXAMPLES = (
    "mtcli improve --train pairs.tsv --src en --tgt de --mono-tgt mono.de --time 3h",
    "mtcli improve --train es-gn.tsv --train es-nah.tsv --src es --mono gn=mono.gn --mono nah=mono.nah --time 6h",
    "mtcli improve --train es-gn.tsv --mono-tgt mono.gn --init runs/es-en --time 6h",
    "mtcli improve --train pairs.tsv --src en --tgt de --time 3h --dry-run",
)


def improve(
    train: Annotated[
        list[str],
        train_option(),
    ],
    mono_tgt: Annotated[
        str | None,
        option(
            "--mono-tgt",
            panel=panels.DATA,
            metavar="FILE",
            help="Text in the target language, one sentence per line.",
            show_default="none",
        ),
    ] = None,
    mono_src: Annotated[
        str | None,
        option(
            "--mono-src",
            panel=panels.DATA,
            metavar="FILE",
            help="Text in the source language, one sentence per line.",
            show_default="none",
        ),
    ] = None,
    mono: Annotated[
        list[str] | None,
        option(
            "--mono",
            panel=panels.DATA,
            metavar="CODE=FILE",
            help="Text in the target language CODE, one sentence per line. Repeat the option for several languages.",
            show_default="none",
        ),
    ] = None,
    valid: ValidOption = None,
    test: TestOption = None,
    src: SourcesOption = None,
    tgt: TargetsOption = None,
    both_directions: BothDirectionsOption = False,
    swap: SwapOption = False,
    replace: ReplaceOption = False,
    preset: Annotated[
        str | None,
        preset_option(help="Size of all models."),
    ] = None,
    init: Annotated[
        Path | None,
        model_option(
            "--init",
            metavar="MODEL",
            help="Start every model from this one, which may be of other languages.",
            show_default="random weights",
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        set_option(help="A setting of all trainings; see mtcli train --list-settings. Repeat the option for several."),
    ] = None,
    time: Annotated[
        str | None,
        time_option(help="Time for all stages together, such as 45m or 3h.", show_default="3h"),
    ] = None,
    max_steps: Annotated[
        int | None,
        max_steps_option(help="Training steps of all stages together, instead of a time.", show_default="no limit"),
    ] = None,
    out: Annotated[
        Path | None,
        output_folder(
            "--out",
            autocompletion=completion.models,
            help="The folder to write, or to continue.",
            show_default="runs/NAME-SRC-TGT-improved",
        ),
    ] = None,
    overwrite: Annotated[
        bool, flag("--overwrite", panel=panels.OUTPUT, help="Delete the results in the folder and start from scratch.")
    ] = False,
    dry_run: Annotated[
        bool, flag("--dry-run", panel=panels.OUTPUT, help="Print the stages and their shares of the budget.")
    ] = False,
    device: DeviceOption = "auto",
) -> None:
    """Get more from the same pairs: train several models, and the last one on their translations too.

    If it was interrupted, run the same command again. A larger --time or --max-steps continues one that has ended.
    """
    if time is not None and max_steps is not None:
        raise UsageError("--max-steps: not with --time")
    texts = {f"--mono {text.partition('=')[0]}": text.partition("=")[2] or None for text in mono or ()}
    check_monolingual({"--mono-tgt": mono_tgt, "--mono-src": mono_src, **texts})

    from mtcli.recipes.improve.request import resolve_request

    options = {
        "data.train": train,
        "data.valid": valid,
        "data.test": test,
        "data.src": src,
        "data.tgt": tgt,
        "data.both_directions": both_directions or None,
        "data.swap": swap or None,
        "data.replace": replace or None,
        "preset": preset,
        "train.time": time,
        "train.max_steps": max_steps,
    }
    request = resolve_request(
        options,
        set_ or (),
        out=out,
        mono_tgt=Path(mono_tgt) if mono_tgt else None,
        mono_src=Path(mono_src) if mono_src else None,
        device=device,
        mono=mono or (),
        init=init,
    )
    if dry_run:
        from mtcli.recipes.improve.run import plan

        print(plan(request))
    else:
        _improve(request, overwrite)


def _improve(request: "ImproveRequest", overwrite: bool) -> None:
    """Run the recipe, and print the summary."""
    from mtcli.recipes.improve.run import improve, summary

    result, stages = improve(request, overwrite=overwrite)
    print(summary(result, stages))
