"""Sentences in capitals or title case, brought to the case that a model knows, and translations brought back.

A model that has met neither in training spells such words in fragments and translates them badly. So it is given the
sentence as it is usually written: in lower case, with a capital at the beginning. Names keep their capitals if the
vocabulary knows them so. All texts keep their length, so places in them stay right.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from enum import Enum, auto
from functools import cache

from mtcli.text import languages
from mtcli.text.letter_case import capitalized, has_case, is_cased, lower, upper
from mtcli.text.placeholders import Offsets, find_protected
from mtcli.text.plain_characters import PlainCharacters
from mtcli.text.tokenizer.tokenizer import LANGUAGE_TAG, Tokenizer
from mtcli.text.writing_systems import combining_marks

CAPITALS_SHARE = 0.9
"""Share of capitals among the letters of a sentence from which it is in capitals: `THE NEW iPHONE` is."""

MIN_CAPITALS = 4
"""Letters of a single word in capitals that is recased. Shorter ones are mostly abbreviations, but not before `!`."""

MIN_TITLED = 3
"""Capitalized words, besides the first of the sentence, that are known in lower case, of a sentence in title case."""

MAX_UNTITLED = 4
"""Letters of a word that title case may leave in lower case, such as `with`."""

NOUNS_WITH_CAPITALS = frozenset({"de", "lb"})
"""Languages that write nouns with a capital. In title case, every word has one."""

MAX_KNOWN = 100_000
"""Words whose case is kept in memory."""

_CHUNK = re.compile(r"\S+")
_UNUSUAL = re.compile(r"[@_\\#\d]|\w\.\w")
"""A run of characters with such text is a name, an abbreviation or an address. Its case stays."""
_ORDINAL = re.compile(r"\W*\d+[^\W\d_]{1,3}\W*")
"""A number with an ending, such as `21ST`, which is recased."""
_FIRST_WORD = re.compile(r"[^\w]*([^\W\d_]\w*)")
_ENGLISH_I = re.compile(r"i(?:['’]\w+)?")


class Casing(Enum):
    """How the letters of a sentence are written."""

    SENTENCE = auto()
    """As sentences are: also if it is all in lower case, and if its language has no capitals."""
    CAPITALS = auto()
    TITLE = auto()
    """Words begin with a capital, as in the titles of English books."""
    WORD = auto()
    """One word with a capital at its beginning, which the vocabulary has rather in lower case."""


class Recaser:
    """Recases sentences for one model and one pair of languages.

    Args:
        tokenizer: The model's.
        src, tgt: The languages.
    """

    def __init__(self, tokenizer: Tokenizer, src: str, tgt: str) -> None:
        self._tokenizer = tokenizer
        self._plain = PlainCharacters(tokenizer)
        self._src = src
        self._tgt = tgt
        self._is_english = languages.base(src) == "en"
        self._capitalizes_nouns = languages.base(src) in NOUNS_WITH_CAPITALS
        self._num_tokens: dict[str, int] = {}
        """The number of tokens of each form of a word."""

    def known_form(self, text: str, kept: Collection[str] = ()) -> tuple[str, Casing]:
        """Return a sentence as the model knows it, with the same length, and how it is written.

        Args:
            text: The sentence.
            kept: Signs that stay, although the vocabulary may lack them.
        """
        text = self._plain.of(text, kept)
        casing = self._casing_of(text) if self._may_be_recased(text) else self._casing_of_word(text)
        if casing is Casing.SENTENCE:
            return text, casing
        spans = _word_spans(text, fixed_spans(text))
        words = [text[start:end] for start, end in spans]
        self._count_tokens(words)
        parts = []
        end = 0
        for (start, next_end), word in zip(spans, words, strict=True):
            form = self._normal_form(word, casing)
            if not any(map(str.isalnum, LANGUAGE_TAG.sub("", text[:start]))):
                capital = capitalized(form, self._src)
                if len(words) > 1 or self._num_tokens[capital] <= self._num_tokens[form]:
                    form = capital
            parts += [text[end:start], form]
            end = next_end
        return "".join([*parts, text[end:]]), casing

    def _casing_of_word(self, text: str) -> Casing:
        """Return how a text is written that may be one word with a capital at its beginning only."""
        if " " in text or self._capitalizes_nouns:
            return Casing.SENTENCE
        word = _word_pattern().match(text)
        if word is None or not _is_titled(word[0]):
            return Casing.SENTENCE
        self._count_tokens([word[0]])
        small = self._num_tokens[lower(word[0], self._src)]
        return Casing.WORD if small < self._num_tokens[word[0]] else Casing.SENTENCE

    def _may_be_recased(self, text: str) -> bool:
        """Return True if enough words begin with a capital; signs may stand before a few. It takes little time."""
        if text[1:].islower():
            return False
        if text.isupper():
            return True
        words = text.split()
        if self._capitalizes_nouns:
            return not any(word[0].islower() for word in words)
        return 2 * sum(word[0].isupper() for word in words) >= len(words)

    def _casing_of(self, text: str) -> Casing:
        fixed = fixed_spans(text)
        words = [text[start:end] for start, end in _word_spans(text, fixed)]
        letters = "".join(filter(str.isalpha, _without(text, fixed)))
        num_capitals = sum(map(str.isupper, letters))
        if num_capitals >= CAPITALS_SHARE * len(letters):
            is_long = len(words) > 1 or num_capitals >= MIN_CAPITALS or text.endswith(("!", "?"))
            return Casing.CAPITALS if is_long and any(len(word) > 1 for word in words) else Casing.SENTENCE
        others = words[1:]
        titled = [word for word in others if _is_titled(word)]
        plain = [word for word in others if word[0].islower()]
        if len(titled) < MIN_TITLED or len(plain) >= len(titled):
            return Casing.SENTENCE
        if plain and (self._capitalizes_nouns or max(map(len, plain)) > MAX_UNTITLED):
            return Casing.SENTENCE
        self._count_tokens(titled)
        num_known = sum(map(self._is_known_in_lower_case, titled))
        return Casing.TITLE if num_known >= MIN_TITLED and 2 * num_known >= len(titled) else Casing.SENTENCE

    def _is_known_in_lower_case(self, word: str) -> bool:
        """Return True if the vocabulary has a word rather in lower case than with a capital."""
        small = self._num_tokens[lower(word, self._src)]
        written = self._num_tokens[word]
        return small < written or small == written == 1

    def _normal_form(self, word: str, casing: Casing) -> str:
        """Return a word in the case with the fewest tokens, in lower case if several have as many."""
        if casing is Casing.TITLE and not _is_titled(word):
            return word
        small = lower(word, self._src)
        if self._is_english and _ENGLISH_I.fullmatch(small):
            return "I" + small[1:]
        return min([small, word, capitalized(small, self._src)], key=self._num_tokens.__getitem__)

    def _count_tokens(self, words: Sequence[str]) -> None:
        """Count the tokens of the forms of words."""
        if len(self._num_tokens) > MAX_KNOWN:
            self._num_tokens.clear()
        small = [lower(word, self._src) for word in words]
        forms = [*small, *words, *(capitalized(word, self._src) for word in small)]
        unknown = [form for form in dict.fromkeys(forms) if form not in self._num_tokens]
        rows = self._tokenizer.encode_src(unknown)
        self._num_tokens.update(zip(unknown, map(len, rows), strict=True))

    def restored(self, text: str, casing: Casing, kept: Collection[str] = ()) -> str:
        """Return a translation as its source is written. That of a title is a sentence.

        Args:
            text: The translation of a sentence that was recased.
            casing: How the sentence is written.
            kept: Text that stays as it is.
        """
        if casing is Casing.WORD:
            return capitalized(text, self._tgt)
        if casing is not Casing.CAPITALS:
            return text
        if not kept:
            return upper(text, self._tgt)
        longest_first = sorted(kept, key=len, reverse=True)
        parts = re.split(f"({'|'.join(map(re.escape, longest_first))})", text)
        return "".join(part if part in kept else upper(part, self._tgt) for part in parts)

    def with_capital(self, text: str, line: str) -> str:
        """Return a translation with a capital at its beginning, if its line has one there.

        A word stays if it is written in a way of its own, such as `iPhone`, or if the line has it too.
        """
        begins_with_capital = next(filter(str.isalnum, line), "").isupper()
        word = _FIRST_WORD.match(text) if begins_with_capital else None
        if word is None or not word[1].islower() or word[1] in _word_pattern().findall(line):
            return text
        return capitalized(text, self._tgt)


@cache
def _word_pattern() -> re.Pattern[str]:
    """Return the pattern of a word: letters with their marks, with apostrophes and hyphens inside."""
    letters = rf"[^\W\d_](?:[^\W\d_]|[{combining_marks()}])*"
    return re.compile(rf"{letters}(?:['’-]{letters})*")


def _word_spans(text: str, fixed: Sequence[Offsets]) -> list[Offsets]:
    """Return the spans of the words that have capitals in their script, outside of `fixed`."""
    spans = []
    for start, end in _gaps(text, fixed):
        found = (match.span() for match in _word_pattern().finditer(text, start, end))
        spans += [span for span in found if is_cased(text[span[0]])]
    return spans


def fixed_spans(text: str) -> list[Offsets]:
    """Return the spans of text whose case stays, in order: protected text, unusual words, the tag of a language."""
    tag = LANGUAGE_TAG.match(text)
    spans = [tag.span()] if tag else []
    for chunk in _CHUNK.finditer(text):
        if _UNUSUAL.search(chunk[0]) and not _ORDINAL.fullmatch(chunk[0]):
            spans.append(chunk.span())
    return sorted([*spans, *find_protected(text, decimals=True)])


def _gaps(text: str, spans: Sequence[Offsets]) -> Iterator[Offsets]:
    """Yield the spans of a text between others, which may overlap."""
    end = 0
    for start, next_end in spans:
        if start > end:
            yield end, start
        end = max(end, next_end)
    yield end, len(text)


def _without(text: str, spans: Sequence[Offsets]) -> str:
    return " ".join(text[start:end] for start, end in _gaps(text, spans))


def _is_titled(word: str) -> bool:
    """Return True if a word has a capital at its beginning only."""
    return word[0].isupper() and (len(word) == 1 or not has_case(word[1:]) or word[1:].islower())
