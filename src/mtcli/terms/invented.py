"""Invent translations of terms in training pairs, so that the model learns to copy any translation.

An annotation (see `mtcli.terms.annotation`) mostly has the translation that the model would choose anyway, and
the first token of a word is often enough to spell the rest. A model can therefore do well in training without copying
sequences of tokens, and then garbles the terms that it has not seen. In some pairs, the translations are replaced by
random tokens, in the source and in the target: these can only be copied.
"""

import hashlib
from collections.abc import Iterable, Sequence
from random import Random

from mtcli.text.tokenizer.tokenizer import Tokenizer, marker_id

INVENTED = 0.5
"""Share of the pairs with annotations in which their translations are invented."""

NUM_TOKENS = (2, 5)
"""Tokens of an invented translation, at least and at most."""

NEW_WORD = 0.2
"""Probability that a token after the first one begins another word."""

Ids = list[int]
Edit = tuple[int, int, Ids]
"""Start and end of a span, and the ids that replace it."""


class TermInventor:
    """Replaces the translations of terms in encoded pairs. The result depends on the pair and the seed only."""

    def __init__(self, tokenizer: Tokenizer, seed: int, share: float = INVENTED):
        """Collect the target tokens that consist of letters.

        Args:
            tokenizer: Has one vocabulary for both sides.
            seed: Decides which pairs have invented translations, and which ones.
            share: Share of the pairs whose translations are invented.
        """
        begins: Ids = []
        continues: Ids = []
        for token, text in enumerate(tokenizer.tgt_tokens(range(tokenizer.tgt_size))):
            if text.removeprefix("▁").isalpha():
                (begins if text.startswith("▁") else continues).append(token)
        self._begins = begins or continues
        self._continues = continues or begins
        self._seed = seed
        self._share = share

    def replaced(self, src: Ids, tgt: Ids) -> tuple[Ids, Ids]:
        """Return a pair with invented translations of its terms, or the same pair in the share that keeps its own.

        A term whose translation is not in the target exactly once, as tokens, keeps it.

        Args:
            src: The ids of a source with annotations.
            tgt: The ids of its target.
        """
        digest = hashlib.blake2b(f"{self._seed} {src} {tgt}".encode(), digest_size=8).digest()
        random = Random(int.from_bytes(digest, "little"))
        if random.random() >= self._share or not self._begins:
            return src, tgt
        src_edits: list[Edit] = []
        tgt_edits: list[Edit] = []
        for start, end in translations(src):
            places = places_of(src[start:end], tgt)
            if len(places) != 1:
                continue
            first = places[0]
            last = first + end - start
            if all(last <= other_start or other_end <= first for other_start, other_end, _ in tgt_edits):
                tokens = self._invented(random)
                src_edits.append((start, end, tokens))
                tgt_edits.append((first, last, tokens))
        return _edited(src, src_edits), _edited(tgt, sorted(tgt_edits))

    def _invented(self, random: Random) -> Ids:
        """Return the tokens of a translation: words of random tokens."""
        tokens = [random.choice(self._begins)]
        for _ in range(random.randint(*NUM_TOKENS) - 1):
            begins_word = random.random() < NEW_WORD
            tokens.append(random.choice(self._begins if begins_word else self._continues))
        return tokens


def translations(src: Sequence[int]) -> Iterable[tuple[int, int]]:
    """Return where the translations in a source start and end."""
    starts = [i + 1 for i, token in enumerate(src) if token == marker_id("<translation>")]
    ends = [i for i, token in enumerate(src) if token == marker_id("</term>")]
    return zip(starts, ends, strict=True)


def places_of(phrase: Ids, ids: Ids) -> list[int]:
    """Return the indices at which a phrase begins."""
    n = len(phrase)
    return [i for i in range(len(ids) - n + 1) if ids[i : i + n] == phrase]


def _edited(ids: Ids, edits: Iterable[Edit]) -> Ids:
    """Return ids with some spans replaced, which are in ascending order."""
    result: Ids = []
    after = 0
    for start, end, tokens in edits:
        result += ids[after:start]
        result += tokens
        after = end
    return result + ids[after:]
