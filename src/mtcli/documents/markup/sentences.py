"""Translate sentences with inline markup and placeholders. What is protected is never lost, added or changed.

The model translates text without tags. The word alignment of the translation says where the tags go, see `placement`.
A model trained with `text.placeholders` is given its placeholder tokens. For others, placeholders stay in the text
first, because most models copy them. Where one is lost, the sentence is translated again without any, and they are put
in like tags. Every result is checked.
"""

import logging
import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Generic, TypeVar
from unicodedata import normalize

from mtcli.documents.markup.inline import Inline, LanguageTag, Tag, merged, text_with_references, unprotected
from mtcli.documents.markup.marks import is_faithful, join_references, mark_up, pieces_of, with_joined_neighbors
from mtcli.documents.markup.placement import diagonal_links, reinsert
from mtcli.runtime.progress import Progress
from mtcli.runtime.wording import counted
from mtcli.terms.terms import Terms
from mtcli.text.placeholders import TOKENS, find_protected, protected_of, without_added
from mtcli.text.recasing import Casing, Recaser
from mtcli.translate.translation import Candidate, Options
from mtcli.translate.translator import Translator
from mtcli.translate.windows import Reading

log = logging.getLogger(__name__)

K = TypeVar("K")
"""What a caller gives with a chunk, and gets with its translations."""

_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]+")
"""What no line of text has: control characters, line ends, halves of surrogate pairs and what Unicode reserves."""

UNUSUAL_SIGNS = re.compile(r"[^\w\s.,;:!?]")
"""What placeholders consist of besides letters, digits and spaces."""


_NOT_GIVEN = Candidate("", 0.0, 0.0)


@dataclass(frozen=True)
class InlineTranslation:
    """A translation of a sentence with markup."""

    content: Inline
    line: str = ""
    """The text that the model was given; empty if it was given none."""
    candidate: Candidate = _NOT_GIVEN
    """What the model wrote for it. The alignment is that of this text."""


def with_tags_of(sentence: Inline, translation: str, *, decimals: bool = False) -> Inline | None:
    """Return a known translation of the text of a sentence with its tags; None: they cannot be placed in it.

    White space and tags at the ends of the sentence stay there. The places of others are estimated from positions.

    Args:
        sentence: The sentence.
        translation: The translation of its text, with the characters of its references.
        decimals: See `translate_candidates`.
    """
    first, last = _without_outer_tags(sentence)
    before, inner, after = sentence[:first], sentence[first:last], sentence[last:]
    if all(isinstance(part, str) for part in inner):
        text = text_with_references(inner)
        start = text[: len(text) - len(text.lstrip())]
        end = text[len(text.rstrip()) :]
        return merged([*before, start, translation.strip(), end, *after])
    prepared = _Sentence(sentence, use_tokens=False, decimals=decimals)
    links = diagonal_links(prepared.marked.text, translation)
    placed = prepared.whole(reinsert(prepared.marked, translation, links))
    return placed if prepared.is_faithful(placed) else None


def _without_outer_tags(sentence: Inline) -> tuple[int, int]:
    """Return where a sentence begins and ends without the tags at its ends that stand for no words."""
    first = 0
    last = len(sentence)
    while first < last and _is_wordless_tag(sentence[first]):
        first += 1
    while last > first and _is_wordless_tag(sentence[last - 1]):
        last -= 1
    return first, last


def _is_wordless_tag(part: str | Tag) -> bool:
    return isinstance(part, Tag) and not part.is_content and not part.text


class _Sentence:
    """A sentence on its way to its translation."""

    def __init__(self, source: Inline, *, use_tokens: bool, decimals: bool) -> None:
        self.language_tag = ""
        if source and isinstance(source[0], LanguageTag):
            self.language_tag = source[0].raw
            source = source[1:]
        self.source = source
        self.decimals = decimals
        self.joined = join_references(source, decimals=decimals)
        self.pieces = pieces_of(self.joined, decimals=decimals)
        self.results: list[InlineTranslation] = []
        """The different translations so far, best first."""
        self.is_repaired = False
        """The model lost, changed or added protected text."""
        self.is_given_up = False
        """No translation of it is faithful, so it stays as it is."""
        self.is_unanswered = False
        """The model wrote nothing, or only what it must not add, so it stays as it is."""
        content = [index for index, piece in enumerate(self.pieces) if isinstance(piece, Tag) and piece.is_content]
        self.mark_of_token: dict[str, Tag] = {}
        written: dict[int, str] = {}
        for index in content:
            mark = self.pieces[index]
            assert isinstance(mark, Tag)
            if use_tokens and len(content) <= len(TOKENS):
                token = TOKENS[len(written)]
                written[index] = token
                self.mark_of_token[token] = mark
            elif not mark.is_markup:
                written[index] = mark.raw
        for index, piece in enumerate(self.pieces):
            if isinstance(piece, Tag) and piece.text and not piece.text.isspace() and written.get(index) not in TOKENS:
                written[index] = piece.text
                self.mark_of_token[piece.text] = piece
        self.has_placeholders = bool(written)
        self.has_marks = any(isinstance(piece, Tag) for piece in self.pieces)
        self.marked = mark_up(self.pieces, written)

    @property
    def has_words(self) -> bool:
        """There is something to translate."""
        text = without_added(self.marked.text, Counter(), numbers=True, decimals=self.decimals)
        return any(character.isalpha() for character in text)

    def keep_unanswered(self, answer: Candidate) -> None:
        """Keep the source, because the model wrote nothing but this answer."""
        self.is_unanswered = True
        self.keep_untranslated(answer)

    def keep_untranslated(self, answer: Candidate) -> None:
        """Make the source the only translation, in place of an answer. If this has a confidence, it becomes 0."""
        confidence = None if answer.confidence is None else 0.0
        self.results = [InlineTranslation(self.source, candidate=replace(_NOT_GIVEN, confidence=confidence))]

    def keep_source(self) -> None:
        """Make the source the only translation."""
        self.results = [InlineTranslation(self.source)]

    def add(self, content: Inline, candidate: Candidate) -> None:
        """Add a translation, unless it is known already."""
        if all(content != result.content for result in self.results):
            self.results.append(InlineTranslation(content, self.marked.text, candidate))

    def is_faithful(self, content: Inline) -> bool:
        """Return True if a translation has all marks and protected text of this sentence."""
        return is_faithful(self.joined, content, decimals=self.decimals)

    def without_references(self, text: str) -> str:
        """Return what the model wrote without the characters that references stand for."""
        shown = {piece.text for piece in self.pieces if isinstance(piece, Tag) and piece.text}
        for characters in sorted(shown, key=len, reverse=True):
            text = text.replace(characters, "")
        return text

    def take_out_placeholders(self) -> None:
        """Leave the placeholders out of the text. They become points."""
        self.marked = mark_up(with_joined_neighbors(self.pieces), {})
        self.mark_of_token = {}

    def whole(self, core: Iterable[str | Tag]) -> Inline:
        """Return a translation with its placeholders, and with what stands before and after the text."""
        before = map(unprotected, self.marked.before)
        after = map(unprotected, self.marked.after)
        return merged([*before, *self._with_placeholders(core), *after])

    def _with_placeholders(self, core: Iterable[str | Tag]) -> Iterator[str | Tag]:
        """Yield the parts of a translation with the marks in place of their tokens."""
        for part in core:
            if isinstance(part, Tag) or not self.mark_of_token:
                yield part
                continue
            tokens = "|".join(map(re.escape, sorted(self.mark_of_token, key=len, reverse=True)))
            for text in re.split(f"({tokens})", part):
                mark = self.mark_of_token.get(text)
                yield text if mark is None else unprotected(mark)


@dataclass
class _Chunk(Generic[K]):
    """Sentences on their way to their translations."""

    key: K
    sentences: list[_Sentence]
    with_tags: list[_Sentence]
    num_awaited: int
    """Sentences without tags whose translations are still to come."""


def translate_candidates(
    chunks: Iterable[tuple[K, Iterable[Inline]]],
    translator: Translator,
    options: Options,
    bar: Progress,
    *,
    recaser: Recaser | None = None,
    decimals: bool = False,
    warn: bool = True,
    growing: bool = False,
) -> Iterator[tuple[K, list[list[InlineTranslation]]]]:
    """Yield the key of each chunk, and the different translations of its sentences, best first.

    A translation has every tag, placeholder and other protected text of its sentence exactly once for each time that
    the sentence has it (see `placeholders.find_protected`), and its tags are nested in the same way. White space, tags
    and emoji at the ends of a sentence stay there. A sentence without words is returned as it is, and so is one for
    which the model writes nothing.

    The sentences without tags of all chunks are one stream. A translator that reads ahead is given those of the next
    chunk while it translates, so its batches stay full and no core waits.

    Args:
        chunks: A key of any type, and sentences; a tag may have its partner in another sentence, and one of a language
            comes first. A few chunks are in memory at a time.
        translator: The model. Without support for alignments, places are estimated from positions.
        options: Options of the search. Sentences with tags also get `alignments`. There are at most `n_best`
            translations. The first one does not depend on `n_best`.
        bar: Counts the sentences.
        recaser: Brings sentences in capitals or title case to a form that any model knows; None: they stay.
        decimals: The two languages write decimals alike, see `numbers.same_signs`.
        warn: Warn about sentences that cannot be translated. The warnings quote them.
        growing: See `Translator.translate`.
    """
    begun: deque[_Chunk[K]] = deque()

    def without_tags() -> Iterator[_Sentence]:
        for key, sources in chunks:
            chunk, plain = _begin_chunk(key, sources, translator, decimals=decimals)
            begun.append(chunk)
            bar.update(len(chunk.sentences) - len(chunk.with_tags) - len(plain))
            yield from plain

    def end_chunk() -> tuple[K, list[list[InlineTranslation]]]:
        chunk = begun.popleft()
        _translate_with_tags(chunk.with_tags, translator, options, bar, recaser)
        unanswered = [each for each in chunk.sentences if not each.results]
        _translate_without_placeholders(unanswered, translator, options, recaser)
        if warn:
            _warn_about_sentences(chunk.sentences)
        return chunk.key, [sentence.results for sentence in chunk.sentences]

    for sentence, answers in _translated(without_tags(), translator, options, bar, recaser, growing=growing):
        while not begun[0].num_awaited:  # it has no sentence for the model
            yield end_chunk()
        _use_answers(sentence, answers)
        begun[0].num_awaited -= 1
        while begun and not begun[0].num_awaited:
            yield end_chunk()
    while begun:
        yield end_chunk()


def _begin_chunk(
    key: K, sources: Iterable[Inline], translator: Translator, *, decimals: bool
) -> tuple[_Chunk[K], list[_Sentence]]:
    """Prepare the sentences of a chunk. Return them, and those that have words and no tags."""
    use_tokens = translator.tokenizer.has_placeholders
    sentences = [_Sentence(source, use_tokens=use_tokens, decimals=decimals) for source in sources]
    without_tags = []
    with_tags = []
    for sentence in sentences:
        if not sentence.has_words:
            sentence.keep_source()
        elif sentence.marked.root.children:
            with_tags.append(sentence)
        else:
            without_tags.append(sentence)
    return _Chunk(key, sentences, with_tags, len(without_tags)), without_tags


def _warn_about_sentences(sentences: Sequence[_Sentence]) -> None:
    """Warn about sentences that are not translated, and about those whose protected text the model did not keep."""
    for sentence in sentences:
        if sentence.is_given_up:
            message = "not translated, because its placeholders cannot be told apart or would change their order: %s"
            log.warning(message, text_with_references(sentence.source))
    unanswered = [text_with_references(sentence.source) for sentence in sentences if sentence.is_unanswered]
    if unanswered:
        message = "%s not translated, because the model writes nothing there (%.40s)"
        log.warning(message, counted(len(unanswered), "sentence"), unanswered[0])
    repaired = [text_with_references(each.source) for each in sentences if each.is_repaired and not each.is_given_up]
    if repaired:
        message = "%s: the model did not keep protected text, such as numbers and placeholders; it was put back (%.60s)"
        log.warning(message, counted(len(repaired), "sentence"), repaired[0].strip())


def _translate_with_tags(
    sentences: Sequence[_Sentence], translator: Translator, options: Options, bar: Progress, recaser: Recaser | None
) -> None:
    """Translate sentences with tags, and with their placeholders in the text.

    There is no result where a placeholder is lost or changed.
    """
    options = _with_alignments(sentences, translator, options)
    for sentence, answers in _translated(sentences, translator, options, bar, recaser):
        _use_answers(sentence, answers)


def _use_answers(sentence: _Sentence, answers: Sequence[Candidate]) -> None:
    """Add the translations that the model wrote to the results of a sentence if nothing protected is lost in them."""
    best = answers[0]
    if not best.text.strip():
        sentence.keep_unanswered(best)
        return
    content = _kept(sentence, best)
    if content is not None:
        sentence.add(content, best)
    elif not sentence.has_placeholders:
        _repair(sentence, best)
    if not sentence.results or sentence.is_unanswered or sentence.is_given_up:
        return
    for answer in answers[1:]:
        content = _kept(sentence, answer)
        if content is not None and answer.text.strip():
            sentence.add(content, answer)


def _kept(sentence: _Sentence, answer: Candidate) -> Inline | None:
    """Return what the model wrote with the marks of the sentence; None: something protected is lost or changed."""
    if answer.text == sentence.marked.text:
        return sentence.source
    if not sentence.has_marks and not find_protected(answer.text, decimals=sentence.decimals):
        return sentence.whole([answer.text])
    content = sentence.whole(reinsert(sentence.marked, answer.text, answer.alignment))
    return content if sentence.is_faithful(content) else None


def _translate_without_placeholders(
    sentences: Sequence[_Sentence], translator: Translator, options: Options, recaser: Recaser | None
) -> None:
    """Translate sentences without their placeholders, and insert these."""
    for sentence in sentences:
        sentence.take_out_placeholders()
    options = _with_alignments(sentences, translator, options)
    for sentence, answers in _translated(sentences, translator, options, None, recaser):
        for answer in answers:
            if not sentence.results or not (sentence.is_unanswered or sentence.is_given_up):
                _repair(sentence, answer)


def _repair(sentence: _Sentence, answer: Candidate) -> None:
    """Add a faithful translation to the results of a sentence, whatever the model wrote.

    First, what the model added is deleted. If marks and text together still look like another placeholder, all signs
    but the most common ones are deleted. The last resort is the source.
    """
    marked = sentence.marked
    is_first = not sentence.results
    sentence.is_repaired = True
    wanted = protected_of(
        (part for part in merged(sentence.joined) if isinstance(part, str)), decimals=sentence.decimals
    )
    protected = without_added(
        sentence.without_references(answer.text),
        Counter(),
        numbers=not wanted.has_free_numbers,
        source=wanted.counts,
        decimals=sentence.decimals,
    ).strip()
    if not protected:
        if is_first:
            sentence.keep_unanswered(answer)
        return
    for attempt in (protected, UNUSUAL_SIGNS.sub(" ", protected).strip()):
        links = answer.alignment if attempt == answer.text else diagonal_links(marked.text, attempt)
        content = sentence.whole(reinsert(marked, attempt, links))
        if sentence.is_faithful(content):
            sentence.add(content, replace(answer, text=attempt, alignment=links))
            return
    if is_first:
        sentence.is_given_up = True
        sentence.keep_untranslated(answer)


def _with_alignments(sentences: Iterable[_Sentence], translator: Translator, options: Options) -> Options:
    """Ask for word alignments if a sentence has marks, unless the translator has none."""
    if not translator.aligns or not any(sentence.marked.root.children for sentence in sentences):
        return options
    return replace(options, alignments=True, align_characters=True)


def _translated(
    sentences: Iterable[_Sentence],
    translator: Translator,
    options: Options,
    bar: Progress | None,
    recaser: Recaser | None,
    *,
    growing: bool = False,
) -> Iterator[tuple[_Sentence, list[Candidate]]]:
    """Yield each sentence with the translations of its text, each with a word alignment if the sentence has marks.

    The translations of a sentence in capitals are in capitals.
    """
    remaining = iter(sentences)
    first = next(remaining, None)
    if first is None:  # a translator may have to load a model, even for no line
        return
    asked: deque[tuple[_Sentence, Casing, list[str]]] = deque()

    def lines() -> Iterator[str]:
        for sentence in chain([first], remaining):
            line = text = sentence.marked.text
            casing = Casing.SENTENCE
            kept: list[str] = []
            if recaser is not None:
                text, casing = recaser.known_form(line)
            if casing is not Casing.SENTENCE:
                kept = [line[start:end] for start, end in find_protected(line, decimals=sentence.decimals)]
                if options.terms is not None:
                    text, copied = _with_terms(line, text, options.terms)
                    kept += copied
            asked.append((sentence, casing, kept))
            yield f"{sentence.language_tag} {text}" if sentence.language_tag else text

    for translation in translator.translate(
        lines(), options, Reading(warn=False, quiet=True, bar=bar, growing=growing)
    ):
        sentence, casing, kept = asked.popleft()
        line = sentence.marked.text
        answers = []
        for candidate in translation.candidates:
            if sentence.language_tag:  # the first word, which has no links
                candidate = replace(
                    candidate, alignment=tuple((src - 1, tgt) for src, tgt in candidate.alignment if src)
                )
            text = _without_controls(candidate.text, line)
            if recaser is not None and casing is not Casing.SENTENCE:
                candidate = replace(candidate, text=recaser.restored(text, casing, kept))
                text = candidate.text
            links = candidate.alignment if text == candidate.text else ()
            if sentence.marked.root.children and not links:
                links = diagonal_links(line, text)
            is_same = text == candidate.text and links == candidate.alignment
            answers.append(candidate if is_same else replace(candidate, text=text, alignment=links))
        yield sentence, answers


def _with_terms(line: str, recased: str, terms: Terms) -> tuple[str, list[str]]:
    """Write the terms of a recased line so that they are found in it.

    Those with capitals are written as in the file of terms, and those that are copied as in the line.

    Args:
        line: The line.
        recased: The same, recased.
        terms: The terms.

    Returns:
        The recased line, and the texts that are copied.
    """
    line, recased = normalize("NFC", line), normalize("NFC", recased)
    copied = []
    for match in terms.matches(line):
        text = line[match.start : match.end]
        if not match.term.forms:
            copied.append(text)
        elif match.term.is_lower_case:
            continue
        elif len(match.term.source) == len(text):
            text = match.term.source
        recased = recased[: match.start] + text + recased[match.end :]
    return recased, copied


def _without_controls(text: str, source: str) -> str:
    """Return what the model wrote as one line, with spaces for the control characters that its source does not have."""
    if not _CONTROLS.search(text):
        return text
    return _CONTROLS.sub(lambda found: found[0] if found[0] in source else " ", text).strip()
