"""The loss on CUDA: the Triton kernel without a GPU, its selection, and the memory traffic of a step."""

import os
import subprocess
import sys
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from mtcli.model import loss as loss_module
from mtcli.model.fast import logit_gradient as choice
from mtcli.model.fast.logit_gradient import LogitGradient, logit_gradient_kernel, reference_logit_gradient_
from mtcli.model.loss import projected_loss, reference_loss

needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="the package triton is not installed")
CUDA = torch.device("cuda")

COMPILE = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from mtcli.model.fast import triton_loss

signature = dict(logits="*bf16", target="*i64", loss="*fp32", nll="*fp32", V="i32", row_stride="i32", smoothing="fp32")
signature |= dict(WRITE_GRADIENT="constexpr", BLOCK="constexpr")
constants = dict(WRITE_GRADIENT=True, BLOCK=triton_loss.BLOCK)
divisible_by_16 = [["tt.divisibility", 16]]
attributes = {(0,): divisible_by_16, (5,): divisible_by_16}  # logits and row_stride, as Triton finds at run time
source = ASTSource(triton_loss._kernel, signature, constants, attributes)
compiled = triton.compile(source, GPUTarget("cuda", 90, 32), dict(num_warps=triton_loss.NUM_WARPS))
print(compiled.asm["ptx"])
"""


def run_python(*arguments: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", *arguments],
        env={**os.environ, **environment}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@needs_triton
def test_the_kernel_equals_the_reference_in_the_interpreter() -> None:
    run_python(str(Path(__file__).parent / "helpers" / "interpret_triton_loss.py"), TRITON_INTERPRET="1")


@needs_triton
@pytest.mark.skipif(sys.platform != "linux", reason="Triton compiles on Linux")
def test_the_kernel_compiles_for_a_gpu_and_moves_16_bytes_at_a_time(tmp_path: Path) -> None:
    assembly = run_python("-c", COMPILE, TRITON_CACHE_DIR=str(tmp_path), TRITON_INTERPRET="0")
    assert "ld.global.L1::evict_last.L2::cache_hint.v4.b32" in assembly
    assert "ld.global.L1::evict_first.L2::cache_hint.v4.b32" in assembly
    assert "st.global.v4.b32" in assembly


def use_kernel(monkeypatch: pytest.MonkeyPatch, kernel: LogitGradient | None) -> None:
    monkeypatch.setattr(loss_module, "logit_gradient_kernel", lambda device: kernel)


@pytest.mark.parametrize("positions", [1, 4, 11])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_with_a_kernel_equals_the_reference(
    monkeypatch: pytest.MonkeyPatch, smoothing: float, positions: int
) -> None:
    use_kernel(monkeypatch, reference_logit_gradient_)
    monkeypatch.setattr(loss_module, "KERNEL_LOGITS_BYTES", positions * 64 * 4)  # rows are padded to 64 logits
    torch.manual_seed(1)
    hidden = torch.randn(11, 6, requires_grad=True)
    weight = torch.randn(9, 6, requires_grad=True)
    target = torch.randint(9, (11,))
    found = projected_loss(hidden, weight, target, smoothing)
    expected = reference_loss(hidden @ weight.t(), target, smoothing)
    torch.testing.assert_close(found, expected)
    gradients = torch.autograd.grad(found[0] / 7, (hidden, weight))
    torch.testing.assert_close(gradients, torch.autograd.grad(expected[0] / 7, (hidden, weight)))
    with torch.no_grad():
        torch.testing.assert_close(projected_loss(hidden, weight, target, smoothing), expected)


def test_a_cpu_uses_no_kernel() -> None:
    assert logit_gradient_kernel(torch.device("cpu")) is None


def test_a_kernel_that_does_not_run_is_not_used(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    logit_gradient_kernel.cache_clear()
    monkeypatch.setitem(sys.modules, "mtcli.model.fast.triton_loss", None)  # as if Triton were not installed
    assert logit_gradient_kernel(CUDA) is None
    assert logit_gradient_kernel(CUDA) is None
    assert len(caplog.messages) == 1
    assert "a slower loss is used" in caplog.messages[0]
    logit_gradient_kernel.cache_clear()


def test_a_kernel_with_other_results_is_not_used() -> None:
    cpu = torch.device("cpu")
    choice._check_kernel(reference_logit_gradient_, cpu)

    def without_smoothing(logits: Tensor, target: Tensor, smoothing: float, write: bool) -> tuple[Tensor, Tensor]:
        return reference_logit_gradient_(logits, target, 0.0, write)

    def without_gradient(logits: Tensor, target: Tensor, smoothing: float, write: bool) -> tuple[Tensor, Tensor]:
        return reference_logit_gradient_(logits, target, smoothing, False)

    for wrong in (without_smoothing, without_gradient):
        with pytest.raises(RuntimeError, match="differs from the reference"):
            choice._check_kernel(wrong, cpu)


class Traffic(TorchDispatchMode):
    """Counts the bytes that operators read and write, and their number. Views and allocations move none."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes: Counter[str] = Counter()
        self.launches = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if not (func.is_view or name in ("empty", "empty_like", "new_empty", "detach", "_unsafe_view")):
            inputs = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
            outputs = [x for x in tree_leaves(result) if isinstance(x, Tensor)]
            is_written_only = kwargs is not None and "out" in kwargs
            read = inputs[:-1] if is_written_only else inputs
            self.count(name, [*read, *outputs])
        return result

    def count(self, name: str, moved: list[Tensor]) -> None:
        self.bytes[name] += sum(x.numel() * x.element_size() for x in moved)
        self.launches += 1

    def kernel(self, logits: Tensor, target: Tensor, smoothing: float, write: bool) -> tuple[Tensor, Tensor]:
        """Stand in for the kernel, which reads the logits once from memory and writes their gradient."""
        loss = torch.empty(len(target), device=logits.device)
        self.count("kernel", [logits, logits, target, loss, loss])
        return loss, loss.clone()


def traffic_of_a_step(monkeypatch: pytest.MonkeyPatch, with_kernel: bool) -> Traffic:
    """Run the loss of the paper's base model and its backward pass without computing."""
    traffic = Traffic()
    use_kernel(monkeypatch, traffic.kernel if with_kernel else None)
    hidden = torch.empty(25_000, 512, device="meta", requires_grad=True)
    weight = torch.empty(37_000, 512, device="meta", requires_grad=True)
    target = torch.empty(25_000, dtype=torch.int64, device="meta")
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda device: True)  # there is no autocast for this device
    monkeypatch.setattr(torch, "get_autocast_dtype", lambda device: torch.bfloat16)
    with traffic:
        loss, _ = projected_loss(hidden, weight, target, 0.1)
        loss.backward()
    assert hidden.grad is not None
    assert hidden.grad.dtype == torch.float32
    return traffic


def test_a_step_of_the_base_model_moves_at_most_10_gigabytes(monkeypatch: pytest.MonkeyPatch) -> None:
    traffic = traffic_of_a_step(monkeypatch, with_kernel=True)
    assert 9.5e9 < traffic.bytes.total() < 10e9
    assert traffic.launches <= 13
    by_operators = traffic_of_a_step(monkeypatch, with_kernel=False)
    assert by_operators.bytes.total() > 30e9
    assert by_operators.launches > 100
