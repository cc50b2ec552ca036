"""The units of TMX, the format of translation memories, and of XLIFF 1.2 and 2, that of translation tools.

A unit holds a text in two or more languages. Inline tags are removed, as other tools that train on these formats do:
formatting codes with their content, tags around text without it. Memory does not grow with the size of the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from mtcli.corpus.readers.safe_xml import Element, iterate_elements
from mtcli.errors import DataError

CODES = frozenset({"bpt", "ept", "it", "ph", "ut"})
"""Inline elements whose content is a code of the original format, not text."""
UNTRANSLATED_STATES = frozenset({"new", "needs-translation", "needs-l10n", "initial"})
"""States of a target of XLIFF 1.2, and of a segment of XLIFF 2, whose text is not a translation yet."""


class Segment(NamedTuple):
    """The text of a unit in one language."""

    language: str
    """As the file writes it; empty if it names none."""
    text: str
    has_tags: bool = False
    """Inline tags were removed."""


class Unit(NamedTuple):
    """A text in several languages."""

    line: int
    segments: list[Segment]
    is_untranslated: bool = False
    """Its state says that the target is not a translation yet."""


def tmx_units(file: BinaryIO, name: str, source_languages: list[str] | None = None) -> Iterator[Unit]:
    """Read the units of a TMX.

    Args:
        file: The document.
        name: The name of the file in messages.
        source_languages: Receives the `srclang` of the header.

    Raises:
        DataError: The document is not TMX, or not safe (see `safe_xml`).
    """
    for element in _elements(file, name, "tmx", {"header", "tu"}):
        if element.name == "header":
            if source_languages is not None:
                source_languages.append(element.attributes.get("srclang", ""))
            continue
        segments = []
        for variant in element.elements("tuv"):
            language = variant.attributes.get("lang", "")
            segments += [_segment(seg, language) for seg in variant.elements("seg")]
        yield Unit(element.line, segments)


def xliff_units(file: BinaryIO, name: str, default_languages: tuple[str, str]) -> Iterator[Unit]:
    """Read the units of XLIFF: each `trans-unit` of version 1.2, each `segment` of version 2.

    Suggestions (`alt-trans`) are not read.

    Args:
        file: The document.
        name: The name of the file in messages.
        default_languages: The languages of a file that names none.

    Raises:
        DataError: The document is not XLIFF, or not safe (see `safe_xml`).
    """
    for element in _elements(file, name, "xliff", {"trans-unit", "segment"}):
        languages = _declared_languages(element, default_languages)
        state = element.attributes.get("state", "")
        segments = []
        for side, language in zip(("source", "target"), languages, strict=True):
            for found in element.elements(side):
                if found.namespace == element.namespace:
                    state = found.attributes.get("state", state)
                    segments.append(_segment(found, language))
        yield Unit(element.line, segments, is_untranslated=state in UNTRANSLATED_STATES)


def _declared_languages(element: Element, default_languages: tuple[str, str]) -> tuple[str, str]:
    """Return the languages that the elements around an element declare."""
    source, target = default_languages
    for outer in reversed(_ancestors(element)):
        source = outer.attributes.get("srcLang") or outer.attributes.get("source-language") or source
        target = outer.attributes.get("trgLang") or outer.attributes.get("target-language") or target
    return source, target


def _elements(file: BinaryIO, name: str, root: str, wanted: set[str]) -> Iterator[Element]:
    """Read the wanted elements of a document.

    Raises:
        DataError: The root element has another name, or the document has no such elements.
    """
    element = None
    for element in iterate_elements(file, name, wanted):
        found = _ancestors(element)[-1].name
        if found != root:
            raise DataError(f"{name}: its root element is {found!r}, not {root!r}; rename the file")
        yield element
    if element is None:
        raise DataError(f"{name}: is not {root.upper()}, or has no {' or '.join(sorted(wanted))} element")


def _ancestors(element: Element) -> list[Element]:
    """Return the element and those around it, from the inside to the root."""
    found = []
    current: Element | None = element
    while current is not None and current.parent is not None:  # the parent of the root stands for the document
        found.append(current)
        current = current.parent
    return found


def _segment(element: Element, language: str) -> Segment:
    """Return the text of an element without inline tags."""
    has_tags = any(True for _ in element.elements())
    text = "".join(_text_without_codes(element)) if has_tags else element.text()
    return Segment(language, text, has_tags)


def _text_without_codes(element: Element) -> Iterator[str]:
    """Yield the parts of the text of an element, without those in codes. A line break is a space."""
    for child in element.children:
        if isinstance(child, str):
            yield child
            continue
        if "lb" in (child.attributes.get("ctype"), child.attributes.get("type")):
            yield " "
        if child.name not in CODES:
            yield from _text_without_codes(child)
