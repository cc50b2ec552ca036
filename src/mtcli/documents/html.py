"""HTML pages and parts of pages: the text of each block, and the attributes that are shown to readers."""

from __future__ import annotations

import codecs
import html
import re
from collections.abc import Iterator, Sequence
from functools import partial

from mtcli.data.safe_xml import decode_exactly
from mtcli.documents.escapes import escape, references_of
from mtcli.documents.format import Document, ReadOptions
from mtcli.documents.html_tokens import EMPTY, INLINE, NOT_TRANSLATED, RAW_CONTENT, Token, tokenize
from mtcli.documents.items import Item, MarkedDocument, MarkedSpan, encode_texts, make_span

SHOWN_ATTRIBUTES = ("alt", "title", "placeholder", "aria-label", "aria-description", "aria-placeholder")
"""Attributes that are text for readers, on any element except `<link>` and `<style>`."""
SHOWN_META = frozenset(
    [
        "description",
        "twitter:title",
        "twitter:description",
        "twitter:image:alt",
        "og:title",
        "og:description",
        "og:image:alt",
    ]
)
"""The `name` or `property` of `<meta>` whose `content` is text for readers."""
BUTTONS = frozenset(("submit", "button", "reset"))
_SPACES = re.compile(r"[ \t\n\f\r]+")
_TEMPLATE = re.compile(r"\{\{[^{}]*\}\}|\{%[^{}]*%\}|\{#[^{}]*#\}")
"""Tags of template languages such as Jinja and Django."""
_CHARSET = re.compile(rb"""<meta[^>]*?charset\s*=\s*["']?\s*([A-Za-z0-9._:-]+)""", re.IGNORECASE)
_CHARSET_BYTES = 1024
"""The standard looks for the encoding in this many bytes."""
_WESTERN = frozenset(["iso-8859-1", "latin1", "latin-1", "ascii", "us-ascii", "windows-1252", "cp1252"])


def read(content: bytes, options: ReadOptions) -> Document:
    """Read a page or a part of one.

    Raises:
        DataError: The bytes are not in the encoding that the page declares (UTF-8 unless it declares one).
    """
    encoding = _encoding(content)
    decoded = decode_exactly(content, encoding, options.name)
    text = decoded.removeprefix("\ufeff")
    mark = b"" if text == decoded else "\ufeff".encode(encoding)
    return MarkedDocument(text, encoding, html_spans(text), mark)


def html_spans(text: str) -> list[MarkedSpan]:
    """Return the places to translate in HTML."""
    return _Reader(text).spans


class _Reader:
    """Collects the text and the tags of each block."""

    def __init__(self, text: str):
        self.text = text
        self.spans: list[MarkedSpan] = []
        self._items: list[Item] = []
        self._tokens = list(tokenize(text))
        self._partners = _partners(self._tokens)
        index = 0
        while index < len(self._tokens):
            index = self._read(index)
        self._end_block()

    def _read(self, index: int) -> int:
        """Read a token, or an element that is not translated. Return the index of the next one."""
        token = self._tokens[index]
        if token.kind == "text" or (token.kind == "raw" and token.name == "title"):
            self._items.extend(self._text_items(token.start, token.end))
        elif token.kind in ("other", "raw"):
            self._items.append(Item(token.start, token.end, "point"))
        elif token.kind == "start" and self._is_skipped(token):
            return self._skip(index)
        else:
            self._tag(token)
        return index + 1

    def _tag(self, token: Token) -> None:
        if not _is_inline(token.name):
            self._end_block()
        elif token.name in EMPTY or self.text.endswith("/>", token.start, token.end):
            if token.name == "br" and self._follows("br", ""):
                self._end_block()  # two line breaks separate paragraphs
            self._items.append(Item(token.start, token.end, "point", name=token.name))
        elif token.kind == "start":
            if token.name == "a" and self._follows("a", "|·•"):
                while self._items[-1].kind == "text":
                    self._items.pop()
                self._end_block()  # a row of links is a list, not a sentence
            self._items.append(Item(token.start, token.end, "open", name=token.name))
        else:
            self._items.append(Item(token.start, token.end, "close", name=token.name))
        self.spans.extend(self._attribute_spans(token))

    def _follows(self, name: str, separators: str) -> bool:
        """Return True if this tag is the last one, and only white space or separators follow it."""
        for item in reversed(self._items):
            if item.kind != "text":
                return item.name == name and item.kind != "open"
            if item.text.strip(separators + " \xa0"):
                return False
        return False

    def _text_items(self, start: int, end: int) -> Iterator[Item]:
        """Yield the text, and the tags of template languages in it."""
        place = start
        for tag in _TEMPLATE.finditer(self.text, start, end):
            yield self._text_item(place, tag.start())
            yield Item(tag.start(), tag.end(), "point", word=tag[0].startswith("{{"))
            place = tag.end()
        yield self._text_item(place, end)

    def _text_item(self, start: int, end: int) -> Item:
        return Item(start, end, "text", _SPACES.sub(" ", html.unescape(self.text[start:end])))

    def _is_skipped(self, token: Token) -> bool:
        return token.name in NOT_TRANSLATED or self._is_protected(token)

    def _is_protected(self, token: Token) -> bool:
        """Return True if the page says that an element is not translated."""
        if self._value(token, "translate").lower() == "no":
            return True
        return "notranslate" in self._value(token, "class").split()

    def _skip(self, index: int) -> int:
        """Leave out an element that is not translated. Return the index of the token after it."""
        token = self._tokens[index]
        last = self._partners.get(index)
        if last is None:
            last = self._unclosed(index)
        inner = self._tokens[index + 1 : last]
        graphic = token.name in ("svg", "math")
        if graphic or (_is_inline(token.name) and all(_is_inline(part.name) for part in inner)):
            self._items.append(Item(token.start, self._tokens[last].end, "point", name=token.name, word=True))
        else:
            self._end_block()
        if not self._is_protected(token):
            self.spans.extend(self._attribute_spans(token))
        return last + 1

    def _unclosed(self, index: int) -> int:
        """Return the index of the last token of an element without an end tag."""
        name = self._tokens[index].name
        if name == "pre":
            return len(self._tokens) - 1
        if name in RAW_CONTENT or name in EMPTY or _is_inline(name):
            return index
        last = index
        while last + 1 < len(self._tokens) and _is_inline(self._tokens[last + 1].name):
            last += 1
        return last

    def _end_block(self) -> None:
        """Make a segment of the text and the tags since the last block."""
        source = "".join(self.text[item.start : item.end] for item in self._items if item.kind == "text")
        span = make_span(self.text, self._items, encode_texts(partial(escape, references_of(source))))
        self._items.clear()
        if span:
            self.spans.append(span)

    def _attribute_spans(self, token: Token) -> Iterator[MarkedSpan]:
        """Yield the attributes of a tag that are text for readers."""
        for name in self._shown_attributes(token):
            attribute = (token.attributes or {}).get(name)
            if attribute is None:
                continue
            references = references_of(self.text[attribute.start : attribute.end])
            item = self._text_item(attribute.start, attribute.end)
            span = make_span(self.text, [item], encode_texts(partial(_escape_value, references, attribute.quote)))
            if span and not _TEMPLATE.search(item.text):
                yield span

    def _shown_attributes(self, token: Token) -> Sequence[str]:
        if token.name == "meta":
            described = self._value(token, "name") or self._value(token, "property")
            return ("content",) if described.lower() in SHOWN_META else ()
        if token.name in ("link", "style"):
            return ()
        if token.name == "input" and self._value(token, "type").lower() in BUTTONS:
            return (*SHOWN_ATTRIBUTES, "value")
        if token.name in ("option", "optgroup", "track"):
            return (*SHOWN_ATTRIBUTES, "label")
        return SHOWN_ATTRIBUTES

    def _value(self, token: Token, name: str) -> str:
        attribute = (token.attributes or {}).get(name)
        return html.unescape(self.text[attribute.start : attribute.end]) if attribute else ""


def _is_inline(name: str) -> bool:
    """Return True for an element inside a sentence, and for what is not a tag."""
    return not name or name in INLINE or "-" in name


def _partners(tokens: Sequence[Token]) -> dict[int, int]:
    """Return the index of the end tag by the index of the start tag."""
    partners: dict[int, int] = {}
    unclosed: dict[str, list[int]] = {}
    for index, token in enumerate(tokens):
        if token.kind == "start":
            unclosed.setdefault(token.name, []).append(index)
        elif token.kind == "end" and unclosed.get(token.name):
            partners[unclosed[token.name].pop()] = index
    return partners


def _escape_value(references: dict[str, str], quote: str, text: str) -> str:
    """Escape the value of an attribute. One without quotes in the source gets quotes."""
    if quote == "'":
        return escape({"'": "&#39;"} | references, text)
    escaped = escape({'"': "&quot;"} | references, text)
    return escaped if quote else f'"{escaped}"'


def _encoding(content: bytes) -> str:
    """Return the encoding of a page for Python's codecs: by its byte order mark, or as it declares, or UTF-8."""
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16-le" if content.startswith(codecs.BOM_UTF16_LE) else "utf-16-be"
    declared = _CHARSET.search(content[:_CHARSET_BYTES])
    if declared is None or content.startswith(codecs.BOM_UTF8):
        return "utf-8"
    name = declared[1].decode("ascii").lower()
    if name in _WESTERN:
        return _western(content)
    return "utf-8" if name.startswith("utf-16") else name


def _western(content: bytes) -> str:
    """Return windows-1252, as browsers read ISO 8859-1 and ASCII; or ISO 8859-1, if a byte has no character in it."""
    try:
        content.decode("windows-1252")
    except UnicodeDecodeError:
        return "iso-8859-1"
    return "windows-1252"
