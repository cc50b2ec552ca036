"""Translate sentences with inline markup and placeholders. What is protected is never lost, added or changed.

The model translates text without tags. The word alignment of the translation says where the tags go, see `reinsertion`.
A model trained with `data.placeholders` is given its placeholder tokens. For others, placeholders stay in the text
first, because most models copy them. Where one is lost, the sentence is translated again without any, and they are put
in like tags. Every result is checked.
"""

import logging
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice

from mtcli.data.placeholders import TOKENS, count_measures, find_protected, without_added
from mtcli.documents.inline import Inline, Tag, merged, text_of
from mtcli.documents.marks import Mark, is_faithful, mark_up, pieces_of
from mtcli.documents.reinsertion import reinsert
from mtcli.documents.word_map import diagonal_links
from mtcli.inference.line_translator import LineTranslator
from mtcli.inference.translation import Links, Options
from mtcli.runtime.progress import Progress
from mtcli.runtime.wording import counted

log = logging.getLogger(__name__)

CHUNK = 4096
"""Sentences in memory at a time."""

_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]+")
"""What no line of text has: control characters, line ends, halves of surrogate pairs and what Unicode reserves."""

UNUSUAL_SIGNS = re.compile(r"[^\w\s.,;:!?]")
"""What placeholders consist of besides letters, digits and spaces."""


class _Sentence:
    """A sentence on its way to its translation."""

    def __init__(self, source: Inline, *, use_tokens: bool) -> None:
        self.source = source
        self.pieces = pieces_of(source)
        self.result: Inline | None = None
        self.is_given_up = False
        """No translation of it is faithful, so it stays as it is."""
        self.is_unanswered = False
        """The model wrote nothing, or only what it must not add, so it stays as it is."""
        content = [index for index, mark in enumerate(self.pieces) if isinstance(mark, Mark) and mark.is_content]
        self.mark_of_token: dict[str, Mark] = {}
        written: dict[int, str] = {}
        for index in content:
            mark = self.pieces[index]
            assert isinstance(mark, Mark)
            if use_tokens and len(content) <= len(TOKENS):
                token = TOKENS[len(written)]
                written[index] = token
                self.mark_of_token[token] = mark
            elif not mark.is_tag:
                written[index] = mark.raw
        for index, mark in enumerate(self.pieces):
            if isinstance(mark, Mark) and mark.shown and not mark.shown.isspace():
                written[index] = mark.shown
                self.mark_of_token[mark.shown] = mark
        self.has_placeholders = bool(written)
        self.is_plain = not any(isinstance(piece, Mark) for piece in self.pieces)
        self.marked = mark_up(self.pieces, written)

    @property
    def has_words(self) -> bool:
        """There is something to translate."""
        text = without_added(self.marked.text, Counter(), measures=True)
        return any(character.isalpha() for character in text)

    def keep_unanswered(self) -> None:
        """Keep the source, because the model wrote nothing."""
        self.is_unanswered = True
        self.result = self.source

    def take_out_placeholders(self) -> None:
        """Leave the placeholders out of the text. They become points."""
        self.marked = mark_up(self.pieces, {})
        self.mark_of_token = {}

    def whole(self, core: Iterable[str | Tag]) -> Inline:
        """Return a translation with its placeholders, and with what stands before and after the text."""
        before = [piece.part if isinstance(piece, Mark) else piece for piece in self.marked.before]
        after = [piece.part if isinstance(piece, Mark) else piece for piece in self.marked.after]
        return merged([*before, *self._with_placeholders(core), *after])

    def _with_placeholders(self, core: Iterable[str | Tag]) -> Iterator[str | Tag]:
        """Yield the parts of a translation with the marks in place of their tokens."""
        for part in core:
            if isinstance(part, Tag) or not self.mark_of_token:
                yield part
                continue
            for text in re.split(f"([{re.escape(''.join(self.mark_of_token))}])", part):
                mark = self.mark_of_token.get(text)
                yield text if mark is None else mark.part


def translate_inline(
    sentences: Iterable[Inline],
    translator: LineTranslator,
    options: Options,
    *,
    total: int | None = None,
    quiet: bool = False,
    warn: bool = True,
) -> Iterator[Inline]:
    """Translate sentences with markup, in their order.

    A translation has every tag, placeholder and other protected text of its sentence exactly once for each time that
    the sentence has it (see `placeholders.find_protected`), and its tags are nested in the same way. White space, tags
    and emoji at the ends of a sentence stay there. A sentence without words is returned as it is, and so is one for
    which the model writes nothing.

    Args:
        sentences: Each is a sentence; a tag in it may have its partner in another sentence.
        translator: The model. Without support for alignments, places are estimated from positions.
        options: Options of the search. Sentences with tags also get `alignments`.
        total: Number of sentences, for the progress bar.
        quiet: Show no progress bar.
        warn: Warn about sentences that cannot be translated. The warnings quote them.
    """
    remaining = iter(sentences)
    with Progress("translating", total=total, unit="sentences", quiet=quiet) as bar:
        while chunk := list(islice(remaining, CHUNK)):
            yield from _translate_chunk(chunk, translator, options, bar, warn=warn)


def _translate_chunk(
    chunk: Sequence[Inline], translator: LineTranslator, options: Options, bar: Progress, *, warn: bool
) -> list[Inline]:
    """Translate the sentences of a chunk: those without tags, those with tags, then those that lost a placeholder."""
    use_tokens = translator.tokenizer.has_placeholders
    sentences = [_Sentence(source, use_tokens=use_tokens) for source in chunk]
    without_tags = []
    with_tags = []
    for sentence in sentences:
        if not sentence.has_words:
            sentence.result = sentence.source
        elif sentence.marked.root.children:
            with_tags.append(sentence)
        else:
            without_tags.append(sentence)
    _translate_with_placeholders(without_tags, translator, options)
    bar.update(len(without_tags))
    _translate_with_placeholders(with_tags, translator, options)
    _translate_without_placeholders([each for each in sentences if each.result is None], translator, options)
    bar.update(len(chunk) - len(without_tags))
    for sentence in sentences:
        if warn and sentence.is_given_up:
            message = "not translated, because its placeholders cannot be told apart: %s"
            log.warning(message, text_of(sentence.source))
    unanswered = [text_of(sentence.source) for sentence in sentences if sentence.is_unanswered]
    if warn and unanswered:
        message = "%s not translated, because the model writes nothing there (%.40s)"
        log.warning(message, counted(len(unanswered), "sentence"), unanswered[0])
    return [each.source if each.result is None else each.result for each in sentences]


def _translate_with_placeholders(sentences: Sequence[_Sentence], translator: LineTranslator, options: Options) -> None:
    """Translate sentences with their placeholders in the text. The result is None where one is lost or changed."""
    for sentence, text, links in _translated(sentences, translator, options):
        if text == sentence.marked.text:
            sentence.result = sentence.source
            continue
        if not text.strip():
            sentence.keep_unanswered()
            continue
        if sentence.is_plain and not find_protected(text):
            sentence.result = sentence.whole([text])
            continue
        result = sentence.whole(reinsert(sentence.marked, text, links))
        if is_faithful(sentence.source, result):
            sentence.result = result
        elif not sentence.has_placeholders:
            _repair(sentence, text, links)


def _translate_without_placeholders(
    sentences: Sequence[_Sentence], translator: LineTranslator, options: Options
) -> None:
    """Translate sentences without their placeholders, and insert these."""
    for sentence in sentences:
        sentence.take_out_placeholders()
    for sentence, text, links in _translated(sentences, translator, options):
        _repair(sentence, text, links)


def _repair(sentence: _Sentence, text: str, links: Links) -> None:
    """Make a faithful translation the result of a sentence, whatever the model wrote.

    First, what the model added is deleted. If marks and text together still look like another placeholder, all signs
    but the most common ones are deleted. The last resort is the source.
    """
    marked = sentence.marked
    source_texts = [part for part in sentence.source if isinstance(part, str)]
    shown = {piece.shown for piece in sentence.pieces if isinstance(piece, Mark)}
    without_shown = "".join(character for character in text if character not in shown)
    protected = without_added(without_shown, Counter(), measures=bool(count_measures(source_texts))).strip()
    if not protected:
        sentence.keep_unanswered()
        return
    for attempt in (protected, UNUSUAL_SIGNS.sub(" ", protected).strip()):
        attempt_links = links if attempt == text else diagonal_links(marked.text, attempt)
        result = sentence.whole(reinsert(marked, attempt, attempt_links))
        if is_faithful(sentence.source, result):
            sentence.result = result
            return
    sentence.is_given_up = True
    sentence.result = sentence.source


def _translated(
    sentences: Sequence[_Sentence], translator: LineTranslator, options: Options
) -> Iterator[tuple[_Sentence, str, Links]]:
    """Yield each sentence with the translation of its text, and their word alignment if the sentence has marks."""
    if not sentences:
        return
    need_links = any(sentence.marked.root.children for sentence in sentences)
    if need_links and translator.aligns:
        options = replace(options, alignments=True, align_characters=True)
    lines = [sentence.marked.text for sentence in sentences]
    translations = translator.translate(lines, options, warn=False, quiet=True)
    for sentence, line, translation in zip(sentences, lines, translations, strict=True):
        text = _without_controls(translation.text, line)
        links = translation.candidates[0].alignment if text == translation.text else ()
        if need_links and not links:
            links = diagonal_links(line, text)
        yield sentence, text, links


def _without_controls(text: str, source: str) -> str:
    """Return what the model wrote as one line, with spaces for the control characters that its source does not have."""
    if not _CONTROLS.search(text):
        return text
    return _CONTROLS.sub(lambda found: found[0] if found[0] in source else " ", text).strip()
