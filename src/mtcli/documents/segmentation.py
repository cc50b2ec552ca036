"""Split text into sentences, and long sentences into clauses. The parts always concatenate to the text."""

import re
from collections.abc import Callable, Iterator, Sequence

from mtcli.config import languages
from mtcli.documents.inline import Inline, Tag, text_of

_OTHER_SPACE = re.compile(r"[^\S\n\r\t ]")
"""White space that sentencex 1.0 does not expect: an initial after a no-break space stops it with an error."""

_CLAUSE_END = re.compile(r"[,;:](?=\s)|\s[–—]+(?=\s)|—|[،؛]|[、，；：]")
"""Punctuation after which a long sentence is split. `1,000`, `10:30` and hyphens do not count."""

_SPACE = re.compile(r"\s+")


def split_sentences(text: str, language: str) -> list[str]:
    """Split text into sentences. The spaces between two sentences belong to the first one.

    Args:
        text: Any text.
        language: Its language, as a code or a name. Languages without rules of their own have those of English.

    Raises:
        ModuleNotFoundError: sentencex is not installed.
    """
    from sentencex import segment

    plain = _OTHER_SPACE.sub(" ", text)  # has the same length
    sentences = []
    start = 0
    for sentence in segment(languages.base(language) or language, plain):
        end = start + len(sentence)
        sentences.append(text[start:end])
        start = end
    return sentences


def split_segment(segment: Inline, language: str) -> list[Inline]:
    """Split a segment with markup into sentences.

    A closing tag between two sentences belongs to the first one, other tags there belong to the second.

    Raises:
        ModuleNotFoundError: sentencex is not installed.
    """
    sentences = split_sentences(text_of(segment), language)
    return _split_at(segment, [len(sentence) for sentence in sentences])


def split_long(sentence: Inline, length: Callable[[str], int], longest: int) -> list[Inline]:
    """Split a sentence into parts of at most `longest` tokens, if possible: at clause marks, otherwise at spaces.

    Args:
        sentence: The sentence.
        length: Returns the number of tokens of a text.
        longest: The most tokens of a part. A part with neither clause marks nor spaces stays longer.
    """
    parts = list(_short_parts(text_of(sentence), length, longest))
    return _split_at(sentence, [len(part) for part in parts])


def _short_parts(text: str, length: Callable[[str], int], longest: int) -> Iterator[str]:
    """Yield the parts of a text, see `split_long`."""
    if length(text) <= longest:
        yield text
        return
    middle = _middle(text)
    if middle is None:
        yield text
        return
    yield from _short_parts(text[:middle], length, longest)
    yield from _short_parts(text[middle:], length, longest)


def _middle(text: str) -> int | None:
    """Return the offset after the clause mark, or otherwise the space, that divides a text most evenly.

    Returns:
        None if there is no place where both parts have text.
    """
    first = len(text) - len(text.lstrip())
    last = len(text.rstrip())
    for pattern in (_CLAUSE_END, _SPACE):
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
