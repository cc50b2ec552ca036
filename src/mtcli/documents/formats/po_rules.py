"""What gettext demands of a translation: the directives of its format, in an order that programs can use.

`msgfmt --check` compares the directives of a message with those of its translation, by the flag of the message, such as
`c-format`. A program that gets `%d` for a string crashes, so a translation that breaks a rule here is not written.
"""

import gettext
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from mtcli.documents.markup.inline import Inline, Tag, merged
from mtcli.text.placeholders import find_protected

_PRINTF = re.compile(
    r"%(?:\d+\$|\d+:|\[\d+\]|\([^()]*\)|<(?!PRI)\w+>(?=[-+ #0'\d.*a-zA-Z])|\{\w+\})?"  # the argument
    r"[-+ #0',I]*(?:\*(?:\d+\$)?|\d+)?(?:\.(?:\*(?:\d+\$)?|\d*))?"  # flags, width, precision
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
_NAMED = re.compile(r"%\d+[$:]|%\[|%\(|%<(?!PRI)\w+>|%\{|\{\s*\w|'")
"""What begins a directive that names its argument, or quoted text, so that it may stand anywhere."""
_WITHOUT_ARGUMENT = frozenset({"%%", "%m", "{{", "}}", "~~", "~%"})

_FLAG = re.compile(r"(?<![\w-])([a-z+\d-]+)-format\b")
_FEW = 5
"""A plural form that fewer numbers up to 1,000 have needs no directive for the number, as in `one file`."""
_NAMES_OF_KEYS = re.compile(r"[_&](?=[^\W_])")
_MAX_LABEL = 80
"""Characters of a label with an access key."""


def format_of(flags: str) -> Format | None:
    """Return the format of a message with these flags, such as `fuzzy, c-format`; None if it has none."""
    names = [name for name in _FLAG.findall(flags) if not name.startswith(("no-", "possible-", "impossible-"))]
    return FORMATS.get(names[0], _OTHER) if names else None


def with_directives(segment: Inline, form: Format) -> Inline:
    """Return a segment in which directives that are not protected as text (`placeholders.find_protected`) are tags."""
    parts: list[str | Tag] = []
    for part in segment:
        if isinstance(part, Tag):
            parts.append(part)
            continue
        protected = set(find_protected(part))
        end = 0
        for found in form.directives.finditer(part):
            if found.span() not in protected:
                parts += [part[end : found.start()], Tag(found[0])]
                end = found.end()
        parts.append(part[end:])
    return merged(parts)


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


def is_plural(expression: str) -> bool:
    """Return True if this is an expression for plural forms, such as `n != 1`."""
    try:
        gettext.c2py(expression)
        return True
    except (ValueError, RecursionError):
        return False


@cache
def is_rare(plural: str, index: int) -> bool:
    """Return True if a plural form is for few numbers only.

    Args:
        plural: The expression of the header, such as `n != 1`.
        index: The number of the form.
    """
    try:
        form_of_number = gettext.c2py(plural)
        return sum(form_of_number(number) == index for number in range(1001)) < _FEW
    except (ValueError, ArithmeticError, RecursionError):
        return False


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
