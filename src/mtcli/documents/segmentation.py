"""Split text into sentences, and long sentences into clauses. The parts always concatenate to the text."""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from mtcli.config import languages
from mtcli.config.writing_systems import UNSPACED
from mtcli.data.placeholders import find_protected
from mtcli.documents.inline import Inline, Tag, merged, text_of
from mtcli.inference.windows import MAX_LINE_TOKENS

_OTHER_SPACE = re.compile(r"[^\S\n\r\t ]")
"""White space that sentencex 1.0 does not expect: an initial after a no-break space stops it with an error."""

WINDOW = 10_000
"""Characters that sentencex reads at a time. Its time grows with the square of the number of quotation marks."""

_CLAUSE_END = re.compile(r"[,;:](?=\s)|\s[–—]+(?=\s)|—|[،؛]|[、，；：]")
"""Punctuation after which a long sentence is split. `1,000`, `10:30` and hyphens do not count."""

_TABS = re.compile(r"(?<!\s) *+\t[ \t]*+(?=\S)")

_SPACE = re.compile(r"\s+")

MAX_MARKS = 200
"""Tags and protected texts of a sentence. The time to place them grows with the square of their number, and each
level of nested tags takes one level of recursion.
"""


def split_sentences(text: str, language: str) -> list[str]:
    """Split text into sentences. The spaces between two sentences belong to the first one.

    Args:
        text: Any text.
        language: Its language, as a code or a name. Languages without rules of their own have those of English.

    Raises:
        ModuleNotFoundError: sentencex is not installed.
    """
    from sentencex import segment

    code = languages.base(language) or language
    plain = _OTHER_SPACE.sub(" ", text)  # has the same length
    sentences = []
    start = 0
    while start < len(text):
        found = segment(code, plain[start : start + WINDOW])
        if start + WINDOW < len(text):
            last = found.pop()  # the window ends inside of it
            if not found:
                found = [_whole_words(last)]
        for sentence in found:
            sentences.append(text[start : start + len(sentence)])
            start += len(sentence)
    return sentences


def _whole_words(part: str) -> str:
    """Return a part of a text without the word at its end, unless it is the only one."""
    spaces = list(_SPACE.finditer(part.rstrip()))
    return part[: spaces[-1].end()] if spaces and spaces[-1].start() else part


def split_segment(segment: Inline, language: str) -> list[Inline]:
    """Split a segment with markup into sentences, and at tabs, which separate columns, or a menu item from its key.

    A closing tag between two sentences belongs to the first one, other tags there belong to the second.

    Raises:
        ModuleNotFoundError: sentencex is not installed.
    """
    sentences = split_sentences(_with_references(segment), language)
    parts = [part for sentence in sentences for part in _split_after_tabs(sentence)]
    return _split_at(segment, _lengths_of_text(segment, [len(part) for part in parts]))


def _with_references(segment: Inline) -> str:
    """Return the text of a segment with the characters of references that are tags, such as `&nbsp;`."""
    return "".join(part.text if isinstance(part, Tag) else part for part in segment)


def _lengths_of_text(segment: Inline, lengths: Sequence[int]) -> list[int]:
    """Return the lengths of the parts of a text without the characters of references, which are in `lengths`."""
    places = []
    place = 0
    for part in segment:
        text = part.text if isinstance(part, Tag) else part
        if isinstance(part, Tag) and text:
            places.append(place)
        place += len(text)
    found = []
    end = 0
    for length in lengths:
        start = end
        end += length
        found.append(length - bisect_left(places, end) + bisect_left(places, start))
    return [length for length in found if length]


def _split_after_tabs(text: str) -> list[str]:
    """Split a text after the tabs between its words. Tabs that indent a line do not count."""
    ends = [match.end() for match in _TABS.finditer(text)]
    return [text[start:end] for start, end in pairwise([0, *ends, len(text)])]


def split_long(sentence: Inline, num_tokens: Callable[[str], int], longest: int) -> list[Inline]:
    """Split a sentence into parts of at most `longest` tokens: at clause marks, otherwise at spaces.

    A part with neither stays longer, but never has more than `MAX_LINE_TOKENS` tokens, which a translator would cut.

    Args:
        sentence: The sentence.
        num_tokens: Returns the number of tokens of a text.
        longest: The most tokens of a part.
    """
    text = text_of(sentence)
    if len(text.encode(errors="replace")) < longest:  # a token has at least one byte
        return [sentence]
    parts = list(_short_parts(text, num_tokens, min(longest, MAX_LINE_TOKENS)))
    return _split_at(sentence, [len(part) for part in parts])


def split_marks(sentence: Inline) -> list[Inline]:
    """Split a sentence into parts of at most `MAX_MARKS` tags and protected texts, such as tags that are text.

    No text has so many, but broken and hostile files do.
    """
    parts: list[list[str | Tag]] = [[]]
    num_marks = 0
    for piece, is_mark in _texts_and_marks(sentence):
        if is_mark:
            if num_marks == MAX_MARKS:
                parts.append([])
                num_marks = 0
            num_marks += 1
        parts[-1].append(piece)
    return [merged(part) for part in parts]


def _texts_and_marks(sentence: Inline) -> Iterator[tuple[str | Tag, bool]]:
    """Yield the texts, tags and protected texts of a sentence in order, and False for each text."""
    for part in sentence:
        if isinstance(part, Tag):
            yield part, True
            continue
        end = 0
        for start, next_end in find_protected(part):
            yield part[end:start], False
            yield part[start:next_end], True
            end = next_end
        yield part[end:], False


def _short_parts(text: str, num_tokens: Callable[[str], int], longest: int) -> Iterator[str]:
    """Yield the parts of a text, see `split_long`."""
    number = num_tokens(text)
    if number <= longest:
        yield text
        return
    middle = _middle(text)
    if middle is None and number > MAX_LINE_TOKENS and len(text) > 1:
        middle = len(text) // 2
    if middle is None:
        yield text
        return
    yield from _short_parts(text[:middle], num_tokens, longest)
    yield from _short_parts(text[middle:], num_tokens, longest)


def _middle(text: str) -> int | None:
    """Return the offset after the clause mark, or otherwise the space, that divides a text most evenly.

    Without spaces, a text may be divided after any character of a script that has none between words.

    Returns:
        None if there is no place where both parts have text.
    """
    first = len(text) - len(text.lstrip())
    last = len(text.rstrip())
    for pattern in (_CLAUSE_END, _SPACE, UNSPACED):
        places = [match.end() for match in pattern.finditer(text, first, last)]
        inside = [place for place in places if first < place < last]
        if inside:
            return min(inside, key=lambda place: abs(2 * place - first - last))
    return None


def _split_at(segment: Inline, lengths: Sequence[int]) -> list[Inline]:
    """Split a segment into parts whose texts have these lengths."""
    if len(lengths) < 2:
        return [segment]
    pieces: list[list[str | Tag]] = [[]]
    remaining = list(lengths[::-1])
    for part in segment:
        if isinstance(part, Tag):
            if not remaining[-1] and part.kind != "close" and len(remaining) > 1:
                remaining.pop()
                pieces.append([])
            pieces[-1].append(part)
            continue
        start = 0
        while start < len(part):
            if not remaining[-1]:
                remaining.pop()
                pieces.append([])
            end = min(len(part), start + remaining[-1])
            pieces[-1].append(part[start:end])
            remaining[-1] -= end - start
            start = end
    return [tuple(piece) for piece in pieces]
