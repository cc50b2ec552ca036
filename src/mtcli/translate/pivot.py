"""Translate through a third language, with a model into it and a model from it."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Unpack

from mtcli.errors import UsageError
from mtcli.terms.terms import Terms
from mtcli.translate.translation import Candidate, Links, Options, Translation
from mtcli.translate.translator import Reading, Translator


class PivotTranslator(Translator):
    """Translates lines by a first model into a pivot language, and its best translations by a second model.

    A translation has the log-probability of both steps: log P(pivot | line) + log P(text | pivot), and the sum of both
    scores. Its word alignment joins the links that meet at a word of the pivot.
    """

    def __init__(self, first: Translator, first_options: Options, second: Translator):
        """Initialise it.

        Args:
            first: Translates into the pivot language.
            first_options: The options of its search.
            second: Translates from the pivot language, with the options that `translate` is given.

        Raises:
            UsageError: Only the first model has tokens for placeholders.
        """
        super().__init__(first.backend)
        if first.tokenizer.has_placeholders and not second.tokenizer.has_placeholders:
            raise UsageError(
                "--pivot: the first model was trained with data.placeholders=true, and the second one was not; use two "
                "models of the same kind"
            )
        self._first = first
        self._first_options = first_options
        self._second = second
        self.longest_src = first.longest_src
        self.aligns = first.aligns and second.aligns

    def with_terms(self, options: Options, terms: Terms, mode: str) -> Options:
        """Refuse terms: those of a source are not in the text that the second model translates.

        Raises:
            UsageError: Always.
        """
        raise UsageError("terms: not through a third language; translate in two steps, with terms for each")

    def translate(self, lines: Iterable[str], options: Options, **reading: Unpack[Reading]) -> Iterator[Translation]:
        """See `Translator.translate`. Warnings and the progress bar are those of the first model.

        Raises:
            UsageError: See `Translator.translate`; or the options sample.
        """
        if options.sample:
            raise UsageError("--sample: not with --pivot")
        first_options = replace(
            self._first_options,
            alignments=options.alignments,
            align_characters=options.align_characters,
            scores=options.scores,
            repair=options.repair,
        )
        found = self._first.translate(lines, first_options, **reading)
        for window in _windows(found, reading.get("ready", _always)):
            texts = [translation.text for translation in window]
            second = self._second.translate(texts, options, warn=False, quiet=True)
            for before, after in zip(window, second, strict=True):
                yield Translation(
                    before.source, tuple(_joined(before.candidates[0], each) for each in after.candidates)
                )


PIVOT_WINDOW = 1024
"""Translations into the pivot language that are collected for the second model."""


def _always() -> bool:
    return True


def _windows(found: Iterator[Translation], ready: Callable[[], bool]) -> Iterator[list[Translation]]:
    """Collect translations for the second model; fewer where the next line is not available yet."""
    window: list[Translation] = []
    for translation in found:
        window.append(translation)
        if len(window) == PIVOT_WINDOW or not ready():
            yield window
            window = []
    if window:
        yield window


def _joined(first: Candidate, second: Candidate) -> Candidate:
    """Return the translation of both steps. Its tokens are those of the second model.

    It has no confidence: that of the second model is calibrated on sentences that people wrote.
    """
    return replace(
        second,
        log_prob=first.log_prob + second.log_prob,
        score=first.score + second.score,
        alignment=_through(first.alignment, second.alignment),
        confidence=None,  # that of the second model knows nothing about the errors of the first one
    )


def _through(first: Links, second: Links) -> Links:
    """Return the links from source to target words that share a word of the pivot."""
    targets: dict[int, list[int]] = {}
    for pivot, tgt in second:
        targets.setdefault(pivot, []).append(tgt)
    return tuple(sorted({(src, tgt) for src, pivot in first for tgt in targets.get(pivot, ())}))


def check_languages(first: tuple[str, str], second: tuple[str, str]) -> tuple[str, str]:
    """Return source and target language of a translation with two models.

    Args:
        first: Source and target language of the first model.
        second: Those of the second one.

    Raises:
        UsageError: The second model does not translate from the language into which the first one does.
    """
    src, pivot = first
    second_src, tgt = second
    if pivot != second_src:
        raise UsageError(
            f"--pivot: that model translates from {second_src}, and --model translates into {pivot}; give a model that "
            f"translates from {pivot}"
        )
    return src, tgt
