"""Terms: words that are translated in a given way, found in sources and in translations.

A file of terms has a line for each: the source term, a tab, and its translation. A third column may have other forms of
the translation, separated by `|`. A source term alone, or with `never-translate` as its translation, is copied.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from unicodedata import normalize

from mtcli.errors import DataError
from mtcli.text.letter_case import all_capitals, without_case
from mtcli.text.lines import read_lines
from mtcli.text.placeholders import find_protected, is_part_of_protected
from mtcli.text.tokenizer.tokenizer import LANGUAGE_TAG
from mtcli.text.words import Word, words_of

NEVER_TRANSLATE = "never-translate"
"""Takes the place of a translation: the source term is copied."""

FORM_SEPARATOR = "|"

MAX_CHARACTERS = 300
"""Characters of a source term, or of one form of its translation. The longest titles of laws have about 250."""

MAX_FORMS = 100
"""Forms of a translation. A noun of a language with many cases has about 50."""


@dataclass(frozen=True)
class Term:
    """A source term and its translation."""

    source: str
    forms: tuple[str, ...]
    """The translation, and its other forms, any of which may be used; empty: the source is copied."""

    @property
    def is_lower_case(self) -> bool:
        """The term has no capitals, so it is found in any case."""
        return self.source == self.source.lower()


@dataclass(frozen=True)
class Match:
    """A term at one place of a source."""

    term: Term
    start: int
    """Index of its first character in the source, normalized to NFC."""
    end: int
    """Index after its last character."""
    forms: tuple[str, ...]
    """What the translation may contain for it; the first is preferred."""
    is_in_capitals: bool = False
    """It is written in capitals, so its translation may be too."""


@dataclass(frozen=True)
class TermUse:
    """A term of a source, and where it appears in a translation."""

    match: Match
    form: str | None
    """The form that appears; None: the term is not used."""
    start: int | None = None
    """Index of its first character in the translation."""


@dataclass(frozen=True)
class Terms:
    """The terms of a file."""

    terms: tuple[Term, ...]
    _by_words: dict[tuple[str, ...], list[tuple[Term, list[str]]]] = field(init=False, repr=False, compare=False)
    """Terms, each with its words, by their words without case."""
    _longest: dict[str, int] = field(init=False, repr=False, compare=False)
    """Number of words of the longest term that begins with this word."""
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Index the terms."""
        by_words: dict[tuple[str, ...], list[tuple[Term, list[str]]]] = {}
        longest: dict[str, int] = {}
        for term in self.terms:
            words = words_of(term.source)
            keys = tuple(_keys(words))
            by_words.setdefault(keys, []).append((term, [word.text for word in words]))
            longest[keys[0]] = max(longest.get(keys[0], 0), len(keys))
        object.__setattr__(self, "_by_words", by_words)
        object.__setattr__(self, "_longest", longest)
        object.__setattr__(self, "_hash", hash(self.terms))

    def __hash__(self) -> int:
        """Return the hash of the terms, computed once: the server looks up each line by its options, with the terms."""
        return self._hash

    def matches(self, line: str) -> list[Match]:
        """Return the terms in a source, in their order. They are whole words and do not overlap.

        Of several terms at overlapping places, the one with the most words is taken, then the first. A term with
        capitals is found where these are capitals, also in title case and in a line of capitals; another one in any
        case. A term is never found inside protected text, such as an address, see `placeholders.find_protected`, nor in
        the tag of the target language with which the line may begin.
        """
        line = normalize("NFC", line)
        tag = LANGUAGE_TAG.match(line)
        text_start = tag.end() if tag is not None else 0
        words = words_of(line)
        keys = _keys(words)
        found = []
        for first, key in enumerate(keys):
            for number in range(min(self._longest.get(key, 0), len(keys) - first), 0, -1):
                term = self._term_at(words[first : first + number], tuple(keys[first : first + number]))
                if term is not None:
                    found.append((number, first, term))
        found.sort(key=lambda place: (-place[0], place[1]))
        protected = find_protected(line) if found else []
        taken: set[int] = set()
        matches = []
        for number, first, term in found:
            place = range(first, first + number)
            start = words[first].start
            end = words[first + number - 1].end
            is_free = taken.isdisjoint(place) and start >= text_start
            if is_free and not is_part_of_protected((start, end), protected):
                taken.update(place)
                text = line[start:end]
                matches.append(Match(term, start, end, _forms(term, text), text.isupper()))
        return sorted(matches, key=lambda match: match.start)

    def _term_at(self, words: Sequence[Word], key: tuple[str, ...]) -> Term | None:
        """Return the term that these words of a line are: one as it is written, otherwise one in another case.

        Of several others, one without capitals is taken.
        """
        candidates = self._by_words.get(key)
        if candidates is None:
            return None
        texts = [word.text for word in words]
        for term, term_texts in candidates:
            if term_texts == texts:
                return term
        for term, term_texts in sorted(candidates, key=lambda candidate: not candidate[0].is_lower_case):
            is_case_of = _is_in_any_case if term.is_lower_case else _has_capitals_of
            if all(map(is_case_of, texts, term_texts)):
                return term
        return None


def read_terms(path: Path) -> Terms:
    """Read a file of terms.

    Raises:
        DataError: The file cannot be read; see also `parse_terms`.
    """
    return parse_terms(read_lines(path), str(path))


def parse_terms(text: Iterable[str], name: str) -> Terms:
    """Parse the lines of a file of terms.

    Args:
        text: The lines.
        name: The name of the file, for messages.

    Raises:
        DataError: There are no terms, or a line is malformed or repeats a term.
    """
    terms: dict[str, Term] = {}
    lines: dict[str, int] = {}
    for number, line in enumerate(text, 1):
        if not line.strip():
            continue
        term = _parsed(line, f"{name}:{number}")
        if term.source in terms and terms[term.source] != term:
            other = lines[term.source]
            raise DataError(f"{name}:{number}: {term.source!r} has another translation in line {other}; keep one")
        terms[term.source] = term
        lines.setdefault(term.source, number)
    if not terms:
        raise DataError(f"{name}: no terms; a line is a source term, a tab and its translation")
    return Terms(tuple(terms.values()))


def _parsed(line: str, place: str) -> Term:
    """Return the term of one line.

    Args:
        line: The line.
        place: The file and the number of the line, for messages.

    Raises:
        DataError: It has too many columns or forms, or one of them has no text or is too long.
    """
    columns = [" ".join(normalize("NFC", column).split()) for column in line.split("\t")]
    if len(columns) > 3:
        form = "source term, translation, other forms separated by |"
        raise DataError(f"{place}: {len(columns)} columns; a line has at most 3: {form}")
    source, target, others = [*columns, "", ""][:3]
    if not source:
        raise DataError(f"{place}: no source term before the first tab")
    _check_length(source, place)
    if target in ("", NEVER_TRANSLATE):
        if others:
            raise DataError(f"{place}: other forms of a term without a translation; give the translation before them")
        return Term(source, ())
    forms = [form.strip() for form in [target, *others.split(FORM_SEPARATOR)]]
    if len(forms) > MAX_FORMS:
        raise DataError(f"{place}: {len(forms):,} forms of a translation; the limit is {MAX_FORMS}")
    _check_length(max(forms, key=len), place)
    return Term(source, tuple(dict.fromkeys(form for form in forms if form)))


def _check_length(text: str, place: str) -> None:
    """Check the length of a term or of one of its forms.

    Raises:
        DataError: It is too long.
    """
    if len(text) > MAX_CHARACTERS:
        limit = f"the limit of a term is {MAX_CHARACTERS}"
        raise DataError(f"{place}: {len(text):,} characters ({text[:20]} …); {limit}")


def uses(matches: Sequence[Match], translation: str) -> list[TermUse]:
    """Find the terms of a source in its translation, as whole words, each match at a place of its own.

    Longer forms take their places first. At the first word of the translation, a form may begin with a capital, and the
    form of a term in capitals may be in capitals anywhere. No form is inside protected text, see `Terms.matches`.
    """
    if not matches:
        return []
    text = _Translation(translation)
    found: dict[int, TermUse] = {}
    candidates = []
    for number, match in enumerate(matches):
        for form in _written_forms(match):
            candidates.append((number, form, [word.text for word in words_of(form)]))
    candidates.sort(key=lambda candidate: -len(candidate[2]))
    for number, form, form_words in candidates:
        if number not in found:
            start = text.take(form_words)
            if start is not None:
                found[number] = TermUse(matches[number], form, start)
    return [found.get(number, TermUse(match, None)) for number, match in enumerate(matches)]


def _written_forms(match: Match) -> list[str]:
    """Return what a translation may contain for a term, also in capitals if its source is."""
    forms = list(match.forms)
    if match.is_in_capitals:
        forms += sorted({capitals for form in match.forms for capitals in all_capitals(form)}.difference(forms))
    return forms


class _Translation:
    """The words of a translation, of which each is taken by one term."""

    def __init__(self, text: str) -> None:
        text = normalize("NFC", text)
        self._words = words_of(text)
        self._texts = [word.text for word in self._words]
        self._protected = find_protected(text)
        self._taken: set[int] = set()

    def take(self, form: Sequence[str]) -> int | None:
        """Take the first free place of a form, and return the index of its first character; None: there is none.

        If there is none, it may begin with a capital at the first word, behind quotation marks or ¿.
        """
        for first in range(len(self._texts) - len(form) + 1):
            if self._has(form, first):
                return self._taken_at(first, len(form))
        first = next((index for index, text in enumerate(self._texts) if text[:1].isalpha()), 0)
        return self._taken_at(first, len(form)) if self._has([_capitalized(form[0]), *form[1:]], first) else None

    def _has(self, form: Sequence[str], first: int) -> bool:
        """Return True if a form is at a free place."""
        end = first + len(form)
        if self._texts[first:end] != form or not self._taken.isdisjoint(range(first, end)):
            return False
        return not is_part_of_protected((self._words[first].start, self._words[end - 1].end), self._protected)

    def _taken_at(self, first: int, number: int) -> int:
        self._taken.update(range(first, first + number))
        return self._words[first].start


def _keys(words: Sequence[Word]) -> list[str]:
    return [word.text.upper() if word.text.isascii() else without_case(word.text) for word in words]


def _is_in_any_case(text: str, word: str) -> bool:
    """Return True if a text is a word of a term in lower case, or the same in another case."""
    return text.casefold() == word.casefold() or text in all_capitals(word)


def _has_capitals_of(text: str, word: str) -> bool:
    """Return True if a text is a word of a term, perhaps with more capitals."""
    if text in all_capitals(word):
        return True
    return len(text) == len(word) and all(other in (own, own.upper()) for other, own in zip(text, word, strict=True))


def _forms(term: Term, found: str) -> tuple[str, ...]:
    """Return what a translation may contain for a term.

    Args:
        term: The term.
        found: The text of the source that it matches, which is copied if the term has no translation.
    """
    if not term.forms:
        return (" ".join(found.split()),)
    if not (term.is_lower_case and found[0].isupper()):
        return term.forms
    # The source begins with the term, and so will the translation, probably.
    pairs = [(_capitalized(form) if form == form.lower() else form, form) for form in term.forms]
    return tuple(dict.fromkeys(form for pair in pairs for form in pair))


def _capitalized(text: str) -> str:
    return text[:1].upper() + text[1:]
