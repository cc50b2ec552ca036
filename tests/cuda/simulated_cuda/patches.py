"""The functions of `torch.cuda` and `torch` that need a CUDA library, replaced for the simulated device."""

import importlib
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import torch

from simulated_cuda.counts import count_sync
from simulated_cuda.tensor import DeviceTensor, register_factories
from simulated_cuda.transfers import settle

MEMORY = 80 * 2**30
"""Bytes of device memory."""


def install() -> None:
    """Make the simulated device the CUDA device of this process."""
    register_factories()
    _patch_cuda()
    _patch_tensors()
    torch.inference_mode = _inference_mode
    # Lists of many tensors have one operation for all of them, if their class is listed.
    for module in ("torch.utils._foreach_utils", "torch.optim.optimizer"):
        importlib.import_module(module)._foreach_supported_types.append(DeviceTensor)
    torch.compile = lambda model=None, **_: model if model is not None else lambda function: function
    # `module.to(device)` otherwise assigns to `parameter.data`, which cannot become a tensor of another class.
    torch.__future__.set_swap_module_params_on_conversion(True)


def _inference_mode(mode: Any = True) -> Any:
    """Replace `torch.inference_mode` by `torch.no_grad`: it does not allow views of tensors of our class."""
    if callable(mode):
        return torch.no_grad()(mode)
    return torch.no_grad() if mode else nullcontext()


def _patch_cuda() -> None:
    cuda: Any = torch.cuda
    properties = SimpleNamespace(
        name="simulated CUDA device", major=9, minor=0, total_memory=MEMORY, multi_processor_count=132
    )
    answers = {
        "_lazy_init": None,
        "is_available": True,
        "is_initialized": True,
        "is_bf16_supported": True,
        "device_count": 1,
        "current_device": 0,
        "set_device": None,
        "get_device_name": properties.name,
        "get_device_capability": (properties.major, properties.minor),
        "get_device_properties": properties,
        "mem_get_info": (MEMORY, MEMORY),
        "memory_allocated": 0,
        "memory_reserved": 0,
        "max_memory_allocated": 0,
        "reset_peak_memory_stats": None,
        "empty_cache": None,
        "manual_seed": None,
        "manual_seed_all": None,
        "is_current_stream_capturing": False,
    }
    for name, answer in answers.items():
        setattr(cuda, name, lambda *_, _answer=answer, **__: _answer)
    cuda.synchronize = lambda device=None: _synchronize("torch.cuda.synchronize")
    cuda.Event = Event
    cuda.Stream = Stream
    cuda.current_stream = lambda device=None: Stream()
    cuda.default_stream = lambda device=None: Stream()
    cuda.stream = _in_stream


def _synchronize(reason: str) -> None:
    settle()
    count_sync(reason)


class Event:
    """Replaces `torch.cuda.Event`. All work is done at once, so each event is complete."""

    def __init__(self, **_: Any):
        self.seconds = 0.0

    def record(self, stream: Any = None) -> None:
        """Note the time of the host."""
        self.seconds = time.perf_counter()

    def synchronize(self) -> None:
        """Wait for the event, which is a sync."""
        _synchronize("Event.synchronize")

    def query(self) -> bool:
        """Return True: the work before the event is done."""
        settle()
        return True

    def wait(self, stream: Any = None) -> None:
        """Let a stream wait, which the host does not notice."""

    def elapsed_time(self, end: "Event") -> float:
        """Return the milliseconds between two events, by the clock of the host."""
        return 1000 * (end.seconds - self.seconds)


class Stream:
    """Replaces `torch.cuda.Stream`. There is one stream only."""

    def __init__(self, *_: Any, **__: Any):
        self.device = torch.device("cuda", 0)

    def synchronize(self) -> None:
        """Wait for the stream, which is a sync."""
        _synchronize("Stream.synchronize")

    def wait_stream(self, stream: Any) -> None:
        """Let a stream wait, which the host does not notice."""

    def wait_event(self, event: Any) -> None:
        """Let a stream wait, which the host does not notice."""

    def record_event(self, event: Event | None = None) -> Event:
        """Return an event after the work so far."""
        event = event or Event()
        event.record()
        return event


@contextmanager
def _in_stream(stream: Any) -> Iterator[None]:
    yield


def _patch_tensors() -> None:
    """Replace the functions that look at a tensor's memory."""
    tolist = torch.Tensor.tolist

    def tensor_tolist(self: torch.Tensor) -> Any:
        return tolist(self.cpu() if isinstance(self, DeviceTensor) else self)

    torch.Tensor.tolist = tensor_tolist  # type: ignore[method-assign]
