"""Writing systems: which scripts have no spaces between words, and which marks are part of words."""

import re
from collections.abc import Iterable
from functools import cache
from itertools import islice
from unicodedata import category

SAMPLE = 1000
"""Number of sentences that show whether a text is written with spaces."""

UNSPACED = re.compile(
    "[\u0e00-\u109f\u1780-\u17ff\u1950-\u19ff\u1a20-\u1aaf\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u9fff"
    "\uaa60-\uaa7f\uf900-\ufaff\U00020000-\U0003ffff]"
)
"""A character of a script without spaces between words: Thai to Burmese, Khmer, Tai scripts, kana, Chinese."""

_LAST_MARK = 0x1E94A
"""The last combining mark of Unicode 15 that is part of words."""


@cache
def combining_marks() -> str:
    """Return all combining marks that are part of words. Python's `\\w` has none of them.

    In the scripts of India and Arabic they are vowels. They are collected when they are needed first, because that
    takes longer than starting mtcli may.
    """
    return "".join(mark for mark in map(chr, range(_LAST_MARK + 1)) if category(mark)[0] == "M")


def letter_runs(text: str) -> list[str]:
    """Return the runs of letters with their marks in a text: its words, without digits and signs."""
    return _letters().findall(text)


@cache
def _letters() -> re.Pattern[str]:
    return re.compile(rf"[^\W\d_]+(?:[{combining_marks()}]+[^\W\d_]*)*")


def unspaced(texts: Iterable[str]) -> bool:
    """Return True if most characters of the first texts belong to scripts without spaces between words."""
    characters = "".join("".join(text.split()) for text in islice(texts, SAMPLE))
    return 2 * len(UNSPACED.findall(characters)) > len(characters)
