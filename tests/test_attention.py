"""Equation 1 by hand, as `reference_attention` and as `fused_attention`: all three are equal."""

import itertools
import math

import pytest
import torch
from torch import Tensor

from mtcli.model.attention import (
    MASK_ALIGNMENT,
    additive_mask,
    attention_weights,
    causal_mask,
    fused_attention,
    reference_attention,
)
from mtcli.model.fast.cpu_kernels import MIN_SOFTMAX_WIDTH, short_attention

B, H, T, S = 3, 2, 5, 7


def draw(*, T: int = T, S: int = S, d_k: int = 8, d_v: int = 8) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(1)
    shapes = ((B, H, T, d_k), (B, H, S, d_k), (B, H, S, d_v))
    q, k, v = (torch.randn(shape, dtype=torch.float64).mul_(2).requires_grad_() for shape in shapes)
    return q, k, v


@pytest.fixture(autouse=True)
def _kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the kernel for sizes as small as these."""
    monkeypatch.setattr("mtcli.model.attention.MAX_UNFUSED_SIZE", 0)


def padding(S: int) -> Tensor:
    """The mask of sources of S, S − 2 and 1 tokens."""
    lengths = torch.tensor([S, S - 2, 1])
    return (torch.arange(S) < lengths[:, None])[:, None, None, :]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("sizes", [{}, {"d_k": 4, "d_v": 12}, {"T": S}, {"T": S, "d_k": 12, "d_v": 4}, {"S": 3}])
def test_fused_equals_reference_in_values_and_gradients(sizes: dict[str, int], padded: bool, causal: bool) -> None:
    q, k, v = draw(**sizes)
    mask = padding(k.size(2)) if padded else None
    reference, fused = reference_attention(q, k, v, mask, causal), fused_attention(q, k, v, mask, causal)
    assert reference.shape == fused.shape == (B, H, q.size(2), v.size(3))
    # float64; the sums over d_k and S are taken in another order, which moves the last bits of 16 digits
    torch.testing.assert_close(fused, reference, rtol=1e-12, atol=1e-12)
    direction = torch.randn_like(reference)
    expected = torch.autograd.grad(reference, (q, k, v), direction)
    actual = torch.autograd.grad(fused, (q, k, v), direction)
    for name, a, e in zip("qkv", actual, expected, strict=True):
        torch.testing.assert_close(a, e, rtol=1e-11, atol=1e-11, msg=lambda text, n=name: f"gradient of {n}: {text}")


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("sizes", [{}, {"d_k": 4, "d_v": 12}, {"T": S}, {"T": 18, "S": 20}])
def test_short_attention_equals_reference_in_values_and_gradients(
    monkeypatch: pytest.MonkeyPatch, sizes: dict[str, int], padded: bool, causal: bool
) -> None:
    monkeypatch.setattr("mtcli.model.attention.MAX_UNFUSED_SIZE", 1000)
    q, k, v = draw(**sizes)
    mask = padding(k.size(2)) if padded else None
    reference, short = reference_attention(q, k, v, mask, causal), fused_attention(q, k, v, mask, causal)
    assert ("ShortAttention" in type(short.grad_fn).__name__) == (padded or causal or k.size(2) >= MIN_SOFTMAX_WIDTH)
    torch.testing.assert_close(short, reference, rtol=1e-12, atol=1e-12)
    direction = torch.randn_like(reference)
    expected = torch.autograd.grad(reference, (q, k, v), direction)
    torch.testing.assert_close(torch.autograd.grad(short, (q, k, v), direction), expected, rtol=1e-11, atol=1e-11)


def test_short_attention_in_bf16_is_close_to_the_reference() -> None:
    q, k, v = (x.detach().bfloat16().requires_grad_() for x in draw())
    forbidden = ~padding(S)
    short = short_attention(q, k, v, forbidden)
    exact = [x.detach().double().requires_grad_() for x in (q, k, v)]
    reference = reference_attention(*exact, ~forbidden)
    assert short.dtype == torch.bfloat16
    direction = torch.randn_like(reference)
    gradients = torch.autograd.grad(short, (q, k, v), direction.bfloat16())
    expected = torch.autograd.grad(reference, exact, direction)
    # Each of weights, products and results is rounded to 8 bits.
    for a, e in zip((short, *gradients), (reference.detach(), *expected), strict=True):
        assert float((a.detach().double() - e).norm() / e.norm()) < 2e-2


def test_reference_equals_the_sum_written_out() -> None:
    """No matrix product: Σ_s softmax_s(q·k_s / √d_k) v_s, number by number."""
    q, k, v = (x.detach() for x in draw(d_k=3, d_v=2))
    mask, out = padding(S), reference_attention(q, k, v, padding(S), causal=True)
    for b, h, t in itertools.product(range(B), range(H), range(T)):
        seen = [s for s in range(S) if s <= t and mask[b, 0, 0, s]]
        power = {s: math.exp(sum(float(q[b, h, t, i] * k[b, h, s, i]) for i in range(3)) / math.sqrt(3)) for s in seen}
        for j in range(2):
            value = sum(power[s] * float(v[b, h, s, j]) for s in seen) / sum(power.values())
            assert float(out[b, h, t, j]) == pytest.approx(value, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("unfused_size", [0, 10_000])
@pytest.mark.parametrize("S", [5, 7, 8])
def test_an_additive_mask_equals_the_boolean_one(
    S: int, unfused_size: int, causal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mtcli.model.attention.MAX_UNFUSED_SIZE", unfused_size)
    q, k, v = draw(S=S)
    mask = padding(S)
    added = additive_mask(mask, q.dtype)
    assert added.shape == mask.shape
    assert all(stride % MASK_ALIGNMENT == 0 for stride in added.stride()[:-1])
    expected = reference_attention(q, k, v, mask, causal)
    for attend in (reference_attention, fused_attention):
        torch.testing.assert_close(attend(q, k, v, added, causal), expected, rtol=1e-12, atol=1e-12)


def test_weights_are_a_distribution_over_visible_keys() -> None:
    q, k, _ = draw()
    mask = padding(S)
    weights = attention_weights(q, k, mask, causal=True)
    torch.testing.assert_close(weights.sum(-1), torch.ones(B, H, T, dtype=torch.float64), rtol=1e-14, atol=0)
    may = (mask & causal_mask(T, S)).expand_as(weights)
    assert (weights[may] > 0).all()
    assert (weights[~may] == 0).all()


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("S", [1, 7, 15, 16, 17])
def test_short_sentences_equal_the_reference(S: int, causal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """With and without padding to `MIN_SOFTMAX_WIDTH`."""
    monkeypatch.setattr("mtcli.model.attention.MAX_UNFUSED_SIZE", S * S)
    q, k, v = draw(T=S, S=S)
    mask = torch.rand(B, 1, S, S) < 0.5
    mask |= torch.eye(S, dtype=torch.bool)
    reference, fused = reference_attention(q, k, v, mask, causal), fused_attention(q, k, v, mask, causal)
    torch.testing.assert_close(fused, reference, rtol=1e-12, atol=1e-12)
    direction = torch.randn_like(reference)
    expected = torch.autograd.grad(reference, (q, k, v), direction)
    torch.testing.assert_close(torch.autograd.grad(fused, (q, k, v), direction), expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("attend", [reference_attention, fused_attention])
def test_the_mask_is_true_where_a_query_may_attend(attend) -> None:
    """Keys and values where the mask is False have no influence; the others have."""
    q, k, v = (x.detach() for x in draw())
    mask = padding(S)
    before = attend(q, k, v, mask, False)
    hidden, shown = torch.where(mask.transpose(-2, -1), v, 1e6), v.clone()
    shown[:, :, 0] = 1e6
    assert not torch.equal(hidden, v)
    assert torch.equal(attend(q, k, hidden, mask, False), before)
    assert (attend(q, k, shown, mask, False) != before).all()
    one = attend(q, k, v, mask, False)[2]  # the third source has one token, which has all the weight
    torch.testing.assert_close(one, v[2, :, :1].expand_as(one))


@pytest.mark.parametrize("attend", [reference_attention, fused_attention])
def test_causal_queries_ignore_later_keys(attend) -> None:
    q, k, v = (x.detach() for x in draw(T=S))
    before = attend(q, k, v, None, True)
    for t in range(S - 1):
        later_k, later_v = k.clone(), v.clone()
        later_k[:, :, t + 1 :], later_v[:, :, t + 1 :] = 50.0, 1e6
        after = attend(q, later_k, later_v, None, True)
        torch.testing.assert_close(after[:, :, : t + 1], before[:, :, : t + 1], rtol=1e-13, atol=1e-13)
        assert (after[:, :, t + 1 :] - before[:, :, t + 1 :]).abs().amax() > 1


def test_scores_of_independent_vectors_keep_unit_variance() -> None:
    """The reason for √d_k (§3.2.1, footnote 4): without it, q·k of unit-variance components has variance d_k."""
    torch.manual_seed(2)
    for d_k in (4, 64, 1024):
        q, k = torch.randn(1, 1, 400, d_k), torch.randn(1, 1, 400, d_k)
        scores = attention_weights(q, k).log()
        spread = (scores - scores.mean(-1, keepdim=True)).var()
        assert float(spread) == pytest.approx(1, rel=0.1)  # 160,000 products: a standard error of about 2%
