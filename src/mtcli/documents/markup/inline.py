"""Text with inline markup, as the readers of file formats give it and their writers take it back."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from mtcli.text.symbols import is_symbol

Kind = Literal["open", "close", "point"]
"""An opening tag, a closing tag, or markup without a partner."""
_MARKUP = re.compile(r"<[^<>]*>|&#\w+;")


@dataclass(frozen=True, slots=True)
class Tag:
    """Inline markup such as `<b>`, `</b>`, `<br>` or `<code>x</code>`. Nothing in it is translated."""

    raw: str
    """The markup as in the file. A writer writes it back unchanged."""
    kind: Kind = "point"
    text: str = ""
    """The character that a reference such as `&ndash;` stands for, or those of joined ones, see `is_joined`."""

    @property
    def is_joined(self) -> bool:
        """It is protected text with references in it, see `marks.join_references`."""
        return len(self.text) > 1

    @property
    def is_markup(self) -> bool:
        """It is markup, also if that is protected text."""
        return not self.is_joined

    @property
    def is_content(self) -> bool:
        """It stands for words: a placeholder, or a point such as `<code>x</code>`."""
        if self.kind != "point" or len(self.text) == 1:
            return False
        return not self.is_markup or any(map(str.isalnum, _MARKUP.sub("", self.raw)))


@dataclass(frozen=True, slots=True)
class ProtectedText(Tag):
    """Text that a translation must have as it is. While a sentence is translated, it is a tag."""

    name: str = ""
    """The name of markup that is written as text, such as `b`; its partner has the same name."""

    @property
    def is_markup(self) -> bool:
        """See `Tag.is_markup`."""
        return self.name != ""

    @property
    def is_content(self) -> bool:
        """See `Tag.is_content`. A symbol such as a smiley stands for no words, also if it has letters."""
        return super(ProtectedText, self).is_content and not is_symbol(self.raw)


@dataclass(frozen=True, slots=True)
class LanguageTag(Tag):
    """The tag of the target language of a sentence, before it. The model is given it; no translation has it."""


Inline = tuple[str | Tag, ...]
"""Text and tags in the order of the file. The tags of a segment nest; a sentence of it may have only one of a pair."""


def text_of(segment: Inline) -> str:
    """Return the text of a segment without its tags."""
    return "".join(part for part in segment if isinstance(part, str))


def text_with_references(segment: Inline) -> str:
    """Return the text of a segment, with the characters of references that are tags, such as `&ndash;`."""
    return "".join(part.text if isinstance(part, Tag) else part for part in segment)


def unprotected(part: str | Tag) -> str | Tag:
    """Return a part with protected text as text again."""
    return part.raw if isinstance(part, ProtectedText) else part


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
