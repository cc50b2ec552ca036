"""Terms for training: words of a pair that translate each other, which are written into its source (Dinu et al. 2019).

A source then shows how some of its words are translated, and the model learns to copy these translations. Which words
belong together is estimated from the training pairs: their Dice coefficient, the share of lines with either of them
that have both.

An annotation mostly has the translation that the model would choose anyway, and the first token of a word is often
enough to spell the rest. A model can therefore do well in training without copying sequences of tokens, and then
garbles the terms that it has not seen. In some pairs, the translations are replaced by random tokens, in the source and
in the target (`TermInventor`): these can only be copied.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any
from unicodedata import normalize

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, TypeAdapter

from mtcli.text.languages import Direction
from mtcli.text.lines import Pair
from mtcli.text.tokenizer.tokenizer import BACK_TRANSLATION_TAG, Annotation, Tokenizer, marker_id
from mtcli.text.words import Word, words_of

LEARN_WORDS = 25_000_000
"""Pairs of words that the association is estimated from: the first lines with this many, at most."""

LEARN_LINE_WORDS = 256
"""Different words of a side, at most, of a pair that the association is estimated from. The number of pairs of words,
and so the memory for them, grows with the square. Pairs with more are usually too long for training too."""

MIN_DICE = 0.1
"""Association of two words from which they may be a term."""

ENDS_OF_SENTENCES = frozenset(".!?…؟۔।¿¡")
MARKS = ENDS_OF_SENTENCES | frozenset(",;:،؛")
"""Signs before the first word of a sentence, and signs that stand beside a word."""

MAX_SHARE = 0.02
"""Share of the lines up to which a word may be a term. More frequent ones are mostly function words."""

MIN_FREQUENT = 20
"""Number of lines up to which a word may be a term in any case: in a small corpus, `MAX_SHARE` is too few lines."""

MAX_TERMS = 3
"""Terms that are annotated in a pair, at most."""

MAX_WORDS = 3
"""Words of a term, at most."""

KEY_BITS = 32
"""Bits of the target word in the key of a pair of words."""

INVENTED = 0.5
"""Share of the pairs with annotations in which their translations are invented."""

NUM_TOKENS = (2, 5)
"""Tokens of an invented translation, at least and at most."""

NEW_WORD = 0.2
"""Probability that a token after the first one begins another word."""

Ids = list[int]

Replacement = tuple[int, int, Ids]
"""Start and end of a span, and the ids that replace it."""


@dataclass(frozen=True)
class _Link:
    """A word of the source and a word of the target, as indices of words."""

    src: int
    tgt: int


class TermAnnotator:
    """Chooses terms in training pairs."""

    def __init__(self, partners: dict[str, dict[str, float]]):
        """Initialise it.

        Args:
            partners: For each source word, the target words that may translate it, and their association.
        """
        self.partners = partners

    @classmethod
    def learn(cls, pairs: Iterable[Pair], max_share: float = MAX_SHARE, min_dice: float = MIN_DICE) -> "TermAnnotator":
        """Estimate which words belong together from training pairs.

        Args:
            pairs: The pairs.
            max_share: Share of the lines up to which a word may be a term, see `MAX_SHARE`.
            min_dice: Association of two words from which they belong together.
        """
        return cls(_associated(pairs, max_share, min_dice))

    def annotations(self, pair: Pair, random: Random) -> list[Annotation]:
        """Return some terms of a pair, normalized to NFC, in the order of its source; none if it has none."""
        terms = self.terms(pair)
        number = min(random.randint(1, MAX_TERMS), len(terms))
        return sorted(random.sample(terms, number), key=lambda term: term.start)

    def terms(self, pair: Pair) -> list[Annotation]:
        """Return all terms of a pair: words, or several in a row, whose translations are in the target.

        Annotations do not overlap.
        """
        src, tgt = (normalize("NFC", side) for side in pair)
        tag_length = len(BACK_TRANSLATION_TAG) if src.startswith(BACK_TRANSLATION_TAG) else 0
        src_words = [word for word in words_of(src) if word.start >= tag_length]
        tgt_words = words_of(tgt)
        links = self._links(src_words, tgt_words)
        terms = []
        group: list[_Link] = []
        for link in links:
            continues = group and link.src == group[-1].src + 1 and link.tgt == group[-1].tgt + 1
            if group and not (continues and len(group) < MAX_WORDS):
                terms.append(_annotation(group, src_words, tgt, tgt_words))
                group = []
            group.append(link)
        if group:
            terms.append(_annotation(group, src_words, tgt, tgt_words))
        return terms

    def words_alone(self, pair: Pair) -> list[Pair]:
        """Return words of a pair that translate each other, in the form in which they stand alone, as in a dictionary.

        A word beside an apostrophe or a hyphen is part of another one. One that begins a sentence may owe its capital
        to this place, so both words begin a sentence, or neither does.
        """
        src, tgt = (normalize("NFC", side) for side in pair)
        src_words = words_of(src)
        tgt_words = words_of(tgt)
        found = []
        for link in self._links(src_words, tgt_words):
            ours = src_words[link.src]
            theirs = tgt_words[link.tgt]
            are_whole = _is_whole(src, ours) and _is_whole(tgt, theirs)
            if are_whole and _begins_sentence(src_words, link.src) == _begins_sentence(tgt_words, link.tgt):
                found.append((ours.text, theirs.text))
        return found

    def _links(self, src_words: Sequence[Word], tgt_words: Sequence[Word]) -> list[_Link]:
        """Return the words that are each other's best partner, without ties, in the order of the source."""
        scores: dict[tuple[int, int], float] = {}
        tgt_keys = [word.text.lower() for word in tgt_words]
        for i, word in enumerate(src_words):
            partners = self.partners.get(word.text.lower())
            if not partners:
                continue
            for j, key in enumerate(tgt_keys):
                if key in partners:
                    scores[i, j] = partners[key]
        best_of_src = _best(scores, 0)
        best_of_tgt = _best(scores, 1)
        return [_Link(i, j) for i, j in sorted(best_of_src.items()) if best_of_tgt.get(j) == i]


Partners = dict[str, dict[str, float]]


class _OfDirection(BaseModel):
    """The associations of one direction of several, as JSON."""

    src: str
    tgt: str
    partners: Partners


def annotators_to_json(annotators: Mapping[Direction, TermAnnotator]) -> bytes:
    """Return the associations of each direction as JSON: an object, or a list of several."""
    found: list[Any] = [
        {"src": direction.src, "tgt": direction.tgt, "partners": annotator.partners}
        for direction, annotator in annotators.items()
    ]
    content = found if len(found) > 1 else found[0]["partners"]
    return json.dumps(content, ensure_ascii=False).encode()


def annotators_from_json(content: bytes, directions: Sequence[Direction]) -> dict[Direction, TermAnnotator]:
    """Read what `annotators_to_json` wrote.

    Args:
        content: The JSON.
        directions: The directions of the run.

    Raises:
        ValueError: It is damaged, or of other directions.
    """
    if len(directions) == 1:
        return {directions[0]: TermAnnotator(TypeAdapter(Partners).validate_json(content, strict=True))}
    rows = TypeAdapter(list[_OfDirection]).validate_json(content, strict=True)
    found = {Direction(row.src, row.tgt): TermAnnotator(row.partners) for row in rows}
    if {*found} != {*directions}:
        raise ValueError("it is of other directions")
    return found


def without_annotations(
    values: npt.NDArray[np.int32], offsets: npt.NDArray[np.int32]
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Remove the annotations of `Tokenizer.encode_annotated` from sources.

    Args:
        values: The ids of all sources, one behind the other.
        offsets: Where each source begins in `values`, and the end of the last one.

    Returns:
        The same, without markers and translations.
    """
    begin, middle, end = (marker_id(name) for name in ("<term>", "<translation>", "</term>"))
    if begin not in values:
        return values, offsets
    first = int(offsets[0])
    ids = values[first : offsets[-1]]
    opened = np.cumsum(ids == middle)
    closed = np.cumsum(ids == end)
    is_kept = (ids != begin) & (ids != end) & (opened == closed)
    kept_before = np.concatenate(([0], np.cumsum(is_kept))).astype(np.int32)
    return ids[is_kept], kept_before[offsets - first]


def _best(scores: dict[tuple[int, int], float], side: int) -> dict[int, int]:
    """Return the best partner of each word of one side; words with several equally good ones have none."""
    best: dict[int, tuple[float, int | None]] = {}
    for places, score in scores.items():
        word = places[side]
        partner: int | None = places[1 - side]
        before, _ = best.get(word, (0.0, None))
        if score > before:
            best[word] = (score, partner)
        elif score == before:
            best[word] = (score, None)
    return {word: partner for word, (_, partner) in best.items() if partner is not None}


def _annotation(group: Sequence[_Link], src_words: Sequence[Word], tgt: str, tgt_words: Sequence[Word]) -> Annotation:
    """Return the annotation of words in a row."""
    target = tgt[tgt_words[group[0].tgt].start : tgt_words[group[-1].tgt].end]
    return Annotation(src_words[group[0].src].start, src_words[group[-1].src].end, target)


def _is_whole(line: str, word: Word) -> bool:
    """Return True if a word begins with a letter, and spaces, marks of a sentence or nothing are beside it."""
    before = line[: word.start][-1:]
    after = line[word.end :][:1]
    is_delimited = (not before or before.isspace()) and (not after or after.isspace() or after in MARKS)
    return word.text[0].isalpha() and is_delimited


def _begins_sentence(words: Sequence[Word], index: int) -> bool:
    """Return True if a word is the first one of a line or of a sentence in it."""
    return index == 0 or words[index - 1].text in ENDS_OF_SENTENCES


class _SideCounts:
    """The words of one side of the pairs, and the number of lines that each is in."""

    def __init__(self) -> None:
        self.ids: dict[str, int] = {}
        """By word, in the order in which they were first seen."""
        self._lines: Counter[int] = Counter()  # by id

    def add(self, words: Iterable[str]) -> list[int]:
        """Count the different words of a line, and return their ids."""
        ids = [self.ids.setdefault(word, len(self.ids)) for word in words]
        self._lines.update(ids)
        return ids

    def num_lines(self) -> npt.NDArray[np.int64]:
        """Return the number of lines of each word, by id."""
        return np.array([self._lines[i] for i in range(len(self.ids))], dtype=np.int64)


def _associated(pairs: Iterable[Pair], max_share: float, min_dice: float) -> dict[str, dict[str, float]]:
    """Return the Dice coefficients of source and target words, see `TermAnnotator.learn`."""
    src = _SideCounts()
    tgt = _SideCounts()
    keys_of_lines = _keys_of_lines(pairs, src, tgt)
    if not keys_of_lines:
        return {}
    keys, together = np.unique(np.concatenate(keys_of_lines), return_counts=True)
    src_of_key = keys >> KEY_BITS
    tgt_of_key = keys & ((1 << KEY_BITS) - 1)
    src_total = src.num_lines()[src_of_key]
    tgt_total = tgt.num_lines()[tgt_of_key]
    dice = 2 * together / (src_total + tgt_total)
    most = max(MIN_FREQUENT, max_share * len(keys_of_lines))
    kept = (dice >= min_dice) & (src_total <= most) & (tgt_total <= most)
    src_words = list(src.ids)
    tgt_words = list(tgt.ids)
    partners: dict[str, dict[str, float]] = {}
    for i, j, value in zip(src_of_key[kept].tolist(), tgt_of_key[kept].tolist(), dice[kept].tolist(), strict=True):
        partners.setdefault(src_words[i], {})[tgt_words[j]] = value
    return partners


def _keys_of_lines(pairs: Iterable[Pair], src: _SideCounts, tgt: _SideCounts) -> list[npt.NDArray[np.int64]]:
    """Count the words of the first pairs with at most `LEARN_WORDS` pairs of words, and return the keys of these.

    Args:
        pairs: Training pairs. Those with more than `LEARN_LINE_WORDS` words on a side are skipped.
        src: Receives the words of the sources.
        tgt: Receives those of the targets.

    Returns:
        The keys of each line that is counted, see `_keys_of_pairs`.
    """
    found: list[npt.NDArray[np.int64]] = []
    num_pairs_of_words = 0
    for src_line, tgt_line in pairs:
        src_words = _vocabulary(src_line.removeprefix(BACK_TRANSLATION_TAG))
        tgt_words = _vocabulary(tgt_line)
        if max(len(src_words), len(tgt_words)) > LEARN_LINE_WORDS:
            continue
        found.append(_keys_of_pairs(src.add(src_words), tgt.add(tgt_words)))
        num_pairs_of_words += len(found[-1])
        if num_pairs_of_words >= LEARN_WORDS:
            break
    return found


def _keys_of_pairs(src_ids: Sequence[int], tgt_ids: Sequence[int]) -> npt.NDArray[np.int64]:
    """Return a key for each pair of a source and a target word of a line, (S × T,)."""
    src = np.array(src_ids, dtype=np.int64) << KEY_BITS
    tgt = np.array(tgt_ids, dtype=np.int64)
    return (src[:, None] | tgt).ravel()


def _vocabulary(line: str) -> list[str]:
    """Return the different words of a line without case; signs are no words."""
    words = (word.text.lower() for word in words_of(normalize("NFC", line)))
    return list(dict.fromkeys(word for word in words if word[0].isalnum()))


class TermInventor:
    """Replaces the translations of terms in encoded pairs."""

    def __init__(self, tokenizer: Tokenizer, share: float = INVENTED):
        """Collect the target tokens that consist of letters.

        Args:
            tokenizer: Has one vocabulary for both sides.
            share: Share of the pairs whose translations are invented.
        """
        begins: Ids = []
        continues: Ids = []
        for token, text in enumerate(tokenizer.tgt_tokens(range(tokenizer.tgt_size))):
            if text.removeprefix("▁").isalpha():
                (begins if text.startswith("▁") else continues).append(token)
        self._begins = begins or continues
        self._continues = continues or begins
        self._share = share

    def replaced(self, src: Ids, tgt: Ids, random: Random) -> tuple[Ids, Ids]:
        """Return a pair with invented translations of its terms, or the same pair in the share that keeps its own.

        A term whose translation is not in the target exactly once, as tokens, keeps it.

        Args:
            src: The ids of a source with annotations.
            tgt: The ids of its target.
            random: Decides whether, and which ones.
        """
        if random.random() >= self._share or not self._begins:
            return src, tgt
        src_edits: list[Replacement] = []
        tgt_edits: list[Replacement] = []
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


def _edited(ids: Ids, edits: Iterable[Replacement]) -> Ids:
    """Return ids with some spans replaced, which are in ascending order."""
    result: Ids = []
    after = 0
    for start, end, tokens in edits:
        result += ids[after:start]
        result += tokens
        after = end
    return result + ids[after:]
