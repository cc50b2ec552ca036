"""XLIFF 1.2 and 2: the targets of units that have none.

A target is kept unless it is empty or its state says that it needs a translation. New and filled targets of XLIFF 1.2
have the state `needs-review-translation` and the qualifier `mt-suggestion`, which stands for machine translation.

The confidence of a translation is the `match-quality` of a suggestion beside the target (`alt-trans`) in XLIFF 1.2, the
only element that has it there. In XLIFF 2 it is the MT Confidence of ITS 2.0, on a marker around the target.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from mtcli.corpus.readers.xml_pairs import UNTRANSLATED_STATES
from mtcli.documents.formats.bilingual import (
    BilingualUnit,
    RatedSlotDocument,
    check_language,
    fill,
    is_filled,
    language_tag,
    make_unit,
)
from mtcli.documents.formats.encoding import EncodedText
from mtcli.documents.formats.format import Document, ReadOptions
from mtcli.documents.formats.slots import Edit
from mtcli.documents.formats.structure import tree_structure
from mtcli.documents.formats.xml_markup import InlineRole, indentation, inside, is_empty_tag, outside, tag_name
from mtcli.errors import DataError
from mtcli.text.safe_xml import Element, decode_xml, read_xml

NEW_TARGET = {"state": "needs-review-translation", "state-qualifier": "mt-suggestion"}
"""Attributes of a target of XLIFF 1.2 that a model has written."""
ORIGIN = "mtcli"
"""The origin of suggestions and markers with a confidence."""
_START_OF_TARGET = re.compile(r"(?P<space>\s*)<(?P<prefix>(?:[^\s<>/:]+:)?)target\b")
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
    text, encoding = decode_xml(content, options.name)
    root = read_xml(text, options.name)
    if root.name != "xliff":
        raise DataError(f"{options.name}: not XLIFF: its outermost element is <{root.name}>")
    reader = _Reader2 if root.attributes.get("version", "").startswith("2") else _Reader1
    return reader(text, root, options).document(encoding)


def structure(content: bytes, options: ReadOptions) -> int:
    """Return a hash of all elements but targets and suggestions of mtcli, see `format.Structure`."""
    text, _ = decode_xml(content, options.name)
    root = read_xml(text, options.name)
    return tree_structure(root, without=_is_written, changing=_CHANGING)


def _is_written(element: Element) -> bool:
    """Return True for an element that a translation adds or changes."""
    return element.name == "target" or (element.name == "alt-trans" and element.attributes.get("origin") == ORIGIN)


class _Reader1:
    """Reads XLIFF 1.x.

    Args:
        text: The file.
        root: Its outermost element.
        options: Options of the reader.
    """

    unit_name = "trans-unit"
    languages_at = "file"
    source_language = "source-language"
    target_language = "target-language"

    def __init__(self, text: str, root: Element, options: ReadOptions):
        self.text = text
        self.root = root
        self.options = options

    def document(self, encoding: str) -> RatedSlotDocument:
        """Return the document."""
        declarations: list[Edit] = []
        for element in [self.root, *self.root.elements("file")]:
            if element.name == self.languages_at:
                declarations.extend(self._languages(element))
        units = list(self._units(self.root, translate=True))
        for number, unit in enumerate(units, 1):
            unit.place_rated = partial(self._place_rated, unit.place, number)
        return RatedSlotDocument(EncodedText(self.text, encoding), units, declarations)

    def _languages(self, element: Element) -> Iterator[Edit]:
        """Check the languages, and yield the missing attribute for the target language."""
        check_language(self.options.name, element, self.source_language, self.options.src, "source")
        check_language(self.options.name, element, self.target_language, self.options.tgt, "target")
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
        if target is not None:
            place = partial(self._fill, element, target)
        else:
            last = next(element.elements("seg-source"), source)
            place = partial(self._insert, last)
        sentences = next(element.elements("seg-source"), source)
        return make_unit(self.text, sentences, _classify, place)

    def _is_final(self, element: Element, target: Element) -> bool:
        """Return True if the text of a target is a translation to keep."""
        approved = element.attributes.get("approved") == "yes"
        return approved or target.attributes.get("state") not in UNTRANSLATED_STATES

    def _fill(self, element: Element, target: Element, content: str) -> Sequence[Edit]:
        """Return the edits for an existing target."""
        start_tag = self.text[target.start : inside(self.text, target)[0]]
        for name, value in NEW_TARGET.items():
            start_tag = _with_attribute(start_tag, name, value)
        return [fill(self.text, target, start_tag, content)]

    def _insert(self, source: Element, content: str) -> Sequence[Edit]:
        """Return the edits for a new target after the source."""
        name = self._target_name(source)
        attributes = "".join(f' {key}="{value}"' for key, value in NEW_TARGET.items())
        return [self._new_target(source, f"<{name}{attributes}>{content}</{name}>")]

    def _place_rated(
        self, place: Callable[[str], Sequence[Edit]], number: int, content: str, confidence: float
    ) -> Sequence[Edit]:
        """Return the edits for a target with a confidence.

        Args:
            place: Returns the edits for the target, of which the last one writes it.
            number: Number of the unit.
            content: Of the target.
            confidence: 0 to 100.
        """
        *before, last = place(content)
        target = _START_OF_TARGET.match(last.content)
        assert target is not None, "the last edit writes the target"
        space, prefix = target.groups()
        suggestion = (
            f'<{prefix}alt-trans match-quality="{confidence:.0f}%" origin="{ORIGIN}">'
            f"<{prefix}target>{content}</{prefix}target></{prefix}alt-trans>"
        )
        return [*before, last._replace(content=last.content + space + suggestion)]

    def _new_target(self, source: Element, target: str) -> Edit:
        place = outside(self.text, source)[1]
        return Edit(place, place, indentation(self.text, source.start) + target)

    def _target_name(self, source: Element) -> str:
        prefix, colon, _ = tag_name(self.text, source).rpartition(":")
        return f"{prefix}{colon}target"


class _Reader2(_Reader1):
    """Reads XLIFF 2.x, where each segment of a unit has a source and a target."""

    unit_name = "segment"
    languages_at = "xliff"
    source_language = "srcLang"
    target_language = "trgLang"

    def _is_final(self, element: Element, target: Element) -> bool:
        return element.attributes.get("state") not in UNTRANSLATED_STATES

    def _fill(self, element: Element, target: Element, content: str) -> Sequence[Edit]:
        start_tag = self.text[target.start : inside(self.text, target)[0]]
        return [*self._translated(element), fill(self.text, target, start_tag, content)]

    def _insert(self, source: Element, content: str) -> Sequence[Edit]:
        name = self._target_name(source)
        assert source.parent is not None
        return [*self._translated(source.parent), self._new_target(source, f"<{name}>{content}</{name}>")]

    def _place_rated(
        self, place: Callable[[str], Sequence[Edit]], number: int, content: str, confidence: float
    ) -> Sequence[Edit]:
        *_, last = place(content)
        target = _START_OF_TARGET.match(last.content)
        assert target is not None, "the last edit writes the target"
        marker = f"{target['prefix']}mrk"
        attributes = (
            f'id="{ORIGIN}-{number}" type="its:generic" xmlns:its="http://www.w3.org/2005/11/its" '
            f'its:mtConfidence="{confidence / 100:.2f}" its:annotatorsRef="mt-confidence|{ORIGIN}"'
        )
        return place(f"<{marker} {attributes}>{content}</{marker}>")

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


def _classify(element: Element) -> InlineRole:
    """Return the role of an inline element of XLIFF."""
    attributes = element.attributes
    protected = attributes.get("translate") == "no" or attributes.get("mtype") == "protected"
    if element.name in _PAIRS and not protected:
        return InlineRole("pair")
    if element.name in _OPENING:
        return InlineRole("open", attributes.get("rid") or attributes.get("id", ""))
    if element.name in _CLOSING:
        return InlineRole("close", attributes.get("startRef") or attributes.get("rid") or attributes.get("id", ""))
    return InlineRole("point", word=True)
