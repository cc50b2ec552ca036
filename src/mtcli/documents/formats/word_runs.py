"""A paragraph of a Word document as a segment, and a translation as the runs of a paragraph.

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

from mtcli.corpus.readers.safe_xml import Element
from mtcli.documents.formats.escapes import escape
from mtcli.documents.formats.items import Item, has_letters, pair_tags, trim
from mtcli.documents.formats.slots import Span
from mtcli.documents.formats.xml_markup import inside, is_empty_tag, keeps_space, outside, tag_name
from mtcli.documents.markup.inline import Inline, Tag, merged

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


@dataclass(frozen=True, slots=True)
class Event:
    """A text or markup of a paragraph, in the order of the file."""

    kind: Literal["text", "open", "close", "point"]
    start: int
    end: int
    text: str = ""
    before: str | None = None
    """The properties of the run in which it starts; None: it starts outside of runs."""
    after: str | None = None
    """The properties of the run in which it ends."""
    name: str = ""
    word: bool = False
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
    events: dict[str, Event] = field(default_factory=dict)
    """The markup, by `Tag.raw`."""
    formats: dict[str, str | None] = field(default_factory=dict)
    """The properties of the text after an opening tag, by `Tag.raw`."""


def paragraph_span(text: str, paragraph: Element) -> Span | None:
    """Return the span of a paragraph, or None if it has no letter.

    Args:
        text: The XML of the part of the document.
        paragraph: Its element `<w:p>`.
    """
    events = _join_fields(text, list(_events(text, paragraph)))
    if not any(has_letters(event.text) for event in events):
        return None
    items = [Item(e.start, e.end, e.kind, text=e.text, name=e.name, word=e.word) for e in events]
    paired, partner = pair_tags(items)
    first, last = trim(paired, partner)
    kept = [replace(event, kind=item.kind) for event, item in zip(events, paired, strict=True)][first:last]
    partners = {start - first: end - first for start, end in partner.items()}
    prefix = tag_name(text, paragraph).removesuffix("p")
    segment, plan = _segment(kept, partners, prefix)
    places = tuple((raw, event.start, event.end) for raw, event in plan.events.items())
    return Span(kept[0].start, kept[-1].end, segment, partial(_write, plan), places)


def _events(text: str, element: Element) -> Iterator[Event]:
    """Yield what is in a paragraph or in an element around runs."""
    for child in element.elements():
        start, end = outside(text, child)
        if child.name in PROPERTIES or child.name in DROPPED:
            continue
        if child.name == "r" and child.namespace in NAMESPACES:
            yield from _run_events(text, child)
        elif child.name in CONTAINERS and child.namespace in NAMESPACES and not is_empty_tag(text, child):
            opening = inside(text, child)[0]
            for properties in child.elements(*PROPERTIES):
                opening = max(opening, outside(text, properties)[1])
            yield Event("open", start, opening, name=f"container {start}")
            yield from _events(text, child)
            yield Event("close", child.close, end, name=f"container {start}")
        else:
            yield Event("point", start, end, word=child.name in WORDS)


def _run_events(text: str, run: Element) -> Iterator[Event]:
    """Yield what is in a run."""
    look = _look(text, run)
    for child in run.elements():
        start, end = outside(text, child)
        if child.name in PROPERTIES or child.name in DROPPED:
            continue
        if child.name == "t":
            content = child.text()
            shown = content if keeps_space(child) else content.strip(XML_SPACE)
            yield Event("text", start, end, shown, look, look)
        elif child.name == "ruby" and _ruby_base(child):
            yield Event("text", start, end, _ruby_base(child), look, look)
        elif child.name == "noBreakHyphen":  # markup within a word would divide it
            yield Event("text", start, end, "-", look, look)
        else:
            name = "br" if child.name in SPACES else ""
            mark = child.attributes.get("fldCharType", "") if child.name == "fldChar" else ""
            yield Event("point", start, end, "", look, look, name, word=child.name in WORDS, field=mark)


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


def _join_fields(text: str, events: Sequence[Event]) -> list[Event]:
    """Join the marks, the instruction and the result of each field into one point. Hyperlinks keep their text.

    Of a field that ends in another paragraph, the beginning and the instruction are one point.
    """
    ends, separators = _places_of_fields(events)
    closing: dict[int, str] = {}
    joined: list[Event] = []
    index = 0
    while index < len(events):
        event = events[index]
        end = ends.get(index)
        if end is None:
            name = closing.get(index)
            last = _end_of_instruction(events, index)
            if last > index:
                joined.append(_point(events[index : last + 1], "point", ""))
            else:
                joined.append(replace(event, kind="close", name=name) if name else event)
            index = last + 1
            continue
        separator = separators.get(index)
        instruction = text[event.end : events[separator].start] if separator else ""
        if separator and re.search(r">\s*HYPERLINK\b", instruction):
            closing[end] = f"field {event.start}"
            joined.append(_point(events[index : separator + 1], "open", closing[end]))
            index = separator + 1
        else:
            joined.append(_point(events[index : end + 1], "point", ""))
            index = end + 1
    return joined


def _end_of_instruction(events: Sequence[Event], index: int) -> int:
    """Return the index of the mark that ends the instruction of a field, or the index itself if there is none."""
    if events[index].field != "begin":
        return index
    for last in range(index + 1, len(events)):
        if events[last].field == "separate":
            return last
        if events[last].kind != "point" or events[last].field:
            break
    return index


def _point(events: Sequence[Event], kind: Literal["open", "point"], name: str) -> Event:
    """Join adjacent events into one markup."""
    first = events[0]
    last = events[-1]
    return Event(kind, first.start, last.end, "", first.before, last.after, name, word=True)


def _places_of_fields(events: Sequence[Event]) -> tuple[dict[int, int], dict[int, int]]:
    """Return the index of the end of each field, and that of the end of its instruction, by that of its beginning.

    A field that goes beyond the paragraph, or beyond an element in it, is omitted.
    """
    ends: dict[int, int] = {}
    separators: dict[int, int] = {}
    fields: list[tuple[int, int]] = []
    containers = [-1]
    for index, event in enumerate(events):
        if event.kind == "open":
            containers.append(index)
        elif event.kind == "close":
            containers.pop()
        elif event.field == "begin":
            fields.append((index, containers[-1]))
        elif event.field == "separate" and fields and fields[-1][1] == containers[-1]:
            separators.setdefault(fields[-1][0], index)
        elif event.field == "end" and fields:
            begin, container = fields.pop()
            if container == containers[-1]:
                ends[begin] = index
    return ends, separators


def _segment(events: Sequence[Event], partners: Mapping[int, int], prefix: str) -> tuple[Inline, _Plan]:
    """Make the segment of a paragraph, and the plan to write its translation.

    Args:
        events: The content of the paragraph without what surrounds its text.
        partners: The index of the closing event by that of the opening one.
        prefix: See `_Plan`.
    """
    bases = _bases(events)
    plan = _Plan(prefix, events[0].before, events[-1].after, bases[-1])
    parts: list[str | Tag] = []
    levels = [-1]
    names: dict[int, int] = {}
    group = ""
    for index, event in enumerate(events):
        different = event.kind == "text" and event.before != bases[levels[-1]]
        if group and (
            event.kind in ("open", "close") or (event.kind == "text" and event.before != plan.formats[group])
        ):
            parts.append(Tag(group.replace("<", "</"), "close"))
            group = ""
        if event.kind == "text":
            if different and not group:
                group = f"<r{index}>"
                plan.formats[group] = event.before
                parts.append(Tag(group, "open"))
            parts.append(event.text)
            continue
        raw = f"<br {index}/>" if event.name == "br" else f"<x{index}/>"
        if event.kind == "open":
            raw = f"<x{index}>"
            names[partners[index]] = index
            levels.append(index)
            plan.formats[raw] = bases.get(index, bases[-1])
        elif event.kind == "close":
            raw = f"</x{names[index]}>"
            levels.pop()
        parts.append(Tag(raw, event.kind))
        plan.events[raw] = event
    if group:
        parts.append(Tag(group.replace("<", "</"), "close"))
    return merged(parts), plan


def _bases(events: Sequence[Event]) -> dict[int, str | None]:
    """Return the properties of most of the text in each pair of tags, by the index of the opening one; -1: outside."""
    counts: dict[int, Counter[str | None]] = {}
    levels = [-1]
    for index, event in enumerate(events):
        if event.kind == "open":
            levels.append(index)
        elif event.kind == "close":
            levels.pop()
        elif event.kind == "text":
            counts.setdefault(levels[-1], Counter())[event.before] += len(event.text)
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
        event = plan.events.get(part.raw)
        if event:
            pieces.append(_switch(plan.prefix, run, event.before))
            pieces.append(markup[part.raw])
            run = event.after
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
