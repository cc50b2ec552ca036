"""Several workers of one job, in processes that start at once: the environment says to them what torchrun would."""

import os
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from faults.harness import Child, Result, start
from processes import HANGS

LAUNCH = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
"""torchrun, on one machine."""


LAUNCHED = {"WORLD_SIZE": "2", "RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
"""The environment of rank 0 of two, for what needs no other rank."""


def start_workers(
    n: int,
    *arguments: str | Path,
    within: Mapping[int, Sequence[Callable[[], Any]]] | None = None,
    silence: int = 10 * HANGS,
    **place: Any,
) -> list[Child]:
    """Start n of them with the same `mtcli ARGUMENTS`.

    Args:
        n: How many.
        arguments: Of the command line.
        within: By rank, what a worker calls before it begins.
        silence: Beats of a tenth of a second after which a worker is given up.
        place: As of `start`.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    children = []
    for rank in range(n):
        env = {"WORLD_SIZE": str(n), "RANK": str(rank), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        calls = [partial(beat_quickly, silence), *(within or {}).get(rank, ())]
        children.append(start(*arguments, within=calls, env=env | {"LOCAL_RANK": str(rank)}, **place))
    return children


def run_workers(n: int, *arguments: str | Path, seconds: float = HANGS, **options: Any) -> list[Result]:
    """Run them to their end."""
    return [child.wait(seconds) for child in start_workers(n, *arguments, **options)]


def beat_quickly(silence: int) -> None:
    from mtcli.runtime import distributed

    distributed.BEAT, distributed.SILENCE = 0.1, silence


def list_rows(log: Path) -> None:
    """Have this process write down which training pairs it reads, a line each."""
    from mtcli.data.batching import EncodedPairs

    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    read = EncodedPairs.__getitem__

    def getitem(self: EncodedPairs, row: int) -> Any:
        os.write(descriptor, f"{row}\n".encode())
        return read(self, row)

    EncodedPairs.__getitem__ = getitem  # type: ignore[method-assign]
