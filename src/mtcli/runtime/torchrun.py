"""The environment variables that torchrun, or another launcher, sets for each process that it starts.

A process belongs to a group only if all of `VARIABLES` are set. Some schedulers set `WORLD_SIZE` alone, for a job that
is launched later; a process in such an environment is a group of one.
"""

import os

from mtcli.errors import UsageError

VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""The variables that a rank needs to find the others."""


def size() -> int:
    """Return the number of ranks on all machines.

    Raises:
        UsageError: `WORLD_SIZE` is not a number.
    """
    if missing():
        return 1
    return max(1, _number("WORLD_SIZE", 1))


def rank() -> int:
    """Return the number of this rank, from 0.

    Raises:
        UsageError: `RANK` is not a number below `WORLD_SIZE`.
    """
    ranks = size()
    own = _number("RANK", 0) if ranks > 1 else 0
    if own >= ranks:
        raise UsageError(f"RANK={own} with WORLD_SIZE={ranks}: ranks count from 0; start all processes with torchrun")
    return own


def local_rank() -> int:
    """Return the number of this rank among those on the same machine, from 0."""
    return _number("LOCAL_RANK", 0)


def local_size() -> int:
    """Return the number of ranks on this machine; 1 if the launcher does not say."""
    return max(1, _number("LOCAL_WORLD_SIZE", 1)) if size() > 1 else 1


def restarted() -> bool:
    """Return True if the ranks were started again after one failed (`--max-restarts`)."""
    return _number("TORCHELASTIC_RESTART_COUNT", 0) > 0


def restarts_of_store() -> int:
    """Return how often the ranks were restarted with the same store; 0 if every restart has a new store.

    By default torchrun keeps one store and counts the restarts. Several machines count separately; there,
    set `TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1`, so that torchrun makes a new store at each restart.
    """
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return 0
    return _number("TORCHELASTIC_RESTART_COUNT", 0)


def missing() -> list[str]:
    """Return those of `VARIABLES` that are not set."""
    return [name for name in VARIABLES if not os.environ.get(name)]


def started_by_torchrun() -> bool:
    """Return True if torchrun started this process, and not another launcher that sets `VARIABLES`."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def leave() -> None:
    """Leave the group: from now on `size` returns 1 in this process."""
    os.environ.pop("WORLD_SIZE", None)


def _number(name: str, default: int) -> int:
    text = os.environ.get(name) or str(default)
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise UsageError(f"{name}={text}: not a valid number; unset it, or start with torchrun")
    return int(text)
