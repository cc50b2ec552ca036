"""What the simulated device is asked to do: launches, host syncs, copies, bytes and FLOPs."""

import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

HERE = str(Path(__file__).parent)

ROOTS = ("/threading.py", "/concurrent/futures/process.py")
"""The files of Python in which a thread or the process begins."""

At = tuple[str, str]
"""What happened and where: `("_local_scalar_dense", "learner.py:104")`."""


@dataclass(repr=False, eq=False)  # equal counts are of different blocks
class Counts:
    """The work of the device while `counting` was active."""

    launches: Counter[At] = field(default_factory=Counter)
    """Operations that launch at least one kernel, by operation and place. Views launch none."""
    syncs: Counter[At] = field(default_factory=Counter)
    """Waits of the host for the device, by reason and place."""
    background_syncs: Counter[At] = field(default_factory=Counter)
    """Waits in threads that Python code has started: they do not delay the others."""
    uploads: Counter[At] = field(default_factory=Counter)
    """Copies from the host to the device: `asynchronous`, or `blocking`, which are among the syncs too."""
    downloads: Counter[At] = field(default_factory=Counter)
    """Copies from the device to the host: `asynchronous` or `blocking`."""
    bytes: Counter[str] = field(default_factory=Counter)
    """Bytes of device memory read and written, by operation, as if nothing were cached."""
    upload_bytes: int = 0
    """Bytes copied from the host to the device."""
    flops: Counter[str] = field(default_factory=Counter)
    """Floating-point operations of matrix products and attention, by operation."""
    attention: Counter[str] = field(default_factory=Counter)
    """Calls of attention kernels, such as `flash bfloat16 causal`."""

    @property
    def num_launches(self) -> int:
        """Operations that launch at least one kernel."""
        return self.launches.total()

    @property
    def num_syncs(self) -> int:
        """Waits of the host for the device."""
        return self.syncs.total()

    @property
    def num_bytes(self) -> int:
        """Bytes of device memory read and written."""
        return self.bytes.total()

    @property
    def num_flops(self) -> int:
        """Floating-point operations of matrix products and attention."""
        return self.flops.total()

    def launches_of(self) -> Counter[str]:
        """Return the launches by operation."""
        found: Counter[str] = Counter()
        for (operation, _), number in self.launches.items():
            found[operation] += number
        return found

    def __repr__(self) -> str:
        lines = [f"{self.num_launches} launches, {self.num_bytes:,} bytes, {self.num_flops:,} FLOPs"]
        for name in ("syncs", "background_syncs", "uploads", "downloads"):
            events: Counter[At] = getattr(self, name)
            lines.append(f"{events.total()} {name.replace('_', ' ')}")
            lines += [f"  {number} × {what} at {where}" for (what, where), number in events.most_common()]
        return "\n".join(lines)


active: list[Counts] = []
"""The counts of all blocks that are being counted. Blocks can be nested."""


@contextmanager
def counting() -> Iterator[Counts]:
    """Count the work of the device in a block, in all threads."""
    counts = Counts()
    active.append(counts)
    try:
        yield counts
    finally:
        active.remove(counts)


def here() -> str:
    """Return file and line of the innermost frame outside PyTorch and the simulated device: `learner.py:104`.

    In the backward pass, which runs in a thread of PyTorch, there may be none: `autograd`.
    """
    frame = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if file.endswith(ROOTS):
            break
        if not file.startswith((HERE, "<")) and "-packages/torch/" not in file:
            return f"{Path(file).name}:{frame.f_lineno}"
        frame = frame.f_back
    return "autograd"


def count_sync(reason: str) -> None:
    """Count a wait of the host for the device."""
    thread = threading.current_thread()
    # Backward passes run in a thread of PyTorch, which Python calls a dummy, while the main thread waits for them.
    in_background = thread is not threading.main_thread() and not isinstance(thread, threading._DummyThread)
    for counts in active:
        syncs = counts.background_syncs if in_background else counts.syncs
        syncs[reason, here()] += 1
