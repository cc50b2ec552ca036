"""The simulated CUDA device itself: what it refuses, what it counts, and that its numbers are those of the CPU."""

from collections.abc import Callable
from threading import Thread

import pytest
import torch
import torch.nn.functional as F
from simulated_cuda import Counts, counting, needs_simulated_cuda, run

from mtcli.model.attention import reference_attention

pytestmark = needs_simulated_cuda


def device_tensor() -> torch.Tensor:
    return torch.arange(6.0).view(2, 3).cuda()


WAITS: dict[str, Callable[[torch.Tensor], object]] = {
    "item": lambda x: x.sum().item(),
    "float": lambda x: float(x.sum()),
    "bool": lambda x: bool((x > 1).any()),
    "tolist": lambda x: x.tolist(),
    "cpu": lambda x: x.cpu(),
    "to another type on the CPU": lambda x: x.to("cpu", torch.float64),
    "copy into pageable memory": lambda x: torch.empty(2, 3).copy_(x, non_blocking=True),
    "boolean index": lambda x: x[x > 1],
    "boolean index that is assigned": lambda x: x.__setitem__(x > 1, 0.0),
    "boolean index in the backward pass": lambda x: backward_of_index(x),
    "nonzero": lambda x: x.nonzero(),
    "masked_select": lambda x: x.masked_select(x > 1),
    "index on the CPU": lambda x: x[torch.tensor([1])],
    "index that is a list": lambda x: x[[1, 0]],
    "equal": lambda x: torch.equal(x, x),
    "tensor made on the host": lambda x: torch.tensor([1.0, 2.0], device="cuda"),
    "pageable upload": lambda x: torch.ones(3).to("cuda", non_blocking=True),
    "blocking upload": lambda x: torch.ones(3).pin_memory().to("cuda"),
    "synchronize": lambda x: torch.cuda.synchronize(),
    "event": lambda x: torch.cuda.Event().synchronize(),
    "number of repetitions": lambda x: x[0].repeat_interleave(torch.full((3,), 2, device="cuda")),
}
"""Each makes the host wait for the device."""

NO_WAITS: dict[str, Callable[[torch.Tensor], object]] = {
    "sum": lambda x: x.sum(),
    "mask": lambda x: x.masked_fill(x > 1, 0.0),
    "where": lambda x: torch.where(x > 1, x, 0.0),
    "index on the device": lambda x: x.index_select(0, torch.zeros(2, dtype=torch.long, device="cuda")),
    "number of the host": lambda x: x + torch.tensor(2.0),
    "norm that is clipped": lambda x: torch.nn.utils.clip_grad_norm_([weight_with_gradient(x)], 1.0),
    "asynchronous upload": lambda x: torch.ones(3).pin_memory().to("cuda", non_blocking=True),
    "pinned allocation": lambda x: torch.ones(3, pin_memory=True)[1:].to("cuda", non_blocking=True),
    "asynchronous download": lambda x: x.to("cpu", non_blocking=True),
}
"""None makes the host wait."""


def backward_of_index(x: torch.Tensor) -> None:
    leaf = x.detach().requires_grad_()
    mask = torch.zeros(2, 3, dtype=torch.bool, device="cuda")
    leaf[mask].sum().backward()


def weight_with_gradient(x: torch.Tensor) -> torch.Tensor:
    weight = torch.nn.Parameter(x.clone())
    weight.grad = torch.ones_like(weight)
    return weight


def count_waits() -> dict[str, int]:
    """Return the number of syncs of each of WAITS and NO_WAITS."""
    found = {}
    x = device_tensor()
    for name, operation in (WAITS | NO_WAITS).items():
        with counting() as counts:
            operation(x)
        found[name] = counts.num_syncs
    return found


def test_every_wait_of_the_host_is_counted() -> None:
    found = run(count_waits)
    assert [name for name in WAITS if not found[name]] == []
    assert [name for name in NO_WAITS if found[name]] == []
    twice = {"boolean index in the backward pass"}  # once in the forward pass
    assert {name for name in WAITS if found[name] > 1} == twice


def refusals() -> list[str]:
    """Return what mixing the CPU and the device raises."""
    x = device_tensor()
    y = torch.ones(2, 3)
    layer = torch.nn.Linear(3, 3)
    attempts: list[Callable[[], object]] = [
        lambda: x + y,
        lambda: y @ x.t(),
        lambda: torch.cat([x, y]),
        lambda: layer(x),
        lambda: y[torch.zeros(2, dtype=torch.long, device="cuda")],
        lambda: F.embedding(torch.tensor([1]), x),
        lambda: x.index_select(0, torch.tensor([1])),
        lambda: x.numpy(),
    ]
    found = []
    for attempt in attempts:
        try:
            attempt()
            found.append("nothing")
        except RuntimeError as error:
            found.append(str(error))
    return found


def test_tensors_of_two_devices_do_not_mix() -> None:
    *mixtures, numpy = run(refusals)
    assert [text for text in mixtures if "same device" not in text] == []
    assert "numpy" in numpy


def count_work() -> Counts:
    """Count a product, an addition in place, a view and an upload."""
    x = torch.ones(4, 8).pin_memory()
    weight = torch.ones(16, 8, device="cuda")
    with counting() as counts:
        y = x.to("cuda", non_blocking=True) @ weight.t()
        y += 1.0
        y.view(-1)
    return counts


def test_launches_bytes_and_flops_are_counted_with_their_place() -> None:
    counts = run(count_work)
    assert counts.launches_of() == {"mm": 1, "add_": 1}
    assert counts.bytes == {"mm": 4 * (4 * 8 + 8 * 16 + 4 * 16), "add_": 2 * 4 * 4 * 16}
    assert counts.num_flops == 2 * 4 * 8 * 16
    assert counts.upload_bytes == 4 * 4 * 8
    assert counts.uploads.total() == 1
    places = {place.partition(":")[0] for _, place in [*counts.launches, *counts.uploads]}
    assert places == {"test_simulated_device.py"}
    assert "asynchronous at test_simulated_device.py:" in str(counts)


def count_nested() -> list[int]:
    x = device_tensor()
    with counting() as outer:
        with counting() as inner:
            x.sum()
        x.sum()
    return [inner.num_launches, outer.num_launches]


def test_counted_blocks_can_be_nested() -> None:
    assert run(count_nested) == [1, 2]


def late_values() -> tuple[bool, list[float]]:
    x = device_tensor()
    read = x[0].to("cpu", non_blocking=True)
    has_values_early = not bool(read.isnan().all())
    torch.cuda.Event().synchronize()
    return has_values_early, read.tolist()


def overwritten_source() -> str:
    source = torch.ones(3).pin_memory()
    source.to("cuda", non_blocking=True)
    source.zero_()
    try:
        torch.cuda.synchronize()
    except RuntimeError as error:
        return str(error)
    return ""


def test_an_asynchronous_copy_is_complete_only_after_a_sync() -> None:
    has_values_early, values = run(late_values)
    assert not has_values_early
    assert values == [0.0, 1.0, 2.0]
    assert "changed the source" in run(overwritten_source)


def attention_error(dtype: str, kind: str, cudnn: bool) -> tuple[list[str], float]:
    """Return the kernels that were used, and the largest relative error of output and gradients."""
    torch.manual_seed(1)
    torch.backends.cuda.enable_cudnn_sdp(cudnn)
    q, k, v = (torch.randn(2, 3, 7, 16, dtype=getattr(torch, dtype), requires_grad=True) for _ in range(3))
    mask = torch.arange(7) < torch.tensor([7, 4])[:, None, None, None] if kind == "masked" else None
    direction = torch.randn(2, 3, 7, 16, dtype=q.dtype)

    def gradients(tensors: list[torch.Tensor], output: torch.Tensor) -> list[torch.Tensor]:
        return [output, *torch.autograd.grad(output, tensors, direction.to(output))]

    exact = gradients([q, k, v], reference_attention(q.float(), k.float(), v.float(), mask, kind == "causal"))
    on_device = [x.detach().cuda().requires_grad_() for x in (q, k, v)]
    device_mask = None if mask is None else mask.cuda()
    with counting() as counts:
        output = F.scaled_dot_product_attention(*on_device, attn_mask=device_mask, is_causal=kind == "causal")
    found = gradients(on_device, output)
    pairs = zip(found, exact, strict=True)
    error = max(float((a.cpu().float() - b.float()).norm() / b.float().norm()) for a, b in pairs)
    torch.backends.cuda.enable_cudnn_sdp(True)
    return list(counts.attention), error


@pytest.mark.parametrize(
    ("dtype", "kind", "cudnn", "kernel"),
    [
        ("float32", "full", True, "efficient"),
        ("float32", "masked", True, "efficient"),
        ("bfloat16", "causal", True, "cudnn"),
        ("bfloat16", "masked", True, "cudnn"),
        ("bfloat16", "causal", False, "flash"),
        ("bfloat16", "masked", False, "efficient"),
    ],
)
def test_attention_kernels_equal_the_reference(dtype: str, kind: str, cudnn: bool, kernel: str) -> None:
    kernels, error = run(attention_error, dtype, kind, cudnn)
    assert kernels == [f"{kernel} {dtype} {kind}"]
    assert error < (1e-6 if dtype == "float32" else 1e-2)


def train_in_a_thread() -> float:
    """Return the difference between weights after a step on the device, in another thread, and on the CPU."""
    found = {}

    def step(device: str) -> None:
        torch.manual_seed(1)
        layer = torch.nn.Linear(3, 2).to(device)
        optimizer = torch.optim.AdamW(layer.parameters(), fused=True)
        layer(torch.ones(4, 3, device=device)).square().sum().backward()
        optimizer.step()
        found[device] = layer.weight.detach().cpu()

    for device in ("cpu", "cuda"):
        thread = Thread(target=step, args=(device,))
        thread.start()
        thread.join()
    return float((found["cpu"] - found["cuda"]).abs().max())


def test_other_threads_can_use_the_device() -> None:
    assert run(train_in_a_thread) == 0.0


def test_errors_come_back() -> None:
    with pytest.raises(ZeroDivisionError):
        run(divmod_by_zero, 1)


def divmod_by_zero(number: int) -> tuple[int, int]:
    return divmod(number, 0)
