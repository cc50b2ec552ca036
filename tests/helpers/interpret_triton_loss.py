"""Compare the Triton kernel of the loss with the reference, in Triton's interpreter (see tests/test_triton_loss.py)."""

from unittest.mock import patch

import torch
from torch import Tensor

from mtcli.model import loss as loss_module
from mtcli.model.fast import triton_loss
from mtcli.model.fast.logit_gradient import LogitGradient, reference_logit_gradient_
from mtcli.model.loss import projected_loss, reference_loss

C = 3


def draw(V: int, dtype: torch.dtype, row_size: int, scale: float) -> tuple[Tensor, Tensor]:
    """Return logits whose rows are padded with NaN to `row_size`, and targets."""
    torch.manual_seed(V)
    logits = torch.full((C, row_size), torch.nan, dtype=dtype)[:, :V]
    logits.copy_(torch.randn(C, V) * scale)
    return logits, torch.randint(V, (C,))


CASES = [
    # V, row_size, dtype, smoothing, scale of the logits; with blocks of 64 tokens
    (1, 1, torch.float32, 0.1, 1.0),
    (64, 64, torch.float32, 0.0, 1.0),
    (65, 80, torch.float32, 0.5, 1e4),
    (63, 64, torch.bfloat16, 0.1, 1e4),
    (200, 256, torch.bfloat16, 0.1, 4.0),
]
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 2**-7}  # relative, of a gradient


def check_against_the_reference() -> None:
    patch.object(triton_loss, "BLOCK", 64).start()
    for V, row_size, dtype, smoothing, scale in CASES:
        logits, target = draw(V, dtype, row_size, scale)
        expected = logits.double()
        expected_sums = reference_logit_gradient_(expected, target, smoothing, True)
        sums = triton_loss.logit_gradient_(logits, target, smoothing, True)
        for found, wanted in zip(sums, expected_sums, strict=True):
            torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=1e-5 * scale)
        torch.testing.assert_close(logits.double(), expected, rtol=TOLERANCE[dtype], atol=1e-6)


def check_that_logits_are_kept_without_a_gradient() -> None:
    logits, target = draw(100, torch.float32, 100, 1.0)
    copy = logits.clone()
    sums = triton_loss.logit_gradient_(logits, target, 0.1, False)
    assert torch.equal(logits, copy)
    assert all(map(torch.equal, sums, triton_loss.logit_gradient_(copy, target, 0.1, True)))


def check_that_a_logit_that_is_not_a_number_reaches_the_loss() -> None:
    logits, target = draw(100, torch.float32, 100, 1.0)
    logits[1, 70] = torch.nan
    logits[2, 70] = torch.inf
    loss, nll = triton_loss.logit_gradient_(logits, target, 0.1, True)
    assert loss.isfinite().tolist() == nll.isfinite().tolist() == [True, False, False]


def check_the_projected_loss() -> None:
    """The whole loss with the kernel, in several chunks, in bf16 under autocast."""

    def kernel_of(device: torch.device) -> LogitGradient:
        return triton_loss.logit_gradient_

    patch.object(loss_module, "logit_gradient_kernel", kernel_of).start()
    patch.object(loss_module, "KERNEL_LOGITS_BYTES", 4 * 64 * 4).start()
    torch.manual_seed(1)
    hidden = torch.randn(7, 6, requires_grad=True)
    weight = torch.randn(50, 6, requires_grad=True)
    target = torch.randint(50, (7,))
    expected = reference_loss(hidden @ weight.t(), target, 0.1)
    wanted = torch.autograd.grad(expected[0] / 7, (hidden, weight))
    for bf16, rtol in ((False, 1e-5), (True, 2e-2)):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
            found = projected_loss(hidden, weight, target, 0.1)
        torch.testing.assert_close(found, expected, rtol=rtol, atol=0)
        gradients = torch.autograd.grad(found[0] / 7, (hidden, weight))
        for gradient, e in zip(gradients, wanted, strict=True):
            assert gradient.dtype == torch.float32
            assert float((gradient - e).norm() / e.norm()) < rtol


if __name__ == "__main__":
    check_against_the_reference()
    check_that_logits_are_kept_without_a_gradient()
    check_that_a_logit_that_is_not_a_number_reaches_the_loss()
    check_the_projected_loss()
