"""HTML pages and parts of pages: the text of each block, and the attributes that are shown to readers."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from mtcli.documents.formats.encoding import EncodedText
from mtcli.documents.formats.escapes import escape, references_of, render_like, unescape
from mtcli.documents.formats.format import Document, ReadOptions
from mtcli.documents.formats.html_tokens import (
    EMPTY,
    NOT_TRANSLATED,
    RAW_CONTENT,
    Attribute,
    HtmlToken,
    is_inline,
    tokenize,
)
from mtcli.documents.formats.items import Item, divided_spans, make_span, text_items, texts_and_matches
from mtcli.documents.formats.slots import SlotDocument, Span, in_order, render_with
from mtcli.documents.formats.structure import Digest, Shape
from mtcli.documents.markup.inline import Kind
from mtcli.errors import DataError
from mtcli.text.safe_xml import declared_encoding, decode_exactly, marked_encoding

SHOWN_ATTRIBUTES = ("alt", "title", "placeholder", "aria-label", "aria-description", "aria-placeholder")
"""Attributes that are text for readers, on any element except `<link>` and `<style>`."""
SHOWN_META = frozenset(
    {"description", "twitter:title", "twitter:description", "twitter:image:alt"}
    | {"og:title", "og:description", "og:image:alt"}
)
"""The `name` or `property` of `<meta>` whose `content` is text for readers."""
BUTTONS = frozenset(("submit", "button", "reset"))
GRAPHICS = frozenset(("svg", "math"))
"""Elements that stand for a word, whatever is in them."""
MAX_TAGS = 2_000_000
"""Tags and comments of a page, and also line breaks in its attributes that are references.

The standard of HTML, on one page of 15 MB, has about 500,000 tags.
"""
MAX_BLOCK_ITEMS = 100_000
"""Texts and tags of a paragraph. The longest of real pages are logs of 10,000 lines that end with `<br>`."""
_SPACES = re.compile(r"[ \t\n\f\r]+")
_BREAKS = re.compile(r"(?P<break>(?:&#(?:0*1[03]|x0*[ad]);)+)", re.IGNORECASE)
"""Line breaks that are written as references, which browsers show in attributes such as `title`."""
_TEMPLATE = re.compile(r"\{\{[^{}]*\}\}|\{%[^{}]*%\}|\{#[^{}]*#\}")
"""Tags of template languages such as Jinja and Django."""
_CHARSET = re.compile(rb"""<meta[^>]*?charset\s*=\s*["']?\s*([A-Za-z0-9._:-]+)""", re.IGNORECASE)
_CHARSET_BYTES = 1024
"""The standard looks for the encoding in this many bytes."""
_WESTERN = ("windows-1252", "iso-8859-1")
_READ_AS = {
    "ascii": _WESTERN,
    "iso8859-1": _WESTERN,
    "cp1252": _WESTERN,
    "iso8859-9": ("windows-1254", "iso-8859-9"),
    "gb2312": ("gb2312", "gb18030"),
    "gbk": ("gbk", "gb18030"),
    "shift_jis": ("shift_jis", "cp932"),
    "euc_kr": ("euc_kr", "cp949"),
    "big5": ("big5", "big5hkscs"),
}
"""The encodings that pages have if they declare one, by its name in Python. The first that fits is used.

As in browsers, ISO 8859-1 is windows-1252, and the East Asian encodings have the characters of their extensions.
"""


def read(content: bytes, options: ReadOptions, *, is_xhtml: bool = False) -> Document:
    """Read a page or a part of one.

    Args:
        content: The page.
        options: Its name and the languages.
        is_xhtml: It is XHTML, whatever its name and its first line say. See `tokenize`.

    Raises:
        DataError: The bytes are not in the encoding that the page declares (UTF-8 unless it declares one); or it has
            too many tags, see `html_spans`.
    """
    source = _decoded(content, options.name)
    is_xhtml = is_xhtml or _looks_like_xhtml(source.text, options.name)
    return SlotDocument(source, html_spans(source.text, options.name, is_xhtml=is_xhtml))


def structure(content: bytes, options: ReadOptions, *, is_xhtml: bool = False) -> int:
    """Return a hash of the tags and of what is not translated, see `read` and `format.Structure`."""
    text = _decoded(content, options.name).text
    return html_structure(text, is_xhtml=is_xhtml or _looks_like_xhtml(text, options.name))


def _decoded(content: bytes, name: str) -> EncodedText:
    encoding = _encoding(content)
    decoded = decode_exactly(content, encoding, name)
    text = decoded.removeprefix("\ufeff")
    mark = b"" if text == decoded else "\ufeff".encode(encoding)
    return EncodedText(text, encoding, mark)


def _looks_like_xhtml(text: str, name: str) -> bool:
    return name.lower().endswith(".xhtml") or text.startswith("<?xml")


def html_structure(text: str, *, is_xhtml: bool = False) -> int:
    """Return a hash of the blocks of a page, of the tree of inline tags in each, and of code.

    Args:
        text: A page or a part of one.
        is_xhtml: See `tokenize`.
    """
    digest = Digest()
    shape = Shape()
    num_code = 0
    for token in tokenize(text, is_xhtml=is_xhtml):
        if token.kind == "text":
            if num_code:
                shape.point(text[token.start : token.end])
            continue
        if token.kind in ("raw", "other"):
            shape.point("title" if token.name == "title" else text[token.start : token.end])
            continue
        if token.name in NOT_TRANSLATED and token.name not in RAW_CONTENT:
            num_code = max(0, num_code + {"start": 1, "end": -1}.get(token.kind, 0))
        if is_inline(token.name):
            add_tag(shape, text, token)
        else:
            digest.add(shape.finish())
            digest.add((token.kind, _tag_structure(text, token)))
            shape = Shape()
    digest.add(shape.finish())
    return digest.value


def add_tag(shape: Shape, text: str, token: HtmlToken) -> None:
    """Add an inline tag to the tree of those of a paragraph."""
    if token.kind == "end":
        shape.close(token.name)
    elif token.kind == "empty" or token.name in EMPTY:
        shape.point(_tag_structure(text, token))
    else:
        shape.open(token.name, _tag_structure(text, token))


def _tag_structure(text: str, token: HtmlToken) -> tuple[str, ...]:
    """Return the name of a tag and its attributes, without the values that are translated."""
    shown = _shown_attributes(text, token)
    values = [
        f"{name}={'' if name in shown else text[value.start : value.end]}"
        for name, value in (token.attributes or {}).items()
    ]
    return (token.name, *values)


def html_spans(text: str, name: str, *, is_xhtml: bool = False) -> list[Span]:
    """Return the places to translate in HTML.

    Args:
        text: A page or a part of one.
        name: Its name, for messages.
        is_xhtml: See `tokenize`.

    Raises:
        DataError: It has more than `MAX_TAGS` tags, or a block has more than `MAX_BLOCK_ITEMS`.
    """
    return in_order(_Reader(text, name, is_xhtml=is_xhtml).spans)


class _Reader:
    """Collects the text and the tags of each block.

    The page is divided into tokens twice, because a list of them takes many times the memory of the page.
    """

    def __init__(self, text: str, name: str, *, is_xhtml: bool):
        self.text = text
        self.name = name
        self.is_xhtml = is_xhtml
        self.spans: list[Span] = []
        self._items: list[Item] = []
        self._num_breaks = 0
        self._end_of_skipped = self._find_ends_of_skipped()
        self._tokens = tokenize(text, is_xhtml=is_xhtml)
        token = next(self._tokens, None)
        while token is not None:
            token = self._read(token)
        self._end_block()

    def _find_ends_of_skipped(self) -> dict[int, int]:
        """Return the start of the end tag of each element that is not translated, by the start of its start tag."""
        ends: dict[int, int] = {}
        skipped: set[int] = set()
        unclosed: dict[str, list[int]] = {}
        num_tags = 0
        for token in tokenize(self.text, is_xhtml=self.is_xhtml):
            num_tags += token.kind != "text"
            if num_tags > MAX_TAGS:
                raise DataError(f"{self.name}: more than {MAX_TAGS:,} tags, the limit; split the page")
            if token.kind == "start":
                unclosed.setdefault(token.name, []).append(token.start)
                if self._is_skipped(token):
                    skipped.add(token.start)
            elif token.kind == "end" and unclosed.get(token.name):
                start = unclosed[token.name].pop()
                if start in skipped:
                    ends[start] = token.start
        return ends

    def _read(self, token: HtmlToken) -> HtmlToken | None:
        """Read a token, or an element that is not translated. Return the next token."""
        if token.kind == "text" or (token.kind == "raw" and token.name == "title"):
            for item in self._text_items(token.start, token.end):
                self._add(item)
        elif token.kind in ("other", "raw"):
            self._add(Item(token.start, token.end, "point"))
        elif token.kind in ("start", "empty") and self._is_skipped(token):
            return self._skip(token)
        else:
            self._tag(token)
        return next(self._tokens, None)

    def _add(self, item: Item) -> None:
        """Add an item to the block, which has `MAX_BLOCK_ITEMS` at most."""
        if len(self._items) == MAX_BLOCK_ITEMS:
            line = self.text.count("\n", 0, item.start) + 1
            problem = f"a paragraph with more than {MAX_BLOCK_ITEMS:,} texts and tags, the limit"
            raise DataError(f"{self.name}, line {line}: {problem}; divide it with <p>")
        self._items.append(item)

    def _tag(self, token: HtmlToken) -> None:
        attribute_spans = list(self._attribute_spans(token))
        kind: Kind = "open" if token.kind == "start" else "close"
        if token.name in EMPTY or self.text.endswith("/>", token.start, token.end):
            kind = "point"
        item = Item(token.start, token.end, kind, name=token.name, has_spans=bool(attribute_spans))
        if is_inline(token.name):
            self._end_block_before(item)
            self._add(item)
        else:
            self._end_block()
        self.spans.extend(attribute_spans)

    def _end_block_before(self, item: Item) -> None:
        """End the block at two line breaks, which separate paragraphs, and between two links of a list of links."""
        if item.name == "br" and self._follows("br", ""):
            self._end_block()
        elif item.name == "a" and item.kind == "open" and self._follows("a", "|·•"):
            while self._items[-1].kind == "text" or self._items[-1].name == "reference":
                self._items.pop()
            self._end_block()

    def _follows(self, name: str, separators: str) -> bool:
        """Return True if this tag is the last one, and only white space or separators follow it."""
        for item in reversed(self._items):
            if item.kind != "text" and item.name != "reference":
                return item.name == name and item.kind != "open"
            if item.text.strip(separators + " \xa0"):
                return False
        return False

    def _text_items(self, start: int, end: int) -> Iterator[Item]:
        """Yield the text, and the tags of template languages in it."""
        for first, last, tag in texts_and_matches(_TEMPLATE.finditer(self.text, start, end), start, end):
            if tag:
                yield Item(first, last, "point", word=tag[0].startswith("{{"))
            else:
                yield from _texts(self.text, first, last)

    def _is_skipped(self, token: HtmlToken) -> bool:
        return token.name in NOT_TRANSLATED or self._is_protected(token)

    def _is_protected(self, token: HtmlToken) -> bool:
        """Return True if the page says that an element is not translated."""
        is_protected = _value(self.text, token, "translate").lower() == "no"
        return is_protected or "notranslate" in _value(self.text, token, "class").split()

    def _skip(self, token: HtmlToken) -> HtmlToken | None:
        """Omit an element that is not translated. Return the token after it."""
        attribute_spans = [] if self._is_protected(token) else list(self._attribute_spans(token))
        end = self._end_of_skipped.get(token.start)
        if end is None:
            end = self._end_of_unclosed(token)
        last = token
        is_within_sentence = is_inline(token.name)
        following = next(self._tokens, None)
        while following is not None and (is_inline(following.name) if end is None else following.start <= end):
            is_within_sentence = is_within_sentence and is_inline(following.name)
            last = following
            following = next(self._tokens, None)
        if is_within_sentence or token.name in GRAPHICS:
            has_spans = bool(attribute_spans)
            self._add(Item(token.start, last.end, "point", name=token.name, word=True, has_spans=has_spans))
        else:
            self._end_block()
        self.spans.extend(attribute_spans)
        return following

    def _end_of_unclosed(self, token: HtmlToken) -> int | None:
        """Return where the last token of an element without an end tag may begin. None: the next block ends it."""
        if token.kind == "empty":
            return token.start
        if token.name == "pre":
            return len(self.text)
        if token.name in RAW_CONTENT or token.name in EMPTY or is_inline(token.name):
            return token.start
        return None

    def _end_block(self) -> None:
        """Make a segment of the text and the tags since the last block."""
        if not self._items:
            return
        source = "".join(self.text[item.start : item.end] for item in self._items if item.kind == "text")
        span = make_span(self.text, self._items, render_like(source))
        self._items.clear()
        if span:
            self.spans.append(span)

    def _attribute_spans(self, token: HtmlToken) -> Iterator[Span]:
        """Yield the attributes of a tag that are text for readers."""
        for name in _shown_attributes(self.text, token):
            attribute = (token.attributes or {}).get(name)
            if attribute is None or _TEMPLATE.search(_value(self.text, token, name)):
                continue
            references = references_of(self.text[attribute.start : attribute.end])
            quote = attribute.quote
            render = render_with(partial(_escape_value, references, quote)) if references else _RENDER_VALUE[quote]
            if attribute.quote:
                self._count_breaks(attribute)
                yield from divided_spans(self.text, attribute.start, attribute.end, _BREAKS, render, _texts)
                continue
            span = make_span(self.text, list(_texts(self.text, attribute.start, attribute.end)), render)  # gets quotes
            if span:
                yield span

    def _count_breaks(self, attribute: Attribute) -> None:
        """Count the line breaks of a value, each of which ends a text. Raise a DataError if the page has too many."""
        self._num_breaks += sum(1 for _ in _BREAKS.finditer(self.text, attribute.start, attribute.end))
        if self._num_breaks > MAX_TAGS:
            raise DataError(f"{self.name}: more than {MAX_TAGS:,} `&#10;` in attributes, the limit; split the page")


def _texts(text: str, start: int, end: int) -> Iterator[Item]:
    """Yield text without tags, and the references in it that stay."""
    for item in text_items(text, start, end):
        yield replace(item, text=_SPACES.sub(" ", item.text)) if item.kind == "text" else item


def _shown_attributes(text: str, token: HtmlToken) -> Sequence[str]:
    """Return the names of the attributes of a tag that are text for readers."""
    if token.name == "meta":
        described = _value(text, token, "name") or _value(text, token, "property")
        return ("content",) if described.lower() in SHOWN_META else ()
    if token.name in ("link", "style"):
        return ()
    if token.name == "input" and _value(text, token, "type").lower() in BUTTONS:
        return (*SHOWN_ATTRIBUTES, "value")
    if token.name in ("option", "optgroup", "track"):
        return (*SHOWN_ATTRIBUTES, "label")
    return SHOWN_ATTRIBUTES


def _value(text: str, token: HtmlToken, name: str) -> str:
    attribute = (token.attributes or {}).get(name)
    return unescape(text[attribute.start : attribute.end]) if attribute else ""


def _escape_value(references: dict[str, str], quote: str, text: str) -> str:
    """Escape the value of an attribute. One without quotes in the source gets quotes."""
    if quote == "'":
        return escape(text, {"'": "&#39;"} | references)
    escaped = escape(text, {'"': "&quot;"} | references)
    return escaped if quote else f'"{escaped}"'


_RENDER_VALUE = {quote: render_with(partial(_escape_value, {}, quote)) for quote in ("'", '"', "")}
"""Renders the value of an attribute whose source has no references, by its quotation mark. Shared to save memory."""


def _encoding(content: bytes) -> str:
    """Return the encoding of a page for Python's codecs: by its byte order mark, or as it declares, or UTF-8.

    The declaration of XML counts before `<meta>`.
    """
    marked = marked_encoding(content)
    if marked:
        return marked
    charset = _CHARSET.search(content[:_CHARSET_BYTES])
    name = declared_encoding(content) or (charset[1].decode("ascii").lower() if charset else "utf-8")
    if name.startswith("utf-16"):  # the declaration could not be read if this were so
        return "utf-8"
    try:
        candidates = _READ_AS.get(codecs.lookup(name).name, ())
    except LookupError:
        return name
    return next((encoding for encoding in candidates if _is_in(content, encoding)), name)


def _is_in(content: bytes, encoding: str) -> bool:
    try:
        content.decode(encoding)
    except UnicodeDecodeError:
        return False
    return True
