"""The words of a line, for finding terms in it and for word alignments."""

import re
from dataclasses import dataclass
from functools import cache
from unicodedata import category

from mtcli.text.writing_systems import UNSPACED, combining_marks

_BEFORE_ITS_CONSONANT = frozenset("เแโใไເແໂໃໄ")
"""Vowels of Thai and Lao that are written before the consonant that they belong to."""
_AFTER_ITS_CHARACTER = frozenset("ーぁぃぅぇぉっゃゅょゎァィゥェォッャュョヮヵヶ々ๆໆะາະำຳ")
"""Letters that belong to the character before them."""

_ASCII_WORD = re.compile(r"\w+|\S", re.ASCII)


@dataclass(frozen=True)
class Word:
    """A word of a line."""

    text: str
    start: int
    """Index of its first character in the line."""
    end: int
    """Index after its last character."""


def words_of(line: str) -> list[Word]:
    """Divide a line into words: runs of letters and digits with their marks, and single other signs.

    In scripts without spaces between words, each character counts as a word, so that terms are found inside a text.
    """
    return [Word(found.group(), found.start(), found.end()) for found in _word_pattern().finditer(line)]


def word_texts(line: str) -> list[str]:
    """Return the texts of `words_of`, in less time."""
    return _ASCII_WORD.findall(line) if line.isascii() else _word_pattern().findall(line)


@cache
def _word_pattern() -> re.Pattern[str]:
    """Return the pattern of a word: a character of a script without spaces, a run of letters, or another sign.

    A run begins with a letter or digit, so that the mark of a sign, such as an emoji, does not begin the next word.
    """
    marks = combining_marks()
    character = UNSPACED.pattern
    return re.compile(rf"{character}|(?!{character})\w(?:(?!{character})[\w{marks}])*|\S")


def continues_word(text: str) -> bool:
    """Return True if a text begins with a letter or digit that would extend the word before it."""
    return bool(text) and _is_word_character(text[0])


def ends_in_word(text: str) -> bool:
    """Return True if a text ends in a letter or digit that the next one could extend."""
    return bool(text) and _is_word_character(text[-1])


def _is_word_character(character: str) -> bool:
    is_letter_or_mark = re.match(r"\w", character) is not None or category(character)[0] == "M"
    return is_letter_or_mark and not UNSPACED.match(character)


def word_spans(text: str) -> list[tuple[int, int]]:
    """Return start and end of each run of characters without whitespace."""
    return [match.span() for match in re.finditer(r"\S+", text)]


def character_spans(text: str) -> list[tuple[int, int]]:
    """Return start and end of each word; in scripts without spaces between words, of each character.

    Combining marks, punctuation and dependent letters belong to their character.
    """
    spans = []
    for start, end in word_spans(text):
        if UNSPACED.search(text, start, end):
            for place in range(start + 1, end):
                if _can_divide(text[place - 1], text[place]):
                    spans.append((start, place))
                    start = place
        spans.append((start, end))
    return spans


def _can_divide(before: str, after: str) -> bool:
    """Return True if two adjacent characters, one of them in a script without spaces, belong to different words."""
    is_opening = category(before) in ("Ps", "Pi") or before in _BEFORE_ITS_CONSONANT
    if is_opening or after in _AFTER_ITS_CHARACTER or category(after)[0] == "M":
        return False
    if category(after)[0] in "PSC" and category(after) not in ("Ps", "Pi"):
        return False
    ends_clause = category(before)[0] == "P" and not before.isascii()
    return ends_clause or bool(UNSPACED.match(before) or UNSPACED.match(after))
