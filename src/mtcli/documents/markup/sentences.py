"""Translate sentences with inline markup and placeholders. What is protected is never lost, added or changed.

The model translates text without tags. The word alignment of the translation says where the tags go, see `placement`.
A model trained with `text.placeholders` is given its placeholder tokens. For others, placeholders stay in the text
first, because most models copy them. Where one is lost, the sentence is translated again without any, and they are put
in like tags. Every result is checked.
"""

import logging
import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from itertools import chain
from typing import TypeVar
from unicodedata import normalize

from mtcli.documents.markup.inline import (
    Inline,
    LanguageTag,
    Tag,
    merged,
    text_of,
    text_with_references,
    unprotected,
)
from mtcli.documents.markup.marks import is_faithful, join_references, mark_up, pieces_of, with_joined_neighbors
from mtcli.documents.markup.placement import diagonal_links, reinsert
from mtcli.runtime.progress import Progress
from mtcli.runtime.wording import counted
from mtcli.terms.terms import Terms
from mtcli.text.numbers import check_numbers
from mtcli.text.placeholders import TOKENS, find_protected, protected_of, without_added
from mtcli.text.plain_characters import with_signs_of
from mtcli.text.recasing import Casing, Recaser, fixed_spans
from mtcli.text.writing_systems import UNSPACED
from mtcli.translate.translation import Candidate, Links, Options
from mtcli.translate.translator import Translator
from mtcli.translate.windows import Reading

log = logging.getLogger(__name__)

_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]+")
"""What no line of text has: control characters, line ends, halves of surrogate pairs and what Unicode reserves."""

_INVISIBLE = re.compile("[\u00ad\u200b\u200e\u200f\u2060\ufeff]")
"""Marks of possible line breaks and of directions, which pages and phones write. Those that join letters stay."""

_FORGOTTEN_SPACE = re.compile(r"(?<=[^\W\d_]{2}),(?=[^\W\d_]{2})")
"""A comma between two words without a space. A comma of a script without spaces is another character."""

UNUSUAL_SIGNS = re.compile(r"[^\w\s.,;:!?]")
"""What placeholders consist of besides letters, digits and spaces."""


_NOT_GIVEN = Candidate("", 0.0, 0.0)


@dataclass(frozen=True)
class InlineTranslation:
    """A translation of a sentence with markup."""

    content: Inline
    line: str = ""
    """The text that the model was given, in the casing of the source; empty if it was given none."""
    candidate: Candidate = _NOT_GIVEN
    """What the model wrote for it. The alignment is that of this text."""


def with_tags_of(sentence: Inline, translation: str, *, decimals: bool = False) -> Inline | None:
    """Return a known translation of the text of a sentence with its tags; None: they cannot be placed in it.

    White space and tags at the ends of the sentence stay there. The places of others are estimated from positions.

    Args:
        sentence: The sentence.
        translation: The translation of its text, with the characters of its references.
        decimals: See `Preparation`.
    """
    first, last = _without_outer_tags(sentence)
    before, inner, after = sentence[:first], sentence[first:last], sentence[last:]
    if all(isinstance(part, str) for part in inner):
        text = text_with_references(inner)
        start = text[: len(text) - len(text.lstrip())]
        end = text[len(text.rstrip()) :]
        return merged([*before, start, translation.strip(), end, *after])
    prepared = Sentence(sentence, Preparation(decimals=decimals))
    links = diagonal_links(prepared.marked.text, translation)
    return prepared.with_marks(translation, links)


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


@dataclass(frozen=True)
class Preparation:
    """How the sentences of a text are prepared for a model."""

    use_tokens: bool = False
    """The model was trained with tokens for placeholders."""
    decimals: bool = False
    """The two languages write decimals alike, see `numbers.same_signs`."""
    recaser: Recaser | None = None
    """Brings sentences in capitals or title case to a form that any model knows; None: they stay."""
    terms: Terms | None = None
    """See `Options.terms`."""


class Status(Enum):
    """Where a sentence is on its way to its translation."""

    UNASKED = auto()
    """The model has not been asked."""
    INCOMPLETE = auto()
    """Its translation lacks protected text, so the model must be asked again, without placeholders."""
    TRANSLATED = auto()
    """The model translates it faithfully; or it has no words, and is its own translation."""
    REPAIRED = auto()
    """The model lost, changed or added protected text, which was corrected."""
    UNANSWERED = auto()
    """The model wrote nothing, or only what it must not add, so it stays as it is."""
    GIVEN_UP = auto()
    """No translation of it is faithful, so it stays as it is."""


class Sentence:
    """A sentence on its way to its translation. One without words is its own translation.

    The model is asked to translate `line`, and `use_answers` takes what it wrote. If that lacks a placeholder, the
    sentence is `INCOMPLETE`: its `line` then has none, and `repair` takes what the model writes for this one.

    Args:
        source: The sentence. A tag may have its partner in another one; the tag of a language comes first.
        preparation: How it is prepared.
        begins: It is not the continuation of a sentence that is translated in parts.
    """

    def __init__(self, source: Inline, preparation: Preparation, *, begins: bool = True) -> None:
        self.status = Status.UNASKED
        self.results: list[InlineTranslation] = []
        """The different translations so far, best first."""
        self.language_tag = ""
        if source and isinstance(source[0], LanguageTag):
            self.language_tag = source[0].raw
            source = source[1:]
        self.source = source
        self.preparation = preparation
        self._begins = begins
        self._divide(decimals=preparation.decimals)
        self._mark_up(self._pieces, *self._written_marks())
        if not self._has_words:
            self._keep_source(Status.TRANSLATED)

    def _divide(self, *, decimals: bool) -> None:
        """Divide the source into text and marks. With `decimals`, all numbers are marks, see `Preparation`."""
        self._decimals = decimals
        self._joined = join_references(self.source, decimals=decimals)
        self._pieces = pieces_of(self._joined, decimals=decimals)

    def _written_marks(self) -> tuple[dict[int, str], dict[str, Tag]]:
        """Return what the model is given for marks that stand for words or characters.

        Returns:
            The text for a mark by its index, and the mark by its text, except for text that stays as it is.
        """
        marks = {index: piece for index, piece in enumerate(self._pieces) if isinstance(piece, Tag)}
        content = [index for index, mark in marks.items() if mark.is_content]
        mark_of_token: dict[str, Tag] = {}
        if self.preparation.use_tokens and len(content) <= len(TOKENS):
            written = dict(zip(content, TOKENS, strict=False))
            mark_of_token = {token: marks[index] for index, token in written.items()}
        else:
            written = {index: marks[index].raw for index in content if not marks[index].is_markup}
        for index, mark in marks.items():
            if mark.text.strip() and written.get(index) not in TOKENS:
                written[index] = mark.text
                mark_of_token[mark.text] = mark
        return written, mark_of_token

    def _mark_up(
        self, pieces: Sequence[str | Tag], written: Mapping[int, str], mark_of_token: Mapping[str, Tag]
    ) -> None:
        """Take the marks out of the text that the model is given, except for those that are written in it."""
        self._has_written_marks = bool(written)
        self._mark_of_token = mark_of_token
        self.marked = mark_up(pieces, written)
        text = line = self.marked.text
        self._casing = Casing.SENTENCE
        self._unchanged: list[str] = []
        """Texts that stay as they are where the casing of a translation is restored."""
        if self.preparation.recaser is not None:
            text, self._casing = self.preparation.recaser.known_form(line, self._mark_of_token)
        if self._casing is not Casing.SENTENCE:
            self._unchanged = [line[start:end] for start, end in fixed_spans(line)]
            if self.preparation.terms is not None:
                text, copied = _with_terms(line, text, self.preparation.terms)
                self._unchanged += copied
        self._known_form = text
        self._asked = text if self.has_tags else _well_spaced(text)
        self.line = f"{self.language_tag} {self._asked}" if self.language_tag else self._asked
        """The text that the model is given."""

    @property
    def has_letters(self) -> bool:
        """Its text has letters, besides its tags."""
        return any(map(str.isalpha, text_of(self.source)))

    @property
    def has_tags(self) -> bool:
        """There are tags to be put into the translation, by its word alignment."""
        return bool(self.marked.root.children)

    @property
    def _has_words(self) -> bool:
        """There is something to translate."""
        if not self.has_letters:
            return False
        text = without_added(self.marked.text, Counter(), numbers=True, decimals=self._decimals)
        return any(character.isalpha() for character in text)

    def use_answers(self, candidates: Sequence[Candidate]) -> None:
        """Take what the model wrote. The best translation decides the status; others are omitted if not faithful.

        If the best one has lost a placeholder, or a number with a sign of decimals or groups, the model is asked again.
        If it has lost something else, it is repaired.
        """
        best, *others = [self._restored(candidate) for candidate in candidates]
        content = self._faithful_content(best)
        if not best.text.strip():
            self._keep_source(Status.UNANSWERED, best)
        elif self._lacks_localized_number(best.text):
            self._ask_again(decimals=True)
        elif content is not None:
            self.status = Status.TRANSLATED
            self._add(content, best)
        elif self._has_written_marks:
            self._ask_again(decimals=self._decimals)
        else:
            self._repair(best)
        if self.status in (Status.TRANSLATED, Status.REPAIRED):
            for answer in others:
                content = self._faithful_content(answer)
                if content is not None:
                    self._add(content, answer)

    def _lacks_localized_number(self, translation: str) -> bool:
        """Return True if a number with a sign of decimals or groups, which languages may write otherwise, is lost."""
        line = self.marked.text
        if self._decimals or not check_numbers(line, translation).missing:
            return False
        return find_protected(line, decimals=True) != find_protected(line)

    def _faithful_content(self, answer: Candidate) -> Inline | None:
        """Return what the model wrote, with the marks; None: it is blank, or something protected is lost or changed."""
        if not answer.text.strip():
            return None
        if answer.text == self.marked.text:
            return self.source
        has_marks = any(isinstance(piece, Tag) for piece in self._pieces)
        if has_marks or find_protected(answer.text, decimals=self._decimals):
            return self.with_marks(answer.text, answer.alignment)
        return self._whole([answer.text])

    def _ask_again(self, *, decimals: bool) -> None:
        """Leave the placeholders out of the text that the model is asked to translate next. They become points."""
        self.status = Status.INCOMPLETE
        self._divide(decimals=decimals)
        self._mark_up(with_joined_neighbors(self._pieces), {}, {})

    def repair(self, candidates: Sequence[Candidate]) -> None:
        """Take what the model wrote for a text without placeholders, and put everything that is protected into it."""
        for candidate in candidates:
            self._repair(self._restored(candidate))
            if self.status is not Status.REPAIRED:
                return

    def _repair(self, answer: Candidate) -> None:
        """Add a faithful translation to the results, whatever the model wrote.

        First, what the model added is deleted. If marks and text together still look like another placeholder, all
        signs but the most common ones are deleted. The last resort is the source.
        """
        wanted = protected_of((part for part in merged(self._joined) if isinstance(part, str)), decimals=self._decimals)
        protected = without_added(
            self._without_references(answer.text),
            Counter(),
            numbers=not wanted.has_free_numbers,
            source=wanted.counts,
            decimals=self._decimals,
        ).strip()
        if not protected:
            self._keep_source(Status.UNANSWERED, answer)
            return
        for attempt in (protected, UNUSUAL_SIGNS.sub(" ", protected).strip()):
            links = answer.alignment if attempt == answer.text else diagonal_links(self.marked.text, attempt)
            content = self.with_marks(attempt, links)
            if content is not None:
                self.status = Status.REPAIRED
                self._add(content, replace(answer, text=attempt, alignment=links))
                return
        self._keep_source(Status.GIVEN_UP, answer)

    def _restored(self, candidate: Candidate) -> Candidate:
        """Return what the model wrote as one line, in capitals if the sentence is, and with links if this has tags."""
        line = self.marked.text
        text = _without_controls(candidate.text, line).strip()
        links = candidate.alignment
        if self.language_tag:  # the first word, which has no links
            links = tuple((src - 1, tgt) for src, tgt in links if src)
        if text != candidate.text.strip():
            links = ()
        recaser = self.preparation.recaser
        if text == self._asked and self._casing is Casing.SENTENCE:
            text = line
        elif recaser is not None:
            text = recaser.restored(with_signs_of(line, self._known_form, text), self._casing, self._unchanged)
            if self._begins:
                text = recaser.with_capital(text, line)
        if self.has_tags and not links:
            links = diagonal_links(line, text)
        is_same = text == candidate.text and links == candidate.alignment
        return candidate if is_same else replace(candidate, text=text, alignment=links)

    def _keep_source(self, status: Status, answer: Candidate = _NOT_GIVEN) -> None:
        """Make the source the only translation, in place of an answer, unless there is a translation already.

        If the answer has a confidence, that of the source is 0.
        """
        if self.results:
            return
        self.status = status
        confidence = None if answer.confidence is None else 0.0
        self.results = [InlineTranslation(self.source, candidate=replace(_NOT_GIVEN, confidence=confidence))]

    def _add(self, content: Inline, candidate: Candidate) -> None:
        """Add a translation, unless it is known already."""
        if all(content != result.content for result in self.results):
            line = self.marked.text if self.has_tags else _well_spaced(self.marked.text)
            self.results.append(InlineTranslation(content, line, candidate))

    def with_marks(self, text: str, links: Links) -> Inline | None:
        """Return a translation of the text with the marks of the sentence.

        Args:
            text: The translation.
            links: Its word alignment.

        Returns:
            None if something protected would be lost or changed.
        """
        content = self._whole(reinsert(self.marked, text, links))
        return content if is_faithful(self._joined, content, decimals=self._decimals) else None

    def _without_references(self, text: str) -> str:
        """Return what the model wrote without the characters that references stand for."""
        shown = {piece.text for piece in self._pieces if isinstance(piece, Tag) and piece.text}
        for characters in sorted(shown, key=len, reverse=True):
            text = text.replace(characters, "")
        return text

    def _whole(self, core: Iterable[str | Tag]) -> Inline:
        """Return a translation with its placeholders, and with what stands before and after the text."""
        before = map(unprotected, self.marked.before)
        after = map(unprotected, self.marked.after)
        return merged([*before, *self._with_placeholders(core), *after])

    def _with_placeholders(self, core: Iterable[str | Tag]) -> Iterator[str | Tag]:
        """Yield the parts of a translation with the marks in place of their tokens."""
        for part in core:
            if isinstance(part, Tag) or not self._mark_of_token:
                yield part
                continue
            tokens = "|".join(map(re.escape, sorted(self._mark_of_token, key=len, reverse=True)))
            for text in re.split(f"({tokens})", part):
                mark = self._mark_of_token.get(text)
                yield text if mark is None else unprotected(mark)


@dataclass
class Chunk:
    """Sentences that are translated together."""

    sentences: list[Sentence]

    @property
    def num_asked(self) -> int:
        """The number of sentences that the model translates."""
        return len(self.having(Status.UNASKED))

    def having(self, status: Status) -> list[Sentence]:
        """Return the sentences that have a status."""
        return [sentence for sentence in self.sentences if sentence.status is status]


C = TypeVar("C", bound=Chunk)


def translate_sentences(
    chunks: Iterable[C],
    translator: Translator,
    options: Options,
    bar: Progress,
    *,
    warn: bool = True,
    growing: bool = False,
) -> Iterator[C]:
    """Yield chunks in their order, as soon as each of their sentences has its `results`, at most `n_best`.

    A translation has every tag, placeholder and other protected text of its sentence exactly once for each time that
    the sentence has it (see `placeholders.find_protected`), and its tags are nested in the same way. White space, tags
    and emoji at the ends of a sentence stay there. A sentence for which the model writes nothing stays as it is. The
    first translation does not depend on `n_best`.

    The sentences without tags of all chunks are one stream. A translator that reads ahead is given those of the next
    chunk while it translates, so its batches stay full and no core waits.

    Args:
        chunks: The chunks. A few of them are in memory at a time.
        translator: The model. Without support for alignments, places are estimated from positions.
        options: Options of the search. Sentences with tags also get `alignments`.
        bar: Counts the sentences.
        warn: Warn about sentences that cannot be translated. The warnings quote them.
        growing: See `Translator.translate`.
    """
    begun: deque[tuple[C, deque[Sentence]]] = deque()
    """Each chunk with its sentences without tags whose translations are still to come."""

    def lines() -> Iterator[str]:
        for chunk in chunks:
            waiting = deque(sentence for sentence in chunk.having(Status.UNASKED) if not sentence.has_tags)
            begun.append((chunk, waiting))
            yield from [sentence.line for sentence in waiting]

    def completed() -> Iterator[C]:
        while begun and not begun[0][1]:
            chunk, _ = begun.popleft()
            with_tags = chunk.having(Status.UNASKED)
            for sentence, answers in _asked(with_tags, translator, options, bar):
                sentence.use_answers(answers)
            for sentence, answers in _asked(chunk.having(Status.INCOMPLETE), translator, options, None):
                sentence.repair(answers)
            if warn:
                _warn_about_sentences(chunk)
            yield chunk

    plain = lines()
    first = next(plain, None)
    if first is not None:  # a translator may have to load a model, even for no line
        reading = Reading(warn=False, quiet=True, bar=bar, growing=growing)
        for translation in translator.translate(chain([first], plain), options, reading):
            yield from completed()  # those that have no sentence for the model
            _, waiting = begun[0]
            waiting.popleft().use_answers(translation.candidates)
            yield from completed()
    yield from completed()


def _asked(
    sentences: Sequence[Sentence], translator: Translator, options: Options, bar: Progress | None
) -> Iterator[tuple[Sentence, Sequence[Candidate]]]:
    """Yield sentences with the translations of their texts, and these with word alignments if a sentence has tags."""
    if not sentences:
        return
    if translator.aligns and any(sentence.has_tags for sentence in sentences):
        options = replace(options, alignments=True, align_characters=True)
    lines = [sentence.line for sentence in sentences]
    found = translator.translate(lines, options, Reading(warn=False, quiet=True, bar=bar))
    for sentence, translation in zip(sentences, found, strict=True):
        yield sentence, translation.candidates


def _warn_about_sentences(chunk: Chunk) -> None:
    """Warn about sentences that are not translated, and about those whose protected text the model did not keep."""
    for sentence in chunk.having(Status.GIVEN_UP):
        message = "not translated, because its placeholders cannot be told apart or would change their order: %s"
        log.warning(message, text_with_references(sentence.source))
    unanswered = chunk.having(Status.UNANSWERED)
    if unanswered:
        message = "%s not translated, because the model writes nothing there (%.40s)"
        log.warning(message, counted(len(unanswered), "sentence"), text_with_references(unanswered[0].source))
    repaired = chunk.having(Status.REPAIRED)
    if repaired:
        message = "%s: the model did not keep protected text, such as numbers and placeholders; it was put back (%.60s)"
        log.warning(message, counted(len(repaired), "sentence"), text_with_references(repaired[0].source).strip())


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


def _well_spaced(text: str) -> str:
    """Return a text without invisible characters, and with the spaces that were forgotten behind commas.

    A word with such a character, or without its space, has other tokens than usual.
    """
    if not UNSPACED.search(text):  # Khmer and Thai may have them between words
        text = _INVISIBLE.sub("", text)
    places = [match.end() for match in _FORGOTTEN_SPACE.finditer(text)]
    if not places:
        return text
    protected = find_protected(text, decimals=True)
    parts = []
    end = 0
    for place in places:
        if not any(start < place < protected_end for start, protected_end in protected):
            parts += [text[end:place], " "]
            end = place
    return "".join([*parts, text[end:]])


def _without_controls(text: str, source: str) -> str:
    """Return what the model wrote as one line, with spaces for the control characters that its source does not have."""
    if not _CONTROLS.search(text):
        return text
    return _CONTROLS.sub(lambda found: found[0] if found[0] in source else " ", text).strip()
