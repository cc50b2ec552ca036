r"""Catalogues of gettext: .po and .pot files.

Messages without a translation get one. Messages that have one, even if it is fuzzy, obsolete messages (`#~`), comments,
flags and the header stay as they are. To translate all messages again, empty them first (`msgattrib --empty`).

A message that the model does not change stays without a translation: gettext then shows the message itself. Written
with the messages as translations, a catalogue is therefore the same file.

polib writes a catalogue in its own layout, so the entries are found here.
"""

import re
from codecs import lookup
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mtcli.data.safe_xml import decode_exactly
from mtcli.documents.encoding import EncodedText, check_lines, decode
from mtcli.documents.format import ReadOptions
from mtcli.documents.inline import Inline
from mtcli.documents.plain_text import text_spans
from mtcli.documents.spans import SpanDocument
from mtcli.errors import DataError

LINE_WIDTH = 76
"""Characters of a message on one line, with its quotation marks; gettext wraps at 79 with the keyword."""

_STRINGS = r'(?P<strings>"(?:[^"\\\r\n]|\\.)*"[ \t]*(?:\r?\n[ \t]*"(?:[^"\\\r\n]|\\.)*"[ \t]*)*)'
_FIELD = re.compile(
    rf"^[ \t]*(?P<keyword>msgctxt|msgid_plural|msgid|msgstr)(?:\[(?P<index>\d{{1,3}})\])?[ \t]*{_STRINGS}(?=\r?$)",
    re.MULTILINE,
)
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(r"\\(?:([0-7]{1,3})|x([0-9a-fA-F]{1,2})|(.))")
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_WRITTEN = {"\\": "\\\\", '"': '\\"'} | {value: f"\\{key}" for key, value in _ESCAPED.items()}
_ESCAPED_BYTES = re.compile("[\udc80-\udcff]+")
"""Bytes that are not ASCII, as `surrogateescape` decodes them."""
_CHARSET = re.compile(rb"charset=([\w.:-]+)")
_KEYWORD_LINE = re.compile(r'(?:^|\r)[ \t]*(?:msg\w*|")', re.MULTILINE)
"""Also after a lone carriage return, which ends no line of a catalogue."""


@dataclass(frozen=True)
class _Field:
    """A keyword with its strings."""

    keyword: str
    index: str | None
    start: int
    """Offset of the first quotation mark."""
    end: int
    """Offset after the last quotation mark."""
    value: str


@dataclass(frozen=True)
class _Blank:
    """A `msgstr` without text."""

    start: int
    end: int
    message: SpanDocument
    """The message that it translates."""


class PoDocument:
    """A catalogue; see `format.Document`."""

    def __init__(self, source: EncodedText, blanks: Sequence[_Blank], name: str):
        self._source = source
        self._blanks = blanks
        self._name = name

    @property
    def segments(self) -> Sequence[Inline]:
        """The lines and paragraphs of the messages without a translation."""
        return [segment for blank in self._blanks for segment in blank.message.segments]

    def write(self, translations: Sequence[Inline]) -> bytes:
        """Return the catalogue with the translations. A message that is the same in both languages is omitted.

        Raises:
            DataError: The encoding of the catalogue lacks a character of a translation.
        """
        text = self._source.text
        newline = "\r\n" if "\r\n" in text else "\n"
        remaining = iter(translations)
        parts: list[str] = []
        end = 0
        for blank in self._blanks:
            own = [next(remaining) for _ in blank.message.segments]
            message = blank.message.source.text
            translation = blank.message.write(own).decode()
            if translation == message:
                continue
            parts += [text[end : blank.start], _quoted(translation, newline)]
            end = blank.end
        parts.append(text[end:])
        try:
            return self._source.encode("".join(parts))
        except UnicodeEncodeError as error:
            lacking = error.object[error.start]
            encoding = self._source.encoding
            remedy = f"convert the catalogue first: msgconv -t UTF-8 {self._name}"
            raise DataError(f"{self._name}: its charset {encoding} lacks {lacking!r}; {remedy}") from None


def read(content: bytes, options: ReadOptions) -> PoDocument:
    """Read a catalogue.

    Raises:
        DataError: It is not text, or not a catalogue.
    """
    source = _decoded(content, options.name)
    fields = list(_fields(source.text, source.encoding, options.name))
    return PoDocument(source, list(_blanks(fields)), options.name)


def _decoded(content: bytes, name: str) -> EncodedText:
    """Decode a catalogue: with the charset of its header, if that is known and not UTF-8."""
    header = _CHARSET.search(content, 0, 10_000)
    charset = header[1].decode() if header else "utf-8"
    try:
        encoding = lookup(charset).name
    except LookupError:  # a template has CHARSET
        encoding = "utf-8"
    if encoding in ("utf-8", "ascii"):
        return decode(content, name)
    text = decode_exactly(content, encoding, name)
    check_lines(text, name)
    return EncodedText(text, encoding)


def _fields(text: str, encoding: str, name: str) -> Iterator[_Field]:
    """Yield the fields of the entries that are not obsolete.

    Args:
        text: The catalogue.
        encoding: Its encoding, which is also that of bytes written as octal or hexadecimal escapes.
        name: Its name, for messages.

    Raises:
        DataError: A line is neither part of a field nor a comment.
    """
    end = 0
    for match in _FIELD.finditer(text):
        _check_between(text, end, match.start(), name)
        start, end = match.span("strings")
        strings = match["strings"]
        value = _with_bytes_decoded("".join(map(_unescaped, _STRING.findall(strings))), encoding)
        yield _Field(match["keyword"], match["index"], start, start + len(strings.rstrip()), value)
    _check_between(text, end, len(text), name)


def _check_between(text: str, start: int, end: int, name: str) -> None:
    """Raise a DataError if there is a broken field between two fields."""
    broken = _KEYWORD_LINE.search(text, start, end)
    if broken:
        line = text.count("\n", 0, broken.end()) + 1
        raise DataError(f'{name}:{line}: not an entry of a catalogue: a keyword such as msgid and a text in "…"')


def _blanks(fields: Sequence[_Field]) -> Iterator[_Blank]:
    """Yield the fields without a translation, with their messages."""
    singular = ""
    plural = ""
    for number, field in enumerate(fields):
        if field.keyword == "msgid":
            singular = plural = field.value
        elif field.keyword == "msgid_plural":
            plural = field.value
        elif field.keyword == "msgstr" and not field.value and singular.strip():
            followed_by_form = any(following.index for following in fields[number + 1 : number + 2])
            is_only_form = field.index == "0" and not followed_by_form  # of a language without plural
            is_singular = field.index in (None, "0") and not is_only_form
            message = singular if is_singular else plural
            yield _Blank(field.start, field.end, _message(message))


def _message(value: str) -> SpanDocument:
    """Return a message as a text of its own: its lines are segments."""
    return SpanDocument(EncodedText(value), list(text_spans(value)))


def _unescaped(text: str) -> str:
    """Return what a string in quotation marks stands for, with bytes beyond ASCII as lone surrogates."""

    def replace(match: re.Match[str]) -> str:
        octal, hexadecimal, character = match.groups()
        if character:
            return _ESCAPED.get(character, character)
        value = int(octal, 8) if octal else int(hexadecimal, 16)
        return bytes([value & 0xFF]).decode("ascii", "surrogateescape")

    return _ESCAPE.sub(replace, text)


def _with_bytes_decoded(text: str, encoding: str) -> str:
    r"""Decode runs of bytes, such as the two of `\303\251`, which may be in two strings of a field."""

    def replace(match: re.Match[str]) -> str:
        return match[0].encode("ascii", "surrogateescape").decode(encoding, "replace")

    return _ESCAPED_BYTES.sub(replace, text)


def _quoted(text: str, newline: str) -> str:
    r"""Return the strings of a field, broken like those of gettext: after `\n`, and at spaces."""
    lines = re.findall(r"[^\n]*\n|[^\n]+", text)
    parts = [part for line in lines for part in _parts(line)]
    strings = ['"' + "".join(map(_escaped, part)) + '"' for part in parts]
    return strings[0] if len(strings) == 1 else newline.join(['""', *strings])


def _escaped(character: str) -> str:
    """Return a character as it is written in a string. Control characters get an octal escape."""
    if character in _WRITTEN:
        return _WRITTEN[character]
    return f"\\{ord(character):03o}" if character < " " or character == "\x7f" else character


def _parts(line: str) -> Iterator[str]:
    """Yield the parts of a line that is too long."""
    part = ""
    for word in re.findall(r"\S*\s*", line):
        if part and len(part) + len(word.rstrip()) > LINE_WIDTH - 2:
            yield part
            part = ""
        part += word
    if part:
        yield part
