import pytest

from mtcli.documents.formats.encoding import EncodedText
from mtcli.documents.formats.slots import Edit, SlotDocument, Span, in_order
from mtcli.documents.markup.inline import Inline, Tag

TEXT = 'x <img alt="one"> y <img alt="two"> z. U'
TAGS = ('<img alt="one">', '<img alt="two">')


def span_of(content: str, segment: Inline, *tags: str) -> Span:
    start = TEXT.index(content)
    places = tuple((tag, TEXT.index(tag), TEXT.index(tag) + len(tag)) for tag in tags)
    return Span(start, start + len(content), segment, tag_places=places)


def document() -> SlotDocument:
    outer = span_of(TEXT[:-2], ("x ", Tag(TAGS[0]), " y ", Tag(TAGS[1]), " z."), *TAGS)
    spans = [span_of("two", ("two",)), span_of("one", ("one",)), span_of("U", ("U",)), outer]
    return SlotDocument(EncodedText(TEXT), in_order(spans), [Edit(0, 0, "! ")])


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ((), TEXT),
        ((0,), '! <img alt="two"> <img alt="one">. U'),
        ((1,), '! x <img alt="1"> y <img alt="two"> z. U'),
        ((0, 2), '! <img alt="2"> <img alt="one">. U'),
        ((0, 1, 2, 3), '! <img alt="2"> <img alt="1">. V'),
    ],
)
def test_spans_in_tags_of_others_are_written_with_them(changed: tuple[int, ...], expected: str) -> None:
    swapped: Inline = (Tag(TAGS[1]), " ", Tag(TAGS[0]), ".")
    new: list[Inline] = [swapped, ("1",), ("2",), ("V",)]
    segments = document().segments
    translations = [new[number] if number in changed else segments[number] for number in range(4)]
    assert document().text(translations) == expected
    assert document().write(translations) == expected.encode()
