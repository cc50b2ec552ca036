"""Options that several commands share."""

import errno
import math
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from mtcli import limits
from mtcli.errors import DataError


def bounded(*names: str, within: limits.Range, **how: Any) -> Any:
    """A numeric option with bounds.

    Args:
        names: As `typer.Option` takes them.
        within: The bounds, from `limits`.
        how: What else `typer.Option` takes.
    """
    return typer.Option(*names, min=within.min, max=within.max, callback=_refuse_nan, **how)


def _refuse_nan(value: float | None) -> float | None:
    """Refuse the one number that click finds within all bounds."""
    if value is not None and math.isnan(value):
        raise typer.BadParameter("nan is not a number.")
    return value


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
BeamOption = Annotated[int | None, bounded("-b", "--beam-size", within=limits.BEAM_SIZE, help="1: greedy.")]
LengthPenaltyOption = Annotated[float | None, bounded(within=limits.LENGTH_PENALTY, help="α of ((5 + n) / 6)^α.")]


def must_exist(*names: str | None) -> None:
    """See that files are there, before any work is done that would be lost; `-` and what is not given pass.

    Raises:
        DataError: One is not.
    """
    for name in names:
        if name not in (None, "-") and not Path(str(name)).exists():
            raise DataError(f"{name}: cannot read it ({os.strerror(errno.ENOENT)})")
