"""From a document to its translation: segments to sentences, through the model, and back."""

import logging
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from mtcli.documents.formats.format import Document, RatedDocument, ReadOptions
from mtcli.documents.formats.registry import needs_packages, read_document
from mtcli.documents.markup.inline import Inline, LanguageTag, Tag, merged, text_of, text_with_references
from mtcli.documents.markup.sentences import InlineTranslation, translate_candidates, with_tags_of
from mtcli.documents.markup.wrapping import unspaced_at_end, unspaced_at_start
from mtcli.documents.segmentation import is_plain, split_long, split_marks, split_segment
from mtcli.errors import DataError, UsageError
from mtcli.runtime.files import read_regular
from mtcli.runtime.outputs import write_whole
from mtcli.runtime.progress import Progress, on_terminal
from mtcli.runtime.wording import counted
from mtcli.text.numbers import NumberCheck, check_numbers, same_signs
from mtcli.text.placeholders import protected_of
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

K = TypeVar("K")
"""What a caller gives with a chunk, and gets with its translations."""

MAX_BYTES = 64 * 2**20
"""Size limit of a document in bytes. A document is in memory as a whole."""

_SPACES = re.compile(r"\s+")
_LINE_BREAK = re.compile("[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")
_NO_SPACE_AFTER = ("。", "！", "？", "」", "』", "）", "】", "》")
"""Ends of sentences after which Chinese and Japanese have no space."""


@dataclass(frozen=True, slots=True)
class _SpacedSentence:
    """A part of a segment that is translated, with the white space around it."""

    before: str
    content: Inline
    after: str

    @property
    def has_space(self) -> bool:
        """There is white space around it."""
        return self.before != "" or self.after != ""


@dataclass(frozen=True, slots=True)
class TranslatedSegment:
    """A paragraph with markup, its sentences and their translations."""

    source: Inline
    """Without the tag of a target language."""
    sentences: list[_SpacedSentence]
    asked: list[Inline]
    """Each sentence on one line, as it is translated."""
    answers: list[list[InlineTranslation]]
    """The different translations of each sentence, best first."""
    is_divided: bool
    """It has a sentence that is longer than any in training, which was translated in parts."""
    ids: Sequence[int]
    """The source ids of its text, with that tag."""
    found: "list[MemoryMatch | None]"
    """What the memory has for each sentence: an exact match, which is its translation, or a near match."""

    @property
    def matches(self) -> "tuple[MemoryMatch, ...]":
        """What the memory has for its sentences."""
        return tuple(match for match in self.found if match is not None)

    @property
    def num_candidates(self) -> int:
        """The number of its different translations."""
        return max(map(len, self.answers), default=1)

    def chosen(self, number: int) -> list[InlineTranslation]:
        """Return one translation of each sentence, or its last one if it has fewer."""
        return [candidates[min(number, len(candidates) - 1)] for candidates in self.answers]

    def content(self, number: int = 0) -> Inline:
        """Return one of its translations, from 0."""
        contents = [answer.content for answer in self.chosen(number)]
        if contents == self.asked:
            return self.source
        if len(contents) == 1 and not self.sentences[0].has_space:
            return contents[0]
        joined = _joined(self.sentences, list(zip(self.asked, contents, strict=True)))
        return joined if len(contents) == 1 or _keeps_spans(joined, contents) else self.source

    def confidence(self, number: int = 0) -> float | None:
        """Return the mean confidence of the sentences of one of its translations, each weighted by its characters.

        Sentences that the model was not given, such as numbers, do not count. None: no sentence has a confidence.
        """
        weighted = 0.0
        total = 0
        for asked, answer in zip(self.asked, self.chosen(number), strict=True):
            if answer.candidate.confidence is not None:
                length = len(text_of(asked))
                weighted += length * answer.candidate.confidence
                total += length
        return weighted / total if total else None

    def pairs(self) -> Iterator[tuple[Inline, list[InlineTranslation]]]:
        """Yield each sentence, as it is translated, with its translations."""
        yield from zip(self.asked, self.answers, strict=True)

    def texts(self) -> Iterator[tuple[str, str]]:
        """Yield the text of each sentence, as it is translated, with that of its best translation."""
        for asked, candidates in self.pairs():
            yield text_of(asked), text_of(candidates[0].content)

    def has_long_sentence(self, tokenizer: Tokenizer, usual_src: int) -> bool:
        """Return True if a sentence has more tokens than usual, but not more than any in training."""
        if len(self.ids) <= usual_src or self.is_divided:
            return False
        return any(len(ids) > usual_src for ids in tokenizer.encode_src([text_of(asked) for asked in self.asked]))

    def number_checks(self) -> Iterator[NumberCheck]:
        """Yield the differences of the numbers of each sentence from those of the best translation of the model."""
        for (asked, candidates), match in zip(self.pairs(), self.found, strict=True):
            if match is not None and match.is_exact:
                continue
            yield check_numbers(text_with_references(asked), text_with_references(candidates[0].content))


def _keeps_spans(joined: Inline, contents: Iterable[Inline]) -> bool:
    """Return True if sentences that are joined do not form protected text where they meet, such as `5` and `km`."""
    apart = protected_of(part for content in contents for part in content if isinstance(part, str))
    together = protected_of(part for part in joined if isinstance(part, str))
    return apart.counts == together.counts


@dataclass(frozen=True)
class _Asked:
    """A sentence as it is translated."""

    content: Inline
    """It is on one line."""
    known: Inline | None = None
    """Its translation if that needs no model."""
    match: "MemoryMatch | None" = None
    """What the memory has for it."""
    language_tag: Sequence[LanguageTag] = ()
    """The tag of its target language, or none."""


@dataclass(frozen=True)
class DividedSegments:
    """Segments that are divided into sentences."""

    segments: list[Inline]
    """They are without tags of target languages."""
    sentences: list[tuple[list[_SpacedSentence], bool]]
    """The sentences of each segment, and True if one of them was too long."""
    asked: list[list[_Asked]]
    """Each sentence of each segment."""
    ids: Sequence[Sequence[int]]
    """The source ids of the text of each segment, with its tag."""

    @property
    def contents(self) -> list[Inline]:
        """What the model is given."""
        asked = (one for sentences in self.asked for one in sentences if one.known is None)
        return [(*one.language_tag, *one.content) for one in asked]

    def results(self, found: Iterable[list[InlineTranslation]]) -> Iterator[TranslatedSegment]:
        """Yield each segment with the translations of its sentences, given those of `contents`."""
        remaining = iter(found)
        rows = zip(self.segments, self.sentences, self.asked, self.ids, strict=True)
        for segment, (sentences, is_divided), asked, ids in rows:
            answers = [next(remaining) if one.known is None else [InlineTranslation(one.known)] for one in asked]
            contents = [one.content for one in asked]
            matches = [one.match for one in asked]
            yield TranslatedSegment(segment, sentences, contents, answers, is_divided, ids, matches)


class SegmentTranslator:
    """Translates paragraphs with markup, sentence by sentence. White space between the sentences stays as it is.

    This is the one path of the documents, of lines of text (`lines`) and of the server: it decides where sentences end
    and which text is protected. Line breaks within a sentence become spaces for the model. A sentence that the model
    does not change keeps them. A sentence without a letter, such as a number, stays as it is.
    """

    def __init__(
        self, translator: Translator, options: Options, *, src: str, tgt: str = "", memory: "Memory | None" = None
    ):
        """Initialise it.

        Args:
            translator: The model.
            options: Options of the search.
            src: Source language.
            tgt: Target language, unless the options name it; empty if it is not known. See `numbers.same_signs`.
            memory: Translates the paragraphs and sentences that it has, in place of the model.
        """
        self._translator = translator
        self._options = options
        self._src = src
        self._memory = memory
        self._recaser = Recaser(translator.tokenizer, src, options.to or tgt)
        self._decimals = same_signs(src, options.to or tgt)

    def divide(self, segments: Iterable[Inline]) -> DividedSegments:
        """Divide segments into sentences, and look these up in the memory. One that it has as a whole stays whole.

        The tag of a target language, with which a segment may begin, is for each of its sentences. The memory is for
        one target language, so it is not used for these.

        Raises:
            UsageError: sentencex is not installed.
        """
        tokenizer = self._translator.tokenizer
        whole = list(segments)
        texts = [text_of(segment) for segment in whole]
        ids = tokenizer.encode_src(texts)
        num_tokens = _token_counter(texts, ids, tokenizer, self._recaser)
        longest = min(self._translator.longest_src, MAX_LINE_TOKENS)
        rest: list[Inline] = []
        sentences: list[tuple[list[_SpacedSentence], bool]] = []
        asked: list[list[_Asked]] = []
        with needs_packages():
            for tagged in whole:
                tag, segment = _without_language_tag(tagged, tokenizer)
                memory = None if tag else self._memory
                if memory is not None and _remembered(_on_one_line(segment), memory, decimals=self._decimals):
                    found = [_trimmed(segment)], False
                else:
                    found = _sentences(segment, num_tokens, longest - len(tag), self._src)
                contents = [_on_one_line(sentence.content) for sentence in found[0]]
                rest.append(segment)
                sentences.append(found)
                known = [_asked(each, memory, decimals=self._decimals) for each in contents]
                asked.append([replace(each, language_tag=tag) for each in known])
        return DividedSegments(rest, sentences, asked, ids)

    def translated(
        self, chunks: Iterable[tuple[K, DividedSegments]], bar: Progress, *, warn: bool = True, growing: bool = False
    ) -> Iterator[tuple[K, list[TranslatedSegment]]]:
        """Yield the key of each chunk, and its paragraphs, translated.

        Args:
            chunks: A key of any type, and paragraphs that are divided. Those of the next chunk may be read before this
                one is translated, see `markup.sentences.translate_candidates`: all sentences are one stream, so that
                batches are full.
            bar: Counts the sentences.
            warn: Warn about sentences that are not translated, or whose protected text was put back.
            growing: See `Translator.translate`.

        Raises:
            UsageError, NotFiniteError: See `Translator.translate`.
        """
        contents = (((key, divided), divided.contents) for key, divided in chunks)
        for (key, divided), found in translate_candidates(
            contents,
            self._translator,
            self._options,
            bar,
            recaser=self._recaser,
            decimals=self._decimals,
            warn=warn,
            growing=growing,
        ):
            yield key, list(divided.results(found))


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
        text, _ = recaser.known_form(text)
        number = known.get(text)
        return len(tokenizer.encode_src([text])[0]) if number is None else number

    return num_tokens


def _asked(content: Inline, memory: "Memory | None", *, decimals: bool) -> _Asked:
    """Return a sentence with the translation that needs no model: that of the memory, or itself without letters."""
    match = None if memory is None else memory.find(text_with_references(content))
    if match is not None and match.is_exact:
        known = with_tags_of(content, match.entry.translation, decimals=decimals)
        if known is not None:
            return _Asked(content, known, match)
        match = None
    return _Asked(content, match=match) if _has_letters(content) else _Asked(content, content)


def _remembered(segment: Inline, memory: "Memory", *, decimals: bool) -> bool:
    """Return True if the memory has the whole of a segment, and its tags can be placed."""
    match = memory.exact(text_with_references(segment))
    return match is not None and with_tags_of(segment, match.entry.translation, decimals=decimals) is not None


def _has_letters(content: Inline) -> bool:
    return any(map(str.isalpha, text_of(content)))


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
    """Translate the paragraphs of a document, see `SegmentTranslator`.

    Args:
        segments: The paragraphs.
        translator: The model.
        options: Options of the search.
        src: Source language.
        tgt: Target language.
        quiet: Show no progress bar.
        warn: Warn about sentences that are divided, not translated, repeat themselves, or have other numbers. The
            warnings quote them.
        memory: See `SegmentTranslator`.

    Raises:
        UsageError: `options.to` is missing or unknown; see also `SegmentTranslator.divide`.
        NotFiniteError: See `Translator.translate`.
    """
    check_target(translator.target_tokenizer, options.to)
    by_sentence = SegmentTranslator(translator, options, src=src, tgt=tgt, memory=memory)
    divided = by_sentence.divide(segments)
    with Progress("translating", total=len(divided.contents), unit="sentences", quiet=quiet) as bar:
        ((_, found),) = by_sentence.translated([(None, divided)], bar, warn=warn)
    if warn:
        _warn_about_divided(found, translator.longest_src)
        _warn_about_long_sentences(found, translator)
        _warn_about_repetitions(found)
        _warn_about_numbers(found)
    return found


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
        memory: See `SegmentTranslator`.

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


def _sentences(
    segment: Inline, num_tokens: Callable[[str], int], longest: int, src: str
) -> tuple[list[_SpacedSentence], bool]:
    """Split a segment into sentences, and those of more than `longest` tokens into clauses.

    Returns:
        The parts, and True if a sentence was too long.
    """
    if is_plain(segment) and num_tokens(text_of(segment)) <= min(longest, MAX_LINE_TOKENS):
        return [_SpacedSentence("", segment, "")], False
    sentences = []
    is_divided = False
    for sentence in split_segment(segment, src):
        parts = split_long(sentence, num_tokens, longest)
        is_divided = is_divided or len(parts) > 1
        sentences += [_trimmed(few_marks) for part in parts for few_marks in split_marks(part)]
    return sentences, is_divided


def _trimmed(sentence: Inline) -> _SpacedSentence:
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
    return _SpacedSentence(before, tuple(part for part in parts if part != ""), after)


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


def _joined(sentences: Sequence[_SpacedSentence], pairs: Sequence[tuple[Inline, Inline]]) -> Inline:
    """Join the translations of the sentences of one segment.

    Args:
        sentences: The sentences.
        pairs: Each sentence as it was given to the model, and its translation.
    """
    joined: list[str | Tag] = []
    followers = [*sentences[1:], _SpacedSentence("", (), "")]
    for sentence, follower, (asked, answer) in zip(sentences, followers, pairs, strict=True):
        unchanged = answer == asked
        joined.append(sentence.before)
        joined += sentence.content if unchanged else answer
        joined.append(sentence.after if unchanged else _space_after(sentence, answer, follower))
    return merged(joined)


def _space_after(sentence: _SpacedSentence, answer: Inline, follower: _SpacedSentence) -> str:
    """Return the space after the translation of a sentence, which only some languages write.

    Where it was forgotten after a mark, it is written: the translation may lack the mark, and two words would meet, or
    the two sentences look like a name, as in `vino.De`.
    """
    if follower.before or not follower.content:
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
