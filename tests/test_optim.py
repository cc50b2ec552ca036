import math
from itertools import pairwise

import pytest
import torch
from torch import nn

from mtcli.config.schema import TrainConfig
from mtcli.training.optimizer import build_optimizer, learning_rate

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


def steps(model: nn.Module, optimizer: torch.optim.Optimizer, n: int = 20) -> list[torch.Tensor]:
    torch.manual_seed(9)
    for _ in range(n):
        optimizer.zero_grad()
        model(torch.randn(5, 6)).pow(2).sum().backward()
        optimizer.step()
    return [p.detach() for p in model.parameters()]


def test_optimizer_without_decay_is_adam_with_the_paper_s_numbers() -> None:
    ours, theirs = tower(1), tower(1)
    found = steps(ours, build_optimizer(TrainConfig(lr=0.02), ours.parameters()))
    expected = steps(theirs, torch.optim.Adam(theirs.parameters(), lr=0.02, betas=(0.9, 0.98), eps=1e-9))
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def test_optimizer_uses_the_configured_epsilon() -> None:
    for eps in (1e-9, 0.5):
        optimizer = build_optimizer(TrainConfig(eps=eps), tower(1).parameters())
        assert {group["eps"] for group in optimizer.param_groups} == {eps}


def test_frozen_parameters_are_not_in_the_optimizer() -> None:
    model = tower(1)
    model[0].requires_grad_(False)
    optimizer = build_optimizer(TrainConfig(), model.parameters())
    found = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    assert {id(parameter) for parameter in found} == {id(p) for p in model[1:].parameters()}


def test_weight_decay_is_decoupled_and_excludes_vectors() -> None:
    model = tower(2)
    optimizer = build_optimizer(TrainConfig(lr=0.1, weight_decay=0.5), model.parameters())
    before = [p.detach().clone() for p in model.parameters()]
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    optimizer.step()
    for old, new in zip(before, model.parameters(), strict=True):
        torch.testing.assert_close(new.detach(), old * (0.95 if old.dim() > 1 else 1.0))
    assert sum(len(group["params"]) for group in optimizer.param_groups) == len(before) == 6
