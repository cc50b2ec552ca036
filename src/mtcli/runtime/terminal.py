"""Text from files that others wrote, made safe and short enough to print on a terminal."""

import shutil
import unicodedata

PIPE_COLUMNS = 120
"""Width of a log line where there is no terminal."""

_DIRECTIONS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""They reorder what a terminal shows."""

_ESCAPED = frozenset({"Cc", "Zl", "Zp"})
"""Unicode categories: control characters, line and paragraph separators."""


def printable(text: str) -> str:
    r"""The text with its control characters escaped, as in `\x1b`, so that it cannot control a terminal."""
    if text.isprintable():
        return text
    return "".join(_escaped(character) for character in text)


def one_line(text: str, width: int) -> str:
    """A text as one line of at most `width` columns: control characters are escaped, a longer text ends in `…`."""
    shown: list[str] = []
    used = 0
    for character in map(_escaped, text):
        columns = _columns(character)
        if used + columns > width:
            while shown and used > width - 1:
                used -= _columns(shown.pop())
            return "".join(shown) + "…"
        shown.append(character)
        used += columns
    return "".join(shown)


def log_columns() -> int:
    """The width of a log line: that of the terminal, or PIPE_COLUMNS."""
    return max(40, shutil.get_terminal_size((PIPE_COLUMNS, 0)).columns)


def _escaped(character: str) -> str:
    if unicodedata.category(character) in _ESCAPED or character in _DIRECTIONS:
        return character.encode("unicode_escape").decode("ascii")
    return character


def _columns(text: str) -> int:
    """The columns of a terminal that a text without control characters takes."""
    bases = [character for character in text if not unicodedata.combining(character)]
    return len(bases) + sum(unicodedata.east_asian_width(character) in "WF" for character in bases)
