"""Translate lines from many requests in common batches.

One thread runs the model. Lines that arrive while it works wait, and the next batch takes them together: from each
request in turn one line, so that a short request does not wait for the end of a long one.
"""

import logging
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from mtcli.runtime.wording import counted
from mtcli.translate.translation import Options, Translation
from mtcli.translate.translator import Translator

log = logging.getLogger(__name__)

MAX_BATCH_LINES = 128
"""Lines of one batch, so that a long request does not block the others."""

CLOSE_SECONDS = 1.0
"""Time for the running batch to end after `close`. Nobody waits for its translations any more."""


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
    """

    def __init__(self, translator: Translator, max_waiting: int):
        self._translator = translator
        self._max_waiting = max_waiting
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
            translations = list(self._translator.translate(lines, options, warn=False, quiet=True))
        except Exception as error:
            if len(jobs) == 1:
                jobs[0].result.set_exception(error)
                return
            for job in jobs:
                self._translate([job], options)
            return
        for job, translation in zip(jobs, translations, strict=True):
            job.result.set_result(translation)
