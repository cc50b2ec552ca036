"""Filters for synthetic pairs: monolingual lines that are not translated, and translations that are not kept."""

from collections import Counter
from collections.abc import Iterable

from mtcli.data.quality.rules import BIT, REMOVES, rules, script
from mtcli.inference.repetitions import repetition_in

BLANK = "blank line"
DUPLICATE = "duplicate line"
REPETITION = "repetition"
WRONG_SCRIPT = "wrong script"
TOO_LONG = "too many tokens"

_REMOVING = [rule for rule in rules() if rule.test and BIT[rule.name] & REMOVES]


def main_script(texts: Iterable[str]) -> str:
    """Return the script of most texts; empty if they have no letters. See `rules.script`."""
    scripts = Counter("Latin" if name == "latin" else name for name in map(script, texts))
    del scripts[""]
    return max(scripts, key=lambda name: (scripts[name], name), default="")


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
    for rule in _REMOVING:
        if rule.test and rule.test(line, translation):
            return rule.name
    if has_wrong_script(translation, expected_script):
        return WRONG_SCRIPT
    if repetition_in(translation) and not repetition_in(line):
        return REPETITION
    return ""
