"""Warnings about monolingual text that seems to be in another language than it should be."""

import re
from collections.abc import Sequence

from mtcli.augment.filters import main_script
from mtcli.config.writing_systems import unspaced

MIN_KNOWN = 0.2
"""With a smaller share of known words, the text is probably in another language.

Text in a language that is close to the right one, such as Dutch for German, has shares of about 0.15.
"""

_WORD = re.compile(r"[^\W\d_]+")


def warning_about(text: Sequence[str], own: Sequence[str], other: Sequence[str], language: str) -> str | None:
    """Return what is suspicious about the language of a text; None if nothing is.

    Args:
        text: Lines of the text.
        own: Sentences of the training pairs in the language that the text should have.
        other: The same sentences in the other language.
        language: The code of the right language.
    """
    script = main_script(text)
    own_script = main_script(own)
    if script and own_script and script != own_script:
        return f"most lines are in {script} script, while the {language} side of the pairs is in {own_script} script"
    in_own = _share_known(text, own)
    in_other = _share_known(text, other)
    if in_other > in_own:
        return (
            f"{in_other:.0%} of its words occur in the other side of the pairs, and only {in_own:.0%} in the "
            f"{language} side; are the two sides, or --mono-src and --mono-tgt, swapped?"
        )
    if in_own < MIN_KNOWN:
        return f"only {in_own:.0%} of its words occur in the {language} side of the pairs; is it {language}?"
    return None


def _share_known(text: Sequence[str], known: Sequence[str]) -> float:
    """Return the share of the words of a text that occur in known sentences; 1 if it has no words.

    In languages that are written without spaces, characters are compared.
    """
    by_character = unspaced(text)
    vocabulary = {word for sentence in known for word in _words(sentence, by_character)}
    words = [word for line in text for word in _words(line, by_character)]
    if not words:
        return 1.0
    return sum(word in vocabulary for word in words) / len(words)


def _words(text: str, by_character: bool) -> list[str]:
    words = _WORD.findall(text.casefold())
    return list("".join(words)) if by_character else words
