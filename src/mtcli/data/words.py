"""The words of a line, for finding terms in it."""

import re
from dataclasses import dataclass

from mtcli.config.writing_systems import UNSPACED

_CHARACTER = UNSPACED.pattern
_WORD = re.compile(rf"{_CHARACTER}|(?:(?!{_CHARACTER})[\w\u0300-\u036f])+|\S")
"""A character of a script without spaces, a run of letters and digits, or another sign."""


@dataclass(frozen=True)
class Word:
    """A word of a line."""

    text: str
    start: int
    """Index of its first character in the line."""
    end: int
    """Index after its last character."""


def words_of(line: str) -> list[Word]:
    """Divide a line into words: runs of letters and digits, and single other signs.

    In scripts without spaces between words, each character counts as a word, so that terms are found inside a text.
    """
    return [Word(found.group(), found.start(), found.end()) for found in _WORD.finditer(line)]


def continues_word(text: str) -> bool:
    """Return True if a text begins with a letter or digit that would extend the word before it."""
    return bool(text) and _is_word_character(text[0])


def ends_in_word(text: str) -> bool:
    """Return True if a text ends in a letter or digit that the next one could extend."""
    return bool(text) and _is_word_character(text[-1])


def _is_word_character(character: str) -> bool:
    return not UNSPACED.match(character) and re.match(r"[\w\u0300-\u036f]", character) is not None
