"""The process that has the simulated device."""

import importlib
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context
from typing import Any, ParamSpec, TypeVar

import pytest

from simulated_cuda.library import unavailable

P = ParamSpec("P")
R = TypeVar("R")

needs_simulated_cuda = pytest.mark.skipif(unavailable() != "", reason=unavailable())
"""Skips a test where the device cannot be built."""


def run(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Call a function in the process that has the simulated device.

    Args:
        function: At the top level of a module that can be imported by name, such as a test module.
        args: Its arguments, which must be picklable.
        kwargs: Its keyword arguments.

    Returns:
        What it returned. What it raised is raised here.
    """
    if reason := unavailable():
        pytest.skip(reason)
    result: R = _process().submit(_call, function.__module__, function.__qualname__, args, kwargs).result()
    return result


@cache
def _process() -> ProcessPoolExecutor:
    """Start the process. It ends with this one."""
    return ProcessPoolExecutor(max_workers=1, mp_context=get_context("spawn"), initializer=_start)


def _start() -> None:
    """Prepare the new process: the device first, so that no module has seen PyTorch without it."""
    from simulated_cuda import library

    library.load()
    import torch

    from simulated_cuda import kernels, patches

    patches.install()
    kernels.install()
    torch.set_num_threads(1)


def _call(module: str, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return getattr(importlib.import_module(module), name)(*args, **kwargs)
