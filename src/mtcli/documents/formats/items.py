"""From the text and the inline markup of a paragraph, with their places in the file, to its span.

The readers of HTML, Markdown, subtitles and XML find them as *items*.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from mtcli.documents.formats.escapes import kept_references, unescape
from mtcli.documents.formats.slots import Render, Span
from mtcli.documents.markup.inline import Tag, merged

WHITE_SPACE = " \t\n\f\r"
"""The characters that HTML and Markdown treat like a space. A no-break space is not one of them."""


AnyItem = TypeVar("AnyItem", bound="Item")


@dataclass(frozen=True, slots=True)
class Item:
    """Text or inline markup at a place in the file."""

    start: int
    end: int
    kind: Literal["text", "open", "close", "point"]
    text: str = ""
    """Of text: the characters that it stands for, with escapes and character references decoded.

    Of a reference that stays: the character that it stands for.
    """
    name: str = ""
    """An opening and a closing tag of the same name are partners."""
    word: bool = False
    """Markup that stands for a word of the sentence, such as a code span. It stays in the segment even at its ends."""
    raw: str = ""
    """Markup to write with a translation, if that of the file refers to the text of the source."""
    has_spans: bool = False
    """Markup with text such as an attribute, which may be a span of its own."""
    is_dropped: bool = False
    """Markup that a paragraph loses if it changes."""


def texts_and_matches(
    matches: Iterable[re.Match[str]], start: int, end: int
) -> Iterator[tuple[int, int, re.Match[str] | None]]:
    """Yield the start and the end of each part of a text, and its match; None: it is text between two matches."""
    place = start
    for found in matches:
        if place < found.start():
            yield place, found.start(), None
        place = found.end()
        yield found.start(), place, found
    if place < end:
        yield place, end, None


def text_items(text: str, start: int, end: int) -> Iterator[Item]:
    """Yield the text in a part of a file with references decoded, and as points those that stay."""
    for first, last, reference in texts_and_matches(kept_references(text, start, end), start, end):
        if reference is None:
            yield Item(first, last, "text", unescape(text[first:last]))
            continue
        raw = reference[0].removesuffix(";") + ";"  # without it, the next letter might belong to it
        yield Item(first, last, "point", unescape(raw), "reference", raw=raw)


def has_letters(text: str) -> bool:
    """Return True if a text has a letter of any script, so that there is something to translate."""
    return any(character.isalpha() for character in text)


def pair_tags(items: Sequence[AnyItem]) -> tuple[list[AnyItem], dict[int, int]]:
    """Find the partners of opening and closing tags. A tag without one, or that crosses another pair, becomes a point.

    Returns:
        The items, and the index of the closing tag by the index of its opening tag.
    """
    partner: dict[int, int] = {}
    stack: list[int] = []
    open_names: Counter[str] = Counter()
    for index, item in enumerate(items):
        if item.kind == "open":
            stack.append(index)
            open_names[item.name] += 1
        elif item.kind == "close" and open_names[item.name]:
            while items[stack[-1]].name != item.name:
                open_names[items[stack.pop()].name] -= 1
            partner[stack.pop()] = index
            open_names[item.name] -= 1
    paired = {*partner.keys(), *partner.values()}
    kept = [
        item if item.kind in ("text", "point") or index in paired else replace(item, kind="point")
        for index, item in enumerate(items)
    ]
    return kept, partner


def trim(items: Sequence[Item], partner: dict[int, int]) -> tuple[int, int]:
    """Return the range of items without blank text, markup and enclosing pairs of tags at both ends."""
    first = 0
    last = len(items) - 1
    while first <= last:
        if _stays_outside(items[first]):
            first += 1
        elif _stays_outside(items[last]):
            last -= 1
        elif partner.get(first) == last and not items[last].raw:
            first += 1
            last -= 1
        else:
            break
    return first, last + 1


def _stays_outside(item: Item) -> bool:
    blank = item.kind == "text" and (not item.text or item.text.isspace())
    return blank or (item.kind == "point" and not item.word)


def make_span(text: str, items: Sequence[Item], render: Render) -> Span | None:
    """Make the span of a paragraph.

    Args:
        text: The file.
        items: The text and markup of the paragraph, in the order of the file.
        render: See `Span`.

    Returns:
        The span without what surrounds its text; None if there is no letter in the paragraph.
    """
    if not any(item.kind == "text" and has_letters(item.text) for item in items):
        return None
    paired, partner = pair_tags(items)
    first, last = trim(paired, partner)
    kept = paired[first:last]
    parts: list[str | Tag] = []
    places: list[tuple[str, int, int]] = []
    equal_tags: dict[Tag, Tag] = {}
    for item in kept:
        if item.is_dropped:
            continue
        if item.kind == "text":
            parts.append(item.text)
            continue
        character = item.text if item.name == "reference" else ""
        tag = Tag(item.raw or text[item.start : item.end], item.kind, character)
        parts.append(equal_tags.setdefault(tag, tag))  # saves memory in a segment with many of them
        if item.has_spans:
            places.append((tag.raw, item.start, item.end))
    start = kept[0].start
    end = kept[-1].end
    # White space that is no plain character of the file, as in `<![CDATA[ a ]]>` and `&#9;a`, stays in the segment.
    if isinstance(parts[0], str) and text[start] in WHITE_SPACE:
        parts[0] = parts[0].lstrip(WHITE_SPACE)
        raw = text[start : kept[0].end]
        start += len(raw) - len(raw.lstrip(WHITE_SPACE))
    if isinstance(parts[-1], str) and text[end - 1] in WHITE_SPACE:
        parts[-1] = parts[-1].rstrip(WHITE_SPACE)
        raw = text[kept[-1].start : end]
        end -= len(raw) - len(raw.rstrip(WHITE_SPACE))
    return Span(start, end, merged(parts), render, tuple(places))


def divided_spans(
    text: str,
    start: int,
    end: int,
    markup: re.Pattern[str],
    render: Render,
    read_text: Callable[[str, int, int], Iterator[Item]] = text_items,
) -> Iterator[Span]:
    """Yield the span of each text in a part of a file that has several, such as the lines of a cell.

    Args:
        text: The file.
        start: Where the part begins.
        end: Where it ends.
        markup: Its group `break` matches what separates texts, `word` markup that stands for a word, and `point` other
            markup. All other matches are text.
        render: See `Span`.
        read_text: Yields the text in a part without markup.
    """
    for items in _divided_items(text, start, end, markup, read_text):
        span = make_span(text, items, render)
        if span:
            yield span


def _divided_items(
    text: str, start: int, end: int, markup: re.Pattern[str], read_text: Callable[[str, int, int], Iterator[Item]]
) -> Iterator[list[Item]]:
    """Yield the items of each text."""
    items: list[Item] = []
    matches = (found for found in markup.finditer(text, start, end) if found.lastgroup)
    for first, last, found in texts_and_matches(matches, start, end):
        if found is None:
            items += read_text(text, first, last)
        elif found.lastgroup == "break":
            yield items
            items = []
        else:
            items.append(Item(first, last, "point", word=found.lastgroup == "word"))
    yield items
