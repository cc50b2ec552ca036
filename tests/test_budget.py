import dataclasses

import pytest

from mtcli.budget import Budget
from mtcli.config import TrainConfig
from mtcli.optim import learning_rate
from mtcli.state import State

BUDGETS = [{"max_steps": 2000}, {"time": "1000s"}, {"max_steps": 2000, "time": "900s"}]


def budget(**values: object) -> Budget:
    return Budget(TrainConfig.model_validate({"average": 1, "cooldown": 0.2, "patience": 3, **values}), scoring=2.0)


@pytest.mark.parametrize("limits", BUDGETS, ids=str)
def test_the_cool_down_that_begins_early_is_the_same_share_of_what_is_used(limits: dict[str, object]) -> None:
    b = budget(**limits)
    state = State(step=800, seconds=400.0, stale=2)
    before = b.used(state)
    assert not b.cool_down_early(state)
    state.stale = 3
    rate = learning_rate(b.train, 128, state.step, before)
    assert b.cool_down_early(state)
    assert b.used(state) == pytest.approx(0.8)
    assert learning_rate(b.train, 128, state.step, b.used(state)) == pytest.approx(rate)  # it falls from here, no jump
    half = dataclasses.replace(state, step=900, seconds=450.0)
    assert b.ends(half) is None
    assert not b.cool_down_early(half)  # it is under way
    assert learning_rate(b.train, 128, state.step, b.used(half)) == pytest.approx(rate / 2)
    whole = dataclasses.replace(state, step=1000, seconds=500.0)
    assert b.used(whole) == pytest.approx(1)
    assert b.ends(dataclasses.replace(whole, step=1001, seconds=500.5)) == "cut short, as nothing improved"


def test_a_cool_down_that_has_begun_is_never_cut_off() -> None:
    b = budget(max_steps=1000)
    late = State(step=801, stale=50)
    assert not b.cool_down_early(late)
    assert b.ends(late) is None
    assert b.ends(State(step=1000, stale=50)) == "budget used"


@pytest.mark.parametrize("values", [{"schedule": "cosine"}, {"schedule": "paper"}, {"cooldown": 0}], ids=str)
def test_a_schedule_without_a_cool_down_ends_where_nothing_improves(values: dict[str, object]) -> None:
    b = budget(max_steps=1000, **values)
    state = State(step=500, stale=3)
    assert not b.cool_down_early(state)
    assert b.ends(state) == "nothing improved"
    assert b.ends(State(step=500, stale=2)) is None


def test_without_patience_nothing_ends_early() -> None:
    b = budget(max_steps=1000, patience=0)
    assert not b.cool_down_early(State(step=500, stale=99))
    assert b.ends(State(step=500, stale=99)) is None


@pytest.mark.parametrize("finished", [None, "cut short, as nothing improved"])
def test_what_was_cut_short_is_so_only_under_that_budget(finished: str | None) -> None:
    b = budget(max_steps=1000)
    state = State(step=400, stale=3)
    assert b.cool_down_early(state)
    state.finished = finished
    cut = dataclasses.replace(state)
    b.renew(state)
    assert state == cut
    larger = budget(max_steps=2000)
    larger.renew(state)
    assert state == State(step=400)
    assert larger.used(state) == 0.2


def test_a_budget_without_a_step_has_one() -> None:
    b = budget(time="1s")
    assert b.ends(State(step=0, seconds=60)) is None
    assert b.ends(State(step=1, seconds=60)) == "budget used"


def test_time_is_kept_back_for_validating_averaging_and_scoring() -> None:
    b = budget(time="100s", average=5)
    state = State(seconds=50, validation_seconds=5)  # two validations, and the test pairs take as long as two more
    assert b.used(state) == pytest.approx(50 / (100 - 1.1 * 20))
    assert budget(time="10s").used(State(seconds=1, validation_seconds=9)) > 1  # no time left for a step
