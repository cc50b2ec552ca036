"""Start the ranks of one job without torchrun: each is a process with the environment variables torchrun sets."""

import os
import random
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from helpers.harness import Child, Result, start
from helpers.processes import HANGS

LAUNCH = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
"""torchrun on one machine."""


LAUNCHED = {"WORLD_SIZE": "2", "RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
"""The environment of rank 0 of two, for tests without the other rank."""


def start_ranks(
    n: int,
    *arguments: str | Path,
    within: Mapping[int, Sequence[Callable[[], Any]]] | None = None,
    step_timeout: float = 10 * HANGS,
    work_timeout: float = 10 * HANGS,
    **place: Any,
) -> list[Child]:
    """Start n ranks with the same `mtcli ARGUMENTS`.

    Args:
        n: The number of ranks.
        arguments: The arguments of the command line.
        within: By rank, functions that its process calls first.
        step_timeout: Seconds after which a collective of a training step fails.
        work_timeout: Seconds after which the wait for the work of another rank fails.
        place: See `start`.
    """
    port = str(free_port())
    children = []
    for rank in range(n):
        env = {"WORLD_SIZE": str(n), "RANK": str(rank), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        calls = [partial(set_timeouts, step_timeout, work_timeout), *(within or {}).get(rank, ())]
        children.append(start(*arguments, within=calls, env=env | {"LOCAL_RANK": str(rank)}, **place))
    return children


def free_port() -> int:
    """Return a port that no process uses.

    It is below the ports that the kernel gives to outgoing connections, of which one could take it before rank 0 does.
    """
    while True:
        port = random.SystemRandom().randrange(20_000, 32_000)
        with socket.socket() as free, suppress(OSError):
            free.bind(("127.0.0.1", port))
            return port


def run_ranks(n: int, *arguments: str | Path, seconds: float = HANGS, **options: Any) -> list[Result]:
    """Run n ranks to their end."""
    return [child.wait(seconds) for child in start_ranks(n, *arguments, **options)]


def set_timeouts(step: float, work: float) -> None:
    from mtcli.runtime import distributed

    patch.object(distributed, "STEP_TIMEOUT", timedelta(seconds=step)).start()
    patch.object(distributed, "WORK_TIMEOUT", timedelta(seconds=work)).start()


def list_rows(log: Path) -> None:
    """Make this process list the training pairs that it reads in a file, one per line."""
    from mtcli.corpus.cache.encoded_pairs import EncodedPairs, Ints, Rows

    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    read = EncodedPairs.gather

    def gather(self: EncodedPairs, rows: Ints) -> tuple[Rows, Rows]:
        os.write(descriptor, "".join(f"{row}\n" for row in rows).encode())
        return read(self, rows)

    patch.object(EncodedPairs, "gather", gather).start()
