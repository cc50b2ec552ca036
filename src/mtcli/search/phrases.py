"""Phrases that a translation must contain, and which of them a hypothesis contains so far."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mtcli.text.special_tokens import EOS

ROOT = 0
NONE = -1


@dataclass(frozen=True)
class WordParts:
    """Which tokens extend a word; a phrase is met only if it is not part of a longer word."""

    begins: npt.NDArray[np.bool_]
    """True for each token that begins inside a word: it extends the word before it, (V,)."""
    ends: npt.NDArray[np.bool_]
    """True for each token that ends inside a word: the next token may extend it, (V,)."""


Alternatives = tuple[tuple[int, ...], ...]
"""The token sequences of one required phrase, of which one must appear."""


def length_after_word(alternatives: Alternatives, words: WordParts) -> int:
    """Return the number of tokens with which a phrase can be written after any text: those of its shortest alternative.

    An alternative that would extend a word before it counts only if all do.
    """
    lengths = [len(tokens) for tokens in alternatives if not words.begins[tokens[0]]]
    return min(lengths or map(len, alternatives))


class State(NamedTuple):
    """The phrases in a hypothesis."""

    met: int = 0
    """Bit i is set if phrase i is in the hypothesis."""
    node: int = ROOT
    """Place in the tree of the phrases, after the last tokens."""
    last: int = NONE
    """The phrase that the last token completed, or `NONE`. It is no longer met if the next token extends its word."""
    in_word: bool = False
    """The last token ends inside a word."""


class RequiredPhrases:
    """The phrases that the translation of one sentence must contain, in any order and without overlap.

    The alternatives of all phrases are a tree whose edges are tokens. A hypothesis is at one node of it: the root, or
    inside phrases that its last tokens have begun. A phrase that breaks off begins again.
    """

    def __init__(self, phrases: Sequence[Alternatives], words: WordParts):
        """Initialise the tree.

        Args:
            phrases: The alternatives of each phrase, none of them empty.
            words: Describes the tokens.
        """
        self.words = words
        self.lengths = [length_after_word(alternatives, words) for alternatives in phrases]
        """The number of tokens of each phrase, if it is written after a word."""
        self.total = sum(self.lengths)
        """The number of tokens with which all phrases can be written."""
        self.all_met = (1 << len(phrases)) - 1
        self._children: list[dict[int, int]] = [{}]
        self._completed: list[list[int]] = [[]]  # the phrases that end at each node
        self._below: list[dict[int, int]] = [{}]  # phrases that can be completed from each node: tokens to their end
        for phrase, alternatives in enumerate(phrases):
            for tokens in alternatives:
                self._add(phrase, tokens)

    def _add(self, phrase: int, tokens: Sequence[int]) -> None:
        """Add one alternative to the tree."""
        node = ROOT
        for position, token in enumerate(tokens):
            child = self._children[node].get(token)
            if child is None:
                child = len(self._children)
                self._children[node][token] = child
                self._children.append({})
                self._completed.append([])
                self._below.append({})
            node = child
            distance = len(tokens) - position - 1
            if distance:
                self._below[node][phrase] = min(distance, self._below[node].get(phrase, distance))
        self._completed[node].append(phrase)

    def remaining(self, state: State) -> int:
        """Return the number of tokens with which all phrases can be met."""
        missing = sum(length for phrase, length in enumerate(self.lengths) if not state.met >> phrase & 1)
        best = missing
        for phrase, distance in self._below[state.node].items():
            if not state.met >> phrase & 1:
                best = min(best, missing - self.lengths[phrase] + distance)
        return best

    def next_tokens(self, state: State) -> list[int]:
        """Return the tokens that begin or continue a phrase that is not met."""
        tokens = []
        if state.node != ROOT:
            tokens += [token for token, child in self._children[state.node].items() if self._leads_on(child, state.met)]
        for token, child in self._children[ROOT].items():
            extends_word = state.in_word and self.words.begins[token]
            if not extends_word and self._leads_on(child, state.met):
                tokens.append(token)
        return list(dict.fromkeys(tokens))

    def after(self, state: State, token: int) -> State:
        """Return the state after one more token."""
        if token == EOS:
            return state
        in_word = bool(self.words.ends[token])
        extends_word = state.in_word and bool(self.words.begins[token])
        longer = self._children[state.node].get(token) if state.node != ROOT else None
        met = state.met
        if state.last != NONE and (longer is not None or extends_word):
            met &= ~(1 << state.last)  # the phrase is a part of another phrase or word
        child = longer
        if child is None and not extends_word:
            child = self._children[ROOT].get(token)
        if child is None:
            return State(met, in_word=in_word)
        for phrase in self._completed[child]:
            if not met >> phrase & 1:
                return State(met | 1 << phrase, child, phrase, in_word)
        return State(met, child if self._leads_on(child, met) else ROOT, in_word=in_word)

    def _leads_on(self, node: int, met: int) -> bool:
        """Return True if a phrase that is not met ends at a node or below it."""
        return any(not met >> phrase & 1 for phrase in (*self._completed[node], *self._below[node]))
