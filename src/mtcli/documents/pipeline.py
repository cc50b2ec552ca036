"""From a document to its translation: segments to sentences, through the model, and back."""

import logging
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from mtcli.documents.formats.format import Document, RatedDocument, ReadOptions
from mtcli.documents.formats.registry import needs_packages, read_document
from mtcli.documents.markup.inline import Inline, LanguageTag, Tag, merged, text_of, text_with_references
from mtcli.documents.markup.sentences import (
    Chunk,
    InlineTranslation,
    Preparation,
    Sentence,
    translate_sentences,
    with_tags_of,
)
from mtcli.documents.markup.wrapping import unspaced_at_end, unspaced_at_start
from mtcli.documents.segmentation import is_plain, split_long, split_marks, split_segment
from mtcli.errors import DataError, UsageError
from mtcli.runtime.files import read_regular
from mtcli.runtime.outputs import write_whole
from mtcli.runtime.progress import Progress, on_terminal
from mtcli.runtime.wording import counted
from mtcli.text.frame import end_of_frame, inside_of_frame
from mtcli.text.numbers import NumberCheck, check_numbers, same_signs
from mtcli.text.placeholders import protected_of, without_symbols
from mtcli.text.recasing import Recaser
from mtcli.text.repetitions import added_repetition
from mtcli.text.tokenizer.tokenizer import LANGUAGE_TAG, Tokenizer
from mtcli.translate.line_warnings import check_target, longer_than_usual
from mtcli.translate.streams import arguments, name_of
from mtcli.translate.translation import Options
from mtcli.translate.translator import Translator
from mtcli.translate.windows import MAX_LINE_TOKENS

if TYPE_CHECKING:
    from mtcli.translate.memory import Memory, MemoryMatch

log = logging.getLogger(__name__)

MAX_BYTES = 64 * 2**20
"""Size limit of a document in bytes. A document is in memory as a whole."""

_SPACES = re.compile(r"\s+")
_CLOSING = "\"'”’»)] "
_LINE_BREAK = re.compile("[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")
_NO_SPACE_AFTER = ("。", "！", "？", "」", "』", "）", "】", "》")
"""Ends of sentences after which Chinese and Japanese have no space."""


Spaced = tuple[str, Inline, str]
"""A sentence, and what stays as it is before and after it: white space, and the signs of its frame."""


@dataclass(frozen=True, slots=True)
class SegmentSentence:
    """A sentence of a segment, with the white space and the signs around it (see `frame`)."""

    before: str
    content: Inline
    after: str
    asked: Inline
    """The content on one line, as it is translated."""
    sentence: Sentence | None
    """The same on the way through the model; None: the memory translates it."""
    known: Inline
    """The translation of the memory; empty if the model translates it."""
    match: "MemoryMatch | None"
    """What the memory has for it: an exact match, which is its translation, or a near match."""

    @property
    def answers(self) -> list[InlineTranslation]:
        """Its different translations, best first."""
        return [InlineTranslation(self.known)] if self.sentence is None else self.sentence.results


@dataclass(frozen=True, slots=True)
class TranslatedSegment:
    """A paragraph with markup, and its sentences. It has translations when its chunk is translated."""

    text: str
    """Its text, with the tag of a target language."""
    ids: Sequence[int]
    """The source ids of this text."""
    source: Inline
    """It without that tag."""
    sentences: list[SegmentSentence]
    is_divided: bool
    """It has a sentence that is longer than any in training, which is translated in parts."""

    @property
    def matches(self) -> "tuple[MemoryMatch, ...]":
        """What the memory has for its sentences."""
        return tuple(each.match for each in self.sentences if each.match is not None)

    @property
    def num_candidates(self) -> int:
        """The number of its different translations."""
        return max((len(each.answers) for each in self.sentences), default=1)

    def chosen(self, number: int) -> list[InlineTranslation]:
        """Return one translation of each sentence, or its last one if it has fewer."""
        all_answers = [each.answers for each in self.sentences]
        return [answers[min(number, len(answers) - 1)] for answers in all_answers]

    def content(self, number: int = 0) -> Inline:
        """Return one of its translations, from 0."""
        contents = [answer.content for answer in self.chosen(number)]
        if contents == [each.asked for each in self.sentences]:
            return self.source
        if len(contents) == 1 and not (self.sentences[0].before or self.sentences[0].after):
            return contents[0]
        joined = _joined(self.sentences, contents)
        return joined if len(contents) == 1 or self._keeps_spans(joined, contents) else self.source

    def _keeps_spans(self, joined: Inline, contents: Sequence[Inline]) -> bool:
        """Return True if sentences that are joined have the protected text of the source or that of the sentences.

        Otherwise, they form some where they meet, such as `5` and `km`.
        """
        parts: list[str | Tag] = []
        for each, content in zip(self.sentences, contents, strict=True):
            parts += [each.before, *content, each.after]
        together = _protected_in(joined)
        return together == _protected_in(parts) or together == _protected_in(self.source)

    @property
    def is_given_up(self) -> bool:
        """Its sentences are translated, but cannot be joined, so it stays as it is."""
        if len(self.sentences) < 2 or self.content() != self.source:
            return False
        return any(answer.content != each.asked for each, answer in zip(self.sentences, self.chosen(0), strict=True))

    def confidence(self, number: int = 0) -> float | None:
        """Return the mean confidence of the sentences of one of its translations, each weighted by its characters.

        Sentences that the model was not given, such as numbers, do not count. None: no sentence has a confidence.
        """
        weighted = 0.0
        total = 0
        for each, answer in zip(self.sentences, self.chosen(number), strict=True):
            if answer.candidate.confidence is not None:
                length = len(text_of(each.asked))
                weighted += length * answer.candidate.confidence
                total += length
        return weighted / total if total else None

    def texts(self) -> Iterator[tuple[str, str]]:
        """Yield the text of each sentence, as it is translated, with that of its best translation."""
        for each in self.sentences:
            yield text_of(each.asked), text_of(each.answers[0].content)

    def has_long_sentence(self, tokenizer: Tokenizer, usual_src: int) -> bool:
        """Return True if a sentence has more tokens than usual, but not more than any in training."""
        if len(self.ids) <= usual_src or self.is_divided:
            return False
        lines = [each.sentence.line for each in self.sentences if each.sentence is not None]
        return any(len(ids) > usual_src for ids in tokenizer.encode_src(lines))

    def number_checks(self) -> Iterator[NumberCheck]:
        """Yield the differences of the numbers of each sentence from those of the best translation of the model."""
        for each in self.sentences:
            if each.match is None or not each.match.is_exact:
                best = each.answers[0].content
                yield check_numbers(text_with_references(each.asked), text_with_references(best))


def _protected_in(parts: Iterable[str | Tag]) -> Counter[str]:
    """Return how often each protected text is in a text with tags."""
    return protected_of(part for part in parts if isinstance(part, str)).counts


@dataclass
class DividedSegments(Chunk):
    """Segments that are divided into sentences, and those of these that the model translates."""

    segments: list[TranslatedSegment]
    first: int = 0
    """The number of the first segment in the text."""


class SegmentDivider:
    """Divides paragraphs with markup into sentences. White space between the sentences stays as it is.

    Documents, lines of text (`lines`) and the server use it: it decides where sentences end, and which text is
    protected. Line breaks within a sentence become spaces for the model. A sentence that the model does not change
    keeps them. A sentence without a letter, such as a number, stays as it is.
    """

    def __init__(
        self, translator: Translator, options: Options, *, src: str, tgt: str = "", memory: "Memory | None" = None
    ):
        """Initialise it.

        Args:
            translator: The model that will translate the sentences.
            options: Options of the search.
            src: Source language.
            tgt: Target language, unless the options name it; empty if it is not known. See `numbers.same_signs`.
            memory: Translates the paragraphs and sentences that it has, in place of the model.
        """
        self._tokenizer = translator.tokenizer
        self._longest = min(translator.longest_src, MAX_LINE_TOKENS)
        self._src = src
        self._memory = memory
        self._recaser = Recaser(translator.tokenizer, src, options.to or tgt)
        self._decimals = same_signs(src, options.to or tgt)
        self._preparation = Preparation(
            use_tokens=translator.tokenizer.has_placeholders,
            decimals=self._decimals,
            recaser=self._recaser,
            terms=options.terms,
        )

    def divide(self, segments: Iterable[Inline], first: int = 0) -> DividedSegments:
        """Divide segments into sentences, and look these up in the memory. One that it has as a whole stays whole.

        The tag of a target language, with which a segment may begin, is for each of its sentences. The memory is for
        one target language, so it is not used for these.

        Args:
            segments: The segments.
            first: The number of the first one in the text.

        Raises:
            UsageError: sentencex is not installed.
        """
        tokenizer = self._tokenizer
        whole = list(segments)
        texts = [text_of(segment) for segment in whole]
        ids = tokenizer.encode_src(texts)
        num_tokens = _token_counter(texts, ids, tokenizer, self._recaser)
        divided: list[TranslatedSegment] = []
        asked: list[Sentence] = []
        with needs_packages():
            for tagged, text, row in zip(whole, texts, ids, strict=True):
                tag, segment = _without_language_tag(tagged, tokenizer)
                memory = None if tag else self._memory
                if memory is not None and _remembered(_on_one_line(segment), memory, decimals=self._decimals):
                    parts, is_divided = [_trimmed(segment)], False
                else:
                    parts, is_divided = _sentences(segment, num_tokens, self._longest - len(tag), self._src)
                sentences = [
                    self._prepared(part, tag, memory, begins=_may_begin_after(previous))
                    for previous, part in zip([None, *parts], parts, strict=False)
                ]
                divided.append(TranslatedSegment(text, row, segment, sentences, is_divided))
                asked += [each.sentence for each in sentences if each.sentence is not None]
        return DividedSegments(asked, divided, first)

    def _prepared(
        self, spaced: Spaced, tag: tuple[LanguageTag, ...], memory: "Memory | None", *, begins: bool
    ) -> SegmentSentence:
        """Prepare a sentence for the model, unless the memory has its translation, with or without its frame."""
        before, content, after = spaced
        asked = _on_one_line(content)
        match = None if memory is None else memory.find(text_with_references(asked))
        if match is not None and match.is_exact:
            known = with_tags_of(asked, match.entry.translation, decimals=self._decimals)
            if known is not None:
                return SegmentSentence(before, content, after, asked, None, known, match)
            match = None
        inside = _without_frame(spaced)
        if inside != spaced:
            return self._prepared(inside, tag, memory, begins=begins)
        sentence = Sentence((*tag, *asked), self._preparation, begins=begins)
        near = match if sentence.has_letters else None
        return SegmentSentence(before, content, after, asked, sentence, (), near)


def _may_begin_after(previous: Spaced | None) -> bool:
    """Return True if a sentence may begin after a part of a text; not after a clause or a word."""
    if previous is None:
        return True
    last = text_of(previous[1]).rstrip(_CLOSING)[-1:]
    return not (last.isalnum() or last in ",;–—、，；")


def _without_language_tag(segment: Inline, tokenizer: Tokenizer) -> tuple[tuple[LanguageTag, ...], Inline]:
    """Return the tag of a target language with which a segment begins, or nothing, and the rest of the segment."""
    text = segment[0] if tokenizer.tags and segment else None
    match = LANGUAGE_TAG.match(text) if isinstance(text, str) else None
    if match is None or match[1] not in tokenizer.tags:
        return (), segment
    return (LanguageTag(match[0]),), merged([match.string[match.end() :].lstrip(), *segment[1:]])


def _token_counter(
    texts: Sequence[str], ids: Sequence[Sequence[int]], tokenizer: Tokenizer, recaser: Recaser
) -> Callable[[str], int]:
    """Return a function that counts the tokens of a text, given the ids of some texts that were encoded together."""
    known = {text: len(row) for text, row in zip(texts, ids, strict=True)}

    def num_tokens(text: str) -> int:
        text, _ = recaser.known_form(without_symbols(text))  # which the model is not given
        number = known.get(text)
        return len(tokenizer.encode_src([text])[0]) if number is None else number

    return num_tokens


def _remembered(segment: Inline, memory: "Memory", *, decimals: bool) -> bool:
    """Return True if the memory has the whole of a segment, and its tags can be placed."""
    match = memory.exact(text_with_references(segment))
    return match is not None and with_tags_of(segment, match.entry.translation, decimals=decimals) is not None


def translate_segments(
    segments: Iterable[Inline],
    translator: Translator,
    options: Options,
    *,
    src: str,
    tgt: str = "",
    quiet: bool = False,
    warn: bool = True,
    memory: "Memory | None" = None,
) -> list[TranslatedSegment]:
    """Translate the paragraphs of a document, see `SegmentDivider`.

    Args:
        segments: The paragraphs.
        translator: The model.
        options: Options of the search.
        src: Source language.
        tgt: Target language.
        quiet: Show no progress bar.
        warn: Warn about sentences that are divided, not translated, repeat themselves, or have other numbers. The
            warnings quote them.
        memory: See `SegmentDivider`.

    Raises:
        UsageError: `options.to` is missing or unknown; see also `SegmentDivider.divide`.
        NotFiniteError: See `Translator.translate`.
    """
    check_target(translator.target_tokenizer, options.to)
    divided = SegmentDivider(translator, options, src=src, tgt=tgt, memory=memory).divide(segments)
    with Progress("translating", total=divided.num_asked, unit="sentences", quiet=quiet) as bar:
        (translated,) = translate_sentences([divided], translator, options, bar, warn=warn)
    found = translated.segments
    if warn:
        warn_about_given_up(found)
        _warn_about_divided(found, translator.longest_src)
        _warn_about_long_sentences(found, translator)
        _warn_about_repetitions(found)
        _warn_about_numbers(found)
    return found


def warn_about_given_up(found: Iterable[TranslatedSegment]) -> None:
    """Warn about paragraphs or lines that stay as they are although their sentences are translated."""
    for segment in found:
        if segment.is_given_up:
            message = "not translated, because its sentences together would look like a number or placeholder: %.60s"
            log.warning(message, text_of(segment.source).strip())


def _warn_about_divided(found: Iterable[TranslatedSegment], longest_src: int) -> None:
    divided = [text_of(segment.source).strip() for segment in found if segment.is_divided]
    if divided:
        message = "%s with a sentence of more tokens than any in training (%d), translated in parts (%.40s …)"
        log.warning(message, counted(len(divided), "paragraph"), longest_src, divided[0])


def _warn_about_long_sentences(found: Iterable[TranslatedSegment], translator: Translator) -> None:
    usual = translator.usual_src
    long = [text_of(each.source).strip() for each in found if each.has_long_sentence(translator.tokenizer, usual)]
    if long:
        noun = counted(len(long), "paragraph")
        log.warning("%s with a sentence %s (%.40s …)", noun, longer_than_usual(usual), long[0])


def _warn_about_numbers(found: Iterable[TranslatedSegment]) -> None:
    """Warn about sentences whose translation lacks numbers of the source or has others."""
    checks = [check for segment in found for check in segment.number_checks() if check.differs]
    if checks:
        verb = "has" if len(checks) == 1 else "have"
        log.warning("%s %s other numbers than the source (%s)", counted(len(checks), "translation"), verb, checks[0])


def _warn_about_repetitions(found: Iterable[TranslatedSegment]) -> None:
    """Warn about translations that repeat themselves although their sentence does not."""
    repetitions = (added_repetition(*texts) for segment in found for texts in segment.texts())
    examples = [repetition for repetition in repetitions if repetition]
    if examples:
        verb = "repeats itself" if len(examples) == 1 else "repeat themselves"
        message = "%s %s (%.40s)"
        log.warning(message, counted(len(examples), "translation"), verb, examples[0])


def translate_document(
    document: Document,
    translator: Translator,
    options: Options,
    *,
    src: str,
    tgt: str = "",
    quiet: bool = False,
    warn: bool = True,
    memory: "Memory | None" = None,
) -> list[TranslatedSegment]:
    """Translate the paragraphs of a document, whose `write` takes their contents.

    The document is given the confidence of each translation if it has a place for it. For the arguments and errors see
    `translate_segments`.
    """
    rated = document if isinstance(document, RatedDocument) and document.has_place_for_confidence else None
    if rated is not None:
        options = replace(options, scores=True)
    found = translate_segments(
        document.segments, translator, options, src=src, tgt=tgt, quiet=quiet, warn=warn, memory=memory
    )
    if rated is not None:
        rated.rate([segment.confidence() for segment in found])
    return found


def translate_file(
    texts: Sequence[str] | None,
    path: str | None,
    output: str,
    translator: Translator,
    options: Options,
    read_options: ReadOptions,
    memory: "Memory | None" = None,
) -> list[TranslatedSegment]:
    """Translate a file, or paragraphs of plain text. The output appears when it is complete.

    Args:
        texts: Paragraphs given as arguments; if there are any, nothing is read.
        path: The file. `-` or None: standard input, which is plain text.
        output: The file to write, or `-` for standard output.
        translator: The model.
        options: Options of the search.
        read_options: The name of the file, whose suffix is its type, see `read_document`, and the languages.
        memory: See `SegmentDivider`.

    Returns:
        The paragraphs.

    Raises:
        UsageError: The type is unknown, or a package is missing; see also `translate_segments`.
        DataError: The file cannot be read, or is broken, unsafe or larger than `MAX_BYTES`.
        NotFiniteError: See `Translator.translate`.
        StorageError: The output cannot be written.
    """
    content = "".join(f"{line}\n" for line in arguments(texts)).encode() if texts else _read(path or "-")
    quiet = output == "-" and on_terminal(sys.stdout)  # a progress bar would mix with the translation
    document = read_document(content, read_options)
    src, tgt = read_options.src, read_options.tgt
    found = translate_document(document, translator, options, src=src, tgt=tgt, quiet=quiet, memory=memory)
    result = document.write([segment.content() for segment in found])
    if output == "-":
        sys.stdout.flush()
        sys.stdout.buffer.write(result)
        sys.stdout.buffer.flush()
    else:
        write_whole(Path(output), result)
    return found


def _read(path: str) -> bytes:
    """Read a document as a whole.

    Raises:
        UsageError: Standard input is closed.
        DataError: The file cannot be read or is too large.
    """
    name = name_of(path)
    if path != "-":
        try:
            _check_size(Path(path).stat().st_size, name)
            return read_regular(Path(path), most=MAX_BYTES)
        except OSError as error:
            raise DataError(f"{name}: cannot read it ({error.strerror or error})") from None
    if sys.stdin is None:
        raise UsageError("standard input is closed; name a file with --input")
    content = sys.stdin.buffer.read(MAX_BYTES + 1)
    _check_size(len(content), name)
    return content


def _check_size(size: int, name: str) -> None:
    if size > MAX_BYTES:
        raise DataError(f"{name}: larger than {MAX_BYTES >> 20} MiB, the limit for a document; split it")


def _sentences(segment: Inline, num_tokens: Callable[[str], int], longest: int, src: str) -> tuple[list[Spaced], bool]:
    """Split a segment into sentences, and those of more than `longest` tokens into clauses.

    Returns:
        The parts, and True if a sentence was too long.
    """
    if is_plain(segment) and num_tokens(text_of(segment)) <= min(longest, MAX_LINE_TOKENS):
        return [("", segment, "")], False
    sentences = []
    is_divided = False
    for sentence in split_segment(segment, src):
        parts = split_long(sentence, num_tokens, longest)
        is_divided = is_divided or len(parts) > 1
        sentences += [_trimmed(few_marks) for part in parts for few_marks in split_marks(part)]
    return sentences, is_divided


def _trimmed(sentence: Inline) -> Spaced:
    """Separate a sentence from the white space at its ends."""
    parts = list(sentence)
    before = after = ""
    if parts and isinstance(parts[0], str):
        first = parts[0]
        parts[0] = first.lstrip()
        before = first[: len(first) - len(parts[0])]
    if parts and isinstance(parts[-1], str):
        last = parts[-1]
        parts[-1] = last.rstrip()
        after = last[len(parts[-1]) :]
    return before, tuple(part for part in parts if part != ""), after


def _without_frame(spaced: Spaced) -> Spaced:
    """Separate a sentence also from the signs around it, see `frame`. Those beside a tag belong to the sentence."""
    before, content, after = spaced
    first, last = content[0] if content else "", content[-1] if content else ""
    if not first or not isinstance(first, str) or not isinstance(last, str) or is_plain(content):
        return spaced
    text = text_of(content)
    start, end = inside_of_frame(text)
    num_after = len(text) - end
    if start >= len(first) or num_after >= len(last):
        return spaced
    if len(content) == 1:
        return before + text[:start], (text[start:end],), text[end:] + after
    inside = (first[start:], *content[1:-1], last[: len(last) - num_after])
    return before + text[:start], inside, text[end:] + after


def _on_one_line(content: Inline) -> Inline:
    """Return a sentence without line breaks: with a space for each, or with nothing between Chinese characters.

    It has no soft hyphens either, which divide words for the model.
    """
    return tuple(text_on_one_line(part) if isinstance(part, str) else part for part in content)


def text_on_one_line(text: str) -> str:
    """Return a text as the model and the memory get it, see `_on_one_line`."""
    if _LINE_BREAK.search(text):
        text = _SPACES.sub(_without_break, text)
    return text.replace("\xad", "")


def _without_break(space: re.Match[str]) -> str:
    if not _LINE_BREAK.search(space[0]):
        return space[0]
    text = space.string
    before = text[max(0, space.start() - 1) : space.start()]
    after = text[space.end() : space.end() + 1]
    return "" if unspaced_at_end(before) and unspaced_at_start(after) else " "


def _joined(sentences: Sequence[SegmentSentence], translations: Sequence[Inline]) -> Inline:
    """Join the translations of the sentences of one segment."""
    joined: list[str | Tag] = []
    followers = [*sentences[1:], None]
    for sentence, follower, answer in zip(sentences, followers, translations, strict=True):
        unchanged = answer == sentence.asked
        after = sentence.after if unchanged else _space_after(sentence, answer, follower)
        if not unchanged and answer and isinstance(answer[-1], str) and not after.isspace():
            end, after = end_of_frame(text_of(sentence.content), answer[-1], after)
            answer = (*answer[:-1], end)
        joined.append(sentence.before)
        joined += sentence.content if unchanged else answer
        joined.append(after)
    return merged(joined)


def _space_after(sentence: SegmentSentence, answer: Inline, follower: SegmentSentence | None) -> str:
    """Return the space after the translation of a sentence, which only some languages write.

    Where it was forgotten after a mark, it is written: the translation may lack the mark, and two words would meet, or
    the two sentences look like a name, as in `vino.De`.
    """
    if follower is None or follower.before or not follower.content:
        return sentence.after
    source = text_of(sentence.content)
    source_has_none = source.endswith(_NO_SPACE_AFTER)
    answer_has_none = text_of(answer).endswith(_NO_SPACE_AFTER)
    ends = (*sentence.content[-1:], follower.content[0])
    meets_text = all(isinstance(end, str) for end in ends)  # neither is a tag, which may be a space or a line break
    is_forgotten = meets_text and not sentence.after and source.endswith((".", "!", "?", "…"))
    if is_forgotten and not answer_has_none:
        return " "
    if source_has_none and not answer_has_none and not sentence.after:
        return " "
    if answer_has_none and not source_has_none and sentence.after == " ":
        return ""
    return sentence.after
