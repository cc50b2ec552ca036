"""Translations that repeat themselves or are empty, and the further searches for better ones."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from mtcli.text.repetitions import added_repetition
from mtcli.translate.translation import Candidate, Options

NGRAMS = (3, 2)
"""Sizes of the n-grams that the further searches block. Blocked trigrams change less of a long translation; blocked
bigrams prevent nearly all repetitions."""


def is_usable(line: str, text: str) -> bool:
    """Return False if a translation repeats itself although its line does not, or is empty although it has words."""
    if not text.strip():
        return not any(map(str.isalpha, line))
    return not added_repetition(line, text)


def usable(line: str, candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the usable translations of a line; all of them if none is usable.

    Args:
        line: The line.
        candidates: Its translations, best first.
    """
    found = [candidate for candidate in candidates if is_usable(line, candidate.text)]
    return found or list(candidates)


def further_searches(options: Options) -> Iterator[Options]:
    """Yield the options of the searches that follow where no translation is usable.

    The first one is the same search where a backend returned only the best hypothesis of its beam.
    """
    if not options.scores and options.beam_size > 1:
        yield replace(options, scores=True)
    for size in NGRAMS:
        if not options.no_repeat_ngram or size < options.no_repeat_ngram:
            yield replace(options, scores=True, no_repeat_ngram=size)
