"""Make text from untrusted files safe and short enough to print on a terminal."""

import shutil
import unicodedata

PIPE_COLUMNS = 120
"""Width of a log line without a terminal."""

_DIRECTIONS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""Characters that change the order in which a terminal shows text."""

_ESCAPED = frozenset({"Cc", "Zl", "Zp"})
"""Unicode categories: control characters, line and paragraph separators."""


def printable(text: str) -> str:
    r"""Return the text with its control characters escaped, as in `\x1b`, so that it cannot control a terminal."""
    if text.isprintable():
        return text
    return "".join(_escaped(character) for character in text)


def one_line(text: str, width: int) -> str:
    """Return a text as one line of at most `width` columns.

    Control characters are escaped. A text that is too long is cut and ends in `…`.
    """
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
    """Return the width of a log line: the width of the terminal, or PIPE_COLUMNS without one."""
    return max(40, shutil.get_terminal_size((PIPE_COLUMNS, 0)).columns)


def _escaped(character: str) -> str:
    if unicodedata.category(character) in _ESCAPED or character in _DIRECTIONS:
        return character.encode("unicode_escape").decode("ascii")
    return character


def _columns(text: str) -> int:
    """Return how many columns of a terminal a text without control characters takes."""
    columns = 0
    for character in text:
        if unicodedata.combining(character):
            continue
        is_wide = unicodedata.east_asian_width(character) in "WF"
        columns += 2 if is_wide else 1
    return columns
