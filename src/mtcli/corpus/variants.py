"""Variants of training pairs: as people type them, several on a line, and with the translations of terms.

Each epoch has every pair as it is, and in addition variants of some pairs: in capitals, without a final mark, with a
typing error or a symbol, joined to others on one line, single words of them, or with translations of terms in the
source. So the model learns them in its weights, and an export needs no code for them. The draws are a function of the
seed, the epoch and the rows, so a resumed run draws the same.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from random import Random
from typing import Final

import numpy as np

from mtcli.corpus.cache.encoded_pairs import EncodedPairs, Ints, NumberedPair, Rows, as_rows
from mtcli.terms.annotation import TermAnnotator, TermInventor
from mtcli.text.languages import Direction
from mtcli.text.lines import Pair
from mtcli.text.tokenizer.tokenizer import Annotation, Tokenizer, marker_id
from mtcli.text.typed_forms import FORMS, joined
from mtcli.text.words import word_texts
from mtcli.text.writing_systems import unspaced

JOINED = "joined"
SINGLE_WORD = "single word"
TERMS = "terms"

SHARES: Final = {
    "capitals": 0.03,
    "title case": 0.02,
    "lower case": 0.01,
    "no final mark": 0.03,
    "doubled final mark": 0.01,
    "chat": 0.03,
    "no accents": 0.02,
    "missing spaces": 0.01,
    "typing errors": 0.06,
    "symbol at the start": 0.01,
    "symbol in the middle": 0.01,
    "symbol at the end": 0.02,
    JOINED: 0.03,
    SINGLE_WORD: 0.06,
}
"""Variants of each form per pair and epoch, with `data.variants`."""

TERMS_SHARE = 0.3
"""Pairs with annotated terms per pair and epoch, with `data.terms`; pairs without any are left out."""

WORD_PAIRS = 20_000
"""Pairs from which `Variants` learns the translations of single words, at even distances in the cache."""

WORD_DICE = 0.2
"""Association of two words from which they translate each other alone; chosen by looking at pairs of Multi30K and
Tatoeba."""

MIXED = 0.15
"""Share of the variants that have a second form, such as an emoji in a line in lower case."""

MOST_JOINED = 4
"""Pairs on a line, at most. Two are as frequent as three and four together."""

USUAL_SHARE = 0.99
"""Share of the training sources that are of usual length: a model translates longer ones worse."""

PORTION_VARIANTS = 2_000
"""Variants that are drawn at a time, in one process."""

MAX_CHUNKS_MEASURED = 50
"""Chunks of the cache from which the lengths of sources are estimated."""

NUM_DECODED = 1000
"""Sources from which the length of a word in tokens is estimated."""

CAPITALS_FOR_TOKENIZER = 20
"""One pair of this many is also in capitals in the text from which the vocabulary is learned."""


@dataclass(frozen=True)
class Portion:
    """Some variants of a block, before they are drawn. Another process can draw them: they depend on nothing else."""

    key: str
    """Key of their random draws."""
    rows: Ints
    """(N, `MOST_JOINED`): the row of the cache that each is made from, and those that it is joined to, or -1."""
    forms: Ints
    """Number of the form of each, (N,)."""


@dataclass(frozen=True)
class DrawnVariants:
    """The variants of some rows."""

    origins: Ints
    """The row of the cache that each was made from, ascending; of joined rows, the first one."""
    src: Rows
    tgt: Rows

    @classmethod
    def together(cls, drawn: Iterable["DrawnVariants"]) -> "DrawnVariants":
        """Return the variants of several portions, at least one, in their order."""
        portions = list(drawn)
        return cls(
            np.concatenate([each.origins for each in portions]),
            _concatenated(*(each.src for each in portions)),
            _concatenated(*(each.tgt for each in portions)),
        )


class Variants:
    """Draws variants of encoded pairs.

    Args:
        tokenizer: The tokenizer of the pairs. Their text is decoded from their ids.
        parts: Rows and languages of the parts of the cache, in order.
        max_length: Tokens of a side at most; longer variants are dropped.
        seed: Decides, with the epoch, which pairs are varied and how.
        shares: Variants of each form per pair and epoch.
        annotators: For each direction, finds the terms to annotate in `TERMS_SHARE` of the pairs; None: there are none.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        parts: Sequence[tuple[int, Direction]],
        max_length: int,
        seed: int,
        *,
        shares: Mapping[str, float] = SHARES,
        annotators: Mapping[Direction, TermAnnotator] | None = None,
    ):
        self.tokenizer = tokenizer
        self.languages = [languages for _, languages in parts]
        self._starts = np.cumsum([0, *(rows for rows, _ in parts)])
        self.max_length = max_length
        self.seed = seed
        self._annotators = annotators
        if annotators is not None:
            shares = {**shares, TERMS: TERMS_SHARE}
            self._inventor = TermInventor(tokenizer)
        self._words: dict[Direction, _Words] = {}
        """The words of the pairs of each direction, with `SINGLE_WORD`; learned with the first draw."""
        self._forms = list(shares)
        self._bounds = np.cumsum(list(shares.values()))
        self._not_text = frozenset([marker_id("<term>") if tokenizer.unknown is None else tokenizer.unknown])
        """Tokens whose pairs are not varied: they cannot be decoded, or are annotations."""

    def draw(self, pairs: EncodedPairs, rows: Ints, key: tuple[int, ...]) -> DrawnVariants:
        """Return variants of some of the rows.

        Args:
            pairs: The cache.
            rows: Row numbers, ascending.
            key: Identifies the epoch, and the block of it that the rows are.
        """
        self.learn_words(pairs)
        return DrawnVariants.together(self.draw_portion(pairs, portion) for portion in self.portions(rows, key))

    def learn_words(self, pairs: EncodedPairs) -> None:
        """Learn which words of the pairs translate each other, if this has not been done and a form needs them.

        Each direction has its own: among those of all, a word of a small one would have its translation too seldom.
        """
        if self._words or SINGLE_WORD not in self._forms:
            return
        for direction in dict.fromkeys(self.languages):
            parts = zip(self.languages, pairwise(self._starts), strict=True)
            rows = np.concatenate([np.arange(*bounds) for languages, bounds in parts if languages == direction])
            step = -(-len(rows) // WORD_PAIRS) or 1
            texts = self._texts(pairs, rows[::step].tolist()).values()
            self._words[direction] = _Words([pair for _, pair in texts])

    def portions(self, rows: Ints, key: tuple[int, ...]) -> list[Portion]:
        """Choose the rows that are varied, and their forms. The arguments are those of `draw`."""
        name = f"variants {self.seed} {key}"
        random = np.random.Generator(np.random.Philox(Random(name).getrandbits(64)))
        draws = random.random(len(rows))
        chosen = np.flatnonzero(draws < self._bounds[-1])
        forms = np.searchsorted(self._bounds, draws[chosen], side="right")
        groups = self._with_partners(rows, chosen, forms, random)
        starts = range(0, max(1, len(chosen)), PORTION_VARIANTS)
        slices = [slice(start, start + PORTION_VARIANTS) for start in starts]
        return [Portion(f"{name} {taken.start}", groups[taken], forms[taken]) for taken in slices]

    def _with_partners(self, rows: Ints, chosen: Ints, forms: Ints, random: np.random.Generator) -> Ints:
        """Return the chosen rows with those of the same languages that they are joined to; see `Portion.rows`."""
        groups = np.full((len(chosen), MOST_JOINED), -1, dtype=np.int64)
        groups[:, 0] = rows[chosen]
        is_joined = forms == (self._forms.index(JOINED) if JOINED in self._forms else -1)
        own = chosen[is_joined]
        part = self._part_of(rows[own])
        first, end = np.searchsorted(rows, self._starts[part]), np.searchsorted(rows, self._starts[part + 1])
        num_others = (end - first - 1)[:, None]
        number = np.where(random.random(len(own)) < 0.5, 1, random.integers(2, MOST_JOINED, len(own)))
        places = first[:, None] + random.integers(0, np.maximum(num_others, 1), (len(own), MOST_JOINED - 1))
        places += places >= own[:, None]  # not the row itself: that would teach to repeat
        wanted = (np.arange(MOST_JOINED - 1) < number[:, None]) & (num_others > 0)
        groups[is_joined, 1:] = np.where(wanted, rows[np.minimum(places, len(rows) - 1)], -1)
        return groups

    def draw_portion(self, pairs: EncodedPairs, portion: Portion) -> DrawnVariants:
        """Draw the variants of a portion. The words must have been learned."""
        random = Random(portion.key)
        needed = [[row for row in group if row >= 0] for group in portion.rows.tolist()]
        texts = self._texts(pairs, sorted(set(chain.from_iterable(needed))))
        varied: list[tuple[int, list[int], Pair]] = []
        """The row, the tag and the text of each variant."""
        annotations: dict[int, list[Annotation]] = {}
        """The terms of the variants with terms, by their number."""
        parts = self._part_of(portion.rows[:, 0]).tolist()
        for group, form, part in zip(needed, portion.forms.tolist(), parts, strict=True):
            if group[0] not in texts:
                continue
            tag, _ = texts[group[0]]
            known = [texts[row] for row in group if row in texts]
            alike = [text for other_tag, text in known if other_tag == tag]
            pair = self._in_form(alike, self._forms[form], self.languages[part], random)
            if pair is None:
                continue
            if self._annotators is not None and self._forms[form] == TERMS:
                annotations[len(varied)] = self._annotators[self.languages[part]].annotations(pair, random)
            varied.append((group[0], tag, pair))
        src = self.tokenizer.encode_src([src for *_, (src, _) in varied])
        tgt = self.tokenizer.encode_tgt([tgt for *_, (_, tgt) in varied])
        sources = [varied[number][2][0] for number in annotations]
        annotated = self.tokenizer.encode_annotated(sources, list(annotations.values()))
        for (number, terms), ids in zip(annotations.items(), annotated, strict=True):
            src[number], tgt[number] = self._inventor.replaced(ids, tgt[number], random) if terms else ([], [])
        kept = [
            (origin, tag + ours, theirs)
            for (origin, tag, _), ours, theirs in zip(varied, src, tgt, strict=True)
            if len(ours) > 0 and len(tag) + len(ours) <= self.max_length and 0 < len(theirs) <= self.max_length
        ]
        origins = np.array([origin for origin, _, _ in kept], dtype=np.int64)
        return DrawnVariants(origins, as_rows([ids for _, ids, _ in kept]), as_rows([ids for *_, ids in kept]))

    def _part_of(self, rows: Ints) -> Ints:
        """Return the number of the part of the cache that each row is from."""
        return np.searchsorted(self._starts, rows, side="right") - 1

    def _in_form(self, pairs: Sequence[Pair], form: str, languages: Direction, random: Random) -> Pair | None:
        """Return pairs in a form, and in a second one in a share of them; None if the form does not apply.

        A pair whose terms are annotated stays as it is.
        """
        if form == TERMS:
            return pairs[0]
        if form == JOINED:
            pair = joined(pairs) if len(pairs) > 1 else None
        elif form == SINGLE_WORD:
            pair = self._words[languages].drawn_from(pairs[0], random) if self._words else None
        else:
            pair = FORMS[form](pairs[0], languages, random)
            if pair is None and form == "symbol in the middle":
                pair = FORMS["symbol at the end"](pairs[0], languages, random)
        if pair is None or random.random() >= MIXED:
            return pair
        second = random.choices(list(FORMS), [SHARES[name] for name in FORMS])[0]
        pair = FORMS[second](pair, languages, random) or pair
        return None if pair == pairs[0] else pair  # title case and then lower case may be the pair as it is

    def _texts(self, pairs: EncodedPairs, rows: Sequence[int]) -> dict[int, tuple[list[int], Pair]]:
        """Return the tag and the text of rows. Rows without text are left out, and those with annotations."""
        found = pairs.texts(rows, self.tokenizer, self._not_text)
        return {row: (tag, pair) for row, tag, pair in found if pair[0].strip() and pair[1].strip()}


class _Words:
    """The words of pairs that translate each other.

    A word is drawn in proportion to the square root of its frequency. In proportion to the frequency, most draws would
    be of a few words, such as `a` and `man`, whose translation has one token, and the model would end rarer words after
    their first token.
    """

    def __init__(self, pairs: Sequence[Pair]):
        self._annotator = TermAnnotator.learn(pairs, max_share=1.0, min_dice=WORD_DICE)
        self._times = Counter(word for src, _ in pairs for word in word_texts(src.lower()))

    def drawn_from(self, pair: Pair, random: Random) -> Pair | None:
        """Return a word of a pair with its translation; None if there is none."""
        words = self._annotator.words_alone(pair)
        if not words:
            return None
        weights = [max(1, self._times[src.lower()]) ** -0.5 for src, _ in words]
        return random.choices(words, weights)[0]


@dataclass(frozen=True)
class SourceLengths:
    """The lengths of the sources of a training in tokens, without `</s>`. Several pairs on a line are one source."""

    median: int
    usual: int
    """`USUAL_SHARE` of the sources have at most so many tokens."""
    longest: int
    """Of the pairs as they are."""
    unit: str
    """`words`, or `characters` in scripts without spaces."""
    tokens_per_unit: float

    @classmethod
    def of(cls, pairs: EncodedPairs, tokenizer: Tokenizer, *, joins: bool, max_length: int) -> "SourceLengths":
        """Estimate them.

        Args:
            pairs: The cache.
            tokenizer: Its tokenizer.
            joins: The training joins pairs, as `data.variants` does.
            max_length: Tokens of a side at most; longer lines are dropped.
        """
        step = -(-pairs.chunks // MAX_CHUNKS_MEASURED) or 1
        rows, lengths, _ = pairs.lengths(range(0, pairs.chunks, step))
        if not len(rows):
            return cls(0, 0, 0, "words", 1.0)
        every = lengths
        if joins:
            random = np.random.Generator(np.random.Philox(0))
            number = round(SHARES[JOINED] * len(lengths))
            parts = lengths[random.integers(0, len(lengths), (number, MOST_JOINED))]
            on_line = np.where(random.random(number) < 0.5, 2, random.integers(3, MOST_JOINED + 1, number))
            joined_lengths = (parts * (np.arange(MOST_JOINED) < on_line[:, None])).sum(axis=1)
            every = np.concatenate([lengths, joined_lengths[joined_lengths <= max_length]])
        median, usual = np.quantile(every, [0.5, USUAL_SHARE], method="higher").tolist()
        sample = [pairs[int(row)][0].tolist() for row in rows[:: -(-len(rows) // NUM_DECODED)]]
        texts = tokenizer.decode_src(sample)
        unit = "characters" if unspaced(texts) else "words"
        num_units = sum(len(text) if unit == "characters" else len(text.split()) for text in texts)
        return cls(int(median), int(usual), pairs.longest_src, unit, sum(map(len, sample)) / max(1, num_units))


class EpochPairs:
    """The pairs of an epoch: those of a cache, and behind them variants of some of them."""

    def __init__(self, pairs: EncodedPairs, drawn: DrawnVariants):
        self._pairs = pairs
        self._drawn = drawn

    def origins(self, rows: Ints) -> Ints:
        """Return the rows of the cache: of variants, those that they were made from."""
        is_drawn = rows >= len(self._pairs)
        origins = rows.copy()
        origins[is_drawn] = self._drawn.origins[rows[is_drawn] - len(self._pairs)]
        return origins

    def gather(self, rows: Ints) -> tuple[Rows, Rows]:
        """Return the sources and the targets of some rows; see `EncodedPairs.gather`."""
        is_drawn = rows >= len(self._pairs)
        if not is_drawn.any():
            return self._pairs.gather(rows)
        place = np.empty(len(rows), dtype=np.int64)
        place[np.argsort(is_drawn, kind="stable")] = np.arange(len(rows))  # behind those of the cache
        numbers = rows[is_drawn] - len(self._pairs)
        sides = zip(self._pairs.gather(rows[~is_drawn]), (self._drawn.src, self._drawn.tgt), strict=True)
        src, tgt = (_taken(_concatenated(cached, _taken(drawn, numbers)), place) for cached, drawn in sides)
        return src, tgt


def _taken(rows: Rows, numbers: Ints) -> Rows:
    """Return some of the rows, in the given order."""
    ids, lengths = rows
    starts = np.cumsum(lengths, dtype=np.int64) - lengths
    kept = lengths[numbers]
    before = np.cumsum(kept, dtype=np.int64) - kept
    return ids[np.repeat(starts[numbers] - before, kept) + np.arange(kept.sum())], kept


def _concatenated(*rows: Rows) -> Rows:
    return np.concatenate([ids for ids, _ in rows]), np.concatenate([lengths for _, lengths in rows])


def with_capitals(pairs: Iterable[NumberedPair], languages: Sequence[Direction]) -> Iterator[NumberedPair]:
    """Yield pairs, and some of them in capitals too, so that a vocabulary learned from them has tokens of capitals.

    Args:
        pairs: The pairs with the number of their corpus.
        languages: The languages of each corpus.
    """
    random = Random(0)
    for number, (corpus, pair) in enumerate(pairs):
        yield corpus, pair
        if number % CAPITALS_FOR_TOKENIZER == 0:
            capitals = FORMS["capitals"](pair, languages[corpus], random)
            if capitals is not None:
                yield corpus, capitals
