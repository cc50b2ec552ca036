"""Capitals, title case and lower case, by the rules of a language."""

import re
from unicodedata import normalize

from mtcli.text import languages

DOTTED_I = frozenset({"tr", "az"})
"""Languages with two letters i: the capital of `i` is `İ`, and that of `ı` is `I`."""

_WITHOUT_TONOS = str.maketrans("ΆΈΉΊΌΎΏ", "ΑΕΗΙΟΥΩ")
"""Words in Greek capitals have no accents."""

_FIRST_LETTER = re.compile(r"(?<!\S)([^\w\s]*)(\w)")
"""The signs before the first letter of a word, and this letter."""


def has_case(text: str) -> bool:
    """Return True if a text has a letter that is written in two cases. Texts in Chinese, Arabic or Hindi have none."""
    return any(map(is_cased, text))


def is_cased(character: str) -> bool:
    """Return True for a letter that is written in two cases.

    Georgian has capitals in Unicode since 2018, but its texts do not use them.
    """
    return (character.islower() or character.isupper()) and not "\u10d0" <= character <= "\u10ff"


def upper(text: str, language: str) -> str:
    """Return a text in capitals."""
    code = languages.base(language)
    if code == "ka":
        return text
    if code in DOTTED_I:
        text = text.replace("i", "İ")
    text = text.upper()
    return normalize("NFC", text).translate(_WITHOUT_TONOS) if code == "el" else text


def all_capitals(text: str) -> set[str]:
    """Return a text in capitals by the rules of each language, where the language is not known."""
    return {upper(text, language) for language in ("en", "el", "tr")}


def without_case(text: str) -> str:
    """Return what is equal for texts that differ in case only, by the rules of any language.

    It may also be equal for other texts, such as the Greek words `η` and `ή`.
    """
    return upper(text.casefold(), "el").replace("İ", "I")


def lower(text: str, language: str) -> str:
    """Return a text in lower case. A Greek sigma at the end of a word becomes `ς`."""
    if languages.base(language) in DOTTED_I:
        text = text.replace("I", "ı")
    return text.replace("İ", "i").lower()


def capitalized(text: str, language: str) -> str:
    """Return a text that begins with a capital. Signs before its first letter, and all other letters, stay."""
    return _with_capitals(text, language, most=1)


def title(text: str, language: str) -> str:
    """Return a text in which every word begins with a capital. The other letters stay as they are."""
    return _with_capitals(text, language, most=0)


def _with_capitals(text: str, language: str, *, most: int) -> str:
    """Capitalize the first letters of the first words, of `most` words; 0: of all."""
    code = languages.base(language)
    if code == "ka":
        return text
    return _FIRST_LETTER.sub(lambda match: match[1] + _capital(match[2], dotted_i=code in DOTTED_I), text, count=most)


def _capital(letter: str, *, dotted_i: bool) -> str:
    """Return the form of a letter at the beginning of a word in title case: `ǆ` becomes `ǅ`, and `ß` stays."""
    if dotted_i and letter == "i":
        return "İ"
    capital = letter.title()
    return capital if len(capital) == 1 else letter
