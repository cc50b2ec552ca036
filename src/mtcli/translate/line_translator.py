"""Translate lines of text with any library that searches: batches of similar length, and n-best lists.

`pytorch_backend.Translator` searches with PyTorch, `ctranslate2_backend.Engine` with CTranslate2. This module does not
import PyTorch, so that an exported model loads quickly.
"""

import math
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import TypeVar

from mtcli.errors import UsageError
from mtcli.limits import BEAM_SIZE
from mtcli.runtime.progress import Progress
from mtcli.search.length import length_penalty
from mtcli.terms.terms import Match, Terms, uses
from mtcli.text.tokenizer.tokenizer import Tokenizer
from mtcli.text.words import character_spans, word_spans
from mtcli.translate.alignment import Weights, align
from mtcli.translate.line_warnings import warn_about_lines, warn_about_missing_tags, warn_about_repetitions
from mtcli.translate.translation import (
    Candidate,
    Links,
    Options,
    Rerank,
    Translation,
    add_new_texts,
    merge_by_text,
)
from mtcli.translate.windows import (
    MAX_LINE_TOKENS,
    Window,
    annotated,
    read_windows,
    rows_with_tokens,
    shortened,
    tagged,
    until_pause,
)

T = TypeVar("T")
R = TypeVar("R")

ROW_OVERHEAD = 24
"""Tokens that take as much memory in a search as a row takes in addition to its tokens, mostly its logits."""

WIDER_FACTORS = (2, 4)
"""Factors of the beam size, or of the number of draws, of further searches where the first finds too few texts."""

_BLANK: tuple[Candidate, ...] = (Candidate("", 0.0, 0.0),)


@dataclass(frozen=True)
class _Work:
    """A window that is being translated."""

    lines: Sequence[str]
    window: Window
    rows: Sequence[int]
    """The rows that have anything to translate."""
    batches: Sequence[list[int]]
    """These rows, divided; one empty batch if there are none."""
    found: dict[int, tuple[Candidate, ...]] = field(default_factory=dict)
    """The translations so far, by row."""


class LineTranslator(ABC):
    """A tokenizer, and the search that a subclass implements."""

    aligns = True
    """It supports the option `alignments`."""
    requires_terms = True
    """It supports hard terms."""
    reads_ahead = False
    """`_map` takes batches in advance, so the next window is read before the last one is translated."""
    trained_with_terms = False
    """The model was trained with terms in its sources, so it can use them in soft mode."""
    bleu_tokenizer: str | None = None
    """The tokenizer that sacrebleu uses for BLEU of this model; None: that of the target language."""

    def __init__(self, tokenizer: Tokenizer, longest_src: int):
        """Initialise it.

        Args:
            tokenizer: The model's.
            longest_src: Tokens of the longest source in training; longer lines cause a warning.
        """
        self.tokenizer = tokenizer
        self.longest_src = longest_src
        self.rerank: Rerank | None = None
        """Sorts the hypotheses of a beam search by other scores; None: they stay in their order."""

    def with_terms(self, options: Options, terms: Terms, mode: str) -> Options:
        """Add terms to the options of a search.

        Args:
            options: The options.
            terms: The terms.
            mode: `soft`, `hard`, or `auto`: hard; if the model was trained with terms, soft first, then hard for the
                lines that still lack a term.

        Raises:
            UsageError: The model was not trained with terms, or terms are required of random samples.
        """
        if mode == "soft" and not self.trained_with_terms:
            raise UsageError("--terms-mode soft: this model was not trained with terms (data.terms); omit the option")
        if mode == "soft" or (mode == "auto" and self.trained_with_terms):
            retry = mode == "auto" and not options.sample
            return replace(options, terms=terms, terms_mode="soft", retry_terms=retry)
        if options.sample and mode == "hard":
            raise UsageError("--terms-mode hard: hard terms need a search; omit --sample")
        if options.sample:
            raise UsageError("--terms: the model was not trained with terms, so they need a search; omit --sample")
        return replace(options, terms=terms, terms_mode="hard")

    def translate(
        self,
        lines: Iterable[str],
        options: Options,
        *,
        total: int | None = None,
        bar: Progress | None = None,
        warn: bool = True,
        quiet: bool = False,
        ready: Callable[[], bool] = lambda: True,
        rank: int = 0,
        num_ranks: int = 1,
        growing: bool = False,
    ) -> Iterator[Translation]:
        """Translate lines, in their order. A line that is blank or has no token has an empty translation.

        Args:
            lines: Source text. They are read in windows, so there may be any number of them.
            options: Options of the search.
            total: Number of lines, for the progress bar.
            bar: A progress bar to use; None: a new one.
            warn: Warn about lines unlike those of training, and about translations that repeat themselves.
            quiet: Show no progress bar.
            ready: Returns True if the next line is available. If not, the lines so far are translated without it.
            rank: `lines` are the windows `rank`, `rank + num_ranks`, `rank + 2 · num_ranks`, … of a file. Warnings and
                sampling use the number of each line in this file.
            num_ranks: See `rank`.
            growing: Translate the first lines in small windows, so that an interrupted command keeps them.

        Raises:
            UsageError: The prefix has more than `MAX_LINE_TOKENS` tokens, or the model has no such target language.
            NotFiniteError: The model's scores are not finite numbers.
        """
        self._check_prefix(options.prefix)
        if options.to:
            self.tokenizer.tag_of(options.to)
        windows = read_windows(lines, ready=ready, rank=rank, num_ranks=num_ranks, growing=growing)
        own_bar = Progress("translating", total=total, unit="lines", quiet=quiet) if bar is None else nullcontext(bar)
        with own_bar as shown:
            for window in windows:
                together = until_pause(window, windows, ready) if self.reads_ahead else [window]
                yield from self._translate_windows(together, options, warn=warn, bar=shown)

    def _translate_windows(
        self, windows: Iterable[tuple[int, list[str]]], options: Options, *, warn: bool, bar: Progress
    ) -> Iterator[Translation]:
        """Translate the lines of windows, see `read_windows`.

        The batches of all windows are mapped together. If `_map` takes batches in advance, a window is encoded while
        the last batches of the window before are searched.
        """

        def batches() -> Iterator[tuple[_Work, list[int]]]:
            for first, lines in windows:
                work = self._begin_window(first, lines, options, warn=warn)
                for rows in work.batches:
                    yield work, rows

        def search(batch: tuple[_Work, list[int]]) -> tuple[_Work, list[int], list[tuple[Candidate, ...]]]:
            work, rows = batch
            return work, rows, self._candidates(work.window, rows, options) if rows else []

        for work, rows, candidates in self._map(search, batches(), options):
            work.found.update(zip(rows, candidates, strict=True))
            bar.update(len(rows))
            if rows is work.batches[-1]:
                yield from self._end_window(work, options, warn=warn)

    def _begin_window(self, first: int, lines: Sequence[str], options: Options, *, warn: bool) -> "_Work":
        """Encode the lines of one window, and divide those with tokens into batches."""
        window = self._encode_window(lines, first, options, warn=warn)
        rows = rows_with_tokens(window, self.tokenizer)
        batches = list(self._batches(window, rows, options))
        return _Work(lines, window, rows, batches or [[]])

    def _end_window(self, work: "_Work", options: Options, *, warn: bool) -> list[Translation]:
        """Return the translations of a window whose batches are all searched."""
        window = work.window
        if options.retry_terms and self.requires_terms:
            lacking = [row for row in work.rows if _lacks_term(window.terms[row], work.found[row])]
            if lacking:
                work.found.update(self._search_again_with_terms(window, lacking, replace(options, terms_mode="hard")))
        translations = [Translation(line, work.found.get(row, _BLANK)) for row, line in enumerate(work.lines)]
        if window.terms:
            translations = [_with_terms(*pair) for pair in zip(translations, window.terms, strict=True)]
        if warn:
            warn_about_repetitions(translations, window.first, options)
        return translations

    def _search_again_with_terms(
        self, window: Window, rows: Sequence[int], options: Options
    ) -> dict[int, tuple[Candidate, ...]]:
        """Search the translations of some rows of a window with hard terms. Return them by row."""

        def search(batch: list[int]) -> list[tuple[Candidate, ...]]:
            return self._candidates(window, batch, options)

        batches = list(self._batches(window, rows, options))
        found: dict[int, tuple[Candidate, ...]] = {}
        for batch, candidates in zip(batches, self._map(search, batches, options), strict=True):
            found.update(zip(batch, candidates, strict=True))
        return found

    def _encode_window(self, lines: Sequence[str], first: int, options: Options, *, warn: bool) -> Window:
        """Encode the lines of one window, shortened, and with the tag of the target language if the options name it."""
        window = Window(first, lines, self.tokenizer.encode_src(lines))
        if warn:
            warn_about_lines(window, self.tokenizer, self.longest_src)
            if not options.to:
                warn_about_missing_tags(window, self.tokenizer)
        window = shortened(window, self.tokenizer)
        if options.to:
            window = tagged(window, self.tokenizer, options.to)
        if options.terms:
            window = replace(window, terms=[options.terms.matches(line) for line in window.lines])
            if options.terms_mode == "soft":
                window = annotated(window, self.tokenizer)
        return window

    def _check_prefix(self, prefix: str) -> None:
        """Refuse a prefix that would take hours: every token of it is a step of the decoder."""
        tokens = len(self.tokenizer.encode_tgt([prefix])[0])
        if tokens > MAX_LINE_TOKENS:
            raise UsageError(f"the prefix has {tokens} tokens; a prefix may have {MAX_LINE_TOKENS} tokens at most")

    def _batches(self, window: Window, rows: Sequence[int], options: Options) -> Iterator[list[int]]:
        """Divide rows of a window into batches of similar length.

        The longest lines come first, so that a batch that is too large fails at once. There are as few batches as the
        budget allows, because the last steps of a batch, with few rows left, cost nearly as much as its first steps.
        The batches have equally many tokens, so that no core waits long for another. They do not depend on the number
        of cores, so neither do the last bits of scores, nor the choice of a checkpoint by its translations.
        """
        lengths = [len(ids) + 1 for ids in window.ids]  # with </s>
        rows = sorted(rows, key=lambda row: -lengths[row])
        budget = max(1, self._budget(options))
        tokens_before = list(accumulate((lengths[row] for row in rows), initial=0))
        total = tokens_before[-1]
        num_shares = self.num_shares(options)
        num_batches = num_shares * max(1, math.ceil(total / (num_shares * budget)))
        first = 0
        while first < len(rows):
            most_rows = max(1, budget // (lengths[rows[first]] + ROW_OVERHEAD))
            end_of_share = bisect_left(tokens_before, tokens_before[first] + total / num_batches)
            end = min(first + most_rows, end_of_share)
            yield rows[first:end]
            first = end

    def num_shares(self, options: Options) -> int:
        """Return the number of batches, or a part of it, into which a window is divided; 1 if cores share no work."""
        return 1

    def _map(self, search: Callable[[T], R], batches: Iterable[T], options: Options) -> Iterator[R]:
        """Yield the result of `search` for each batch, in order."""
        return map(search, batches)

    @abstractmethod
    def _budget(self, options: Options) -> int:
        """Return the maximum rows × tokens of one batch."""

    def _candidates(self, window: Window, rows: Sequence[int], options: Options) -> list[tuple[Candidate, ...]]:
        """Search the `n_best` translations of some rows of a window.

        The first translation is the best that the beam of the options finds, after reranking, whatever `n_best` is. If
        this beam finds fewer than `n_best` different texts, wider searches add to them. Their texts come after the
        first, even if they have a higher score. The other translations are sorted by score, those of sampling by their
        first draw.
        """
        found = self._merged(window, rows, options)
        if options.n_best > 1 and options.beam_size == 1 and not options.sample:
            found = [[_with_length_penalty(each, options) for each in candidates] for candidates in found]
        for wider in _wider_options(options):
            self._search_again(window, rows, options, wider, found)
        best = [candidates[: options.n_best] for candidates in found]
        if options.alignments:
            best = _with_links(best, self._links(window, rows, best, options))
        return [tuple(candidates) for candidates in best]

    def _merged(self, window: Window, rows: Sequence[int], options: Options) -> list[list[Candidate]]:
        """Search once. Return the different texts found for each of some rows of a window, best first."""
        hypotheses = self._hypotheses(window, rows, options)
        found = [merge_by_text(of_row, sampled=options.sample) for of_row in hypotheses]
        if self.rerank is None:
            return found
        return self.rerank([window.lines[row] for row in rows], found)

    def _search_again(
        self, window: Window, rows: Sequence[int], options: Options, wider: Options, found: list[list[Candidate]]
    ) -> None:
        """Search again with wider options where fewer than `n_best` texts are found, and add to `found` in place."""
        lacking = [i for i, candidates in enumerate(found) if len(candidates) < options.n_best]
        size = max(1, len(rows) * options.beam_size // wider.beam_size)  # takes as much memory as the first search
        for start in range(0, len(lacking), size):
            part = lacking[start : start + size]
            more = self._merged(window, [rows[i] for i in part], wider)
            for i, merged in zip(part, more, strict=True):
                if options.sample:
                    found[i] = merged  # the first draws are drawn again
                else:
                    found[i] = add_new_texts(found[i], merged)

    @abstractmethod
    def _hypotheses(self, window: Window, rows: Sequence[int], options: Options) -> list[list[Candidate]]:
        """Search once. Return all hypotheses of each of these rows, best first, or `n_best` samples."""

    def _links(
        self, window: Window, rows: Sequence[int], best: Sequence[Sequence[Candidate]], options: Options
    ) -> list[list[Links]]:
        """Return the word alignment of each of these translations."""
        lines = [window.lines[row] for row in rows]
        ids: Sequence[Sequence[int]] = [window.ids[row] for row in rows]
        if options.terms and self.trained_with_terms:  # the words of a line are counted without annotations
            ids = self._encode_window(lines, window.first, replace(options, terms=None), warn=False).ids
        texts = [[candidate.text for candidate in candidates] for candidates in best]
        tgt = [[candidate.ids for candidate in candidates] for candidates in best]
        words = character_spans if options.align_characters else word_spans
        return align(self.tokenizer, lines, ids, texts, tgt, self._cross_attention, words=words)

    def _cross_attention(self, src: Sequence[Sequence[int]], tgt: Sequence[Sequence[int]]) -> Sequence[Weights]:
        """See `alignment.CrossAttention`. A subclass that aligns implements it."""
        raise NotImplementedError


def _with_length_penalty(candidate: Candidate, options: Options) -> Candidate:
    """Give a candidate of greedy search, whose score has no length penalty, the penalty of the wider searches."""
    penalty = length_penalty(len(candidate.ids) + 1, options.length_penalty, options.length_normalization)
    return replace(candidate, penalty=penalty, score=candidate.log_prob / penalty)


def _with_links(candidates: Sequence[Sequence[Candidate]], links: Sequence[Sequence[Links]]) -> list[list[Candidate]]:
    """Add to each candidate of each row its word alignment."""
    return [
        [replace(candidate, alignment=alignment) for candidate, alignment in zip(*of_row, strict=True)]
        for of_row in zip(candidates, links, strict=True)
    ]


def _lacks_term(matches: Sequence[Match], candidates: Sequence[Candidate]) -> bool:
    """Return True if the best translation of a line does not use all of its terms."""
    return any(use.form is None for use in uses(matches, candidates[0].text))


def _with_terms(translation: Translation, matches: Sequence[Match]) -> Translation:
    """Add the terms of the line to a translation."""
    return replace(translation, terms=tuple(uses(matches, translation.text)))


def _wider_options(options: Options) -> Iterator[Options]:
    """Yield the options of the searches that follow where a search finds too few different texts."""
    if options.n_best == 1:
        return
    for factor in WIDER_FACTORS:
        if options.sample:
            yield replace(options, n_best=factor * options.n_best)
        else:
            beam_size = min(factor * max(options.n_best, options.beam_size), int(BEAM_SIZE.max))
            yield replace(options, beam_size=beam_size)
