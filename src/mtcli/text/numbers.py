"""Numbers in text: which of them two languages write alike, and which a translation lacks or adds.

Languages differ in the signs of decimals and groups: `1,234.5` is `1.234,5` in German. Most other numbers, such as
times, dates, years, versions and telephone numbers, stay as they are.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from unicodedata import digit

from mtcli.text import languages

MIN_DIGITS = 3
"""Digits of a number without separators from which it is protected. Smaller ones are often written as words."""
SMALL = 12
"""The largest number that is not missed if a translation may write it as a word."""

_SAME_SIGNS = (
    # 1,234.5
    "am bn cy en fa fil ga gd gu ha he hi ig ja kn ko ml mr ms mt my ne pa si sw ta te th tl ug ur yo yue zh",
    # 1.234,5
    "ca da de el es eu gl hr id is it mk nl pt ro sl sq sr tr vi",
    # 1 234,5
    "be bg cs et fi fr hu hy ka kk lt lv nb nn no pl ru sk sv uk uz",
)
"""Languages that write decimals and groups of digits alike."""

_LOCALIZED = re.compile(r"[1-9]\d{0,2}(?:[.,'’\u00a0\u202f ]\d{3})+(?:[.,]\d+)?|\d+[.,]\d+")
_ADDRESS = re.compile(r"(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)(?:\.(?!$)|$)){4}")
_DIGIT_GROUPS = re.compile(r"\d+")
GROUP = 3
"""Digits of a group."""
_BETWEEN = re.compile("[/–−-]")
_RELEASE = re.compile("alpha|beta|rc|dev|post|pre")
_DIGITS = re.compile(r"\d+(?:[.,'’\u00a0\u202f]\d+)*")
_ROMAN = re.compile(r"\b[IVXLCDM]+\b")
_ROMAN_DIGITS = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100, "D": 500, "M": 1000}
_MAX_JOINED = 5
"""Numbers of one text that may be one number in another, such as `10 000 000`."""


def same_signs(src: str, tgt: str) -> bool:
    """Return True if two languages write decimals and groups of digits with the same signs, as far as is known."""
    codes = {languages.base(src) or src, languages.base(tgt) or tgt}
    return any(codes <= set(group.split()) for group in _SAME_SIGNS)


def is_alike(figure: str, *, decimals: bool) -> bool:
    """Return True if languages write a number alike.

    Args:
        figure: A match of a figure, see `Rule.kind`.
        decimals: They use the same signs for decimals and groups, see `same_signs`.
    """
    unsigned = figure.lstrip("+-−")
    if unsigned.isdigit():
        return len(unsigned) >= MIN_DIGITS or unsigned != figure
    if decimals or ":" in figure or _RELEASE.search(figure):
        return True
    parts = _BETWEEN.split(unsigned)
    return _ADDRESS.fullmatch(unsigned) is not None or not any(map(_LOCALIZED.fullmatch, parts))


@dataclass(frozen=True)
class NumberCheck:
    """The numbers of a source that its translation lacks, and those that only the translation has, as written."""

    missing: tuple[str, ...] = ()
    added: tuple[str, ...] = ()

    @property
    def differs(self) -> bool:
        """There is such a number."""
        return bool(self.missing or self.added)

    def __str__(self) -> str:
        """Return both lists for a message: `2024 missing, 1999 added`."""
        lists = ((self.missing, "missing"), (self.added, "added"))
        return ", ".join(f"{' '.join(numbers[:3])} {name}" for numbers, name in lists if numbers)


def check_numbers(source: str, translation: str) -> NumberCheck:
    """Compare the numbers of a translation with those of its source.

    The order does not count, nor do the signs of decimals and groups: `1.234,5` may become `1,234.5` or `1234.5`, but
    not `12345`. `19` may become `XIX`. Numbers up to `SMALL` may become words and
    words may become such numbers: they are reported only if there are numbers on both sides that do not correspond.
    """
    wanted = _DIGITS.findall(source)
    found = _DIGITS.findall(translation)
    if not wanted and not found:
        return NumberCheck()
    # Numbers with separators come first, so that `10 000` is `10,000` and not a `10` that the text has too.
    for is_first in (_has_separators, _is_any):
        _remove_equal(wanted, found, is_first)
        _remove_joined(wanted, found, is_first)
        _remove_joined(found, wanted, is_first)
    wanted = _without_roman(wanted, translation)
    found = _without_roman(found, source)
    is_exchanged = bool(wanted and found)
    return NumberCheck(
        tuple(number for number in wanted if is_exchanged or not _is_small(number)),
        tuple(number for number in found if is_exchanged or not _is_small(number)),
    )


def _key(number: str) -> str:
    """Return the digits of a number in ASCII."""
    return "".join(filter(str.isdecimal, _ascii(number)))


def _ascii(number: str) -> str:
    """Return a number with the digits 0 to 9 in place of those of other scripts."""
    return "".join(str(digit(character)) if character.isdecimal() else character for character in number)


def _values(number: str) -> set[str]:
    """Return what a number may stand for, with a point before decimals: `1.234` is 1234 or 1.234."""
    groups = _DIGIT_GROUPS.findall(_ascii(number))
    *before, last = groups
    values = set()
    if all(len(group) == GROUP for group in groups[1:]):
        values.add("".join(groups))
    if before and all(len(group) == GROUP for group in before[1:]):
        values.add(f"{''.join(before)}.{last}")
    return values or {".".join(groups)}


def _has_separators(number: str) -> bool:
    return not number.isdecimal()


def _is_any(_: str) -> bool:
    return True


def _remove_equal(wanted: list[str], found: list[str], applies: Callable[[str], bool]) -> None:
    """Remove from both lists what they have in common, where `applies` is true of the number that is wanted."""
    for number in filter(applies, list(wanted)):
        same = next((other for other in found if _values(other) & _values(number)), None)
        if same is not None:
            wanted.remove(number)
            found.remove(same)


def _remove_joined(whole: list[str], parts: list[str], applies: Callable[[str], bool]) -> None:
    """Remove numbers that the other list has in parts: `10,000` as `10 000`, `10.30` as `10:30`."""
    for number in filter(applies, list(whole)):
        for start in range(len(parts)):
            end = next(
                (
                    end
                    for end in range(start + 2, min(start + _MAX_JOINED, len(parts)) + 1)
                    if _key("".join(parts[start:end])) == _key(number)
                ),
                None,
            )
            if end is not None:
                whole.remove(number)
                del parts[start:end]
                break


def _without_roman(numbers: Sequence[str], text: str) -> list[str]:
    """Return numbers without those that a text has in Roman numerals."""
    if not numbers:
        return []
    romans = [str(_value(roman)) for roman in _ROMAN.findall(text)]
    return [number for number in numbers if _key(number) not in romans]


def _value(roman: str) -> int:
    """Return the value of a Roman numeral."""
    values = [_ROMAN_DIGITS[character] for character in roman]
    pairs = zip(values, [*values[1:], 0], strict=True)
    return sum(-value if value < following else value for value, following in pairs)


def _is_small(number: str) -> bool:
    return number.isdecimal() and len(number) <= 2 and int(number) <= SMALL
