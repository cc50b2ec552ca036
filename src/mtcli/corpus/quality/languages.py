"""Languages other than the declared ones: pairs whose sides are swapped, and a whole side in another language."""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property

from mtcli.corpus.quality.rules import MIN_WORDS, num_words
from mtcli.runtime.wording import counted
from mtcli.text.language_identifier import MAX_CHARACTERS, LanguageIdentifier
from mtcli.text.languages import base, english_name
from mtcli.text.lines import Pair

SURE = 0.95
"""Probability from which a text counts as another language."""
SAMPLE = 500
"""Pairs, from all parts of the corpus, that decide which languages it is in."""
MIN_SAMPLE = 10
"""A smaller sample decides nothing."""
MAX_DECLARED = 0.1
"""Share of the sample in the declared language up to which it is wrong."""
MIN_FOUND = 0.7
"""Share of the sample in another language from which it is that one."""
MIN_MORE = 0.1
"""By how much this share must be larger on the side of a language that cannot be identified than on the other side.

Text in such a language is often taken for a large neighbour: half of the Guarani sentences for Spanish.
"""


class SpreadSample:
    """Pairs from all parts of a corpus: `SAMPLE` to twice as many, or all pairs of a smaller corpus."""

    def __init__(self) -> None:
        self.pairs: list[Pair] = []
        self.seen = 0
        """Pairs of the corpus."""
        self._stride = 1

    def add(self, pair: Pair) -> None:
        """Take the next pair of the corpus, or skip it.

        When the sample is full, keep every second pair, and from now on take half as many.
        """
        if self.seen % self._stride == 0:
            self.pairs.append(pair)
            if len(self.pairs) == 2 * SAMPLE:
                del self.pairs[1::2]
                self._stride *= 2
        self.seen += 1


class LanguageCheck:
    """Finds pairs in other languages than the declared ones.

    Args:
        src, tgt: The declared languages.
        swap: The pairs were read with `--swap`.
    """

    def __init__(self, src: str, tgt: str, *, swap: bool = False):
        self.codes = src, tgt
        self.bases = base(src), base(tgt)
        self.swap = swap
        self.swapped = 0
        """Pairs whose sides are swapped."""
        self.sample = SpreadSample()
        """Of the pairs with enough words."""

    @cached_property
    def _between(self) -> LanguageIdentifier | None:
        """Tells the two languages apart; None: it does not know both."""
        identifier = LanguageIdentifier(self.codes) if all(self.bases) else None
        return identifier if identifier and len(identifier.codes) == 2 else None

    def is_swapped(self, src: str, tgt: str) -> bool:
        """Return True if the source is in the target language and the target in the source language."""
        if not (_has_words(src) and _has_words(tgt)):
            return False
        self.sample.add((src, tgt))
        is_swapped = self._is_in(src, 1) and self._is_in(tgt, 0)
        self.swapped += is_swapped
        return is_swapped

    def _is_in(self, text: str, side: int) -> bool:
        """Return True if a text is in the language of a side, not of the other, with probability `SURE` or more."""
        if self._between is None:
            return False
        best = self._between.identify(text)[0]
        return best.language == self.codes[side] and best.probability >= SURE

    def swapped_notice(self, noun: str = "pair") -> str | None:
        """Return what to say if most pairs are swapped; None if they are not, or too few have enough words.

        Args:
            noun: What the pairs are, for the message.
        """
        seen = self.sample.seen
        if seen < MIN_SAMPLE:
            return None
        src, tgt = self.codes
        if 2 * self.swapped > seen:
            found = (
                f"in {_percent(self.swapped / seen)} of {counted(seen, noun)}, the source is {tgt} and the target {src}"
            )
        else:
            if not any(self.bases):
                return None
            identifier = LanguageIdentifier()
            identified = [side for side, code in enumerate(self.bases) if code in identifier.codes]
            if len(identified) != 1:
                return None
            (side,) = identified
            shares = [_shares([pair[each] for pair in self.sample.pairs], identifier) for each in (side, 1 - side)]
            own, other = (each.get(self.bases[side] or "", 0.0) for each in shares)
            if other < MIN_FOUND or other - own < MIN_MORE:
                return None
            names = ("sources", "targets")
            found = f"{_percent(own)} of the {names[side]} look like {self.codes[side]}, and {_percent(other)} of the "
            found += names[1 - side]
        return f"the sides look swapped: {found}; {'omit' if self.swap else 'use'} --swap, or --src {tgt} --tgt {src}"

    def notices(self) -> Iterator[str]:
        """Yield what is wrong with the declared languages."""
        if self.sample.seen < MIN_SAMPLE:
            return
        swapped = self.swapped_notice()
        if swapped:
            yield swapped
            return
        if not any(self.bases):
            return
        identifier = LanguageIdentifier()
        for side, option in enumerate(("--src", "--tgt")):
            declared = self.bases[side]
            if declared is None or declared not in identifier.codes:
                continue
            shares = _shares([pair[side] for pair in self.sample.pairs], identifier)
            found, share = max(shares.items(), key=lambda item: item[1])
            if found == declared or share < MIN_FOUND or shares.get(declared, 0.0) > MAX_DECLARED:
                continue
            language = f"{english_name(found)} ({found})"
            looks = f"{_percent(share)} of {counted(len(self.sample.pairs), 'sentence')} look like {language}"
            yield f"{option} is {self.codes[side]}, but {looks}; correct {option}"


def _has_words(text: str) -> bool:
    """Return True if the part of a text that is identified has enough words. Signs such as ½ count, but not alone."""
    shown = text[:MAX_CHARACTERS]
    return num_words(shown) >= MIN_WORDS and any(map(str.isalpha, shown))


def _shares(texts: Sequence[str], identifier: LanguageIdentifier) -> dict[str, float]:
    """Return the share of the texts that are in each language."""
    counts = Counter(identifier.identify(text)[0].language for text in texts)
    return {language: number / len(texts) for language, number in counts.items()}


def _percent(share: float) -> str:
    return f"{100 * share:.0f}%"
