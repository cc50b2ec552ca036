"""Word documents: the paragraphs of the text, headers, footers, notes, comments and text boxes.

Only the runs of paragraphs that change are written again; all other XML of the document stays as it is.
"""

from collections.abc import Iterator, Sequence
from itertools import islice

from mtcli.corpus.readers.safe_xml import Element, decode_xml, read_xml
from mtcli.documents.formats.archive import Entry, read_archive, read_comment, write_archive
from mtcli.documents.formats.encoding import EncodedText
from mtcli.documents.formats.format import Document, ReadOptions
from mtcli.documents.formats.slots import SlotDocument, Span
from mtcli.documents.formats.structure import Digest
from mtcli.documents.formats.word_runs import CONTAINERS, DROPPED, NAMESPACES, paragraph_span
from mtcli.documents.markup.inline import Inline
from mtcli.errors import DataError

CONTENT_TYPES = "[Content_Types].xml"
PARTS = ("main", "header", "footer", "footnotes", "endnotes", "comments")
"""Parts with text, as the ends of their content types name them."""
PART_BYTES = 64 * 2**20
"""Size limit of a part with text in bytes. A document of 1,000 pages has about 20 MB of XML."""
_TEXT = DROPPED | {"rPr", "t", "noBreakHyphen", "ruby"}
"""Elements of a run that are written again with a translation."""
_OLD_FORMAT = b"\xd0\xcf\x11\xe0"
"""First bytes of .doc files, and of .docx files with a password."""


def read(content: bytes, options: ReadOptions) -> Document:
    """Read a Word document.

    Raises:
        DataError: The file is damaged, unsafe, too large, protected by a password, or not a Word document.
    """
    if content.startswith(_OLD_FORMAT):
        raise DataError(f"{options.name}: a .doc file, or protected by a password; save it as .docx without a password")
    entries = read_archive(content, options.name)
    names = set(_part_names(entries, options.name))
    parts = {entry.name: _read_part(entry, options.name) for entry in entries if entry.name in names}
    if not parts:
        raise DataError(f"{options.name}: not a Word document: its archive has no part with text")
    return _WordDocument(content, entries, parts)


def structure(content: bytes, options: ReadOptions) -> int:
    """Return a hash of the elements of the parts with text, without their runs; see `format.Structure`."""
    digest = Digest()
    entries = read_archive(content, options.name)
    names = set(_part_names(entries, options.name))
    for entry in entries:
        digest.add(entry.name)
        if entry.name in names:
            text, _ = decode_xml(entry.content, f"{options.name}: {entry.name}")
            digest.add(_structure(read_xml(text, f"{options.name}: {entry.name}")))
        else:
            digest.add(entry.content)
    return digest.value


def _structure(element: Element) -> int:
    """Return a hash of an element. The parts of a paragraph may change places, as words do."""
    inner = list(map(_structure, _without_runs(element)))
    is_paragraph = element.name in ("p", *CONTAINERS)
    return hash((element.name, *sorted(element.attributes.items()), *(sorted(inner) if is_paragraph else inner)))


def _without_runs(element: Element) -> Iterator[Element]:
    """Yield the elements in an element that a translation keeps. Those of runs count as those of the paragraph."""
    for child in element.elements():
        if child.name == "r" and child.namespace in NAMESPACES:
            yield from (part for part in child.elements() if part.name not in _TEXT)
        elif child.name not in DROPPED:
            yield child


class _WordDocument:
    """A Word document; see `format.Document`.

    Args:
        content: The file.
        entries: The files in it.
        parts: The documents by the names of their entries.
    """

    def __init__(self, content: bytes, entries: Sequence[Entry], parts: dict[str, SlotDocument]):
        self._content = content
        self._entries = entries
        self._parts = parts

    @property
    def segments(self) -> Sequence[Inline]:
        """The paragraphs of all parts."""
        return [segment for part in self._parts.values() for segment in part.segments]

    def write(self, translations: Sequence[Inline]) -> bytes:
        """Return the document; if nothing has changed, the file itself."""
        remaining = iter(translations)
        entries = []
        for entry in self._entries:
            part = self._parts.get(entry.name)
            if part:
                entry = Entry(entry.info, part.write(list(islice(remaining, len(part.segments)))))
            entries.append(entry)
        changed = any(new.content != old.content for new, old in zip(entries, self._entries, strict=True))
        return write_archive(entries, read_comment(self._content)) if changed else self._content


def _part_names(entries: Sequence[Entry], name: str) -> Iterator[str]:
    """Yield the names of the entries with text."""
    found = next((entry for entry in entries if entry.name == CONTENT_TYPES), None)
    if found is None:
        raise DataError(f"{name}: not a Word document: its archive has no {CONTENT_TYPES}")
    inner_name = f"{name}: {CONTENT_TYPES}"
    text, _ = decode_xml(found.content, inner_name)
    for override in read_xml(text, inner_name).elements("Override"):
        kind = override.attributes.get("ContentType", "")
        stem = kind.removesuffix("+xml").rpartition(".")[2]
        if "word" in kind and kind.endswith("+xml") and stem in PARTS:
            yield override.attributes.get("PartName", "").removeprefix("/")


def _read_part(entry: Entry, name: str) -> SlotDocument:
    inner_name = f"{name}: {entry.name}"
    if len(entry.content) > PART_BYTES:
        raise DataError(f"{inner_name}: larger than {PART_BYTES >> 20} MiB, the limit; split the document")
    text, encoding = decode_xml(entry.content, inner_name)
    root = read_xml(text, inner_name)
    return SlotDocument(EncodedText(text, encoding), list(_spans(text, root)))


def _spans(text: str, element: Element) -> Iterator[Span]:
    """Yield the paragraphs in an element, with those of text boxes, which are in other paragraphs."""
    if element.name == "p" and element.namespace in NAMESPACES:
        span = paragraph_span(text, element)
        if span:
            yield span
    for child in element.elements():
        yield from _spans(text, child)
