"""What only workbooks of Excel have: texts of cells that formulas name, headers with codes, and results to recalculate.

Texts of cells are in one part for all sheets, or in the cells. All else of a cell (numbers, dates, formulas and their
last results) stays.
"""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from mtcli.documents.formats.archive import ArchiveEntry, read_part
from mtcli.documents.formats.items import divided_spans, has_letters
from mtcli.documents.formats.office_runs import EXCEL, MARKUP, escape_text, paragraph_span, plain_spans
from mtcli.documents.formats.slots import Edit, Span, render_with, with_edits
from mtcli.documents.formats.xml_markup import at_path, inside, tag_name
from mtcli.runtime.wording import counted
from mtcli.text.safe_xml import Element, iterate_elements

log = logging.getLogger(__name__)

MAX_CELL = 32_767
"""Characters of a cell. Excel refuses files with a longer one."""
HEADERS = frozenset({"oddHeader", "oddFooter", "evenHeader", "evenFooter", "firstHeader", "firstFooter"})
"""Headers and footers of printed sheets."""
WORKBOOK = re.compile(r"(?:spreadsheetml|ms-excel)\..*main\+xml")
"""The content type of the main part, which has the sheets and says when to calculate."""
SHEET = re.compile(r"(?:spreadsheetml|ms-excel)\.worksheet\+xml")
"""The content type of a worksheet."""
_WITH_NAMES = re.compile(r"spreadsheetml\.(?:table|pivotCacheDefinition)\+xml")
OWN_TEXT = re.compile(rb"<(?:\w+:)?(?:is|(?:odd|even|first)(?:Header|Footer))\b")
"""Text in a worksheet, beside that in the part for all sheets."""
_FORMULAS = ("f", "formula", "formula1", "formula2", "definedName")
_FILTERS = ("filter", "customFilter")
_NAMING = re.compile(rb"<(?:\w+:)?(?:f|formula\d?|definedName|filter|customFilter)\b")
_LITERAL = re.compile(r"""'(?:[^']|'')*'|"((?:[^"]|"")*)\"""")
"""A text in a formula; the name of a sheet is in other quotation marks."""
_TEXT_RESULT = re.compile(rb"""<(?:\w+:)?c\s[^<>]*\bt\s*=\s*["']str["']""")
_AFTER_CALCULATION = frozenset(
    {"oleSize", "customWorkbookViews", "pivotCaches", "smartTagPr", "smartTagTypes", "webPublishing"}
    | {"fileRecoveryPr", "webPublishObjects", "extLst"}
)
"""Elements of a workbook that follow `calcPr`."""
_AND = "&(?:amp|#38|#x26);"
_SIGN = "&amp;&amp;"
"""The code of the sign `&`."""
_CODE = re.compile(
    rf"""(?P<break>{_AND}[LCR]|[\r\n]+|&#(?:1[03]|x[aAdD]);)|(?P<word>{_AND}(?:[PNDTFAZ](?:[+-]\d+)?|{_AND}))|"""
    rf"""(?P<point>{_AND}(?:"[^"<]*"|&quot;.*?&quot;|\d+|K(?:[0-9A-Fa-f]{{6}}|\d\d[+-]\d{{3}})|[A-Z]))"""
)
"""A code of a header: the section that begins, a font, a size, a color, a field such as the page number, or a sign."""
_ESCAPED = re.compile("_x000[aAdD]_")
_REQUEST = re.compile(r"""(\sfullCalcOnLoad\s*=\s*)(?:"[^"]*"|'[^']*')""")


class NamedTexts:
    """Texts that formulas, filters and tables name. In cells, they must stay, because Excel compares them.

    Args:
        texts: The texts.
    """

    def __init__(self, texts: Iterable[str] = ()):
        self._texts = frozenset(map(_folded, texts))
        self.kept: list[str] = []
        """Texts of cells that stay."""

    def has(self, text: str) -> bool:
        """Return True if the text of a cell is one of them; count it."""
        if _folded(text) not in self._texts:
            return False
        self.kept.append(text)
        return True

    def warn(self, name: str) -> None:
        """Warn about texts of a file that stay."""
        if self.kept:
            verb = "stays" if len(self.kept) == 1 else "stay"
            message = "%s: %s %s, because formulas, filters or tables name them (%.40s)"
            log.warning(message, name, counted(len(self.kept), "text"), verb, self.kept[0].strip())


def _folded(text: str) -> str:
    return " ".join(text.split()).casefold()


def is_cell_text(element: Element) -> bool:
    """Return True for the text of a cell."""
    return element.name in ("si", "is") and _is_excel(element)


def is_header(element: Element) -> bool:
    """Return True for a header or footer."""
    return element.name in HEADERS and _is_excel(element)


def is_calculation(element: Element) -> bool:
    """Return True for the element that says when formulas are calculated."""
    return element.name == "calcPr" and _is_excel(element)


def _is_excel(element: Element) -> bool:
    return MARKUP.get(element.namespace) is EXCEL


def cell_spans(text: str, cell: Element, named: NamedTexts) -> Iterator[Span]:
    """Yield the lines of a text without formatting, or one with formatting as a whole."""
    shown = "".join(each.text() for each in cell.elements("t")) or cell.text()
    if not has_letters(shown) or named.has(shown):
        return
    only = next(cell.elements(), None)
    is_plain = (
        only is not None and only.name == "t" and all(each.name in ("t", "phoneticPr") for each in cell.elements())
    )
    if is_plain and only and "<" not in text[slice(*inside(text, only))]:
        yield from plain_spans(text, only, has_escapes=True)
        return
    span = paragraph_span(text, cell, EXCEL)
    if span:
        yield span


def header_spans(text: str, header: Element) -> Iterator[Span]:
    """Yield the lines of the three sections of a header."""
    yield from divided_spans(text, *inside(text, header), _CODE, _RENDER_HEADER)


def header_codes(text: str) -> str:
    """Return the codes of a header, sorted, because a translation may change their order."""
    codes = [found[0] for found in _CODE.finditer(escape_text(text, has_escapes=False))]
    return " ".join(sorted(code for code in codes if code != _SIGN))


def _escape_header(text: str) -> str:
    return escape_text(text, has_escapes=True).replace("&amp;", _SIGN)


_RENDER_HEADER = render_with(_escape_header)


def named_texts(entries: Sequence[ArchiveEntry], types: Mapping[str, str], name: str) -> NamedTexts:
    """Return the texts that formulas, filters, tables and pivot tables name.

    Args:
        entries: The files of the workbook.
        types: Their content types.
        name: Its name, for messages.

    Raises:
        DataError: A part is not well-formed or unsafe.
    """
    return NamedTexts(text for entry in entries for text in _named_in(entry, types[entry.name], name))


def _named_in(entry: ArchiveEntry, kind: str, name: str) -> Iterator[str]:
    """Yield the texts that a part names."""
    inner_name = f"{name}: {entry.name}"
    if _WITH_NAMES.search(kind):
        _, root = read_part(entry, name)
        for column in (*at_path(root, "tableColumns", "tableColumn"), *at_path(root, "cacheFields", "cacheField")):
            yield _ESCAPED.sub(" ", column.attributes.get("name", ""))
    elif (SHEET.search(kind) or WORKBOOK.search(kind)) and _NAMING.search(entry.content):
        for element in iterate_elements(io.BytesIO(entry.content), inner_name, {*_FORMULAS, *_FILTERS}):
            if element.name in _FILTERS:
                yield element.attributes.get("val", "")
            else:
                yield from _literals(element)


def _literals(formula: Element) -> Iterator[str]:
    """Yield the texts in a formula. Those of a list to choose from are separated by commas."""
    for found in _LITERAL.finditer(formula.text()):
        literal = (found[1] or "").replace('""', '"')
        if literal:
            yield literal
            if formula.name == "formula1":
                yield from literal.split(",")


def recalculation(entries: Sequence[ArchiveEntry], types: Mapping[str, str], name: str) -> Mapping[str, bytes]:
    """Return the main part with the request to calculate all formulas when the workbook is opened, by its name.

    Formulas that give text show their last result, which is in the source language, until they are calculated.

    Args:
        entries: The files of the workbook.
        types: Their content types.
        name: Its name, for messages.

    Returns:
        Nothing if no formula gives text, or if the workbook has the request already.

    Raises:
        DataError: The part is not well-formed or unsafe.
    """
    if not any(SHEET.search(types[entry.name]) and _TEXT_RESULT.search(entry.content) for entry in entries):
        return {}
    main = next(entry for entry in entries if WORKBOOK.search(types[entry.name]))
    source, root = read_part(main, name)
    text = source.text
    prefix = tag_name(text, root).removesuffix(root.name)
    existing = next(root.elements("calcPr"), None)
    if existing:
        start_tag = text[existing.start : inside(text, existing)[0]]
        edit = Edit(existing.start, existing.start + len(start_tag), _with_request(start_tag))
    else:
        follower = next(root.elements(*_AFTER_CALCULATION), None)
        place = follower.start if follower else root.close
        edit = Edit(place, place, f'<{prefix}calcPr fullCalcOnLoad="1"/>')
    return {main.name: source.encode(with_edits(text, [edit]), "xmlcharrefreplace")}


def _with_request(start_tag: str) -> str:
    """Return the start tag of `calcPr` with the request to calculate."""
    if _REQUEST.search(start_tag):
        return _REQUEST.sub(r'\1"1"', start_tag)
    name_end = re.match(r"<[^\s/>]+", start_tag)
    assert name_end is not None, "the parser has found an element here"
    return f'{name_end[0]} fullCalcOnLoad="1"{start_tag[name_end.end() :]}'
