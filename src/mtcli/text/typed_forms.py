"""Sentence pairs in the forms in which people type: in capitals, without a final mark, with an emoji.

A form changes the source as a careless writer would, and the target only where a careful translator would follow:
capitals stay capitals and a symbol stays, but errors are not translated. All forms depend on the pair and the random
numbers alone, and keep each side on one line.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from random import Random
from types import MappingProxyType
from typing import Final, Literal
from unicodedata import normalize

from mtcli.text import invented_symbols
from mtcli.text.languages import base
from mtcli.text.letter_case import has_case, lower, title, upper
from mtcli.text.lines import Pair
from mtcli.text.placeholders import find_protected
from mtcli.text.tokenizer.tokenizer import BACK_TRANSLATION_TAG
from mtcli.text.writing_systems import UNSPACED, combining_marks

Form = Callable[[Pair, tuple[str, str], Random], Pair | None]
"""Takes a pair, its languages and random numbers, and returns the pair in a form, None if it does not apply."""

SymbolPlace = Literal["start", "middle", "end"]
"""Where a symbol is inserted."""

ERROR_SHARE = 0.03
"""Share of the letters with a typing error."""

_FULL_STOPS = ".。．।॥۔።։။།"
_MARKS = "!！?？؟…" + _FULL_STOPS
_KINDS = str.maketrans(_MARKS + "，、،؛；：", "!!???…" + "." * len(_FULL_STOPS) + ",,,;;:")
"""The sign of English that stands for each mark of another script."""
_FINAL_MARK = {
    "": re.compile(rf"[ \u00a0\u202f]?([{_MARKS}]+)$"),
    "el": re.compile(rf"[ \u00a0\u202f]?([{_MARKS};\u037e]+)$"),
}
"""The marks at the end of a sentence, with a space before them as in French. Greek asks with `;`."""
_OPENING = {"?": "¿", "!": "¡"}
"""Marks at the beginning of a Spanish question or exclamation."""
_UNMARKED = frozenset({"lo", "th"})
"""Languages that write no mark at the end of a sentence."""

_AFTER_WORDS = "™®©°"
"""Signs that usually follow a word without a space."""

_APOSTROPHE = re.compile(r"(?<=[^\W\d_])['’ʼ](?=[^\W\d_])")
_COMMA = re.compile(r"[,،、，](?!\d)")

_ACCENTS = re.compile("(?<=[A-Za-zΑ-Ωα-ωЕе])[\u0300-\u036f]+")
"""Combining marks that people omit. Those of `й` and of other scripts make other letters."""
_WITHOUT_ACCENT = str.maketrans({"đ": "d", "Đ": "D", "ł": "l", "Ł": "L", "ø": "o", "Ø": "O", "ı": "i", "ß": "ss"})
"""Letters that are typed as others, and have no combining mark in Unicode."""
_UMLAUTS = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "Ä": "Ae", "Ö": "Oe", "Ü": "Ue", "ß": "ss"})
"""German letters as people type them on other keyboards."""

_SPACE_AFTER_MARK = re.compile(r"(?<=[^\W\d_][,.!?;:…])\s+(?=[¿¡]?[^\W\d_])")
"""The space between two words with a mark between them."""

_INNER_MARK = re.compile(r"(?<=\w)[,.!?…;:]+(?=\s)|[，。！？、；：،؛؟।۔](?!$)")
"""A mark within a line."""
_INNER_WORD = re.compile(r"(?<!\S)\w+(?=[.,;:!?]?\s)")
"""A word that is not the last one."""
_MIN_NAME = 3
"""Letters of the shortest word with a capital that is taken for a name if both sides have it."""
_MAX_SHIFT = 0.25
"""How far, in shares of the length, two places that correspond to each other are apart at most."""

_CLOSING = "”’»」』）)\"'"
"""Signs that may follow the final mark of a sentence."""

_CASELESS = re.compile(
    "[\u0590-\u109f\u10d0-\u139f\u1400-\u1c4f\u1c90-\u1cbf\u2e80-\ua63f\ua800-\uab2f\uac00-\ud7ff"
    "\uf900-\ufaff\ufb1d-\ufeff\uff66-\uffdc\U00020000-\U0003ffff]"
)
"""A character of a script that is written without capitals: Hebrew to Ethiopic, Chinese, Korean. See `is_cased`."""

_CJK = re.compile("[\u3001-\u30ff\u31f0-\u31ff\u3400-\u9fff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff]")
"""A character of Chinese or Japanese, which have no spaces between sentences either."""

_KEYBOARD = ("qwertyuiop", "asdfghjkl", "zxcvbnm")


def _neighbours() -> dict[str, str]:
    """Return the keys beside each key of the QWERTY keyboard, in lower case and in capitals."""
    found = {}
    for number, row in enumerate(_KEYBOARD):
        for column, key in enumerate(row):
            beside = row[max(column - 1, 0) : column] + row[column + 1 : column + 2]
            for other in (number - 1, number + 1):
                if 0 <= other < len(_KEYBOARD):
                    beside += _KEYBOARD[other][column : column + 1]
            found[key] = beside
            found[key.upper()] = beside.upper()
    return found


_BESIDE: Final = _neighbours()


def capitals(pair: Pair, languages: tuple[str, str], random: Random) -> Pair | None:
    """Return both sides in capitals; None if the source is in capitals or in a script without.

    A target in such a script stays, also the foreign words in it.
    """
    src = upper(pair[0], languages[0])
    if src == pair[0] or _CASELESS.search(src):
        return None
    return src, pair[1] if _CASELESS.search(pair[1]) else upper(pair[1], languages[1])


def title_case(pair: Pair, languages: tuple[str, str], random: Random) -> Pair | None:
    """Return the source in title case."""
    return _with_source(pair, title(pair[0], languages[0]))


def lower_case(pair: Pair, languages: tuple[str, str], random: Random) -> Pair | None:
    """Return the source in lower case."""
    return _with_source(pair, lower(pair[0], languages[0]))


def no_final_mark(pair: Pair, languages: tuple[str, str], random: Random) -> Pair | None:
    """Return both sides without their final marks, None if one of them has none."""
    src = without_final_mark(pair[0], languages[0])
    tgt = without_final_mark(pair[1], languages[1])
    is_changed = src != pair[0] and (tgt != pair[1] or base(languages[1]) in _UNMARKED)
    return (src, tgt) if is_changed else None


def doubled_final_mark(pair: Pair, languages: tuple[str, str], random: Random) -> Pair | None:
    """Return both sides with two or three final marks instead of one, None if they do not have the same one."""
    marks = []
    for text, language in zip(pair, languages, strict=True):
        match = _final_mark(text, language)
        if match is None or len(match[1]) > 1:
            return None
        marks.append(match[1])
    src, tgt = map(_kind, marks)
    if src != tgt or src == "…":
        return None
    # Three full stops are an ellipsis, and two are an error, so three are more frequent.
    more = random.choice((1, 2, 2) if src == "." else (1, 1, 2))
    return pair[0] + marks[0] * more, pair[1] + marks[1] * more


def no_accents(pair: Pair, languages: tuple[str, str], random: Random) -> Pair | None:
    """Return the source without the accents of its letters; None if it has none.

    German umlauts become two letters as often. Addresses and placeholders stay.
    """
    return _with_source(pair, _without_accents(pair[0], languages[0], random))


def missing_spaces(pair: Pair, languages: tuple[str, str], random: Random) -> Pair | None:
    """Return the source without some of the spaces behind its commas and other marks, but one at least."""
    places = [match.span() for match in _SPACE_AFTER_MARK.finditer(pair[0])]
    if not places:
        return None
    text = pair[0]
    for start, end in sorted(random.sample(places, random.randint(1, len(places))), reverse=True):
        text = text[:start] + text[end:]
    return text, pair[1]


def chat(pair: Pair, languages: tuple[str, str], random: Random) -> Pair | None:
    """Return the source as people chat: in lower case, without apostrophes and final mark, often without commas.

    Of sources with accents, half have none.

    The target has no final mark either. Languages without case are not written differently in a chat.
    """
    if not has_case(pair[0]):
        return None
    src = lower(without_final_mark(pair[0], languages[0]), languages[0])
    src = _APOSTROPHE.sub("", src)
    if random.random() < 0.5:
        src = _COMMA.sub("", src)
    bare = _without_accents(src, languages[0], random)
    if bare != src and random.random() < 0.5:
        src = bare
    if src == pair[0]:
        return None
    return src, without_final_mark(pair[1], languages[1])


def typing_errors(pair: Pair, languages: tuple[str, str], random: Random) -> Pair | None:
    """Return the source with errors in `ERROR_SHARE` of its letters, and one at least.

    Errors are two neighbours that are swapped, a letter that is missing or doubled, and in the Latin script a
    neighbouring key. They are in words of letters only: never in numbers, URLs and placeholders, and seldom in the
    first letter of a word. Scripts without spaces are typed by other means and have other errors.
    """
    text = pair[0]
    if UNSPACED.search(text):
        return None
    skipped = 0 if random.random() < 0.1 else 1
    places: list[int] = []
    letters = 0
    for match in _plain_words("" if text.isascii() else combining_marks()).finditer(text):
        start, end = match.span(1)
        letters += end - start
        if end - start > 1:
            places += range(start + skipped, end)
    if not places:
        return None
    number = max(1, int(ERROR_SHARE * letters + random.random()))
    # From the last place to the first: an error moves what is behind it.
    for place in sorted(random.sample(places, min(number, len(places))), reverse=True):
        text = _with_error(text, place, random)
    return _with_source(pair, text)


def _symbol_at(place: SymbolPlace) -> Form:
    """Return the form of pairs with an invented symbol at a place; see `with_symbol`."""

    def form(pair: Pair, languages: tuple[str, str], random: Random) -> Pair | None:
        return with_symbol(pair, languages, random, invented_symbols.symbol(languages, random), place)

    return form


def with_symbol(pair: Pair, languages: tuple[str, str], random: Random, symbol: str, place: SymbolPlace) -> Pair | None:
    """Insert a symbol once on both sides; None if a side has it already, or has no such place.

    In the middle, it follows a mark, a name or a number that both sides have. At the end, it is before or after the
    final marks, or in their place. A symbol with letters has spaces around it. Others are often written without, in
    scripts without spaces mostly.
    """
    if symbol in pair[0] or symbol in pair[1]:
        return None
    is_word = any(map(str.isalnum, symbol))
    is_attached = not is_word and random.random() < (0.7 if symbol in _AFTER_WORDS else 0.2)
    if place == "start":
        places: tuple[int, int] | None = (0, 0)
    elif place == "end":
        pair, places = _end(pair, languages, random)
    else:
        places = _corresponding(pair, random)
    if places is None:
        return None
    src, tgt = (
        _inserted(text, at, symbol, is_attached or (not is_word and _CJK.search(text) is not None))
        for text, at in zip(pair, places, strict=True)
    )
    return src, tgt


def joined(pairs: Sequence[Pair]) -> Pair:
    """Return several pairs on one line, with a space between sentences where their script has one.

    Sentences without a final mark are joined with a space in every script. The line has the back-translation tag if one
    of the sources has it.
    """
    sources = [src.removeprefix(BACK_TRANSLATION_TAG) for src, _ in pairs]
    is_tagged = any(src.startswith(BACK_TRANSLATION_TAG) for src, _ in pairs)
    src = _joined_texts(sources)
    return (BACK_TRANSLATION_TAG + src if is_tagged else src), _joined_texts([tgt for _, tgt in pairs])


def without_final_mark(text: str, language: str) -> str:
    """Return a sentence without the marks at its end, and without the `¿` and `¡` that belong to them.

    A text of marks only stays.
    """
    match = _final_mark(text, language)
    if match is None or match.start() == 0:
        return text
    rest = text[: match.start()]
    for mark in dict.fromkeys(match[1]):
        start = rest.rfind(_OPENING[mark]) if mark in _OPENING else -1
        if start >= 0 and mark not in rest[start:]:
            rest = rest[:start] + rest[start + 1 :]
    return rest


def _without_accents(text: str, language: str, random: Random) -> str:
    """Return a text without the accents of its letters outside of protected text, see `no_accents`."""
    if text.isascii():
        return text
    table = _WITHOUT_ACCENT
    if base(language) == "de" and random.random() < 0.5:
        table = _UMLAUTS
    parts = []
    end = 0
    for start, next_end in [*find_protected(text), (len(text), len(text))]:
        part = normalize("NFD", text[end:start].translate(table))
        parts += [normalize("NFC", _ACCENTS.sub("", part)), text[start:next_end]]
        end = next_end
    return "".join(parts)


def _final_mark(text: str, language: str) -> re.Match[str] | None:
    """Return the match of the marks at the end of a text. Most texts have none in their last character or have one."""
    if text[-1:].isalnum():
        return None
    return _FINAL_MARK["el" if base(language) == "el" else ""].search(text)


def _kind(mark: str) -> str:
    """Return the sign of English for a mark of any script."""
    return "?" if mark in ";\u037e" else mark.translate(_KINDS)


def _with_source(pair: Pair, src: str) -> Pair | None:
    """Return a pair with another source, None if it is the same."""
    return None if src == pair[0] else (src, pair[1])


@cache
def _plain_words(marks: str) -> re.Pattern[str]:
    """Return the pattern of a word of letters, in group 1, between spaces and punctuation.

    Args:
        marks: Combining marks that words may have. Without them, the search takes half the time.
    """
    word = rf"[^\W\d_]+(?:[{marks}'’-]+[^\W\d_]*)*"
    return re.compile(rf"(?<!\S)[\"'(\[“„«‘¿¡]*({word})[.,;:!?…)\]\"'”“»’]*(?!\S)")


def _with_error(text: str, place: int, random: Random) -> str:
    """Return a text with one typing error at a letter."""
    letter = text[place]
    following = text[place + 1 : place + 2]
    kind = random.random()
    if kind < 0.35 and following.isalpha() and following != letter:
        return text[:place] + following + letter + text[place + 2 :]
    if kind < 0.6 and letter in _BESIDE:
        return text[:place] + random.choice(_BESIDE[letter]) + text[place + 1 :]
    if kind < 0.8 and letter.isalpha():
        return text[: place + 1] + text[place:]
    return text[:place] + text[place + 1 :]


def _end(pair: Pair, languages: tuple[str, str], random: Random) -> tuple[Pair, tuple[int, int]]:
    """Return a pair, perhaps without final marks, and the places at the ends of its sides."""
    if random.random() < 0.4:
        bare = no_final_mark(pair, languages, random)
        if bare is not None and random.random() < 0.5:
            return bare, (len(bare[0]), len(bare[1]))
        if bare is not None:
            starts = [match.start() if match else None for match in map(_final_mark, pair, languages)]
            if starts[0] is not None and starts[1] is not None:
                return pair, (starts[0], starts[1])
    return pair, (len(pair[0]), len(pair[1]))


def _corresponding(pair: Pair, random: Random) -> tuple[int, int] | None:
    """Return places within the two sides that correspond to each other, None if none are found."""
    src, tgt = pair
    ends = [list(_INNER_MARK.finditer(text)) for text in pair]
    found: list[tuple[int, int]] = []
    kinds = [[match[0].translate(_KINDS) for match in matches] for matches in ends]
    if kinds[0] == kinds[1]:
        found = [(ours.end(), theirs.end()) for ours, theirs in zip(*ends, strict=True)]
    if not found:
        targets = {match[0]: match.end() for match in _INNER_WORD.finditer(tgt) if _is_name(match[0])}
        found = [(match.end(), targets[match[0]]) for match in _INNER_WORD.finditer(src) if match[0] in targets]
    found = [places for places in found if abs(places[0] / len(src) - places[1] / len(tgt)) <= _MAX_SHIFT]
    return random.choice(found) if found else None


def _is_name(word: str) -> bool:
    """Return True for a number, and for a word with a capital at its beginning."""
    return (len(word) >= _MIN_NAME and word[0].isupper()) or not word.isalpha()


def _inserted(text: str, at: int, symbol: str, is_attached: bool) -> str:
    """Return a text with a symbol at a place, and with spaces around it unless it is attached to the word before it."""
    before = text[:at].rstrip()
    after = text[at:].lstrip()
    if is_attached:
        return before + symbol + (after if not before or _CJK.match(after) else text[at:])
    start = f"{before} {symbol}" if before else symbol
    is_before_mark = not after or after[0] in _MARKS
    return start + text[at:] if is_before_mark else f"{start} {after}"


def _joined_texts(texts: Sequence[str]) -> str:
    line = texts[0]
    for text in texts[1:]:
        last = line.rstrip(_CLOSING)[-1:]
        is_adjacent = last in _MARKS and (_CJK.match(last) or _CJK.match(text))
        line += text if is_adjacent else f" {text}"
    return line


def _behind_tag(form: Form) -> Form:
    """Return a form that leaves the back-translation tag of a source as it is."""

    def applied(pair: Pair, languages: tuple[str, str], random: Random) -> Pair | None:
        if not pair[0].startswith(BACK_TRANSLATION_TAG):
            return form(pair, languages, random)
        changed = form((pair[0].removeprefix(BACK_TRANSLATION_TAG), pair[1]), languages, random)
        return (BACK_TRANSLATION_TAG + changed[0], changed[1]) if changed else None

    return applied


FORMS: Final[Mapping[str, Form]] = MappingProxyType(
    {
        name: _behind_tag(form)
        for name, form in (
            ("capitals", capitals),
            ("title case", title_case),
            ("lower case", lower_case),
            ("no final mark", no_final_mark),
            ("doubled final mark", doubled_final_mark),
            ("chat", chat),
            ("no accents", no_accents),
            ("missing spaces", missing_spaces),
            ("typing errors", typing_errors),
            ("symbol at the start", _symbol_at("start")),
            ("symbol in the middle", _symbol_at("middle")),
            ("symbol at the end", _symbol_at("end")),
        )
    }
)
"""The forms of one pair, by name. See `joined` for several pairs on a line."""
