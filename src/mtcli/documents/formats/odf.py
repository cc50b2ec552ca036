"""Text documents of OpenDocument, as LibreOffice writes them: paragraphs, headings, notes, comments and text boxes.

A paragraph has text and elements side by side. Its spans and links are pairs of tags in the segment. Spans that differ
in nothing that is shown are joined, as LibreOffice begins a new one at each place where a text was edited.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import PurePath

from mtcli.documents.formats.archive import ArchiveDocument, ArchiveEntry, archive_structure, read_archive, read_part
from mtcli.documents.formats.escapes import escape
from mtcli.documents.formats.format import Document, ReadOptions
from mtcli.documents.formats.items import Item, make_span
from mtcli.documents.formats.slots import SlotDocument, Span, in_order
from mtcli.documents.formats.structure import tree_structure
from mtcli.documents.formats.xml_markup import at_path, inline_items, tag_name
from mtcli.documents.markup.inline import Inline, Tag
from mtcli.errors import DataError
from mtcli.text.safe_xml import Element

PARTS = ("content.xml", "styles.xml")
"""The text, and the headers and footers of pages."""
MIMETYPE = "application/vnd.oasis.opendocument.text"
_TEXT = "urn:oasis:names:tc:opendocument:xmlns:text:1.0"
_PARAGRAPHS = frozenset({"p", "h"})
_PAIRS = frozenset({"span", "a", "meta"})
_SPACES = frozenset({"tab", "line-break", "s"})
"""Markup that separates words, as `<br>` does in HTML. Few spaces are text, see `_FEW_SPACES`."""
_FEW_SPACES = 100
"""Spaces for which an element may stand in a segment. One for more stays as it is: small files could take gigabytes."""
_DROPPED = frozenset({"soft-page-break"})
_MARKS = re.compile(
    r"(?:bookmark|reference-mark|change|toc-mark|user-index-mark|alphabetical-index-mark)(?:-start|-end)?"
)
"""Places in the text, which nothing is shown for."""
_NOT_SHOWN = re.compile(r"rsid|paragraph-rsid|(?:language|country|script|rfc-language-tag)(?:-asian|-complex)?")
"""Attributes of the properties of text that do not change how it looks."""
_WHITE_SPACE = re.compile("[ \\t\\r\\n]+")
_SPACES_AT_START = re.compile("^ +")
_FURTHER_SPACES = re.compile("(?<= ) +")
Looks = Mapping[str, str | None]
"""What each style of spans changes, by its name; None: nothing that is shown."""


def read(content: bytes, options: ReadOptions) -> Document:
    """Read a text document.

    Raises:
        DataError: The file is damaged, unsafe, too large, protected by a password, or not a text document.
    """
    entries = read_archive(content, options.name)
    _check_kind(entries, options.name)
    parts = {}
    for entry in entries:
        if entry.name in PARTS:
            source, root = read_part(entry, options.name)
            parts[entry.name] = SlotDocument(source, in_order(_spans(source.text, root, _looks(root))))
    return ArchiveDocument(content, entries, parts)


def structure(content: bytes, options: ReadOptions) -> int:
    """Return a hash of the elements of the parts with text, and of all other files; see `format.Structure`."""

    def part_structure(entry: ArchiveEntry) -> int | None:
        if entry.name not in PARTS:
            return None
        _, root = read_part(entry, options.name)
        return _structure(root, _looks(root))

    return archive_structure(read_archive(content, options.name), part_structure)


def _check_kind(entries: Sequence[ArchiveEntry], name: str) -> None:
    """Raise a DataError if an archive is no text document, or has a password."""
    contents = {entry.name: entry.content for entry in entries}
    if b"encryption-data" in contents.get("META-INF/manifest.xml", b""):
        raise DataError(f"{name}: protected by a password; save it without one")
    kind = contents.get("mimetype", MIMETYPE.encode()).decode("ascii", "replace").strip()
    if PARTS[0] not in contents or not kind.startswith(MIMETYPE):
        problem = f"its type is {kind[:80]}" if PARTS[0] in contents else f"its archive has no {PARTS[0]}"
        raise DataError(f"{name}: not a text document of OpenDocument: {problem}; save it as {PurePath(name).suffix}")


def _looks(root: Element) -> Looks:
    """Return what the automatic styles of spans change."""
    return {
        style.attributes.get("name", ""): _look(style)
        for style in at_path(root, "automatic-styles", "style")
        if style.attributes.get("family") == "text"
    }


def _look(style: Element) -> str | None:
    """Return what a style changes; None: nothing that is shown."""
    shown = [("parent", style.attributes["parent-style-name"])] if "parent-style-name" in style.attributes else []
    for properties in style.elements():
        shown += [item for item in properties.attributes.items() if not _NOT_SHOWN.fullmatch(item[0])]
    return repr(sorted(shown)) if shown else None


def _spans(text: str, element: Element, looks: Looks) -> Iterator[Span]:
    """Yield the paragraphs in an element, with those of notes and text boxes, which are in other paragraphs."""
    if element.name == "tracked-changes":  # deleted text
        return
    if _is_paragraph(element):
        span = _paragraph_span(text, element, looks)
        if span:
            yield span
    for child in element.elements():
        yield from _spans(text, child, looks)


def _is_paragraph(element: Element) -> bool:
    return element.name in _PARAGRAPHS and element.namespace == _TEXT


def _paragraph_span(text: str, paragraph: Element, looks: Looks) -> Span | None:
    """Return the span of a paragraph, or None if it has no letter."""
    span_looks = _span_looks(paragraph, looks)
    items = _without_plain_spans(inline_items(text, paragraph, _classify), span_looks)
    prefix = tag_name(text, paragraph).removesuffix(paragraph.name)
    return make_span(text, _joined(_collapsed(text, items), span_looks), partial(_render, prefix))


def _without_plain_spans(items: Iterator[Item], looks: Mapping[int, str | None]) -> Iterator[Item]:
    """Yield items in which the tags of spans that change nothing are dropped. For `looks`, see `_span_looks`."""
    plain: set[str] = set()
    for item in items:
        if item.kind in ("open", "point") and looks.get(item.start, "") is None:
            plain.add(item.name)
            yield replace(item, is_dropped=True)
        elif item.kind == "close" and item.name in plain:
            yield replace(item, is_dropped=True)
        else:
            yield item


def _collapsed(text: str, items: Iterator[Item]) -> Iterator[Item]:
    """Yield items with the spaces that are shown: of several characters, also in neighboring spans, only the first."""
    follows_space = False
    for item in items:
        if item.kind == "text":
            is_element = text[item.start] == "<"
            shown = item.text if is_element else _WHITE_SPACE.sub(" ", item.text)
            if follows_space and not is_element:
                shown = shown.removeprefix(" ")
            follows_space = not is_element and (shown.endswith(" ") or (follows_space and not shown))
            yield replace(item, text=shown)
        else:
            follows_space = follows_space and (item.kind in ("open", "close") or item.is_dropped)
            yield item


def _span_looks(paragraph: Element, looks: Looks) -> Mapping[int, str | None]:
    """Return what the spans of a paragraph change, by the place of their start tags."""
    found: dict[int, str | None] = {}
    for child in paragraph.elements():
        if _name(child) in _PAIRS:
            found |= _span_looks(child, looks)
        if _name(child) == "span":
            found[child.start] = _look_of(child, looks)
    return found


def _look_of(span: Element, looks: Looks) -> str | None:
    """Return what a span changes. A style that is not in the same file is known by its name."""
    style = span.attributes.get("style-name", "")
    return looks.get(style, f"style {style}")


def _name(element: Element) -> str:
    """Return the name of an element of text, or an empty string for another one."""
    return element.name if element.namespace == _TEXT else ""


def _classify(element: Element, start: int, end: int) -> Item | None:
    """Return the item of an element in a paragraph, see `xml_markup.Classify`."""
    name = _name(element)
    if name in _PAIRS:
        return None
    if name == "s" and _count(element) <= _FEW_SPACES:
        return Item(start, end, "text", " " * _count(element))
    if name == "ruby":
        base = next(element.elements("ruby-base"), None)
        if base and not any(base.elements()):
            return Item(start, end, "text", base.text())
    if name in _DROPPED:
        return Item(start, end, "point", is_dropped=True)
    tag = "br" if name in _SPACES else "x"
    is_word = name not in _SPACES and name not in ("note", "ruby") and not _MARKS.fullmatch(name)
    return Item(start, end, "point", word=is_word and bool(name), raw=f"<{tag} {start}/>", has_spans=True)


def _count(space: Element) -> int:
    """Return the number of spaces that an element stands for."""
    number = space.attributes.get("c", "1")
    if not re.fullmatch("[0-9]+", number):
        return 1
    return int(number) if len(number) <= 4 else _FEW_SPACES + 1


def _joined(items: Iterator[Item], looks: Mapping[int, str | None]) -> list[Item]:
    """Join neighboring spans of the same look: drop the end tag of the first and the start tag of the second.

    For `looks`, see `_span_looks`.
    """
    joined: list[Item] = []
    look_of_pair: dict[str, str | None] = {}
    first_pair: dict[str, str] = {}
    for item in items:
        look = looks.get(item.start) if item.kind == "open" else None
        last = joined[-1] if joined else None
        if look and last and last.kind == "close" and look_of_pair.get(last.name) == look:
            first_pair[item.name] = last.name
            joined[-1] = replace(last, kind="point", is_dropped=True)
            joined.append(replace(item, kind="point", is_dropped=True))
            continue
        if item.kind == "open":
            look_of_pair[item.name] = look
        joined.append(replace(item, name=first_pair.get(item.name, item.name)))
    return joined


def _render(prefix: str, translation: Inline, markup: Mapping[str, str]) -> str:
    """Return a translation as it stands in the file. One space is a character, and each further one an element."""
    pieces: list[str] = []
    follows_space = False
    for part in translation:
        if isinstance(part, Tag):
            pieces.append(markup.get(part.raw, part.raw))
            follows_space = follows_space and part.kind != "point"
            continue
        escaped = escape(part)
        if follows_space:
            escaped = _SPACES_AT_START.sub(partial(_spaces, prefix), escaped)
        pieces.append(_FURTHER_SPACES.sub(partial(_spaces, prefix), escaped))
        follows_space = part.endswith(" ")
    return "".join(pieces)


def _spaces(prefix: str, spaces: re.Match[str]) -> str:
    full, rest = divmod(len(spaces[0]), _FEW_SPACES)
    counts = [_FEW_SPACES] * full + [rest] * (rest > 0)
    return "".join(f'<{prefix}s {prefix}c="{count}"/>' for count in counts)


def _structure(element: Element, looks: Looks) -> int:
    """Return a hash of an element without the text of paragraphs."""
    if element.name == "tracked-changes":
        return tree_structure(element)
    content: list[int | str] = []
    if _is_paragraph(element):
        content += _paragraph_structure(element, looks)
    else:
        content += [child.strip() if isinstance(child, str) else _structure(child, looks) for child in element.children]
    return hash((element.name, *sorted(element.attributes.items()), *(part for part in content if part != "")))


def _paragraph_structure(paragraph: Element, looks: Looks) -> list[int]:
    """Return hashes of the elements in a paragraph, which may change places. Neighboring spans may be joined."""
    shown = {hash(look) for look in _span_looks(paragraph, looks).values() if look is not None}
    return [*sorted(_kept_parts(paragraph, looks)), *sorted(shown)]


def _kept_parts(element: Element, looks: Looks) -> Iterator[int]:
    """Yield hashes of the elements in a paragraph or span that a translation keeps."""
    for child in element.elements():
        item = _classify(child, child.start, child.close)
        if _name(child) == "span":
            yield from _kept_parts(child, looks)
        elif item is None:
            yield hash((child.name, *sorted(child.attributes.items()), *_paragraph_structure(child, looks)))
        elif item.kind == "point" and not item.is_dropped:
            yield _structure(child, looks)
