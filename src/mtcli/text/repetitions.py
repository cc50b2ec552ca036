"""Find translations that repeat themselves, as those of a weak model do."""

import re

MAX_UNIT = 100
"""Maximum number of characters of a repeated unit. A search for longer units would take longer than translating."""

MAX_SEARCHED = 10_000
"""Characters of a text that are searched."""

MIN_LENGTH = 8
"""Characters of the shortest repetition of a longer unit that is reported if some of them are letters.

None of 229,000 human translations (Multi30K, Tatoeba) has such a repetition, but 20 in a thousand of a weak model's.
"""

MIN_RUN = 5
"""Equal letters in a row that are reported. None of 350,000 human translations (Multi30K, Tatoeba) has as many where
its source does not."""

MIN_SIGNS = 20
"""Characters of the shortest repetition without letters that is reported. People write `......` and `!!!!!!`."""

SHORT_UNIT = 5
"""Units of up to this many characters are always looked for, longer ones only if an n-gram occurs twice."""

NGRAM = 8
"""Characters of the n-grams that are looked for a second time."""

STRIDE = 2 * (SHORT_UNIT + 1) - NGRAM + 1
"""Characters from one n-gram to the next. If a longer unit occurs three times in a row, so many successive n-grams in
its first two occurrences, or more, occur again one unit later, and one of them is looked for."""

SHORT_TEXT = 250
"""Characters up to which looking for an n-gram that occurs twice is fast, and usually finds none."""

ZEROS = bytes(2 * MAX_UNIT)

REPETITION = re.compile(rf"(.{{1,{MAX_UNIT}}}?)\1{{2,}}")
"""A unit that occurs three times in a row or more."""


def repetition_in(text: str) -> str:
    """Return the first part of a text that repeats a unit three times in a row or more, or an empty string.

    Only the first `MAX_SEARCHED` characters are searched, for units of up to `MAX_UNIT` characters.
    """
    text = f" {text[:MAX_SEARCHED]}"  # the space makes the first word a unit like any other
    if not _may_repeat(text):
        return ""
    for match in REPETITION.finditer(text):
        has_letters = any(character.isalpha() for character in match[1])
        repetition = match[0].strip()
        if (has_letters and len(match[0]) >= _min_length(len(match[1]))) or len(repetition) >= MIN_SIGNS:
            return repetition
    return ""


def added_repetition(source: str, translation: str) -> str:
    """Return the repetition of a translation; an empty string if it has none, or if its source repeats itself too."""
    repetition = repetition_in(translation)
    return "" if repetition and repetition_in(source) else repetition


def _min_length(unit: int) -> int:
    """Return the characters of the shortest repetition of a unit of this length that is reported if it has letters."""
    return MIN_RUN if unit == 1 else MIN_LENGTH


def _may_repeat(text: str) -> bool:
    """Return False if no unit occurs three times in a row in `_min_length` characters or more.

    This is so in most texts, and takes a tenth of the time of the regular expression. A text that does repeat itself
    gives True, and a few others do.
    """
    if _has_equal_characters(text, range(1, SHORT_UNIT + 1)):
        return True
    if len(text) <= SHORT_TEXT and not _has_repeated_ngram(text):
        return False
    return _has_equal_characters(text, range(SHORT_UNIT + 1, min(MAX_UNIT, len(text) // 3) + 1))


def _has_repeated_ngram(text: str) -> bool:
    """Return True if one of the n-grams that are `STRIDE` characters apart occurs again."""
    return any(text.find(text[start : start + NGRAM], start + 1) > 0 for start in range(0, len(text) - NGRAM, STRIDE))


def _has_equal_characters(text: str, units: range) -> bool:
    """Return True if all characters of a part equal those some positions later, as in a repetition.

    A repetition has three units or more, and `_min_length` characters. All of them but the last unit equal the
    character one unit later. An exclusive or of two large integers compares a whole text with itself, moved by one
    unit. It compares the low byte of each character, so other characters may count as equal.

    Args:
        text: The text.
        units: Numbers of characters of a unit.
    """
    low_bytes = text.encode("utf-32-le", "surrogatepass")[::4]
    number = int.from_bytes(low_bytes, "little")
    for unit in units:
        moved = number >> (8 * unit)
        differences = (number ^ moved).to_bytes(len(text), "little")
        num_equal = max(2 * unit, _min_length(unit) - unit)
        if differences.find(ZEROS[:num_equal], 0, len(text) - unit) >= 0:
            return True
    return False
