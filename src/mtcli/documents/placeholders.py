"""Protected text: what a translation must contain exactly as its source does, such as `%s`, `{name}` or a URL."""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Final

_CONVERSION = r"(?:hh?|ll?|[Lqjzt])?[diouxXeEfFgGaAcspn@]"
_PRINTF = rf"%(?:\d+\$)?[-+#0']*(?:\d+|\*)?(?:\.(?:\d+|\*))?{_CONVERSION}"
_PYTHON = r"%\([^()\s]+\)[-+#0]*\d*(?:\.\d+)?[diouxXeEfFgGcrsa]"
_QT = r"%L?(?:\d{1,2}|n)\b"
# Braces may contain braces, two levels deep: `{n, plural, one {# file} other {# files}}`.
_INNER_BRACES = r"\{(?:[^{}]|\{[^{}]*\})*\}"
_ICU = rf"\{{\s*\w+\s*,\s*\w+\s*(?:,(?:[^{{}}]|{_INNER_BRACES})*)?\}}"
_FIELD = r"[$#%]?\{\s?[$@#/^&>!.-]{0,2}[\w.\[\]'-]*(?:\([^(){}]*\))?(?:![rsa])?(?:\s?[:|][^{}\n]{0,40})?\s?\}"
_TEMPLATE = r"\{\{\{[^{}\n]*\}\}\}|[$#]?\{\{[^{}\n]*\}\}|\{%[^{}\n]*%\}|<%[^<>\n]*%>"
_URL = (
    r"(?:https?|ftps?|file)://[^\s<>\"'{}]*[^\s<>\"'{}.,;:!?()\[\]…]/?|"
    r"\bwww\.[\w-]+(?:\.[\w-]+)+(?:/[^\s<>\"'{}.,;:!?()]*)*"
)
_EMAIL = r"(?:mailto:)?\b[\w.+-]+@[\w-]+(?:\.[\w-]+)+"
_ENTITY = r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});"
_TAG = r"</?[A-Za-z][^<>]*>|<!--[^<>]*-->"
_PICTURE = (
    "[\U0001f000-\U0001f1e5\U0001f200-\U0001f3fa\U0001f400-\U0001faff"
    "\u2600-\u27bf\u2b05-\u2b07\u2b1b\u2b1c\u2b50\u2b55]"
)
_EMOJI = (
    "[\U0001f1e6-\U0001f1ff]{2}|[0-9#*]\ufe0f?\u20e3|"
    rf"{_PICTURE}[\ufe0e\ufe0f\U0001f3fb-\U0001f3ff]*(?:\u200d{_PICTURE}[\ufe0e\ufe0f\U0001f3fb-\U0001f3ff]*)*|"
    "[\u00a9\u00ae\u203c\u2049\u2122\u2139\u2194-\u21aa\u231a\u231b\u23e9-\u23fa]\ufe0f"
)
_UNITS = (
    "km/h|m/s|[kcmd]?m[²³]|[kcdmµμn]?m|[kmµμ]?g|t|[mcdh]?l|L|[mnµμ]?s|min|h|[kMGT]?Hz|[kMG]Wh|[kMGm]?W|[km]?V|mAh|mA|"
    "[kM]J|kcal|cal|[hkM]?Pa|m?bar|°[CF]?|px|pt|em|rem|dpi|ppi|[kKMGTkmgt]i?[Bb]|[kMG]bit|[kMG]?bps|fps|rpm|dB|mph|"
    "ft|lbs?|oz|yd|mi|ha|[%‰€$£¥₹]|USD|EUR|GBP|CHF|JPY|CAD|AUD"
)
_NUMBER = r"(?<![\w.,])\d+(?:[.,'’\u00a0\u202f]\d+)*"
_MEASURE = (
    rf"{_NUMBER}[ \u00a0\u202f]?(?:{_UNITS})(?!\w)|"
    r"[$€£¥₹][ \u00a0\u202f]?\d+(?:[.,'’\u00a0\u202f]\d+)*"
)

_PLACEHOLDER: Final = "|".join(
    (
        _URL, _EMAIL, _TAG, _TEMPLATE, _ICU, _FIELD, _PYTHON,
        # A sign of percent after a number, as in the German word `30%ige`, begins no placeholder.
        rf"(?<!\d){_PRINTF}", rf"{_PRINTF}(?!\w)", _QT, r"%%", r"%[A-Z_]{2,}%",
        r"\$[A-Za-z_]\w*", _ENTITY, _EMOJI,
    )
)  # fmt: skip
_PROTECTED = re.compile(rf"(?P<placeholder>{_PLACEHOLDER})|(?P<measure>{_MEASURE})")

Span = tuple[int, int]
"""The start and the end of a part of a text."""


def find_protected(text: str) -> list[Span]:
    """Return the spans of a text that must not be translated, in order. They do not overlap.

    They are URLs, e-mail addresses, tags written as text, placeholders of common formats (`%s`, `%1$s`, `%(name)s`,
    `%1`, `{name}`, `{0:.2f}`, `{{x}}`, `${x}`, `$VAR`, ICU messages), `&entities;`, emoji, and numbers with units.
    """
    return [match.span() for match in _PROTECTED.finditer(text)]


def count_protected(texts: Sequence[str]) -> Counter[str]:
    """Count the protected spans of some texts."""
    return Counter(match[0] for text in texts for match in _PROTECTED.finditer(text))


def count_measures(texts: Sequence[str]) -> Counter[str]:
    """Count those protected spans that are numbers with units."""
    return Counter(match[0] for text in texts for match in _PROTECTED.finditer(text) if match["measure"])


def has_lost_or_added(source: Sequence[str], translation: Sequence[str]) -> bool:
    """Return True if a translation does not have exactly the protected spans of its source.

    A source without numbers with units may have a translation with some: "three kilometres" is "3 km" elsewhere.
    """
    wanted = count_protected(source)
    found = count_protected(translation)
    if not count_measures(source):
        found -= count_measures(translation)
    return wanted != found


def without_added(text: str, allowed: Counter[str], *, measures: bool) -> str:
    """Delete the protected spans of a text that are not allowed, or that occur more often than allowed.

    Args:
        text: A translation.
        allowed: How often each span may occur.
        measures: Delete numbers with units too.
    """
    while True:
        remaining = allowed.copy()
        kept = []
        end = 0
        for match in _PROTECTED.finditer(text):
            if match["measure"] and not measures:
                continue
            if remaining[match[0]] > 0:
                remaining[match[0]] -= 1
                continue
            kept.append(text[end : match.start()])
            end = match.end()
        if not kept:
            return text
        # The parts that remain may form another span together, so they are searched again.
        text = "".join([*kept, text[end:]])
