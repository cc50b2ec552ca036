"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

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
