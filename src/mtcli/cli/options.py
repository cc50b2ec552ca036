"""Options that several commands share."""

import errno
import math
import os
import stat
import sys
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


def flag(*names: str, **how: Any) -> Any:
    """An option without a value; its help does not show the `<bool>` that typer would.

    Args:
        names: As `typer.Option` takes them.
        how: What else `typer.Option` takes.
    """
    return typer.Option(*names, metavar="", **how)


def _refuse_nan(value: float | None) -> float | None:
    """Refuse the one number that click finds within all bounds."""
    if value is not None and math.isnan(value):
        raise typer.BadParameter("nan is not a number.")
    return value


LATEST = Path("runs/latest")
"""Leads to the run trained last."""

ModelOption = Annotated[
    Path,
    typer.Option(
        "--model",
        envvar="MTCLI_MODEL",
        metavar="DIR",
        help="The run, checkpoint or exported model to use. The default is the run trained last.",
    ),
]
DeviceOption = Annotated[
    str,
    typer.Option(
        "--device", metavar="auto|cpu|cuda|mps", help="The device to compute on; auto takes a GPU if there is one."
    ),
]
EngineOption = Annotated[
    str | None,
    typer.Option(
        "--engine",
        metavar="torch|ctranslate2",
        help="The library that computes.",
        show_default="ctranslate2 for an export made for it, otherwise torch",
    ),
]
ReplaceOption = Annotated[
    bool, flag("--replace", help="Read invalid UTF-8 as U+FFFD and report how many bytes, instead of stopping.")
]
ForceOption = Annotated[bool, flag("--force", help="Overwrite an output that exists.")]
BeamOption = Annotated[
    int | None,
    bounded(
        "-b",
        "--beam-size",
        within=limits.BEAM_SIZE,
        help="Hypotheses kept in beam search; 1 is greedy search.",
        show_default="the model's, usually 4",
    ),
]
LengthPenaltyOption = Annotated[
    float | None,
    bounded(
        within=limits.LENGTH_PENALTY,
        help="Exponent α of the length penalty; higher prefers longer translations.",
        show_default="the model's, usually 0.6",
    ),
]


def note(text: str) -> None:
    """Print a line for people, on stderr; the names in it cannot control the terminal."""
    from mtcli.runtime.terminal import printable

    print(printable(text), file=sys.stderr)


def must_exist(*names: str | None) -> None:
    """Check that files are there to be read, before any work is done that would be lost; None and `-` pass.

    Raises:
        DataError: One is missing, a folder, or may not be read.
    """
    for name in names:
        if name is None or name == "-":
            continue
        if not name:
            raise DataError("the name of a file to read is empty; give one")
        try:
            is_folder = stat.S_ISDIR(Path(name).stat().st_mode)
            reason = errno.EISDIR if is_folder else 0 if os.access(name, os.R_OK) else errno.EACCES
        except OSError as error:
            reason = error.errno or errno.ENOENT
        if reason:
            raise DataError(f"{name}: cannot read it ({os.strerror(reason)})")
