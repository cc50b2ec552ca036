"""Which of some languages a text is in, by py3langid: naive Bayes over byte n-grams, for 97 languages.

For other languages, the probabilities of the n-grams are learned from texts in them.
"""

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cache
from typing import Any

from mtcli.text.languages import Direction, base
from mtcli.text.lines import Pair

MAX_CHARACTERS = 10_000
"""Characters of a text that are looked at."""

MIN_TEXTS = 50
"""Texts from which a language is learned, at least."""

MAX_TEXTS = 500
"""Texts from which a language is learned, at most."""

SMOOTHING = 0.5
"""Added to the count of each n-gram."""

MORE_LIKELY = 0.5
"""Probability of another language from which a text counts as not in its language. See docs/small-languages.md."""


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

    @classmethod
    def learned(cls, texts: Mapping[str, Sequence[str]]) -> "LanguageIdentifier":
        """Return an identifier of the languages of some texts, also of languages that py3langid does not know.

        Args:
            texts: Texts in each language, by its code; those after the first `MAX_TEXTS` are not used.
        """
        import numpy as np
        from py3langid.langid import LanguageIdentifier, visit_counts

        known = _classifier()
        counts = np.full((len(known.nb_ptc), len(texts)), SMOOTHING)
        for column, of_language in enumerate(texts.values()):
            for text in of_language[:MAX_TEXTS]:
                encoded = known._encode(text[:MAX_CHARACTERS])
                found = visit_counts(known.tk_nextmove, known._rowbase, known.tk_output, encoded) or {}
                for ngram, times in found.items():
                    counts[ngram, column] += np.log1p(times)
        log_probs = np.log(counts / counts.sum(axis=0)).astype(np.float32)
        codes = list(texts)
        uniform = np.zeros(len(codes), dtype=np.float32)
        automaton = (known.tk_nextmove, known.tk_output)
        identifier = cls.__new__(cls)
        identifier._classifier = LanguageIdentifier(
            log_probs, uniform, codes, *automaton, norm_probs=True, tk_row=known.tk_row
        )
        identifier.codes = {code: code for code in codes}
        return identifier

    def share_of_others(self, translations: Sequence[str], sources: Sequence[str], language: str) -> float:
        """Return the share of translations that are in another language than theirs.

        Names that a translation has from its source say nothing about its language. So words of the source do not
        count, unless a translation has no others.

        Args:
            translations: The translations.
            sources: The source of each.
            language: The language in which they should be.
        """
        found = 0
        for translation, source in zip(translations, sources, strict=True):
            copied = set(source.casefold().split())
            own = " ".join(word for word in translation.split() if word.casefold() not in copied)
            guesses = self.identify(own) or self.identify(translation)
            if guesses and guesses[0].language != language and guesses[0].probability >= MORE_LIKELY:
                found += 1
        return found / len(translations)

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


def learned_from(splits: Iterable[Mapping[Direction, Sequence[Pair]]]) -> LanguageIdentifier | None:
    """Return an identifier of the languages of some pairs; None: one has fewer than `MIN_TEXTS` texts.

    Args:
        splits: Sets of pairs by direction.
    """
    texts: dict[str, dict[str, None]] = {}
    for split in splits:
        for direction, pairs in split.items():
            if not pairs:
                continue
            for language, sides in zip(direction, zip(*pairs, strict=True), strict=True):
                texts.setdefault(language, {}).update(dict.fromkeys(sides))
    if len(texts) < 2 or any(len(of_language) < MIN_TEXTS for of_language in texts.values()):
        return None
    return LanguageIdentifier.learned({language: list(of_language) for language, of_language in texts.items()})
