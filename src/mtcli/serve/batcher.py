"""Translate lines from many requests in common batches.

One thread runs the model. Lines that arrive while it works wait, and the next batch takes them together: from each
request in turn one line, so that a short request does not wait for the end of a long one. `WaitingTranslator` is a
translator for code that runs in a thread of its own and gives its lines to these batches.
"""

import logging
import re
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from threading import Lock
from typing import Any

from mtcli.documents.segmentation import split_sentences
from mtcli.runtime.wording import counted
from mtcli.translate.translation import Options, Translation
from mtcli.translate.translator import Translator
from mtcli.translate.windows import DEFAULT_READING, MAX_LINE_TOKENS, Reading

log = logging.getLogger(__name__)

MAX_BATCH_LINES = 128
"""Lines of one batch, so that a long request does not block the others."""

CLOSE_SECONDS = 1.0
"""Time for the running batch to end after `close`. Nobody waits for its translations any more."""

FILE_LINES = 64
"""Lines of a file that are in the queue at a time, so that the texts of other requests need not wait for all of it."""

RETRY_SECONDS = 0.5
"""Time after which a file tries again to add lines to a full queue, and a request asks if it was cancelled."""

CHECKED_CHARACTERS = 10_000
"""Characters that are split at a time to count sentences."""

_WORD = re.compile(r"\S+")


class FullError(Exception):
    """The maximum number of lines is waiting."""


@dataclass(frozen=True)
class _Job:
    """A line in the queue."""

    line: str
    options: Options
    result: "Future[Translation]" = field(default_factory=Future)


class Batcher:
    """A queue of lines and the thread that translates them.

    Args:
        translator: Used by this thread only.
        max_waiting: `submit` refuses lines if so many would be translated before their end.
        locks: Held while a batch is translated, because other threads use the same models. All threads take them in
            the same order.
    """

    def __init__(self, translator: Translator, max_waiting: int, locks: Sequence[Lock] = ()):
        self._translator = translator
        self._max_waiting = max_waiting
        self._locks = locks
        self._waiting: deque[deque[_Job]] = deque()
        """The lines of each request. The one whose turn it is comes first."""
        self._changed = threading.Condition()
        self._num_running = 0
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="translating", daemon=True)
        self._thread.start()

    def submit(self, lines: Iterable[str], options: Options) -> list["Future[Translation]"]:
        """Add lines to the queue and return a future for each. A line whose future is cancelled is not translated.

        Raises:
            FullError: Too many lines are waiting.
        """
        jobs = [_Job(line, options) for line in lines]
        with self._changed:
            num_before = sum(min(len(request), len(jobs)) for request in self._waiting)
            if num_before >= self._max_waiting:
                raise FullError
            if jobs:
                self._waiting.append(deque(jobs))
            self._changed.notify()
        return [job.result for job in jobs]

    def close(self) -> None:
        """Cancel the waiting lines and end the thread.

        A batch that is still running after `CLOSE_SECONDS` is abandoned, because a search cannot be interrupted. The
        thread is a daemon, so that the process can end without it.
        """
        with self._changed:
            self._closed = True
            for request in self._waiting:
                for job in request:
                    job.result.cancel()
            self._waiting.clear()
            self._changed.notify()
        self._thread.join(CLOSE_SECONDS)
        if self.alive:
            log.warning("abandoned the translation of %s", counted(self._num_running, "line"))

    @property
    def alive(self) -> bool:
        """True while the thread runs."""
        return self._thread.is_alive()

    @property
    def waiting(self) -> int:
        """The number of waiting lines."""
        with self._changed:
            return sum(map(len, self._waiting))

    def _work(self) -> None:
        while jobs := self._next():
            wanted = [job for job in jobs if job.result.set_running_or_notify_cancel()]
            self._num_running = len(wanted)
            for options in dict.fromkeys(job.options for job in wanted):
                self._translate([job for job in wanted if job.options == options], options)

    def _next(self) -> list[_Job]:
        """Wait for lines and return those of the next batch; an empty list means that the batcher is closed."""
        jobs: list[_Job] = []
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            while self._waiting and len(jobs) < MAX_BATCH_LINES:
                request = self._waiting.popleft()
                jobs.append(request.popleft())
                if request:
                    self._waiting.append(request)
        return jobs

    def _translate(self, jobs: Sequence[_Job], options: Options) -> None:
        """Translate lines with the same options.

        If that fails, translate each line alone, so that a line that fails does not fail the others.
        """
        try:
            lines = [job.line for job in jobs]
            with ExitStack() as stack:
                for lock in self._locks:
                    stack.enter_context(lock)
                translations = list(self._translator.translate(lines, options, Reading(warn=False, quiet=True)))
        except Exception as error:
            if len(jobs) == 1:
                jobs[0].result.set_exception(error)
                return
            for job in jobs:
                self._translate([job], options)
            return
        for job, translation in zip(jobs, translations, strict=True):
            job.result.set_result(translation)


class AbandonedError(Exception):
    """Nobody waits for the translations any more."""


class TooLongError(Exception):
    """A sentence has more tokens, or a request more sentences, than the server accepts."""


class WaitingTranslator(Translator):
    """Translates the lines of one request by a batcher, and waits for them.

    Args:
        translator: The translator of the batcher.
        batcher: Translates the lines together with those of other requests.
        n_best: Number of different translations of each line.
        max_tokens: Limit of the tokens of a line. A translator would cut lines of more than `MAX_LINE_TOKENS`.
        max_lines: Limit of the different lines, unless it is a file.
        is_file: Add few lines at a time, and wait while the queue is full.
        turn: See `preparation`; None: this request need not wait for its turn.
    """

    def __init__(
        self,
        translator: Translator,
        batcher: Batcher,
        *,
        n_best: int = 1,
        max_tokens: int,
        max_lines: int,
        is_file: bool = False,
        turn: "Lock | None" = None,
    ):
        super().__init__(translator.backend)
        self.target_tokenizer = translator.target_tokenizer
        self.longest_src = min(translator.longest_src, max_tokens)
        self.aligns = translator.aligns
        self.reads_ahead = False
        self._batcher = batcher
        self._n_best = n_best
        self._max_tokens = min(max_tokens, MAX_LINE_TOKENS)
        self._max_lines = max_lines
        self._is_file = is_file
        self._turn = turn
        self._has_turn = False
        self._submitted: list[Future[Translation]] = []
        self._cancelled: Future[Any] = Future()

    def translate(
        self, lines: Iterable[str], options: Options, reading: Reading = DEFAULT_READING
    ) -> Iterator[Translation]:
        """Translate lines, in their order.

        Raises:
            AbandonedError: `cancel` was called, or the server is shutting down.
            TooLongError: A line has too many tokens, or there are too many lines.
            FullError: Too many lines are waiting for the model.
        """
        options = replace(options, n_best=self._n_best)
        remaining = iter(lines)
        while window := list(islice(remaining, FILE_LINES if self._is_file else None)):
            yield from self._translations(window, options)

    @contextmanager
    def preparation(self) -> Iterator[None]:
        """Wait for the turn of this request to split its text. The turn ends when its lines wait for the model.

        Splitting holds Python's lock. Several long texts at a time would stop the answers to all other requests.

        Raises:
            AbandonedError: `cancel` was called.
        """
        while self._turn is not None and not self._has_turn:
            self._has_turn = self._turn.acquire(timeout=RETRY_SECONDS)
            if self._cancelled.done():
                self._end_turn()
                raise AbandonedError
        try:
            yield
        finally:
            self._end_turn()

    def _end_turn(self) -> None:
        if self._turn is not None and self._has_turn:
            self._has_turn = False
            self._turn.release()

    def check(self, texts: Iterable[str], src: str) -> None:
        """Check the number of sentences before the work begins.

        It is at least the number of words divided by the tokens of the longest sentence. Each text is split only until
        there are too many.

        Args:
            texts: The texts of the request.
            src: Source language.

        Raises:
            AbandonedError: `cancel` was called.
            TooLongError: There are too many sentences.
        """
        limit = self._max_lines
        longest = min(self.longest_src, self._max_tokens)
        number = 0
        for text in texts:
            if sum(1 for _ in _WORD.finditer(text)) > limit * longest:
                raise TooLongError(f"more than {limit:,} sentences; this server takes {limit:,} in a request")
            for start in range(0, len(text), CHECKED_CHARACTERS):
                if self._cancelled.done():
                    raise AbandonedError
                number += len(split_sentences(text[start : start + CHECKED_CHARACTERS], src)) - (start > 0)
                if number > limit:
                    raise TooLongError(f"more than {limit:,} sentences; this server takes {limit:,} in a request")

    def cancel(self) -> None:
        """End the waiting. Lines that are still in the queue are not translated."""
        if not self._cancelled.done():
            self._cancelled.set_result(None)
        for future in list(self._submitted):
            future.cancel()

    def _translations(self, lines: Sequence[str], options: Options) -> list[Translation]:
        """Translate lines, of which equal ones are given to the batcher once."""
        different = list(dict.fromkeys(lines))
        if len(different) > self._max_lines and not self._is_file:
            raise TooLongError(f"{len(different):,} sentences; this server takes {self._max_lines:,} in a request")
        self._check_tokens(different)
        self._end_turn()
        self._submitted = self._submit(different, options)
        if self._cancelled.done():  # while they were submitted
            self.cancel()
        found = dict(zip(different, map(self._result, self._submitted), strict=True))
        return [found[line] for line in lines]

    def _check_tokens(self, lines: Iterable[str]) -> None:
        limit = self._max_tokens
        for line in lines:
            # An ASCII line has at most one token per character, and one for the space before it. Normalization can make
            # other lines longer.
            if line.isascii() and len(line) < limit:
                continue
            num_tokens = len(self.tokenizer.encode_src([line])[0])
            if num_tokens > limit:
                raise TooLongError(f"a sentence has {num_tokens} tokens; this server takes {limit} in a sentence")

    def _submit(self, lines: Sequence[str], options: Options) -> list[Future[Translation]]:
        while not self._cancelled.done():
            try:
                return self._batcher.submit(lines, options)
            except FullError:
                if not self._is_file:
                    raise
                wait([self._cancelled], RETRY_SECONDS)
        raise AbandonedError

    def _result(self, future: Future[Translation]) -> Translation:
        """Wait for one translation, unless `cancel` is called."""
        wait([future, self._cancelled], return_when=FIRST_COMPLETED)
        if self._cancelled.done():
            raise AbandonedError
        try:
            return future.result()
        except CancelledError:
            raise AbandonedError from None
