"""Put the marks of a sentence into its translation.

A span covers the target words that are linked with its source words. Where these are not next to each other, it covers
the run of words with the best balance: words of the span count for it, others against it. Spans that lie in one span of
the source lie in the same span of the translation, and never overlap, so tags stay nested.

In scripts without spaces between words, each character is a word, see `character_spans`.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence

from mtcli.documents.markup.inline import ProtectedText, Tag, unprotected
from mtcli.documents.markup.marks import CLOSING, OPENING, Marked, Node
from mtcli.documents.markup.wrapping import unspaced_at_start
from mtcli.text.placeholders import Offsets, find_protected
from mtcli.text.symbols import is_symbol
from mtcli.text.words import character_spans
from mtcli.translate.translation import Links

OWN_WORD = 1.0
"""What a word of a span adds to the score of a run of words."""

OWN_CHARACTER = 0.01
"""The same for each of its characters: of two words of equal score, the longer one is rarely a function word."""

FREE_WORD = -0.6
"""The same for a word of no span."""

OTHER_WORD = -2.0
"""The same for a word of another span beside it."""

SHORT_WORD = 3
"""Characters of a word that a span does not begin with if a later word in it has the same source word."""

LOOK_BACK = 2
"""Words before a span, such as an article and an adjective, whose translation may be linked with the span."""

_ONLY_CLOSING = "".join(sign for sign in CLOSING if sign not in OPENING)
"""Without quotation marks that also open."""


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
        words: list[Offsets] = []
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

    def words_in(self, interval: Offsets) -> list[tuple[int, Offsets]]:
        """Return the target words in an interval, cut at its ends."""
        found = []
        first = bisect_right(self._tgt_ends, interval[0])
        for word in range(first, len(self.tgt_words)):
            start, end = self.tgt_words[word]
            if start >= interval[1]:
                break
            found.append((word, (max(start, interval[0]), min(end, interval[1]))))
        return found

    def linked_in(self, src_word: int, interval: Offsets) -> list[Offsets]:
        """Return the target words in an interval that are linked with a source word, cut at its ends."""
        cuts = [
            (max(start, interval[0]), min(end, interval[1]))
            for start, end in (self.tgt_words[word] for word in self._tgt_of.get(src_word, ()))
        ]
        return [(start, end) for start, end in cuts if start < end]

    def best_split(self, words: Sequence[tuple[int, Offsets]], src_offset: int) -> int:
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


def _words_with_protected_whole(text: str) -> list[Offsets]:
    """Return the spans of words, joined where a protected text such as `3 km` has several."""
    words: list[Offsets] = []
    protected = find_protected(text)
    for start, end in character_spans(text):
        if words and any(a < start < b for a, b in protected):
            words[-1] = (words[-1][0], end)
        else:
            words.append((start, end))
    return words


def reinsert(marked: Marked, translation: str, links: Links) -> list[str | Tag]:
    """Return a translation with the marks of its source.

    Args:
        marked: The source.
        translation: The translation of `marked.text`, one line.
        links: The word alignment of the two texts.
    """
    layout = Layout(marked.text, translation, links)
    return list(layout.with_marks(marked.root, (0, len(translation))))


class Layout(WordMap):
    """Where spans and points go."""

    def with_marks(self, parent: Node, interval: Offsets) -> Iterator[str | Tag]:
        """Yield an interval of the translation with the marks inside of a node, without its own."""
        position, end = interval
        previous: Node | None = None  # the point that ends here, without a space after it
        for span, node in self._places(parent.children, interval):
            text = self.translation[position : span[0]]
            yield text
            if node.is_point and node.opened is not None:
                space_before, space_after = _spaces_of_point(node, node.opened, self.translation, span[0])
                follows_point_and_space = previous is not None and previous.space_after and not text
                if space_before or follows_point_and_space:
                    yield " "
                yield unprotected(node.opened)
                if space_after:
                    yield " "
                previous = None if space_after else node
            else:
                if node.opened is not None:
                    yield unprotected(node.opened)
                yield from self.with_marks(node, span)
                if node.closed is not None:
                    yield unprotected(node.closed)
                previous = None
            position = max(position, span[1])
            if node.adds_space and self.translation[position : position + 1] == " ":
                position += 1
        yield self.translation[position:end]

    def _places(self, children: Sequence[Node], interval: Offsets) -> list[tuple[Offsets, Node]]:
        """Return the children of a node with their places in an interval of the translation, in its order."""
        taken: list[tuple[Offsets, Node]] = []
        owner = self._owners(children)
        for node in sorted(children, key=_order_of_placing):
            if node.begins_earlier:
                span = (interval[0], self._split(node, interval, taken))
            elif node.ends_later:
                span = (self._split(node, interval, taken), interval[1])
            elif node.is_point or not self.source[node.start : node.end].strip():
                at = self._point(node, interval, taken)
                span = (at, at)
            else:
                span = self._span(node, owner, interval, taken)
            taken.append((span, node))
        source_order = {id(node): number for number, node in enumerate(children)}
        return sorted(taken, key=lambda place: (place[0][0], _rank(place), source_order[id(place[1])]))

    def _owners(self, children: Sequence[Node]) -> dict[int, Node]:
        """Return the child that each source word belongs to: the one with most of its characters."""
        owners: dict[int, Node] = {}
        for word, (start, end) in enumerate(self.src_words):
            shared = [(min(end, node.end) - max(start, node.start), -i) for i, node in enumerate(children)]
            most, index = max(shared, default=(0, 0))
            if most > 0:
                owners[word] = children[-index]
        return owners

    def _split(self, node: Node, interval: Offsets, taken: Sequence[tuple[Offsets, Node]]) -> int:
        """Return where a span that begins or ends in another sentence has its end in this one."""
        is_prefix = node.begins_earlier
        for (_, end), other in taken:
            if other.begins_earlier:
                interval = (max(interval[0], end), interval[1])
        words = self.words_in(interval)
        best = self.best_split(words, node.end if is_prefix else node.start)
        if is_prefix:
            return self._end_of(words[best - 1][1], node) if best else interval[0]
        return self._start_of(words[best][1], node) if best < len(words) else interval[1]

    def _split_at(self, src_offset: int, interval: Offsets) -> int:
        """Return the position that separates the translations of the words before and after an offset."""
        words = self.words_in(interval)
        best = self.best_split(words, src_offset)
        return words[best - 1][1][1] if best else interval[0]

    def _span(
        self, node: Node, owner: dict[int, Node], interval: Offsets, taken: Sequence[tuple[Offsets, Node]]
    ) -> Offsets:
        """Return the part of the translation that a span covers."""
        gaps = _gaps(interval, [span for span, _ in taken])
        within_word = self._span_within_word(node, gaps)
        if within_word is not None:
            return within_word
        best_score = 0.0
        best: list[tuple[int, Offsets]] = []
        for gap in gaps:
            words = self.words_in(gap)
            values = [self._value(node, owner, word) for word, _ in words]
            score, first, last = _best_run(values)
            if score > best_score:
                best_score = score
                best = words[first:last]
        if not best:
            best = self._nearest_free_word(node, gaps)
        if not best:
            at = self._point(node, interval, taken)
            return at, at
        if self._has_translated_start(node):
            best = self._without_function_words(node, best)
        best = self._without_closing_signs(best, node)
        start = self._start_of(best[0][1], node)
        end = self._end_of(best[-1][1], node)
        return (start, end) if start < end else (best[0][1][0], best[-1][1][1])

    def _value(self, node: Node, owner: dict[int, Node], word: int) -> float:
        src = self.src_of[word]
        found = None if src is None else owner.get(src)
        if found is node:
            start, end = self.tgt_words[word]
            return OWN_WORD + OWN_CHARACTER * (end - start)
        if found is None or found.is_point:
            return FREE_WORD
        return OTHER_WORD

    def _has_translated_start(self, node: Node) -> bool:
        """Return True if a target word is linked with the first word of a span.

        Otherwise, the first target word of the span may be its translation, wrongly linked with the next source word.
        """
        first = next((word for word, (_, end) in enumerate(self.src_words) if end > node.start), None)
        return first in self.src_of

    def _without_function_words(self, node: Node, words: list[tuple[int, Offsets]]) -> list[tuple[int, Offsets]]:
        """Drop the first words of a span that only the grammar of the target language needs: `a` of `a la cantante`.

        Such a word is linked with a source word that has a word of its own. It is short; or it is the translation of a
        short word before the span, such as an article, with which no word is linked. In scripts without spaces, most
        words are short, so none is dropped.
        """
        num_missing = self._num_untranslated_before(node)
        while len(words) > 1:
            (first, (start, end)), *others = words
            longest = max((b - a for word, (a, b) in others if self.src_of[word] == self.src_of[first]), default=0)
            is_short = end - start <= SHORT_WORD or 2 * (end - start) <= longest
            if not longest or not (is_short or num_missing) or unspaced_at_start(self.translation[start:end]):
                break
            num_missing = max(0, num_missing - 1)
            words = others
        return words

    def _num_untranslated_before(self, node: Node) -> int:
        """Return the number of short words closely before a span with which no target word is linked."""
        before = [word for word, (_, end) in enumerate(self.src_words) if end <= node.start][-LOOK_BACK:]
        short = [word for word in before if self.src_words[word][1] - self.src_words[word][0] <= SHORT_WORD]
        return sum(word not in self.src_of for word in short)

    def _without_closing_signs(self, words: list[tuple[int, Offsets]], node: Node) -> list[tuple[int, Offsets]]:
        """Drop separate punctuation such as a comma at the beginning, which belongs to the word before the span."""
        if self.source[node.start : node.end].lstrip()[0] in CLOSING:
            return words
        first = 0
        while first < len(words) - 1 and not self.translation[slice(*words[first][1])].strip(_ONLY_CLOSING):
            first += 1
        return words[first:]

    def _nearest_free_word(self, node: Node, gaps: Sequence[Offsets]) -> list[tuple[int, Offsets]]:
        """Return the free word nearest to the position of a span whose words have no translation."""
        words = [word for gap in gaps for word in self.words_in(gap)]
        free = [word for word in words if any(map(str.isalnum, self.translation[word[1][0] : word[1][1]]))]
        if not free:
            return []
        wanted = self.proportional((node.start + node.end) // 2)
        return [min(free, key=lambda word: abs(sum(word[1]) - 2 * wanted))]

    def _span_within_word(self, node: Node, gaps: Sequence[Offsets]) -> Offsets | None:
        """Return the copy of a span that is a part of one word, such as the 2 of H2O."""
        text = self.source[node.start : node.end]
        word = self.word_at(node.start)
        if word is None or node.end > self.src_words[word][1]:
            return None
        start, end = self.src_words[word]
        head, tail = self.source[start : node.start], self.source[node.end : end]
        if not head.strip(OPENING) and not tail.strip(CLOSING):
            return None
        for tgt, (tgt_start, tgt_end) in enumerate(self.tgt_words):
            if self.src_of[tgt] != word:
                continue
            target = self.translation[tgt_start:tgt_end]
            find = target.find if tail else target.rfind
            at = len(head) if target == self.source[start:end] else find(text)
            span = (tgt_start + at, tgt_start + at + len(text))
            if at >= 0 and any(gap[0] <= span[0] and span[1] <= gap[1] for gap in gaps):
                return span
        return None

    def _start_of(self, word: Offsets, node: Node) -> int:
        """Return where a span that begins with a target word begins: behind a quote that is not in the span."""
        text = self.source[node.start : node.end].lstrip()
        start, end = word
        if text and text[0] not in OPENING:
            start += _len_of_head(self.translation[start:end], OPENING)
        return start if start < end else word[0]

    def _end_of(self, word: Offsets, node: Node) -> int:
        """Return where a span that ends with a target word ends: before a full stop that is not in the span."""
        text = self.source[node.start : node.end].rstrip()
        start, end = word
        if text and text[-1] not in CLOSING:
            end -= _len_of_tail(self.translation[start:end], CLOSING)
        return end if start < end else word[1]

    def _point(self, node: Node, interval: Offsets, taken: Sequence[tuple[Offsets, Node]]) -> int:
        """Return the position of a point."""
        at = self._wanted_position(node, interval)
        at = min(max(at, interval[0]), interval[1])
        for (start, end), other in taken:
            if other.begins_earlier:
                at = max(at, end)
            elif other.ends_later:
                at = min(at, start)
            elif start < at < end:
                at = start if node.start <= other.start else end
        return at

    def _wanted_position(self, node: Node, interval: Offsets) -> int:
        """Return the position beside the translation of the word before or after a point."""
        before = [i for i, (start, _) in enumerate(self.src_words) if start < node.start]
        after = [i for i, (start, _) in enumerate(self.src_words) if start >= node.start]
        space_before, space_after = self._spaces_around(node)
        is_between_words = space_before == space_after and not self._is_within_word(node)
        if is_between_words and node.opened is not None and not isinstance(node.opened, ProtectedText):
            return self._split_at(node.start, interval)
        is_glued_to_next = space_before and not space_after and self.source[node.start : node.start + 1] not in CLOSING
        first, second = (after, before[::-1]) if is_glued_to_next else (before[::-1], after)
        for distance in range(max(len(first), len(second))):
            for words in (first, second):
                if distance >= len(words):
                    continue
                position = self._beside(words[distance], node, interval, is_before=words is after)
                if position is not None:
                    return position
        at = self.proportional(node.start)
        return next((start for start, _ in self.tgt_words if start >= at), len(self.translation))

    def _spaces_around(self, node: Node) -> tuple[bool, bool]:
        """Return True for each side of a point, or of an empty span, that has a space."""
        if node.is_point:
            return node.space_before, node.space_after
        before = self.source[: node.start]
        after = self.source[node.end :]
        return not before or before[-1].isspace(), not after or after[0].isspace()

    def _is_within_word(self, node: Node) -> bool:
        """Return True if a node begins between two characters of a word, such as `()` of ``(`code`)``."""
        word = self.word_at(node.start)
        return word is not None and self.src_words[word][0] < node.start

    def _beside(self, src_word: int, node: Node, interval: Offsets, *, is_before: bool) -> int | None:
        """Return the position before or after the target words of a source word; None: it has none."""
        linked = self.linked_in(src_word, interval)
        if not linked:
            return None
        start, end = self.src_words[src_word]
        if is_before:
            return linked[0][0]
        head, tail = self.source[start : min(node.start, end)], self.source[min(node.start, end) : end]
        if tail and not head.strip(OPENING):
            target = self.translation[slice(*linked[0])]
            return linked[0][0] + min(len(head), len(target) - len(target.lstrip(OPENING)))
        target = self.translation[slice(*linked[-1])]
        if tail and target == self.source[start:end]:
            return linked[-1][0] + len(head)
        num_closing = _len_of_tail(target, CLOSING)
        if head and head[-1] in CLOSING:  # some of the signs are before the point
            num_closing = min(num_closing, len(tail))
        return linked[-1][1] - num_closing


def _order_of_placing(node: Node) -> tuple[int, int]:
    """Return the order of siblings: those that begin or end in another sentence, then spans, then points."""
    if node.begins_earlier:
        kind = 0
    elif node.ends_later:
        kind = 1
    else:
        kind = 3 if node.is_point or node.start >= node.end else 2
    return kind, node.start


def _rank(place: tuple[Offsets, Node]) -> int:
    """Return the order of siblings that begin at one position."""
    (start, end), node = place
    if node.begins_earlier:
        return 0
    if node.ends_later:
        return 3
    return 1 if start == end else 2


def _gaps(interval: Offsets, taken: Sequence[Offsets]) -> list[Offsets]:
    """Return the parts of an interval that are free."""
    gaps = []
    start = interval[0]
    for taken_start, taken_end in sorted(taken):
        if taken_start > start:
            gaps.append((start, taken_start))
        start = max(start, taken_end)
    if start < interval[1]:
        gaps.append((start, interval[1]))
    return gaps


def _best_run(values: Sequence[float]) -> tuple[float, int, int]:
    """Return the greatest sum of neighboring values, and the range of the first shortest run that has it."""
    best = (0.0, 0, 0)
    total = 0.0
    first = 0
    for index, value in enumerate(values):
        if total <= 0:
            total = 0.0
            first = index
        total += value
        if total > best[0]:
            best = (total, first, index + 1)
    return best


def _len_of_head(text: str, signs: str) -> int:
    """Return the number of signs that a text begins with; 0 if it has nothing else."""
    return (len(text) - len(text.lstrip(signs))) % len(text)


def _len_of_tail(text: str, signs: str) -> int:
    """Return the number of signs that a text ends with; 0 if it has nothing else."""
    return (len(text) - len(text.rstrip(signs))) % len(text)


def _spaces_of_point(node: Node, mark: Tag, translation: str, at: int) -> tuple[bool, bool]:
    """Return True for each side of a point where it needs a space beside its neighbor in the text."""
    is_text = not mark.is_markup and not (isinstance(mark, ProtectedText) and is_symbol(mark.raw))
    last = translation[at - 1 : at] if at else ""
    following = translation[at : at + 1]
    return (
        _needs_space(last, OPENING, had_space=node.space_before, is_text=is_text),
        _needs_space(following, CLOSING, had_space=node.space_after, is_text=is_text),
    )


def _needs_space(neighbor: str, glued: str, *, had_space: bool, is_text: bool) -> bool:
    """Return True if a space is missing between a point and the character beside it, "" at the end of the text."""
    if not neighbor or neighbor.isspace() or unspaced_at_start(neighbor):
        return False
    if neighbor in glued and not (neighbor in OPENING and neighbor in CLOSING):
        return False
    return had_space or (is_text and neighbor.isalnum())
