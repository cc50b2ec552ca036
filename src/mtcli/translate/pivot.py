"""Translate through a third language, with a model into it and a model from it."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import product

from mtcli.errors import UsageError
from mtcli.terms.terms import Terms
from mtcli.text.languages import Direction, same
from mtcli.text.tokenizer.tokenizer import LANGUAGE_TAG
from mtcli.translate.backends.backend import Backend
from mtcli.translate.line_warnings import check_target
from mtcli.translate.translation import Candidate, Links, Options, Translation
from mtcli.translate.translator import Translator
from mtcli.translate.windows import DEFAULT_READING, Reading


class PivotTranslator(Translator):
    """Translates lines by a first model into a pivot language, and its best translations by a second model.

    A translation has the log-probability of both steps: log P(pivot | line) + log P(text | pivot), and the sum of both
    scores. Its word alignment joins the links that meet at a word of the pivot.
    """

    def __init__(self, first: Translator, first_options: Options, second: Translator):
        """Initialise it.

        Args:
            first: Translates into the pivot language.
            first_options: The options of its search, with the pivot language in `to` if it has several targets.
            second: Translates from the pivot language, with the options that `translate` is given.

        Raises:
            UsageError: Only the first model has tokens for placeholders, or it does not translate into `to`.
        """
        super().__init__(first.backend)
        check_target(first.tokenizer, first_options.to)
        if first.tokenizer.has_placeholders and not second.tokenizer.has_placeholders:
            raise UsageError(
                "--pivot: the first model was trained with data.placeholders=true, and the second one was not; use two "
                "models of the same kind"
            )
        self._first = first
        self._first_options = first_options
        self._second = second
        self.target_tokenizer = second.tokenizer
        self.aligns = first.aligns and second.aligns

    def with_terms(self, options: Options, terms: Terms, mode: str) -> Options:
        """Refuse terms: those of a source are not in the text that the second model translates.

        Raises:
            UsageError: Always.
        """
        raise UsageError("terms: not through a third language; translate in two steps, with terms for each")

    def translate(
        self, lines: Iterable[str], options: Options, reading: Reading = DEFAULT_READING
    ) -> Iterator[Translation]:
        """See `Translator.translate`. Warnings and the progress bar are those of the first model.

        Raises:
            UsageError: See `Translator.translate`; or the options sample, or lack a target language that the second
                model needs, or a line begins with a tag.
        """
        if options.sample:
            raise UsageError("--sample: not with --pivot")
        check_target(self.target_tokenizer, options.to)
        if self.tokenizer.tags or self.target_tokenizer.tags:
            lines = map(_without_tag, lines)
        first_options = replace(
            self._first_options,
            alignments=options.alignments,
            align_characters=options.align_characters,
            scores=options.scores,
            repair=options.repair,
        )
        found = self._first.translate(lines, first_options, reading)
        for window in _windows(found, reading.ready):
            texts = [translation.text for translation in window]
            second = self._second.translate(texts, options, Reading(warn=False, quiet=True))
            for before, after in zip(window, second, strict=True):
                yield Translation(
                    before.source, tuple(_joined(before.candidates[0], each) for each in after.candidates)
                )


def _without_tag(line: str) -> str:
    """Return a line.

    Raises:
        UsageError: It begins with a tag, with which the first model would translate it into another language.
    """
    tag = LANGUAGE_TAG.match(line)
    if tag is None:
        return line
    raise UsageError(f"{tag[0]}: through a third language, choose the target language of all lines with --to")


PIVOT_WINDOW = 1024
"""Translations into the pivot language that are collected for the second model."""


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


def meeting_directions(first: Backend, second: Backend, to: str) -> tuple[Direction, Direction]:
    """Return the directions in which two models translate, through the language in which they meet.

    Args:
        first: The first model.
        second: The second model.
        to: The target language if the second model has several; otherwise empty.

    Raises:
        UsageError: The second model does not translate into the target language, or there is none although it has
            several, or it does not translate from a language into which the first one does.
    """
    check_target(second.tokenizer, to)
    after = second.directions
    if to:
        targets = ", ".join(dict.fromkeys(direction.tgt for direction in after))
        tag = second.tokenizer.tag_of(to)
        after = tuple(direction for direction in after if second.tokenizer.tag_of(direction.tgt) == tag)
        if not after:
            raise UsageError(f"--to {to}: choose from {targets}")
    for own, other in product(after, first.directions):
        if same(other.tgt, own.src):
            return other, own
    sources = ", ".join(dict.fromkeys(direction.src for direction in after))
    between = ", ".join(dict.fromkeys(direction.tgt for direction in first.directions))
    raise UsageError(
        f"--pivot: that model translates from {sources}, and --model translates into {between}; give a model that "
        f"translates from {between}"
    )
