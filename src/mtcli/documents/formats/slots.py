"""A document as a text with slots: each has a segment, and edits of the text that write its translation.

Everything outside of the edits stays as it is. Most slots are spans: their translation takes the place of the segment.
Readers of text with markup find its parts as items first, see `items`.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple, Protocol

from mtcli.documents.formats.encoding import EncodedText
from mtcli.documents.markup.inline import Inline, Tag, merged

Render = Callable[[Inline, Mapping[str, str]], str]
"""Returns a translation as it stands in the file.

Its second argument has, by `Tag.raw`, the markup in which text such as attributes has been translated.
"""
Copy = Callable[[int, int], str]
"""Returns a part of the text, from a start to an end, with the edits of the slots in it."""


def raw(segment: Inline) -> str:
    """Return the text of a segment with the markup as in the file."""
    return "".join(part.raw if isinstance(part, Tag) else part for part in segment)


def render_with(escape: Callable[[str], str]) -> Render:
    """Return a function that escapes the texts of a translation and writes its tags as they are."""

    def render(translation: Inline, markup: Mapping[str, str]) -> str:
        return "".join(
            escape(part) if isinstance(part, str) else markup.get(part.raw, part.raw) for part in translation
        )

    return render


UNESCAPED = render_with(str)


class Edit(NamedTuple):
    """A part of the text and what replaces it. An insertion replaces nothing."""

    start: int
    end: int
    content: str


class Slot(Protocol):
    """What is translated, and how its translation is written."""

    @property
    def segment(self) -> Inline:
        """The text to translate, with its inline markup."""
        ...

    def edits(self, translation: Inline, copy: Copy) -> Sequence[Edit]:
        """Return the edits that write a translation, in the order of the text."""
        ...


@dataclass(frozen=True, slots=True)
class Span:
    """A slot whose translation takes the place of its segment. A translation that is the segment needs no edit."""

    start: int
    """Offset of its first character."""
    end: int
    """Offset after its last character."""
    segment: Inline
    """The characters of the span without their escapes, and its tags."""
    render: Render = UNESCAPED
    tag_places: tuple[tuple[str, int, int], ...] = ()
    """Each tag of the segment in which other spans may be (`Tag.raw`), and where it starts and ends."""

    def edits(self, translation: Inline, copy: Copy) -> Sequence[Edit]:
        """See `Slot.edits`."""
        if merged(translation) == self.segment:
            return ()
        markup = {tag: copy(start, end) for tag, start, end in self.tag_places}
        return (Edit(self.start, self.end, self.render(translation, markup)),)


def in_order(spans: Iterable[Span]) -> list[Span]:
    """Return spans in the order of the text, each before those in its tags."""
    return sorted(spans, key=lambda span: (span.start, -span.end))


class SlotDocument:
    """A text with slots; see `format.Document`.

    Args:
        source: The file. Characters that its encoding lacks, as those of HTML and XML may, become numeric references.
        slots: In the order of the text. A span in a tag of another one, such as the text of an attribute, follows it.
        declarations: Edits that are made once if there is any translation, such as the target language.
    """

    def __init__(self, source: EncodedText, slots: Sequence[Slot], declarations: Sequence[Edit] = ()):
        self.source = source
        self._slots = slots
        self._declarations = declarations

    @property
    def segments(self) -> Sequence[Inline]:
        """See `Document.segments`."""
        return [slot.segment for slot in self._slots]

    def write(self, translations: Sequence[Inline]) -> bytes:
        """See `Document.write`."""
        return self.source.encode(self.text(translations), "xmlcharrefreplace")

    def text(self, translations: Sequence[Inline]) -> str:
        """Return the text with the edits of all slots, unless no translation differs from its segment."""
        text = self.source.text
        pairs = list(zip(self._slots, translations, strict=True))
        if all(merged(translation) == slot.segment for slot, translation in pairs):
            return text
        edits: list[Edit] = []  # from the last to the first, so that those in a tag precede those of its span

        def copy(start: int, end: int) -> str:
            first = bisect_right(edits, -end, key=lambda edit: -edit.start)
            last = bisect_right(edits, -start, key=lambda edit: -edit.start)
            return "".join(_edited(text, edits[first:last][::-1], start, end))

        for slot, translation in reversed(pairs):
            edits.extend(reversed(slot.edits(translation, copy)))
        edits.extend(self._declarations)
        return with_edits(text, edits[::-1])


def with_edits(text: str, edits: Sequence[Edit]) -> str:
    """Return a text with edits. Those inside of another edit are in its content already."""
    return "".join(_edited(text, sorted(edits, key=attrgetter("start")), 0, len(text)))


def _edited(text: str, edits: Sequence[Edit], start: int, end: int) -> Iterator[str]:
    """Yield the parts of a text from a start to an end, with edits in their order."""
    place = start
    for edit in edits:
        if edit.start < place:
            continue
        yield text[place : edit.start]
        yield edit.content
        place = edit.end
    yield text[place:end]
