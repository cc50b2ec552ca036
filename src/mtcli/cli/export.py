"""`mtcli export`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from mtcli.cli import completion, panels
from mtcli.cli.option_kinds import choice, option, output_folder_option
from mtcli.cli.options import LATEST, model_argument
from mtcli.cli.process import note

if TYPE_CHECKING:
    from mtcli.exchange.export import Parity

EXAMPLES = (
    "mtcli export --to ctranslate2 --quantization int8",
    "mtcli export runs/ende --to huggingface",
    "mtcli export --to argos",
)

TARGETS = ("ctranslate2", "huggingface", "argos")

MAX_DIFFERENCES = 3
"""Number of different translations that are printed."""


def export(
    model: Annotated[Path, model_argument("A run, or one of its checkpoints.")] = LATEST,
    to: Annotated[
        str, choice("--to", panel=panels.OUTPUT, values=TARGETS, help="The library to export to.")
    ] = "ctranslate2",
    output: Annotated[
        Path | None,
        output_folder_option("The folder to write.", show_default="RUN-ctranslate2, RUN-huggingface or RUN-argos"),
    ] = None,
    quantization: Annotated[
        str | None,
        option(
            "--quantization",
            panel=panels.OUTPUT,
            metavar="int8|float16|…",
            autocompletion=completion.values(completion.QUANTIZATIONS),
            help="Store smaller weights; not with --to huggingface.",
            show_default="float32",
        ),
    ] = None,
) -> None:
    """Export a model to CTranslate2, transformers or Argos Translate, and compare its translations."""
    from mtcli.exchange.export import default_folder, export
    from mtcli.report.info import targets_of
    from mtcli.runtime.outputs import check_folder
    from mtcli.runtime.wording import command, to_option

    out = output or default_folder(model, to)
    check_folder(out)
    parity = export(model, to, out, quantization)
    usage = f"; run it: {command('translate', out, *to_option(targets_of(out)))}" if to == "ctranslate2" else ""
    note(f"wrote {out}{usage}")
    if parity is not None:
        _print_parity(parity, out)


def _print_parity(parity: "Parity", out: Path) -> None:
    print(parity)
    for difference in parity.differences[:MAX_DIFFERENCES]:
        note(f"  {difference.source}")
        note(f"    run       {difference.our_score:.4f} {difference.ours}")
        note(f"    exported  {difference.exported_score:.4f} {difference.exported}")
    if parity.differences:
        note(f"more on the differences is in {out / 'parity.json'}")
