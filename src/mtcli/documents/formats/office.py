"""Documents of Microsoft Office: Word, PowerPoint and Excel, which are archives with parts of XML.

Only the runs of paragraphs that change are written again; all other XML of the document stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath

from mtcli.documents.formats import excel
from mtcli.documents.formats.archive import ArchiveDocument, ArchiveEntry, archive_structure, read_archive, read_part
from mtcli.documents.formats.format import Document, ReadOptions
from mtcli.documents.formats.office_runs import Markup, is_plain, markup_of, paragraph_span, plain_spans
from mtcli.documents.formats.slots import SlotDocument, Span
from mtcli.documents.formats.xml_markup import at_path
from mtcli.errors import DataError
from mtcli.text.safe_xml import Element

CONTENT_TYPES = "[Content_Types].xml"
KINDS = {
    ".docx": ("a Word document", re.compile(r"(?:wordprocessingml|ms-word)\..*main\+xml")),
    ".pptx": ("a PowerPoint presentation", re.compile(r"(?:presentationml|ms-powerpoint)\..*main\+xml")),
    ".xlsx": ("an Excel workbook", excel.WORKBOOK),
}
"""The name of each kind of document, and the end of the content type of its main part."""
PARTS = re.compile(
    r"(?:wordprocessingml|ms-word)\.(?:.*main|header|footer|footnotes|endnotes|comments)\+xml|"
    r"(?:presentationml|ms-powerpoint)\.(?:slide|slideLayout|slideMaster|notesSlide|comments)\+xml|"
    r"(?:spreadsheetml|ms-excel)\.(?:sharedStrings|worksheet|chartsheet|comments|threadedcomments)\+xml|"
    r"(?:drawing|drawingml\.(?:chart|chartshapes|diagramData|diagramDrawing))\+xml"
)
"""Parts with text, by the ends of their content types."""
_PATTERN = re.compile(r"\.(?:slideLayout|slideMaster)\+xml")
"""Parts from which slides are made. Slides show their text, except that of placeholders, which slides fill."""
_OLD_FORMAT = b"\xd0\xcf\x11\xe0"
"""First bytes of .doc, .ppt and .xls files, and of files with a password."""


def read(content: bytes, options: ReadOptions) -> Document:
    """Read a document of Word, PowerPoint or Excel.

    Raises:
        DataError: The file is damaged, unsafe, too large, protected by a password, or of another kind than its suffix.
    """
    name = options.name
    suffix = _suffix(name)
    if content.startswith(_OLD_FORMAT):
        old = f"a {suffix.removesuffix('x')} file, or protected by a password"
        raise DataError(f"{name}: {old}; save it as {suffix} without a password")
    entries = read_archive(content, name)
    types = _content_types(entries, name)
    _check_kind(name, types)
    is_workbook = suffix == ".xlsx"
    named = excel.named_texts(entries, types, name) if is_workbook else excel.NamedTexts()
    parts: dict[str, Document] = {}
    for entry in entries:
        if _has_text(entry, types):
            source, root = read_part(entry, name)
            spans = _spans(source.text, root, named, is_pattern=_PATTERN.search(types[entry.name]) is not None)
            parts[entry.name] = SlotDocument(source, list(spans))
    named.warn(name)
    edits = excel.recalculation(entries, types, name) if is_workbook else {}
    return ArchiveDocument(content, entries, parts, edits)


def structure(content: bytes, options: ReadOptions) -> int:
    """Return a hash of the elements of the parts with text, without their runs; see `format.Structure`."""
    entries = read_archive(content, options.name)
    types = _content_types(entries, options.name)

    def part_structure(entry: ArchiveEntry) -> int | None:
        if _has_text(entry, types) or excel.WORKBOOK.search(types[entry.name]):
            return _structure(read_part(entry, options.name)[1], None)
        return None

    return archive_structure(entries, part_structure)


def _suffix(name: str) -> str:
    """Return the suffix of a file; that of Word, if it is none of Office."""
    suffix = PurePath(name).suffix.lower()
    return suffix if suffix in KINDS else ".docx"


def _content_types(entries: Sequence[ArchiveEntry], name: str) -> Mapping[str, str]:
    """Return the content types of the entries by their names. Raise a DataError if the archive declares none."""
    found = next((entry for entry in entries if entry.name == CONTENT_TYPES), None)
    if found is None:
        kind, _ = KINDS[_suffix(name)]
        raise DataError(f"{name}: not {kind}: its archive has no {CONTENT_TYPES}")
    _, root = read_part(found, name)
    by_suffix = {
        each.attributes.get("Extension", "").lower(): each.attributes.get("ContentType", "")
        for each in root.elements("Default")
    }
    by_name = {
        each.attributes.get("PartName", "").lower(): each.attributes.get("ContentType", "")
        for each in root.elements("Override")
    }
    return {
        entry.name: by_name.get(f"/{entry.name}".lower())
        or by_suffix.get(PurePath(entry.name).suffix.lower().removeprefix("."), "")
        for entry in entries
    }


def _check_kind(name: str, types: Mapping[str, str]) -> None:
    """Raise a DataError if a document is not of the kind that its suffix says."""
    wanted, main = KINDS[_suffix(name)]
    if any(main.search(kind) for kind in types.values()):
        return
    for suffix, (other, main_of_other) in KINDS.items():
        if any(main_of_other.search(kind) for kind in types.values()):
            raise DataError(f"{name}: not {wanted}, but {other}; name it {suffix}")
    raise DataError(f"{name}: not {wanted}: its archive has no main part; save the document again")


def _has_text(entry: ArchiveEntry, types: Mapping[str, str]) -> bool:
    """Return True for a part with text. A worksheet has text if its strings are not in the part of shared ones."""
    kind = types[entry.name]
    if excel.SHEET.search(kind):
        return excel.OWN_TEXT.search(entry.content) is not None
    return PARTS.search(kind) is not None


def _spans(text: str, element: Element, named: excel.NamedTexts, *, is_pattern: bool) -> Iterator[Span]:
    """Yield the paragraphs in an element, with those of text boxes, which are in other paragraphs.

    `is_pattern`: The part is one of those from which slides are made.
    """
    if is_pattern and element.name == "sp" and _is_placeholder(element):
        return
    if element.name == "threadedComment" and any(element.elements("mentions")):
        return  # it says at which characters people are named
    markup = markup_of(element)
    if excel.is_cell_text(element):
        yield from excel.cell_spans(text, element, named)
    elif excel.is_header(element):
        yield from excel.header_spans(text, element)
    elif is_plain(element):
        yield from plain_spans(text, element, has_escapes=False)
    elif markup:
        span = paragraph_span(text, element, markup)
        if span:
            yield span
    for child in element.elements():
        yield from _spans(text, child, named, is_pattern=is_pattern)


def _is_placeholder(shape: Element) -> bool:
    """Return True if a shape of a layout is a place for the text of a slide."""
    return any(True for _ in at_path(shape, "nvSpPr", "nvPr", "ph"))


def _structure(element: Element, markup: Markup | None) -> int:
    """Return a hash of an element without the text that is translated. Parts of a paragraph may change places.

    `markup` has the names of elements in the paragraph or container that it is in; None: it is in none.
    """
    own = markup_of(element) or (markup if markup and element.name in markup.containers else None)
    inner = [_structure(child, own) for child in _without_runs(element, own)]
    text = "" if own else _kept_text(element)
    is_valid = not excel.is_cell_text(element) or len(element.text()) <= excel.MAX_CELL
    return hash((element.name, text, is_valid, *sorted(element.attributes.items()), *(sorted(inner) if own else inner)))


def _kept_text(element: Element) -> str:
    """Return the text of an element that is not translated."""
    text = "".join(child for child in element.children if isinstance(child, str)).strip()
    if excel.is_header(element):
        return excel.header_codes(text)
    return "" if is_plain(element) else text


def _without_runs(element: Element, markup: Markup | None) -> Iterator[Element]:
    """Yield the elements in an element that a translation keeps. Those of runs count as those of the paragraph."""
    for child in element.elements():
        if excel.is_calculation(child):
            continue
        if markup is None:
            yield child
        elif markup.is_run(child, element):
            yield from (part for part in child.elements() if part.name not in markup.rewritten)
        elif child.name not in markup.dropped and not (markup.has_single_text and child.name in markup.as_text):
            yield child
