"""What is looked for in a pair of sentences, in one table: `rules`.

A rule sees a pair after `tidy`, so what `clean` writes meets the same rules again, and cleaning twice is cleaning once.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from mtcli.config.writing_systems import UNSPACED

MAX_LENGTH = 1000  # characters; the 256 pieces that training takes by default hold about as many
MAX_RATIO = 3.0
RATIO_SLACK = 25  # characters: "Hi." may well be "Buenos días a todos."
MIN_WORDS = 4  # below it, a side that reads the same in both languages, or in Latin script, may be a name

# one pair


_INVISIBLE = re.compile("[\ufeff\u00ad\u2060]")  # byte-order mark, soft hyphen, word joiner
_ODD_SPACE = re.compile(r"\s{2,}|[^\S \u00a0\u202f\u3000]")  # one no-break or ideographic space is typography
_WIDE = re.compile(
    "[\u1100-\u11ff\u2e80-\ua4cf\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff00-\uffdc\U00020000-\U0003ffff]"
)
_WORD = re.compile(r"[^\W\d_]+")
INVALID = re.compile("[\ud800-\udfff]")
_CONTROL = re.compile("[\x01-\x08\x0e-\x1b\x7f-\x9f]")
_MARKUP = re.compile(r"</?[A-Za-z][^<>]{0,300}>|&(?:[A-Za-z]{2,8}|#\d{1,7}|#[xX][0-9A-Fa-f]{1,6});")
_URL = re.compile(r"\b(?:https?://|www\.)\w")
_LETTER_OR_DIGIT = re.compile(r"[^\W_]")
ODD = re.compile(
    "|".join(p.pattern for p in (INVALID, _CONTROL, _MARKUP, _URL, _INVISIBLE, _ODD_SPACE)) + "|[\0\ufffd]"
)
"""What an excerpt of a text should show."""

# UTF-8 that was read as Windows-1252: a lead byte and its followers, each shown as a character of its own.
_BYTE_OF = {ord(c): c.encode("cp1252")[0] for c in "€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ"}
_TAIL = f"[\x80-\xbf{''.join(map(chr, _BYTE_OF))}]"
_AS_LATIN = re.compile(f"[Â-ß]{_TAIL}|[à-ï]{_TAIL}{{2}}|[ð-ô]{_TAIL}{{3}}")
_PUNCTUATION = frozenset("…–—”’“‘»«\u00a0")  # which may well follow an accented capital: "CAFÉ…"
_SYMBOLS = _PUNCTUATION | frozenset("®™©²³°½ºª¹§·¡¿")


def tidy(text: str) -> str:
    """Without white space at the ends, invisible characters, and with one plain space for each odd white space."""
    if text.isprintable() and "  " not in text:  # the only printable white space is the plain space
        return text.strip()
    return _ODD_SPACE.sub(" ", _INVISIBLE.sub("", text)).strip()


def size(text: str) -> int:
    """Length in characters, where a Chinese, Japanese or Korean one counts as three: so many letters say as much."""
    return len(text) if text.isascii() else len(text) + 2 * len(_WIDE.findall(text))


def mojibake(text: str) -> bool:
    """Whether the text holds UTF-8 that was read as Latin-1 or Windows-1252, such as `Ã©` for é."""
    if text.isascii():
        return False
    for found in _AS_LATIN.findall(text):
        innocent = {"Â": frozenset(), "Ã": _PUNCTUATION}.get(found[0], _SYMBOLS)
        try:
            read_right = found.translate(_BYTE_OF).encode("latin-1").decode()
        except UnicodeError:
            continue
        if not innocent.issuperset(found[1:]) and (read_right.isprintable() or read_right == "\u00a0"):
            return True
    return False


@lru_cache(maxsize=1 << 16)
def _script_of(letter: str) -> str:
    """The script of one letter from its Unicode name; "" for what belongs to none, such as ª or µ."""
    if not letter.isalpha():
        return ""
    words = unicodedata.name(letter, "").split()
    if not {"LETTER", "IDEOGRAPH", "SYLLABLE", "SYLLABICS", "LIGATURE"}.intersection(
        w.partition("-")[0] for w in words
    ):
        return ""
    if words[0] in ("FULLWIDTH", "HALFWIDTH"):
        del words[0]
    if words[0] in ("CJK", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA", "BOPOMOFO"):
        return "Chinese or Japanese"
    return "" if words[0] in ("MODIFIER", "SUPERSCRIPT") else words[0].capitalize()


_NOT_LATIN = re.compile("[^\\W\\d_A-Za-z\u00c0-\u024f\u1e00-\u1eff]")


def script(text: str) -> str:
    """The script of most letters, "" if there are none; `latin` is a few Latin words, which any language borrows."""
    if text.isascii() or not _NOT_LATIN.search(text):
        words = _WORD.findall(text)
        return "" if not words else "Latin" if len(words) >= MIN_WORDS else "latin"
    counts = Counter(map(_script_of, text))
    del counts[""]
    return max(counts, key=lambda name: (counts[name], name), default="")


# the table


@dataclass(frozen=True)
class Rule:
    """One thing that may be wrong with a pair."""

    level: Literal["error", "warning", "note"]
    """`clean` leaves out all but notes."""
    name: str
    advice: str
    test: Callable[[str, str], object] | None = None
    """Of the two sides; None where `survey` finds it by looking further than one pair."""


def either(test: Callable[[str], object]) -> Callable[[str, str], object]:
    """The test of a pair that either side may fail."""
    return lambda src, tgt: test(src) or test(tgt)


def same(src: str, tgt: str) -> bool:
    """Whether the sides are equal but for case, and too long for a name or an "OK!"."""
    return src.casefold() == tgt.casefold() and _words(src) >= MIN_WORDS


def wordless(src: str, tgt: str) -> bool:
    """Whether one side has neither letters nor digits, and the other is more than an exclamation."""
    if _LETTER_OR_DIGIT.search(src) and _LETTER_OR_DIGIT.search(tgt):
        return False
    return max(_words(src), _words(tgt)) >= MIN_WORDS


def _words(text: str) -> int:
    """How many words there are, about; two characters are one where no spaces separate words."""
    return len(_WORD.findall(UNSPACED.sub("", text))) + len(UNSPACED.findall(text)) // 2


def rules(max_length: int = MAX_LENGTH, max_ratio: float = MAX_RATIO) -> list[Rule]:
    """Everything that is looked for, the gravest first. A pair is removed for the first such rule it breaks."""

    def unlike(src: str, tgt: str) -> bool:
        a, b = size(src), size(tgt)
        return max(a, b) > max_ratio * min(a, b) + RATIO_SLACK

    over = f"a side of over {max_length:,} characters; split it into sentences, or raise --max-length"
    times = f"a side is longer than {max_ratio:g} times the other plus {RATIO_SLACK} characters: seldom a translation"
    long = either(lambda text: size(text) > max_length)
    nul = either(lambda text: "\0" in text)
    lost = either(lambda text: "\ufffd" in text)
    return [
        Rule("error", "not a pair", "training stops here; correct the line or remove it"),
        Rule(
            "error", "invalid UTF-8", "training stops here; convert the text from its encoding", either(INVALID.search)
        ),
        Rule("error", "NUL character", "training stops here; if every second one is NUL, the file is UTF-16", nul),
        Rule("error", "source is in test", "test scores would be too good; take these pairs out of training"),
        Rule("error", "source is in valid", "validation would be too good; take these pairs out of training"),
        Rule("warning", "empty side", "training skips these; many in a row mean that the sides have slipped"),
        Rule("warning", "no words on one side", "only signs there; the translation is missing", wordless),
        Rule("warning", "lost characters", "U+FFFD stands where text was lost; get it from where it was whole", lost),
        Rule("warning", "mojibake", "UTF-8 read as another encoding, once; convert the text anew", either(mojibake)),
        Rule("warning", "control characters", "another encoding or program left these behind", either(_CONTROL.search)),
        Rule("warning", "wrong script", "not as most of that side is written: another language, or swapped sides"),
        Rule("warning", "untranslated", f"both sides are the same {MIN_WORDS} words or more: teaches to copy", same),
        Rule("warning", "too long", over, long),
        Rule("warning", "unlike lengths", times, unlike),
        Rule("warning", "duplicate pair", "the same pair came before; training would see it more often than others"),
        Rule("note", "too many pieces", "over data.max_length of the model's configuration; training skips these"),
        Rule("note", "markup", "HTML tags or entities, which the model learns to write", either(_MARKUP.search)),
        Rule("note", "URL", "web addresses, which the model learns to write", either(_URL.search)),
        Rule("note", "white space", "tabs, double spaces or invisible characters; clean writes one space"),
        Rule("note", "several translations", "of one source; training holds out by source, so none leaks"),
        Rule("note", "spelt in bytes", "holds characters that the model's tokenizer has no piece for"),
    ]


BIT = {rule.name: 1 << number for number, rule in enumerate(rules())}
REMOVES = sum(BIT[rule.name] for rule in rules() if rule.level != "note")
