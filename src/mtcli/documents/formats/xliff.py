"""XLIFF 1.2 and 2: the targets of units that have none.

A target is kept unless it is empty or its state says that it needs a translation. New and filled targets of XLIFF 1.2
have the state `needs-review-translation` and the qualifier `mt-suggestion`, which stands for machine translation.

The confidence of a translation is the `match-quality` of a suggestion beside the target (`alt-trans`) in XLIFF 1.2, the
only element that has it there. In XLIFF 2 it is the MT Confidence of ITS 2.0, on a marker around the target.
"""

import re
from collections.abc import Iterator, Sequence
from functools import partial

from mtcli.corpus.readers.xml_pairs import UNTRANSLATED_STATES
from mtcli.documents.formats.bilingual import (
    BilingualUnit,
    RatedSlotDocument,
    fill,
    insert_after,
    is_filled,
    language_tag,
    make_unit,
)
from mtcli.documents.formats.encoding import EncodedText
from mtcli.documents.formats.format import Document, ReadOptions
from mtcli.documents.formats.items import Item
from mtcli.documents.formats.slots import Edit
from mtcli.documents.formats.structure import tree_structure
from mtcli.documents.formats.xml_markup import indentation, inside, is_empty_tag, parse_xml, tag_name
from mtcli.errors import DataError
from mtcli.text import languages
from mtcli.text.safe_xml import Element

NEW_TARGET = {"state": "needs-review-translation", "state-qualifier": "mt-suggestion"}
"""Attributes of a target of XLIFF 1.2 that a model has written."""
ORIGIN = "mtcli"
"""The origin of suggestions and markers with a confidence."""
_CHANGING = frozenset({"state", "subState", "target-language", "trgLang"})
_PAIRS = frozenset({"g", "mrk", "pc"})
_OPENING = frozenset({"bx", "bpt", "sc", "sm"})
_CLOSING = frozenset({"ex", "ept", "ec", "em"})
_ATTRIBUTE = re.compile(r"""\s(?P<name>[^\s=/>]+)\s*=\s*(?P<value>"[^"]*"|'[^']*')""")
"""An attribute of a start tag; found from left to right, none is in the value of another."""


def read(content: bytes, options: ReadOptions) -> Document:
    """Read an XLIFF file.

    Raises:
        DataError: The file is not well-formed or not XLIFF, declares entities, or is for other languages.
    """
    source, root = parse_xml(content, options.name)
    if root.name != "xliff":
        raise DataError(f"{options.name}: not XLIFF: its outermost element is <{root.name}>")
    reader = _Reader2 if root.attributes.get("version", "").startswith("2") else _Reader1
    return reader(source, root, options).document()


def structure(content: bytes, options: ReadOptions) -> int:
    """Return a hash of all elements but targets and suggestions of mtcli, see `format.Structure`."""
    _, root = parse_xml(content, options.name)
    return tree_structure(root, without=_is_written, changing=_CHANGING)


def _is_written(element: Element) -> bool:
    """Return True for an element that a translation adds or changes."""
    return element.name == "target" or (element.name == "alt-trans" and element.attributes.get("origin") == ORIGIN)


class _Reader1:
    """Reads XLIFF 1.x."""

    unit_name = "trans-unit"
    languages_at = "file"
    source_language = "source-language"
    target_language = "target-language"

    def __init__(self, source: EncodedText, root: Element, options: ReadOptions):
        self.source = source
        self.text = source.text
        self.root = root
        self.options = options
        self._num_units = 0

    def document(self) -> RatedSlotDocument:
        """Return the document."""
        declarations: list[Edit] = []
        for element in [self.root, *self.root.elements("file")]:
            if element.name == self.languages_at:
                declarations.extend(self._languages(element))
        return RatedSlotDocument(self.source, list(self._units(self.root, translate=True)), declarations)

    def _languages(self, element: Element) -> Iterator[Edit]:
        """Check the languages, and yield the missing attribute for the target language."""
        source = (self.source_language, self.options.src, "source")
        target = (self.target_language, self.options.tgt, "target")
        for attribute, code, role in (source, target):
            declared = element.attributes.get(attribute, "")
            found = languages.base(declared)
            wanted = languages.base(code)
            if found and wanted and found != wanted:
                raise DataError(
                    f"{self.options.name}, line {element.line}: {attribute} is {declared!r}, but the {role} language "
                    f"of the model is {code!r}; use a model for these languages"
                )
        if self.target_language not in element.attributes:
            start_tag_end = inside(self.text, element)[0] - (2 if is_empty_tag(self.text, element) else 1)
            yield Edit(start_tag_end, start_tag_end, f' {self.target_language}="{language_tag(self.options.tgt)}"')

    def _units(self, element: Element, translate: bool) -> Iterator[BilingualUnit]:
        """Yield the units without a translation in an element."""
        translate = element.attributes.get("translate", "yes" if translate else "no") != "no"
        if element.name == self.unit_name:
            unit = self._unit(element) if translate else None
            if unit:
                yield unit
            return
        for child in element.elements():
            yield from self._units(child, translate)

    def _unit(self, element: Element) -> BilingualUnit | None:
        """Return the unit of an element with a source, or None if it has a translation."""
        source = next(element.elements("source"), None)
        target = next(element.elements("target"), None)
        if source is None or (target is not None and is_filled(self.text, target) and self._is_final(element, target)):
            return None
        sentences = next(element.elements("seg-source"), source)
        place = partial(self._place, element, sentences, target, self._num_units + 1)
        unit = make_unit(self.text, sentences, _classify, place)
        self._num_units += unit is not None
        return unit

    def _is_final(self, element: Element, target: Element) -> bool:
        """Return True if the text of a target is a translation to keep."""
        approved = element.attributes.get("approved") == "yes"
        return approved or target.attributes.get("state") not in UNTRANSLATED_STATES

    def _place(
        self,
        unit: Element,
        source: Element,
        target: Element | None,
        number: int,
        content: str,
        confidence: float | None,
    ) -> Sequence[Edit]:
        """Return the edits for the target of a unit, which has one or gets one after its source; see `Place`."""
        start_tag = self._start_tag(source, target)
        for name, value in NEW_TARGET.items():
            start_tag = _with_attribute(start_tag, name, value)
        edit = self._write_target(source, target, start_tag, content)
        if confidence is None:
            return [edit]
        prefix = self._prefix(target or source)
        suggestion = (
            f'<{prefix}alt-trans match-quality="{confidence:.0f}%" origin="{ORIGIN}">'
            f"<{prefix}target>{content}</{prefix}target></{prefix}alt-trans>"
        )
        space = "" if target else indentation(self.text, source.start)
        return [edit._replace(content=edit.content + space + suggestion)]

    def _start_tag(self, source: Element, target: Element | None) -> str:
        """Return the start tag of a target, or that of a new one."""
        if target:
            return self.text[target.start : inside(self.text, target)[0]]
        return f"<{self._prefix(source)}target>"

    def _write_target(self, source: Element, target: Element | None, start_tag: str, content: str) -> Edit:
        """Return the edit that writes a target."""
        if target:
            return fill(self.text, target, start_tag, content)
        return insert_after(self.text, source, f"{start_tag}{content}</{self._prefix(source)}target>")

    def _prefix(self, element: Element) -> str:
        """Return the prefix of the namespace of an element, such as `x:`."""
        return tag_name(self.text, element).removesuffix(element.name)


class _Reader2(_Reader1):
    """Reads XLIFF 2.x, where each segment of a unit has a source and a target."""

    unit_name = "segment"
    languages_at = "xliff"
    source_language = "srcLang"
    target_language = "trgLang"

    def _is_final(self, element: Element, target: Element) -> bool:
        return element.attributes.get("state") not in UNTRANSLATED_STATES

    def _place(
        self,
        unit: Element,
        source: Element,
        target: Element | None,
        number: int,
        content: str,
        confidence: float | None,
    ) -> Sequence[Edit]:
        if confidence is not None:
            marker = f"{self._prefix(target or source)}mrk"
            attributes = (
                f'id="{ORIGIN}-{number}" type="its:generic" xmlns:its="http://www.w3.org/2005/11/its" '
                f'its:mtConfidence="{confidence / 100:.2f}" its:annotatorsRef="mt-confidence|{ORIGIN}"'
            )
            content = f"<{marker} {attributes}>{content}</{marker}>"
        edit = self._write_target(source, target, self._start_tag(source, target), content)
        return [*self._translated(unit), edit]

    def _translated(self, segment: Element) -> Iterator[Edit]:
        """Yield the edit that changes the state of a segment, if it says that there is no translation.

        Its `subState` tells more about the old state, so the standard wants it deleted.
        """
        if segment.attributes.get("state") in UNTRANSLATED_STATES:
            end = inside(self.text, segment)[0]
            start_tag = _without_attribute(self.text[segment.start : end], "subState")
            yield Edit(segment.start, end, _with_attribute(start_tag, "state", "translated"))


def _with_attribute(start_tag: str, name: str, value: str) -> str:
    """Return a start tag in which an attribute has this value."""
    for attribute in _ATTRIBUTE.finditer(start_tag):
        if attribute["name"] == name:
            return f'{start_tag[: attribute.start("value")]}"{value}"{start_tag[attribute.end("value") :]}'
    opening = start_tag.removesuffix(">").removesuffix("/").rstrip()
    return f'{opening} {name}="{value}"{start_tag[len(opening) :]}'


def _without_attribute(start_tag: str, name: str) -> str:
    """Return a start tag without an attribute."""
    for attribute in _ATTRIBUTE.finditer(start_tag):
        if attribute["name"] == name:
            return start_tag[: attribute.start()].rstrip() + start_tag[attribute.end() :]
    return start_tag


def _classify(element: Element, start: int, end: int) -> Item | None:
    """Return the item of an inline element of XLIFF, see `xml_markup.Classify`."""
    attributes = element.attributes
    protected = attributes.get("translate") == "no" or attributes.get("mtype") == "protected"
    if element.name in _PAIRS and not protected:
        return None
    name = attributes.get("rid") or attributes.get("id", "")
    if element.name in _OPENING:
        return Item(start, end, "open", name=name)
    if element.name in _CLOSING:
        return Item(start, end, "close", name=attributes.get("startRef") or name)
    return Item(start, end, "point", word=True)
