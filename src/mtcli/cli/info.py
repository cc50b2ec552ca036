"""`mtcli info`."""

from pathlib import Path
from typing import Annotated

from mtcli.cli.options import LATEST, model_argument

EXAMPLES = ("mtcli info", "mtcli info runs/ende-ctranslate2")


def info(
    folder: Annotated[
        Path, model_argument("A run, a checkpoint, or an averaged, exported or imported model.", metavar="DIR")
    ] = LATEST,
) -> None:
    """Summarize a run or a model: languages, shape, data, progress, best score, checkpoints, and what to do next."""
    from mtcli.report.info import summary
    from mtcli.report.plan import table

    print(table(summary(folder)))
