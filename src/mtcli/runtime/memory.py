"""The memory of this process: how much it can still allocate, and how long it keeps freed blocks.

Linux grants more memory than the machine has, and kills a process that uses too much. So `require` refuses an
allocation that cannot fit, with the figures.
"""

import ctypes
import os
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mtcli.errors import StorageError

CGROUP = Path("/sys/fs/cgroup")

OUT_OF_MEMORY = "can't allocate memory"
"""Part of the message of PyTorch."""

OWN_CGROUP = Path("/proc/self/cgroup")
"""Names the control group of this process, below `CGROUP`. In a container, it is usually `/`."""


def require(needed: float, what: str, remedy: str) -> None:
    """Check that enough memory is available.

    Args:
        needed: Bytes.
        what: Beginning of the message: what needs the memory.
        remedy: End of the message: what to do about it.

    Raises:
        StorageError: Less memory is available.
    """
    free = available()
    if free is not None and needed > free:
        raise StorageError(f"{what} needs about {_gigabytes(needed)} of memory, {_gigabytes(free)} are free; {remedy}")


def available() -> int | None:
    """Return the bytes that this process can still allocate, or None if the system does not report them."""
    # Each control group around that of the process, of a container or a job of a cluster, can have a limit.
    bounds = (_system_memory(), _address_space(), *map(_left_of_limit, control_groups()))
    known = [value for value in bounds if value is not None]
    return max(0, min(known)) if known else None


@contextmanager
def limited(num_bytes: int) -> Iterator[None]:
    """Limit what the process can allocate in the block, besides what it has already. Without `/proc`, do nothing.

    Args:
        num_bytes: The limit. Beyond it, Python raises a `MemoryError`, and PyTorch a `RuntimeError`.

    Raises:
        MemoryError: The block needs more. The `RuntimeError` becomes one too.
    """
    found = _data_memory()
    if found is None:
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limits = [limit for limit in (soft, hard, found + num_bytes) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min(limits), hard))
    try:
        yield
    except RuntimeError as error:
        if OUT_OF_MEMORY in str(error):
            raise MemoryError from error
        raise
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _data_memory() -> int | None:
    """Return the bytes that count for the limit `RLIMIT_DATA` of this process; None without `/proc`."""
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            name, _, rest = line.partition(":")
            if name == "VmData":
                return 1024 * int(rest.split()[0])
    return None


def used() -> int:
    """Return the bytes of memory that the process uses; without `/proc`, the most that it has used."""
    try:
        resident_pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return resident_pages * resource.getpagesize()


def _system_memory() -> int | None:
    """Return free memory plus reclaimable caches plus free swap space."""
    with suppress(OSError, ValueError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        kilobytes = {}
        for line in lines:
            name, _, rest = line.partition(":")
            kilobytes[name] = int(rest.split()[0])
        return 1024 * (kilobytes["MemAvailable"] + kilobytes.get("SwapFree", 0))
    with suppress(OSError, ValueError, AttributeError):
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")  # macOS reports only the total
    return None


def control_groups() -> list[Path]:
    """Return the folders of the control groups that this process is in, the innermost first (version 2)."""
    name = "/"
    with suppress(OSError):
        lines = OWN_CGROUP.read_text().splitlines()
        name = next((line.removeprefix("0::") for line in lines if line.startswith("0::")), "/")
    own = CGROUP / name.lstrip("/")
    return [group for group in (own, *own.parents) if group.is_relative_to(CGROUP)]


def _left_of_limit(group: Path) -> int | None:
    """Return what is left of the memory limit of one control group. Its file caches count as free."""
    with suppress(OSError, ValueError):
        limit = (group / "memory.max").read_text().strip()
        if limit == "max":
            return None
        used = int((group / "memory.current").read_text())
        counts = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        return int(limit) - used + int(counts.get("file", 0))
    return None


def _address_space() -> int | None:
    """Return what is left of the limit of `ulimit -v`."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY or sys.platform != "linux":
        return None
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return limit - pages * os.sysconf("SC_PAGE_SIZE")


def _gigabytes(n: float) -> str:
    return f"{n / 1e9:,.1f} GB"


def keep_freed_memory() -> None:
    """Keep freed memory for the next step, and make the kernel caches of PyTorch and oneDNN smaller.

    By default glibc returns large blocks to the system at once. Allocating them again, page by page, took 5% of a
    training step on a CPU. PyTorch and oneDNN cache a kernel for each of the last 1,024 shapes of a bf16 matrix product
    on a CPU. Batches have more shapes than that, so the caches were rarely hit and grew by 8 MB per step.
    """
    for name in ("LRU_CACHE_CAPACITY", "ONEDNN_PRIMITIVE_CACHE_CAPACITY"):  # both are read at the first bf16 product
        os.environ.setdefault(name, "64")
    with suppress(AttributeError, OSError):  # the C library is not glibc
        library = ctypes.CDLL(None)
        library.mallopt(-3, 2**25)  # M_MMAP_THRESHOLD, the largest value that every version accepts
        library.mallopt(-1, 2**31 - 1)  # M_TRIM_THRESHOLD


def share_freed_memory() -> None:
    """Let every thread reuse the memory that another has freed.

    By default glibc gives each thread an arena of its own. With two threads that search, the peak was 15% higher.
    """
    with suppress(AttributeError, OSError):
        library = ctypes.CDLL(None)
        library.mallopt(-8, 1)  # M_ARENA_MAX
        library.mallopt(-3, 2**24)  # M_MMAP_THRESHOLD: the caches of a search are returned to the system


def release_freed_memory() -> None:
    """Return freed blocks to the system, so that the process can allocate blocks of other sizes."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)
