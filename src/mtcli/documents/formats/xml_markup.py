"""Text with inline elements in XML: places of elements, and their content as the items of a segment."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace

from mtcli.documents.formats.encoding import EncodedText
from mtcli.documents.formats.items import Item, text_items, texts_and_matches
from mtcli.text.safe_xml import Element, decode_xml, read_xml

_START_TAG = re.compile(r"""<(?P<name>[^\s/>]+)(?:[^>"']|"[^"]*"|'[^']*')*+>""")
_SPECIAL = re.compile(r"<!\[CDATA\[(?P<cdata>.*?)\]\]>|<!--.*?-->|<\?.*?\?>", re.DOTALL)
_LINE_BREAK = re.compile(r"(?:(?<![ \t])[ \t]++)?[\r\n][ \t\r\n]*+")

_REFERENCE = "&#(?:0*1[03]|x0*[aAdD]);"
_BREAK_REFERENCES = re.compile(f"(?:{_REFERENCE})+")
"""Line breaks that are written as references, which no editor of XML inserts or removes."""
_KEPT_BREAKS = re.compile(rf"(?:[\r\n][ \t]*+|{_REFERENCE})++")
"""All line breaks, in an element that keeps its white space."""


Classify = Callable[[Element, int, int], Item | None]
"""Returns the item of an inline element from a start to an end; None: it is a pair of tags around text."""


def parse_xml(content: bytes, name: str) -> tuple[EncodedText, Element]:
    """Return the text of an XML file and its outermost element. A byte-order mark is part of the text.

    Raises:
        DataError: See `decode_xml` and `read_xml`.
    """
    text, encoding = decode_xml(content, name)
    return EncodedText(text, encoding), read_xml(text, name)


def at_path(element: Element, *names: str) -> Iterator[Element]:
    """Yield the elements in an element to which a path of names leads, such as `body`, `tu`."""
    if not names:
        yield element
        return
    for child in element.elements(names[0]):
        yield from at_path(child, *names[1:])


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


def inline_items(text: str, element: Element, classify: Classify = lambda *_: None) -> Iterator[Item]:
    """Yield the text and the inline elements of an element's content.

    Args:
        text: The file.
        element: An element such as `<source>` or `<seg>`.
        classify: Returns the item of an inline element. Without it, all are pairs of tags.
    """
    yield from _content_items(text, element, classify, keeps_space(element))


def _content_items(text: str, element: Element, classify: Classify, keep: bool) -> Iterator[Item]:
    place, end = inside(text, element)
    for child in element.elements():
        yield from _text_items(text, place, child.start, keep)
        place = outside(text, child)[1]
        item = classify(child, child.start, place)
        if item:
            yield item
        elif is_empty_tag(text, child):
            yield Item(child.start, place, "point")
        else:
            name = f"pair {child.start}"
            yield Item(child.start, inside(text, child)[0], "open", name=name)
            yield from _content_items(text, child, classify, keep)
            yield Item(child.close, place, "close", name=name)
    yield from _text_items(text, place, end, keep)


def _text_items(text: str, start: int, end: int, keep: bool) -> Iterator[Item]:
    """Yield the text between two elements. A comment is markup, and the text of a CDATA section is text."""
    for first, last, special in texts_and_matches(_SPECIAL.finditer(text, start, end), start, end):
        if special is None:
            yield from _lines(text, first, last, keep)
        elif special["cdata"] is None:
            yield Item(first, last, "point")
        else:
            yield Item(first, last, "text", special["cdata"])


def _lines(text: str, start: int, end: int, keep: bool) -> Iterator[Item]:
    """Yield text, and as markup the line breaks that belong to it."""
    breaks = _KEPT_BREAKS if keep else _BREAK_REFERENCES
    for first, last, line_break in texts_and_matches(breaks.finditer(text, start, end), start, end):
        if line_break:
            yield Item(first, last, "point")
            continue
        for item in text_items(text, first, last):
            is_flat = item.kind == "text" and not keep
            yield replace(item, text=_LINE_BREAK.sub(" ", item.text)) if is_flat else item
