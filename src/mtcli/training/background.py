"""One task at a time in a thread, while training continues."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor


class BackgroundTask:
    """Runs one task at a time in a thread."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="mtcli-background")
        self._task: Future[None] | None = None

    def start(self, task: Callable[[], None]) -> None:
        """Wait for the task before, then start this one. Errors are those of `wait`."""
        self.wait()
        self._task = self._executor.submit(task)

    def wait(self) -> None:
        """Wait until the task has ended. If it failed, raise its error, once."""
        if self._task is None:
            return
        task = self._task
        self._task = None
        task.result()
