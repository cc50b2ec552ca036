"""Lines from many requests, translated together: while the model works lines gather, and all go into its next batch."""

import threading
from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from mtcli.inference.line_translator import LineTranslator, Options, Translation

ROUND = 128
"""Most lines of one batch, so that a long request lets others through."""


class FullError(Exception):
    """As many lines are waiting as may."""


@dataclass(frozen=True)
class _Job:
    """A line that waits."""

    line: str
    options: Options
    found: "Future[Translation]" = field(default_factory=Future)


class Batcher:
    """One thread that translates all the lines that wait, as soon as the model is free."""

    def __init__(self, translator: LineTranslator, most: int):
        """Start the thread; `most` lines wait before more are turned away."""
        self.translator, self.most = translator, most
        self._waiting: deque[_Job] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="translating", daemon=True)
        self._thread.start()

    def submit(self, lines: Iterable[str], options: Options) -> list["Future[Translation]"]:
        """A translation for each line, to come; one that is cancelled before its turn is never made.

        Raises:
            FullError: Too many lines are waiting already.
        """
        jobs = [_Job(line, options) for line in lines]
        with self._changed:
            if len(self._waiting) >= self.most:
                raise FullError
            self._waiting.extend(jobs)
            self._changed.notify()
        return [job.found for job in jobs]

    def close(self) -> None:
        """Translate what waits, then end the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    @property
    def alive(self) -> bool:
        """Whether there is a thread that translates."""
        return self._thread.is_alive()

    @property
    def waiting(self) -> int:
        """Lines that wait."""
        return len(self._waiting)

    def _work(self) -> None:
        while jobs := self._next():
            wanted = [job for job in jobs if job.found.set_running_or_notify_cancel()]
            for options in dict.fromkeys(job.options for job in wanted):
                self._translate([job for job in wanted if job.options == options], options)

    def _next(self) -> list[_Job]:
        """The lines of the next batch; none: it is closed, and nothing waits."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            return [self._waiting.popleft() for _ in range(min(ROUND, len(self._waiting)))]

    def _translate(self, jobs: Sequence[_Job], options: Options) -> None:
        try:
            found = list(self.translator.translate([job.line for job in jobs], options, warn=False, quiet=True))
        except Exception as error:
            if len(jobs) == 1:
                jobs[0].found.set_exception(error)
                return
            for job in jobs:  # one line's failure is not its neighbours'
                self._translate([job], options)
            return
        for job, translation in zip(jobs, found, strict=True):
            job.found.set_result(translation)
