"""Numbers, tables and commands in messages."""

import shlex
from collections.abc import Sequence
from pathlib import Path


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun: `1 pair`, `1,234 pairs`.

    Args:
        number: How many there are.
        noun: The singular.
        plural: The plural; None: the singular and an s.
    """
    form = noun if number == 1 else plural or f"{noun}s"
    return f"{number:,} {form}"


def every(number: int, noun: str) -> str:
    """Return an interval: `every step`, `every 1,234 steps`."""
    return f"every {noun}" if number == 1 else f"every {counted(number, noun)}"


def aligned(rows: Sequence[Sequence[str]], *, numeric: bool = False) -> list[str]:
    """Return the rows of a table as lines with columns of equal width.

    Args:
        rows: The cells of each row, equally many.
        numeric: All columns but the first are numbers, so their cells end at the same place.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for first, *others in rows:
        cells = [first.ljust(widths[0])]
        for cell, width in zip(others, widths[1:], strict=True):
            cells.append(cell.rjust(width) if numeric else cell.ljust(width))
        lines.append("  ".join(cells).rstrip())
    return lines


def command(name: str, model: Path, *arguments: str) -> str:
    """Return the command `mtcli NAME --model DIR …`, quoted for a shell."""
    return " ".join(["mtcli", name, "--model", shlex.quote(str(model)), *arguments])


def to_option(targets: Sequence[str]) -> list[str]:
    """Return the option that chooses a target language, for a command as an example; nothing if there is one language.

    Args:
        targets: The target languages of the model.
    """
    return ["--to", shlex.quote(targets[0])] if len(targets) > 1 else []
