"""Books in EPUB 2 and 3: their pages of XHTML, which the reader of HTML reads, and the table of contents of EPUB 2."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from urllib.parse import unquote

from mtcli.documents.formats import html
from mtcli.documents.formats.archive import (
    PART_BYTES,
    ArchiveDocument,
    ArchiveEntry,
    archive_structure,
    read_archive,
    read_part,
)
from mtcli.documents.formats.escapes import RENDER_ESCAPED
from mtcli.documents.formats.format import Document, ReadOptions
from mtcli.documents.formats.items import make_span
from mtcli.documents.formats.slots import SlotDocument, Span
from mtcli.documents.formats.structure import tree_structure
from mtcli.documents.formats.xml_markup import at_path, inline_items
from mtcli.errors import DataError
from mtcli.text.safe_xml import Element

CONTAINER = "META-INF/container.xml"
ENCRYPTION = "META-INF/encryption.xml"
MIMETYPE = "application/epub+zip"
PAGES = frozenset({"application/xhtml+xml", "text/html", "text/x-oeb1-document"})
"""The types of pages."""
CONTENTS = "application/x-dtbncx+xml"
"""The type of the table of contents of EPUB 2. That of EPUB 3 is a page."""
_LABELS = frozenset({"docTitle", "navLabel"})
"""Elements of the table of contents that have a text to translate."""


def read(content: bytes, options: ReadOptions) -> Document:
    """Read a book.

    Raises:
        DataError: The file is damaged, unsafe, too large, encrypted, or not a book.
    """
    entries = read_archive(content, options.name)
    types = _types(entries, options.name)
    num_bytes = sum(len(entry.content) for entry in entries if types.get(entry.name) in PAGES)
    if num_bytes > PART_BYTES:
        limit = f"the limit is {PART_BYTES >> 20}"
        raise DataError(f"{options.name}: {num_bytes >> 20:,} MiB of text, {limit}; split the book")
    parts: dict[str, Document] = {}
    for entry in entries:
        kind = types.get(entry.name)
        if kind in PAGES:
            parts[entry.name] = html.read(entry.content, _options_of(entry, options), is_xhtml=True)
        elif kind == CONTENTS:
            source, root = read_part(entry, options.name)
            parts[entry.name] = SlotDocument(source, list(_labels(source.text, root)))
    return ArchiveDocument(content, entries, parts)


def structure(content: bytes, options: ReadOptions) -> int:
    """Return a hash of the tags of the pages, and of all other files; see `format.Structure`."""
    entries = read_archive(content, options.name)
    types = _types(entries, options.name)

    def part_structure(entry: ArchiveEntry) -> int | None:
        kind = types.get(entry.name)
        if kind in PAGES:
            return html.structure(entry.content, _options_of(entry, options), is_xhtml=True)
        if kind == CONTENTS:
            _, root = read_part(entry, options.name)
            return hash((tree_structure(root, without=_is_label), *sorted(_tags_of_labels(root))))
        return None

    return archive_structure(entries, part_structure)


def _options_of(entry: ArchiveEntry, options: ReadOptions) -> ReadOptions:
    return replace(options, name=f"{options.name}: {entry.name}")


def _types(entries: Sequence[ArchiveEntry], name: str) -> Mapping[str, str]:
    """Return the types of the files that the packages of a book list, by the names of their entries; see `read`."""
    by_name = {entry.name: entry for entry in entries}
    mimetype = by_name["mimetype"].content.decode("ascii", "replace").strip() if "mimetype" in by_name else ""
    if CONTAINER not in by_name or mimetype not in ("", MIMETYPE):
        problem = f"its type is {mimetype[:80]}" if CONTAINER in by_name else f"its archive has no {CONTAINER}"
        raise DataError(f"{name}: not a book in EPUB: {problem}")
    types: dict[str, str] = {}
    _, container = read_part(by_name[CONTAINER], name)
    for root_file in at_path(container, "rootfiles", "rootfile"):
        package_name = unquote(root_file.attributes.get("full-path", ""))
        if package_name not in by_name:
            raise DataError(f"{name}: its archive has no {package_name!a}, which {CONTAINER} names")
        _, package = read_part(by_name[package_name], name)
        for item in at_path(package, "manifest", "item"):
            path = _path(package_name, item.attributes.get("href", ""))
            types[path] = item.attributes.get("media-type", "")
    if ENCRYPTION not in by_name:
        return types
    _, encryption = read_part(by_name[ENCRYPTION], name)
    for reference in at_path(encryption, "EncryptedData", "CipherData", "CipherReference"):  # fonts may be encrypted
        path = unquote(reference.attributes.get("URI", ""))
        if types.get(path) in {CONTENTS, *PAGES}:
            raise DataError(f"{name}: {path!a} is encrypted (DRM); only books without it can be translated")
    return types


def _path(package_name: str, address: str) -> str:
    """Return the name of an entry, given its address relative to the package."""
    path = unquote(address.partition("#")[0])
    return posixpath.normpath(posixpath.join(posixpath.dirname(package_name), path))


def _is_label(element: Element) -> bool:
    """Return True for an element whose text is translated."""
    return element.name == "text" and element.parent is not None and element.parent.name in _LABELS


def _tags_of_labels(element: Element, *, in_label: bool = False) -> Iterator[str]:
    """Yield the names of the elements in labels."""
    for child in element.elements():
        if in_label:
            yield child.name
        yield from _tags_of_labels(child, in_label=in_label or _is_label(child))


def _labels(text: str, element: Element) -> Iterator[Span]:
    """Yield the labels in a table of contents."""
    if _is_label(element):
        span = make_span(text, list(inline_items(text, element)), RENDER_ESCAPED)
        if span:
            yield span
    for child in element.elements():
        yield from _labels(text, child)
