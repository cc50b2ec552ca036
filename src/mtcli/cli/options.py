"""Options that several commands share."""

import errno
import os
from pathlib import Path
from typing import Annotated

import typer

from mtcli.errors import DataError

LATEST = Path("runs/latest")
"""Leads to the run trained last."""

ModelOption = Annotated[
    Path, typer.Option("--model", envvar="MTCLI_MODEL", metavar="DIR", help="A run folder; the last one trained.")
]
DeviceOption = Annotated[str, typer.Option("--device", metavar="auto|cpu|cuda|mps", help="Where to compute.")]
EngineOption = Annotated[
    str | None,
    typer.Option("--engine", metavar="torch|ctranslate2", help="What computes; what the folder is for, unless given."),
]
ReplaceOption = Annotated[bool, typer.Option("--replace", help="Read invalid UTF-8 as U+FFFD, and count it.")]
BeamOption = Annotated[int | None, typer.Option("-b", "--beam-size", min=1, help="1: greedy.")]
LengthPenaltyOption = Annotated[float | None, typer.Option(min=0.0, help="α of ((5 + n) / 6)^α.")]


def must_exist(*names: str | None) -> None:
    """See that files are there, before any work is done that would be lost; `-` and what is not given pass.

    Raises:
        DataError: One is not.
    """
    for name in names:
        if name not in (None, "-") and not Path(str(name)).exists():
            raise DataError(f"{name}: cannot read it ({os.strerror(errno.ENOENT)})")
