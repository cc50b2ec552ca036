"""A translation memory: sentences with their translations, which are used instead of the model's.

An entry is an exact match of a sentence if both are the same after white space is normalized. A near match has most of
its words. It is offered beside the translation of the model, and never used in its place.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import ceil
from pathlib import Path
from threading import Lock
from typing import Any
from unicodedata import normalize

from mtcli.corpus.readers.language_guess import contradiction, name_says
from mtcli.corpus.readers.pairs import read_pairs
from mtcli.corpus.readers.sources import file_form, form_suffix
from mtcli.corpus.readers.tables import find_columns, first_row
from mtcli.corpus.readers.xml_pairs import xml_languages
from mtcli.errors import DataError
from mtcli.runtime.wording import counted
from mtcli.text.languages import base
from mtcli.text.lines import Counts, normalized, read_lines
from mtcli.text.list_marks import mark_of
from mtcli.text.words import word_texts

NEAR = 0.85
"""The default share of the words of a near match."""

SUFFIXES = (".tsv", ".csv", ".tmx", ".xliff", ".xlf", ".jsonl")
"""Endings of files that a memory is read from; also with `.gz`."""

MOST_POSTINGS = 10_000
"""Entries with a word that are looked at. Of a word that is in more entries, the last ones are."""

ROUNDING = 1e-9
"""Error of a share in floating point: 0.85 · 23 / 1.15 is 17, not a little more."""

MOST_CANDIDATES = 300
"""Entries that are compared word by word with a sentence."""


@dataclass(frozen=True)
class Entry:
    """A sentence and its translation."""

    source: str
    translation: str
    origin: str = ""
    """The name of its file."""


@dataclass(frozen=True)
class MemoryMatch:
    """An entry for a sentence of a text."""

    sentence: str
    """As it is in the text."""
    entry: Entry
    similarity: float = 1.0
    """The share of the words that both have, in their order; 1 only for an exact match."""

    @property
    def is_exact(self) -> bool:
        """The entry is used in place of the model."""
        return self.similarity == 1.0

    @property
    def percent(self) -> int:
        """The similarity in per cent, rounded down."""
        return int(100 * self.similarity)

    def record(self) -> dict[str, Any]:
        """Return the fields of a JSON object."""
        return {
            "sentence": self.sentence,
            "match": self.percent,
            "source": self.entry.source,
            "translation": self.entry.translation,
            "origin": self.entry.origin,
        }


class Memory:
    """Entries by their sources. Of several entries for one source, the last one counts.

    Several threads may use it.

    Args:
        near: The least similarity of a near match; 1: there are none.
    """

    def __init__(self, near: float = NEAR):
        self._near = near
        self._entries: list[Entry] = []
        self._by_source: dict[str, int] = {}
        """Places in the list of entries, by normalized source."""
        self._items: dict[str, Entry] = {}
        """Entries of items of lists, without their marks, by normalized source: documents keep the marks.

        A later entry of the same source without a mark deletes them.
        """
        self._index: _WordIndex | None = None
        """Made for the first search, because not every memory is searched for near matches."""
        self._changing = Lock()

    @property
    def has_near(self) -> bool:
        """Near matches are searched for."""
        return self._near < 1.0

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, entry: Entry) -> bool:
        """Add an entry, or replace the one for the same source.

        Returns:
            True if it replaces another translation.
        """
        source = normalized(entry.source)
        item = _without_mark(entry)
        with self._changing:
            if item is not None:
                self._items[normalized(item.source)] = item
            place = self._by_source.get(source)
            replaces = False
            if place is None:
                self._entries.append(entry)
                if self._index is not None:
                    self._index.add(entry.source)
                self._by_source[source] = len(self._entries) - 1
            else:
                replaces = self._entries[place].translation != entry.translation
                self._entries[place] = entry
            self._items.pop(source, None)
            return replaces

    def exact(self, sentence: str) -> MemoryMatch | None:
        """Return the last entry that has this sentence as its source, or as an item of a list."""
        source = normalized(sentence)
        entry = self._items.get(source)  # an item is later than an entry without a mark
        if entry is None:
            place = self._by_source.get(source)
            entry = None if place is None else self._entries[place]
        return None if entry is None else MemoryMatch(sentence, entry)

    def find(self, sentence: str) -> MemoryMatch | None:
        """Return the exact match of a sentence, or its best near match."""
        return self.exact(sentence) or (self._nearest(sentence) if self.has_near else None)

    def _nearest(self, sentence: str) -> MemoryMatch | None:
        with self._changing:
            if self._index is None:
                self._index = _WordIndex(entry.source for entry in self._entries)
            index = self._index
        found = index.nearest(sentence, self._near)
        if found is None:
            return None
        place, similarity = found
        return MemoryMatch(sentence, self._entries[place], min(similarity, 0.99))


def _without_mark(entry: Entry) -> Entry | None:
    """Return an item of a list without its mark; None if the two sides do not begin with the same mark."""
    mark = mark_of(entry.source)
    if not mark or mark_of(entry.translation) != mark:
        return None
    return Entry(entry.source[len(mark) :], entry.translation[len(mark) :], entry.origin)


class _WordIndex:
    """Finds the texts that have most words of another one, in their order.

    It compares few texts word by word. A text with enough words in common has at least one of the rarest words of the
    other one, so only the texts with one of these are candidates.
    """

    def __init__(self, texts: Iterable[str]):
        self._words: list[tuple[str, ...]] = []
        self._places: dict[str, array[int]] = {}
        """The texts with a word."""
        self._known: dict[str, str] = {}
        """Each word once, so that equal words share their memory."""
        for text in texts:
            self.add(text)

    def add(self, text: str) -> None:
        """Add a text."""
        words = tuple(self._known.setdefault(word, word) for word in compared_words(text))
        place = len(self._words)
        self._words.append(words)
        for word in set(words):
            self._places.setdefault(word, array("I")).append(place)

    def nearest(self, text: str, least: float) -> tuple[int, float] | None:
        """Return the number of the most similar text, and the similarity; None: each is below `least`.

        The similarity of texts with n and m words is 2c / (n + m) for c words in common.
        """
        words = compared_words(text)
        if not words:
            return None
        places_of: dict[str, int] = {}
        for number, word in enumerate(words):
            places_of[word] = places_of.get(word, 0) | 1 << number
        best = None
        for place in self._candidates(words, least):
            others = self._words[place]
            similarity = 2 * num_common(places_of, len(words), others) / (len(words) + len(others))
            if similarity >= least and (best is None or similarity > best[1]):
                best = place, similarity
        return best

    def _candidates(self, words: Sequence[str], least: float) -> list[int]:
        """Return the texts with the most of the rarest words."""
        fewest = ceil(least * len(words) / (2 - least) - ROUNDING)
        places = [self._places.get(word, array("I")) for word in words]
        rarest = sorted(places, key=len)[: len(words) - fewest + 1]
        counts = Counter(chain.from_iterable(each[-MOST_POSTINGS:] for each in rarest))
        return [place for place, _ in counts.most_common(MOST_CANDIDATES)]


def num_common(places_of: Mapping[str, int], num_words: int, others: Iterable[str]) -> int:
    """Return the length of the longest common subsequence of two texts of words.

    The bits of an integer are a column of the table of the textbook algorithm (Hyyrö 2004, bit-parallel LCS).

    Args:
        places_of: The places of each word of the first text, as bits.
        num_words: The number of words of the first text.
        others: The words of the second text.
    """
    unused = mask = (1 << num_words) - 1
    for word in others:
        here = unused & places_of.get(word, 0)
        unused = ((unused + here) | (unused - here)) & mask
    return num_words - unused.bit_count()


def compared_words(text: str) -> list[str]:
    """Return the words of a text as near matches compare them: in any case, and punctuation as words."""
    return word_texts(normalize("NFC", text).casefold())


def read_memory(
    paths: Iterable[Path], src: str, tgt: str, *, near: float = NEAR, notices: list[str] | None = None
) -> Memory:
    """Read the memory of some files, in their order.

    Args:
        paths: Files with sentence pairs.
        src: Source language.
        tgt: Target language.
        near: See `Memory`.
        notices: Receives what the user should know.

    Raises:
        DataError: A file has another ending, cannot be read, or is for other languages.
    """
    memory = Memory(near)
    for path in paths:
        add_file(memory, path, src, tgt, notices if notices is not None else [])
    return memory


def add_file(memory: Memory, path: Path, src: str, tgt: str, notices: list[str]) -> None:
    """Add the pairs of a file to a memory.

    Args:
        memory: The memory.
        path: The file.
        src: Source language.
        tgt: Target language.
        notices: Receives what the user should know.

    Raises:
        DataError: See `read_memory`.
    """
    check_memory_file(path)
    others = contradiction(path.name, src, tgt)
    if others:
        notices.append(f"{path}: its name says {others}, and it is used for {src} → {tgt}")
    counts = Counts()
    num_replaced = 0
    for source, translation in read_pairs(str(path), src, tgt, counts=counts):
        num_replaced += memory.add(Entry(source, translation, path.name))
    notices += counts.notices
    skipped = sum(counts.skipped.values())
    if skipped:
        notices.append(f"{path}: {skipped:,} of {counts.read:,} pairs with an empty side")
    if num_replaced:
        verb = "replaces" if num_replaced == 1 else "replace"
        notices.append(f"{path}: {counted(num_replaced, 'pair')} {verb} an earlier translation of the same source")


def check_memory_file(path: Path) -> None:
    """Check the name of a file of a memory.

    Raises:
        DataError: There is no such file, or its ending is another one.
    """
    if not path.is_file():
        raise DataError(f"{path}: no such file; a memory is a file of sentence pairs ({', '.join(SUFFIXES)})")
    if form_suffix(path) not in SUFFIXES and file_form(path) != "tsv":
        raise DataError(f"{path}: not a file of sentence pairs; a memory is read from {', '.join(SUFFIXES)}")


def names_languages(path: Path, src: str, tgt: str) -> bool:
    """Return True if a file names these languages: in its columns or as XML does, or a table in its own name.

    Raises:
        DataError: The file cannot be read.
    """
    check_memory_file(path)
    form = file_form(path)
    if form == "tmx" or form == "xliff":
        named = {base(language) for language in xml_languages(form, path)}
        return base(src) in named and base(tgt) in named
    if name_says(path, src, tgt):
        return True
    try:
        columns = find_columns(first_row(form or "tsv", read_lines(path)), src, tgt)
    except ValueError:
        return False
    return columns is not None and columns.named


@dataclass
class MemoryUse:
    """How many sentences a memory has."""

    exact: int = 0
    """Sentences that it translates."""
    near: int = 0
    """Sentences for which it has a near match."""

    def add(self, matches: Iterable[MemoryMatch]) -> None:
        """Count the matches of a text."""
        for match in matches:
            if match.is_exact:
                self.exact += 1
            else:
                self.near += 1

    def summary(self, *, shows_near: bool) -> str:
        """Return the numbers in words."""
        exact = f"memory: {counted(self.exact, 'sentence')} translated by it"
        return f"{exact}, {counted(self.near, 'near match', 'near matches')}" if shows_near else exact
