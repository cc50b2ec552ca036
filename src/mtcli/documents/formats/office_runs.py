"""Paragraphs of Office documents, which are divided into runs: their text, and how a translation is written.

Each run has its properties: `<w:r><w:rPr>…</w:rPr><w:t>text</w:t></w:r>`. In the segment, the properties of most of the
text need no tag. A run with others is between an opening and a closing tag. Everything that is not text (tabs,
pictures, fields, bookmarks) is a tag; hyperlinks and the like are pairs of tags.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

from mtcli.documents.formats.escapes import escape
from mtcli.documents.formats.items import (
    Item,
    divided_spans,
    has_letters,
    make_span,
    pair_tags,
    texts_and_matches,
    trim,
)
from mtcli.documents.formats.slots import Span, render_with
from mtcli.documents.formats.xml_markup import inline_items, inside, is_empty_tag, keeps_space, outside, tag_name
from mtcli.documents.markup.inline import Inline, Tag, merged
from mtcli.text.safe_xml import Element

XML_SPACE = " \t\r\n"
"""The white space of XML. A no-break space at an end of a text is shown even without `xml:space="preserve"`."""
KEPT_SPACE = ' xml:space="preserve"'
_EMPTY_ELEMENT = re.compile(r"<[^\s<>/]+\s*(?:/>|>\s*</[^<>]*>)")


@dataclass(frozen=True)
class Markup:
    """The names of the elements in paragraphs."""

    paragraphs: frozenset[str]
    not_shown: re.Pattern[str]
    """What the properties of a run may have without a change of how its text looks."""
    containers: frozenset[str] = frozenset()
    """Elements around runs. Their text is translated."""
    properties: frozenset[str] = frozenset({"rPr"})
    dropped: frozenset[str] = frozenset()
    """Elements that a paragraph loses if it changes."""
    words: frozenset[str] = frozenset()
    """Markup that stands for a word of the sentence."""
    spaces: frozenset[str] = frozenset()
    """Markup that separates words, as `<br>` does in HTML. Its tags in a segment have this name."""
    as_text: frozenset[str] = frozenset({"t"})
    """Elements that are text of the segment. A translation is written as `<t>`."""
    text_attributes: str = KEPT_SPACE
    """Attributes of `<t>` in a translation."""
    has_single_text: bool = True
    """A run has nothing but one text, so that all other markup is between runs."""
    has_escapes: bool = False
    """In a text, `_x000A_` stands for a line break."""

    @property
    def rewritten(self) -> frozenset[str]:
        """Elements of a run that are written again with a translation."""
        return self.dropped | self.as_text | {"rPr"}

    def is_run(self, element: Element, paragraph: Element) -> bool:
        """Return True if an element is a run in a paragraph or in a container."""
        return element.name == "r" and element.namespace == paragraph.namespace


WORD = Markup(
    paragraphs=frozenset({"p"}),
    not_shown=re.compile(r"<(?:\w+:)?(?:lang|noProof)\b[^>]*/>"),
    containers=frozenset({"hyperlink", "ins", "moveTo", "smartTag", "sdt", "sdtContent", "customXml", "dir", "bdo"}),
    properties=frozenset({"pPr", "rPr", "sdtPr", "sdtEndPr", "smartTagPr", "customXmlPr"}),
    dropped=frozenset({"proofErr", "lastRenderedPageBreak", "softHyphen"}),
    words=frozenset({"oMath", "oMathPara", "fldSimple", "sym", "fldChar"}),
    spaces=frozenset({"br", "cr", "tab", "ptab"}),
    as_text=frozenset({"t", "noBreakHyphen", "ruby"}),
    has_single_text=False,
)
"""Word."""
DRAWING = Markup(
    paragraphs=frozenset({"p"}),
    not_shown=re.compile(r"""\s(?:lang|altLang|noProof|dirty|err|smtClean|bmk)=(?:"[^"]*"|'[^']*')"""),
    properties=frozenset({"pPr", "rPr", "endParaRPr"}),
    words=frozenset({"fld", "AlternateContent", "m"}),
    spaces=frozenset({"br"}),
    text_attributes="",
)
"""DrawingML: the text of slides, text boxes and charts."""
EXCEL = Markup(
    paragraphs=frozenset({"si", "is", "text"}),
    not_shown=re.compile(r"(?!)"),
    dropped=frozenset({"rPh", "phoneticPr"}),
    has_escapes=True,
)
"""Excel."""
_FAMILIES = ("http://schemas.openxmlformats.org", "http://purl.oclc.org/ooxml")
"""Namespaces begin with one of these: the usual one, and that of the strict form of the standard."""
_PATHS = (
    (WORD, ("/wordprocessingml/2006/main", "/wordprocessingml/main")),
    (DRAWING, ("/drawingml/2006/main", "/drawingml/main")),
    (EXCEL, ("/spreadsheetml/2006/main", "/spreadsheetml/main")),
)
MARKUP = {family + path: markup for markup, paths in _PATHS for family, path in zip(_FAMILIES, paths, strict=True)}
"""The names of elements by namespace."""
_PLAIN = {
    "http://schemas.openxmlformats.org/presentationml/2006/main": "text",
    "http://purl.oclc.org/ooxml/presentationml/main": "text",
    "http://schemas.microsoft.com/office/spreadsheetml/2018/threadedcomments": "text",
}
"""The name of elements that have text and nothing else, by namespace: comments."""
_LINE_BREAKS = re.compile(r"(?P<break>(?:[\r\n]|&#(?:1[03]|x[aAdD]);|_x000[aAdD]_)+)|(?P<point>_x[0-9A-Fa-f]{4}_)")
_ESCAPES = re.compile(r"(?:(?<!\s)\s*)?(?:[\r\n]|_x[0-9A-Fa-f]{4}_)+\s*")
"""Line breaks and escapes with the white space around them, which is searched only from its start: in linear time."""
_ESCAPE_LIKE = re.compile(r"_(?=x[0-9A-Fa-f]{4}(?:_|\Z))")
"""Also at the end of a text, where an escape may follow."""


def markup_of(element: Element) -> Markup | None:
    """Return the names of elements if an element is a paragraph, otherwise None."""
    markup = MARKUP.get(element.namespace)
    return markup if markup and element.name in markup.paragraphs else None


def is_plain(element: Element) -> bool:
    """Return True if an element has text and nothing else."""
    return _PLAIN.get(element.namespace) == element.name


def plain_spans(text: str, element: Element, *, has_escapes: bool) -> Iterator[Span]:
    """Yield the lines of an element without elements in it; one with a section of characters has one line."""
    render = render_with(partial(escape_text, has_escapes=has_escapes))
    start, end = inside(text, element)
    if "<" not in text[start:end]:
        yield from divided_spans(text, start, end, _LINE_BREAKS, render)
        return
    span = make_span(text, list(inline_items(text, element)), render)
    if span:
        yield span


def escape_text(text: str, *, has_escapes: bool) -> str:
    """Escape the text of a translation. See `Markup.has_escapes`."""
    escaped = escape(text)
    return _ESCAPE_LIKE.sub("_x005F_", escaped) if has_escapes else escaped


@dataclass(frozen=True, slots=True)
class _RunItem(Item):
    """A text or markup of a paragraph, and the runs that it is in."""

    before: str | None = None
    """The properties of the run in which it starts; None: it starts outside of runs."""
    after: str | None = None
    """The properties of the run in which it ends."""
    look: str | None = None
    """Of text, and of an escape, which has it in `raw`: the properties with which it is written."""
    field: str = ""
    """Of a mark of a field: `begin`, `separate` or `end`."""


@dataclass(slots=True)
class _Plan:
    """What is needed to write a translation of a paragraph."""

    markup: Markup
    prefix: str
    """The prefix of the namespace in the file, such as `w:`."""
    first: str | None
    """The properties of the run in which the span starts."""
    last: str | None
    base: str | None
    """The properties of most of the text."""
    items: dict[str, _RunItem] = field(default_factory=dict)
    """The markup, by `Tag.raw`."""
    formats: dict[str, str | None] = field(default_factory=dict)
    """The properties of the text after an opening tag, by `Tag.raw`."""


def paragraph_span(text: str, paragraph: Element, markup: Markup) -> Span | None:
    """Return the span of a paragraph, or None if it has no letter.

    Args:
        text: The XML of the part of the document.
        paragraph: Its element, such as `<w:p>`.
        markup: The names of its elements.
    """
    prefix = tag_name(text, paragraph).removesuffix(paragraph.name)
    items = _join_fields(text, list(_items(text, paragraph, markup)))
    if not any(has_letters(item.text) for item in items):
        return None
    paired, partner = pair_tags(items)
    first, last = trim(paired, partner)
    kept = paired[first:last]
    bases = _bases(kept)
    plan = _Plan(markup, prefix, kept[0].before, kept[-1].after, bases[-1])
    segment = _segment(kept, bases, plan)
    places = tuple((raw, item.start, item.end) for raw, item in plan.items.items() if not item.raw)
    end = max([kept[-1].end, *(outside(text, child)[1] for child in paragraph.elements("rPh", "phoneticPr"))])
    return Span(kept[0].start, end, segment, partial(_write, plan), places)


def _items(text: str, element: Element, markup: Markup) -> Iterator[_RunItem]:
    """Yield what is in a paragraph or in an element around runs."""
    for child in element.elements():
        start, end = outside(text, child)
        if child.name in markup.properties or child.name in markup.dropped:
            continue
        if markup.is_run(child, element) and not markup.has_single_text:
            yield from _run_items(text, child, markup)
        elif markup.is_run(child, element) or (markup.has_single_text and child.name in markup.as_text):
            yield from _single_text(text, child, markup)
        elif child.name in markup.containers and child.namespace == element.namespace and not is_empty_tag(text, child):
            opening = inside(text, child)[0]
            for properties in child.elements(*markup.properties):
                opening = max(opening, outside(text, properties)[1])
            yield _RunItem(start, opening, "open", name=f"container {start}")
            yield from _items(text, child, markup)
            yield _RunItem(child.close, end, "close", name=f"container {start}")
        else:
            name = "br" if child.name in markup.spaces else ""
            yield _RunItem(start, end, "point", name=name, word=child.name in markup.words)


def _run_items(text: str, run: Element, markup: Markup) -> Iterator[_RunItem]:
    """Yield what is in a run of Word."""
    look = _look(text, run, markup)
    for child in run.elements():
        start, end = outside(text, child)
        if child.name in markup.properties or child.name in markup.dropped:
            continue
        if child.name == "t":
            content = child.text()
            shown = content if keeps_space(child) else content.strip(XML_SPACE)
            yield _RunItem(start, end, "text", shown, before=look, after=look, look=look)
        elif child.name == "ruby" and _ruby_base(child, markup):
            yield _RunItem(start, end, "text", _ruby_base(child, markup), before=look, after=look, look=look)
        elif child.name == "noBreakHyphen":  # markup within a word would divide it
            yield _RunItem(start, end, "text", "-", before=look, after=look, look=look)
        else:
            name = "br" if child.name in markup.spaces else ""
            mark = child.attributes.get("fldCharType", "") if child.name == "fldChar" else ""
            is_word = child.name in markup.words
            yield _RunItem(start, end, "point", name=name, word=is_word, before=look, after=look, field=mark)


def _single_text(text: str, run: Element, markup: Markup) -> Iterator[_RunItem]:
    """Yield the text of a run that has nothing else, or of a text without a run, and the escapes in it."""
    start, end = outside(text, run)
    if run.name == "r" and any(child.name not in ("t", *markup.properties) for child in run.elements()):
        yield _RunItem(start, end, "point", word=True)
        return
    look = _look(text, run, markup)
    texts = [run] if run.name == "t" else list(run.elements("t"))
    content = "".join(child.text() for child in texts)
    escapes = _ESCAPES.finditer(content) if markup.has_escapes else ()
    pieces = list(texts_and_matches(escapes, 0, len(content)))
    place = start
    for number, (first, last, escaped) in enumerate(pieces, 1):
        piece = content[first:last]
        piece_end = end if number == len(pieces) else start + 1
        if escaped:
            yield _RunItem(place, piece_end, "point", name="br", word=True, raw=escape(piece), look=look)
        else:
            yield _RunItem(place, piece_end, "text", piece, look=look)
        place = piece_end


def _ruby_base(ruby: Element, markup: Markup) -> str:
    """Return the text over which a reading stands; an empty string if something else than text is there too."""
    runs = [run for base in ruby.elements("rubyBase") for run in base.elements()]
    parts = [part for run in runs for part in run.elements() if part.name not in markup.properties | markup.dropped]
    is_text = all(run.name == "r" for run in runs) and all(part.name == "t" for part in parts)
    return "".join(part.text() for part in parts) if is_text else ""


def _look(text: str, run: Element, markup: Markup) -> str:
    """Return the properties of a run that change how its text looks; an empty string if it has none."""
    properties = next(run.elements("rPr"), None)
    if properties is None:
        return ""
    shown = markup.not_shown.sub("", text[slice(*outside(text, properties))])
    return "" if _EMPTY_ELEMENT.fullmatch(shown) else shown


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
        last = separators.get(index, index)
        if index in closing:
            joined.append(replace(item, kind="close", name=closing[index]))
        elif index in ends and re.search(r">\s*HYPERLINK\b", text[item.end : items[last].start]):
            name = f"field {item.start}"
            closing[ends[index]] = name
            joined.append(_point(items[index : last + 1], "open", name))
        else:
            last = ends.get(index) or _end_of_instruction(items, index)
            joined.append(_point(items[index : last + 1], "point", "") if last > index else item)
        index = last + 1
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


def _segment(items: Sequence[_RunItem], bases: Mapping[int, str | None], plan: _Plan) -> Inline:
    """Make the segment of a paragraph from its items, and add its markup and properties to the plan. See `_bases`."""
    parts: list[str | Tag] = []
    levels = [-1]
    group = ""
    for index, item in enumerate(items):
        if group and (item.kind in ("open", "close") or (item.kind == "text" and item.look != plan.formats[group])):
            parts.append(Tag(group.replace("<", "</"), "close"))
            group = ""
        if item.kind == "text":
            if item.look != bases[levels[-1]] and not group:
                group = f"<r{index}>"
                plan.formats[group] = item.look
                parts.append(Tag(group, "open"))
            parts.append(item.text)
            continue
        raw = f"<br {index}/>" if item.name == "br" else f"<x{index}/>"
        if item.kind == "open":
            raw = f"<x{index}>"
            levels.append(index)
            plan.formats[raw] = bases.get(index, bases[-1])
        elif item.kind == "close":
            raw = f"</x{levels.pop()}>"
        parts.append(Tag(raw, item.kind))
        plan.items[raw] = item
    if group:
        parts.append(Tag(group.replace("<", "</"), "close"))
    return merged(parts)


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
            counts.setdefault(levels[-1], Counter())[item.look] += len(item.text)
    bases = {level: count.most_common(1)[0][0] for level, count in counts.items()}
    bases.setdefault(-1, next(iter(bases.values())))
    return bases


def _write(plan: _Plan, translation: Inline, copied: Mapping[str, str]) -> str:
    """Return the runs of a translation. They begin and end in the runs in which the span begins and ends.

    Lines of a cell with the same properties are in one run: with a run each, they would take the memory of the
    properties as often as there are lines.
    """
    markup = plan.markup
    pieces: list[str] = []
    run = plan.first
    looks = [plan.base]
    for part in translation:
        if isinstance(part, str):
            if part:
                pieces.append(_switch(plan, run, looks[-1]))
                content = escape_text(part, has_escapes=markup.has_escapes)
                pieces.append(content if markup.has_single_text else f"{_text_tag(plan)}{content}</{plan.prefix}t>")
                run = looks[-1]
            continue
        item = plan.items.get(part.raw)
        if item and item.raw:
            pieces.append(_switch(plan, run, item.look))
            pieces.append(item.raw)
            run = item.look
        elif item:
            pieces.append(_switch(plan, run, item.before))
            pieces.append(copied[part.raw])
            run = item.after
        if part.kind == "open":
            looks.append(plan.formats[part.raw])
        elif part.kind == "close" and len(looks) > 1:
            looks.pop()
    pieces.append(_switch(plan, run, plan.last))
    return "".join(pieces)


def _switch(plan: _Plan, run: str | None, wanted: str | None) -> str:
    """Return the tags that end one run and begin another, with those of its text if it has only one.

    None is the place between two runs.
    """
    if run == wanted:
        return ""
    has_single_text = plan.markup.has_single_text
    end = f"</{plan.prefix}t></{plan.prefix}r>" if has_single_text else f"</{plan.prefix}r>"
    closing = "" if run is None else end
    opening = "" if wanted is None else f"<{plan.prefix}r>{wanted}{_text_tag(plan) if has_single_text else ''}"
    return closing + opening


def _text_tag(plan: _Plan) -> str:
    return f"<{plan.prefix}t{plan.markup.text_attributes}>"
