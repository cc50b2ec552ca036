"""Copies between the host and the simulated device.

An asynchronous copy may happen at any time before the next sync. So its destination on the host has no values until
then (NaN, or the smallest integer), and its source on the host must not change until then.
"""

from typing import Any

import torch

from simulated_cuda.counts import active, count_sync, here

_downloads: list[tuple[torch.Tensor, torch.Tensor]] = []
"""Destination on the host, and its values after the next sync."""

_uploads: list[tuple[torch.Tensor, torch.Tensor, str]] = []
"""Source on the host, the values it must keep until the next sync, and the place of the copy."""


def settle() -> None:
    """Finish all asynchronous copies, as a sync does.

    Raises:
        RuntimeError: The host has overwritten the source of an asynchronous copy.
    """
    while _downloads:
        destination, values = _downloads.pop()
        destination.copy_(values)
    changed = [place for source, values, place in _uploads if not torch.equal(source, values)]
    _uploads.clear()
    if changed:
        raise RuntimeError(f"the host changed the source of an asynchronous copy before a sync: {', '.join(changed)}")


def upload(destination: torch.Tensor, source: torch.Tensor, non_blocking: bool) -> None:
    """Copy from the host to the device. Only pinned memory can be copied asynchronously."""
    place = here()
    is_async = non_blocking and source.is_pinned()
    for counts in active:
        counts.uploads["asynchronous" if is_async else "blocking", place] += 1
        counts.upload_bytes += source.numel() * source.element_size()
    destination.copy_(source)
    if is_async:
        _uploads.append((source, source.clone(), place))
    else:
        settle()
        count_sync("upload")


def download(source: torch.Tensor, kwargs: dict[str, Any]) -> torch.Tensor:
    """Return a copy on the host, as `tensor.to("cpu", …)` does. An asynchronous copy has pinned memory."""
    is_async = bool(kwargs.get("non_blocking"))
    dtype = kwargs.get("dtype") or source.dtype
    destination = torch.empty_like(source, dtype=dtype, pin_memory=is_async)
    download_into(destination, source, is_async)
    return destination


def download_into(destination: torch.Tensor, source: torch.Tensor, non_blocking: bool) -> None:
    """Copy from the device to the host. Only pinned memory can be copied to asynchronously."""
    is_async = non_blocking and destination.is_pinned()
    for counts in active:
        counts.downloads["asynchronous" if is_async else "blocking", here()] += 1
    if is_async:
        _downloads.append((destination, source.clone()))
        destination.copy_(_no_values(destination))
    else:
        settle()
        destination.copy_(source)
        count_sync("download")


def _no_values(like: torch.Tensor) -> torch.Tensor:
    if like.dtype.is_floating_point:
        return torch.full_like(like, torch.nan)
    if like.dtype == torch.bool:
        return torch.ones_like(like)
    return torch.full_like(like, torch.iinfo(like.dtype).min)
