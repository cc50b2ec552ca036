"""Text with inline elements in XML: places of elements, and their content as the items of a segment."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from mtcli.documents.formats.items import Item, text_items
from mtcli.text.safe_xml import Element

_START_TAG = re.compile(r"""<(?P<name>[^\s/>]+)(?:[^>"']|"[^"]*"|'[^']*')*+>""")
_SPECIAL = re.compile(r"<!\[CDATA\[(?P<cdata>.*?)\]\]>|<!--.*?-->|<\?.*?\?>", re.DOTALL)
_LINE_BREAK = re.compile(r"(?:(?<![ \t])[ \t]++)?[\r\n][ \t\r\n]*+")

_REFERENCE = "&#(?:0*1[03]|x0*[aAdD]);"
_BREAK_REFERENCES = re.compile(f"(?:{_REFERENCE})+")
"""Line breaks that are written as references, which no editor of XML inserts or removes."""
_KEPT_BREAKS = re.compile(rf"(?:[\r\n][ \t]*+|{_REFERENCE})++")
"""All line breaks, in an element that keeps its white space."""


@dataclass(frozen=True, slots=True)
class InlineRole:
    """What an element in the text of a segment is."""

    kind: Literal["pair", "open", "close", "point", "text"]
    """A pair of tags around text, one of two elements that belong together, markup without a partner, or text."""
    name: str = ""
    """The same for two elements that belong together."""
    word: bool = False
    """See `Item`, also for those below."""
    text: str = ""
    raw: str = ""
    has_spans: bool = False
    is_dropped: bool = False


Classify = Callable[[Element], InlineRole]
"""Returns the role of an inline element."""


def tag_name(text: str, element: Element) -> str:
    """Return the name of an element as the file has it, with the prefix of its namespace."""
    return _start_tag(text, element)["name"]


def inside(text: str, element: Element) -> tuple[int, int]:
    """Return the place of an element's content; for an element without an end tag, the place after it, twice."""
    return (_start_tag(text, element).end(), element.close)


def outside(text: str, element: Element) -> tuple[int, int]:
    """Return the place of an element with its tags."""
    if is_empty_tag(text, element):
        return (element.start, element.close)
    return (element.start, text.index(">", element.close) + 1)


def is_empty_tag(text: str, element: Element) -> bool:
    """Return True for an element such as `<x/>`, without an end tag."""
    return _start_tag(text, element)[0].endswith("/>")


def _start_tag(text: str, element: Element) -> re.Match[str]:
    found = _START_TAG.match(text, element.start)
    assert found is not None, "the parser has found an element here"
    return found


def indentation(text: str, place: int) -> str:
    """Return the line break and the white space before a place, if nothing else is between them."""
    start = place
    while start and text[start - 1] in " \t":
        start -= 1
    if start and text[start - 1] == "\n":
        start -= 1
        if start and text[start - 1] == "\r":
            start -= 1
        return text[start:place]
    return ""


def keeps_space(element: Element | None) -> bool:
    """Return True if the white space in an element is part of its text (`xml:space="preserve"`)."""
    while element:
        if "space" in element.attributes:
            return element.attributes["space"] == "preserve"
        element = element.parent
    return False


def inline_items(text: str, element: Element, classify: Classify) -> Iterator[Item]:
    """Yield the text and the inline elements of an element's content.

    Args:
        text: The file.
        element: An element such as `<source>` or `<seg>`.
        classify: Returns the role of an inline element.
    """
    yield from _content_items(text, element, classify, keeps_space(element))


def _content_items(text: str, element: Element, classify: Classify, keep: bool) -> Iterator[Item]:
    place, end = inside(text, element)
    for child in element.elements():
        yield from _text_items(text, place, child.start, keep)
        place = outside(text, child)[1]
        role = classify(child)
        if role.kind == "pair" and not is_empty_tag(text, child):
            start, close = inside(text, child)
            name = f"pair {child.start}"
            yield Item(child.start, start, "open", name=name, is_dropped=role.is_dropped)
            yield from _content_items(text, child, classify, keep)
            yield Item(close, place, "close", name=name, is_dropped=role.is_dropped)
        else:
            kind = "point" if role.kind == "pair" else role.kind
            yield Item(
                child.start,
                place,
                kind,
                role.text,
                role.name,
                role.word,
                role.raw,
                role.has_spans,
                role.is_dropped,
            )
    yield from _text_items(text, place, end, keep)


def _text_items(text: str, start: int, end: int, keep: bool) -> Iterator[Item]:
    """Yield the text between two elements. A comment is markup, and the text of a CDATA section is text."""
    place = start
    for special in _SPECIAL.finditer(text, start, end):
        yield from _lines(text, place, special.start(), keep)
        place = special.end()
        if special["cdata"] is None:
            yield Item(special.start(), place, "point")
        else:
            yield Item(special.start(), place, "text", special["cdata"])
    yield from _lines(text, place, end, keep)


def _lines(text: str, start: int, end: int, keep: bool) -> Iterator[Item]:
    """Yield text, and as markup the line breaks that belong to it."""
    place = start
    for line_break in (_KEPT_BREAKS if keep else _BREAK_REFERENCES).finditer(text, start, end):
        yield from _texts(text, place, line_break.start(), keep)
        yield Item(line_break.start(), line_break.end(), "point")
        place = line_break.end()
    yield from _texts(text, place, end, keep)


def _texts(text: str, start: int, end: int, keep: bool) -> Iterator[Item]:
    for item in text_items(text, start, end):
        is_flat = item.kind == "text" and not keep
        yield replace(item, text=_LINE_BREAK.sub(" ", item.text)) if is_flat else item
