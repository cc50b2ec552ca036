"""Text with inline markup, as the readers of file formats give it and their writers take it back."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Tag:
    """Inline markup such as `<b>`, `</b>`, `<br>` or `<code>x</code>`. Nothing in it is translated."""

    raw: str
    """The markup as in the file. A writer writes it back unchanged."""
    kind: Literal["open", "close", "point"] = "point"
    """An opening tag, a closing tag, or markup without a partner."""


Inline = tuple[str | Tag, ...]
"""Text and tags in the order of the file. The tags of a segment nest; a sentence of it may have only one of a pair."""


def text_of(segment: Inline) -> str:
    """Return the text of a segment without its tags."""
    return "".join(part for part in segment if isinstance(part, str))
