"""Signs around a sentence, which stay as they are: the mark of a list, brackets, quotation marks, repeated marks.

A model that has seldom met them loses one of a pair, or changes their number. The sentence between them is like others.
"""

import re
from collections.abc import Sequence

from mtcli.text.placeholders import Offsets, find_protected
from mtcli.text.symbols import is_symbol

_LIST_MARKS = re.compile(
    r"(?:(?:[-–—―•●▪◦‣*+>]|#{1,6}|[^\W\d_]\)|[ivx]{2,4}\)|\d{1,3}\)|\d{1,2}\.-|\[[ xX]?\])\s+(?=\S)|[–—―]+(?=\S))+"
)
"""The marks of an item, or of speech. `1.` and `a.` are none: they may begin a date, or end an abbreviation."""

_BEGINNING = re.compile(r"(?:\.{3,}|…)\s*(?=\w)")
"""What stands before the rest of a sentence that began earlier."""

_REPEATED_MARK = re.compile(r"[!?！？؟]{2,}$|\.{4,}$|…+$|\s*[–—―]+$")
"""Marks at the end of a sentence that are not written so in books, or that say that it continues."""

_HASHTAGS = re.compile(r"(?:[\s,]+#\w+)+$")
"""Words that a text in a social network has behind it."""

_CLOSERS = {
    "(": ")", "[": "]", '"': '"', "“": "”", "„": "“”", "”": "”", "«": "»", "»": "«", "‘": "’", "‚": "‘", "‹": "›",
    "›": "‹", "'": "'", "_": "_", "~": "~",
}  # fmt: skip
"""Brackets, quotation marks and marks of emphasis, each with what closes it."""

_ONLY_AS_PAIR = "‘’'_~"
"""Those that may stand alone: apostrophes, and signs of other use."""

_MARKS = ".,;:!?…"
"""Marks that may follow what closes a pair."""

_LABEL = re.compile(r"(?:^|\s)\w\)$")
"""The name of a choice, such as `a)`, at the end of a text."""


def inside_of_frame(text: str) -> Offsets:
    """Return the offsets of a sentence without the signs around it; those of the whole text if it has none.

    One of a pair is around it too if the other is in another sentence: `(One. Two.)` are two. Protected text (see
    `placeholders`) is never divided.

    Args:
        text: A sentence, without white space around it.
    """
    protected = find_protected(text, decimals=True)
    marks = _LIST_MARKS.match(text)
    start = marks.end() if marks else 0
    hashtags = _HASHTAGS.search(text, start)
    end = hashtags.start() if hashtags and "#" not in text[start : hashtags.start()] else len(text)
    after_symbols = _start_after_symbols(text, start, protected)
    before_symbols = _end_before_symbols(text, end, protected)
    inner_start, inner_end = _without_pairs(text, after_symbols, before_symbols)
    beginning = _BEGINNING.match(text, inner_start, inner_end)
    if beginning:
        inner_start = beginning.end()
    repeated = _REPEATED_MARK.search(text, inner_start, inner_end)
    if repeated and repeated.start() > inner_start:
        inner_end = repeated.start() + _num_kept(repeated[0])
    if inner_start == after_symbols:
        inner_start = start
    if inner_end == before_symbols:
        inner_end = end
    has_words = any(map(str.isalpha, text[inner_start:inner_end]))
    is_divided = any(first < edge < last for first, last in protected for edge in (inner_start, inner_end))
    return (inner_start, inner_end) if has_words and not is_divided else (0, len(text))


def _num_kept(marks: str) -> int:
    """Return how many of repeated marks the sentence keeps: up to the first question mark, otherwise one full mark."""
    if marks[0] in "!?！？؟":
        question = re.search("[?？؟]", marks)
        return question.end() if question else 1
    return 1 if marks[0] == "." else 0


def _start_after_symbols(text: str, start: int, protected: Sequence[Offsets]) -> int:
    """Return the start of a text without the symbols and spaces before it."""
    for first, next_start in protected:
        if first == start and is_symbol(text[first:next_start]):
            start = next_start + len(text[next_start:]) - len(text[next_start:].lstrip())
    return start


def _end_before_symbols(text: str, end: int, protected: Sequence[Offsets]) -> int:
    """Return the end of a text without the symbols and spaces behind it."""
    end = len(text[:end].rstrip())
    for first, next_start in reversed(protected):
        if next_start == end and is_symbol(text[first:next_start]):
            end = len(text[:first].rstrip())
    return end


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
    first = text[start]
    closers = _CLOSERS.get(first, "")
    before_marks = start + len(text[start:end].rstrip(_MARKS))
    for last in (end, before_marks):  # `(One).`
        inner = text[start + 1 : last - 1]
        if last - start > 2 and text[last - 1] in closers and _is_balanced(inner, first, closers):
            return start + 1, last - 1
    if closers and first not in _ONLY_AS_PAIR and not set(text[start + 1 : end]).intersection(first + closers):
        return start + 1, end
    last_sign = text[end - 1]
    openers = "".join(opener for opener, its_closers in _CLOSERS.items() if last_sign in its_closers)
    is_open = not set(text[start : end - 1]).intersection(last_sign + openers)
    if openers and last_sign not in _ONLY_AS_PAIR and is_open and not _LABEL.search(text[start:end]):
        return start, end - 1
    return start, end


def _is_balanced(text: str, opener: str, closers: str) -> bool:
    """Return True if a text has as many signs that open as close, each after its partner; of quotation marks, none."""
    if opener not in "([":
        return not set(text).intersection(opener + closers)
    depth = 0
    for character in text:
        depth += (character == opener) - (character in closers)
        if depth < 0:
            return False
    return depth == 0


_FORMS = ("!！", "?？؟")
"""Marks of several scripts."""


def end_of_frame(sentence: str, translation: str, after: str) -> tuple[str, str]:
    """Return the end of a translation and what follows it, so that both fit.

    Args:
        sentence: The sentence, inside of its frame.
        translation: Its translation.
        after: The signs after the sentence.

    Returns:
        The translation, perhaps with another mark at its end, and the signs, in the form that the translation has.
    """
    mark = sentence[-1:]
    has_full_stop = translation.endswith((".", "。")) and not translation.endswith("..")
    if after[:1] in "!?！？؟" and after and mark in "!?！？؟":
        if has_full_stop:
            translation = translation[:-1] + mark
        elif translation[-1:] not in "!?！？؟":
            translation += mark
        for forms in _FORMS:
            found = next((form for form in forms if form in translation[-2:]), None)
            if found is not None:
                after = "".join(found if character in forms else character for character in after)
    elif has_full_stop and mark not in ".!?。！？" and any(character in ".!?…–—―" for character in after):
        translation = translation[:-1]
    return translation, after
