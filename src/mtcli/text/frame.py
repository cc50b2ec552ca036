"""Signs around a sentence, which stay as they are: the mark of a list, brackets, quotation marks, repeated marks.

A model that has seldom met them loses one of a pair, or changes their number. The sentence between them is like others.
"""

import re
from collections.abc import Sequence

from mtcli.text.placeholders import Offsets, find_protected
from mtcli.text.symbols import is_symbol

_LIST_MARK = re.compile(r"(?:[-–—•●▪◦‣*+]|[^\W\d_]\)|[ivx]{2,4}\)|\d{1,2}\.-|\[[ xX]?\])\s+(?=\S)")
"""The mark of an item. `1.` and `a.` are none: they may begin a date, or be the end of an abbreviation."""

_REPEATED_MARK = re.compile(r"[!?！？]{2,}$|\.{4,}$")
"""Marks at the end of a sentence that are not written so in books."""

_HASHTAGS = re.compile(r"(?:\s+#\w+)+$")
"""Words that a text in a social network has behind it."""

_CLOSERS = {
    "(": ")", "[": "]", "（": "）", "【": "】", "「": "」", "『": "』", "《": "》", "〈": "〉",
    '"': '"', "“": "”", "„": "“”", "”": "”", "«": "»", "»": "«", "‘": "’", "‚": "‘", "‹": "›", "›": "‹",
}  # fmt: skip
"""Brackets and quotation marks, each with what closes it."""

_APOSTROPHES = "‘’"
"""Quotation marks that may be apostrophes, unless they are a pair."""


def inside_of_frame(text: str) -> Offsets:
    """Return the offsets of a sentence without the signs around it; those of the whole text if it has none.

    One of a pair is around it too if the other is in another sentence: `(One. Two.)` are two. Protected text (see
    `placeholders`) is never divided.

    Args:
        text: A sentence, without white space around it.
    """
    protected = find_protected(text, decimals=True)
    mark = _LIST_MARK.match(text)
    start = mark.end() if mark else 0
    hashtags = _HASHTAGS.search(text, start)
    end = hashtags.start() if hashtags else len(text)
    before_symbols = _end_before_symbols(text, end, protected)
    inner_start, inner_end = _without_pairs(text, start, before_symbols)
    repeated = _REPEATED_MARK.search(text, inner_start, inner_end)
    if repeated and repeated.start() > inner_start:
        question = re.search("[?？]", repeated[0])
        inner_end = repeated.start() + (question.end() if question else 1)
    if (inner_start, inner_end) == (start, before_symbols):
        inner_end = end
    has_words = any(map(str.isalpha, text[inner_start:inner_end]))
    is_divided = any(inside < edge < end for inside, end in protected for edge in (inner_start, inner_end))
    return (inner_start, inner_end) if has_words and not is_divided else (0, len(text))


def _end_before_symbols(text: str, end: int, protected: Sequence[Offsets]) -> int:
    """Return the end of a text without the symbols and spaces behind it."""
    for start, next_end in reversed(protected):
        end = len(text[:end].rstrip())
        if next_end != end or not is_symbol(text[start:next_end]):
            break
        end = start
    return len(text[:end].rstrip())


def _without_pairs(text: str, start: int, end: int) -> Offsets:
    """Return the offsets of a part of a text without brackets and quotation marks around it."""
    while end - start > 2:
        inner_start, inner_end = _without_pair(text, start, end)
        if (inner_start, inner_end) == (start, end):
            break
        start = inner_start + len(text[inner_start:inner_end]) - len(text[inner_start:inner_end].lstrip())
        end = len(text[:inner_end].rstrip())
    return start, end


def _without_pair(text: str, start: int, end: int) -> Offsets:
    """Return the offsets of a part of a text without one pair around it, or without one of a pair at an end."""
    first, last = text[start], text[end - 1]
    inner = text[start + 1 : end - 1]
    closers = _CLOSERS.get(first, "")
    openers = "".join(opener for opener, its_closers in _CLOSERS.items() if last in its_closers)
    if last in closers and not set(inner).intersection(first + closers):
        return start + 1, end - 1
    if closers and first not in _APOSTROPHES and not set(inner + last).intersection(first + closers):
        return start + 1, end
    if openers and last not in _APOSTROPHES and not set(first + inner).intersection(last + openers):
        return start, end - 1
    return start, end
