"""Processes that draw the variants of training pairs for a GPU, one block of the training pairs ahead.

A variant takes 0.1 ms of Python. A GPU trains on up to 50,000 pairs a second, and takes them faster than one thread
varies them, which would also delay the thread that launches the GPU's work. The processes end with this one: at the end
of their input.
"""

import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

from mtcli.corpus.cache.encoded_pairs import EncodedPairs
from mtcli.corpus.variants import DrawnVariants, Portion, Variants
from mtcli.errors import StorageError

MAX_PROCESSES = 4
"""Processes of one rank, at most. Four draw the variants of 100,000 pairs a second."""


class VariantProcesses:
    """Processes that draw portions of variants. They are started when they are needed.

    Args:
        variants: What they draw.
        pairs: The cache of the pairs.
        size: Number of processes.
    """

    def __init__(self, variants: Variants, pairs: EncodedPairs, size: int):
        variants.learn_words(pairs)  # here, once
        self._first_input = pickle.dumps((variants, pairs.path))
        self._processes: list[subprocess.Popen[bytes]] = []
        self._of_thread = threading.local()
        self._pool = ThreadPoolExecutor(size, initializer=self._begin_thread)

    def begin(self, portions: Sequence[Portion]) -> list["Future[DrawnVariants]"]:
        """Let the processes draw these portions.

        The results raise a `StorageError` if a process was ended, such as by a lack of memory.
        """
        return [self._pool.submit(self._draw, portion) for portion in portions]

    def close(self) -> None:
        """End the processes."""
        self._pool.shutdown(cancel_futures=True)
        for process in self._processes:
            with process:  # closes its input, which ends it, and waits
                pass

    def _begin_thread(self) -> None:
        # In a session of its own, it gets no signals that are sent to this process and its children, such as Ctrl-C.
        process = subprocess.Popen(
            [sys.executable, "-m", __name__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        self._processes.append(process)
        self._of_thread.process = process
        self._of_thread.input = self._first_input

    def _draw(self, portion: Portion) -> DrawnVariants:
        process: subprocess.Popen[bytes] = self._of_thread.process
        assert process.stdin
        assert process.stdout
        try:
            process.stdin.write(self._of_thread.input + pickle.dumps(portion))
            process.stdin.flush()
            self._of_thread.input = b""
            drawn: DrawnVariants = pickle.load(process.stdout)
        except (EOFError, OSError, pickle.UnpicklingError) as error:
            raise StorageError(
                "a process that draws variants of the training pairs was ended, perhaps for lack of memory; "
                "--set data.variants=off trains without"
            ) from error
        return drawn


def main() -> None:
    """Draw what standard input asks for, until it ends, or until nobody reads the results."""
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no result
    # The process that asks may be killed at any time, also while it writes.
    with suppress(EOFError, BrokenPipeError, pickle.UnpicklingError):
        variants, path = pickle.load(sys.stdin.buffer)
        pairs = EncodedPairs(path)
        while True:
            portion = pickle.load(sys.stdin.buffer)
            output.write(pickle.dumps(variants.draw_portion(pairs, portion)))
            output.flush()


if __name__ == "__main__":
    main()
