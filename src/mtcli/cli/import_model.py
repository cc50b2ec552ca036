"""`mtcli import`."""

from pathlib import Path
from typing import Annotated

import typer

from mtcli.cli import panels
from mtcli.cli.option_kinds import language_option, option, output_folder_option, pairs_option
from mtcli.cli.options import check_model
from mtcli.cli.process import note

EXAMPLES = (
    "mtcli import Helsinki-NLP/opus-mt-en-de",
    "mtcli import downloads/opus-mt-en-de -o runs/ende --calibrate dev.tsv",
)

TEXT = '"…"'
"""Stands for the text of a command that is shown."""


def import_model(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="A model of the Hugging Face Hub, such as Helsinki-NLP/opus-mt-en-de, or a local folder.",
        ),
    ],
    revision: Annotated[
        str | None,
        option(
            "--revision",
            panel=panels.MODEL,
            metavar="NAME",
            help="A branch, tag or commit of the Hub.",
            show_default="the main branch",
        ),
    ] = None,
    src: Annotated[
        str | None,
        language_option(
            "--src",
            help="Source language code.",
            show_default="as the model names it",
        ),
    ] = None,
    tgt: Annotated[
        str | None,
        language_option(
            "--tgt",
            help="Target language code.",
            show_default="as the model names it",
        ),
    ] = None,
    calibrate: Annotated[
        str | None,
        pairs_option(
            "--calibrate",
            help="Sentence pairs that the model was not trained on: translations then have a confidence.",
            show_default="none",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        output_folder_option("The folder to write.", show_default="runs/NAME"),
    ] = None,
) -> None:
    """Import a Marian model (OPUS-MT) as a model folder that every command can use."""
    from mtcli.exchange.marian_import import default_folder, import_model
    from mtcli.runtime.outputs import check_folder
    from mtcli.runtime.wording import command

    check_model(Path(source))
    out = output or default_folder(source)
    check_folder(out)
    imported = import_model(source, out, src=src, tgt=tgt, revision=revision)
    note(f"wrote {out} ({imported.src} → {imported.tgt})")
    if calibrate is not None:
        from mtcli.evaluation.confidence import calibrate_import
        from mtcli.runtime.wording import counted

        confidence = calibrate_import(out, calibrate, imported.src, imported.tgt, imported.tags)
        note(f"translations have a confidence, calibrated on {counted(confidence.pairs, 'pair')} of {calibrate}")
    target = []
    if imported.tags:
        tags = sorted(imported.tags)
        note(f"target languages: {', '.join(tags)}")
        target = ["--to", tags[0]]
    note(f"translate with it: {command('translate', out, *target, TEXT)}")
