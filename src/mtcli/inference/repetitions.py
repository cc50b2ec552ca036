"""Find translations that repeat themselves, as those of a weak model do."""

import re

MAX_UNIT = 100
"""Maximum number of characters of a repeated unit. A search for longer units would take longer than translating."""

MAX_SEARCHED = 10_000
"""Characters of a text that are searched."""

MIN_LENGTH = 8
"""Characters of the shortest repetition that is reported; some of them must be letters.

None of 229,000 human translations (Multi30K, Tatoeba) has such a repetition, but 20 in a thousand of a weak model's.
"""

NGRAM = 6
"""A text in which no n-gram of this many characters occurs twice has no repetition of `MIN_LENGTH` characters."""

REPETITION = re.compile(rf"(.{{1,{MAX_UNIT}}}?)\1{{2,}}")
"""A unit that occurs three times in a row or more."""


def repetition_in(text: str) -> str:
    """Return the first part of a text that repeats a unit three times in a row or more, or an empty string.

    Only the first `MAX_SEARCHED` characters are searched, for units of up to `MAX_UNIT` characters.
    """
    text = f" {text[:MAX_SEARCHED]}"  # the space makes the first word a unit like any other
    if not _has_repeated_ngram(text):
        return ""
    for match in REPETITION.finditer(text):
        has_letters = any(character.isalpha() for character in match[1])
        if len(match[0]) >= MIN_LENGTH and has_letters:
            return match[0].strip()
    return ""


def _has_repeated_ngram(text: str) -> bool:
    """Return True if an n-gram of `NGRAM` characters occurs twice.

    Most texts have none, and this is ten times as fast as the regular expression.
    """
    starts = range(len(text) - NGRAM + 1)
    ngrams = {text[start : start + NGRAM] for start in starts}
    return len(ngrams) < len(starts)
