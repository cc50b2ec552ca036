"""Characters of HTML and XML that are written as references, such as `&amp;` and `&nbsp;`."""

import html
import re
import unicodedata
from collections.abc import Iterator, Mapping
from functools import partial

from mtcli.documents.formats.slots import Render, render_with

_REFERENCE = re.compile(r"&(?:#[0-9]+|#[xX][0-9A-Fa-f]+|[A-Za-z][A-Za-z0-9]*);?")
_LONG_NUMBER = re.compile(r"&#([0-9]{8,})")
_KEPT = frozenset({"Zs", "Pd", "Po", "Sc", "Sk", "Sm", "So"})
"""Categories of Unicode: spaces, dashes, other punctuation and symbols."""
_NOT_IN_XML = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


def unescape(text: str) -> str:
    """Decode the references of HTML in a text. Those with a number of any length are valid, as in a browser."""
    # html.unescape raises ValueError for thousands of digits. All numbers of eight digits stand for no character.
    return html.unescape(_LONG_NUMBER.sub(lambda number: "&#" + (number[1].lstrip("0") or "0")[:8], text))


def kept_references(text: str, start: int, end: int) -> Iterator[re.Match[str]]:
    """Yield the references in a part of a text that a translation keeps, such as `&nbsp;` and `&copy;`.

    Those that stand for letters, digits and quotation marks are text: another language has others of them. So are those
    that stand for characters of ASCII, line breaks among them, and soft hyphens.
    """
    for found in _REFERENCE.finditer(text, start, end):
        character = unescape(found[0])
        is_kept = len(character) == 1 and unicodedata.category(character) in _KEPT
        if is_kept and not character.isascii() and character != "\ufffd":
            yield found


def references_of(source: str) -> dict[str, str]:
    """Return the characters that a text writes as references only, such as `&nbsp;`, and these references."""
    without = _REFERENCE.sub("", source)
    found = {}
    for reference in _REFERENCE.findall(source):
        character = unescape(reference)
        if len(character) == 1 and character not in without:
            found[character] = reference.removesuffix(";") + ";"
    return found


def escape(text: str, references: Mapping[str, str] | None = None) -> str:
    """Escape the text of a translation, with the references that its source has. Omit characters that XML forbids."""
    table: dict[str, str | int | None] = {"&": "&amp;", "<": "&lt;", ">": "&gt;", **(references or {})}
    return _NOT_IN_XML.sub("", text).translate(str.maketrans(table))


RENDER_ESCAPED = render_with(escape)
"""Renders a translation whose source has no references. Shared, because a page may have millions of texts."""


def render_like(source: str) -> Render:
    """Return a function that renders a translation with the references that its source has."""
    references = references_of(source)
    return render_with(partial(escape, references=references)) if references else RENDER_ESCAPED
