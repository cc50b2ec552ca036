"""Inline markup of Markdown with its places.

markdown-it-py decides what is markup, by the rules of CommonMark and GitHub. It gives places of blocks only, so each of
its inline rules is wrapped to record where it begins and ends.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token

from mtcli.documents.formats.html_tokens import EMPTY, NOT_TRANSLATED
from mtcli.documents.formats.items import Item, text_items, texts_and_matches
from mtcli.text.placeholders import Offsets, find_protected

InlineRule = Callable[[StateInline, bool], bool]
_PLACE = "place"
_RAW = "raw"
_SPECIAL = re.compile(
    r"\{\{[^{}]*\}\}|\{%[^{}]*%\}|\{[#.:][^{}]*\}|\{[\w:.-]+\}"  # templates, attributes, roles
    r"|\[\^[^\[\]\s]+\]:?|^\[![A-Z]+\]|^\[[ xX]\](?=\s)"  # footnotes, alerts, tasks
    r"|^:{3,}.*$|^(?:!!!|\?\?\?\+?)\s+[\w-]+|^:(?=\s)|\$\$[^$]+\$\$"  # directives, admonitions, definitions, formulas
)
"""Markup of common extensions of Markdown. It stays as it is."""
_HTML_NAME = re.compile(r"<(/?)([A-Za-z][^\s/>]*)")
_DELIMITERS = frozenset({"emphasis", "strikethrough"})
_PAIRS = frozenset({"em", "strong", "s", "link"})
_WORDS = frozenset({"code_inline", "autolink"})


def standard_parser() -> MarkdownIt:
    """Return a parser of blocks and inline markup, without places."""
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    parser.core.ruler.enableOnly(["normalize", "block"])
    return parser


def place_recording_parser() -> MarkdownIt:
    """Return a parser of blocks whose inline rules record their places; see `inline_items`."""
    parser = standard_parser()
    parser.inline.ruler2.disable("fragments_join")
    for rule in list(parser.inline.ruler.__rules__):
        parser.inline.ruler.at(rule.name, _recording(rule.name, rule.fn))
    return parser


def inline_items(parser: MarkdownIt, content: str, env: Any) -> list[Item]:
    """Return the text and the markup of a paragraph's content, with places in the content.

    A line break is a space, or markup if it is a hard one.

    Args:
        parser: See `place_recording_parser`.
        content: The content, as a token of the type `inline` has it.
        env: What the parser found in the file: the definitions of links.
    """
    tokens: list[Token] = []
    parser.inline.parse(content, parser, env, tokens)
    placed = sorted((token for token in tokens if _PLACE in token.meta), key=lambda token: token.meta[_PLACE])
    protected = find_protected(content)
    items: list[Item] = []
    place = 0
    for token in placed:
        start, end = token.meta[_PLACE]
        if token.type in ("softbreak", "hardbreak"):
            start = place + len(content[place:start].rstrip(" "))
        elif token.type == "strong_open":
            start -= 1  # the first of its two characters is in a token of its own, which is empty
        elif token.type == "strong_close":
            end += 1
        elif token.type == "text" and not token.content:
            continue
        items.extend(_text_items(content, place, start, protected))
        items.extend(_token_items(content, token, start, end))
        place = max(place, end)
    items.extend(_text_items(content, place, len(content), protected))
    return _join_points(_join_code(items))


def _recording(name: str, rule: InlineRule) -> InlineRule:
    """Return a rule that stores the places of its tokens in them."""

    def recorded(state: StateInline, silent: bool) -> bool:
        start = state.pos
        count = len(state.tokens)
        pending = bool(state.pending)
        found = rule(state, silent)
        if found and not silent and len(state.tokens) > count:
            is_break = state.tokens[count].type in ("softbreak", "hardbreak")  # removes pending white space
            first = count + 1 if pending and not is_break else count
            _place(name, state, state.tokens[first:], start)
        return found

    return recorded


def _place(name: str, state: StateInline, tokens: Sequence[Token], start: int) -> None:
    """Store the places of the tokens of one rule."""
    if name == "link":
        label_end = state.md.helpers.parseLinkLabel(state, start, True)
        tokens[0].meta[_PLACE] = (start, start + 1)
        tokens[-1].meta[_PLACE] = (label_end, state.pos)
        if state.src[label_end : state.pos] in ("]", "][]"):  # the text of the link is the name of its definition
            tokens[-1].meta[_RAW] = "][" + " ".join(state.src[start + 1 : label_end].split()) + "]"
    elif name in _DELIMITERS:
        for token in tokens:
            token.meta[_PLACE] = (start, start + len(token.content))
            start += len(token.content)
    elif tokens:
        tokens[0].meta[_PLACE] = (start, state.pos)
        if name == "autolink":
            tokens[0].type = "autolink"


def _text_items(content: str, start: int, end: int, protected: Sequence[Offsets]) -> Iterator[Item]:
    """Yield plain text, and the markup of extensions in it that is no part of other protected text."""
    found = (
        special
        for special in _SPECIAL.finditer(content, start, end)
        if not any(first <= special.start() and special.end() < last for first, last in protected)
    )
    for first, last, special in texts_and_matches(found, start, end):
        if special:
            yield Item(first, last, "point", word=special[0].startswith("{{"))
        else:
            yield Item(first, last, "text", content[first:last])


def _token_items(content: str, token: Token, start: int, end: int) -> Iterator[Item]:
    """Yield the item of a token."""
    stem, _, role = token.type.rpartition("_")
    if token.type == "text_special" and token.info == "entity":
        yield from text_items(content, start, end)
    elif token.type in ("text", "text_special"):
        if start < end:
            yield Item(start, end, "text", token.content)
    elif token.type == "softbreak":
        yield Item(start, end, "text", " ")
    elif stem in _PAIRS:
        yield Item(start, end, "open" if role == "open" else "close", name=stem, raw=token.meta.get(_RAW, ""))
    elif token.type == "image":
        yield Item(start, end, "point", token.content, name="image", has_spans=True)
    elif token.type == "html_inline":
        yield _html_item(content, start, end)
    else:
        yield Item(start, end, "point", word=token.type in _WORDS)


def _html_item(content: str, start: int, end: int) -> Item:
    """Return the item of a tag of HTML."""
    tag = _HTML_NAME.match(content, start)
    name = tag[2].lower() if tag else ""
    if tag is None or name in EMPTY or content.endswith("/>", start, end):
        return Item(start, end, "point", name="html", has_spans=True)
    return Item(start, end, "close" if tag[1] else "open", name=f"html {name}", has_spans=True)


def _join_code(items: Sequence[Item]) -> list[Item]:
    """Join elements of HTML whose content is not translated, such as `<kbd>`, into one point."""
    last_close = {item.name: item.start for item in items if item.kind == "close"}
    joined: list[Item] = []
    until = ""
    for item in items:
        skipped = item.kind == "open" and item.name.removeprefix("html ") in NOT_TRANSLATED
        if until:
            joined[-1] = replace(joined[-1], end=item.end)
            until = "" if item.kind == "close" and item.name == until else until
        elif skipped and last_close.get(item.name, 0) > item.start:
            joined.append(replace(item, kind="point", name="", word=True))
            until = item.name
        else:
            joined.append(item)
    return joined


def _join_points(items: Sequence[Item]) -> list[Item]:
    """Join adjacent markup without partners, such as a role and its code, into one tag."""
    joined: list[Item] = []
    for item in items:
        last = joined[-1] if joined else None
        if last and last.kind == item.kind == "point" and last.end == item.start and not (last.name or item.name):
            joined[-1] = replace(last, end=item.end, word=last.word or item.word)
        else:
            joined.append(item)
    return joined
