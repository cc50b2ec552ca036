"""The rules for sentence pairs, in one table: `rules`.

Rules test a pair after `tidy`. The output of `clean` therefore passes the same rules, and cleaning it again changes
nothing.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from mtcli.text.lines import SURROGATE, TO_UTF8
from mtcli.text.writing_systems import UNSPACED, letter_runs

MAX_LENGTH = 1000
"""Length limit of a side in characters; about 256 tokens, the default limit in training."""
MAX_RATIO = 3.0
"""Limit of the ratio of the longer side to the shorter one."""
RATIO_SLACK = 25
"""Characters added to that limit: "Hi." may be a translation of "Buenos días a todos."."""
MIN_WORDS = 4
"""A shorter side may be a name, which is the same in both languages, or in Latin script in any."""

SUBWORD_ADVICE = (
    "@@ (subword-nmt) or ▁ (SentencePiece): the text is divided into subwords already, which mtcli does itself; "
    "join them: sed -E 's/@@( |$)//g', or sed 's/ //g; s/▁/ /g; s/^ //'"
)

_INVISIBLE = re.compile("[\ufeff\u00ad\u2060]")  # byte-order mark, soft hyphen, word joiner
_ODD_SPACE = re.compile(r"\s{2,}|[^\S \u00a0\u202f\u3000]")  # a single no-break or ideographic space is correct
_WIDE = re.compile(
    "[\u1100-\u11ff\u2e80-\ua4cf\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff00-\uffdc\U00020000-\U0003ffff]"
)
_CONTROL = re.compile("[\x01-\x08\x0e-\x1b\x7f-\x9f]")
_MARKUP = re.compile(r"</?[A-Za-z][^<>]{0,300}>|&(?:[A-Za-z]{2,8}|#\d{1,7}|#[xX][0-9A-Fa-f]{1,6});")
_URL = re.compile(r"\b(?:https?://|www\.)\w")
_SUBWORD_MARK = re.compile(r"\w@@(?=\s|$)|(?:^|\s)▁\w")
_LETTER_OR_DIGIT = re.compile(r"[^\W_]")
ODD = re.compile(
    "|".join(p.pattern for p in (SURROGATE, _CONTROL, _MARKUP, _URL, _INVISIBLE, _ODD_SPACE)) + "|[\0\ufffd]"
)
"""The parts of a text that its excerpt should show, if it has any."""

# UTF-8 that was decoded as Windows-1252: a lead byte and its continuation bytes, each as one character.
_BYTE_OF = {ord(c): c.encode("cp1252")[0] for c in "€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ"}
_TAIL = f"[\x80-\xbf{''.join(map(chr, _BYTE_OF))}]"
_AS_LATIN = re.compile(f"[Â-ß]{_TAIL}|[à-ï]{_TAIL}{{2}}|[ð-ô]{_TAIL}{{3}}")
_PUNCTUATION = frozenset("…–—”’“‘»«\u00a0")  # may follow an accented capital: "CAFÉ…"
_SYMBOLS = _PUNCTUATION | frozenset("®™©²³°½ºª¹§·¡¿")


def tidy(text: str) -> str:
    """Strip white space, remove invisible characters, and turn every other white space into one plain space."""
    if text.isprintable() and "  " not in text:  # the only printable white space is the plain space
        return text.strip()
    return _ODD_SPACE.sub(" ", _INVISIBLE.sub("", text)).strip()


def size(text: str) -> int:
    """Return the length in characters. A Chinese, Japanese or Korean one counts as three: it says as much."""
    return len(text) if text.isascii() else len(text) + 2 * len(_WIDE.findall(text))


def mojibake(text: str) -> bool:
    """Return True if the text contains UTF-8 decoded as Latin-1 or Windows-1252, such as `Ã©` for é."""
    if text.isascii():
        return False
    for found in _AS_LATIN.findall(text):
        plausible = {"Â": frozenset(), "Ã": _PUNCTUATION}.get(found[0], _SYMBOLS)
        try:
            repaired = found.translate(_BYTE_OF).encode("latin-1").decode()
        except UnicodeError:
            continue
        if not plausible.issuperset(found[1:]) and (repaired.isprintable() or repaired == "\u00a0"):
            return True
    return False


_LETTERS = {"LETTER", "IDEOGRAPH", "SYLLABLE", "SYLLABICS", "LIGATURE"}
"""Words in the Unicode names of letters."""


@lru_cache(maxsize=1 << 16)
def _script_of(letter: str) -> str:
    """Return the script of one letter by its Unicode name; empty for letters without one, such as ª or µ."""
    if not letter.isalpha():
        return ""
    words = unicodedata.name(letter, "").split()
    if not _LETTERS.intersection(word.partition("-")[0] for word in words):
        return ""
    if words[0] in ("FULLWIDTH", "HALFWIDTH"):
        del words[0]
    if words[0] in ("CJK", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA", "BOPOMOFO"):
        return "Chinese or Japanese"
    return "" if words[0] in ("MODIFIER", "SUPERSCRIPT") else words[0].capitalize()


_NOT_LATIN = re.compile("[^\\W\\d_A-Za-z\u00c0-\u024f\u1e00-\u1eff]")


def script(text: str) -> str:
    """Return the script of most letters; empty if there are none.

    `latin` in lower case stands for fewer than `MIN_WORDS` Latin words, which can occur in any language.
    """
    if text.isascii() or not _NOT_LATIN.search(text):
        words = letter_runs(text)
        if not words:
            return ""
        return "Latin" if len(words) >= MIN_WORDS else "latin"
    counts = Counter(map(_script_of, text))
    del counts[""]
    return max(counts, key=lambda name: (counts[name], name), default="")


@dataclass(frozen=True)
class Rule:
    """A problem that a pair may have."""

    level: Literal["error", "warning", "note"]
    """`clean` removes pairs with errors and warnings, and keeps those with notes."""
    name: str
    advice: str
    test: Callable[[str, str], object] | None = None
    """True for a source and a target with the problem; None: `survey` needs more than the pair to find it."""


def either(test: Callable[[str], object]) -> Callable[[str, str], object]:
    """Return a test of pairs that is true if `test` is true for either side."""
    return lambda src, tgt: test(src) or test(tgt)


def same(src: str, tgt: str) -> bool:
    """Return True if the sides differ at most in case, and are too long to be a name or an "OK!"."""
    return src.casefold() == tgt.casefold() and num_words(src) >= MIN_WORDS


def _wordless(src: str, tgt: str) -> bool:
    """Return True if one side has neither letters nor digits, and the other is more than an exclamation."""
    if _LETTER_OR_DIGIT.search(src) and _LETTER_OR_DIGIT.search(tgt):
        return False
    return max(num_words(src), num_words(tgt)) >= MIN_WORDS


def num_words(text: str) -> int:
    """Return the approximate number of words; two characters are a word in languages without spaces."""
    return len(letter_runs(UNSPACED.sub("", text))) + len(UNSPACED.findall(text)) // 2


def rules(max_length: int = MAX_LENGTH, max_ratio: float = MAX_RATIO) -> list[Rule]:
    """Return all rules, the most serious first. A pair is removed for the first removing rule that it breaks."""

    def unlike(src: str, tgt: str) -> bool:
        src_size = size(src)
        tgt_size = size(tgt)
        return max(src_size, tgt_size) > max_ratio * min(src_size, tgt_size) + RATIO_SLACK

    over = f"a side of over {max_length:,} characters; split it into sentences, or raise --max-length"
    times = f"a side is longer than {max_ratio:g} times the other plus {RATIO_SLACK} characters: rarely a translation"
    too_long = either(lambda text: size(text) > max_length)
    has_nul = either(lambda text: "\0" in text)
    has_lost = either(lambda text: "\ufffd" in text)
    invalid = either(SURROGATE.search)
    return [
        Rule("error", "not a pair", "training stops here; correct the line or remove it"),
        Rule("error", "invalid UTF-8", f"training stops here; convert the file ({TO_UTF8})", invalid),
        Rule("error", "NUL character", "training stops here; if every second one is NUL, the file is UTF-16", has_nul),
        Rule("error", "source is in test", "test scores would be too high; remove these pairs from training"),
        Rule("error", "source is in valid", "validation scores would be too high; remove these pairs from training"),
        Rule("warning", "empty side", "training skips these; many in a row mean that the sides are misaligned"),
        Rule("warning", "no words on one side", "it has only signs; the translation is missing", _wordless),
        Rule("warning", "lost characters", "U+FFFD marks text that was lost; get it from the original", has_lost),
        Rule("warning", "mojibake", "UTF-8 that was once read as another encoding; convert it again", either(mojibake)),
        Rule("warning", "control characters", "left by another encoding or program", either(_CONTROL.search)),
        Rule("warning", "wrong script", "differs from most of that side: another language, or swapped sides"),
        Rule("warning", "swapped sides", "the source is in the target language and vice versa; swap these pairs"),
        Rule("warning", "untranslated", f"both sides are the same {MIN_WORDS} words or more: teaches to copy", same),
        Rule("warning", "too long", over, too_long),
        Rule("warning", "unlike lengths", times, unlike),
        Rule("warning", "duplicate pair", "repeats an earlier pair; training would see it more often than others"),
        Rule("note", "too many tokens", "over data.max_length of the model's configuration; training skips these"),
        Rule("note", "markup", "HTML tags or entities, which the model learns to write", either(_MARKUP.search)),
        Rule("note", "URL", "web addresses, which the model learns to write", either(_URL.search)),
        Rule("note", "subword marks", SUBWORD_ADVICE, either(_SUBWORD_MARK.search)),
        Rule("note", "white space", "tabs, double spaces or invisible characters; clean writes one space"),
        Rule("note", "several translations", "of one source; training holds out by source, so none is in two splits"),
        Rule("note", "byte fallback", "holds characters that are not in the vocabulary of the model"),
    ]


BIT = {rule.name: 1 << number for number, rule in enumerate(rules())}
REMOVES = sum(BIT[rule.name] for rule in rules() if rule.level != "note")
