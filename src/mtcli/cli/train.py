"""`mtcli train`."""

import sys
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated

import typer

from mtcli.cli import completion, panels
from mtcli.cli.option_kinds import flag, output_folder, pairs_option
from mtcli.cli.options import (
    LATEST,
    BleuTokenizerOption,
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
from mtcli.errors import DataError, LockedError, ModelError, UsageError

if TYPE_CHECKING:
    import torch

    from mtcli.training.request import TrainingRequest

EXAMPLES = (
    "mtcli train",
    "mtcli train pairs.csv --src en --tgt es --time 30m",
    "mtcli train data/train --src en --tgt de --out runs/ende",
    "mtcli train --train es-gn.tsv --train es-nah.tsv --src es --tgt gn --tgt nah",
    "mtcli train --init runs/ende --train news.tsv --out runs/news --time 10m",
    "mtcli train --init runs/ende --corrections corrections.tsv",
    "mtcli train --list-settings",
)


def train(
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="CONFIG.toml|PAIRS",
            help="A configuration file, or training pairs.",
            show_default="the built-in demo",
        ),
    ] = None,
    train: Annotated[
        list[str] | None,
        train_option(show_default="the built-in demo"),
    ] = None,
    corrections: Annotated[
        str | None,
        pairs_option(
            "--corrections",
            help="Corrected translations for the model of --init to learn, mixed with its training pairs.",
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
        preset_option(help="Size of the model."),
    ] = None,
    init: Annotated[
        Path | None,
        model_option(
            "--init",
            metavar="MODEL",
            help="Start from this model: fine-tune it, or with other --src or --tgt use it as a parent.",
            show_default="random weights",
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        set_option(help="Any setting; --list-settings lists them. Repeat the option for several."),
    ] = None,
    list_settings: Annotated[
        bool,
        flag("--list-settings", panel=panels.MODEL, help="List all settings with their defaults, without training."),
    ] = False,
    time: Annotated[
        str | None,
        time_option(help="Time for everything, scoring included, such as 45s, 30m or 2h30m."),
    ] = None,
    max_steps: Annotated[
        int | None,
        max_steps_option(help="Number of training steps."),
    ] = None,
    tokenize: BleuTokenizerOption = None,
    out: Annotated[
        Path | None,
        output_folder(
            "--out",
            autocompletion=completion.models,
            help="The run folder to write, or to resume.",
            show_default="runs/demo or runs/NAME-SRC-TGT",
        ),
    ] = None,
    overwrite: Annotated[
        bool, flag("--overwrite", panel=panels.OUTPUT, help="Delete the run in the folder and start from scratch.")
    ] = False,
    dry_run: Annotated[
        bool,
        flag(
            "--dry-run",
            panel=panels.OUTPUT,
            help="Print the plan (sizes, memory, speed, expected end) without training.",
        ),
    ] = False,
    device: DeviceOption = "auto",
) -> None:
    """Train a model, or resume if it was interrupted. Without arguments, train the built-in demo."""
    started = monotonic()  # before PyTorch is imported, which counts for a time budget
    if list_settings:
        print_settings()
        return
    from mtcli.runtime.device import pick_device
    from mtcli.training.request import resolve

    is_file = what is not None and what.lower().endswith((".toml", ".yaml", ".yml"))  # YAML is refused later
    file = Path(what) if what is not None and is_file else None
    corpora = list(train or ())
    if what is not None and not is_file:
        corpora.insert(0, what)
    options = {
        "data.train": corpora or None,
        "data.corrections": corrections,
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
        "train.bleu_tokenizer": tokenize,
    }
    request = resolve(file, options, set_ or (), out=out, init=init, overwrite=overwrite)
    if not dry_run:
        _train(request, pick_device(device), started)
        return
    from mtcli.report.plan import table
    from mtcli.training.dry_run import dry_run as planned_rows

    for row in planned_rows(request.config, request.run, pick_device(device), init=request.init, overwrite=overwrite):
        print(table([row]), flush=True)


def _train(request: "TrainingRequest", device: "torch.device", started: float) -> None:
    """Train. If this changes the model, make runs/latest lead to the run, even if training fails later.

    The stages of a recipe are no results, so they leave the link as it is.
    """
    from mtcli.recipes.recipe import is_stage
    from mtcli.runtime import torchrun
    from mtcli.storage.run_name import modified, point_to
    from mtcli.training.run import train

    model = request.run / "model.safetensors"
    before = modified(model)
    is_refused = False
    try:
        train(request.config, request.run, device, init=request.init, overwrite=request.overwrite, started=started)
    except (UsageError, DataError, ModelError, LockedError):
        is_refused = True
        raise
    finally:
        is_new = model.exists() and (modified(model) != before or not LATEST.exists())
        if is_new and not is_refused and torchrun.rank() == 0 and not is_stage(request.run):
            point_to(LATEST, request.run)


def print_settings() -> None:
    """Print every setting with its type, default and meaning: tables on a terminal, otherwise one line per setting."""
    from mtcli.config.settings import to_text

    if sys.stdout.isatty():
        _print_tables()
    else:
        print(to_text(), end="")


def _print_tables() -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from mtcli.config.settings import sections

    console = Console(highlight=False)
    for section in sections():
        table = Table(title=Text(f"{section.name}: {section.meaning}", style="bold"), title_justify="left", box=None)
        table.add_column("setting", style="cyan", no_wrap=True, header_style="dim")
        table.add_column("type", style="yellow", header_style="dim")
        table.add_column("default", header_style="dim")
        table.add_column("meaning", header_style="dim", ratio=1)
        for setting in section.settings:
            table.add_row(setting.name, setting.type, setting.default, Text(setting.meaning))
        console.print(table)
        console.print()
