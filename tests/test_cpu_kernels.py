"""Each fast operation of `model/fast/cpu_kernels.py` against the same operation of PyTorch."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from mtcli.model.fast.cpu_kernels import (
    HAS_ONEDNN,
    add_dropout,
    argmax,
    dropout,
    linear,
    log_softmax_,
    narrow_softmax,
    reference_continuations,
    top_continuations,
)

NUM_ROWS = 401
NUM_COLUMNS = 499
"""Their product is not a multiple of four, the number of elements that share a draw."""


@pytest.mark.skipif(not HAS_ONEDNN, reason="PyTorch without oneDNN or MKL")
@pytest.mark.parametrize("has_bias", [False, True])
def test_linear_equals_its_reference(has_bias: bool) -> None:
    torch.manual_seed(1)
    x, weight, bias = torch.randn(33, 40), torch.randn(70, 40), torch.randn(70) if has_bias else None
    torch.testing.assert_close(linear(x, weight, bias), F.linear(x, weight, bias))
    transposed = x.t().contiguous().t(), weight.t().contiguous().t()
    torch.testing.assert_close(linear(*transposed, bias), F.linear(x, weight, bias))


def drops(x: Tensor) -> list[float]:
    """Share of dropped elements, and shares of pairs that are both dropped: neighbours, and pairs of the same draw."""
    is_zero = x.flatten() == 0
    pairs = [is_zero[:-step] & is_zero[step:] for step in (1, 2, 3, 4, NUM_COLUMNS)]
    return [float(found.float().mean()) for found in (is_zero, *pairs)]


@pytest.mark.parametrize("p", [0.1, 0.5])
def test_dropout_has_the_distribution_of_its_reference(p: float) -> None:
    torch.manual_seed(1)
    x = torch.ones(NUM_ROWS, NUM_COLUMNS)
    fast = dropout(x, p)
    reference = F.dropout(x, p)
    assert fast.dtype == reference.dtype
    assert fast.shape == reference.shape
    assert fast.unique().tolist() == pytest.approx(reference.unique().tolist())
    # Five standard errors of a share of 200,099 elements; the difference of two shares has √2 of one.
    tolerance = 5 * math.sqrt(0.25 / x.numel())
    assert drops(fast) == pytest.approx([p] + 5 * [p * p], abs=tolerance)
    assert drops(fast) == pytest.approx(drops(reference), abs=math.sqrt(2) * tolerance)


def test_dropout_scales_values_and_gradients_alike() -> None:
    torch.manual_seed(1)
    x = torch.randn(7, 11, dtype=torch.float64, requires_grad=True)
    y = dropout(x, 0.3)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert set(gradient.flatten().tolist()) == {0.0, 1 / (1 - 0.3)}
    torch.testing.assert_close(y, x * gradient)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_add_dropout_equals_the_sum(dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    x, direction = torch.randn(2, 7, 33)
    sublayer = torch.randn(7, 33, dtype=dtype, requires_grad=True)
    results = []
    for add in (lambda: add_dropout(x, sublayer, 0.3), lambda: x + dropout(sublayer, 0.3)):
        torch.manual_seed(2)  # the same mask
        output = add()
        results.append((output, *torch.autograd.grad(output, sublayer, direction.to(output.dtype))))
    assert results[0][0].dtype == torch.promote_types(dtype, torch.float32)
    torch.testing.assert_close(results[0], results[1])


@pytest.mark.parametrize("shape", [(0,), (1,), (3, 1, 2)])
def test_dropout_takes_any_shape(shape: tuple[int, ...]) -> None:
    assert dropout(torch.ones(shape), 0.5).shape == shape


@pytest.mark.parametrize("columns", [1, 7, 15, 16, 40])
def test_narrow_softmax_equals_its_reference(columns: int) -> None:
    torch.manual_seed(1)
    scores = torch.randn(2, 3, 4, columns, dtype=torch.float64)
    scores[..., 1:].masked_fill_(torch.rand(2, 3, 4, columns - 1) < 0.3, -torch.inf)
    found = narrow_softmax(scores)
    assert found.shape == scores.shape
    torch.testing.assert_close(found, scores.softmax(dim=-1), rtol=1e-14, atol=0)


def test_log_softmax_equals_its_reference_and_uses_the_memory_of_its_argument() -> None:
    torch.manual_seed(1)
    logits = torch.randn(5, 300)
    expected = torch.log_softmax(logits, dim=-1)
    found = log_softmax_(logits)
    assert torch.equal(found, expected)
    assert found.data_ptr() == logits.data_ptr()


@pytest.mark.parametrize("vocabulary", [1, 2, 3, 100, 119, 2500])  # multiples of √V, and others
def test_argmax_equals_its_reference(vocabulary: int) -> None:
    torch.manual_seed(vocabulary)
    log_p = torch.randn(64, vocabulary)
    log_p[torch.rand(log_p.shape) < 0.2] = -torch.inf
    log_p[:, 0] = log_p[:, 0].clamp(min=-9)  # no row of −∞ only, in which any index is the largest
    assert torch.equal(argmax(log_p), log_p.argmax(dim=1))
    every_index = torch.eye(vocabulary)
    assert torch.equal(argmax(every_index), every_index.argmax(dim=1))


@pytest.mark.parametrize("vocabulary", [3, 10, 997, 2500])
@pytest.mark.parametrize(("beams", "k"), [(1, 1), (1, 2), (4, 8), (4, 12)])
def test_top_continuations_equal_their_reference(vocabulary: int, beams: int, k: int) -> None:
    k = min(k, beams * vocabulary)
    generator = torch.Generator().manual_seed(vocabulary)
    scores = -torch.rand(5, beams, generator=generator)
    log_p = torch.randn(5 * beams, vocabulary, generator=generator).log_softmax(dim=-1)
    log_p[torch.rand(log_p.shape, generator=generator) < 0.2] = -torch.inf
    log_p[0] = -torch.inf
    best, parent, token = top_continuations(scores, log_p, k)
    expected, expected_parent, expected_token = reference_continuations(scores, log_p, k)
    assert torch.equal(best, expected)
    is_unique = expected.isfinite()  # any continuations of probability 0 are as good as others
    assert torch.equal(parent[is_unique], expected_parent[is_unique])
    assert torch.equal(token[is_unique], expected_token[is_unique])
    all_sums = (scores[:, :, None] + log_p.view(5, beams, vocabulary)).flatten(1)
    places = parent * vocabulary + token
    assert torch.equal(all_sums.gather(1, places), best)
    assert all(len(set(row)) == k for row in places.tolist())
