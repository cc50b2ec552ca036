"""What torchrun, or another launcher, says in the environment to each process that it starts.

A process belongs to a group only where the environment has all of `VARIABLES`. A scheduler that sets `WORLD_SIZE`
alone, for a job that is yet to be launched, does not count: such a process is alone.
"""

import os

from mtcli.errors import UsageError

VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""What every rank needs to find the others."""


def size() -> int:
    """Return the number of ranks on all machines.

    Raises:
        UsageError: The environment holds something other than numbers.
    """
    return max(1, _number("WORLD_SIZE", 1)) if not missing() else 1


def rank() -> int:
    """Return the number of this rank, from 0.

    Raises:
        UsageError: It is not below the number of ranks.
    """
    ranks, own = size(), _number("RANK", 0) if size() > 1 else 0
    if own >= ranks:
        raise UsageError(f"RANK={own} with WORLD_SIZE={ranks}: ranks count from 0; start all processes with torchrun")
    return own


def local_rank() -> int:
    """Return its number on this machine."""
    return _number("LOCAL_RANK", 0)


def restarted() -> bool:
    """Return True if the ranks were started again after one failed (`--max-restarts`)."""
    return _number("TORCHELASTIC_RESTART_COUNT", 0) > 0


def restarts_of_store() -> int:
    """Return how often the ranks were started again with the same store, 0 if each start has a store of its own.

    By default torchrun has one store, and counts its restarts. On several machines, which count separately, set
    `TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1` for torchrun to have a new store at each restart.
    """
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return 0
    return _number("TORCHELASTIC_RESTART_COUNT", 0)


def missing() -> list[str]:
    """Return the variables that a launcher would have set and the environment does not have."""
    return [name for name in VARIABLES if not os.environ.get(name)]


def started_by_torchrun() -> bool:
    """Return True if torchrun itself started this process, rather than a job whose scheduler sets `VARIABLES`."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def leave() -> None:
    """Be alone in what this process does, whatever the environment says."""
    os.environ.pop("WORLD_SIZE", None)


def _number(name: str, default: int) -> int:
    text = os.environ.get(name) or str(default)
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise UsageError(f"{name}={text}: not a number of a rank; unset it, or start with torchrun")
    return int(text)
