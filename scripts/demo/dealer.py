"""Balanced random draws, by which the templates choose words."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, TypeVar

T = TypeVar("T")


class Dealer:
    """Draws from decks. Every card of a deck is dealt once before any is dealt again, so words stay balanced.

    It calls only `random.Random.random()`, the one method whose sequence is the same in every version of Python.
    """

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._decks: dict[int, tuple[Sequence[Any], list[Any]]] = {}

    def chance(self, probability: float) -> bool:
        """Return True with this probability."""
        return self._rng.random() < probability

    def below(self, n: int) -> int:
        """Return a whole number from 0 to n - 1."""
        return int(self._rng.random() * n)

    def choice(self, items: Sequence[T]) -> T:
        """Return a random item, independently of earlier draws; for lists that are built for one draw."""
        return items[self.below(len(items))]

    def deal(self, items: Sequence[T]) -> T:
        """Return the next card of the deck of these items.

        The deck belongs to the object `items`, not to its content, so give a constant.
        """
        kept, deck = self._decks.setdefault(id(items), (items, []))
        if not deck:
            deck.extend(self.shuffled(kept))
        card: T = deck.pop()
        return card

    def shuffled(self, items: Sequence[T]) -> list[T]:
        """Return the items in a random order."""
        mixed = list(items)
        for i in range(len(mixed) - 1, 0, -1):
            j = self.below(i + 1)
            mixed[i], mixed[j] = mixed[j], mixed[i]
        return mixed
