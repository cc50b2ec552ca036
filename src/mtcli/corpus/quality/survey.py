"""One pass over a corpus that finds, for each pair, the rules that it breaks.

Memory: 24 bytes per pair while reading, and 70 briefly at the end (700 MB for ten million pairs). No text is kept.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt

from mtcli.config.schema import Config
from mtcli.config.toml_file import load
from mtcli.corpus.quality.corpus import Corpus, source_hash
from mtcli.corpus.quality.languages import LanguageCheck
from mtcli.corpus.quality.rules import BIT, REMOVES, rules, script, tidy
from mtcli.text.lines import Counts, Pair
from mtcli.text.tokenizer.tokenizer import Tokenizer

BATCH_PAIRS = 4096
"""Pairs that are looked at together, so that a tokenizer encodes many lines per call."""

Bits = npt.NDArray[np.uint32]
SourceHashes = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass
class TokenCounts:
    """Statistics of how a tokenizer encodes one side."""

    words: int = 0
    tokens: int = 0
    byte_tokens: int = 0
    """Tokens that stand for one byte of a character outside the vocabulary."""


@dataclass
class Survey:
    """The result of one pass over a corpus. A tuple has an entry for each side."""

    found: Bits
    """(pairs,), the `BIT`s of the rules that each pair breaks."""
    words: tuple[int, int]
    characters: tuple[int, int]
    scripts: tuple[str, str]
    """The script of most sentences."""
    tokens: tuple[TokenCounts, TokenCounts] | None
    """None without a tokenizer."""
    notices: list[str]
    """What the readers of the files tell."""
    languages: list[str]
    """What is wrong with the declared languages."""


def survey(pairs: Corpus, model: Path | None = None) -> Survey:
    """Read a corpus once and find the problems of each pair.

    Args:
        pairs: The corpus.
        model: A run folder or a tokenizer file, to test how it encodes the pairs.

    Raises:
        DataError: The corpus cannot be read to its end.
        ModelError: `model` has no usable tokenizer.
    """
    collector = _Collector(pairs, model)
    counts = Counts()
    records = (record for _, _, record in pairs.records("reading", counts))
    while batch := list(islice(records, BATCH_PAIRS)):
        collector.add(batch)
    return collector.result(list(dict.fromkeys(counts.notices)))


class _Collector:
    """Collects what a survey keeps of each pair."""

    def __init__(self, pairs: Corpus, model: Path | None):
        self.tests = [(BIT[rule.name], rule.test) for rule in rules(pairs.max_length, pairs.max_ratio) if rule.test]
        self.held_out: list[tuple[int, set[int]]] = []
        """The bit of a held-out set and the hashes of its sources."""
        for name, path in (("test", pairs.test), ("valid", pairs.valid)):
            if path is not None:
                self.held_out.append((BIT[f"source is in {name}"], pairs.source_hashes(path)))
        self.encoder = _Encoder(model) if model else None
        self.languages = LanguageCheck(pairs.src, pairs.tgt, swap=pairs.swap)
        self.found = array("I")
        self.pair_hashes = array("q")
        self.source_hashes = array("q")
        self.script_pairs = array("H")
        """For each pair, the number of its combination of scripts."""
        self.script_numbers: dict[Pair, int] = {("", ""): 0}
        self.words = [0, 0]
        self.characters = [0, 0]

    def add(self, records: list[Pair | str]) -> None:
        """Add the next pairs; a string is a line that is not a pair."""
        texts = [("", "") if isinstance(record, str) else (tidy(record[0]), tidy(record[1])) for record in records]
        first = len(self.found)
        for record, pair in zip(records, texts, strict=True):
            self._add_pair(record, pair)
        if self.encoder:
            invalid = BIT["invalid UTF-8"]
            usable = [i for i, pair in enumerate(texts) if all(pair) and not self.found[first + i] & invalid]
            found = self.encoder.encode([texts[i] for i in usable])
            for i, bits in zip(usable, found, strict=True):
                self.found[first + i] |= bits

    def _add_pair(self, record: Pair | str, pair: Pair) -> None:
        src, tgt = pair
        hash_of_source = 0
        script_number = 0
        if isinstance(record, str):
            bits = BIT["not a pair"]
        elif not (src and tgt):
            bits = BIT["empty side"]
        else:
            hash_of_source = source_hash(src)
            bits = self._broken_rules(record, src, tgt, hash_of_source)
            script_number = self.script_numbers.setdefault((script(src), script(tgt)), len(self.script_numbers))
        self.found.append(bits)
        self.pair_hashes.append(hash(pair))
        self.source_hashes.append(hash_of_source)
        self.script_pairs.append(script_number)
        for side, text in enumerate(pair):
            if text:
                self.words[side] += text.count(" ") + 1
            self.characters[side] += len(text)

    def _broken_rules(self, record: Pair, src: str, tgt: str, hash_of_source: int) -> int:
        """Return the bits of the rules that concern this pair alone, or the held-out sets."""
        bits = 0
        for bit, test in self.tests:
            if test(src, tgt):
                bits |= bit
        if (src, tgt) != (record[0].strip(), record[1].strip()):
            bits |= BIT["white space"]
        for bit, hashes in self.held_out:
            if hash_of_source in hashes:
                bits |= bit
        if self.languages.is_swapped(src, tgt):
            bits |= BIT["swapped sides"]
        return bits

    def result(self, notices: list[str]) -> Survey:
        """Add the bits that depend on other pairs, and return everything."""
        found = np.frombuffer(self.found, np.uint32)
        kept = found & REMOVES == 0
        pair_hashes = np.frombuffer(self.pair_hashes, np.int64)
        repeated, _ = _repeats(pair_hashes)  # equal pairs break the same rules, so the first one stands for all
        found[kept & repeated] |= BIT["duplicate pair"]
        script_pairs = np.frombuffer(self.script_pairs, np.uint16)
        sizes = np.bincount(script_pairs[kept & ~repeated], minlength=len(self.script_numbers))
        usual, wrong = _usual_scripts(dict(zip(self.script_numbers, sizes.tolist(), strict=True)))
        found[np.isin(script_pairs, [self.script_numbers[pair] for pair in wrong])] |= BIT["wrong script"]
        remaining = np.flatnonzero(found & REMOVES == 0)
        before, after = _repeats(np.frombuffer(self.source_hashes, np.int64)[remaining])
        found[remaining[before | after]] |= BIT["several translations"]
        return Survey(
            found=found,
            words=(self.words[0], self.words[1]),
            characters=(self.characters[0], self.characters[1]),
            scripts=usual,
            tokens=self.encoder.sides if self.encoder else None,
            notices=notices,
            languages=list(self.languages.notices()),
        )


class _Encoder:
    """The tokenizer of a model, with statistics."""

    def __init__(self, model: Path) -> None:
        is_file = model.suffix == ".json"
        self.tokenizer = Tokenizer.load(model if is_file else model / "tokenizer.json")
        settings = model / "config.toml"
        config = load(settings) if settings.is_file() else Config()
        self.max_length = config.data.max_length
        self.sides = TokenCounts(), TokenCounts()

    def encode(self, pairs: Sequence[Pair]) -> list[int]:
        """Return the bits of each pair."""
        bits = [0] * len(pairs)
        encoders = (self.tokenizer.encode_src, self.tokenizer.encode_tgt)
        for side, encode in enumerate(encoders):
            texts = [pair[side] for pair in pairs]
            byte_of = self.tokenizer.sides[side].byte_of
            counts = self.sides[side]
            for number, (text, ids) in enumerate(zip(texts, encode(texts), strict=True)):
                byte_tokens = sum(token_id in byte_of for token_id in ids)
                if byte_tokens:
                    bits[number] |= BIT["byte fallback"]
                if len(ids) > self.max_length:
                    bits[number] |= BIT["too many tokens"]
                counts.words += text.count(" ") + 1
                counts.tokens += len(ids)
                counts.byte_tokens += byte_tokens
        return bits


def _repeats(values: SourceHashes) -> tuple[Flags, Flags]:
    """Return for each value if it occurs before, and if it occurs again later."""
    order = np.argsort(values, kind="stable")
    same = values[order[1:]] == values[order[:-1]]
    before = np.zeros(len(values), bool)
    after = np.zeros(len(values), bool)
    before[order[1:][same]] = True
    after[order[:-1][same]] = True
    return before, after


def _usual_scripts(sizes: dict[Pair, int]) -> tuple[Pair, set[Pair]]:
    """Return the script of most pairs on each side, and the combinations with another script on either side.

    The count is repeated without those combinations until none is left, so that the pairs which are kept have the same
    usual scripts.
    """
    remaining = sizes
    while True:
        usual = _most_frequent(remaining, 0), _most_frequent(remaining, 1)
        kept = {pair: n for pair, n in remaining.items() if _fits(pair, usual)}
        if len(kept) == len(remaining):
            return usual, sizes.keys() - kept.keys()
        remaining = kept


def _fits(scripts: Pair, usual: Pair) -> bool:
    """Return True if both sides are in the usual script, in none, or a few Latin words."""
    return all(found in ("", "latin", expected) for found, expected in zip(scripts, usual, strict=True))


def _most_frequent(sizes: dict[Pair, int], side: int) -> str:
    """Return the most frequent script of a side; a few Latin words count as Latin."""
    counts: Counter[str] = Counter()
    for pair, n in sizes.items():
        counts["Latin" if pair[side] == "latin" else pair[side]] += n
    del counts[""]
    return max(counts, key=lambda name: (counts[name], name), default="")
