r"""Catalogues of gettext: .po and .pot files.

Messages without a translation get one. Messages that have one, even if it is fuzzy, obsolete messages (`#~`), comments,
flags and the header stay as they are. To translate all messages again, empty them first (`msgattrib --empty`).

A message that the model does not change stays without a translation: gettext then shows the message itself. Written
with the messages as translations, a catalogue is therefore the same file. A translation that `msgfmt --check` would
refuse is not written either: it compares the directives of a message with those of its translation, by the flag of the
message, such as `c-format`, and a program that gets `%d` for a string crashes.

polib writes a catalogue in its own layout, so the entries are found here.
"""

import gettext
import logging
import re
from codecs import lookup
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from mtcli.documents.formats.encoding import EncodedText, check_lines, decode
from mtcli.documents.formats.format import ReadOptions
from mtcli.documents.formats.items import texts_and_matches
from mtcli.documents.formats.plain_text import text_spans
from mtcli.documents.formats.slots import Edit, SlotDocument, raw, with_edits
from mtcli.documents.markup.inline import Inline, Tag, merged
from mtcli.errors import DataError
from mtcli.runtime.wording import counted
from mtcli.text import languages
from mtcli.text.placeholders import find_protected
from mtcli.text.safe_xml import decode_exactly

log = logging.getLogger(__name__)

# A width begins with no zero, which is a flag: shared by both, zeros would take quadratic time in `%0000`.
_PRINTF = re.compile(
    r"%(?:\d+\$|\d+:|\[\d+\]|\([^()]*\)|<(?!PRI)\w+>(?=[-+ #0'\d.*a-zA-Z])|\{\w+\})?"  # the argument
    r"[-+ #0',I]*(?:\*(?:\d+\$)?|(?!0)\d+)?(?:\.(?:\*(?:\d+\$)?|\d*))?"  # flags, width, precision
    r"(?:<PRI\w+>|(?:hh?|ll?|[Lqjzt])?[A-Za-z%@])"
)
_QT = re.compile(r"%(?:L?\d{1,2}%?|[A-Za-z%]|\|[^|]*\|)")
_BRACES = re.compile(r"\{\{|\}\}|\{(?:[^{}]|\{[^{}]*\})*\}")
_JAVA = re.compile(rf"(?<!')'(?!')[^']+'(?!')|{_BRACES.pattern}")
"""Text between single quotation marks is no directive, so its braces are none either."""
_SHELL = re.compile(r"\$(?:\w+|\{\w+\})")
_LISP = re.compile(r"~[^a-zA-Z~%&|\s]*[a-zA-Z~%&|(){}\[\]<>^;?*_/$]")
_MARKUP = re.compile(r"%(?:L?\d{1,2}|n)|</?[A-Za-z][^<>]*>|&#?\w+;")
_ANY = re.compile("|".join(form.pattern for form in (_PRINTF, _BRACES, _SHELL, _LISP)))

_NAMED = re.compile(r"%\d+[$:]|%\[|%\(|%<(?!PRI)\w+>|%\{|\{\s*\w|'")
"""What begins a directive that names its argument, or quoted text, so that it may stand anywhere."""

_WITHOUT_ARGUMENT = frozenset({"%%", "%m", "{{", "}}", "~~", "~%"})

_FLAG = re.compile(r"(?<![\w-])([a-z+\d-]+)-format\b")
_FEW = 5
"""A plural form that fewer numbers up to 1,000 have needs no directive for the number, as in `one file`."""

_NAMES_OF_KEYS = re.compile(r"[_&](?=[^\W_])")
_MAX_LABEL = 80
"""Characters of a label with an access key."""

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
_FLAGS = re.compile(r"^#,(.*)$", re.MULTILINE)
_PLURAL = re.compile(r"nplurals\s*=\s*(\d{1,3})\s*;\s*plural\s*=([^;]*)")
_KEYWORD_LINE = re.compile(r'(?:^|\r)[ \t]*(?:msg\w*|")', re.MULTILINE)
"""Also after a lone carriage return, which ends no line of a catalogue."""


@dataclass(frozen=True)
class Format:
    """The format of a message."""

    directives: re.Pattern[str]
    signs: str
    """Characters that have a meaning in the format."""
    can_be_numbered: bool = False
    """A directive may name its argument: `%2$s`."""
    in_any_order: bool = False
    """All directives name their argument."""


_NUMBERED = Format(_PRINTF, "%", can_be_numbered=True)
_NOT_NUMBERED = Format(_PRINTF, "%")
_QT_FORMAT = Format(_QT, "%", in_any_order=True)
_BRACE_FORMAT = Format(_BRACES, "{}")
_LISP_FORMAT = Format(_LISP, "~")
_OTHER = Format(_ANY, "%{}$~")
FORMATS = {
    **dict.fromkeys(("c", "objc", "gcc-internal", "awk", "php", "tcl", "java-printf"), _NUMBERED),
    **dict.fromkeys(("python", "perl", "lua", "object-pascal", "javascript", "elisp", "librep", "ruby"), _NOT_NUMBERED),
    **dict.fromkeys(("gfc-internal", "ycp", "go", "sh-printf", "d", "modula2"), _NOT_NUMBERED),
    **dict.fromkeys(("qt", "qt-plural", "kde", "boost", "smalltalk"), _QT_FORMAT),
    **dict.fromkeys(("python-brace", "csharp", "perl-brace", "c++", "rust"), _BRACE_FORMAT),
    **dict.fromkeys(("lisp", "scheme"), _LISP_FORMAT),
    "java": Format(_JAVA, "{}'"),
    "sh": Format(_SHELL, "$`", in_any_order=True),
    "kde-kuit": Format(_MARKUP, "%<>&", in_any_order=True),
}
"""The formats that gettext knows, by their flag without `-format`."""


def format_of(flags: str) -> Format | None:
    """Return the format of a message with these flags, such as `fuzzy, c-format`; None if it has none."""
    names = [name for name in _FLAG.findall(flags) if not name.startswith(("no-", "possible-", "impossible-"))]
    return FORMATS.get(names[0], _OTHER) if names else None


def with_directives(text: str, form: Format) -> Inline:
    """Return a text as a segment whose directives are tags, unless `placeholders.find_protected` protects them."""
    protected = set(find_protected(text))
    directives = (found for found in form.directives.finditer(text) if found.span() not in protected)
    parts = texts_and_matches(directives, 0, len(text))
    return merged(Tag(directive[0]) if directive else text[start:end] for start, end, directive in parts)


def checked(message: str, translation: str, form: Format | None, *, exact: bool = True) -> str | None:
    """Return a translation that gettext accepts for a message; None if there is none.

    Args:
        message: The message, or the plural that `msgfmt` compares with all plural forms.
        translation: Its translation. Directives in another order than in the message get numbers.
        form: The format of the message.
        exact: All directives of the message are needed.
    """
    if message.startswith("\n") != translation.startswith("\n") or message.endswith("\n") != translation.endswith("\n"):
        return None
    if form is None:
        return translation
    wanted = form.directives.findall(message)
    found = form.directives.findall(translation)
    if _signs(message, form) != _signs(translation, form):
        return None
    if not exact and not found:
        return translation
    if Counter(wanted) != Counter(found):
        return None
    bound = [directive for directive in wanted if directive not in _WITHOUT_ARGUMENT]
    if form.in_any_order or all(map(_NAMED.match, bound)):
        return translation
    if bound == [directive for directive in found if directive not in _WITHOUT_ARGUMENT]:
        return translation
    return _numbered(wanted, translation, form) if form.can_be_numbered and not any(map(_NAMED.match, bound)) else None


def _signs(text: str, form: Format) -> list[str]:
    """Return the characters of a text that have a meaning in its format, but are in no directive."""
    return [character for character in form.directives.sub("", text) if character in form.signs]


def _numbered(wanted: Sequence[str], translation: str, form: Format) -> str:
    """Return a translation whose directives have the numbers of their arguments."""
    written: dict[str, list[str]] = {}
    argument = 0
    for directive in wanted:
        if directive in _WITHOUT_ARGUMENT:
            continue
        with_widths = directive[1:]
        place = 0
        while (place := with_widths.find("*", place)) >= 0:
            argument += 1
            with_widths = f"{with_widths[: place + 1]}{argument}${with_widths[place + 1 :]}"
            place += 1
        argument += 1
        written.setdefault(directive, []).append(f"%{argument}${with_widths}")

    def number(found: re.Match[str]) -> str:
        return written[found[0]].pop(0) if found[0] in written else found[0]

    return form.directives.sub(number, translation)


def access_key(message: str) -> int | None:
    """Return the place of the mark of an access key in a label, as in `_Save`, `E_xit` and `&Save`; None: it has none.

    A label is a line with one such mark. `file_name`, `AT&T`, `&amp;` and what is in an address have none.
    """
    if len(message) > _MAX_LABEL or "\n" in message.strip():
        return None
    for mark in "_&":
        if message.count(mark) != 1:
            continue
        place = message.index(mark)
        before = message[:place][-1:]
        letter = message[place + 1 : place + 2]
        without_mark = message[:place] + message[place + 1 :]
        protected = find_protected(without_mark if mark == "_" else message)  # `E_xit` itself looks like an identifier
        if not _NAMES_OF_KEYS.match(message, place) or any(start <= place < end for start, end in protected):
            continue
        word = re.split(r"[\W_]+", message[:place])[-1]
        if not before.isalnum() or (word[:1].isupper() and letter.islower()):
            return place
    return None


def with_access_key(translation: str, mark: str, letter: str) -> str:
    """Return the translation of a label with an access key: on the same letter, or on the first one.

    In writing systems without capital letters, such as Japanese, it follows the text as in `保存(_S)`.
    """
    protected = find_protected(translation)
    places = [
        place
        for place, character in enumerate(translation)
        if character.isalnum() and not any(start <= place < end for start, end in protected)
    ]
    if not any(translation[place].lower() != translation[place].upper() for place in places):
        text = translation.rstrip(" .:…")
        return f"{text}({mark}{letter.upper()}){translation[len(text) :]}"
    same = [place for place in places if translation[place].lower() == letter.lower()]
    begins = [place for place in same if not translation[place - 1 : place].isalnum() or not place]
    place = (begins or same or places)[0]
    return f"{translation[:place]}{mark}{translation[place:]}"


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
    message: SlotDocument
    """The message that it translates, without the mark of its access key."""
    key: tuple[str, str] | None
    """The mark of the access key and its letter, such as `_` and `S`."""
    compared: str
    """The message with which gettext compares the translation: of a plural form, always the plural."""
    is_exact: bool
    """All directives are needed, see `checked`."""
    form: Format | None
    """The format that the flags of the message name."""


@dataclass(frozen=True)
class _Entry:
    """The forms of a message without a translation. All are translated, or none is."""

    place: int
    """Offset of the first of them."""
    blanks: Sequence[_Blank]
    has_all_forms: bool
    """A message with a plural has the forms that the rule of the header numbers; gettext refuses translations of
    others, and all if there is no rule."""


class PoDocument:
    """A catalogue; see `format.Document`."""

    def __init__(self, source: EncodedText, entries: Sequence[_Entry], name: str):
        self._source = source
        self._entries = entries
        self._name = name

    @property
    def segments(self) -> Sequence[Inline]:
        """The lines and paragraphs of the messages without a translation."""
        blanks = (blank for entry in self._entries for blank in entry.blanks)
        return [segment for blank in blanks for segment in blank.message.segments]

    def write(self, translations: Sequence[Inline]) -> bytes:
        """Return the catalogue with the translations. A message that is the same in both languages is omitted.

        A translation that gettext would refuse is omitted with a warning.

        Raises:
            DataError: The encoding of the catalogue lacks a character of a translation.
        """
        text = self._source.text
        newline = "\r\n" if "\r\n" in text else "\n"
        remaining = iter(translations)
        edits: list[Edit] = []
        refused: list[int] = []
        for entry in self._entries:
            translated = []
            for blank in entry.blanks:
                own = [next(remaining) for _ in blank.message.segments]
                translated.append(blank.message.text(own))
            if translated == [blank.message.source.text for blank in entry.blanks]:
                continue
            texts = list(map(_checked, entry.blanks, translated))
            if None in texts or not entry.has_all_forms:
                refused.append(entry.place)
                continue
            for blank, translation in zip(entry.blanks, texts, strict=True):
                edits.append(Edit(blank.start, blank.end, _quoted(translation or "", newline)))
        self._warn(refused)
        try:
            return self._source.encode(with_edits(text, edits))
        except UnicodeEncodeError as error:
            lacking = error.object[error.start]
            encoding = self._source.encoding
            remedy = f"convert the catalogue first: msgconv -t UTF-8 {self._name}"
            raise DataError(f"{self._name}: its charset {encoding} lacks {lacking!r}; {remedy}") from None

    def _warn(self, places: Sequence[int]) -> None:
        """Warn about messages that are not translated, given their places."""
        if places:
            lines = [str(self._source.text.count("\n", 0, place) + 1) for place in places[:10]]
            listed = ", ".join(lines) + (", …" if len(places) > 10 else "")
            message = "%s: %s not translated, because msgfmt would refuse the translation (line %s)"
            log.warning(message, self._name, counted(len(places), "message"), listed)


def _checked(blank: _Blank, translation: str) -> str | None:
    """Return the text of a `msgstr`, or None if gettext would refuse it."""
    if blank.key:
        translation = with_access_key(translation, *blank.key)
    if not translation.strip():
        return None
    return checked(blank.compared, translation, blank.form, exact=blank.is_exact)


def read(content: bytes, options: ReadOptions) -> PoDocument:
    """Read a catalogue.

    Raises:
        DataError: It is not text, not a catalogue, or for another language.
    """
    source = _decoded(content, options.name)
    fields = list(_fields(source.text, source.encoding, options.name))
    header = _header(fields)
    _check_language(header.get("language", ""), options)
    entries = _entries(source.text, fields, *_plural_forms(header.get("plural-forms", "")))
    return PoDocument(source, list(entries), options.name)


def _plural_forms(declared: str) -> tuple[int, set[int]]:
    """Return how many plural forms a header declares, and the numbers of those that few numbers have.

    Without a valid expression, such as `nplurals=2; plural=n != 1`, there is none.
    """
    found = _PLURAL.search(declared)
    try:
        rule = gettext.c2py(found[2]) if found else None
    except (ValueError, RecursionError):
        rule = None
    if found is None or rule is None:
        return 0, set()
    num_forms = int(found[1])
    try:
        counts = Counter(map(rule, range(1001)))
    except (ArithmeticError, RecursionError):
        return num_forms, set()
    return num_forms, {form for form in range(num_forms) if counts[form] < _FEW}


def _header(fields: Sequence[_Field]) -> dict[str, str]:
    """Return the lines of the header, the translation of an empty message, by their names in lower case."""
    for field, following in pairwise(fields):
        if field.keyword == "msgid" and not field.value and following.keyword == "msgstr":
            lines = (line.partition(":") for line in following.value.split("\n"))
            return {name.strip().lower(): value.strip() for name, _, value in lines}
    return {}


def _check_language(declared: str, options: ReadOptions) -> None:
    """Raise a DataError if the language of the header is known, and not the target language."""
    found = languages.base(declared)
    wanted = languages.base(options.tgt)
    if found and wanted and found != wanted:
        raise DataError(
            f"{options.name}: Language is {declared!r}, but the target language of the model is {options.tgt!r}; "
            "use a model for this language, or change the header"
        )


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
    """Yield the fields of the entries that are not obsolete. Raise a DataError for a line that is none, and no comment.

    The encoding of the catalogue is also that of bytes that are written as octal or hexadecimal escapes.
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


def _entries(text: str, fields: Sequence[_Field], num_plurals: int, rare_forms: Container[int]) -> Iterator[_Entry]:
    """Yield the messages that have a field without a translation. For plural forms, see `_plural_forms`."""
    end = 0
    flags = ""
    messages: dict[str, str] = {}
    forms: list[_Field] = []
    for number, field in enumerate(fields):
        if field.keyword != "msgstr":
            if forms or not messages:
                messages = {}
                forms = []
                begin = max(end, text.rfind("\n#~", end, field.start))  # flags of obsolete messages do not count
                flags = " ".join(_FLAGS.findall(text, begin, field.start))
            messages[field.keyword] = field.value
            end = field.end
            continue
        forms.append(field)
        end = field.end
        is_last = number + 1 == len(fields) or fields[number + 1].keyword != "msgstr"
        empty = [form for form in forms if not form.value]
        if is_last and empty and messages.get("msgid", "").strip():
            blanks = [
                _blank(form, messages, len(forms), format_of(flags), is_rare=int(form.index or 0) in rare_forms)
                for form in empty
            ]
            numbers = [None if form.index is None else int(form.index) for form in forms]
            has_all_forms = "msgid_plural" not in messages or numbers == [*range(num_plurals)]
            yield _Entry(empty[0].start, blanks, has_all_forms)


def _blank(field: _Field, messages: Mapping[str, str], num_forms: int, form: Format | None, *, is_rare: bool) -> _Blank:
    """Return a form of a message without a translation.

    The first of several plural forms translates the singular, unless gettext would refuse its directives there.
    """
    singular = messages["msgid"]
    compared = messages.get("msgid_plural", singular)
    message = compared
    if field.index == "0" and num_forms != 1:
        message = singular if checked(compared, singular, form, exact=not is_rare) == singular else compared
    place = access_key(message)
    key = None if place is None else (message[place], message[place + 1])
    shown = message if place is None else message[:place] + message[place + 1 :]
    spans = list(text_spans(shown))
    if form:
        spans = [replace(span, segment=with_directives(raw(span.segment), form)) for span in spans]
    document = SlotDocument(EncodedText(shown), spans)
    return _Blank(field.start, field.end, document, key, compared, not is_rare, form)


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
