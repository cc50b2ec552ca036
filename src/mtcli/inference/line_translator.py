"""Lines of text through a search, whatever computes it: windows, batches by length, and the order kept.

Needs no PyTorch, so that an exported model starts at once. `translate.Translator` searches with PyTorch,
`engine.Engine` with CTranslate2.
"""

import logging
import math
import re
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TypeVar

from mtcli.config.schema import DecodeConfig
from mtcli.data.tokenizer import RESERVED, SPECIALS, Tokenizer
from mtcli.errors import UsageError
from mtcli.limits import BEAM_SIZE
from mtcli.runtime.progress import Progress

log = logging.getLogger(__name__)

R = TypeVar("R")


WINDOW = 4096
"""Lines that are held, sorted and translated together, so that a file of any size fits in memory."""

LONGEST = 2000
"""Pieces of a line that are read, several times those of any sentence; time and memory grow with their square."""

LOGITS = 24
"""Pieces that take as much memory in a search as what a row takes whatever its length."""

LOOP_UNIT = 100
"""Characters of a repetition's unit, at most: longer ones would make the search for them slower than translating."""

LOOP_WINDOW = 10_000
"""Characters of a text that are searched for a repetition."""

LOOP_GRAM = 6
"""A stretch of `LOOP_LENGTH` characters that repeats a unit three times has some n-gram of this length twice."""

LOOP = re.compile(rf"(.{{1,{LOOP_UNIT}}}?)\1{{2,}}")
"""Something three times in a row or more."""

LOOP_LENGTH = 8
"""Characters of a loop worth a warning, letters among them. Of 229,000 human translations (Multi30K, Tatoeba) none has
such a loop, but 20 in a thousand of a weak model's."""

WIDER = (2, 4)
"""Further searches where a search finds too few different texts: as many times its beam, or its draws."""

SHOWN = 10
"""Line numbers that one warning names."""

Links = tuple[tuple[int, int], ...]
"""Source word and target word, in the order of the source; see `align`."""


def pharaoh(links: Links) -> str:
    """`0-0 1-2`: source word and target word of each link."""
    return " ".join(f"{src}-{tgt}" for src, tgt in links)


@dataclass(frozen=True)
class Options:
    """How to search."""

    beam_size: int = 4
    length_penalty: float = 0.6
    n_best: int = 1
    """Different translations of each line; see `LineTranslator._candidates`."""
    max_length: int | None = None
    """Most pieces of a translation; none: those of the source and `max_extra` more."""
    max_extra: int = 50
    prefix: str = ""
    """Text that every translation begins with."""
    no_repeat_ngram: int = 0
    """No translation has the same run of so many pieces twice, but for what `prefix` gives it; 0: it may."""
    sample: bool = False
    """Draw each piece at random instead of searching."""
    temperature: float = 1.0
    top_k: int = 0
    """Draw among so many of the likeliest pieces; 0: all."""
    seed: int = 1
    alignments: bool = False
    """Say which source words each word of a translation comes from."""

    @classmethod
    def of(cls, decode: DecodeConfig) -> "Options":
        """The defaults of a model."""
        return cls(decode.beam_size, decode.length_penalty, max_extra=decode.max_extra)


@dataclass(frozen=True)
class Candidate:
    """One translation of a line: its text, log P(text | line) in nats, and its score (higher is better).

    Several sequences of tokens may spell one text. Its probability is the sum over those that the search found; its
    score is that log-probability divided by the length penalty of the most likely of them.
    """

    text: str
    log_prob: float
    score: float
    alignment: Links = ()
    """Source word and target word, where the options ask for it; see `align`."""
    draws: int = 1
    """How often sampling drew it."""


@dataclass(frozen=True)
class Draft:
    """One hypothesis of a search: text, target token ids, log-probability in nats and score."""

    text: str
    ids: tuple[int, ...]
    log_prob: float
    score: float
    draws: int = 1


@dataclass(frozen=True)
class Translation:
    """One line and its translations, the best first; a blank line has one, which is blank."""

    source: str
    candidates: tuple[Candidate, ...]

    @property
    def text(self) -> str:
        """The best translation."""
        return self.candidates[0].text


class LineTranslator(ABC):
    """A tokenizer, and a search that a subclass adds."""

    def __init__(self, tokenizer: Tokenizer, longest_src: int):
        """Take the tokenizer; `longest_src` is the longest source in training, in pieces."""
        self.tokenizer, self.longest_src = tokenizer, longest_src

    def translate(
        self,
        lines: Iterable[str],
        options: Options,
        *,
        total: int | None = None,
        warn: bool = True,
        quiet: bool = False,
        ready: Callable[[], bool] = lambda: True,
        share: tuple[int, int] = (0, 1),
    ) -> Iterator[Translation]:
        """One translation for each line, in their order; a blank line gives a blank one without asking the model.

        Args:
            lines: Source text; read in windows, so an endless stream does.
            options: How to search.
            total: Number of lines, for the progress bar.
            warn: Say so of lines unlike those of training.
            quiet: Without a progress bar.
            ready: Whether the next line is there; where it is not, those before it are not kept waiting.
            share: (n, of): these lines are window n of a file, and every window that comes a multiple of `of` later.

        Raises:
            UsageError: The prefix has more than `LONGEST` tokens.
        """
        self._check_prefix(options.prefix)
        lines, first = iter(lines), share[0] * WINDOW
        with Progress("translating", total=total, unit="lines", quiet=quiet) as bar:
            while window := _window(lines, ready):
                ids = self.tokenizer.encode_src(window)
                if warn:
                    self._warn_of(window, ids, first)
                beginnings = list(map(self._beginning, window, ids))
                read, ids = [line for line, _ in beginnings], [row for _, row in beginnings]
                found: list[Translation | None] = [None] * len(window)

                def search(
                    rows: list[int], read: list[str] = read, ids: list[list[int]] = ids, first: int = first
                ) -> list[tuple[Candidate, ...]]:
                    return self._candidates(read, ids, rows, options, first)

                batches = list(self._batches(read, ids, options))
                for rows, several in zip(batches, self._map(search, batches, self.workers(options)), strict=True):
                    for row, best in zip(rows, several, strict=True):
                        found[row] = Translation(window[row], best)
                        bar.update()
                whole = [
                    t or Translation(line, (Candidate("", 0.0, 0.0),)) for line, t in zip(window, found, strict=True)
                ]
                if warn:
                    _warn_of_loops(whole, first, options)
                yield from whole
                first += len(window) if share == (0, 1) else share[1] * WINDOW

    def _check_prefix(self, prefix: str) -> None:
        """Refuse a prefix for which the search would take hours: every token of it is a step of the decoder."""
        tokens = len(self.tokenizer.encode_tgt([prefix])[0])
        if tokens > LONGEST:
            raise UsageError(f"the prefix has {tokens} tokens; a translation takes {LONGEST} of them at most")

    def _warn_of(self, window: Sequence[str], ids: Sequence[Sequence[int]], first: int) -> None:
        """Warn of the lines of a window that are cut, longer than any in training, or mostly bytes."""
        numbered = list(enumerate(zip(window, ids, strict=True), first + 1))
        cut = [n for n, (_, row) in numbered if len(row) > LONGEST]
        if cut:
            log.warning("%s: only the first %d pieces are read of so long a line", _named(cut, len(cut)), LONGEST)
        longest = self.longest_src
        if long := [n for n, (_, row) in numbered if longest < len(row) <= LONGEST]:
            more = "more pieces than any source in training (%d): the translation may be poor"
            log.warning(f"%s: {more}", _named(long), longest)
        if strange := [n for n, (line, row) in numbered if line.strip() and 2 * sum(map(_is_byte, row)) > len(row)]:
            log.warning("%s: mostly in characters that training never saw: expect little", _named(strange))

    def _beginning(self, line: str, ids: list[int]) -> tuple[str, list[int]]:
        """As much of a line as is read, and its pieces."""
        while len(ids) > LONGEST:
            line = line[: len(line) * LONGEST // len(ids)]
            (ids,) = self.tokenizer.encode_src([line])
        return line, ids

    def _batches(self, window: Sequence[str], ids: Sequence[Sequence[int]], options: Options) -> Iterator[list[int]]:
        """Rows of like length, longest first, so that too large a batch fails at once; blank lines in none.

        As few batches as the budget allows, since the last steps of each, with few rows left, cost nearly as much as
        the first; and of as many pieces each, so that no worker waits for long.
        """
        rows = sorted((r for r, line in enumerate(window) if line.strip()), key=lambda r: -len(ids[r]))
        pieces = list(accumulate((len(ids[r]) + 1 for r in rows), initial=0))
        budget, workers, first = max(1, self._budget(options)), self.workers(options), 0
        share = pieces[-1] / (workers * max(1, math.ceil(pieces[-1] / (workers * budget))))
        while first < len(rows):
            size = max(1, budget // (len(ids[rows[first]]) + 1 + LOGITS))
            end = min(first + size, bisect_left(pieces, pieces[first] + share))
            yield rows[first:end]
            first = end

    def workers(self, options: Options) -> int:
        """Batches that are searched at a time."""
        return 1

    def _map(self, search: Callable[[list[int]], R], batches: list[list[int]], workers: int) -> Iterator[R]:
        """What the search finds for each batch, in their order."""
        return map(search, batches)

    @abstractmethod
    def _budget(self, options: Options) -> int:
        """Rows × width of one batch; see `_batches`."""

    def _candidates(
        self, window: Sequence[str], ids: Sequence[Sequence[int]], rows: Sequence[int], options: Options, first: int
    ) -> list[tuple[Candidate, ...]]:
        """The translations of these rows of a window, of which `first` is the number of the first line.

        The first translation is the best that the search finds with the beam of the options, whatever `n_best` is.
        Where that search finds fewer than `n_best` different texts, wider ones add to them; their texts may score
        higher than the first. The others are in the order of their scores, samples in that of their first draw.
        """
        found = [_distinct(drafts, options) for drafts in self._drafts(window, ids, rows, options, first)]
        for wider in _wider(options):
            short = [at for at, drafts in enumerate(found) if len(drafts) < options.n_best]
            size = max(1, len(rows) * options.beam_size // wider.beam_size)  # as much memory as the first search
            for start in range(0, len(short), size):
                part = short[start : start + size]
                more = self._drafts(window, ids, [rows[at] for at in part], wider, first)
                for at, drafts in zip(part, more, strict=True):
                    found[at] = _added(found[at], _distinct(drafts, options), options)
        best = [drafts[: options.n_best] for drafts in found]
        links: list[list[Links]] = [[()] * len(drafts) for drafts in best]
        if options.alignments:
            links = self._links(window, ids, rows, best)
        return [
            tuple(
                Candidate(draft.text, draft.log_prob, draft.score, link, draft.draws)
                for draft, link in zip(drafts, linked, strict=True)
            )
            for drafts, linked in zip(best, links, strict=True)
        ]

    @abstractmethod
    def _drafts(
        self, window: Sequence[str], ids: Sequence[Sequence[int]], rows: Sequence[int], options: Options, first: int
    ) -> list[list[Draft]]:
        """Every hypothesis that one search finds for each of these rows, best first, or `n_best` samples."""

    def _links(
        self, window: Sequence[str], ids: Sequence[Sequence[int]], rows: Sequence[int], best: Sequence[Sequence[Draft]]
    ) -> list[list[Links]]:
        """The word alignment of each of these translations."""
        raise NotImplementedError


def _distinct(drafts: Sequence[Draft], options: Options) -> list[Draft]:
    """One draft for each text, with the probabilities of its token sequences added up; the first text stays first."""
    by_text: dict[str, list[Draft]] = {}
    for draft in drafts:
        by_text.setdefault(draft.text, []).append(draft)
    best, *others = (_merged(same) for same in by_text.values())
    return [best, *(others if options.sample else _by_score(others))]


def _merged(same: Sequence[Draft]) -> Draft:
    """One draft of those of one text; a token sequence that was drawn several times has its probability once."""
    different = {draft.ids: draft for draft in same}
    if len(different) == 1:
        return replace(same[0], draws=len(same))
    best = max(different.values(), key=lambda draft: draft.log_prob)
    ratio = math.fsum(math.exp(draft.log_prob - best.log_prob) for draft in different.values())
    log_prob = min(0.0, best.log_prob + math.log(ratio))  # rounding may take the sum above 1
    penalty = best.log_prob / best.score if best.score else 1.0
    return replace(best, log_prob=log_prob, score=log_prob / penalty, draws=len(same))


def _by_score(drafts: Iterable[Draft]) -> list[Draft]:
    return sorted(drafts, key=lambda draft: -draft.score)


def _wider(options: Options) -> Iterator[Options]:
    """Options of the searches that follow while a search finds too few different texts."""
    if options.n_best == 1:
        return
    for factor in WIDER:
        if options.sample:
            yield replace(options, n_best=factor * options.n_best)
        else:
            beam_size = min(factor * max(options.n_best, options.beam_size), int(BEAM_SIZE.max))
            yield replace(options, beam_size=beam_size)


def _added(found: Sequence[Draft], more: Sequence[Draft], options: Options) -> list[Draft]:
    """The texts of both searches; draws begin with those of the first search, so the second has all of them."""
    if options.sample:
        return list(more)
    texts = {draft.text for draft in found}
    return [found[0], *_by_score([*found[1:], *(draft for draft in more if draft.text not in texts)])]


def loop_in(text: str) -> str:
    """The first stretch of a text that says the same three times in a row or more; empty: there is none.

    Only the first `LOOP_WINDOW` characters are searched, for units of at most `LOOP_UNIT` characters.
    """
    text = f" {text[:LOOP_WINDOW]}"  # so that the first word repeats itself like any other
    starts = range(len(text) - LOOP_GRAM + 1)
    if len({text[at : at + LOOP_GRAM] for at in starts}) == len(starts):
        return ""  # as in most lines, at a tenth of the time that the expression takes
    for found in LOOP.finditer(text):
        if len(found[0]) >= LOOP_LENGTH and any(map(str.isalpha, found[1])):
            return found[0].strip()
    return ""


def _is_byte(piece: int) -> bool:
    return len(SPECIALS) <= piece < len(RESERVED)


def _named(numbers: Sequence[int], shown: int | None = None) -> str:
    """`line 7`, or `lines 7, 8 and 12 more`."""
    shown = shown or SHOWN
    others = f" and {len(numbers) - shown} more" if len(numbers) > shown else ""
    return f"line{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers[:shown]))}{others}"


def _warn_of_loops(translations: Sequence[Translation], first: int, options: Options) -> None:
    """Warn of lines whose translation repeats itself, where the line does not."""
    found = [(n, loop) for n, t in enumerate(translations, first + 1) if (loop := loop_in(t.text))]
    numbers = [n for n, _ in found if not loop_in(translations[n - first - 1].source)]
    if numbers:
        log.warning(
            "%s: the translation repeats itself (%.40s); --no-repeat-ngram %d forbids that",
            _named(numbers),
            dict(found)[numbers[0]],
            max(1, (options.no_repeat_ngram or 4) - 1),
        )


def _window(lines: Iterator[str], ready: Callable[[], bool]) -> list[str]:
    """The next lines, WINDOW at most; fewer where the next is not ready yet."""
    window: list[str] = []
    for line in lines:
        window.append(line)
        if len(window) == WINDOW or not ready():
            break
    return window
