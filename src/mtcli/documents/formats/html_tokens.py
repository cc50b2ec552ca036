"""HTML as tokens with their places in the file, in the rules of the HTML standard (WHATWG, section 13.2.5).

Parsers such as lxml and html5lib give a tree without places, from which the file cannot be written byte for byte;
`html.parser` gives places of tags, but not of attributes. No file is an error: browsers accept all of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal


@dataclass(frozen=True, slots=True)
class Attribute:
    """An attribute of a start tag, with the place of its value without quotes."""

    start: int
    end: int
    quote: str
    """`"`, `'`, or empty for a value without quotes."""


@dataclass(frozen=True, slots=True)
class HtmlToken:
    """A part of the file. Together, the tokens are the whole file."""

    kind: Literal["text", "raw", "start", "empty", "end", "other"]
    """`raw` is the content of elements such as `<script>`; `empty` is a tag of XHTML such as `<script/>`, which has no
    end tag; `other` is a comment, declaration or instruction."""
    start: int
    end: int
    name: str = ""
    """Of a tag: its name in lower case."""
    attributes: dict[str, Attribute] | None = None
    """Of a tag: by name in lower case. The first of several with the same name counts. None if there are none."""


RAW_CONTENT = frozenset({"script", "style", "textarea", "title", "xmp", "iframe", "noembed", "noframes"})
"""Elements whose content has no tags."""
EMPTY = frozenset(
    {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr"}
)
"""Elements without an end tag."""
NOT_TRANSLATED = (RAW_CONTENT - {"title"}) | {"code", "kbd", "samp", "var", "svg", "math", "pre"}
"""Elements whose content is never translated."""
INLINE = frozenset(
    {"b", "bdi", "bdo", "big", "cite", "dfn", "em", "font", "i", "mark", "nobr", "q", "s", "small", "span", "strike"}
    | {"strong", "sub", "sup", "tt", "u", "a", "abbr", "acronym", "data", "del", "ins", "time"}
    | {"code", "kbd", "samp", "var", "svg", "math", "rb", "rp", "rt", "ruby"}
    | {"br", "wbr", "img", "input", "map", "meter", "output", "picture", "progress", "source"}
)
"""Elements inside a sentence. Names with a hyphen are those of custom elements, which are inline too."""
FOREIGN = frozenset({"svg", "math"})
"""Elements of other languages, inside of which a tag that ends with `/>` has no content."""
_SPACE = r" \t\n\f\r"
"""White space between the parts of a tag. The `\\s` of Python has more characters, which are part of a name here."""
_TAG_NAME = re.compile(rf"<(/?)([A-Za-z][^{_SPACE}/>]*+)")
_ATTRIBUTE = re.compile(
    rf"""[{_SPACE}/]*+([^{_SPACE}/>][^{_SPACE}/>=]*+)"""
    rf"""(?:[{_SPACE}]*+=[{_SPACE}]*+"""
    rf"""(?:"(?P<double>[^"]*+)"|'(?P<single>[^']*+)'|(?P<bare>[^{_SPACE}>"'][^{_SPACE}>]*+)))?+"""
)
_TAG_END = re.compile(rf"[{_SPACE}/]*+>")
_UNFINISHED_VALUE = re.compile(rf"""[{_SPACE}]*+=[{_SPACE}]*+["']""")
_IN_SCRIPT = re.compile(rf"<!--|-->|<(/?)script(?=[{_SPACE}/>])", re.IGNORECASE | re.ASCII)
_COMMENT = re.compile(r"<!---?>|<!--.*?(?:--!?>|\Z)", re.DOTALL)
"""`<!-->` and `<!--->` are whole comments."""
_ENDS_FOREIGN = frozenset(
    {"b", "big", "blockquote", "body", "br", "center", "code", "dd", "div", "dl", "dt", "em", "embed", "head", "hr"}
    | {"h1", "h2", "h3", "h4", "h5", "h6", "i", "img", "li", "listing", "menu", "meta", "nobr", "ol", "p", "pre"}
    | {"ruby", "s", "small", "span", "strong", "strike", "sub", "sup", "table", "tt", "u", "ul", "var"}
)
"""Tags that end an unclosed element of `FOREIGN`, as the standard has it."""
_SPECIAL = (
    ("<![CDATA[", "]]>"),
    ("<?php", "?>"),
    ("<?=", "?>"),
    ("<%", "%>"),
    ("<!", ">"),
    ("<?", ">"),
)
"""What is neither text nor a tag, by its start and its end; PHP and the like are added to the standard's.

Without its end, it is the rest of the page, as the standard has it for comments and PHP for its code. Only `<%` without
an end is text, which it is in browsers.
"""
_QUOTES = {"double": '"', "single": "'", "bare": ""}


def is_inline(name: str) -> bool:
    """Return True for an element inside a sentence, and for what is not a tag."""
    return not name or name in INLINE or "-" in name


def tokenize(text: str, *, is_xhtml: bool = False) -> Iterator[HtmlToken]:
    """Yield the tokens of HTML, a whole page or a part of one.

    Args:
        text: The page.
        is_xhtml: A tag that ends with `/>` has no content. In HTML, `<script/>` and `<title/>` begin an element whose
            content is everything up to its end tag, except inside of `FOREIGN`.
    """
    place = 0
    begin = 0
    last_end_of_template = text.rfind("%>")
    is_foreign = False
    while True:
        place = text.find("<", place)
        if place < 0:
            break
        is_unclosed = last_end_of_template < place and text.startswith("<%", place)
        token = None if is_unclosed else _markup(text, place)
        if token is None:
            place += 1
            continue
        if begin < place:
            yield HtmlToken("text", begin, place)
        if (is_xhtml or is_foreign) and token.kind == "start" and text.endswith("/>", token.start, token.end):
            token = replace(token, kind="empty")
        if token.name in FOREIGN:
            is_foreign = token.kind == "start" and not text.endswith("/>", token.start, token.end)
        elif token.name in _ENDS_FOREIGN:
            is_foreign = False
        yield token
        place = token.end
        if token.kind == "start" and token.name in RAW_CONTENT:
            place = _end_of_content(text, place, token.name)
            if token.end < place:
                yield HtmlToken("raw", token.end, place, token.name)
        begin = place
    if begin < len(text):
        yield HtmlToken("text", begin, len(text))


def _markup(text: str, place: int) -> HtmlToken | None:
    """Return the token that begins with the `<` at a place; None if it is a character of the text."""
    tag = _TAG_NAME.match(text, place)
    if tag:
        return _tag(text, tag)
    comment = _COMMENT.match(text, place)
    if comment:
        return HtmlToken("other", place, comment.end())
    for opening, closing in _SPECIAL:
        if text.startswith(opening, place):
            found = text.find(closing, place + len(opening))
            return HtmlToken("other", place, len(text) if found < 0 else found + len(closing))
    if text.startswith("</", place) and place + 2 < len(text):
        found = text.find(">", place)
        return HtmlToken("other", place, len(text) if found < 0 else found + 1)
    return None


def _tag(text: str, tag: re.Match[str]) -> HtmlToken:
    """Return a tag with its attributes. What follows a tag that the file does not finish belongs to it."""
    kind: Literal["start", "end", "other"] = "end" if tag[1] else "start"
    name = tag[2].lower()
    if text.startswith(">", tag.end()):
        return HtmlToken(kind, tag.start(), tag.end() + 1, name)
    attributes: dict[str, Attribute] = {}
    place = tag.end()
    end = len(text)
    while place < len(text):
        closed = _TAG_END.match(text, place)
        if closed:
            end = closed.end()
            break
        attribute = _ATTRIBUTE.match(text, place)
        if attribute is None:
            break
        place = attribute.end()
        if _UNFINISHED_VALUE.match(text, place):
            break
        form = attribute.lastgroup
        if form:
            value = Attribute(attribute.start(form), attribute.end(form), _QUOTES[form])
            attributes.setdefault(attribute[1].lower(), value)
    finished = text.endswith(">", place, end)
    return HtmlToken(kind if finished else "other", tag.start(), end, name, attributes or None)


def _end_of_content(text: str, place: int, name: str) -> int:
    """Return the place of the end tag of an element without tags in its content."""
    if name == "script":
        return _end_of_script(text, place)
    found = re.compile(rf"</{name}(?=[{_SPACE}/>])", re.IGNORECASE | re.ASCII).search(text, place)
    return found.start() if found else len(text)


def _end_of_script(text: str, place: int) -> int:
    """Return the place of the end tag of a script.

    In `<!-- <script> </script> -->`, as in pages that hide scripts from very old browsers, it is none.
    """
    is_comment = False
    is_nested = False
    while True:
        found = _IN_SCRIPT.search(text, place)
        if found is None:
            return len(text)
        place = found.end()
        if found[0] == "<!--":
            is_comment = True
            place -= 2  # `<!-->` is a whole comment
        elif found[0] == "-->":
            is_comment = False
            is_nested = False
        elif not found[1]:
            is_nested = is_comment
        elif is_nested:
            is_nested = False
        else:
            return found.start()
