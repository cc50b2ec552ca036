import math
from copy import deepcopy
from itertools import pairwise

import pytest
import torch
from conftest import descend
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from mtcli.config.schema import TrainConfig
from mtcli.runtime.cores import Cores
from mtcli.training.optimizer import Adam, clip_norm_, learning_rate, shares

TOTAL = 400
SCHEDULES = ["inverse_sqrt", "cosine", "linear", "paper"]


def rates(**values: object) -> list[float]:
    """Return the learning rates of all steps of a run with TOTAL steps."""
    config = TrainConfig.model_validate({"warmup_steps": 40, "lr": 0.01, "cooldown": 0.25, **values})
    return [learning_rate(config, 64, step, (step - 1) / TOTAL) for step in range(1, TOTAL + 1)]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_learning_rate_peaks_at_the_end_of_warmup_and_never_jumps(schedule: str) -> None:
    found = rates(schedule=schedule)
    peak = found[39]
    assert max(abs(b - a) for a, b in pairwise(found)) <= peak / 30
    assert all(rate > 0 for rate in found)
    assert found[39:] == sorted(found[39:], reverse=True)
    assert found[:40] == pytest.approx([peak * step / 40 for step in range(1, 41)])
    assert max(found) == peak
    if schedule != "paper":
        assert peak == 0.01


def test_inverse_sqrt_by_hand() -> None:
    found = rates(schedule="inverse_sqrt")
    assert found[39] == pytest.approx(0.01)
    assert found[159] == pytest.approx(0.01 * math.sqrt(40 / 160))
    assert found[300] == pytest.approx(0.01 * math.sqrt(40 / 301))  # the last step before the cooldown
    assert found[350] == pytest.approx(0.01 * math.sqrt(40 / 351) * 0.5)
    never = rates(schedule="inverse_sqrt", cooldown=0)
    assert never[-1] == pytest.approx(0.01 * math.sqrt(40 / 400))
    assert never[:301] == found[:301]


def test_cosine_and_linear_by_hand() -> None:
    cosine, linear = rates(schedule="cosine"), rates(schedule="linear")
    assert cosine[220] == pytest.approx(0.005)  # midway from step 40 to step 400
    assert cosine[130] == pytest.approx(0.01 * 0.5 * (1 + math.cos(math.pi / 4)))
    assert linear[220] == pytest.approx(0.005)
    assert linear[310] == pytest.approx(0.0025)


@pytest.mark.parametrize("schedule", ["inverse_sqrt", "cosine", "linear"])
def test_learning_rate_ends_at_zero_and_is_never_negative(schedule: str) -> None:
    config = TrainConfig.model_validate({"schedule": schedule})
    assert learning_rate(config, 64, 5000, 1.0) == pytest.approx(0, abs=1e-12)
    assert learning_rate(config, 64, 5000, 1.7) == pytest.approx(0, abs=1e-12)
    assert learning_rate(config, 64, 1, -0.1) == learning_rate(config, 64, 1, 0.0) > 0


def test_the_paper_s_formula() -> None:
    config = TrainConfig(schedule="paper", lr=1.0, warmup_steps=4000)
    for step in (1, 3999, 4000, 4001, 100_000):
        expected = 512**-0.5 * min(step**-0.5, step * 4000**-1.5)
        assert learning_rate(config, 512, step, 0.99) == pytest.approx(expected, rel=1e-12)


def tower(seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.Linear(8, 3))


@pytest.mark.parametrize("weight_decay", [0.0, 0.4])
@pytest.mark.parametrize("eps", [1e-9, 0.5])
@pytest.mark.parametrize("num_cores", [1, 3])
def test_adam_has_the_bits_of_pytorch_s_fused_adamw(weight_decay: float, eps: float, num_cores: int) -> None:
    """With the paper's β. Weight decay applies to matrices only."""
    ours, theirs = tower(1), tower(1)
    config = TrainConfig(weight_decay=weight_decay, eps=eps)
    found = Adam(config, ours.named_parameters(), Cores(num_cores))
    matrices = [parameter for parameter in theirs.parameters() if parameter.dim() > 1]
    vectors = [parameter for parameter in theirs.parameters() if parameter.dim() <= 1]
    groups = [{"params": matrices, "weight_decay": weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    expected = torch.optim.AdamW(groups, lr=0.02, betas=(0.9, 0.98), eps=eps, fused=True)
    torch.manual_seed(9)
    for _ in range(20):
        x = torch.randn(5, 6)
        for model in (ours, theirs):
            model(x).pow(2).sum().backward()
        descend(found, 0.02)
        expected.step()
        expected.zero_grad()
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_skipped_step_changes_nothing() -> None:
    model = tower(1)
    optimizer = Adam(TrainConfig(), model.named_parameters())
    gradients = [torch.ones_like(parameter) for parameter in model.parameters()]
    optimizer.step(gradients, 0.1)
    before = deepcopy((model.state_dict(), optimizer.state()))
    optimizer.step(gradients, 0.1, skipped=torch.ones(()))
    torch.testing.assert_close((model.state_dict(), optimizer.state()), before, rtol=0, atol=0)
    optimizer.step(gradients, 0.1, skipped=torch.zeros(()))
    assert optimizer.steps == 2
    assert not torch.equal(model[0].weight, before[0]["0.weight"])


@pytest.mark.parametrize("max_norm", [0.5, 100.0, math.inf])
@pytest.mark.parametrize("num_cores", [1, 3])
def test_clipping_is_that_of_pytorch(max_norm: float, num_cores: int) -> None:
    model = tower(3)
    model(torch.randn(5, 6)).pow(2).sum().backward()
    gradients = [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]
    found = clip_norm_(gradients, max_norm, Cores(num_cores))
    assert torch.equal(found, torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm))
    for gradient, parameter in zip(gradients, model.parameters(), strict=True):
        torch.testing.assert_close(gradient, parameter.grad, rtol=1e-6, atol=0)


@given(st.lists(st.integers(1, 50), max_size=20), st.integers(1, 8))
def test_shares_divide_all_tensors(sizes: list[int], number: int) -> None:
    tensors = [torch.empty(size) for size in sizes]
    found = shares(tensors, number)
    assert [size for share in found for size in sizes[share]] == sizes
    assert len(found) <= number
    for share in found:
        assert sizes[share]
        assert sum(sizes[share]) <= sum(sizes) / number + max(sizes)


def test_a_large_first_tensor_is_a_share_of_its_own() -> None:
    """As the embeddings of a small model, which have half of its parameters."""
    tensors = [torch.empty(size) for size in (100, *[10] * 10)]
    assert shares(tensors, 2) == [slice(0, 1), slice(1, 11)]


def test_the_layout_of_a_gradient_in_memory_changes_nothing() -> None:
    """The gradient of a bias may be a column of a larger matrix."""
    results = []
    for make in (Tensor.contiguous, lambda gradient: torch.stack([gradient, gradient + 1], dim=-1)[..., 0]):
        torch.manual_seed(1)
        model = tower(2)
        optimizer = Adam(TrainConfig(), model.named_parameters())
        for _ in range(2):
            optimizer.step([make(torch.randn_like(parameter)) for parameter in model.parameters()], learning_rate=0.1)
        results.append([*model.parameters(), *optimizer.first_moments, *optimizer.second_moments])
    torch.testing.assert_close(*results, rtol=0, atol=0)


def test_frozen_parameters_are_not_in_the_optimizer() -> None:
    model = tower(1)
    model[0].requires_grad_(False)
    optimizer = Adam(TrainConfig(), model.named_parameters())
    assert {id(parameter) for parameter in optimizer.parameters} == {id(p) for p in model[1:].parameters()}


def test_weight_decay_is_decoupled_and_excludes_vectors() -> None:
    model = tower(2)
    optimizer = Adam(TrainConfig(weight_decay=0.5), model.named_parameters())
    before = [p.detach().clone() for p in model.parameters()]
    optimizer.step([torch.zeros_like(p) for p in model.parameters()], learning_rate=0.1)
    for old, new in zip(before, model.parameters(), strict=True):
        torch.testing.assert_close(new.detach(), old * (0.95 if old.dim() > 1 else 1.0))
    assert len(before) == 6
