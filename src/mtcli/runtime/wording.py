"""Numbers, tables and commands in messages, and text from untrusted files that is safe to print on a terminal."""

import shlex
import shutil
import unicodedata
from collections.abc import Sequence
from pathlib import Path

PIPE_COLUMNS = 120
"""Width of a log line without a terminal."""

_DIRECTIONS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Characters that change the order in which a terminal shows text."""

_ESCAPED = frozenset({"Cc", "Zl", "Zp"})
"""Unicode categories: control characters, line and paragraph separators."""


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


def printable(text: str) -> str:
    r"""Return the text with its control characters escaped, as in `\x1b`, so that it cannot control a terminal."""
    if text.isprintable():
        return text
    return "".join(_escaped(character) for character in text)


def one_line(text: str, width: int) -> str:
    """Return a text as one line of at most `width` columns.

    Control characters are escaped. A text that is too long is cut and ends in `…`.
    """
    from rich.text import Text  # imported here because it takes time

    shown = Text(printable(text))
    shown.truncate(width, overflow="ellipsis")
    return shown.plain


def log_columns() -> int:
    """Return the width of a log line: the width of the terminal, or PIPE_COLUMNS without one."""
    return max(40, shutil.get_terminal_size((PIPE_COLUMNS, 0)).columns)


def _escaped(character: str) -> str:
    if unicodedata.category(character) in _ESCAPED or character in _DIRECTIONS:
        return character.encode("unicode_escape").decode("ascii")
    return character
