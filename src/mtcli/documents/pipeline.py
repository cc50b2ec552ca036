"""From a document to its translation: segments to sentences, through the model, and back."""

import logging
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from mtcli.documents.encoding import EncodedText
from mtcli.documents.format import ReadOptions
from mtcli.documents.inline import Inline, Tag, merged, text_of
from mtcli.documents.markup import translate_inline
from mtcli.documents.plain_text import read_text
from mtcli.documents.registry import needs_packages, read_document
from mtcli.documents.segmentation import split_long, split_marks, split_segment
from mtcli.documents.wrapping import unspaced_at_end, unspaced_at_start
from mtcli.errors import DataError, UsageError
from mtcli.inference.line_translator import LineTranslator
from mtcli.inference.repetitions import repetition_in
from mtcli.inference.streams import arguments, name_of
from mtcli.inference.translation import Options
from mtcli.runtime.outputs import write_whole
from mtcli.runtime.progress import on_terminal
from mtcli.runtime.regular_file import read_regular
from mtcli.runtime.wording import counted

log = logging.getLogger(__name__)

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


def translate_segments(
    segments: Iterable[Inline],
    translator: LineTranslator,
    options: Options,
    *,
    src: str,
    quiet: bool = False,
    warn: bool = True,
) -> list[Inline]:
    """Translate paragraphs with markup, sentence by sentence. White space between the sentences stays as it is.

    Line breaks within a sentence become spaces for the model. A sentence that the model does not change keeps them.
    A sentence without a letter, such as a number, stays as it is.

    Args:
        segments: The paragraphs of one document, or of several.
        translator: The model. All sentences are translated in one stream, so that batches are full.
        options: Options of the search.
        src: Source language.
        quiet: Show no progress bar.
        warn: Warn about sentences that are divided, not translated or repeat themselves. The warnings quote them.

    Returns:
        The translation of each segment.

    Raises:
        UsageError: sentencex is not installed, or `options.to` is missing; see also `LineTranslator.translate`.
        NotFiniteError: See `LineTranslator.translate`.
    """
    if translator.tokenizer.tags and not options.to:
        targets = ", ".join(sorted(translator.tokenizer.tags)[:10])
        raise UsageError(f"this model has several target languages ({targets}): give one with --to")
    whole = list(segments)
    with needs_packages():
        sentences_of = [_sentences(segment, translator, src, warn=warn) for segment in whole]
    asked = [_on_one_line(sentence.content) for sentences in sentences_of for sentence in sentences]
    has_letters = [any(map(str.isalpha, text_of(content))) for content in asked]
    lines = [content for content, is_text in zip(asked, has_letters, strict=True) if is_text]
    found = translate_inline(lines, translator, options, total=len(lines), quiet=quiet, warn=warn)
    answers = (next(found) if is_text else content for content, is_text in zip(asked, has_letters, strict=True))
    answered = list(zip(asked, answers, strict=True))
    if warn:
        _warn_about_repetitions(answered)
    pairs = iter(answered)
    results = []
    for segment, sentences in zip(whole, sentences_of, strict=True):
        own_pairs = list(islice(pairs, len(sentences)))
        is_changed = any(answer != content for content, answer in own_pairs)
        results.append(_joined(sentences, own_pairs) if is_changed else segment)
    return results


def _warn_about_repetitions(pairs: Iterable[tuple[Inline, Inline]]) -> None:
    """Warn about translations that repeat themselves although their sentence does not."""
    examples = []
    for sentence, translation in pairs:
        repetition = repetition_in(text_of(translation))
        if repetition and not repetition_in(text_of(sentence)):
            examples.append(repetition)
    if examples:
        verb = "repeats itself" if len(examples) == 1 else "repeat themselves"
        message = "%s %s (%.40s); --no-repeat-ngram 3 may prevent that"
        log.warning(message, counted(len(examples), "translation"), verb, examples[0])


def translate_text(text: str, translator: LineTranslator, options: Options, *, src: str, quiet: bool = False) -> str:
    """Translate plain text of any number of paragraphs, see `plain_text` and `translate_segments`."""
    document = read_text(EncodedText(text))
    translations = translate_segments(document.segments, translator, options, src=src, quiet=quiet)
    return document.write(translations).decode()


def translate_bytes(
    content: bytes,
    read_options: ReadOptions,
    translator: LineTranslator,
    options: Options,
    *,
    quiet: bool = False,
) -> bytes:
    """Translate the content of a file.

    Args:
        content: The file.
        read_options: Its name, whose suffix is its type, see `read_document`, and the languages.
        translator: The model.
        options: Options of the search.
        quiet: Show no progress bar.

    Raises:
        UsageError: The type is unknown, or a package is missing.
        DataError: The file is broken, unsafe or larger than `MAX_BYTES`.
        NotFiniteError: See `LineTranslator.translate`.
    """
    _check_size(len(content), read_options.name)
    document = read_document(content, read_options)
    translations = translate_segments(document.segments, translator, options, src=read_options.src, quiet=quiet)
    return document.write(translations)


def translate_document(
    texts: Sequence[str] | None,
    path: str | None,
    output: str,
    translator: LineTranslator,
    options: Options,
    read_options: ReadOptions,
) -> None:
    """Translate a document, or paragraphs of plain text. The output appears when it is complete.

    Args:
        texts: Paragraphs given as arguments; if there are any, nothing is read.
        path: The file. `-` or None: standard input, which is plain text.
        output: The file to write, or `-` for standard output.
        translator: The model.
        options: Options of the search.
        read_options: Options of the reader.

    Raises:
        UsageError, DataError, NotFiniteError: See `translate_bytes`.
        StorageError: The output cannot be written.
    """
    content = "".join(f"{line}\n" for line in arguments(texts)).encode() if texts else _read(path or "-")
    quiet = output == "-" and on_terminal(sys.stdout)  # a progress bar would mix with the translation
    result = translate_bytes(content, read_options, translator, options, quiet=quiet)
    if output == "-":
        sys.stdout.flush()
        sys.stdout.buffer.write(result)
        sys.stdout.buffer.flush()
    else:
        write_whole(Path(output), result)


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


def _sentences(segment: Inline, translator: LineTranslator, src: str, *, warn: bool) -> list[_SpacedSentence]:
    """Split a segment into sentences, and those that are longer than any in training into clauses."""

    def num_tokens(text: str) -> int:
        return len(translator.tokenizer.encode_src([text])[0])

    sentences = []
    for sentence in split_segment(segment, src):
        parts = split_long(sentence, num_tokens, translator.longest_src)
        if warn and len(parts) > 1:
            message = "a sentence has more tokens than any in training (%d): translated in %d parts (%.40s …)"
            log.warning(message, translator.longest_src, len(parts), text_of(sentence).strip())
        sentences += [_trimmed(few_marks) for part in parts for few_marks in split_marks(part)]
    return sentences


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
    parts = (_SPACES.sub(_without_break, part) if isinstance(part, str) else part for part in content)
    return tuple(part.replace("\xad", "") if isinstance(part, str) else part for part in parts)


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
    """Return the space after the translation of a sentence, which only some languages write."""
    if follower.before or not follower.content:
        return sentence.after
    source_has_none = text_of(sentence.content).endswith(_NO_SPACE_AFTER)
    answer_has_none = text_of(answer).endswith(_NO_SPACE_AFTER)
    if source_has_none and not answer_has_none and not sentence.after:
        return " "
    if answer_has_none and not source_has_none and sentence.after == " ":
        return ""
    return sentence.after
