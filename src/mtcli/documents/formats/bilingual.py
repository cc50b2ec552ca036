"""XML files with a place for each translation beside its source, as XLIFF and TMX have it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from mtcli.documents.formats.encoding import EncodedText
from mtcli.documents.formats.escapes import escape, references_of
from mtcli.documents.formats.items import make_span
from mtcli.documents.formats.slots import Copy, Edit, SlotDocument, Span, render_with
from mtcli.documents.formats.xml_markup import Classify, inline_items, inside, outside
from mtcli.documents.markup.inline import Inline, merged
from mtcli.errors import DataError
from mtcli.text import languages
from mtcli.text.safe_xml import Element


@dataclass
class BilingualUnit:
    """A source without a translation; see `slots.Slot`."""

    span: Span
    """The text of the source."""
    before: str
    """White space and tags of the source before what is translated. The translation gets them too."""
    after: str
    place: Callable[[str], Sequence[Edit]]
    """Returns the edits that write a translation into the file, in the order of the file."""
    place_rated: Callable[[str, float], Sequence[Edit]] | None = None
    """The same for a translation with a confidence; None: the file has no place for it."""
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
        content = self.before + content + self.after
        if self.confidence is not None and self.place_rated is not None:
            return self.place_rated(content, self.confidence)
        return self.place(content)


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


def make_unit(
    text: str, source: Element, classify: Classify, place: Callable[[str], Sequence[Edit]]
) -> BilingualUnit | None:
    """Make a unit of an element with text; None if there is no letter in it.

    Args:
        text: The file.
        source: The element with the text in the source language.
        classify: See `inline_items`.
        place: See `BilingualUnit`.
    """
    start, end = inside(text, source)
    escape_text = partial(escape, references_of(text[start:end]))
    span = make_span(text, list(inline_items(text, source, classify)), render_with(escape_text))
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


def language_tag(code: str) -> str:
    """Return the code of a language as XML has it: `zh-CN` for `zh_CN`."""
    return code.replace("_", "-")


def check_language(name: str, element: Element, attribute: str, code: str, role: str) -> None:
    """Check the language that a file declares against that of the model, if both are known.

    Raises:
        DataError: They differ.
    """
    declared = element.attributes.get(attribute, "")
    found = languages.base(declared)
    wanted = languages.base(code)
    if found and wanted and found != wanted:
        raise DataError(
            f"{name}, line {element.line}: {attribute} is {declared!r}, but the {role} language of the model is "
            f"{code!r}; use a model for these languages"
        )
