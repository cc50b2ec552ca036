"""The words of a source and its translation, and which of them belong together.

In scripts without spaces between words, each character is a word, see `character_spans`.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence

from mtcli.text.placeholders import Span, find_protected
from mtcli.text.words import character_spans
from mtcli.translate.translation import Links


def diagonal_links(source: str, translation: str) -> Links:
    """Return links for a search without alignments: equal words that occur once, and otherwise equal positions."""
    src_words = [source[start:end] for start, end in character_spans(source)]
    tgt_words = [translation[start:end] for start, end in character_spans(translation)]
    src_counts = Counter(src_words)
    tgt_counts = Counter(tgt_words)
    links = []
    for tgt, word in enumerate(tgt_words):
        src = (2 * tgt + 1) * len(src_words) // (2 * len(tgt_words))
        if src_counts[word] == 1 and tgt_counts[word] == 1:
            src = src_words.index(word)
        if src_words:
            links.append((src, tgt))
    return tuple(sorted(links))


class WordMap:
    """The words of a source and its translation.

    Args:
        source: The source, one line.
        translation: The translation, one line.
        links: Their word alignment.
    """

    def __init__(self, source: str, translation: str, links: Links) -> None:
        self.source = source
        self.translation = translation
        self.src_words = character_spans(source)
        self.tgt_words = _words_with_protected_whole(translation)
        self.src_of = self._src_of_each_word(links)
        self._join_characters()
        self._tgt_ends = [end for _, end in self.tgt_words]
        self._tgt_of: dict[int, list[int]] = {}
        for word, src in enumerate(self.src_of):
            if src is not None:
                self._tgt_of.setdefault(src, []).append(word)

    def _src_of_each_word(self, links: Links) -> list[int | None]:
        """Return the source word of each target word. Words may be longer here than in the alignment."""
        single = character_spans(self.translation)
        src_of_single = {tgt: src for src, tgt in links if src < len(self.src_words)}
        src_of: list[int | None] = [None] * len(self.tgt_words)
        ends = [end for _, end in self.tgt_words]
        for number, (start, _) in enumerate(single):
            word = bisect_right(ends, start)
            if src_of[word] is None:
                src_of[word] = src_of_single.get(number)
        for word, span in enumerate(self.tgt_words):
            copied = self._source_of_copy(self.translation[span[0] : span[1]])
            if copied is not None:
                src_of[word] = copied
        return src_of

    def _join_characters(self) -> None:
        """Join adjacent target words, which are characters of a script without spaces, if they have one source word."""
        words: list[Span] = []
        src_of: list[int | None] = []
        for (start, end), src in zip(self.tgt_words, self.src_of, strict=True):
            if words and words[-1][1] == start and src is not None and src_of[-1] == src:
                words[-1] = (words[-1][0], end)
            else:
                words.append((start, end))
                src_of.append(src)
        self.tgt_words = words
        self.src_of = src_of

    def _source_of_copy(self, text: str) -> int | None:
        """Return the source word at which a protected text begins, if it is there exactly once."""
        protected = find_protected(text)
        if not protected:
            return None
        start, end = protected[0]
        if self.source.count(text[start:end]) != 1:
            return None
        at = self.source.index(text[start:end])
        return next((i for i, (_, word_end) in enumerate(self.src_words) if at < word_end), None)

    def words_in(self, interval: Span) -> list[tuple[int, Span]]:
        """Return the target words in an interval, cut at its ends."""
        found = []
        first = bisect_right(self._tgt_ends, interval[0])
        for word in range(first, len(self.tgt_words)):
            start, end = self.tgt_words[word]
            if start >= interval[1]:
                break
            found.append((word, (max(start, interval[0]), min(end, interval[1]))))
        return found

    def linked_in(self, src_word: int, interval: Span) -> list[Span]:
        """Return the target words in an interval that are linked with a source word, cut at its ends."""
        cuts = [
            (max(start, interval[0]), min(end, interval[1]))
            for start, end in (self.tgt_words[word] for word in self._tgt_of.get(src_word, ()))
        ]
        return [(start, end) for start, end in cuts if start < end]

    def best_split(self, words: Sequence[tuple[int, Span]], src_offset: int) -> int:
        """Return the number of words that are before a split, so that as few as possible are on the wrong side."""
        balance = [0]
        for word, _ in words:
            src = self.src_of[word]
            is_before = src is not None and self.src_words[src][0] < src_offset
            balance.append(balance[-1] + (1 if is_before else -1))
        return balance.index(max(balance))

    def word_at(self, offset: int) -> int | None:
        """Return the source word that has a character at an offset."""
        return next((i for i, (start, end) in enumerate(self.src_words) if start <= offset < end), None)

    def proportional(self, src_offset: int) -> int:
        """Return the offset in the translation that is as far from its beginning as one in the source."""
        return src_offset * len(self.translation) // max(1, len(self.source))


def _words_with_protected_whole(text: str) -> list[Span]:
    """Return the spans of words, joined where a protected text such as `3 km` has several."""
    words: list[Span] = []
    protected = find_protected(text)
    for start, end in character_spans(text):
        if words and any(a < start < b for a, b in protected):
            words[-1] = (words[-1][0], end)
        else:
            words.append((start, end))
    return words
