"""Plain text: paragraphs, lines, and paragraphs whose lines are wrapped at a fixed width.

Each line is a segment of its own, because its break may mean something: a list, a poem, an address. Only a paragraph
that was clearly wrapped is one segment. Its translation is wrapped at the same width.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

from rich.cells import cell_len

from mtcli.documents.formats.encoding import EncodedText, decode
from mtcli.documents.formats.format import ReadOptions
from mtcli.documents.formats.slots import SlotDocument, Span, raw
from mtcli.documents.markup.inline import Inline
from mtcli.documents.markup.wrapping import unspaced_at_end, unspaced_at_start, wrap
from mtcli.text.list_marks import BULLET, LIST_ON_ONE_LINE, NUMBER

MIN_WIDTH = 40
"""Cells of the longest line of a wrapped paragraph, at least. A cell is the width of a Latin letter."""

CJK_SLACK = 4
"""Cells that may be free at the end of a wrapped Chinese or Japanese line: some marks may not begin or end a line."""

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\n|\r|$)")
_SENTENCE_END = re.compile(r"[.!?…:;。！？：；।؟][\"'”’»)」』]*$")


@dataclass(frozen=True, slots=True)
class _Line:
    """A line that is not blank."""

    start: int
    """Offset of its first character that is not white space."""
    indent: str
    """The white space before it, and the mark of an item of a list."""
    text: str
    """The line without white space at its ends."""


def read(content: bytes, options: ReadOptions) -> SlotDocument:
    """Read a file of plain text.

    Raises:
        DataError: See `encoding.decode`.
    """
    return read_text(decode(content, options.name))


def read_text(source: EncodedText) -> SlotDocument:
    """Divide a text into segments."""
    return SlotDocument(source, list(text_spans(source.text)))


def text_spans(text: str, first: int = 0) -> Iterator[Span]:
    """Yield the spans of a text: its lines, and its wrapped paragraphs.

    Args:
        text: The text.
        first: Offset of the text in the file.
    """
    for block in _blocks(text):
        if _is_wrapped(block):
            start = block[0].start
            end = block[-1].start + len(block[-1].text)
            width = max(cell_len(line.indent + line.text) for line in block)
            newline = "\r\n" if "\r\n" in text[start:end] else "\n"
            render = partial(_wrapped, width=width, first=block[0].indent, other=newline + block[1].indent)
            yield Span(first + start, first + end, (text[start:end],), render)
            continue
        for line in block:
            yield Span(first + line.start, first + line.start + len(line.text), (line.text,))


def _blocks(text: str) -> Iterator[list[_Line]]:
    """Yield the lines between blank lines. The items of a list are blocks of their own."""
    block: list[_Line] = []
    for match in _LINE.finditer(text):
        content = match[0].strip()
        mark = BULLET.match(content)
        if not mark and (not block or block[0].indent.strip() or block[-1].text.endswith(":")):
            mark = NUMBER.match(content)
        if block and (mark or not content):
            yield block
            block = []
        if content:
            line_text = content[mark.end() :] if mark and not LIST_ON_ONE_LINE.match(content) else content
            start = match[0].index(content) + len(content) - len(line_text)
            block.append(_Line(match.start() + start, match[0][:start], line_text))
    if block:
        yield block


def _is_wrapped(block: Sequence[_Line]) -> bool:
    """Return True if the lines of a block are one text: no line has room for the first word of the next.

    At least one break must be inside a sentence, so that verses and lines with one sentence each are kept.
    """
    width = max(cell_len(line.indent + line.text) for line in block)
    if len(block) < 2 or width < MIN_WIDTH:
        return False
    for line, following in pairwise(block):
        room = width - cell_len(line.indent + line.text)
        if unspaced_at_end(line.text) and unspaced_at_start(following.text):
            has_room = room > CJK_SLACK
        else:
            has_room = room > cell_len(following.text.split(maxsplit=1)[0])
        if has_room:
            return False
    return any(
        not _SENTENCE_END.search(line.text) and not following.text[0].isupper() for line, following in pairwise(block)
    )


def _wrapped(translation: Inline, _: Mapping[str, str], width: int, first: str, other: str) -> str:
    """Return the translation of a wrapped paragraph.

    `first` is the indentation of its first line, which is not part of the span; `other` is the line break and the
    indentation of the others.
    """
    indent = other.lstrip("\r\n")
    lines = wrap(raw(translation), width - cell_len(first), width - cell_len(indent))
    return other.join(lines)
