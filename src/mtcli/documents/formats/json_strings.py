"""JSON files of user interfaces: their strings. Keys, other values and the layout of the file stay as they are.

The file is parsed by Python's `json` first, which refuses what is not JSON. As that gives no places, the strings are
found again by their quotation marks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

from mtcli.documents.formats.encoding import decode
from mtcli.documents.formats.format import Document, ReadOptions
from mtcli.documents.formats.items import Item, divided_spans, has_letters
from mtcli.documents.formats.slots import SlotDocument, Span, render_with
from mtcli.documents.formats.structure import Digest
from mtcli.errors import DataError
from mtcli.text import languages

MAX_VALUES = 2_000_000
"""Values of a file, estimated by its signs. Each takes about 200 bytes of memory."""
MAX_DEPTH = 256
"""Nested objects and arrays. Files of languages have up to 10."""
DESCRIBED = {
    "message": frozenset({"description", "placeholders", "hash"}),
    "defaultMessage": frozenset({"id", "description", "file", "start", "end", "key", "col", "line"}),
    "string": frozenset({"developer_comment", "context", "character_limit"}),
    "translation": frozenset({"notes", "context", "limit"}),
    "definition": frozenset({"term", "term_plural", "context", "reference", "comment"}),
}
"""Objects that describe one text: the key of the text, and the keys that may be beside it.

They are those of browser extensions, FormatJS, Transifex, Lokalise and POEditor.
"""
LABELS = frozenset({"message", "description"})
"""Keys of an object that describes a text, or of a form with these two labels. Only a file of messages has nothing but
such objects beside it."""
_NOTE = re.compile(r"[@$].*|//.*|_+comments?")
"""Keys of metadata, such as `@name` of Flutter, `$schema` and `_comment`."""
_LANGUAGE_KEYS = frozenset({"locale", "lang", "language", "languagecode", "language_code", "code"})
_LANGUAGE = re.compile(r"([A-Za-z]{2,3})(?:[-_][A-Za-z0-9]{2,8})*")
_DIRECTIONS = frozenset({"ltr", "rtl"})

_NOT_ASCII = re.compile(r"\\u(?!00[0-7])[0-9A-Fa-f]{4}")
"""The escape of a character beyond ASCII."""
_STRING = r'"(?:[^"\\]++|\\.)*+"'
_TOKEN = re.compile(rf"(?P<string>{_STRING})(?P<key>\s*:)?|(?P<open>[{{\[])|[}}\]]")
_BRACES = r"\{(?:[^{}]|\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*+\})*+\})*+\})*+\}"
"""Nested braces. A message of ICU with a plural in a plural has four levels."""
_PARTS = re.compile(
    r"(?P<break>(?:\\[nrtf]|\\u(?:000[9-dA-D]|2028|2029))+| \| )|\\(?:u[0-9A-Fa-f]{4}|.)|"
    rf"(?P<word>(?=\{{[\w\s]*,){_BRACES}|"
    r"\$t\([^()\\]*\)|\[%key:[^%\[\]\\]*%\]|@(?:\.\w+)?:(?:\([^()\\]*\)|[A-Za-z_][\w-]*(?:\.[\w-]+)*))|"
    rf"{_BRACES}"
)
"""Line breaks and separators of plural forms of Vue I18n; messages of ICU and links to texts; placeholders."""


@dataclass(frozen=True, slots=True)
class _String:
    """A string that is a value, without its quotation marks."""

    start: int
    end: int
    content: str
    """The file's characters, with escapes."""


@dataclass(slots=True)
class _Group:
    """An object or an array. Of its values, those that have no text are omitted."""

    members: list[tuple[str, _String | _Group]] = field(default_factory=list)
    """Values with their keys; of an array, the key is that of the array."""
    keys: set[str] = field(default_factory=set)


def read(content: bytes, options: ReadOptions) -> Document:
    """Read a JSON file.

    Raises:
        DataError: It is not UTF-8, not JSON, or too large.
    """
    source = decode(content, options.name)
    writes_ascii = source.text.isascii() and _NOT_ASCII.search(source.text) is not None
    escapes_slash = "\\/" in source.text and "/" not in source.text.replace("\\/", "")  # as PHP does
    render = render_with(partial(_escape, is_ascii=writes_ascii, escapes_slash=escapes_slash))
    spans: list[Span] = []
    for string in _strings(source.text, options.name):
        spans += divided_spans(source.text, string.start, string.end, _PARTS, render, _text_items)
    return SlotDocument(source, spans)


def structure(content: bytes, options: ReadOptions) -> int:
    """Return a hash of all but the translated texts, see `format.Structure`."""
    text = decode(content, options.name).text
    digest = Digest()
    place = 0
    for string in _strings(text, options.name):
        digest.add(text[place : string.start])
        place = string.end
        parts = list(_PARTS.finditer(string.content))
        digest.add(tuple(found[0] for found in parts if found.lastgroup == "break"))
        digest.add(tuple(sorted(found[0] for found in parts if found.lastgroup == "word")))
    digest.add(text[place:])
    return digest.value


def _strings(text: str, name: str) -> Iterator[_String]:
    """Yield the strings to translate; see `read`."""
    if sum(map(text.count, ",[{")) > MAX_VALUES:
        raise DataError(f"{name}: more than {MAX_VALUES:,} values, the limit; split the file")
    try:
        json.loads(text, parse_int=str, parse_float=str)
    except json.JSONDecodeError as error:
        place = f"{name}, line {error.lineno}, column {error.colno}"
        raise DataError(f"{place}: not JSON ({error.msg}); repair the file") from None
    except RecursionError:
        raise DataError(_too_deep(name)) from None
    for key, value in _tree(text, name).members:  # one, or none if it is neither an object, an array nor a string
        if isinstance(value, _Group):
            yield from _to_translate(value)
        elif _is_text(key, value):
            yield value


def _too_deep(name: str) -> str:
    return f"{name}: more than {MAX_DEPTH} nested objects; no known program writes such a file"


def _tree(text: str, name: str) -> _Group:
    """Return the objects, arrays and strings of valid JSON, which may be nested `MAX_DEPTH` deep."""
    root = _Group()
    groups = [(root, "")]
    key = ""
    for token in _TOKEN.finditer(text):
        group, own_key = groups[-1]
        if token["key"]:
            key = json.loads(token["string"])
            group.keys.add(key)
        elif token["string"]:
            start, end = token.span("string")
            group.members.append((key, _String(start + 1, end - 1, text[start + 1 : end - 1])))
        elif token["open"]:
            if len(groups) > MAX_DEPTH:
                raise DataError(_too_deep(name))
            inner = _Group()
            group.members.append((key, inner))
            groups.append((inner, key))
        else:
            key = own_key
            groups.pop()
    return root


def _to_translate(group: _Group, *, is_label: bool = True) -> Iterator[_String]:
    """Yield the strings in a group that are text for readers. With `is_label`, an object of `LABELS` has two."""
    text_key = next((key for key, notes in DESCRIBED.items() if key in group.keys and group.keys <= notes | {key}), "")
    if is_label and group.keys == LABELS:
        text_key = ""
    members = [(key, member) for key, member in group.members if not _NOTE.fullmatch(key)]
    has_messages = all(isinstance(member, _Group) and "message" in member.keys for _, member in members)
    for key, member in members:
        if text_key and key != text_key:
            continue
        if isinstance(member, _Group):
            yield from _to_translate(member, is_label=not has_messages)
        elif _is_text(key, member):
            yield member


def _is_text(key: str, string: _String) -> bool:
    """Return True if a value is text for readers."""
    text = _unescape(string.content)
    if not has_letters(text) or text in _DIRECTIONS:
        return False
    code = _LANGUAGE.fullmatch(text)
    if code and key.lower() in _LANGUAGE_KEYS and languages.known(code[1].lower()) is not None:
        return False
    return not any("\ud800" <= character <= "\udfff" for character in text)  # half of a character is no text


def _text_items(text: str, start: int, end: int) -> Iterator[Item]:
    yield Item(start, end, "text", _unescape(text[start:end]))


def _unescape(content: str) -> str:
    return str(json.loads(f'"{content}"'))


def _escape(text: str, *, is_ascii: bool, escapes_slash: bool) -> str:
    escaped = json.dumps(text, ensure_ascii=is_ascii)[1:-1]
    return escaped.replace("/", "\\/") if escapes_slash else escaped
