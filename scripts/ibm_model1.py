"""IBM Model 1 (Brown et al. 1993): which words translate each other, learned from sentence pairs alone."""

from collections.abc import Sequence

import numpy as np

Sentences = Sequence[Sequence[str]]

ITERATIONS = 5
"""Iterations of expectation maximization."""


def translation_probabilities(src: Sentences, tgt: Sentences) -> dict[tuple[str, str], float]:
    """Return P(target word | source word) for the pairs of words that occur together in a pair of sentences.

    Args:
        src: The words of each source sentence.
        tgt: The words of each target sentence.
    """
    src_number: dict[str, int] = {"": 0}  # the empty word, which target words without a source word are aligned with
    tgt_number: dict[str, int] = {}
    src_words: list[int] = []
    tgt_words: list[int] = []
    positions: list[int] = []  # the number of the target position, over all sentences
    for src_sentence, tgt_sentence in zip(src, tgt, strict=True):
        numbers = [0, *(src_number.setdefault(word, len(src_number)) for word in src_sentence)]
        for word in tgt_sentence:
            position = positions[-1] + 1 if positions else 0
            src_words += numbers
            tgt_words += [tgt_number.setdefault(word, len(tgt_number))] * len(numbers)
            positions += [position] * len(numbers)
    position_of = np.array(positions)
    keys, link_of = np.unique(np.array(src_words) * len(tgt_number) + np.array(tgt_words), return_inverse=True)
    src_of_link = keys // len(tgt_number)
    probability = np.ones(len(keys))
    for _ in range(ITERATIONS):
        weights = probability[link_of]
        shares = weights / np.bincount(position_of, weights)[position_of]
        counts = np.bincount(link_of, shares)
        probability = counts / np.bincount(src_of_link, counts)[src_of_link]
    src_names = list(src_number)
    tgt_names = list(tgt_number)
    names = [(src_names[key // len(tgt_names)], tgt_names[key % len(tgt_names)]) for key in keys.tolist()]
    return dict(zip(names, probability.tolist(), strict=True))


def sure_translations(src: Sentences, tgt: Sentences, least: float) -> set[tuple[str, str]]:
    """Return the pairs of words that translate each other with at least this probability, in both directions."""
    forward = translation_probabilities(src, tgt)
    backward = translation_probabilities(tgt, src)
    return {
        (src_word, tgt_word)
        for (src_word, tgt_word), probability in forward.items()
        if probability >= least and backward.get((tgt_word, src_word), 0.0) >= least
    }
