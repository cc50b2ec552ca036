"""Symbols, which are no words of any language and stay as they are: emoji, smileys, arrows and other signs.

They do not depend on what a model knows. Signs that are punctuation, or a part of numbers, are none: `-`, `€ 5`, `§ 3`.
"""

import re
from functools import cache
from typing import Final

_PICTURE = (
    "[\U0001f000-\U0001f1e5\U0001f200-\U0001f3fa\U0001f400-\U0001faff"
    "\u2600-\u27bf\u2b05-\u2b07\u2b1b\u2b1c\u2b50\u2b55]"
)
_MODIFIERS = "\ufe0e\ufe0f\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f"
"""Forms, colors of skin, and the letters of flags such as that of Scotland."""
_EMOJI = (
    "[\U0001f1e6-\U0001f1ff]{2}|[0-9#*]\ufe0f?\u20e3|"
    rf"{_PICTURE}[{_MODIFIERS}]*(?:\u200d{_PICTURE}[{_MODIFIERS}]*)*|"
    "[\u203c\u2049\u2139\u2194-\u21aa\u231a\u231b\u23e9-\u23fa]\ufe0f"
)
# Blocks of signs, without the brackets and letters in them.
_SIGN = (
    "[\u00a6\u00a9\u00ae\u00b6\u2020-\u2023\u203b\u2100\u2101\u2103-\u2106\u2108\u2109\u2114\u2117\u2118\u211e-\u2123\u2125"
    "\u2127\u2129\u212e\u213a\u213b\u2140-\u2144\u214a-\u214d\u214f\u2190-\u2211\u2213-\u2307\u230c-\u2328\u232b-\u244a"
    "\u2460-\u2767\u2776-\u27c4\u27c7-\u27e5\u27f0-\u2982\u2999-\u29d7\u29dc-\u29fb\u29fe-\u2bff\u3004\u3012\u3013"
    "\u3020\u3036\u3037\u4dc0-\u4dff\U0001d100-\U0001d1ff\U0001f000-\U0001fbef]"
)
_OF_NUMBERS = "[§°±·¬×÷¤£¥\u2116\u2212\u20a0-\u20cf]"
"""Signs that usually belong to a number. Languages write some of them in other places, or as words."""
_OTHER_SIGN = (
    rf"{_SIGN}[\ufe0e\ufe0f]?|(?<!\w)(?<!\d[ \u00a0\u202f]){_OF_NUMBERS}(?!\w)(?![ \u00a0\u202f]\d)|"
    r"(?<!\S)(?<!\d[ \u00a0\u202f])[*|~^](?!\S)(?![ \u00a0\u202f]\d)|"
    r"(?<![\w*/\\])\*{1,2}(?=[^\W\d_])|(?:(?<=[^\W\d_])|(?<=[^\W\d_][.!?]))\*{1,2}(?![\w*/\\])"
)
"""The last two are marks of emphasis, as in `*so* good`, which people type in chats."""

_BEFORE = r"(?<![^\s(\"'“„«.,!?…])"
"""Before a smiley is nothing, or a space or mark."""
_SMILEY = (
    rf"{_BEFORE}[>}}]?[:;=]'?[-^o~]?(?:[)(|/\\*\]\[>D]++|[PpOo3xXsS]{{1,4}}+)(?!\w)|"
    r"(?<!\S)[:;=](?:-[)(\]\[]++|[)\]]++)(?=\w)|"
    r"(?<=\w)[:;](?:[-^']?[)(]++|-[D|/\\*\]PpO]|D++)(?!\w)|"
    r"(?<!\S)[()\]\[]+[-^o']?[:;=](?!\S)|"
    r"(?<![\w<])</?3++(?!\w)|"
    r"(?<!\w)\((?:[\^><*;~='@-][_.o-]?[\^><*;~='@-]|[TtOoUuXx]_+[TtOoUuXx])\)(?!\w)|"
    rf"{_BEFORE}(?:[\^><*;.~='@-]_+[\^><*;.~='@-]|\^[.o-]?\^+|>[.o-]?<)(?!\w)|<?[-=]+>(?!\w)|<[-=]+(?![\w-])"
)
_LETTERED_SMILEY = r"B-[)(D]++(?!\w)|[xX][dD]++(?!\w)|[TtOoUuXx]_+[TtOoUuXx](?!\w)|ʕ[^\s\w]{0,3}[^\s][^\s\w]{0,3}ʔ"
_NUMBER_IN_CIRCLE = r"[\u2460-\u249b\u24ea-\u24ff\u2776-\u2793]\ufe0f?"
"""A letter for `re`."""
_NUMBERED_SMILEY = r"8[-^o]?(?:[)(|\]*>]++|[DPpO]++)(?!\w)|8[-^o]3++(?!\w)"

# A word of signs and single letters, such as `¯\_(ツ)_/¯`, `***` and `____`. Two of its signs are no punctuation.
_STRONG = rf"\\_^~*+=<>|#¯°{_SIGN[1:-1]}"
_WORD_OF_SIGNS = (
    r"(?<!\S)(?![\"'“„«»\[{]|</?[A-Za-z\d]+/?>|\((?:[^\s)]*+|\S{0,22}\)[.,;:!?…]*+)(?!\S))"
    rf"(?=\S{{0,23}}[{_STRONG}])(?=\S{{0,23}}?[{_STRONG}/]\S{{0,22}}?[{_STRONG}/])"
    r"(?:[^\w\s]|_|[^\W_](?![^\W_])){2,24}(?<![.,;:!?…])(?=[.,;:!?…]*(?!\S))"
)

SYMBOL: Final = f"(?:{_EMOJI}|{_SMILEY}|{_WORD_OF_SIGNS}|{_OTHER_SIGN})"
"""Pattern of a symbol that begins with a sign."""
LETTERED_SYMBOL: Final = f"(?:{_LETTERED_SMILEY}|{_NUMBER_IN_CIRCLE})"
"""Pattern of a symbol that begins with a letter."""
NUMBERED_SYMBOL: Final = f"(?:{_EMOJI}|{_NUMBERED_SMILEY})"
"""Pattern of a symbol that begins with a digit."""

ALWAYS: Final = (
    "\u00a3-\u00a7\u00a9\u00ac\u00ae-\u00b1\u00b6\u00b7\u00d7\u00f7\u0295\u2020-\u2023\u203b-\u203c\u2049\u20a0-\u2bff"
    "\u3004\u3012\u3013\u3020\u3036\u3037\u4dc0-\u4dff\ufe0e\ufe0f\U0001d100-\U0001fbef<=>_\\\\#^~*+|"
)
"""Characters of a set: a text with one of them may have a symbol."""
SOMETIMES: Final = ":;()xXB\\[\\]"
"""Characters of a set of which a text with a symbol has one if it has none of `ALWAYS` and no digit."""
AFTER_SOMETIMES: Final = (
    r"(?<=[:;])(?=[-^'~o)(/D\[\]|\\*>PpOo3xXsS])|(?<=[)(\[\]])(?=[-^o']?[:;=])|(?<=[xX])(?=[dD])|(?<=B)(?=-)"
)
"""Pattern behind a character of `SOMETIMES` that may belong to a symbol."""


@cache
def _symbols() -> re.Pattern[str]:
    symbols = f"(?:{SYMBOL}|{LETTERED_SYMBOL}|{NUMBERED_SYMBOL})+"
    return re.compile(rf"{symbols}|[(\[{{（]{symbols}[)\]}}）]")


def is_symbol(text: str) -> bool:
    """Return True for one symbol or several, and nothing else, except brackets around them."""
    return _symbols().fullmatch(text) is not None
