"""Symbols, which are no words of any language and stay as they are: emoji, smileys, arrows and other signs.

They do not depend on what a model knows. Signs that are punctuation, or a part of numbers, are none: `-`, `€ 5`, `§ 3`.
"""

import re
from functools import cache
from typing import Final

from mtcli.text.rule import Rule, Start

_PICTURE = (
    "[\U0001f000-\U0001f1e5\U0001f200-\U0001f3fa\U0001f400-\U0001faff"
    "\u2600-\u27bf\u2b05-\u2b07\u2b1b\u2b1c\u2b50\u2b55]"
)
_MODIFIERS = "\ufe0e\ufe0f\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f"
"""Forms, colors of skin, and the letters of flags such as that of Scotland."""
# Blocks of signs, without the brackets and letters in them.
_SIGN = (
    "[\u00a6\u00a9\u00ae\u00b6\u2020-\u2023\u203b\u2100\u2101\u2103-\u2106\u2108\u2109\u2114\u2117\u2118\u211e-\u2123\u2125"
    "\u2127\u2129\u212e\u213a\u213b\u2140-\u2144\u214a-\u214d\u214f\u2190-\u2211\u2213-\u2307\u230c-\u2328\u232b-\u244a"
    "\u2460-\u2767\u2776-\u27c4\u27c7-\u27e5\u27f0-\u2982\u2999-\u29d7\u29dc-\u29fb\u29fe-\u2bff\u3004\u3012\u3013"
    "\u3020\u3036\u3037\u4dc0-\u4dff\U0001d100-\U0001d1ff\U0001f000-\U0001fbef]"
)
_OF_NUMBERS = "[§°±·¬×÷¤£¥\u2116\u2212\u20a0-\u20cf]"
"""Signs that usually belong to a number. Languages write some of them in other places, or as words."""
_BEFORE = r"(?<![^\s(\"'“„«.,!?…])"
"""Before a smiley is nothing, or a space or mark."""
_STRONG = rf"\\_^~*+=<>|#¯°{_SIGN[1:-1]}"
"""Signs of a set that are no punctuation."""

SYMBOL_RULES: Final = (
    # ---- emoji ----
    # Two letters of a region: `🇩🇪`.
    Rule("flag", "[\U0001f1e6-\U0001f1ff]{2}"),
    # `1️⃣`: a digit, `#` or `*` on a key.
    Rule("key", "[0-9#*]\ufe0f?\u20e3", (Start.DIGIT, Start.SIGN)),
    # `😀`, `👍🏽`, and several that are joined to one: `👨‍👩‍👧`.
    Rule("emoji", rf"{_PICTURE}[{_MODIFIERS}]*(?:\u200d{_PICTURE}[{_MODIFIERS}]*)*"),
    # Signs that are emoji only with the selector of this form: `‼️`, `↔️`, and `ℹ️`, which is a letter for `re`.
    Rule(
        "sign as an emoji",
        "[\u203c\u2049\u2139\u2194-\u21aa\u231a\u231b\u23e9-\u23fa]\ufe0f",
        (Start.LETTER, Start.SIGN),
    ),
    # ---- smileys ----
    # `:-)`, `;P`, `:'(`, `>:-(`. Before it is no word: `note:(a)`; nor after it, if it ends with a letter: `:Dog`.
    Rule("smiley", rf"{_BEFORE}[>}}]?[:;=]'?[-^o~]?(?:[)(|/\\*\]\[>D]++|[PpOo3xXsS]{{1,4}}+)(?!\w)"),
    # `:-)one`: only those without letters, which are no part of the word.
    Rule("smiley before a word", r"(?<!\S)[:;=](?:-[)(\]\[]++|[)\]]++)(?=\w)"),
    # `two:)`, `two:-D`.
    Rule("smiley after a word", r"(?<=\w)[:;](?:[-^']?[)(]++|-[D|/\\*\]PpO]|D++)(?!\w)"),
    # `(-:`, `(:`, alone between spaces; not `]:` and `(=`, which begin or end what is in brackets.
    Rule("smiley from the right", r"(?<!\S)(?:[()\]\[]+[-^o'][:;=]|[()]+[:;])(?!\S)"),
    # `<3`, `</3`; not in `5<3`.
    Rule("heart", r"(?<![\w<])</?3++(?!\w)"),
    # `(^_^)`, `(T_T)`.
    Rule("face in parentheses", r"(?<!\w)\((?:[\^><*;~='@-][_.o-]?[\^><*;~='@-]|[TtOoUuXx]_+[TtOoUuXx])\)(?!\w)"),
    # `-_-`, `^^`, `>.<`.
    Rule("face", rf"{_BEFORE}(?:[\^><*;.~='@-]_+[\^><*;.~='@-]|\^[.o-]?\^+|>[.o-]?<)(?!\w)"),
    # `->`, `=>`, `<->`, `-->`.
    Rule("arrow to the right", r"<?[-=]+>(?!\w)"),
    # `<-`, `<=`; not in `x<-1`, which is a comparison.
    Rule("arrow to the left", r"<[-=]+(?![\w-])"),
    # `B-)`, with glasses.
    Rule("smiley with B", r"B-[)(D]++(?!\w)", (Start.LETTER,)),
    # `xD`, `XDDD`.
    Rule("smiley with x", r"[xX][dD]++(?!\w)", (Start.LETTER,)),
    # `T_T`, `o_O`.
    Rule("face of letters", r"[TtOoUuXx]_+[TtOoUuXx](?!\w)", (Start.LETTER,)),
    # `ʕ•ᴥ•ʔ`: the ears are letters.
    Rule("bear", r"ʕ[^\s\w]{0,3}[^\s][^\s\w]{0,3}ʔ", (Start.LETTER,)),
    # `①`, `⓿`, which are letters for `re`.
    Rule("number in a circle", r"[\u2460-\u249b\u24ea-\u24ff\u2776-\u2793]\ufe0f?", (Start.LETTER,)),
    # `8-)`, `8D`; not `(page 8)`, nor the score `8-3`.
    Rule("smiley with 8", r"8(?:[-^o][)(|\]*>]++|[-^o]?[DPpO]++)(?!\w)", (Start.DIGIT,)),
    # ---- other signs ----
    # A word of signs and single letters, such as `¯\_(ツ)_/¯`, `***` and `____`. Two of its signs are no punctuation.
    # Not `+k+`: in Huichol, `+` is a vowel.
    Rule(
        "word of signs",
        r"(?<!\S)(?![\"'“„«»\[{]|</?[A-Za-z\d]+/?>|\((?:[^\s)]*+|\S{0,22}\)[.,;:!?…]*+)(?!\S))"
        r"(?![¡¿(-]?(?:\+*[^\W\d_])+\+*[).,;:!?…]*(?!\S))"
        rf"(?=\S{{0,23}}[{_STRONG}])(?=\S{{0,23}}?[{_STRONG}/]\S{{0,22}}?[{_STRONG}/])"
        r"(?:[^\w\s]|_|[^\W_](?![^\W_])){2,24}(?<![.,;:!?…])(?=[.,;:!?…]*(?!\S))",
    ),
    # `©`, `→`, `★`, `™`, also beside a word.
    Rule("sign", rf"{_SIGN}[\ufe0e\ufe0f]?"),
    # `§`, `±`, `×` alone; beside a number, they are left to the model: `§ 5`, `5 × 3`.
    Rule("sign without its number", rf"(?<!\w)(?<!\d[ \u00a0\u202f]){_OF_NUMBERS}(?!\w)(?![ \u00a0\u202f]\d)"),
    # `*`, `|`, `~` between spaces, but not between numbers: `5 * 3`.
    Rule("mark between spaces", r"(?<!\S)(?<!\d[ \u00a0\u202f])[*|~^](?!\S)(?![ \u00a0\u202f]\d)"),
    # `*so* good`, `**so good!**`, as people write emphasis in chats; not in `a*b`, `5*` and `src/*.c`.
    Rule("beginning of emphasis", r"(?<![\w*/\\])\*{1,2}(?=[^\W\d_])"),
    Rule("end of emphasis", r"(?:(?<=[^\W\d_])|(?<=[^\W\d_][.!?]))\*{1,2}(?![\w*/\\])"),
)

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
    symbols = f"(?:{'|'.join(rule.pattern for rule in SYMBOL_RULES)})+"
    return re.compile(rf"{symbols}|[(\[{{（]{symbols}[)\]}}）]")


def is_symbol(text: str) -> bool:
    """Return True for one symbol or several, and nothing else, except brackets around them."""
    return _symbols().fullmatch(text) is not None
