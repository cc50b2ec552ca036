"""XML files with a place for each translation beside its source, as XLIFF and TMX have it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mtcli.documents.formats.encoding import EncodedText
from mtcli.documents.formats.escapes import render_like
from mtcli.documents.formats.items import make_span
from mtcli.documents.formats.slots import Copy, Edit, SlotDocument, Span
from mtcli.documents.formats.xml_markup import Classify, indentation, inline_items, inside, outside
from mtcli.documents.markup.inline import Inline, merged
from mtcli.text.safe_xml import Element

Place = Callable[[str, float | None], Sequence[Edit]]
"""Returns the edits that write a translation into the file, in its order, given the XML and the confidence.

The confidence is 0 to 100, or None. A file may have no place for it.
"""


@dataclass
class BilingualUnit:
    """A source without a translation; see `slots.Slot`."""

    span: Span
    """The text of the source."""
    before: str
    """White space and tags of the source before what is translated. The translation gets them too."""
    after: str
    place: Place
    confidence: float | None = None
    """Of the translation that will be written."""

    @property
    def segment(self) -> Inline:
        """The source."""
        return self.span.segment

    def edits(self, translation: Inline, copy: Copy) -> Sequence[Edit]:
        """See `Slot.edits`. A translation that is the same as the source is written as it is there."""
        is_same = merged(translation) == self.segment
        content = copy(self.span.start, self.span.end) if is_same else self.span.render(translation, {})
        return self.place(self.before + content + self.after, self.confidence)


class RatedSlotDocument(SlotDocument):
    """A document of bilingual units; see `format.RatedDocument`."""

    has_place_for_confidence = True

    def __init__(self, source: EncodedText, units: Sequence[BilingualUnit], declarations: Sequence[Edit] = ()):
        super().__init__(source, units, declarations)
        self._units = units

    def rate(self, confidences: Sequence[float | None]) -> None:
        """See `format.RatedDocument.rate`."""
        for unit, confidence in zip(self._units, confidences, strict=True):
            unit.confidence = confidence


def make_unit(text: str, source: Element, classify: Classify, place: Place) -> BilingualUnit | None:
    """Make a unit of an element with text; None if there is no letter in it.

    Args:
        text: The file.
        source: The element with the text in the source language.
        classify: See `inline_items`.
        place: Writes the translation.
    """
    start, end = inside(text, source)
    span = make_span(text, list(inline_items(text, source, classify)), render_like(text[start:end]))
    if span is None:
        return None
    return BilingualUnit(span, text[start : span.start], text[span.end : end], place)


def is_filled(text: str, element: Element) -> bool:
    """Return True if an element has text or inline elements, so that it is a translation."""
    start, end = inside(text, element)
    return bool(text[start:end].strip())


def fill(text: str, element: Element, start_tag: str, content: str) -> Edit:
    """Return the edit that gives an element this start tag and content.

    Args:
        text: The file.
        element: The element.
        start_tag: Its start tag; it may be one of an empty element, `<x/>`.
        content: XML.
    """
    start, end = outside(text, element)
    opening = start_tag.removesuffix(">").removesuffix("/").rstrip()
    name = opening[1:].split(maxsplit=1)[0]
    return Edit(start, end, f"{opening}>{content}</{name}>")


def insert_after(text: str, element: Element, content: str) -> Edit:
    """Return the edit that adds another element after one, with the same indentation."""
    place = outside(text, element)[1]
    return Edit(place, place, indentation(text, element.start) + content)


def language_tag(code: str) -> str:
    """Return the code of a language as XML has it: `zh-CN` for `zh_CN`."""
    return code.replace("_", "-")
