"""Markdown: headings, paragraphs, list items, quotes, table cells and the text of HTML blocks.

Code, front matter, definitions of links, the addresses of links and everything that is not text stay as they are.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from markdown_it.token import Token

from mtcli.documents.formats.encoding import decode
from mtcli.documents.formats.escapes import references_of
from mtcli.documents.formats.format import Document, ReadOptions
from mtcli.documents.formats.html import add_tag, html_spans, html_structure
from mtcli.documents.formats.html_tokens import is_inline, tokenize
from mtcli.documents.formats.items import Item, make_span
from mtcli.documents.formats.markdown_inline import inline_items, place_recording_parser, standard_parser
from mtcli.documents.formats.slots import UNESCAPED, SlotDocument, Span, in_order
from mtcli.documents.formats.structure import Digest, Shape
from mtcli.documents.markup.inline import Inline, Tag
from mtcli.errors import DataError

MAX_BLOCKS = 500_000
"""Lines and `|` of a file. Each may begin a block, such as an item of a list or a cell, which takes up to 4 KB."""
MAX_BLOCK_MARKS = 100_000
"""Marks of a paragraph, see `_MARKS`. Each takes up to 2 KB while the paragraph is read."""
MAX_MARKS = 1_000_000
"""Marks of all paragraphs of a file."""
_MARKS = "\\`*_~[]<!&{$\n"
"""Characters that may be markup within a paragraph. Those of code blocks do not count."""
_LINE_END = re.compile(r"\r\n?|\n")
_FRONT_MATTER = re.compile(
    r"(?:---[ \t]*\r?\n.*?^(?:---|\.\.\.)|\+\+\+[ \t]*\r?\n.*?^\+\+\+)[ \t]*\r?$", re.DOTALL | re.MULTILINE
)
_NOT_LINE_END = re.compile(r"[^\r\n]+")
_MARKUP = re.compile(
    r"[\\`\[\]]|(?<!\s)[*]|[*](?!\s)|(?<![^\W_])_|_(?![^\W_])|(?<![^~])~|~(?![^~])"
    r"|<(?=[A-Za-z/!?])|&(?=#?\w+;)"
)
"""What may begin inline markup."""
_BLOCK_START = re.compile(r"#{1,6}(?=\s|$)|[-+](?=\s|$)|>|-{2,}\s*$|=+\s*$|~~~|:{3}")
"""What begins or underlines a heading, or begins a list, a quote or code at the start of a line."""
_EMPHASIS = {"*": "em", "_": "em", "**": "strong", "__": "strong", "~~": "del"}
"""The marks of emphasis, and the tags of HTML with the same meaning."""
_TAGS = {"s": "del"}
"""The tags of markdown-it that differ from those of `_EMPHASIS`."""
_OUTER_PIPE = re.compile(r"^\||\|$")
"""What makes a table of one column of a text and the line below it, even as `\\|`."""
_TEXT_BEGINS = re.compile(r"\[\^[^\]\s]+\]:|(?:!!!|\?\?\?\+?)\s+[\w-]|:\s")
"""What begins a footnote, an admonition or a definition at the start of a line."""
_FOOTNOTE = re.compile(r"\[\^[^\]\s]+\]:[ \t]*(?=\S)")
"""The mark of a footnote before its text."""
_DEFINITION = re.compile(
    r"\[[^\[\]^][^\[\]]*\]:[ \t]*(?:<[^<>]*>|(?=\S*(?:[/#]|\w[.:]\w))\S+)(?:[ \t]+(?:\"[^\"]*\"|'[^']*'|\([^()]*\)))?$"
)
"""A definition of a link, which most programs also find within a paragraph, such as below a footnote."""
_TEXT_ENDS = re.compile(r"(?:!!!|\?\?\?\+?)\s+[\w-]|\[![A-Z]+\]\s*$")
"""The line of an admonition or an alert, before its text."""
_LIST_NUMBER = re.compile(r"^(\d{1,9})([.)])(?=\s|$)")


def read(content: bytes, options: ReadOptions) -> Document:
    """Read a Markdown file.

    Raises:
        DataError: See `encoding.decode`; or the file has more than `MAX_BLOCKS` or `MAX_MARKS`, a paragraph more than
            `MAX_BLOCK_MARKS`, or a part in HTML too many tags, see `html.html_spans`.
    """
    source = decode(content, options.name)
    if sum(map(source.text.count, "\r\n|")) - source.text.count("\r\n") > MAX_BLOCKS:
        raise DataError(
            f"{options.name}: more than {MAX_BLOCKS:,} lines and cells of tables, the limit; split the file"
        )
    return SlotDocument(source, in_order(_Reader(source.text, options.name).spans()))


def structure(content: bytes, options: ReadOptions) -> int:
    """Return a hash of the blocks, of the tree of inline markup in each, and of code, see `format.Structure`."""
    text = decode(content, options.name).text
    digest = Digest()
    parser = standard_parser()
    env: dict[str, Any] = {}
    blocks = parser.parse(_without_front_matter(text), env)
    _pop_footnotes(env)
    for token in blocks:
        digest.add((token.type, token.tag, token.nesting, token.info, token.hidden, *map(str, token.attrs.items())))
        if token.type == "inline":
            children: list[Token] = []  # of one block at a time, because they take much memory
            parser.inline.parse(token.content, parser, env, children)
            digest.add(_shape(children))
        elif token.type == "html_block":
            digest.add(html_structure(token.content))
        else:
            digest.add(token.content)
    return digest.value


def _shape(tokens: Sequence[Token]) -> int:
    """Return a hash of inline markup. Emphasis and hard line breaks are the same as their tags of HTML."""
    shape = Shape()
    for token in tokens:
        name = _TAGS.get(token.tag, token.tag)
        attributes = [f"{key}={value}" for key, value in token.attrs.items() if key != "alt"]
        if token.type == "html_inline":
            for part in tokenize(token.content):
                if part.name:
                    add_tag(shape, token.content, part)
                else:
                    shape.point(token.content)
        elif token.nesting > 0:
            shape.open(name, (name, *attributes))
        elif token.nesting < 0:
            shape.close(name)
        elif token.type in ("hardbreak", "image"):
            shape.point((name, *attributes))
        elif token.type not in ("text", "softbreak"):
            shape.point((token.type, token.content))
    return shape.finish()


def _without_front_matter(text: str) -> str:
    """Return a file with empty lines instead of its front matter."""
    front_matter = _FRONT_MATTER.match(text)
    end = front_matter.end() if front_matter else 0
    return _NOT_LINE_END.sub("", text[:end]) + text[end:]


def _pop_footnotes(env: dict[str, Any]) -> list[list[int]]:
    """Remove the footnotes of one word, which the parser takes for definitions of links.

    Return the first line of each, and the line after it.
    """
    definitions = env.get("references", {})
    return [definitions.pop(name)["map"] for name in list(definitions) if name.startswith("^")]


@dataclass(frozen=True)
class _Style:
    """What the text of a span depends on."""

    references: dict[str, str]
    """Those to keep in its translation, such as `&nbsp;`, by their characters."""
    block: str
    """See `_Reader._inline`."""
    at_line_start: bool
    """It begins a line, where a list or a heading could begin."""


class _Reader:
    """Finds the text of the blocks."""

    def __init__(self, text: str, name: str):
        self.text = text
        self.name = name
        self._line_starts = [0, *(end.end() for end in _LINE_END.finditer(text))]
        self._parser = place_recording_parser()
        self._standard_parser = standard_parser()
        self._env: dict[str, Any] = {}
        self._num_marks = 0
        self._tokens = self._parser.parse(_without_front_matter(text), self._env)
        self._one_word_footnotes = _pop_footnotes(self._env)

    def spans(self) -> Iterator[Span]:
        """Yield what is translated."""
        row = -1
        place = 0
        for index, token in enumerate(self._tokens):
            if token.map is None:
                continue
            if token.type == "html_block":
                yield from self._html(token.content, *token.map)
            if token.type != "inline" or not token.content:
                continue
            block = self._tokens[index - 1]
            if block.type in ("th_open", "td_open"):
                place = place if token.map[0] == row else self._line_starts[token.map[0]]
                row = token.map[0]
                cell = self._cell(token.content, place)
                if cell:
                    place = cell[1][0] + len(cell[0])
                    yield from self._inline(*cell, "cell")
                continue
            starts = self._places(token, block)
            if starts:
                is_underlined = block.type == "heading_open" and not block.markup.startswith("#")
                kind = "underlined" if is_underlined else block.type.removesuffix("_open")
                parts = _parts(token.content) if kind == "paragraph" else [(0, token.content)]
                for first, content in parts:
                    yield from self._inline(content, starts[first:], kind)
        for first_line, end_line in self._one_word_footnotes:
            if end_line == first_line + 1:
                yield from self._footnote(first_line)

    def _footnote(self, number: int) -> Iterator[Span]:
        """Yield the span of a footnote on a line of its own."""
        start, end = self._line(number)
        mark = _FOOTNOTE.search(self.text, start, end)
        if mark:
            yield from self._inline(self.text[mark.end() : end].rstrip(), [mark.end()], "footnote")

    def _line(self, number: int) -> tuple[int, int]:
        """Return the start and the end of a line, without its line end."""
        start = self._line_starts[number]
        end = self._line_starts[number + 1] if number + 1 < len(self._line_starts) else len(self.text)
        return start, start + len(self.text[start:end].rstrip("\r\n"))

    def _cell(self, content: str, place: int) -> tuple[str, list[int]] | None:
        """Return the content of a cell as in the file, where `|` is `\\|`, and its place."""
        escaped = content.replace("|", "\\|")
        found = self.text.find(escaped, place)
        return None if found < 0 else (escaped, [found])

    def _places(self, token: Token, block: Token) -> list[int]:
        """Return where each line of the content is in the file. Empty if the content is not as in the file."""
        assert token.map is not None
        places = []
        for number, line in enumerate(token.content.split("\n")):
            start, end = self._line(token.map[0] + number)
            source = self.text[start:end]
            stripped = line.strip()
            if block.type == "heading_open" and block.markup.startswith("#"):
                found = source.find(stripped, source.index(block.markup) + len(block.markup))
            else:
                found = source.rfind(stripped)
                if source[found + len(stripped) :].strip():
                    found = -1
            if found < 0:
                return []
            places.append(start + found - (len(line) - len(line.lstrip())))
        return places

    def _inline(self, content: str, starts: Sequence[int], block: str) -> Iterator[Span]:
        """Yield the spans of a block.

        Args:
            content: The content of the block, without quote marks and indentation.
            starts: Where each of its lines is in the file.
            block: `paragraph`, `heading`, `underlined` (a heading with a line below), `cell` or `footnote`.
        """
        self._count_marks(content, starts[0])
        offsets = [0, *(match.end() for match in re.finditer("\n", content))]

        def place_of(offset: int) -> int:
            line = bisect_right(offsets, offset) - 1
            return starts[line] + offset - offsets[line]

        def move(item: Item) -> Item:
            end = place_of(item.end) if item.end < len(content) else place_of(item.end - 1) + 1
            return replace(item, start=place_of(item.start), end=end)

        items = inline_items(self._parser, content, self._env)
        for group in _between_blocks(items):
            yield from self._span([move(item) for item in group], block, place_of(0))
        for item in items:
            if item.name == "image":
                first = item.start + len("![")
                inner = inline_items(self._parser, content[first : first + len(item.text)], self._env)
                shifted = [replace(part, start=part.start + first, end=part.end + first) for part in inner]
                yield from self._span([move(part) for part in shifted], block, -1)
            if item.name.startswith("html"):
                start = place_of(item.start)
                yield from self._html_spans(start, place_of(item.end - 1) + 1)

    def _count_marks(self, content: str, start: int) -> None:
        """Count the marks of a block, which is at `start` in the file. Raise a DataError if there are too many."""
        num_marks = sum(map(content.count, _MARKS))
        self._num_marks += num_marks
        line = bisect_right(self._line_starts, start)
        if num_marks > MAX_BLOCK_MARKS:
            problem = f"a paragraph with more than {MAX_BLOCK_MARKS:,} marks such as `*`, the limit; divide it"
            raise DataError(f"{self.name}, line {line}: {problem}")
        if self._num_marks > MAX_MARKS:
            problem = f"more than {MAX_MARKS:,} marks such as `*` up to here, the limit; split the file"
            raise DataError(f"{self.name}, line {line}: {problem}")

    def _span(self, items: Sequence[Item], block: str, start: int) -> Iterator[Span]:
        """Yield the span of these items, if they have text."""
        source = "".join(self.text[item.start : item.end] for item in items if item.kind == "text")
        span = make_span(self.text, items, UNESCAPED)
        if span:
            at_line_start = block in ("paragraph", "underlined") and span.start == start
            references = {shown: raw for shown, raw in references_of(source).items() if not shown.isascii()}
            style = _Style(references, block, at_line_start)
            yield replace(span, render=partial(self._render, style, span.segment))

    def _render(self, style: _Style, segment: Inline, translation: Inline, markup: Mapping[str, str]) -> str:
        """Return a translation as Markdown.

        Where its marks would be text or other marks, emphasis is HTML, and a space is between two marks.
        """
        wanted = self._shape_of(_rendered(style, segment, markup))
        forms = [translation, _with_html(translation), _spaced(translation), _spaced(_with_html(translation))]
        for form in forms:
            written = _rendered(style, form, markup)
            if self._shape_of(written) == wanted:
                return written
        return _rendered(style, translation, markup)  # which `VerifiedDocument` does not use

    def _shape_of(self, content: str) -> int:
        children: list[Token] = []
        self._standard_parser.inline.parse(content, self._standard_parser, self._env, children)
        return _shape(children)

    def _html(self, content: str, first: int, last: int) -> Iterator[Span]:
        """Yield the spans of an HTML block, unless its lines have quote marks."""
        lines = [self._line(number) for number in range(first, min(last, len(self._line_starts)))]
        source = [self.text[start:end].strip() for start, end in lines]
        if source[: content.count("\n") + 1] == [line.strip() for line in content.split("\n")][: len(source)]:
            yield from self._html_spans(lines[0][0], lines[-1][1])

    def _html_spans(self, start: int, end: int) -> Iterator[Span]:
        name = f"{self.name}, HTML from line {bisect_right(self._line_starts, start)}"
        for span in html_spans(self.text[start:end], name):
            places = tuple((raw, begin + start, close + start) for raw, begin, close in span.tag_places)
            yield replace(span, start=span.start + start, end=span.end + start, tag_places=places)


def _between_blocks(items: Sequence[Item]) -> list[list[Item]]:
    """Divide the items of a paragraph at tags such as `<summary>`, which separate texts, unless others cross them."""
    groups: list[list[Item]] = [[]]
    opened: list[str] = []
    for item in items:
        name = item.name.removeprefix("html ")
        if name != item.name and not is_inline(name):
            if opened:
                return [list(items)]
            groups.append([])
            continue
        if item.kind == "open":
            opened.append(item.name)
        elif item.kind == "close" and (not opened or opened.pop() != item.name):
            return [list(items)]
        groups[-1].append(item)
    return groups if not opened else [list(items)]


def _parts(content: str) -> Iterator[tuple[int, str]]:
    """Divide a paragraph of CommonMark that has several blocks of extensions, each of which needs lines of its own.

    Yields:
        The number of the first line of a part, and the part. Lines of directives, formulas and definitions of links are
        in no part.
    """
    lines = content.split("\n")
    first = 0
    end_of_markup = 0
    for number, line in enumerate(lines):
        if number < end_of_markup:
            continue
        end_of_markup = _end_of_markup(lines, number)
        is_markup = end_of_markup > number
        begins = _TEXT_BEGINS.match(line.strip()) or (number and _TEXT_ENDS.match(lines[number - 1].strip()))
        if first < number and (is_markup or begins):
            yield first, "\n".join(lines[first:number])
            first = number
        if is_markup:
            first = end_of_markup
    if first < len(lines):
        yield first, "\n".join(lines[first:])


def _end_of_markup(lines: Sequence[str], number: int) -> int:
    """Return the number of the line after a directive, a formula or a definition of a link that begins on a line.

    For other lines, return their own number.
    """
    line = lines[number].strip()
    if line.startswith(":::") or _DEFINITION.match(line):
        return number + 1
    if not line.startswith("$$"):
        return number
    if "$$" in line[2:]:
        return number + 1 if line.endswith("$$") else number
    return next((last + 1 for last in range(number + 1, len(lines)) if "$$" in lines[last]), number)


def _with_html(translation: Inline) -> Inline:
    """Return a translation with tags of HTML for emphasis."""
    parts: list[str | Tag] = []
    for part in translation:
        if isinstance(part, Tag) and part.kind != "point" and part.raw in _EMPHASIS:
            slash = "/" if part.kind == "close" else ""
            part = Tag(f"<{slash}{_EMPHASIS[part.raw]}>", part.kind)
        parts.append(part)
    return tuple(parts)


def _spaced(translation: Inline) -> Inline:
    """Return a translation with a space between two marks of the same kind, such as two code spans."""
    parts: list[str | Tag] = []
    for part in translation:
        last = parts[-1] if parts else ""
        if (
            isinstance(part, Tag)
            and isinstance(last, Tag)
            and part.raw[:1] == last.raw[-1:]
            and part.raw[:1] in "`*_~$"
        ):
            parts.append(" ")
        parts.append(part)
    return tuple(parts)


def _with_inner_breaks(translation: Inline) -> Inline:
    """Return a translation with tags of HTML for hard line breaks at its ends, where they would be text or nothing."""
    parts = list(translation)
    for end in (0, -1):
        part = parts[end] if parts else ""
        if isinstance(part, Tag) and _is_hard_break(part.raw):
            parts[end] = Tag("<br>")
    return tuple(parts)


def _is_hard_break(raw: str) -> bool:
    return "\n" in raw and not raw.strip("\\ \r\n>")


def _rendered(style: _Style, translation: Inline, markup: Mapping[str, str]) -> str:
    """Return a translation as Markdown, with its tags as they are."""
    pieces: list[str] = []
    at_line_start = style.at_line_start
    for part in _with_inner_breaks(translation):
        if isinstance(part, str):
            pieces.append(_encoded_text(style, part, at_line_start=at_line_start))
            at_line_start = False
            continue
        raw = markup.get(part.raw, part.raw)
        if raw.startswith("[") and pieces and pieces[-1].endswith("!"):
            pieces[-1] = pieces[-1].removesuffix("!") + "\\!"  # `![` would begin an image
        pieces.append(raw)
        at_line_start = _is_hard_break(raw)
    return "".join(pieces)


def _encoded_text(style: _Style, text: str, *, at_line_start: bool) -> str:
    """Return text as Markdown, with what would be markup escaped."""
    text = _MARKUP.sub(lambda found: "\\" + found[0], _LINE_END.sub(" ", text))
    if style.block == "cell":
        text = text.replace("|", "\\|")
    elif style.block == "underlined":
        text = _OUTER_PIPE.sub("&#124;", text)
    if at_line_start:
        text = text.lstrip(" ")
        text = _LIST_NUMBER.sub(r"\1\\\2", text, count=1)
        text = "\\" + text if _BLOCK_START.match(text) else text
    table: dict[str, str | int | None] = {**style.references}
    return text.translate(str.maketrans(table))
