"""What torchrun tells a process that it starts, in the environment; without it, the process is alone."""

import os


def _number(name: str, default: int) -> int:
    return int(os.environ.get(name) or default)


def size() -> int:
    """How many workers there are, on all machines."""
    return _number("WORLD_SIZE", 1)


def rank() -> int:
    """The number of this worker, from 0."""
    return _number("RANK", 0) if size() > 1 else 0


def local_rank() -> int:
    """Its number on this machine."""
    return _number("LOCAL_RANK", 0)


def restarted() -> bool:
    """Whether the workers were started anew after one failed (`--max-restarts`)."""
    return _number("TORCHELASTIC_RESTART_COUNT", 0) > 0
