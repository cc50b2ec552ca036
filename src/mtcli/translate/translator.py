"""Translate lines of text: windows, batches of similar length, n-best lists, terms, word alignments and warnings.

A backend searches. This module imports neither its library nor NumPy, so that an exported model loads quickly.
"""

import math
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import TypeVar

from mtcli.errors import UsageError
from mtcli.limits import BEAM_SIZE
from mtcli.search.length import length_penalty
from mtcli.terms.terms import Match, Terms, uses
from mtcli.text.repetitions import added_repetition
from mtcli.text.words import character_spans, word_spans
from mtcli.translate.backends.backend import ROW_OVERHEAD, Backend
from mtcli.translate.backends.exported import GIVE_THE_RUN
from mtcli.translate.confidence import Confidence
from mtcli.translate.line_warnings import check_tags, warn_about_lines, warn_about_missing_tags, warn_about_repetitions
from mtcli.translate.translation import Candidate, Options, Rerank, Translation, add_new_texts, merge_by_text
from mtcli.translate.windows import (
    DEFAULT_READING,
    MAX_LINE_TOKENS,
    Reading,
    SourceLine,
    Window,
    annotated,
    shortened,
    sources_with_tokens,
    tagged,
)

T = TypeVar("T")
R = TypeVar("R")

WIDER_FACTORS = (2, 4)
"""Factors of the beam size, or of the number of draws, of further searches where the first finds too few texts."""

NO_CHARACTER = "\ufffd"
"""What the tokenizer writes for bytes that are no character."""

_BLANK: tuple[Candidate, ...] = (Candidate("", 0.0, 0.0),)

NGRAMS = (3, 2)
"""Sizes of the n-grams that the further searches block. Blocked trigrams change less of a long translation; blocked
bigrams prevent nearly all repetitions."""


class Translator(ABC):
    """Translates lines of text: by a model (`ModelTranslator`), or by another translator that does.

    The others prepare lines for it and complete its translations: by sentence (`BySentence`), through a third language
    (`PivotTranslator`), or in common batches of several requests (`WaitingTranslator`).
    """

    def __init__(self, backend: Backend):
        """Initialise it.

        Args:
            backend: The model; of several, the one that reads the lines.
        """
        self.backend = backend
        self.tokenizer = backend.tokenizer
        self.target_tokenizer = backend.tokenizer
        """The tokenizer that has the tags of the target languages, see `Options.to`."""
        self.longest_src = backend.info.longest_src
        self.usual_src = backend.usual_src
        self.aligns = backend.aligns
        """It supports the option `alignments`."""
        self.reads_ahead = backend.reads_ahead
        """The next window is read before the last one is translated."""

    def with_terms(self, options: Options, terms: Terms, mode: str) -> Options:
        """Add terms to the options of a search.

        Args:
            options: The options.
            terms: The terms.
            mode: `soft`, `hard`, or `auto`: hard; if the model was trained with terms, soft first, then hard for the
                lines that still lack a term.

        Raises:
            UsageError: The model was not trained with terms, or terms would be required of random samples or of an
                exported model.
        """
        if mode == "soft" and not self.backend.info.terms:
            raise UsageError("--terms-mode soft: this model was not trained with terms (data.terms); omit the option")
        if mode == "soft" or (mode == "auto" and self.backend.info.terms):
            retry = mode == "auto" and not options.sample
            return replace(options, terms=terms, terms_mode="soft", retry_terms=retry)
        if options.sample and mode == "hard":
            raise UsageError("--terms-mode hard: hard terms need a search; omit --sample")
        if options.sample:
            raise UsageError("--terms: the model was not trained with terms, so they need a search; omit --sample")
        if not self.backend.requires_terms and mode == "hard":
            raise UsageError(f"--terms-mode hard: not with an exported model; {GIVE_THE_RUN}")
        if not self.backend.requires_terms:
            raise UsageError(f"--terms: this exported model was not trained with terms; {GIVE_THE_RUN}")
        return replace(options, terms=terms, terms_mode="hard")

    @abstractmethod
    def translate(
        self, lines: Iterable[str], options: Options, reading: Reading = DEFAULT_READING
    ) -> Iterator[Translation]:
        """Translate lines, in their order. A line that is blank or has no token has an empty translation.

        With `options.repair`, a translation that repeats itself although its line does not, or that is empty, is
        replaced by the next usable one of the beam, then by one of a search without repetitions
        (`further_searches`). If there is none, it stays.

        Args:
            lines: Source text. They are read in windows, so there may be any number of them.
            options: Options of the search.
            reading: How the lines are read.

        Raises:
            UsageError: The backend does not support an option, the prefix has more than `MAX_LINE_TOKENS` tokens, or
                the model has no such target language.
            NotFiniteError: The model's scores are not finite numbers.
        """


class ModelTranslator(Translator):
    """Translates lines of text with a model."""

    def __init__(self, backend: Backend):
        """Initialise it.

        Args:
            backend: The model.
        """
        super().__init__(backend)
        self.rerank: Rerank | None = None
        """Sorts the hypotheses of a beam search by other scores; None: they stay in their order."""
        self.confidence: Confidence | None = None
        """Computes the confidence of translations; None: they have none."""

    def translate(
        self, lines: Iterable[str], options: Options, reading: Reading = DEFAULT_READING
    ) -> Iterator[Translation]:
        """See `Translator.translate`.

        Raises:
            UsageError: See there.
            NotFiniteError: See there.
        """
        search = _Search(self.backend.for_options(options), options, self.rerank)
        search.backend.check(options)
        prefix_tokens = len(self.tokenizer.encode_tgt([options.prefix])[0])
        if prefix_tokens > MAX_LINE_TOKENS:  # every token of it is a step of the decoder, so it would take hours
            limit = f"a prefix may have {MAX_LINE_TOKENS} tokens at most"
            raise UsageError(f"the prefix has {prefix_tokens} tokens; {limit}")
        if options.to:
            self.tokenizer.tag_of(options.to)

        def batches(together: Iterable[tuple[int, list[str]]]) -> Iterator[tuple[_Work, list[SourceLine]]]:
            for first, window in together:
                work = self._begin_window(first, window, search, warn=reading.warn)
                for batch in work.batches:
                    yield work, batch

        def searched(
            batch: tuple[_Work, list[SourceLine]],
        ) -> tuple[_Work, list[SourceLine], list[tuple[Candidate, ...]]]:
            work, sources = batch
            return work, sources, search.candidates(sources) if sources else []

        with reading.line_bar() as bar:
            for together in reading.groups(lines, ahead=search.backend.reads_ahead):
                for work, sources, candidates in search.map(searched, batches(together)):
                    work.add(sources, candidates)
                    bar.update(len(sources))
                    if sources is work.batches[-1]:
                        yield from self._end_window(work, search, warn=reading.warn)

    def _begin_window(self, first: int, lines: Sequence[str], search: "_Search", *, warn: bool) -> "_Work":
        """Encode the lines of one window, and divide those with tokens into batches."""
        options = search.options
        check_tags(lines, first, self.tokenizer, options.to)
        window = Window(first, lines, self.tokenizer.encode_src(lines))
        if warn:
            warn_about_lines(window, self.tokenizer, self.usual_src)
            if not options.to:
                warn_about_missing_tags(window, self.tokenizer)
        window = shortened(window, self.tokenizer)
        if options.terms:
            window = replace(window, terms=[options.terms.matches(line) for line in window.lines])
            if options.terms_mode == "soft":
                window = annotated(window, self.tokenizer)
        if options.to:  # after the terms, with which the lines are encoded again
            window = tagged(window, self.tokenizer, options.to)
        sources = sources_with_tokens(window, self.tokenizer)
        return _Work(first, lines, window.terms, sources, search.batches(sources) or [[]])

    def _end_window(self, work: "_Work", search: "_Search", *, warn: bool) -> list[Translation]:
        """Return the translations of a window whose batches are all searched."""
        self._repair(work, work.sources, search)
        options = search.options
        if options.retry_terms and self.backend.requires_terms:
            self._retry_terms(work, replace(options, terms_mode="hard"))
        if self.confidence is not None and options.is_calibrated:
            for source in work.sources:
                rated = self.confidence.rated(work.found[source.number], len(source.ids))
                work.found[source.number] = rated
        numbered = enumerate(work.lines, work.first)
        translations = [Translation(line, work.found.get(number, _BLANK)) for number, line in numbered]
        if work.terms:
            translations = [_with_terms(*pair) for pair in zip(translations, work.terms, strict=True)]
        if warn:
            warn_about_repetitions(translations, work.first, options)
        return translations

    def _retry_terms(self, work: "_Work", options: Options) -> None:
        """Search again for the lines that lack a term."""
        lacking = [source for source in work.sources if _lacks_term(source.terms, work.found[source.number])]
        if not lacking:  # a backend for these options may have to load a model
            return
        search = _Search(self.backend.for_options(options), options, self.rerank)
        for sources, candidates in search.batches_with_candidates(lacking):
            work.add(sources, candidates)
        self._repair(work, lacking, search)

    def _repair(self, work: "_Work", sources: Sequence[SourceLine], search: "_Search") -> None:
        """Search again for those of some sources that have no usable translation, if the options say so.

        The same backend searches as before. CTranslate2 may find other hypotheses than PyTorch where n-grams are
        blocked, but to load PyTorch for a few lines takes longer than to translate thousands.
        """
        if not search.options.repairs:
            return
        failed = [source for source in sources if not _is_translated(source, work.found[source.number])]
        for further in further_searches(search.options):
            remaining = []
            for batch, found in replace(search, options=further).batches_with_candidates(failed):
                for source, candidates in zip(batch, found, strict=True):
                    if _is_translated(source, candidates):
                        work.add([source], [candidates])
                    else:
                        remaining.append(source)
            failed = remaining


@dataclass(frozen=True)
class _Work:
    """A window that is being translated."""

    first: int
    """The number of its first line in the input, from 0."""
    lines: Sequence[str]
    terms: Sequence[Sequence[Match]]
    """The terms in each line; empty if the options have no terms."""
    sources: Sequence[SourceLine]
    """The lines that have anything to translate."""
    batches: Sequence[list[SourceLine]]
    """These sources, divided; one empty batch if there are none."""
    found: dict[int, tuple[Candidate, ...]] = field(default_factory=dict)
    """The translations so far, by the number of their line in the input."""

    def add(self, sources: Sequence[SourceLine], candidates: Sequence[tuple[Candidate, ...]]) -> None:
        """Keep the translations of some sources, in place of those before."""
        self.found.update(zip((source.number for source in sources), candidates, strict=True))


@dataclass(frozen=True)
class _Search:
    """Searches for the `n_best` translations of sources, with one backend and the same options."""

    backend: Backend
    options: Options
    rerank: Rerank | None

    def batches(self, sources: Sequence[SourceLine]) -> list[list[SourceLine]]:
        """Divide sources into batches of similar length.

        The longest sources come first, so that a batch that is too large fails at once. There are as few batches as the
        backend allows, because the last steps of a batch, with few sources left, cost nearly as much as its first
        steps. The batches have equally many tokens, so that no core waits long for another. Those of PyTorch do not
        depend on the number of cores, so neither do the last bits of its scores, nor the choice of a checkpoint by its
        translations. CTranslate2 gets larger batches on more cores.
        """
        sources = sorted(sources, key=lambda source: -len(source.ids))
        lengths = [len(source.ids) + 1 for source in sources]  # with </s>
        max_tokens = max(1, self.backend.max_batch_tokens(self.options))
        tokens_before = list(accumulate(lengths, initial=0))
        total = tokens_before[-1]
        num_shares = self.backend.num_shares(self.options)
        num_batches = num_shares * max(1, math.ceil(total / (num_shares * max_tokens)))
        batches = []
        first = 0
        while first < len(sources):
            most_sources = max(1, max_tokens // (lengths[first] + ROW_OVERHEAD))
            end_of_share = bisect_left(tokens_before, tokens_before[first] + total / num_batches)
            end = min(first + most_sources, end_of_share)
            batches.append(sources[first:end])
            first = end
        return batches

    def map(self, search: Callable[[T], R], batches: Iterable[T]) -> Iterator[R]:
        """Yield the result of `search` for each batch, in order."""
        if self.rerank is not None and self.backend.reads_ahead:  # it may not search twice at the same time
            return map(search, batches)
        return self.backend.map_batches(search, batches, self.options)

    def batches_with_candidates(
        self, sources: Sequence[SourceLine]
    ) -> Iterator[tuple[list[SourceLine], list[tuple[Candidate, ...]]]]:
        """Yield the batches of some sources, each with the translations of its sources."""
        batches = self.batches(sources)
        yield from zip(batches, self.map(self.candidates, batches), strict=True)

    def candidates(self, sources: Sequence[SourceLine]) -> list[tuple[Candidate, ...]]:
        """Search the `n_best` translations of each source of a batch.

        The first translation is the best that the beam of the options finds, after reranking, whatever `n_best` is. If
        this beam finds fewer than `n_best` different texts, wider searches add to them. Their texts come after the
        first, even if they have a higher score. The other translations are sorted by score, those of sampling by their
        first draw.
        """
        wanted = self.options
        found: list[list[Candidate]] = [[] for _ in sources]
        for options in _searches(wanted if self.rerank is None else replace(wanted, scores=True)):
            lacking = [index for index, candidates in enumerate(found) if len(candidates) < wanted.n_best]
            size = max(1, len(sources) * wanted.beam_size // options.beam_size)  # all searches take the same memory
            for start in range(0, len(lacking), size):
                indices = lacking[start : start + size]
                part = [sources[index] for index in indices]
                merged = [merge_by_text(each, sampled=options.sample) for each in self.backend.search(part, options)]
                if self.rerank is not None:
                    merged = self.rerank([source.line for source in part], merged)
                for index, candidates in zip(indices, merged, strict=True):
                    if wanted.n_best > 1 and options.beam_size == 1 and not options.sample:
                        candidates = [_with_length_penalty(each, options) for each in candidates]
                    if found[index] and not options.sample:  # the first draws are drawn again
                        candidates = add_new_texts(found[index], candidates)
                    found[index] = self._usable(sources[index], candidates)
        found = [candidates[: wanted.n_best] for candidates in found]
        if wanted.alignments:
            found = self._aligned(sources, found)
        return [tuple(candidates) for candidates in found]

    def _usable(self, source: SourceLine, candidates: list[Candidate]) -> list[Candidate]:
        """Return the usable translations of a source if the options say so and it has any."""
        if not self.options.repairs or (self.options.n_best == 1 and _is_translated(source, candidates)):
            return candidates
        return usable(source.line, candidates)

    def _aligned(self, sources: Sequence[SourceLine], found: Sequence[Sequence[Candidate]]) -> list[list[Candidate]]:
        """Add to each candidate of each source its word alignment."""
        from mtcli.translate.alignment import align  # which imports NumPy

        options = self.options
        tokenizer = self.backend.tokenizer
        if options.terms and self.backend.info.terms:  # the words of a line are counted without annotations
            lines = [source.line for source in sources]
            window = Window(0, lines, tokenizer.encode_src(lines))
            if options.to:
                window = tagged(window, tokenizer, options.to)
            sources = [replace(source, ids=ids) for source, ids in zip(sources, window.ids, strict=True)]
        words = character_spans if options.align_characters else word_spans
        return align(tokenizer, sources, found, self.backend.cross_attention, words=words)


def _with_length_penalty(candidate: Candidate, options: Options) -> Candidate:
    """Give a candidate of greedy search, whose score has no length penalty, the penalty of the wider searches."""
    penalty = length_penalty(len(candidate.ids) + 1, options.length_penalty, options.length_normalization)
    return replace(candidate, penalty=penalty, score=candidate.log_prob / penalty)


def _is_translated(source: SourceLine, candidates: Sequence[Candidate]) -> bool:
    """Return True if the best translation of a line is usable."""
    return is_usable(source.line, candidates[0].text)


def _lacks_term(matches: Sequence[Match], candidates: Sequence[Candidate]) -> bool:
    """Return True if the best translation of a line does not use all of its terms."""
    return any(use.form is None for use in uses(matches, candidates[0].text))


def _with_terms(translation: Translation, matches: Sequence[Match]) -> Translation:
    """Add the terms of the line to a translation."""
    return replace(translation, terms=tuple(uses(matches, translation.text)))


def _searches(options: Options) -> Iterator[Options]:
    """Yield the options of a search, and of those that follow where it finds too few different texts."""
    yield options
    if options.n_best == 1:
        return
    for factor in WIDER_FACTORS:
        if options.sample:
            yield replace(options, n_best=factor * options.n_best)
        else:
            beam_size = min(factor * max(options.n_best, options.beam_size), int(BEAM_SIZE.max))
            yield replace(options, beam_size=beam_size)


def is_usable(line: str, text: str) -> bool:
    """Return False for a translation that no reader can use, although the line is in order.

    It repeats itself, is empty, or has bytes that are no character.
    """
    if not text.strip():
        return not any(map(str.isalpha, line))
    if NO_CHARACTER in text and NO_CHARACTER not in line:
        return False
    return not added_repetition(line, text)


def usable(line: str, candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the usable translations of a line; all of them if none is usable.

    Args:
        line: The line.
        candidates: Its translations, best first.
    """
    found = [candidate for candidate in candidates if is_usable(line, candidate.text)]
    return found or list(candidates)


def further_searches(options: Options) -> Iterator[Options]:
    """Yield the options of the searches that follow where no translation is usable.

    The first one is the same search where a backend returned only the best hypothesis of its beam. The others ask for
    the whole beam too; greedy search has one hypothesis, and needs no scores for it.
    """
    whole_beam = options.scores or options.beam_size > 1
    if whole_beam and not options.scores:
        yield replace(options, scores=True)
    for size in NGRAMS:
        if not options.no_repeat_ngram or size < options.no_repeat_ngram:
            yield replace(options, scores=whole_beam, no_repeat_ngram=size)
