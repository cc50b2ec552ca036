"""A document as text of which some spans are translated. Everything outside the spans stays as it is."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mtcli.documents.formats.encoding import EncodedText
from mtcli.documents.markup.inline import Inline, Tag


def raw(segment: Inline) -> str:
    """Return the text of a segment with the markup as in the file."""
    return "".join(part.raw if isinstance(part, Tag) else part for part in segment)


@dataclass(frozen=True, slots=True)
class Span:
    """A part of a text that is translated."""

    start: int
    """Offset of its first character."""
    end: int
    """Offset after its last character."""
    segment: Inline
    """What is translated: the characters of the span, without their escapes."""
    render: Callable[[Inline], str] = raw
    """Returns the characters that replace the span, given the translation."""


@dataclass(frozen=True)
class SpanDocument:
    """A text with spans; see `format.Document`."""

    source: EncodedText
    spans: Sequence[Span]
    """In the order of the text. They do not overlap."""

    @property
    def segments(self) -> Sequence[Inline]:
        """The contents of the spans."""
        return [span.segment for span in self.spans]

    def write(self, translations: Sequence[Inline]) -> bytes:
        """Return the file with the spans replaced. A span whose translation is its segment stays as it is."""
        text = self.source.text
        parts: list[str] = []
        end = 0
        for span, translation in zip(self.spans, translations, strict=True):
            parts.append(text[end : span.start])
            unchanged = translation == span.segment
            parts.append(text[span.start : span.end] if unchanged else span.render(translation))
            end = span.end
        parts.append(text[end:])
        return self.source.encode("".join(parts))
