"""Noise for synthetic sources (Edunov et al. 2018, §2): some words are dropped, and neighbours change places.

A source translated by a beam search is more regular than human text. With noise, a model learns more from it where
there are many synthetic pairs. Edunov et al. also replace words by a filler token; it is omitted here, because the
vocabularies have no such token.
"""

import hashlib
import random
import re

from mtcli.text.writing_systems import UNSPACED, unspaced

DROPPED = 0.1
"""Probability of dropping a word."""

MAX_MOVE = 3
"""Words are moved by at most this many places (Lample et al. 2018)."""

_UNIT = re.compile(rf"{UNSPACED.pattern}|(?:(?!{UNSPACED.pattern})\S)+")
"""A unit of text without spaces: a character of its script, or a run of others, such as a name or a number."""


def with_noise(text: str, seed: int, number: int) -> str:
    """Return a text with words dropped and moved, or characters in a language without spaces. At least one is left.

    Args:
        text: The text.
        seed: Seed of the command.
        number: Number of the text. Its noise depends on nothing else, so an interrupted command can resume.
    """
    digest = hashlib.sha256(f"noise {seed} {number}".encode()).digest()
    generator = random.Random(int.from_bytes(digest[:8], "big"))
    is_unspaced = unspaced([text])
    words = _UNIT.findall(text) if is_unspaced else text.split()
    kept = [word for word in words if generator.random() >= DROPPED]
    if not kept:
        kept = words[:1]
    keys = [place + generator.random() * (MAX_MOVE + 1) for place in range(len(kept))]
    order = sorted(range(len(kept)), key=keys.__getitem__)
    return ("" if is_unspaced else " ").join(kept[place] for place in order)
