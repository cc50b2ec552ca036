"""The built-in English–Spanish corpus: a lexicon, a grammar, and the pairs that they generate.

Read in this order: `lexicon` (the words), `inflection` (their forms), `grammar` (phrases and clauses), `dealer`
(balanced draws), `parts` (phrases that the templates share), then the templates in `actions`, `states`, `questions`,
`numbers` and `phrases`; `templates` has the number of pairs of each. This module generates the corpus and holds
sentences out.
"""

from __future__ import annotations

import re
from collections import Counter

from demo.dealer import Dealer
from demo.grammar import Pair
from demo.phrases import greetings_of_the_world
from demo.templates import MEMORIZED, TEMPLATES
from mtcli.corpus.demo import DemoCorpus

HELD_OUT = 500  # pairs in each of valid and test
_SEEN_ENOUGH = 8  # a pair is held out only if train keeps each of its words this often


def source_key(text: str) -> str:
    """Return a key for all variants of a sentence: its words without case, punctuation or contracted not."""
    text = text.casefold().replace("n't", " not")
    return " ".join(re.sub(r"[^\w\s]", "", text.replace("-", " ")).split())


def generate(seed: int = 1) -> DemoCorpus:
    """Return the demo corpus of this seed: the same lists on every machine and every Python."""
    deal = Dealer(seed)
    pairs: dict[str, str] = {}
    kept_in_train: set[str] = set()  # keys; used for membership only, so the order of the set does not matter
    for en, es in greetings_of_the_world():
        pairs[en] = es
        kept_in_train.add(source_key(en))
    for template, wanted in TEMPLATES:
        made = tries = 0
        while made < wanted and tries < 4 * wanted:
            tries += 1
            en, es = template(deal)
            if template in MEMORIZED:
                kept_in_train.add(source_key(en))
            if en not in pairs:
                pairs[en] = es
                made += 1
    return _split(deal, list(pairs.items()), kept_in_train)


def _words(pair: Pair) -> list[str]:
    """Return the words of both sides, each marked with its side."""
    return [
        f"{side} {word}" for side, text in zip(("en", "es"), pair, strict=True) for word in source_key(text).split()
    ]


def _split(deal: Dealer, pairs: list[Pair], kept_in_train: set[str]) -> DemoCorpus:
    groups: dict[str, list[Pair]] = {}
    for pair in pairs:
        groups.setdefault(source_key(pair[0]), []).append(pair)
    left = Counter(word for pair in pairs for word in _words(pair))
    held_out: list[Pair] = []
    train: list[Pair] = []
    # Draw by sentence, not by pair. Greetings have many variants, so most held-out pairs would be greetings.
    for key in deal.shuffled(list(groups)):
        group = groups[key]
        cost = Counter(word for pair in group for word in _words(pair))
        answerable = all(left[word] - n >= _SEEN_ENOUGH for word, n in cost.items())
        if len(held_out) < 2 * HELD_OUT and key not in kept_in_train and answerable:
            left -= cost
            held_out.append(group[0])  # one variant; the others would test the same sentence again
        else:
            train.extend(group)
    return DemoCorpus(deal.shuffled(train), held_out[:HELD_OUT], held_out[HELD_OUT:])
