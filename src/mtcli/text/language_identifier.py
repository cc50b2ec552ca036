"""Which of some languages a text is in, by py3langid: naive Bayes over byte n-grams, for 97 languages."""

from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass
from functools import cache
from typing import Any

from mtcli.text.languages import base

MAX_CHARACTERS = 10_000
"""Characters of a text that are looked at."""


@dataclass(frozen=True)
class IdentifiedLanguage:
    """A language that a text may be in."""

    language: str
    probability: float


class LanguageIdentifier:
    """Identifies one of several languages.

    Args:
        codes: Their codes. A language that py3langid does not know is not identified. Of two codes that differ only in
            script or region, the first is used. None: all languages that py3langid knows.
    """

    def __init__(self, codes: Iterable[str] | None = None):
        self._classifier = copy(_classifier())
        known = set(self._classifier.labels)
        self.codes: dict[str, str] = {}
        """The code of each language that can be identified, by its two letters."""
        for code in known if codes is None else codes:
            language = base(code)
            if language is not None and language in known:
                self.codes.setdefault(language, code)
        if self.codes:
            self._classifier.set_languages(list(self.codes))

    def identify(self, text: str) -> list[IdentifiedLanguage]:
        """Return all languages with their probabilities, the most probable first; none for a text without letters."""
        shown = text[:MAX_CHARACTERS]
        if not self.codes or not any(character.isalpha() for character in shown):
            return []
        ranked = self._classifier.rank(shown)
        return [IdentifiedLanguage(self.codes[language], float(probability)) for language, probability in ranked]


@cache
def _classifier() -> Any:
    """Load the classifier of all languages, which takes half a second and about 100 MB."""
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
