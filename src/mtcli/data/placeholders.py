"""Protected text: what a translation must contain exactly as its source does, such as `%s`, `{name}` or a URL.

A model trained with `data.placeholders` has ten tokens that stand for such text, see `with_tokens`. In a text, they are
ten private characters of Unicode, so that vocabularies, exports and alignments need no special case.
"""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Final
from zlib import crc32

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
# At most 64 characters, as in RFC 5321: without a limit, the search takes quadratic time in `a.a.a.a`.
_EMAIL = r"(?:mailto:)?\b[\w.+-]{1,64}@[\w-]++(?:\.[\w-]+)+"
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
# At most 20 groups of digits: without a limit, the search takes quadratic time in `1'1'1'1`.
_NUMBER = r"(?<![\w.,])\d++(?:[.,'’\u00a0\u202f]\d++){0,20}+"
_MEASURE = (
    rf"{_NUMBER}[ \u00a0\u202f]?(?:{_UNITS})(?![\w(])|"
    r"[$€£¥₹][ \u00a0\u202f]?\d+(?:[.,'’\u00a0\u202f]\d+)*"
)

TOKENS: Final = tuple(chr(0x10FF00 + number) for number in range(10))
"""The characters of the placeholder tokens."""
_TOKEN = f"[{TOKENS[0]}-{TOKENS[-1]}]"

_PLACEHOLDER: Final = "|".join(
    (
        _URL, _EMAIL, _TAG, _TEMPLATE, _ICU, _FIELD, _PYTHON,
        # A sign of percent after a number, as in the German word `30%ige`, begins no placeholder.
        rf"(?<!\d){_PRINTF}", rf"{_PRINTF}(?!\w)", _QT, r"%%", r"%[A-Z_]{2,}%",
        r"\$[A-Za-z_]\w*", _ENTITY, _EMOJI, _TOKEN,
    )
)  # fmt: skip
_PROTECTED = re.compile(rf"(?P<placeholder>{_PLACEHOLDER})|(?P<measure>{_MEASURE})")

_HINT = re.compile(r"[%$&{<@\d\u00a3\u00a5\u203c-\u2bff\ufe0f\U0001f000-\U0010ffff]|://|www\.")
"""A text without any of these has nothing protected. This test takes a fraction of the time of the search."""

_COPIED_WORD = re.compile(r"(?<!\S)[\w-]*\w(?=[.,;:!?]?(?!\S))")
MIN_COPIED = 4
"""Characters of a word for which a placeholder token may stand if it is the same in both languages."""
REPLACED = 2
"""The protected text of one pair out of this many is replaced, so that the model also learns to copy it."""
COPIES = 3
"""Of the other pairs, copied words of one out of this many are replaced."""
ADDED = 16
"""One pair out of this many without any copied word gets a token at the beginning or the end of both sides."""

Span = tuple[int, int]
"""The start and the end of a part of a text."""


def find_protected(text: str) -> list[Span]:
    """Return the spans of a text that must not be translated, in order. They do not overlap.

    They are URLs, e-mail addresses, tags written as text, placeholders of common formats (`%s`, `%1$s`, `%(name)s`,
    `%1`, `{name}`, `{0:.2f}`, `{{x}}`, `${x}`, `$VAR`, ICU messages), `&entities;`, emoji, and numbers with units.
    """
    if not _HINT.search(text):
        return []
    return [match.span() for match in _PROTECTED.finditer(text)]


def with_tokens(src: str, tgt: str) -> tuple[str, str]:
    """Return a training pair in which placeholder tokens stand for some text that is the same on both sides.

    This is protected text and, because few corpora have much of it, words such as names and numbers. Only text that
    occurs once on each side is replaced. Some other pairs get a token at one end. The choice and the numbers of the
    tokens depend on the pair alone.
    """
    key = crc32(f"{src}\t{tgt}".encode("utf-8", "replace"))
    tokens = [TOKENS[(key // 7 + number) % len(TOKENS)] for number in range(len(TOKENS))]
    protected = _shared(_protected_texts(src), _protected_texts(tgt))
    words = _shared(_words(src), _words(tgt))[:2]
    replaced: list[str] = []
    if protected:
        replaced = protected if key % REPLACED == 0 else []
    elif words:
        replaced = words if key % COPIES == 0 else []
    elif key % (2 * ADDED) == 0:
        return f"{tokens[0]} {src}", f"{tokens[0]} {tgt}"
    elif key % (2 * ADDED) == 1:
        return f"{src} {tokens[0]}", f"{tgt} {tokens[0]}"
    for text, token in zip(replaced, tokens, strict=False):
        if src.count(text) == 1 and tgt.count(text) == 1:
            src = src.replace(text, token)
            tgt = tgt.replace(text, token)
    return src, tgt


def _protected_texts(text: str) -> list[str]:
    return [text[start:end] for start, end in find_protected(text)]


def _words(text: str) -> list[str]:
    return [word for word in _COPIED_WORD.findall(text) if len(word) >= MIN_COPIED]


def _shared(src: Sequence[str], tgt: Sequence[str]) -> list[str]:
    """Return what occurs once on both sides, in the order of the source."""
    return [text for text in src if src.count(text) == 1 and tgt.count(text) == 1]


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
    while _HINT.search(text):
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
    return text
