"""`mtcli export` and `mtcli info`."""

import os
from pathlib import Path
from typing import Annotated

import typer

from mtcli.cli.options import LATEST, note
from mtcli.errors import UsageError


def export(
    model: Annotated[
        Path,
        typer.Argument(
            metavar="[MODEL]",
            envvar="MTCLI_MODEL",
            help="A run folder or one of its checkpoints. The default is the run trained last.",
        ),
    ] = LATEST,
    to: Annotated[
        str, typer.Option("--to", metavar="ctranslate2|huggingface", help="The library to export to.")
    ] = "ctranslate2",
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="DIR",
            help="The folder to write.",
            show_default="MODEL-ctranslate2 or MODEL-huggingface",
        ),
    ] = None,
    quantization: Annotated[
        str | None,
        typer.Option(
            metavar="int8|float16|…", help="Store smaller weights; only with --to ctranslate2.", show_default="float32"
        ),
    ] = None,
) -> None:
    """Export a model to CTranslate2 or Hugging Face transformers, and compare its translations with the original's."""
    if to not in ("ctranslate2", "huggingface"):
        raise UsageError(f"--to {to}: choose from ctranslate2, huggingface")
    from mtcli.export import export
    from mtcli.runtime.output_checks import check_folder

    real = Path(os.path.realpath(model))
    out = output or real.with_name(f"{real.name}-{to}")
    check_folder(out)
    found = export(model, to, out, quantization)
    note(f"wrote {out}" + (f"; run it: mtcli translate --model {out}" if to == "ctranslate2" else ""))
    if found is not None:
        print(found)
        for shown in found.differences[:3]:
            note(f"  {shown.source}")
            note(f"    ours      {shown.our_score:.4f} {shown.ours}")
            note(f"    exported  {shown.exported_score:.4f} {shown.exported}")
        if found.differences:
            note(f"more on the differences is in {out / 'parity.json'}")


def info(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="[DIR]",
            envvar="MTCLI_MODEL",
            help="A run, a checkpoint, an averaged or an exported model. The default is the run trained last.",
        ),
    ] = LATEST,
) -> None:
    """Summarize a run or a model: languages, shape, data, progress, best score, checkpoints, and what to do next."""
    from mtcli.report.info import summary
    from mtcli.report.plan import table

    rows = summary(folder)
    print(table(rows))
