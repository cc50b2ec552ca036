"""Label-smoothed cross-entropy: the formula, PyTorch's own and the projected loss agree."""

import math
import subprocess
import sys
from pathlib import Path
from typing import Literal

import pytest
import torch
import torch.nn.functional as F
from conftest import descend
from torch import Tensor

from mtcli.config.schema import ModelConfig, TrainConfig
from mtcli.corpus.batching import Batch
from mtcli.model import loss as loss_module
from mtcli.model.fast.cpu_kernels import HAS_ONEDNN
from mtcli.model.fast.logit_gradient import LossProducts, OneDnnProducts, reference_logit_gradient_
from mtcli.model.loss import projected_loss, reference_loss
from mtcli.model.precision import uses_bf16
from mtcli.model.transformer import Transformer
from mtcli.text.special_tokens import BOS, EOS, PAD
from mtcli.training.gradients import Objective
from mtcli.training.optimizer import Adam

N, D, V = 11, 6, 9
SMOOTHING = [0.0, 0.1, 0.5]


def draw(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(1)
    hidden = torch.randn(N, D, dtype=dtype, requires_grad=True)
    weight = torch.randn(V, D, dtype=dtype, requires_grad=True)
    return hidden, weight, torch.randint(V, (N,))


@pytest.mark.parametrize("smoothing", SMOOTHING)
def test_reference_equals_the_formula_and_pytorch(smoothing: float) -> None:
    hidden, weight, target = draw()
    logits = hidden @ weight.t()
    loss, nll = reference_loss(logits, target, smoothing)
    p, gold, by_hand = logits.softmax(-1).tolist(), target.tolist(), 0.0
    for n in range(N):
        for v in range(V):
            by_hand -= (smoothing / V + (1 - smoothing) * (v == gold[n])) * math.log(p[n][v])
    assert loss.item() == pytest.approx(by_hand, rel=1e-13)
    torch.testing.assert_close(loss, F.cross_entropy(logits, target, label_smoothing=smoothing, reduction="sum"))
    torch.testing.assert_close(nll, F.cross_entropy(logits, target, reduction="sum"))


@pytest.mark.parametrize("chunk", [1, 4, N, 512])
@pytest.mark.parametrize("smoothing", SMOOTHING)
def test_projected_equals_reference(monkeypatch: pytest.MonkeyPatch, smoothing: float, chunk: int) -> None:
    monkeypatch.setattr(loss_module, "CPU_CHUNK", chunk)
    hidden, weight, target = draw()
    expected, expected_nll = reference_loss(hidden @ weight.t(), target, smoothing)
    loss, nll = projected_loss(hidden, weight, target, smoothing)
    exact = {"rtol": 1e-13, "atol": 1e-13}  # float64, summed in another order
    torch.testing.assert_close(loss, expected, **exact)
    torch.testing.assert_close(nll, expected_nll, **exact)
    # The training loop divides by the number of tokens, so a factor must reach the gradients.
    for a, e in zip(
        torch.autograd.grad(loss / 7, (hidden, weight)),
        torch.autograd.grad(expected / 7, (hidden, weight)),
        strict=True,
    ):
        torch.testing.assert_close(a, e, **exact)


@pytest.mark.parametrize("chunk", [4, 512])
@pytest.mark.parametrize("smoothing", SMOOTHING)
def test_projected_equals_reference_with_a_bias(monkeypatch: pytest.MonkeyPatch, smoothing: float, chunk: int) -> None:
    monkeypatch.setattr(loss_module, "CPU_CHUNK", chunk)
    hidden, weight, target = draw()
    bias = torch.randn(len(weight), dtype=weight.dtype, requires_grad=True)
    expected = reference_loss(hidden @ weight.t() + bias, target, smoothing)
    found = projected_loss(hidden, weight, target, smoothing, bias=bias)
    exact = {"rtol": 1e-13, "atol": 1e-13}
    torch.testing.assert_close(found, expected, **exact)
    parameters = (hidden, weight, bias)
    gradients = (torch.autograd.grad(loss / 7, parameters) for loss, _ in (found, expected))
    torch.testing.assert_close(*gradients, **exact)


@pytest.mark.skipif(not HAS_ONEDNN, reason="PyTorch without oneDNN or MKL")
@pytest.mark.parametrize("needs_grad", [(True, True), (True, False), (False, True), (False, False)])
def test_the_products_of_onednn_equal_those_of_pytorch(needs_grad: tuple[bool, bool]) -> None:
    hidden, weight, _ = (x.detach() for x in draw(torch.float32))
    offsets = torch.randn(2, D)
    error = torch.randn(N, V)
    both = [cls(hidden, weight, 4, needs_grad, *offsets) for cls in (OneDnnProducts, LossProducts)]
    for first in range(0, N, 4):
        torch.testing.assert_close(*(products.logits(first) for products in both))
        for products in both:
            products.accumulate(first, error[first : first + 4])
    for found, expected, is_needed in zip(*(products.gradients() for products in both), needs_grad, strict=True):
        assert (found is not None) == (expected is not None) == is_needed
        if is_needed:
            torch.testing.assert_close(found, expected)
            assert found.is_contiguous()


def test_gradient_equals_finite_differences(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss_module, "CPU_CHUNK", 4)
    hidden, weight, target = draw()
    assert torch.autograd.gradcheck(lambda h, w: projected_loss(h, w, target, 0.1)[0], (hidden, weight))


def test_only_the_loss_has_a_gradient() -> None:
    hidden, weight, target = draw()
    loss, nll = projected_loss(hidden, weight, target, 0.1)
    assert loss.requires_grad
    assert not nll.requires_grad
    with torch.no_grad():  # validation
        assert not projected_loss(hidden, weight, target, 0.1)[0].requires_grad


def test_the_gradient_of_a_frozen_weight_is_not_computed() -> None:
    hidden, weight, target = draw()
    expected = torch.autograd.grad(projected_loss(hidden, weight, target, 0.1)[0] / 7, hidden)
    loss, _ = projected_loss(hidden, weight.detach(), target, 0.1)
    assert loss.grad_fn is not None
    assert loss.grad_fn.saved_tensors[1] is None  # type: ignore[attr-defined]
    assert torch.equal(torch.autograd.grad(loss / 7, hidden)[0], expected[0])


def test_the_gradient_of_frozen_hidden_states_is_not_computed() -> None:
    hidden, weight, target = draw()
    expected = torch.autograd.grad(projected_loss(hidden, weight, target, 0.1)[0] / 7, weight)
    loss, _ = projected_loss(hidden.detach(), weight, target, 0.1)
    assert loss.grad_fn is not None
    assert loss.grad_fn.saved_tensors[0] is None  # type: ignore[attr-defined]
    assert torch.equal(torch.autograd.grad(loss / 7, weight)[0], expected[0])


def test_large_logits_stay_finite() -> None:
    hidden, weight, target = draw(torch.float32)
    loss, _ = projected_loss(hidden * 1e4, weight, target, 0.1)
    (gradient,) = torch.autograd.grad(loss, hidden)
    torch.testing.assert_close(loss, reference_loss(hidden @ weight.t() * 1e4, target, 0.1)[0])
    assert gradient.isfinite().all()


def test_bf16_autocast_keeps_float32_sums() -> None:
    hidden, weight, target = draw(torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss, nll = projected_loss(hidden, weight, target, 0.1)
    expected, expected_nll = reference_loss(hidden @ weight.t(), target, 0.1)
    assert loss.dtype == nll.dtype == torch.float32
    # bf16 has 8 bits: a logit is off by 2^-8 of its size, and the sum over 11 positions by less
    torch.testing.assert_close(loss, expected, rtol=2e-2, atol=0)
    torch.testing.assert_close(nll, expected_nll, rtol=2e-2, atol=0)
    actual, wanted = torch.autograd.grad(loss, (hidden, weight)), torch.autograd.grad(expected, (hidden, weight))
    for a, e in zip(actual, wanted, strict=True):
        assert a.dtype == torch.float32
        assert float((a - e).norm() / e.norm()) < 2e-2


def test_the_loss_of_bf16_logits_is_summed_in_float32() -> None:
    torch.manual_seed(1)
    hidden = torch.randn(300, 64) + 1
    weight = (torch.randn(2000, 64) - 0.5) / 8
    target = torch.randint(2000, (300,))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = projected_loss(hidden, weight, target, 0.1)
    logits = torch.mm(hidden.bfloat16(), weight.bfloat16().t())
    expected = reference_loss(logits.double(), target, 0.1)
    # A sum in float32 is off by about 10^-7 of its size, a product in bf16 by up to 4 · 10^-3.
    torch.testing.assert_close(torch.stack(found).double(), torch.stack(expected), rtol=2e-6, atol=0)


@pytest.mark.parametrize("by_kernel", [False, True])
def test_the_gradient_of_a_bf16_weight_is_summed_in_float32(monkeypatch: pytest.MonkeyPatch, by_kernel: bool) -> None:
    """Each position adds −½ to one row and ½ to the other. A sum in bf16 ends at 128, whose next number is 129."""
    num_positions = 300
    monkeypatch.setattr(loss_module, "CPU_CHUNK", 1)
    monkeypatch.setattr(loss_module, "KERNEL_LOGITS_BYTES", 1)
    if by_kernel:
        monkeypatch.setattr(loss_module, "logit_gradient_kernel", lambda device: reference_logit_gradient_)
    weight = torch.zeros(2, 4, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        target = torch.zeros(num_positions, dtype=torch.int64)
        loss, _ = projected_loss(torch.ones(num_positions, 4), weight, target, 0.0)
    (gradient,) = torch.autograd.grad(loss, weight)
    expected = torch.tensor([[-0.5], [0.5]]).expand(2, 4) * num_positions
    torch.testing.assert_close(gradient, expected, rtol=1e-5, atol=0)


def test_accumulated_gradients_equal_those_of_one_batch() -> None:
    """Two halves of a batch, padded to different widths, give the gradient of the whole batch."""
    torch.manual_seed(3)
    shape = ModelConfig(d_model=8, d_ff=16, num_heads=2, num_encoder_layers=2, num_decoder_layers=2, dropout=0)
    model = Transformer(shape, 12, 12, joint=True).double()
    sources = [[*torch.randint(3, 12, (n,)).tolist(), EOS] for n in (2, 3, 6, 5)]
    targets = [torch.randint(3, 12, (n,)).tolist() for n in (1, 4, 7, 2)]
    tokens = sum(len(y) + 1 for y in targets)

    def pad(rows: list[list[int]]) -> Tensor:
        width = max(map(len, rows))
        return torch.tensor([row + [PAD] * (width - len(row)) for row in rows])

    def gradients(*batches: slice) -> list[Tensor]:
        model.zero_grad()
        for rows in batches:
            tgt_in, tgt_out = pad([[BOS, *y] for y in targets[rows]]), pad([[*y, EOS] for y in targets[rows]])
            real = tgt_out != PAD
            hidden = model.decode(tgt_in, *model.encode(pad(sources[rows])))
            loss, _ = projected_loss(hidden[real], model.output.weight, tgt_out[real], 0.1)
            (loss / tokens).backward()
        return [p.grad.clone() for p in model.parameters() if p.grad is not None]

    whole, halves = gradients(slice(0, 4)), gradients(slice(0, 2), slice(2, 4))
    assert len(whole) == len(halves) == len(list(model.parameters()))
    for a, e in zip(halves, whole, strict=True):
        torch.testing.assert_close(a, e, rtol=1e-11, atol=1e-13)


def test_no_gradient_is_computed_without_need(monkeypatch: pytest.MonkeyPatch) -> None:
    hidden, weight, target = draw()
    expected = projected_loss(hidden, weight, target, 0.1)
    monkeypatch.delattr(torch, "addmm")
    with torch.no_grad():
        torch.testing.assert_close(projected_loss(hidden, weight, target, 0.1), expected)


@pytest.mark.parametrize("bias", [False, True])
def test_the_objective_of_training_is_the_smoothed_loss_in_the_given_precision(bias: bool) -> None:
    torch.manual_seed(1)
    shape = ModelConfig(
        d_model=16, d_ff=32, num_heads=2, num_encoder_layers=1, num_decoder_layers=1, dropout=0, output_bias=bias
    )
    model = Transformer(shape, 20, 20, joint=True)
    if bias:
        torch.nn.init.normal_(model.output.bias)
    batch = Batch.of([[5, 6, 7], [8]], [[9], [10, 11]])
    expected = torch.stack(reference_loss(batch.at_targets(model(batch.src, batch.tgt_in)), batch.target, 0.3))
    exact, half = (torch.stack(Objective(model, 0.3, bf16=bf16)(batch)) for bf16 in (False, True))
    torch.testing.assert_close(exact, expected, rtol=1e-5, atol=0)
    torch.testing.assert_close(half, expected, rtol=2e-2, atol=0)
    assert not torch.allclose(half, expected, rtol=1e-5, atol=0)  # it was bf16


def curve(dtype: torch.dtype, *, fast: bool, bf16: bool = False) -> Tensor:
    """Nats per token of 200 steps of learning to reverse words, with dropout, by the fast or the reference paths."""
    torch.manual_seed(1)
    shape = ModelConfig(
        d_model=16, d_ff=32, num_heads=2, num_encoder_layers=1, num_decoder_layers=1, dropout=0.1,
        attention="fused" if fast else "reference",
    )  # fmt: skip
    model = Transformer(shape, 20, 20, joint=True).to(dtype)
    optimizer = Adam(TrainConfig(), model.named_parameters())
    pairs = torch.Generator().manual_seed(2)
    losses = []
    for step in range(200):
        bodies = [torch.randint(3, 20, (2 + i,), generator=pairs).tolist() for i in range(6)]
        batch = Batch.of(bodies, [body[::-1] for body in bodies])
        torch.manual_seed(step)  # the same dropout masks in either
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
            hidden = batch.at_targets(model.decode(batch.tgt_in, *model.encode(batch.src)))
            if fast:
                loss, _ = projected_loss(hidden, model.output.weight, batch.target, 0.1)
            else:
                loss, _ = reference_loss(model.output(hidden), batch.target, 0.1)
        (loss / batch.tokens).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        descend(optimizer, 5e-3)
        losses.append(loss.detach() / batch.tokens)
    return torch.stack(losses)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-4)])
def test_the_fast_and_the_reference_path_learn_the_same(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, tolerance: float
) -> None:
    """Sums in another order differ in the last of 16 or 7 digits, and 200 steps of training may add three digits.

    Here the losses differ by 5e-16 and 4e-7. Other processors add in other orders.
    """
    monkeypatch.setattr("mtcli.model.attention.MAX_UNFUSED_SIZE", 0)  # to use the kernel for short sentences
    fast, reference = curve(dtype, fast=True), curve(dtype, fast=False)
    torch.testing.assert_close(fast, reference, rtol=tolerance, atol=0)
    assert fast[-20:].mean() < fast[:20].mean() - 0.3  # they learn


def test_bf16_learns_nearly_the_same() -> None:
    """Rounding to 8 bits changes a product by up to 2^-8 of its size, at random. Means over twenty steps differ less
    than single steps."""
    half, whole = (curve(torch.float32, fast=True, bf16=bf16).double() for bf16 in (True, False))
    torch.testing.assert_close(half, whole, rtol=2**-5, atol=0)
    torch.testing.assert_close(half.view(10, 20).mean(dim=1), whole.view(10, 20).mean(dim=1), rtol=2**-8, atol=0)
    assert not torch.equal(half, whole)  # it was bf16


@pytest.mark.parametrize(
    ("precision", "able", "expected"),
    [
        ("auto", {"avx512_bf16": True}, True),
        ("auto", {"amx_bf16": True, "avx512_bf16": False}, True),
        ("auto", {"avx2": True}, False),
        ("auto", None, False),  # an older PyTorch
        ("fp32", {"avx512_bf16": True}, False),
        ("bf16", {}, True),
    ],
)
def test_a_cpu_uses_bf16_if_it_has_instructions_for_it(
    monkeypatch: pytest.MonkeyPatch,
    precision: Literal["auto", "fp32", "bf16"],
    able: dict[str, bool] | None,
    expected: bool,
) -> None:
    if able is None:
        monkeypatch.delattr("torch.cpu.get_capabilities", raising=False)
    else:
        monkeypatch.setattr("torch.cpu.get_capabilities", lambda: able, raising=False)
    monkeypatch.setattr("torch.backends.cpu.get_cpu_capability", lambda: "AVX512")
    assert uses_bf16(TrainConfig(precision=precision), torch.device("cpu")) is expected


@pytest.mark.parametrize("limit", ["DEFAULT", "AVX2"])
def test_a_cpu_that_is_limited_to_older_instructions_does_not_use_bf16(
    monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr("torch.cpu.get_capabilities", lambda: {"avx512_bf16": True}, raising=False)
    monkeypatch.setattr("torch.backends.cpu.get_cpu_capability", lambda: limit)
    assert not uses_bf16(TrainConfig(precision="auto"), torch.device("cpu"))


GROWTH = """
import torch
torch.set_num_threads(1)
from mtcli.runtime.memory import keep_freed_memory

def resident():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmRSS")).split()[1]) / 1024

keep_freed_memory()
weight = torch.randn(256, 256, requires_grad=True)
for rows in range(1, 101):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.nn.functional.linear(torch.randn(rows, 256), weight).sum().backward()
    if rows == 20:
        before = resident()
print(resident() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the memory of a process on Linux")
def test_cached_kernels_for_bf16_are_few() -> None:
    """Every batch has another shape, and the kernels of 80 shapes took 120 MB."""
    done = subprocess.run([sys.executable, "-c", GROWTH], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 50
