"""Translate lines of text, with any library that searches: windows, batches of similar length, n-best lists, warnings.

`pytorch_backend.Translator` searches with PyTorch, `ctranslate2_backend.Engine` with CTranslate2. This module does not
import PyTorch, so that an exported model loads quickly.
"""

import logging
import math
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TypeVar

from mtcli.config.schema import DecodeConfig, LengthNormalization
from mtcli.data.tokenizer import Tokenizer
from mtcli.errors import UsageError
from mtcli.inference.repetitions import repetition_in
from mtcli.limits import BEAM_SIZE
from mtcli.runtime.progress import Progress

log = logging.getLogger(__name__)

R = TypeVar("R")

WINDOW = 4096
"""Lines that are read, sorted by length and translated together. A file of any size fits in memory."""

MAX_LINE_TOKENS = 2000
"""Tokens of a line that are translated, several times those of any sentence. Time and memory grow with their square."""

ROW_OVERHEAD = 24
"""Tokens that take as much memory in a search as a row takes in addition to its tokens, mostly its logits."""

WIDER_FACTORS = (2, 4)
"""Factors of the beam size, or of the number of draws, of further searches where the first finds too few texts."""

USEFUL_NGRAM = 3
"""The n-gram size that the warning about repetitions suggests first."""

MAX_LINES_NAMED = 10
"""Line numbers that one warning names."""

Links = tuple[tuple[int, int], ...]
"""Word alignment: indices of a source word and a target word, sorted. See `alignment.align`."""


def pharaoh(links: Links) -> str:
    """Links in the Pharaoh format, `0-0 1-2`: source word and target word."""
    return " ".join(f"{src}-{tgt}" for src, tgt in links)


@dataclass(frozen=True)
class Options:
    """Options of a search."""

    beam_size: int = 4
    length_penalty: float = 0.6
    length_normalization: LengthNormalization = "wu"
    """See `inference.length`."""
    n_best: int = 1
    """Number of different translations of each line. See `LineTranslator._candidates`."""
    max_length: int | None = None
    """Maximum number of tokens of a translation; None: the number of the source plus `max_extra`."""
    max_extra: int = 50
    """See `max_length`."""
    prefix: str = ""
    """Text that every translation begins with."""
    no_repeat_ngram: int = 0
    """Block n-grams of this many tokens from repeating, except inside `prefix`; 0 disables."""
    sample: bool = False
    """Draw tokens at random instead of searching."""
    temperature: float = 1.0
    top_k: int = 0
    """Draw from this many most likely tokens; 0: from all."""
    seed: int = 1
    to: str = ""
    """Target language of a multilingual model, see `Tokenizer.tag_of`. Empty: the one whose tag a line begins with."""
    alignments: bool = False
    """Align the words of each translation with those of its source."""

    @classmethod
    def of(cls, decode: DecodeConfig) -> "Options":
        """The default options of a model."""
        return cls(decode.beam_size, decode.length_penalty, decode.length_normalization, max_extra=decode.max_extra)


@dataclass(frozen=True)
class Candidate:
    """One translation of a line.

    Several sequences of tokens may decode to one text. The probability of a text is the sum over the sequences that
    the search found. Its score is the logarithm of this sum, divided by the length penalty of the most likely sequence.
    """

    text: str
    log_prob: float
    """log P(text | line) in nats."""
    score: float
    """By which translations are ranked, best first."""
    alignment: Links = ()
    """Filled if the options ask for it."""
    draws: int = 1
    """How often sampling drew this text."""


@dataclass(frozen=True)
class Draft:
    """One hypothesis of a search."""

    text: str
    ids: tuple[int, ...]
    """Target ids without `</s>`."""
    log_prob: float
    """In nats."""
    score: float
    draws: int = 1


@dataclass(frozen=True)
class Translation:
    """A line and its translations, best first. A blank line has one translation, an empty text."""

    source: str
    candidates: tuple[Candidate, ...]

    @property
    def text(self) -> str:
        """The best translation."""
        return self.candidates[0].text


@dataclass(frozen=True)
class Window:
    """Lines that are translated together, shortened to `MAX_LINE_TOKENS`."""

    first: int
    """The number of the first line in the input, from 0."""
    lines: Sequence[str]
    ids: Sequence[Sequence[int]]
    """Source ids of each line without `</s>`."""


_BLANK: tuple[Candidate, ...] = (Candidate("", 0.0, 0.0),)


class LineTranslator(ABC):
    """A tokenizer, and the search that a subclass implements."""

    def __init__(self, tokenizer: Tokenizer, longest_src: int):
        """Initialise it.

        Args:
            tokenizer: The model's.
            longest_src: Tokens of the longest source in training; longer lines cause a warning.
        """
        self.tokenizer = tokenizer
        self.longest_src = longest_src

    def translate(
        self,
        lines: Iterable[str],
        options: Options,
        *,
        total: int | None = None,
        warn: bool = True,
        quiet: bool = False,
        ready: Callable[[], bool] = lambda: True,
        rank: int = 0,
        num_ranks: int = 1,
    ) -> Iterator[Translation]:
        """Translate lines, in their order. A blank line has an empty translation.

        Args:
            lines: Source text. They are read in windows, so there may be any number of them.
            options: Options of the search.
            total: Number of lines, for the progress bar.
            warn: Warn about lines unlike those of training, and about translations that repeat themselves.
            quiet: Show no progress bar.
            ready: Returns True if the next line is available. If not, the lines so far are translated without it.
            rank: `lines` are the windows `rank`, `rank + num_ranks`, `rank + 2 · num_ranks`, … of a file. The numbers
                of the lines depend on it, which warnings name and sampling uses.
            num_ranks: See `rank`.

        Raises:
            UsageError: The prefix has more than `MAX_LINE_TOKENS` tokens, or the model has no such target language.
        """
        self._check_prefix(options.prefix)
        if options.to:
            self.tokenizer.tag_of(options.to)
        remaining = iter(lines)
        first = rank * WINDOW
        with Progress("translating", total=total, unit="lines", quiet=quiet) as bar:
            while window := _next_lines(remaining, ready):
                yield from self._translate_window(window, first, options, warn=warn, bar=bar)
                first += len(window) if num_ranks == 1 else num_ranks * WINDOW

    def _translate_window(
        self, lines: Sequence[str], first: int, options: Options, *, warn: bool, bar: Progress
    ) -> list[Translation]:
        """Translate the lines of one window; `first` is the number of the first, from 0."""
        ids = self.tokenizer.encode_src(lines)
        if warn:
            self._warn_about_lines(lines, ids, first)
            self._warn_about_missing_tags(lines, ids, first, options)
        window = self._tagged(self._shortened(Window(first, lines, ids)), options)

        def search(rows: list[int]) -> list[tuple[Candidate, ...]]:
            return self._candidates(window, rows, options)

        candidates = [_BLANK] * len(lines)
        batches = list(self._batches(window, options))
        for rows, found in zip(batches, self._map(search, batches, options), strict=True):
            for row, candidates_of_row in zip(rows, found, strict=True):
                candidates[row] = candidates_of_row
                bar.update()
        translations = [Translation(*pair) for pair in zip(lines, candidates, strict=True)]
        if warn:
            _warn_about_repetitions(translations, first, options)
        return translations

    def _check_prefix(self, prefix: str) -> None:
        """Refuse a prefix that would take hours: every token of it is a step of the decoder."""
        tokens = len(self.tokenizer.encode_tgt([prefix])[0])
        if tokens > MAX_LINE_TOKENS:
            raise UsageError(f"the prefix has {tokens} tokens; a prefix may have {MAX_LINE_TOKENS} tokens at most")

    def _warn_about_lines(self, lines: Sequence[str], ids: Sequence[Sequence[int]], first: int) -> None:
        """Warn about lines that are shortened, longer than any in training, or mostly bytes or unknown text."""
        shortened = []
        long = []
        unknown = []
        unseen = {*self.tokenizer.src_byte_of, self.tokenizer.unknown}
        for number, (line, row) in enumerate(zip(lines, ids, strict=True), first + 1):
            if len(row) > MAX_LINE_TOKENS:
                shortened.append(number)
            elif len(row) > self.longest_src:
                long.append(number)
            num_unseen = sum(token in unseen for token in row)
            if line.strip() and 2 * num_unseen > len(row):
                unknown.append(number)
        if shortened:
            numbers = _line_numbers(shortened, max_named=len(shortened))
            log.warning("%s: too long; only the first %d tokens are translated", numbers, MAX_LINE_TOKENS)
        if long:
            message = "%s: more tokens than any source in training (%d): the translation may be poor"
            log.warning(message, _line_numbers(long), self.longest_src)
        if unknown:
            message = "%s: most characters did not occur in training: the translation will be poor"
            log.warning(message, _line_numbers(unknown))

    def _warn_about_missing_tags(
        self, lines: Sequence[str], ids: Sequence[Sequence[int]], first: int, options: Options
    ) -> None:
        """Warn about lines that do not tell a multilingual model its target language."""
        tags = set(self.tokenizer.tags.values())
        if not tags or options.to:
            return
        numbers = []
        for number, (line, row) in enumerate(zip(lines, ids, strict=True), first + 1):
            if line.strip() and row and row[0] not in tags:
                numbers.append(number)
        if numbers:
            told = "%s: no target language, and this model has several (%s): give one with --to"
            log.warning(told, _line_numbers(numbers), ", ".join(sorted(self.tokenizer.tags)[:MAX_LINES_NAMED]))

    def _tagged(self, window: Window, options: Options) -> Window:
        """Put the tag of the target language before every line that does not begin with one."""
        if not options.to:
            return window
        tag = self.tokenizer.tag_of(options.to)
        tags = set(self.tokenizer.tags.values())
        ids = [row if row and row[0] in tags else [tag, *row] for row in window.ids]
        return Window(window.first, window.lines, ids)

    def _shortened(self, window: Window) -> Window:
        """Shorten each line to a beginning of at most `MAX_LINE_TOKENS` tokens."""
        shortened = [self._shortened_line(*pair) for pair in zip(window.lines, window.ids, strict=True)]
        return Window(window.first, [line for line, _ in shortened], [ids for _, ids in shortened])

    def _shortened_line(self, line: str, ids: Sequence[int]) -> tuple[str, Sequence[int]]:
        while len(ids) > MAX_LINE_TOKENS:
            line = line[: len(line) * MAX_LINE_TOKENS // len(ids)]
            (ids,) = self.tokenizer.encode_src([line])
        return line, ids

    def _batches(self, window: Window, options: Options) -> Iterator[list[int]]:
        """Divide the rows of a window, without blank lines, into batches of similar length.

        The longest come first, so that a batch that is too large fails at once. There are as few batches as the budget
        allows, because the last steps of a batch, with few rows left, cost nearly as much as its first. They have
        equally many tokens, so that no thread waits long for another.
        """
        lengths = [len(ids) + 1 for ids in window.ids]  # with </s>
        rows = [row for row, line in enumerate(window.lines) if line.strip()]
        rows.sort(key=lambda row: -lengths[row])
        budget = max(1, self._budget(options))
        tokens_before = list(accumulate((lengths[row] for row in rows), initial=0))
        total = tokens_before[-1]
        num_threads = self.num_threads(options)
        num_batches = num_threads * max(1, math.ceil(total / (num_threads * budget)))
        first = 0
        while first < len(rows):
            most_rows = max(1, budget // (lengths[rows[first]] + ROW_OVERHEAD))
            end_of_share = bisect_left(tokens_before, tokens_before[first] + total / num_batches)
            end = min(first + most_rows, end_of_share)
            yield rows[first:end]
            first = end

    def num_threads(self, options: Options) -> int:
        """The number of batches that `_map` searches at the same time."""
        return 1

    def _map(self, search: Callable[[list[int]], R], batches: Sequence[list[int]], options: Options) -> Iterator[R]:
        """The result of `search` for each batch, in order."""
        return map(search, batches)

    @abstractmethod
    def _budget(self, options: Options) -> int:
        """The maximum rows × tokens of one batch."""

    def _candidates(self, window: Window, rows: Sequence[int], options: Options) -> list[tuple[Candidate, ...]]:
        """Search the `n_best` translations of some rows of a window.

        The first translation is the best that the beam of the options finds, whatever `n_best` is. If this beam finds
        fewer than `n_best` different texts, wider searches add to them. Their texts come after the first, even if they
        have a higher score. The other translations are sorted by score, those of sampling by their first draw.
        """
        found = [_distinct(drafts, options) for drafts in self._drafts(window, rows, options)]
        for wider in _wider_options(options):
            self._search_again(window, rows, options, wider, found)
        best = [drafts[: options.n_best] for drafts in found]
        links: list[list[Links]] = [[()] * len(drafts) for drafts in best]
        if options.alignments:
            links = self._links(window, rows, best)
        candidates = []
        for drafts, links_of_drafts in zip(best, links, strict=True):
            pairs = zip(drafts, links_of_drafts, strict=True)
            candidates.append(tuple(Candidate(d.text, d.log_prob, d.score, link, d.draws) for d, link in pairs))
        return candidates

    def _search_again(
        self, window: Window, rows: Sequence[int], options: Options, wider: Options, found: list[list[Draft]]
    ) -> None:
        """Search again with wider options where fewer than `n_best` texts are found, and add to `found` in place."""
        lacking = [i for i, drafts in enumerate(found) if len(drafts) < options.n_best]
        size = max(1, len(rows) * options.beam_size // wider.beam_size)  # takes as much memory as the first search
        for start in range(0, len(lacking), size):
            part = lacking[start : start + size]
            more = self._drafts(window, [rows[i] for i in part], wider)
            for i, drafts in zip(part, more, strict=True):
                found[i] = _combined(found[i], _distinct(drafts, options), options)

    @abstractmethod
    def _drafts(self, window: Window, rows: Sequence[int], options: Options) -> list[list[Draft]]:
        """All hypotheses that one search finds for each of these rows, best first, or `n_best` samples."""

    def _links(self, window: Window, rows: Sequence[int], best: Sequence[Sequence[Draft]]) -> list[list[Links]]:
        """The word alignment of each of these translations."""
        raise NotImplementedError


def _distinct(drafts: Sequence[Draft], options: Options) -> list[Draft]:
    """Merge the drafts of each text. The first text stays first; the others are sorted by score unless sampled."""
    by_text: dict[str, list[Draft]] = {}
    for draft in drafts:
        by_text.setdefault(draft.text, []).append(draft)
    first, *others = (_merged(same) for same in by_text.values())
    return [first, *(others if options.sample else _by_score(others))]


def _merged(same: Sequence[Draft]) -> Draft:
    """Merge drafts of one text: add up the probabilities of their token sequences, each counted once."""
    by_ids = {draft.ids: draft for draft in same}
    if len(by_ids) == 1:
        return replace(same[0], draws=len(same))
    best = max(by_ids.values(), key=lambda draft: draft.log_prob)
    ratio = math.fsum(math.exp(draft.log_prob - best.log_prob) for draft in by_ids.values())
    log_prob = min(0.0, best.log_prob + math.log(ratio))  # rounding may take the sum above 1
    penalty = best.log_prob / best.score if best.score else 1.0
    return replace(best, log_prob=log_prob, score=log_prob / penalty, draws=len(same))


def _by_score(drafts: Iterable[Draft]) -> list[Draft]:
    return sorted(drafts, key=lambda draft: -draft.score)


def _wider_options(options: Options) -> Iterator[Options]:
    """The options of the searches that follow where a search finds too few different texts."""
    if options.n_best == 1:
        return
    for factor in WIDER_FACTORS:
        if options.sample:
            yield replace(options, n_best=factor * options.n_best)
        else:
            beam_size = min(factor * max(options.n_best, options.beam_size), int(BEAM_SIZE.max))
            yield replace(options, beam_size=beam_size)


def _combined(found: Sequence[Draft], more: Sequence[Draft], options: Options) -> list[Draft]:
    """The texts of two searches, the first text of `found` first. More samples include those of `found`."""
    if options.sample:
        return list(more)
    texts = {draft.text for draft in found}
    new = [draft for draft in more if draft.text not in texts]
    return [found[0], *_by_score([*found[1:], *new])]


def _line_numbers(numbers: Sequence[int], max_named: int | None = None) -> str:
    """Line numbers for a message: `line 7`, or `lines 7, 8 and 12 more`."""
    max_named = max_named or MAX_LINES_NAMED
    noun = "line" if len(numbers) == 1 else "lines"
    named = ", ".join(str(number) for number in numbers[:max_named])
    others = f" and {len(numbers) - max_named} more" if len(numbers) > max_named else ""
    return f"{noun} {named}{others}"


def _warn_about_repetitions(translations: Sequence[Translation], first: int, options: Options) -> None:
    """Warn about translations that repeat themselves although their source does not."""
    numbers = []
    examples = []
    for number, translation in enumerate(translations, first + 1):
        repetition = repetition_in(translation.text)
        if repetition and not repetition_in(translation.source):
            numbers.append(number)
            examples.append(repetition)
    if not numbers:
        return
    message = f"{_line_numbers(numbers)}: the translation repeats itself ({examples[0]:.40s})"
    smaller = (options.no_repeat_ngram or USEFUL_NGRAM + 1) - 1
    if smaller:
        message += f"; --no-repeat-ngram {smaller} may prevent that"
    log.warning("%s", message)


def _next_lines(lines: Iterator[str], ready: Callable[[], bool]) -> list[str]:
    """The next lines: `WINDOW`, or fewer if the next line is not ready."""
    window: list[str] = []
    for line in lines:
        window.append(line)
        if len(window) == WINDOW or not ready():
            break
    return window
