"""Translate lines of text by the path of documents: sentence by sentence, with protected text kept.

A line stays one line. Its translations have scores and word alignments, as those of `Translator` have.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING

from mtcli.documents.markup.inline import text_of
from mtcli.documents.markup.sentences import InlineTranslation, translate_sentences
from mtcli.documents.pipeline import DividedSegments, SegmentDivider, TranslatedSegment, warn_about_given_up
from mtcli.runtime.progress import Progress
from mtcli.terms.terms import Terms, uses
from mtcli.text.placeholders import Offsets, find_protected, is_part_of_protected
from mtcli.text.words import character_spans, word_spans
from mtcli.translate.line_warnings import (
    check_tags,
    warn_about_characters,
    warn_about_divided_lines,
    warn_about_long_sentences,
    warn_about_missing_tags,
    warn_about_numbers,
    warn_about_repetitions,
)
from mtcli.translate.translation import Candidate, Links, Options, Translation
from mtcli.translate.translator import Translator
from mtcli.translate.windows import DEFAULT_READING, Reading, Window

if TYPE_CHECKING:
    from mtcli.translate.memory import Memory


_CORE = re.compile(r"\w(?:.*\w)?")
"""A word without the signs around it."""


class BySentence(Translator):
    """Translates lines by the path of documents, which splits them into sentences and keeps protected text.

    With `prefix` or `sample`, lines are translated as they are.
    """

    def __init__(self, translator: Translator, src: str, tgt: str, memory: "Memory | None" = None) -> None:
        """Initialise it.

        Args:
            translator: The model.
            src: Source language.
            tgt: Target language, unless the options of a search name it.
            memory: See `SegmentDivider`. It is not used with `prefix` or `sample`.
        """
        super().__init__(translator.backend)
        self.target_tokenizer = translator.target_tokenizer
        self.aligns = translator.aligns
        self._translator = translator
        self._src = src
        self._tgt = tgt
        self._memory = memory

    def with_terms(self, options: Options, terms: Terms, mode: str) -> Options:
        """See `Translator.with_terms`."""
        return self._translator.with_terms(options, terms, mode)

    def translate(
        self, lines: Iterable[str], options: Options, reading: Reading = DEFAULT_READING
    ) -> Iterator[Translation]:
        """See `Translator.translate`.

        Progress counts sentences, so a bar for lines is not used, and neither is `total`, the number of lines. With
        `prefix` or `sample`, both are.
        """
        if options.prefix or options.sample:
            yield from self._translator.translate(lines, options, reading)
            return
        if options.to:
            self.target_tokenizer.tag_of(options.to)
        options = replace(options, align_characters=True)
        divider = SegmentDivider(self._translator, options, src=self._src, tgt=self._tgt, memory=self._memory)

        def divided(windows: Iterable[tuple[int, list[str]]]) -> Iterator[DividedSegments]:
            for first, window in windows:
                check_tags(window, first, self.target_tokenizer, options.to)
                yield divider.divide(((line,) for line in window), first)

        with Progress("translating", unit="sentences", quiet=reading.quiet) as bar:
            for windows in reading.groups(lines, ahead=self._translator.reads_ahead):
                for window in translate_sentences(
                    divided(windows), self._translator, options, bar, warn=reading.warn, growing=reading.growing
                ):
                    translations = [_translation(segment, options) for segment in window.segments]
                    if reading.warn:
                        self._warn(window, options)
                        warn_about_repetitions(translations, window.first, options)
                        warn_about_numbers(translations, window.first)
                    yield from translations

    def _warn(self, divided: DividedSegments, options: Options) -> None:
        """Warn about lines unlike those of training."""
        tokenizer = self.tokenizer
        first = divided.first
        found = divided.segments
        warn_about_given_up(found)
        window = Window(first, [segment.text for segment in found], [segment.ids for segment in found])
        in_parts = [number for number, segment in enumerate(found, first + 1) if segment.is_divided]
        warn_about_divided_lines(in_parts, self._translator.longest_src)
        usual = self._translator.usual_src
        is_long = (segment.has_long_sentence(tokenizer, usual) for segment in found)
        warn_about_long_sentences([number for number, long in enumerate(is_long, first + 1) if long], usual)
        warn_about_characters(window, tokenizer)
        if not options.to:
            warn_about_missing_tags(window, self.target_tokenizer)


def _translation(segment: TranslatedSegment, options: Options) -> Translation:
    """Return the translations of a line, without duplicates.

    Each joins one translation of each sentence: the text, the sums of the scores, the confidence, the word alignment.
    """
    line = segment.text
    if not line.strip():
        return Translation(line, (Candidate("", 0.0, 0.0),))
    candidates: dict[str, Candidate] = {}
    for number in range(segment.num_candidates):
        text = text_of(segment.content(number))
        if text in candidates:
            continue
        chosen = segment.chosen(number)
        written = [answer.candidate for answer in chosen]
        reverse = [each.reverse_log_prob for each in written if each.reverse_log_prob is not None]
        candidates[text] = Candidate(
            text=text,
            log_prob=sum((each.log_prob for each in written), 0.0),
            score=sum((each.score for each in written), 0.0),
            alignment=_alignment(segment, text, chosen) if options.alignments else (),
            confidence=segment.confidence(number),
            reverse_log_prob=sum(reverse) if reverse else None,
        )
    translation = Translation(line, tuple(candidates.values()), memory=segment.matches)
    if options.terms is None:
        return translation
    return replace(translation, terms=tuple(uses(options.terms.matches(line), translation.text)))


def _alignment(segment: TranslatedSegment, text: str, chosen: Sequence[InlineTranslation]) -> Links:
    """Return the word alignment of a line, given those of its sentences, which may lack protected text.

    Protected text and sentences that stay as they are are linked with themselves only, whatever the model attends to.
    """
    line = segment.text
    lengths = [len(each.before) + len(text_of(each.content)) + len(each.after) for each in segment.sentences]
    starts = accumulate(lengths, initial=len(line) - sum(lengths))  # behind the tag of a target language
    places: set[tuple[int, int]] = set()
    copies: list[_Copy] = []
    tgt_start = 0
    for start, each, answer in zip(starts, segment.sentences, chosen, strict=False):
        content = text_of(answer.content)
        src_start = start + len(each.before)
        src_span = (src_start, src_start + len(text_of(each.content)))
        signs = each.before.strip()
        before = text.find(signs, tgt_start) if signs else -1
        if before >= 0:
            tgt_start = before + len(signs)
            if each.before[-1].isspace():  # the signs are words
                sign_start = start + each.before.index(signs)
                copies.append(_Copy((sign_start, sign_start + len(signs)), (before, tgt_start)))
        found = text.find(content, tgt_start)
        if found < 0:  # its full stop is left out, see `frame.end_of_frame`
            content = content[:-1]
            found = text.find(content, tgt_start)
        tgt_start = max(tgt_start, found)
        tgt_span = (tgt_start, tgt_start + len(content))
        own = list(_copies(line, src_span, text, tgt_span, is_translated=answer.line != ""))
        src_places = _places(answer.line, line, src_span, [copy.src for copy in own])
        tgt_places = _places(answer.candidate.text, text, tgt_span, [copy.tgt for copy in own])
        places.update((src_places[src], tgt_places[tgt]) for src, tgt in answer.candidate.alignment)
        copies += own
        tgt_start = tgt_span[1]
        signs = each.after.strip()
        after = text.find(signs, tgt_start) if signs and each.after[0].isspace() else -1
        if after >= 0:
            sign_start = src_span[1] + each.after.index(signs)
            copies.append(_Copy((sign_start, sign_start + len(signs)), (after, after + len(signs))))
    src_words = _Words(line)
    tgt_words = _Words(text)
    links = {(src_words.at(src), tgt_words.at(tgt)) for src, tgt in places if src >= 0 and tgt >= 0}
    src_copied = src_words.only_in([copy.src for copy in copies])
    tgt_copied = tgt_words.only_in([copy.tgt for copy in copies])
    links = {(src, tgt) for src, tgt in links if src not in src_copied and tgt not in tgt_copied}
    for copy in copies:
        links.update(zip(src_words.within(copy.src), tgt_words.within(copy.tgt), strict=True))
    return tuple(sorted(links))


@dataclass(frozen=True)
class _Copy:
    """A text that is the same in a line and in its translation."""

    src: Offsets
    tgt: Offsets


def _copies(line: str, src_span: Offsets, text: str, tgt_span: Offsets, *, is_translated: bool) -> Iterator[_Copy]:
    """Yield the protected texts of a sentence and of its translation that are as often in both, in their order.

    All of a sentence that is not translated, and that stays as it is, is one.
    """
    sentence = line[slice(*src_span)]
    content = text[slice(*tgt_span)]
    if not is_translated and content and content in sentence:
        start = src_span[0] + sentence.index(content)
        yield _Copy((start, start + len(content)), tgt_span)
        return
    found = _starts_of_protected(sentence)
    written = _starts_of_protected(content)
    for protected, starts in found.items():
        if len(starts) == len(written.get(protected, ())):
            for src, tgt in zip(starts, written[protected], strict=True):
                src, tgt = src_span[0] + src, tgt_span[0] + tgt
                yield _Copy((src, src + len(protected)), (tgt, tgt + len(protected)))


def _starts_of_protected(text: str) -> dict[str, list[int]]:
    """Return where each protected text begins."""
    found: dict[str, list[int]] = {}
    for start, end in find_protected(text, decimals=True):
        found.setdefault(text[start:end], []).append(start)
    return found


def _places(part: str, whole: str, span: Offsets, copied: Iterable[Offsets]) -> list[int]:
    """Return where each word of a part is in a span of the whole text, which may have more words; -1: nowhere.

    Args:
        part: A text whose words are in the span, in their order.
        whole: The whole text.
        span: A span of it.
        copied: Protected texts in the span, which the part may lack.
    """
    lacking = [(start, end) for start, end in copied if whole[start:end] not in part]
    places = []
    start, end = span
    for word_start, word_end in character_spans(part):
        word = part[word_start:word_end]
        core = _CORE.search(word)
        if core is not None and not find_protected(word, decimals=True):
            word = core[0]  # the signs around it may be elsewhere, behind protected text
        place = whole.find(word, start, end)
        while place >= 0 and is_part_of_protected((place, place + len(word)), lacking):
            place = whole.find(word, place + 1, end)
        places.append(place)
        if place >= 0:
            start = place + len(word)
    return places


class _Words:
    """The words of a text, by offset."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._number = [-1] * len(text)
        for number, (start, end) in enumerate(word_spans(text)):
            self._number[start:end] = [number] * (end - start)

    def at(self, offset: int) -> int:
        """Return the number of the word at an offset."""
        return self._number[offset]

    def within(self, span: Offsets) -> list[int]:
        """Return the numbers of the words with a part in a span."""
        return [number for number in dict.fromkeys(self._number[slice(*span)]) if number >= 0]

    def only_in(self, spans: Sequence[Offsets]) -> set[int]:
        """Return the numbers of the words in some spans that have no letter or digit outside of them."""
        inside = {offset for span in spans for offset in range(*span)}
        found = {self._number[offset] for offset in inside}
        others = {self._number[i] for i, character in enumerate(self._text) if character.isalnum() and i not in inside}
        return found - others
