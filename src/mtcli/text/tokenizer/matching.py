"""Match a vocabulary with that of another model: which of its tokens each new token resembles.

A model that starts from another one of other languages has its own vocabulary. A token that both have keeps its
embedding. Another one starts from the mean of the tokens into which the other model's tokenizer splits its text.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from mtcli.text.tokenizer.sentencepiece import SPACE, SentencePieceSide
from mtcli.text.tokenizer.tokenizer import Side
from mtcli.text.tokenizer.vocabulary_file import BYTES, SPECIALS

SPECIAL_IDS = range(len(SPECIALS))
"""Ids of `<pad>`, `<s>` and `</s>`, whatever a vocabulary calls them."""


class Origin(NamedTuple):
    """The tokens of another vocabulary that a token starts from."""

    side: int
    """Which of the sides has them."""
    ids: tuple[int, ...]
    """Their ids: one with the same text, or the parts; empty: none resembles the token."""
    same: bool
    """It is one token, and it has the same text."""


@dataclass(frozen=True)
class Matched:
    """How many tokens of a vocabulary resemble those of another one."""

    same: int
    """Tokens with the same text."""
    parts: int
    """Tokens that are made of several tokens of the other vocabulary."""
    new: int
    """Tokens that resemble none."""

    @classmethod
    def of(cls, origins: Sequence[Origin]) -> "Matched":
        """Count origins."""
        same = sum(origin.same for origin in origins)
        new = sum(not origin.ids for origin in origins)
        return cls(same, len(origins) - same - new, new)

    def __str__(self) -> str:
        total = self.same + self.parts + self.new
        if self.same == total:
            return f"all {total:,} tokens by text"
        return f"{self.same:,} tokens by text, {self.parts:,} built from parts, {self.new:,} new"


def match(side: Side, others: Sequence[Side]) -> list[Origin]:
    """Return where each token of a vocabulary comes from.

    Args:
        side: The new vocabulary.
        others: The sides of the other model, the most similar one first. The parts of a token are those of this one.
    """
    ids_of = [{text: i for i, text in enumerate(_texts(other)) if i not in SPECIAL_IDS} for other in others]
    origins = [Origin(0, (i,), same=True) for i in SPECIAL_IDS]
    for text in _texts(side)[len(SPECIALS) :]:
        found = next((number for number, ids in enumerate(ids_of) if text in ids), None)
        if found is not None:
            origins.append(Origin(found, (ids_of[found][text],), same=True))
        else:
            origins.append(Origin(0, _parts(text, others[0]), same=False))
    return origins


def _texts(side: Side) -> list[str]:
    """Return the tokens of a vocabulary by id, with a space as its own character."""
    if isinstance(side, SentencePieceSide):
        return [token.replace(SPACE, " ") for token in side.tokens]
    return side.tokens


def _parts(text: str, side: Side) -> tuple[int, ...]:
    """Return the ids of the tokens that a text consists of; bytes are none, and neither are tokens of bytes split."""
    if text in BYTES:
        return ()
    return tuple(i for i in side.split(text) if i not in side.byte_of)
