"""Options that several commands share."""

import errno
import math
import os
import stat
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
ForceOption = Annotated[bool, typer.Option("--force", help="Replace an output that exists.")]
BeamOption = Annotated[int | None, bounded("-b", "--beam-size", within=limits.BEAM_SIZE, help="1: greedy.")]
LengthPenaltyOption = Annotated[float | None, bounded(within=limits.LENGTH_PENALTY, help="α of ((5 + n) / 6)^α.")]


def must_exist(*names: str | None) -> None:
    """Check that files are there to be read, before any work is done that would be lost; None and `-` pass.

    Raises:
        DataError: One is missing, a folder, or may not be read.
    """
    for name in names:
        if name is None or name == "-":
            continue
        try:
            is_folder = stat.S_ISDIR(Path(name).stat().st_mode)
            reason = errno.EISDIR if is_folder else 0 if os.access(name, os.R_OK) else errno.EACCES
        except OSError as error:
            reason = error.errno or errno.ENOENT
        if reason:
            raise DataError(f"{name}: cannot read it ({os.strerror(reason)})")
