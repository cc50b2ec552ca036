"""A tensor that reports `cuda:0` and whose numbers are a tensor of the CPU."""

from collections.abc import Iterable, Iterator
from functools import cache, partial
from typing import Any, cast

import torch
from torch._ops import OpOverload
from torch.utils._python_dispatch import return_and_correct_aliasing

from simulated_cuda import transfers
from simulated_cuda.compute import compute
from simulated_cuda.counts import count_sync, here
from simulated_cuda.work import count_launch, is_view

DEVICE = torch.device("cuda", 0)

WAITING = {
    "_local_scalar_dense", "nonzero", "masked_select", "equal", "bincount", "_unique2", "unique_dim",
    "unique_consecutive", "repeat_interleave",
}  # fmt: skip
"""Operations after which the host needs a number from the device: a value, or the size of the result."""

INDEXING = {"index", "_unsafe_index", "index_put", "index_put_", "_index_put_impl_"}
"""Operations that take a list of index tensors. They may be on the CPU, or boolean."""

COPYING = {"copy_", "_to_copy"}


class DeviceTensor(torch.Tensor):
    """A tensor on the simulated device. `on_host` has its numbers and the same shape, strides and type."""

    on_host: torch.Tensor

    @staticmethod
    def __new__(cls, on_host: torch.Tensor) -> "DeviceTensor":
        tensor = torch.Tensor._make_wrapper_subclass(
            cls,
            on_host.size(),
            strides=on_host.stride(),
            storage_offset=on_host.storage_offset(),
            dtype=on_host.dtype,
            layout=on_host.layout,
            device=DEVICE,
        )
        tensor.on_host = on_host
        return cast(DeviceTensor, tensor)

    def __repr__(self, **_: Any) -> str:
        return f"DeviceTensor({self.on_host})"

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(
        cls, func: OpOverload, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return dispatch(func, args, kwargs or {})


def dispatch(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Compute an operation on the CPU, and count what it asks of the device."""
    if _is_composite(func):
        result = func.decompose(*args, **kwargs)
        if result is not NotImplemented:
            return result
    name = func.overloadpacket.__name__
    tensors = list(_tensors((*args, *kwargs.values())))
    _check_devices(func, name, args, tensors)
    _count_waits(name, args, kwargs)
    if name == "copy_":
        return _copy(func, args, kwargs)
    if name == "_to_copy" and _target(kwargs) == "cpu":
        return transfers.download(host(args[0]), kwargs)
    host_args = host(args)
    host_kwargs = {key: host(value) for key, value in kwargs.items()}
    if host_kwargs.get("device") is not None:
        host_kwargs["device"] = torch.device("cpu")
    if name == "_to_copy":
        host_kwargs.pop("non_blocking", None)
    computed = compute(func, host_args, host_kwargs)
    if name in ("_local_scalar_dense", "equal", "is_same_size"):
        return computed
    if not is_view(func):
        count_launch(func, host_args, host_kwargs, computed)
    out = kwargs.get("out")
    if isinstance(out, DeviceTensor) and out.shape != out.on_host.shape:
        raise NotImplementedError(f"{func} at {here()} resizes its result, which the simulated device cannot do")
    if not _has_aliases(func):
        return _on_device(computed)
    return return_and_correct_aliasing(func, args, kwargs, _on_device(computed))


@cache
def _is_composite(func: OpOverload) -> bool:
    """Return True if an operation consists of others. It arrives here whole where autograd has been passed."""
    name = func.name()
    return torch._C._dispatch_has_kernel_for_dispatch_key(name, "CompositeImplicitAutograd")


@cache
def _has_aliases(func: OpOverload) -> bool:
    """Return True if a result of an operation is one of its arguments, or a view of it."""
    return any(result.alias_info is not None for result in func._schema.returns)


def host(values: Any) -> Any:
    """Replace the tensors of the device, at any depth, by their numbers on the host."""
    if isinstance(values, DeviceTensor):
        return values.on_host
    if isinstance(values, tuple | list):
        return type(values)(map(host, values))
    return values


def _on_device(values: Any) -> Any:
    """Replace the tensors of the host, at any depth, by tensors of the device."""
    if isinstance(values, torch.Tensor):
        return DeviceTensor(values)
    if isinstance(values, tuple | list):
        return type(values)(map(_on_device, values))
    return values


def _tensors(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    """Yield the tensors in the arguments of an operation."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, tuple | list):
            yield from _tensors(value)


def _target(kwargs: dict[str, Any]) -> str:
    """Return the type of the device that an operation names, or an empty string."""
    device = kwargs.get("device")
    return "" if device is None else torch.device(device).type


def _check_devices(func: OpOverload, name: str, args: tuple[Any, ...], tensors: list[torch.Tensor]) -> None:
    """Raise if tensors of two devices meet. A CPU tensor without dimensions counts as a number, as on a GPU.

    Raises:
        RuntimeError: As PyTorch raises on a GPU.
    """
    if name in COPYING:
        return
    is_fused_optimizer = name.startswith("_fused_")
    others = [t for t in tensors if not isinstance(t, DeviceTensor) and (t.dim() > 0 or is_fused_optimizer)]
    if others and not (name in INDEXING and isinstance(args[0], DeviceTensor)):
        shapes = ", ".join(str(tuple(t.shape)) for t in others)
        raise RuntimeError(f"Expected all tensors to be on the same device: {func} at {here()} has {shapes} on the cpu")


def _count_waits(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Count the wait of the host that an operation implies, other than a copy."""
    waits = name in WAITING and "output_size" not in kwargs
    if name in INDEXING:
        indices = [index for index in args[1] if index is not None]
        if any(not isinstance(index, DeviceTensor) for index in indices):
            transfers.settle()
            count_sync(f"{name} with an index on the cpu")
        if any(index.dtype in (torch.bool, torch.uint8) for index in indices):
            transfers.settle()
            count_sync(f"{name} with a boolean index")
    if waits:
        transfers.settle()
        count_sync(name)


def _copy(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Copy in place, within the device or between host and device."""
    destination, source, *rest = args
    is_async = bool(rest[0]) if rest else bool(kwargs.get("non_blocking"))
    if not isinstance(source, DeviceTensor):
        transfers.upload(destination.on_host, source, is_async)
    elif not isinstance(destination, DeviceTensor):
        transfers.download_into(destination, source.on_host, is_async)
    else:
        destination.on_host.copy_(source.on_host)
        count_launch(func, (destination.on_host, source.on_host), {}, destination.on_host)
    return destination


FACTORIES = (
    "empty.memory_format", "empty_strided", "arange", "arange.start", "arange.start_step", "linspace", "eye", "eye.m",
    "randperm", "randperm.generator",
)  # fmt: skip
"""Operations that create tensors of the device. PyTorch derives the others, such as `zeros`, from the first two."""


def register_factories() -> None:
    """Register the operations that create tensors of the device."""
    library = torch.library.Library("aten", "IMPL")
    _registered.append(library)
    for name in FACTORIES:
        library.impl(name, partial(_create, name), "CUDA")
    # `torch.tensor` and an index that is a list copy where `__torch_dispatch__` is disabled.
    library.impl("copy_", lambda *args: _copy(torch.ops.aten.copy_.default, args, {}), "CUDA")


_registered: list[torch.library.Library] = []
"""A registration ends when its library is deleted."""


def _create(name: str, *args: Any, **kwargs: Any) -> DeviceTensor:
    """Create a tensor of the device. Tensors without values take no launch."""
    packet, _, overload = name.partition(".")
    func: OpOverload = getattr(getattr(torch.ops.aten, packet), overload or "default")
    created = func(*args, **{**kwargs, "device": torch.device("cpu")})
    if not is_view(func):
        count_launch(func, args, {}, created)
    return DeviceTensor(created)
