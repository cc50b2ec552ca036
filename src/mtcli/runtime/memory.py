"""The memory of this process: how much it can still allocate, and how long it keeps freed blocks.

Linux grants more memory than there is, and kills the process that uses it. So an allocation that is certain not to
fit is refused here, with the figures.
"""

import ctypes
import os
import resource
import sys
from contextlib import suppress
from pathlib import Path

from mtcli.errors import StorageError

CGROUP = Path("/sys/fs/cgroup")


def require(needed: float, what: str, remedy: str) -> None:
    """Make sure that there is memory for something.

    Args:
        needed: Bytes.
        what: Needs them; begins the message.
        remedy: What to do where there is too little; ends the message.

    Raises:
        StorageError: There is too little.
    """
    free = available()
    if free is not None and needed > free:
        raise StorageError(f"{what} needs about {_gigabytes(needed)} of memory, {_gigabytes(free)} are free; {remedy}")


def available() -> int | None:
    """Bytes that this process can still take; None: the system does not say."""
    found = [value for value in (_of_system(), _of_control_group(), _of_limit()) if value is not None]
    return max(0, min(found)) if found else None


def _of_system() -> int | None:
    """Free memory, memory that caches give back, and free swap space."""
    with suppress(OSError, ValueError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        kilobytes = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)}
        return 1024 * (kilobytes["MemAvailable"] + kilobytes.get("SwapFree", 0))
    with suppress(OSError, ValueError, AttributeError):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")  # macOS: all there is
    return None


def _of_control_group() -> int | None:
    """What is left of a container's limit, its file caches not counted."""
    with suppress(OSError, ValueError):
        limit = (CGROUP / "memory.max").read_text().strip()
        if limit == "max":
            return None
        used = int((CGROUP / "memory.current").read_text())
        counts = dict(line.split() for line in (CGROUP / "memory.stat").read_text().splitlines())
        return int(limit) - used + int(counts.get("file", 0))
    return None


def _of_limit() -> int | None:
    """What is left of `ulimit -v`."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY or sys.platform != "linux":
        return None
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return limit - pages * os.sysconf("SC_PAGE_SIZE")


def _gigabytes(n: float) -> str:
    return f"{n / 1e9:,.1f} GB"


def keep_freed_memory() -> None:
    """Keep blocks that one step frees for the next step, and keep fewer kernels of PyTorch and oneDNN.

    glibc returns large blocks to the system at once. Getting them again, page by page, took 5% of a step on a CPU.
    PyTorch and oneDNN cache a kernel for each of the last 1,024 shapes of a bf16 product on a CPU. Batches have more
    shapes than that, so the caches were rarely hit and grew by 8 MB per step.
    """
    for name in ("LRU_CACHE_CAPACITY", "ONEDNN_PRIMITIVE_CACHE_CAPACITY"):  # both are read at the first such product
        os.environ.setdefault(name, "64")
    with suppress(AttributeError, OSError):  # another C library than glibc
        library = ctypes.CDLL(None)
        library.mallopt(-3, 2**25)  # M_MMAP_THRESHOLD, at the largest value that every version accepts
        library.mallopt(-1, 2**31 - 1)  # M_TRIM_THRESHOLD


def release_freed_memory() -> None:
    """Return freed blocks to the system, before this process allocates blocks of other sizes."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)
