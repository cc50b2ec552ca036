"""Signs and spaces that a vocabulary lacks, replaced by plain ones: `’` by `'`, a no-break space by a space.

Phones and word processors write them. A model that has not met them in training spells them in bytes, and then often
translates the words beside them badly.
"""

from collections.abc import Collection

from mtcli.text.placeholders import find_protected
from mtcli.text.tokenizer.tokenizer import Tokenizer

PLAIN = {
    " ": "\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000",
    "'": "‘’‚‛‹›′´`ʼ",
    '"': "“”„‟«»″",
    "-": "‐‑",
}
"""Plain characters, each with those that it stands for."""

_PLAIN_OF = {character: plain for plain, characters in PLAIN.items() for character in characters}


class PlainCharacters:
    """Replaces the signs that a model does not know.

    Args:
        tokenizer: The model's.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._replaced: dict[str, str] = {}

    def of(self, text: str, kept: Collection[str] = ()) -> str:
        """Return a text with plain characters for those that the vocabulary lacks. It has the same length.

        Protected text (see `placeholders`), which the model should copy, stays as it is.

        Args:
            text: The text.
            kept: Characters that stay, too.
        """
        if text.isascii():
            return text
        unusual = (_PLAIN_OF.keys() & set(text)).difference(kept)
        for character in unusual - self._replaced.keys():
            self._replaced[character] = character if self._is_known(character) else _PLAIN_OF[character]
        if all(self._replaced[character] == character for character in unusual):
            return text
        replaced = "".join(self._replaced[each] if each in unusual else each for each in text)
        for start, end in find_protected(text, decimals=True):
            replaced = replaced[:start] + text[start:end] + replaced[end:]
        return replaced

    def _is_known(self, character: str) -> bool:
        """Return True if the vocabulary has a character, or its tokenizer replaces it."""
        (ids,) = self._tokenizer.encode_src([character])
        spelled = self._tokenizer.src_byte_of
        return not any(number in spelled or number == self._tokenizer.unknown for number in ids)


def with_signs_of(line: str, plain: str, translation: str) -> str:
    """Return a translation with the quotation marks and apostrophes of its line.

    Quotation marks are replaced if the translation has as many, and apostrophes if all of the line are `’`. Other signs
    are no apostrophes, although people type them, such as `´`.

    Args:
        line: The line.
        plain: The same with plain characters.
        translation: The translation of `plain`.
    """
    if plain == line:
        return translation
    if translation == plain:  # a copy keeps all signs
        return "".join(own if own in _PLAIN_OF else new for own, new in zip(line, plain, strict=True))
    if {sign for sign, own in zip(line, plain, strict=False) if own == "'"} == {"’"}:
        translation = translation.replace("'", "’")
    quotes = [sign for sign, own in zip(line, plain, strict=False) if own == '"']
    if len(quotes) == translation.count('"'):
        parts = translation.split('"')
        translation = parts[0] + "".join(map(str.__add__, quotes, parts[1:]))
    return translation
