"""Filters for synthetic pairs: monolingual lines that are not translated, and translations that are not kept."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice

from mtcli.corpus.quality.languages import MIN_FOUND, MIN_SAMPLE, SAMPLE, SURE
from mtcli.corpus.quality.rules import BIT, MIN_WORDS, REMOVES, num_words, rules, script
from mtcli.text.language_identifier import LanguageIdentifier
from mtcli.text.languages import base
from mtcli.text.repetitions import added_repetition

BLANK = "blank line"
DUPLICATE = "duplicate line"
REPETITION = "repetition"
WRONG_SCRIPT = "wrong script"
TOO_LONG = "too many tokens"

_TESTS = {rule.name: rule.test for rule in rules() if rule.test and BIT[rule.name] & REMOVES}
"""The rules of `data clean` by which a pair is removed."""


def main_script(texts: Iterable[str]) -> str:
    """Return the script of most texts; empty if they have no letters. See `rules.script`."""
    scripts = Counter("Latin" if name == "latin" else name for name in map(script, texts))
    del scripts[""]
    return max(scripts, key=lambda name: (scripts[name], name), default="")


def is_in_other_language(lines: Sequence[str], own: str, other: str) -> bool:
    """Return True if most lines are in the language `other` and not in `own`. Short lines decide nothing."""
    long_lines = (line for line in lines if num_words(line) >= MIN_WORDS)
    sample = list(islice(long_lines, SAMPLE))
    if len(sample) < MIN_SAMPLE or not (base(own) and base(other)):
        return False
    identifier = LanguageIdentifier((own, other))
    if len(identifier.codes) < 2:
        return False
    guesses = [guess for line in sample for guess in identifier.identify(line)[:1]]
    found = sum(guess.language == other and guess.probability >= SURE for guess in guesses)
    return found >= MIN_FOUND * len(sample)


def has_wrong_script(text: str, expected: str) -> bool:
    """Return True if a text is written in another script than expected. A few Latin words are right in any script."""
    found = script(text)
    return bool(expected) and found not in ("", "latin", expected)


def problem_of(line: str, translation: str, expected_script: str) -> str:
    """Return why a translation of a line is dropped; empty: it is kept.

    Args:
        line: The human text.
        translation: What a model made of it.
        expected_script: The script of most translations.
    """
    if not translation.strip():
        return "empty translation"
    for name, is_broken in _TESTS.items():
        if is_broken(line, translation):
            return name
    if has_wrong_script(translation, expected_script):
        return WRONG_SCRIPT
    if added_repetition(line, translation):
        return REPETITION
    return ""
