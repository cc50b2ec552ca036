"""Pairs from TMX, the format of translation memories, and from XLIFF 1.2 and 2, that of translation tools.

A unit holds a text in two or more languages; those with both languages are pairs. Inline tags are removed, as other
tools that train on these formats do: formatting codes with their content, tags around text without it. Memory does not
grow with the size of the file.
"""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple, cast

from mtcli.corpus.readers.tables import NumberedRow, line_break_notice
from mtcli.errors import DataError
from mtcli.runtime.wording import counted
from mtcli.text.languages import base, same
from mtcli.text.lines import Counts, open_bytes
from mtcli.text.safe_xml import Element, iterate_elements

CODES = frozenset({"bpt", "ept", "it", "ph", "ut"})
"""Inline elements whose content is a code of the original format, not text."""
UNTRANSLATED_STATES = frozenset({"new", "needs-translation", "needs-l10n", "initial"})
"""States of a target of XLIFF 1.2, and of a segment of XLIFF 2, whose text is not a translation yet."""

XmlForm = Literal["tmx", "xliff"]

SAMPLE_UNITS = 1000
"""Units at the start of a file that decide which languages it has."""

ENCODING_BYTES = 1000
"""Bytes at the start of a file in which it declares its encoding."""

_LINE_BREAK = re.compile(r"\s*\n\s*")
_ENCODING = re.compile(rb"<\?xml[^>]*encoding\s*=\s*[\"']([^\"']+)")
_CONTROL = {code: "\ufffd" for code in range(32) if chr(code) not in "\t\n\r"}


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


def xml_records(
    form: XmlForm, path: Path, src: str, tgt: str, *, swap: bool, counts: Counts, replace: bool = False
) -> Iterator[NumberedRow]:
    """Read the pairs of a file with their line numbers.

    A language of the file stands for a code if both are the same, otherwise if they differ in script or region only:
    `en-US` for `en`. Units that lack one of the languages are counted in a notice.

    Args:
        form: The form of the file.
        path: The file, compressed if its name ends in `.gz`.
        src, tgt: The languages.
        swap: Swap the sides of an XLIFF that does not name its languages.
        counts: Receives notices and the number of replaced bytes.
        replace: Replace invalid bytes and control characters by U+FFFD.

    Raises:
        DataError: The file is not such XML or not safe (see `safe_xml`), or no unit has both languages.
    """
    default_languages = (tgt, src) if swap else (src, tgt)
    selection = _Selection(str(path), src, tgt)
    with open_bytes(path) as opened:
        file = _replacing(opened, counts) if replace else opened
        units = tmx_units(file, str(path)) if form == "tmx" else xliff_units(file, str(path), default_languages)
        try:
            for unit in units:
                pair = selection.pair(unit)
                if pair is not None:
                    yield unit.line, pair
            selection.check()
        finally:
            counts.notices += [f"{path}: {notice}" for notice in selection.notices()]


def xml_languages(form: XmlForm, path: Path) -> list[str]:
    """Return the languages that the first units of a file name, in their order; of a TMX, its `srclang` first.

    Raises:
        DataError: The file is not such XML, or not safe.
    """
    headers: list[str] = []
    with open_bytes(path) as file:
        units = tmx_units(file, str(path), headers) if form == "tmx" else xliff_units(file, str(path), ("", ""))
        named = {segment.language: None for unit in islice(units, SAMPLE_UNITS) for segment in unit.segments}
    languages = [language for language in named if language]
    source = headers[0] if headers else ""
    return sorted(languages, key=lambda language: _fit(language, source, "") == "no")


@dataclass
class _Selection:
    """Selects the two sides of units, and counts what the user should know."""

    name: str
    src: str
    tgt: str
    pairs: int = 0
    incomplete: int = 0
    untranslated: int = 0
    ambiguous: int = 0
    with_tags: int = 0
    with_line_break: int = 0
    used: tuple[dict[str, None], dict[str, None]] = field(default_factory=lambda: ({}, {}))
    """The languages that were read as source and as target, as the file writes them."""
    found: dict[str, None] = field(default_factory=dict)
    """All languages of the file."""

    def pair(self, unit: Unit) -> tuple[str, str] | None:
        """Return source and target of a unit; None: it lacks one of them."""
        if unit.is_untranslated:
            self.untranslated += 1
            return None
        sources = _best(unit.segments, self.src, self.tgt)
        targets = _best(unit.segments, self.tgt, self.src)
        if not (sources and targets):
            self.incomplete += 1
            if len(self.found) < SAMPLE_UNITS:
                self.found |= {segment.language: None for segment in unit.segments if segment.language}
            return None
        self.pairs += 1
        self.ambiguous += len(sources) > 1 or len(targets) > 1
        chosen = sources[0], targets[0]
        for languages, segment in zip(self.used, chosen, strict=True):
            languages[segment.language] = None
        self.with_tags += chosen[0].has_tags or chosen[1].has_tags
        texts = chosen[0].text.strip(), chosen[1].text.strip()
        if "\n" in texts[0] or "\n" in texts[1]:
            self.with_line_break += 1
            return _LINE_BREAK.sub(" ", texts[0]), _LINE_BREAK.sub(" ", texts[1])
        return texts

    def check(self) -> None:
        """Check that there was a pair, if there was a unit with a translation.

        Raises:
            DataError: No unit has both languages.
        """
        if self.incomplete and not self.pairs:
            languages = ", ".join(list(self.found)[:20]) or "none"
            problem = f"no unit has both {self.src} and {self.tgt} (languages: {languages})"
            raise DataError(f"{self.name}: {problem}; set --src and --tgt to languages of the file")

    def notices(self) -> Iterator[str]:
        """Yield what the user should know, one line each."""
        codes = self.src, self.tgt
        if any(set(languages) - {code} for languages, code in zip(self.used, codes, strict=True)):
            source, target = (", ".join(map(repr, languages)) for languages in self.used)
            yield f"read {source} as {self.src} and {target} as {self.tgt}"
        if self.incomplete:
            yield f"{counted(self.incomplete, 'unit')} without both {self.src} and {self.tgt}: not pairs, not read"
        if self.untranslated:
            yield f"{counted(self.untranslated, 'unit')} in a state such as new or needs-translation: not read"
        if self.ambiguous:
            yield f"{counted(self.ambiguous, 'unit')} with several texts of one language: the first is read"
        if self.with_tags:
            yield f"{counted(self.with_tags, 'pair')} with inline tags, which are removed"
        if self.with_line_break:
            yield line_break_notice(self.with_line_break)


def _best(segments: Iterable[Segment], code: str, other: str) -> list[Segment]:
    """Return the segments in the language of a code, otherwise those in another script or region of it."""
    exact = []
    near = []
    for segment in segments:
        fit = _fit(segment.language, code, other)
        if fit == "exact":
            exact.append(segment)
        elif fit == "near":
            near.append(segment)
    return exact or near


@lru_cache(maxsize=1024)
def _fit(language: str, code: str, other: str) -> Literal["exact", "near", "no"]:
    """Return how well a language of a file fits a code.

    Args:
        language: The language.
        code: The code of this side.
        other: The code of the other side. What fits it exactly does not fit this one.
    """
    if not language:
        return "no"
    if same(language, code):
        return "exact"
    is_near = base(language) is not None and base(language) == base(code) and not same(language, other)
    return "near" if is_near else "no"


def _replacing(file: BinaryIO, counts: Counts) -> BinaryIO:
    """Return a file whose `read` replaces what is not valid in UTF-8 or in XML by U+FFFD, if it is in UTF-8."""
    start = cast(io.BufferedReader, file).peek(ENCODING_BYTES)[:ENCODING_BYTES]
    encoding = _ENCODING.search(start)
    is_utf16 = start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    is_other = encoding is not None and encoding[1].lower() not in (b"utf-8", b"utf8", b"us-ascii")
    return file if is_utf16 or is_other else cast(BinaryIO, _ReplacingFile(file, counts))


class _ReplacingFile:
    """A file in UTF-8 without invalid bytes and control characters, which XML does not allow."""

    def __init__(self, file: BinaryIO, counts: Counts):
        self.file = file
        self.counts = counts
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.last_bytes = b""
        """The last two bytes read: a U+FFFD of the file may begin in them."""

    def read(self, size: int) -> bytes:
        """Return about as many bytes; none at the end."""
        raw = self.file.read(size)
        text = self.decoder.decode(raw, final=not raw).translate(_CONTROL)
        self.counts.replaced += text.count("\ufffd") - (self.last_bytes + raw).count("\ufffd".encode())
        self.last_bytes = (self.last_bytes + raw)[-2:]
        return text.encode()
