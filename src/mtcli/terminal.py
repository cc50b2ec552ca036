"""Text from files that others wrote, made safe to print on a terminal."""

import unicodedata

_DIRECTIONS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""They reorder what a terminal shows."""

_ESCAPED = frozenset({"Cc", "Zl", "Zp"})
"""Unicode categories: control characters, line and paragraph separators."""


def printable(text: str) -> str:
    r"""The text with its control characters escaped, as in `\x1b`, so that it cannot control a terminal."""
    if text.isprintable():
        return text
    return "".join(_escaped(character) for character in text)


def _escaped(character: str) -> str:
    if unicodedata.category(character) in _ESCAPED or character in _DIRECTIONS:
        return character.encode("unicode_escape").decode("ascii")
    return character
