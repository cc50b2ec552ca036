"""Translate sentences with inline markup and placeholders. What is protected is never lost, added or changed.

The model translates text without tags. The word alignment of the translation says where the tags go, see `reinsertion`.
Placeholders stay in the text first, because most models copy them. Where one does not, the sentence is translated again
without them, and they are put in like tags. Every result is checked.
"""

import logging
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from mtcli.documents.inline import Inline, Tag, merged, text_of
from mtcli.documents.marks import Mark, Marked, Piece, is_faithful, mark_up, pieces_of
from mtcli.documents.placeholders import count_measures, without_added
from mtcli.documents.reinsertion import diagonal_links, reinsert
from mtcli.inference.line_translator import LineTranslator
from mtcli.inference.translation import Links, Options
from mtcli.runtime.progress import Progress

log = logging.getLogger(__name__)

CHUNK = 4096
"""Sentences in memory at a time."""

UNUSUAL_SIGNS = re.compile(r"[^\w\s.,;:!?]")
"""What placeholders consist of besides letters, digits and spaces."""


@dataclass
class _Sentence:
    """A sentence on its way to its translation."""

    source: Inline
    pieces: list[Piece]
    marked: Marked
    result: Inline | None = None

    @property
    def has_words(self) -> bool:
        """There is something to translate."""
        text = without_added(self.marked.text, Counter(), measures=True)
        return any(character.isalpha() for character in text)

    @property
    def has_placeholders(self) -> bool:
        """Some text is protected."""
        return any(isinstance(piece, Mark) and not piece.is_tag for piece in self.pieces)


def translate_inline(
    sentences: Iterable[Inline],
    translator: LineTranslator,
    options: Options,
    *,
    total: int | None = None,
    quiet: bool = False,
) -> Iterator[Inline]:
    """Translate sentences with markup, in their order.

    A translation has every tag, placeholder and other protected text of its sentence exactly once for each time that
    the sentence has it (see `placeholders.find_protected`), and its tags are nested in the same way. White space, tags
    and emoji at the ends of a sentence stay there. A sentence without words is returned as it is.

    Args:
        sentences: Each is a sentence; a tag in it may have its partner in another sentence.
        translator: The model. Without support for alignments, places are estimated from positions.
        options: Options of the search. Sentences with tags also get `alignments`.
        total: Number of sentences, for the progress bar.
        quiet: Show no progress bar.
    """
    remaining = iter(sentences)
    with Progress("translating", total=total, unit="sentences", quiet=quiet) as bar:
        while chunk := list(islice(remaining, CHUNK)):
            yield from _translate_chunk(chunk, translator, options, bar)


def _translate_chunk(
    chunk: Sequence[Inline], translator: LineTranslator, options: Options, bar: Progress
) -> list[Inline]:
    """Translate the sentences of a chunk: those without tags, those with tags, then those that lost a placeholder."""
    sentences = []
    for source in chunk:
        pieces = pieces_of(source)
        sentences.append(_Sentence(source, pieces, mark_up(pieces, keep_placeholders=True)))
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
    return [each.source if each.result is None else each.result for each in sentences]


def _translate_with_placeholders(sentences: Sequence[_Sentence], translator: LineTranslator, options: Options) -> None:
    """Translate sentences with their placeholders in the text. The result is None where one is lost or changed."""
    for sentence, text, links in _translated(sentences, translator, options):
        if text == sentence.marked.text:
            sentence.result = sentence.source
            continue
        result = _whole(sentence.marked, reinsert(sentence.marked, text, links))
        if is_faithful(sentence.source, result):
            sentence.result = result
        elif not sentence.has_placeholders:
            sentence.result = _repaired(sentence, text, links)


def _translate_without_placeholders(
    sentences: Sequence[_Sentence], translator: LineTranslator, options: Options
) -> None:
    """Translate sentences without their placeholders, and insert these."""
    for sentence in sentences:
        sentence.marked = mark_up(sentence.pieces, keep_placeholders=False)
    for sentence, text, links in _translated(sentences, translator, options):
        sentence.result = _repaired(sentence, text, links)


def _repaired(sentence: _Sentence, text: str, links: Links) -> Inline:
    """Return a faithful translation, whatever the model wrote.

    First, what the model added is deleted. If marks and text together still look like another placeholder, all signs
    but the most common ones are deleted. The last resort is the source.
    """
    marked = sentence.marked
    source_texts = [part for part in sentence.source if isinstance(part, str)]
    protected = without_added(text, Counter(), measures=bool(count_measures(source_texts)))
    for attempt in (protected, UNUSUAL_SIGNS.sub(" ", protected)):
        attempt_links = links if attempt == text else diagonal_links(marked.text, attempt)
        result = _whole(marked, reinsert(marked, attempt, attempt_links))
        if is_faithful(sentence.source, result):
            return result
    log.warning("not translated, because its placeholders cannot be told apart: %s", text_of(sentence.source))
    return sentence.source


def _whole(marked: Marked, core: Iterable[str | Tag]) -> Inline:
    """Return a translation with what stands before and after the text of its sentence."""
    before = [piece.part if isinstance(piece, Mark) else piece for piece in marked.before]
    after = [piece.part if isinstance(piece, Mark) else piece for piece in marked.after]
    return merged([*before, *core, *after])


def _translated(
    sentences: Sequence[_Sentence], translator: LineTranslator, options: Options
) -> Iterator[tuple[_Sentence, str, Links]]:
    """Yield each sentence with the translation of its text, and their word alignment if the sentence has marks."""
    if not sentences:
        return
    need_links = any(sentence.marked.root.children for sentence in sentences)
    if need_links and translator.aligns:
        options = replace(options, alignments=True)
    lines = [sentence.marked.text for sentence in sentences]
    translations = translator.translate(lines, options, warn=False, quiet=True)
    for sentence, line, translation in zip(sentences, lines, translations, strict=True):
        text = " ".join(translation.text.split("\n"))
        links = translation.candidates[0].alignment
        if need_links and not links:
            links = diagonal_links(line, text)
        yield sentence, text, links
