"""The work of one operation on the device: a launch, the bytes it moves, and its floating-point operations."""

from collections.abc import Iterator
from functools import cache
from typing import Any

import torch
from torch._ops import OpOverload

from simulated_cuda.counts import active, here

WITHOUT_KERNEL = {
    "_unsafe_view", "_reshape_alias", "empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided",
    "lift_fresh", "detach_", "set_", "resize_", "record_stream", "is_same_size",
}  # fmt: skip
"""Operations that launch nothing, besides views."""

ONLY_WRITE = {"copy_", "fill_", "zero_", "normal_", "random_", "uniform_", "bernoulli_"}
"""Operations that write their first argument without reading it."""

READ_SELECTED = {"embedding", "gather", "index", "index_select", "_unsafe_index"}
"""Operations that read only the selected elements of their first large argument."""

WRITE_SELECTED = {
    "scatter_", "scatter_add_", "index_fill_", "index_add_", "index_copy_", "index_put_", "_index_put_impl_",
}  # fmt: skip
"""Operations that change only the selected elements of their first argument."""


PRODUCTS = {"mm": 0, "bmm": 0, "addmm": 1, "baddbmm": 1}
"""Matrix products, and which argument is the first factor."""


@cache
def is_view(func: OpOverload) -> bool:
    """Return True if an operation launches no kernel: its results are views, or it allocates only."""
    if func.overloadpacket.__name__ in WITHOUT_KERNEL:
        return True
    returns = func._schema.returns
    return any(r.alias_info is not None and not r.alias_info.is_write for r in returns)


def count_launch(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
    """Count an operation whose arguments and result are tensors on the host."""
    if not active:
        return
    name = func.overloadpacket.__name__
    count_kernel(name, _bytes(name, args, kwargs, result), _flops(name, args, result))


def count_kernel(name: str, num_bytes: int, flops: int) -> None:
    """Count a launch that moves some bytes of device memory."""
    place = here()
    for counts in active:
        counts.launches[name, place] += 1
        counts.bytes[name] += num_bytes
        if flops:
            counts.flops[name] += flops


def _bytes(name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> int:
    """Return the bytes that an operation reads and writes, if each element is moved once."""
    inputs = list(_tensors([args, list(kwargs.values())]))
    outputs = list(_tensors([result]))
    if name in WRITE_SELECTED:
        return 2 * sum(_size(t) for t in inputs[1:])  # indices and values, and as much again in the destination
    if name in ONLY_WRITE:
        inputs = inputs[1:]
    if name in READ_SELECTED:
        largest = max(range(len(inputs)), key=lambda i: _size(inputs[i]))
        inputs = [t for i, t in enumerate(inputs) if i != largest]
        outputs = outputs * 2  # what is read of the largest one is as large as the result
    if isinstance(kwargs.get("out"), torch.Tensor):
        inputs = [t for t in inputs if t is not kwargs["out"]]
    return sum(map(_size, inputs)) + sum(map(_size, outputs))


def _flops(name: str, args: tuple[Any, ...], result: Any) -> int:
    """Return the floating-point operations of a matrix product or of attention; 0 for other operations."""
    if name in PRODUCTS:
        first_factor = args[PRODUCTS[name]]
        return 2 * int(result.numel()) * int(first_factor.size(-1))
    if not name.startswith("_scaled_dot_product_"):
        return 0
    is_backward = name.endswith("_backward")
    q, k = args[1:3] if is_backward else args[:2]
    one_product = 2 * q.numel() * k.size(-2)
    return int(one_product * (5 if is_backward else 2))


def _tensors(values: list[Any]) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, tuple | list):
            yield from _tensors(list(value))


def _size(tensor: torch.Tensor) -> int:
    """Return the bytes of the distinct elements of a tensor. An expanded dimension has one."""
    size = tensor.element_size()
    for length, stride in zip(tensor.shape, tensor.stride(), strict=True):
        if stride != 0 or length == 0:
            size *= length
    return size
