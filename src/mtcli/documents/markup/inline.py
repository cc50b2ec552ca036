"""Text with inline markup, as the readers of file formats give it and their writers take it back."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Literal


@dataclass(frozen=True, slots=True)
class Tag:
    """Inline markup such as `<b>`, `</b>`, `<br>` or `<code>x</code>`. Nothing in it is translated."""

    raw: str
    """The markup as in the file. A writer writes it back unchanged."""
    kind: Literal["open", "close", "point"] = "point"
    """An opening tag, a closing tag, or markup without a partner."""
    text: str = ""
    """The character that a reference such as `&ndash;` stands for."""


Inline = tuple[str | Tag, ...]
"""Text and tags in the order of the file. The tags of a segment nest; a sentence of it may have only one of a pair."""


def text_of(segment: Inline) -> str:
    """Return the text of a segment without its tags."""
    return "".join(part for part in segment if isinstance(part, str))


def text_with_references(segment: Inline) -> str:
    """Return the text of a segment, with the characters of references that are tags, such as `&ndash;`."""
    return "".join(part.text if isinstance(part, Tag) else part for part in segment)


def merged(parts: Iterable[str | Tag]) -> Inline:
    """Return a segment of these parts in which no two strings are adjacent and none is empty."""
    filled = [part for part in parts if part != ""]
    if len(filled) < 2:  # as in most sentences
        return tuple(filled)
    result: list[str | Tag] = []
    for is_text, group in groupby(filled, key=lambda part: isinstance(part, str)):
        if is_text:
            result.append("".join(part for part in group if isinstance(part, str)))
        else:
            result += group
    return tuple(result)
