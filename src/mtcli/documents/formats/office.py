"""Word documents: the paragraphs of the text, headers, footers, notes, comments and text boxes.

Only the runs of paragraphs that change are written again; all other XML of the document stays as it is.

Word divides a paragraph into runs, each with its properties: `<w:r><w:rPr>…</w:rPr><w:t>text</w:t></w:r>`. In the
segment, the properties of most of the text need no tag. A run with others is between an opening and a closing tag.
Everything that is not text (tabs, pictures, fields, bookmarks) is a tag; hyperlinks and the like are pairs of tags.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

from mtcli.corpus.readers.safe_xml import Element, decode_xml, read_xml
from mtcli.documents.formats.archive import ArchiveDocument, Entry, read_archive
from mtcli.documents.formats.encoding import EncodedText
from mtcli.documents.formats.escapes import escape
from mtcli.documents.formats.format import Document, ReadOptions
from mtcli.documents.formats.items import Item, has_letters, pair_tags, trim
from mtcli.documents.formats.slots import SlotDocument, Span
from mtcli.documents.formats.structure import Digest
from mtcli.documents.formats.xml_markup import inside, is_empty_tag, keeps_space, outside, tag_name
from mtcli.documents.markup.inline import Inline, Tag, merged
from mtcli.errors import DataError

CONTENT_TYPES = "[Content_Types].xml"
PARTS = ("main", "header", "footer", "footnotes", "endnotes", "comments")
"""Parts with text, as the ends of their content types name them."""
PART_BYTES = 64 * 2**20
"""Size limit of a part with text in bytes. A document of 1,000 pages has about 20 MB of XML."""
NAMESPACES = (
    "http://schemas.openxmlformats.org/wordprocessingml/2006/main",
    "http://purl.oclc.org/ooxml/wordprocessingml/main",
)
"""The namespaces of Word: the usual one, and that of the strict form of the standard."""
CONTAINERS = frozenset({"hyperlink", "ins", "moveTo", "smartTag", "sdt", "sdtContent", "customXml", "dir", "bdo"})
"""Elements around runs. Their text is translated."""
PROPERTIES = frozenset({"pPr", "rPr", "sdtPr", "sdtEndPr", "smartTagPr", "customXmlPr"})
DROPPED = frozenset({"proofErr", "lastRenderedPageBreak", "softHyphen"})
"""Marks of the spelling checker and of the last layout, and soft hyphens. A paragraph that changes loses them."""
WORDS = frozenset({"oMath", "oMathPara", "fldSimple", "sym", "fldChar"})
"""Markup that stands for a word of the sentence."""
SPACES = frozenset({"br", "cr", "tab", "ptab"})
"""Markup that separates words, as `<br>` does in HTML. Its tags in a segment have this name."""
XML_SPACE = " \t\r\n"
"""The white space of XML. A no-break space at an end of a text is shown even without `xml:space="preserve"`."""
NOT_SHOWN = ("lang", "noProof")
"""Run properties that do not change how text looks."""
_NOT_SHOWN = re.compile(rf"<(?:\w+:)?(?:{'|'.join(NOT_SHOWN)})\b[^>]*/>")
_TEXT = DROPPED | {"rPr", "t", "noBreakHyphen", "ruby"}
"""Elements of a run that are written again with a translation."""
_OLD_FORMAT = b"\xd0\xcf\x11\xe0"
"""First bytes of .doc files, and of .docx files with a password."""


@dataclass(frozen=True, slots=True)
class _RunItem(Item):
    """A text or markup of a paragraph, and the runs that it is in."""

    before: str | None = None
    """The properties of the run in which it starts; None: it starts outside of runs."""
    after: str | None = None
    """The properties of the run in which it ends."""
    field: str = ""
    """Of a mark of a field: `begin`, `separate` or `end`."""


@dataclass(slots=True)
class _Plan:
    """What is needed to write a translation of a paragraph."""

    prefix: str
    """The prefix of Word's namespace in the file, such as `w:`."""
    first: str | None
    """The properties of the run in which the span starts."""
    last: str | None
    base: str | None
    """The properties of most of the text."""
    items: dict[str, _RunItem] = field(default_factory=dict)
    """The markup, by `Tag.raw`."""
    formats: dict[str, str | None] = field(default_factory=dict)
    """The properties of the text after an opening tag, by `Tag.raw`."""


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
    return ArchiveDocument(content, entries, parts)


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
        span = _paragraph_span(text, element)
        if span:
            yield span
    for child in element.elements():
        yield from _spans(text, child)


def _paragraph_span(text: str, paragraph: Element) -> Span | None:
    """Return the span of a paragraph, or None if it has no letter.

    Args:
        text: The XML of the part of the document.
        paragraph: Its element `<w:p>`.
    """
    items = _join_fields(text, list(_items(text, paragraph)))
    if not any(has_letters(item.text) for item in items):
        return None
    paired, partner = pair_tags(items)
    first, last = trim(paired, partner)
    kept = paired[first:last]
    partners = {start - first: end - first for start, end in partner.items()}
    prefix = tag_name(text, paragraph).removesuffix("p")
    segment, plan = _segment(kept, partners, prefix)
    places = tuple((raw, item.start, item.end) for raw, item in plan.items.items())
    return Span(kept[0].start, kept[-1].end, segment, partial(_write, plan), places)


def _items(text: str, element: Element) -> Iterator[_RunItem]:
    """Yield what is in a paragraph or in an element around runs."""
    for child in element.elements():
        start, end = outside(text, child)
        if child.name in PROPERTIES or child.name in DROPPED:
            continue
        if child.name == "r" and child.namespace in NAMESPACES:
            yield from _run_items(text, child)
        elif child.name in CONTAINERS and child.namespace in NAMESPACES and not is_empty_tag(text, child):
            opening = inside(text, child)[0]
            for properties in child.elements(*PROPERTIES):
                opening = max(opening, outside(text, properties)[1])
            yield _RunItem(start, opening, "open", name=f"container {start}")
            yield from _items(text, child)
            yield _RunItem(child.close, end, "close", name=f"container {start}")
        else:
            yield _RunItem(start, end, "point", word=child.name in WORDS)


def _run_items(text: str, run: Element) -> Iterator[_RunItem]:
    """Yield what is in a run."""
    look = _look(text, run)
    for child in run.elements():
        start, end = outside(text, child)
        if child.name in PROPERTIES or child.name in DROPPED:
            continue
        if child.name == "t":
            content = child.text()
            shown = content if keeps_space(child) else content.strip(XML_SPACE)
            yield _RunItem(start, end, "text", shown, before=look, after=look)
        elif child.name == "ruby" and _ruby_base(child):
            yield _RunItem(start, end, "text", _ruby_base(child), before=look, after=look)
        elif child.name == "noBreakHyphen":  # markup within a word would divide it
            yield _RunItem(start, end, "text", "-", before=look, after=look)
        else:
            name = "br" if child.name in SPACES else ""
            mark = child.attributes.get("fldCharType", "") if child.name == "fldChar" else ""
            is_word = child.name in WORDS
            yield _RunItem(start, end, "point", name=name, word=is_word, before=look, after=look, field=mark)


def _ruby_base(ruby: Element) -> str:
    """Return the text over which a reading stands; an empty string if something else than text is there too."""
    runs = [run for base in ruby.elements("rubyBase") for run in base.elements()]
    parts = [part for run in runs for part in run.elements() if part.name not in PROPERTIES | DROPPED]
    is_text = all(run.name == "r" for run in runs) and all(part.name == "t" for part in parts)
    return "".join(part.text() for part in parts) if is_text else ""


def _look(text: str, run: Element) -> str:
    """Return the properties of a run that change how its text looks; an empty string if it has none."""
    properties = next(run.elements("rPr"), None)
    if properties is None or all(child.name in NOT_SHOWN for child in properties.elements()):
        return ""
    return _NOT_SHOWN.sub("", text[slice(*outside(text, properties))])


def _join_fields(text: str, items: Sequence[_RunItem]) -> list[_RunItem]:
    """Join the marks, the instruction and the result of each field into one point. Hyperlinks keep their text.

    Of a field that ends in another paragraph, the beginning and the instruction are one point.
    """
    ends, separators = _places_of_fields(items)
    closing: dict[int, str] = {}
    joined: list[_RunItem] = []
    index = 0
    while index < len(items):
        item = items[index]
        end = ends.get(index)
        if end is None:
            name = closing.get(index)
            last = _end_of_instruction(items, index)
            if last > index:
                joined.append(_point(items[index : last + 1], "point", ""))
            else:
                joined.append(replace(item, kind="close", name=name) if name else item)
            index = last + 1
            continue
        separator = separators.get(index)
        instruction = text[item.end : items[separator].start] if separator else ""
        if separator and re.search(r">\s*HYPERLINK\b", instruction):
            closing[end] = f"field {item.start}"
            joined.append(_point(items[index : separator + 1], "open", closing[end]))
            index = separator + 1
        else:
            joined.append(_point(items[index : end + 1], "point", ""))
            index = end + 1
    return joined


def _end_of_instruction(items: Sequence[_RunItem], index: int) -> int:
    """Return the index of the mark that ends the instruction of a field, or the index itself if there is none."""
    if items[index].field != "begin":
        return index
    for last in range(index + 1, len(items)):
        if items[last].field == "separate":
            return last
        if items[last].kind != "point" or items[last].field:
            break
    return index


def _point(items: Sequence[_RunItem], kind: Literal["open", "point"], name: str) -> _RunItem:
    """Join adjacent items into one markup."""
    first = items[0]
    last = items[-1]
    return _RunItem(first.start, last.end, kind, name=name, word=True, before=first.before, after=last.after)


def _places_of_fields(items: Sequence[_RunItem]) -> tuple[dict[int, int], dict[int, int]]:
    """Return the index of the end of each field, and that of the end of its instruction, by that of its beginning.

    A field that goes beyond the paragraph, or beyond an element in it, is omitted.
    """
    ends: dict[int, int] = {}
    separators: dict[int, int] = {}
    fields: list[tuple[int, int]] = []
    containers = [-1]
    for index, item in enumerate(items):
        if item.kind == "open":
            containers.append(index)
        elif item.kind == "close":
            containers.pop()
        elif item.field == "begin":
            fields.append((index, containers[-1]))
        elif item.field == "separate" and fields and fields[-1][1] == containers[-1]:
            separators.setdefault(fields[-1][0], index)
        elif item.field == "end" and fields:
            begin, container = fields.pop()
            if container == containers[-1]:
                ends[begin] = index
    return ends, separators


def _segment(items: Sequence[_RunItem], partners: Mapping[int, int], prefix: str) -> tuple[Inline, _Plan]:
    """Make the segment of a paragraph, and the plan to write its translation.

    Args:
        items: The content of the paragraph without what surrounds its text.
        partners: The index of the closing item by that of the opening one.
        prefix: See `_Plan`.
    """
    bases = _bases(items)
    plan = _Plan(prefix, items[0].before, items[-1].after, bases[-1])
    parts: list[str | Tag] = []
    levels = [-1]
    names: dict[int, int] = {}
    group = ""
    for index, item in enumerate(items):
        different = item.kind == "text" and item.before != bases[levels[-1]]
        if group and (item.kind in ("open", "close") or (item.kind == "text" and item.before != plan.formats[group])):
            parts.append(Tag(group.replace("<", "</"), "close"))
            group = ""
        if item.kind == "text":
            if different and not group:
                group = f"<r{index}>"
                plan.formats[group] = item.before
                parts.append(Tag(group, "open"))
            parts.append(item.text)
            continue
        raw = f"<br {index}/>" if item.name == "br" else f"<x{index}/>"
        if item.kind == "open":
            raw = f"<x{index}>"
            names[partners[index]] = index
            levels.append(index)
            plan.formats[raw] = bases.get(index, bases[-1])
        elif item.kind == "close":
            raw = f"</x{names[index]}>"
            levels.pop()
        parts.append(Tag(raw, item.kind))
        plan.items[raw] = item
    if group:
        parts.append(Tag(group.replace("<", "</"), "close"))
    return merged(parts), plan


def _bases(items: Sequence[_RunItem]) -> dict[int, str | None]:
    """Return the properties of most of the text in each pair of tags, by the index of the opening one; -1: outside."""
    counts: dict[int, Counter[str | None]] = {}
    levels = [-1]
    for index, item in enumerate(items):
        if item.kind == "open":
            levels.append(index)
        elif item.kind == "close":
            levels.pop()
        elif item.kind == "text":
            counts.setdefault(levels[-1], Counter())[item.before] += len(item.text)
    bases = {level: count.most_common(1)[0][0] for level, count in counts.items()}
    bases.setdefault(-1, next(iter(bases.values())))
    return bases


def _write(plan: _Plan, translation: Inline, markup: Mapping[str, str]) -> str:
    """Return the runs of a translation. They begin and end in the runs in which the span begins and ends."""
    pieces: list[str] = []
    run = plan.first
    looks = [plan.base]
    for part in translation:
        if isinstance(part, str):
            if part:
                pieces.append(_switch(plan.prefix, run, looks[-1]))
                pieces.append(f'<{plan.prefix}t xml:space="preserve">{escape({}, part)}</{plan.prefix}t>')
                run = looks[-1]
            continue
        item = plan.items.get(part.raw)
        if item:
            pieces.append(_switch(plan.prefix, run, item.before))
            pieces.append(markup[part.raw])
            run = item.after
        if part.kind == "open":
            looks.append(plan.formats[part.raw])
        elif part.kind == "close" and len(looks) > 1:
            looks.pop()
    pieces.append(_switch(plan.prefix, run, plan.last))
    return "".join(pieces)


def _switch(prefix: str, run: str | None, wanted: str | None) -> str:
    """Return the tags that end one run and begin another. None is the place between two runs."""
    if run == wanted:
        return ""
    closing = "" if run is None else f"</{prefix}r>"
    opening = "" if wanted is None else f"<{prefix}r>{wanted}"
    return closing + opening
