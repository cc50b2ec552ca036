"""The results of operations on the device, computed on the CPU."""

from typing import Any

import torch
from torch._ops import OpOverload

from simulated_cuda.attention import KERNELS
from simulated_cuda.work import PRODUCTS


def compute(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the result of an operation on tensors of the host."""
    name = func.overloadpacket.__name__
    if name in KERNELS:
        return KERNELS[name](*args, **kwargs)
    if name in PRODUCTS and any(isinstance(x, torch.Tensor) and x.dtype == torch.bfloat16 for x in args):
        return _product_in_bf16(func, args, kwargs)
    return func(*args, **kwargs)


def _product_in_bf16(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor:
    """Return a product of bf16 matrices that is added up in float32 and rounded once, as a GPU does.

    A CPU would generate a kernel for each new shape, which takes longer than the products of a test.
    """
    others = dict(kwargs)
    out: torch.Tensor | None = others.pop("out", None)
    factors = [x.float() if isinstance(x, torch.Tensor) else x for x in args]
    result: torch.Tensor = func.overloadpacket(*factors, **others)
    if out is None:
        return result.bfloat16()
    return out.copy_(result)
