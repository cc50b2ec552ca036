"""Characters of HTML and XML that are written as references, such as `&amp;` and `&nbsp;`."""

import html
import re

_REFERENCE = re.compile(r"&(?:#[0-9]+|#[xX][0-9A-Fa-f]+|[A-Za-z][A-Za-z0-9]*);?")
_NOT_IN_XML = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


def references_of(source: str) -> dict[str, str]:
    """Return the characters that a text writes as references only, such as `&nbsp;`, and these references."""
    without = _REFERENCE.sub("", source)
    found = {}
    for reference in _REFERENCE.findall(source):
        character = html.unescape(reference)
        if len(character) == 1 and character not in without:
            found[character] = reference.removesuffix(";") + ";"
    return found


def escape(references: dict[str, str], text: str) -> str:
    """Escape the text of a translation, with the references that its source has. Omit characters that XML forbids."""
    table: dict[str, str | int | None] = {"&": "&amp;", "<": "&lt;", ">": "&gt;", **references}
    return _NOT_IN_XML.sub("", text).translate(str.maketrans(table))
