import dataclasses
import math

import pytest

from mtcli.config.schema import TrainConfig
from mtcli.storage.state import State
from mtcli.training.log import log_speed
from mtcli.training.optimizer import learning_rate
from mtcli.training.time.budget import (
    MIN_TEST_PAIRS,
    SAVES,
    TOKENS_PER_PAIR,
    VALIDATION_SHARE,
    WARMUP_SHARE,
    Budget,
)
from mtcli.training.time.final_work import (
    ADDED_SHARE,
    INITIAL_RESERVED_SHARE,
    MAX_RESERVED_SHARE,
    RESERVE_FACTOR,
    FinalWork,
    uninterrupted_seconds,
)
from mtcli.training.time.forecast import Forecast
from mtcli.training.time.timed_parts import FIRST_PART

BUDGETS = [{"max_steps": 2000}, {"time": "1000s"}, {"max_steps": 2000, "time": "900s"}]


def budget(**values: object) -> Budget:
    train = TrainConfig.model_validate({"average": 1, "cooldown": 0.2, "patience": 3, **values})
    return Budget(train, final_work=FinalWork(valid=100, test=80, averages=train.average > 1))


@pytest.mark.parametrize("limits", BUDGETS, ids=str)
def test_an_early_cool_down_has_the_same_share_of_the_shortened_budget(limits: dict[str, object]) -> None:
    b = budget(**limits)
    state = State(step=800, seconds=400.0, validations_since_best=2)
    before = b.progress(state)
    assert not b.cool_down_early(state)
    state.validations_since_best = 3
    rate = learning_rate(b.train, 128, state.step, before)
    assert b.cool_down_early(state)
    assert b.progress(state) == pytest.approx(0.8)
    assert learning_rate(b.train, 128, state.step, b.progress(state)) == pytest.approx(
        rate
    )  # it falls from here on, without a jump
    half = dataclasses.replace(state, step=900, seconds=450.0)
    assert b.reason_to_end(half) is None
    assert not b.cool_down_early(half)  # it has already begun
    assert learning_rate(b.train, 128, state.step, b.progress(half)) == pytest.approx(rate / 2)
    whole = dataclasses.replace(state, step=1000, seconds=500.0)
    assert b.progress(whole) == pytest.approx(1)
    assert b.reason_to_end(dataclasses.replace(whole, step=1001, seconds=500.5)) == "cut short, as nothing improved"


def test_an_early_cool_down_does_not_change_an_adapted_warm_up() -> None:
    b = dataclasses.replace(budget(time="600s", lr=0.003, warmup_steps=4000), chosen=frozenset({"train.warmup_steps"}))
    state = State(step=1000, seconds=200.0, validations_since_best=3)
    warmup_steps = b.warmup_steps(state)
    rate = learning_rate(b.train, 128, state.step, b.progress(state), warmup_steps)
    assert warmup_steps < state.step
    assert b.cool_down_early(state)
    assert b.warmup_steps(state) == pytest.approx(warmup_steps)
    assert learning_rate(b.train, 128, state.step, b.progress(state), b.warmup_steps(state)) == pytest.approx(rate)


def test_a_cool_down_that_has_begun_is_completed() -> None:
    b = budget(max_steps=1000)
    late = State(step=801, validations_since_best=50)
    assert not b.cool_down_early(late)
    assert b.reason_to_end(late) is None
    assert b.reason_to_end(State(step=1000, validations_since_best=50)) == "budget used"


@pytest.mark.parametrize("values", [{"schedule": "cosine"}, {"schedule": "paper"}, {"cooldown": 0}], ids=str)
def test_a_schedule_without_a_cool_down_ends_as_soon_as_nothing_improves(values: dict[str, object]) -> None:
    b = budget(max_steps=1000, **values)
    state = State(step=500, validations_since_best=3)
    assert not b.cool_down_early(state)
    assert b.reason_to_end(state) == "nothing improved"
    assert b.reason_to_end(State(step=500, validations_since_best=2)) is None


def test_without_patience_nothing_ends_early() -> None:
    b = budget(max_steps=1000, patience=0)
    assert not b.cool_down_early(State(step=500, validations_since_best=99))
    assert b.reason_to_end(State(step=500, validations_since_best=99)) is None


@pytest.mark.parametrize("finished", [None, "cut short, as nothing improved"])
def test_another_budget_continues_a_run_that_was_cut_short(finished: str | None) -> None:
    b = budget(max_steps=1000)
    state = State(step=400, validations_since_best=3)
    assert b.cool_down_early(state)
    state.finished = finished
    cut = dataclasses.replace(state)
    b.reopen(state)
    assert state == cut
    larger = budget(max_steps=2000)
    larger.reopen(state)
    assert state == State(step=400)
    assert larger.progress(state) == 0.2


@pytest.mark.parametrize(
    ("max_steps", "time", "remains_finished"),
    [
        (1000, 60.0, True),
        (999, 60.0, True),
        (401, 60.0, True),  # the run was cut short, and a smaller budget does not continue it
        (5, None, True),
        (None, 30.0, True),
        (2000, 30.0, True),
        (1001, 60.0, False),
        (1000, 61.0, False),
        (1000, None, False),
        (None, 60.0, False),
    ],
)
def test_only_a_larger_budget_continues_a_finished_run(
    max_steps: int | None, time: float | None, remains_finished: bool
) -> None:
    state = State(step=400, seconds=40.0, finished="cut short, as nothing improved", budget=[1000, 60.0])
    b = budget(max_steps=max_steps, time=time)
    assert b.remains_finished(state) == remains_finished
    b.reopen(state)
    assert bool(state.finished) == remains_finished
    state.finished = None
    assert not b.remains_finished(state)


def test_every_budget_allows_one_step() -> None:
    b = budget(time="1s")
    assert b.reason_to_end(State(step=0, seconds=60)) is None
    assert b.reason_to_end(State(step=1, seconds=60)) == "budget used"


def test_time_is_reserved_for_validating_averaging_and_scoring() -> None:
    b = budget(time="100s", average=5)
    state = State(seconds=50, pair_seconds=0.03)  # two validations of 3 s; test pairs take 2.5 times as long
    assert b.progress(state) == pytest.approx(50 / (100 - RESERVE_FACTOR * (2 * 3 + 0.03 * 80 * 2.5)))
    state.save_seconds = 1.0
    assert b.progress(state) == pytest.approx(50 / (100 - RESERVE_FACTOR * (2 * 3 + 0.03 * 80 * 2.5) - 3))
    state.write_seconds = 2.0  # of a thread, while training continues
    assert b.progress(state) == pytest.approx(50 / (100 - RESERVE_FACTOR * (2 * 3 + 0.03 * 80 * 2.5) - 6))
    state.pair_seconds = 30.0  # only part of the work will fit
    assert b.progress(state) == pytest.approx(50 / (100 * (1 - MAX_RESERVED_SHARE)))
    state.seconds_before_first_step = 20.0
    assert b.progress(state) == pytest.approx(30 / (80 * (1 - MAX_RESERVED_SHARE)))


def test_time_is_reserved_for_the_engine_and_the_confidence() -> None:
    work = FinalWork(valid=100, test=100)
    without = Budget(TrainConfig(time=1000.0), final_work=work)

    def reserved(state: State, **added: int) -> float:
        budget = dataclasses.replace(without, final_work=dataclasses.replace(work, **added))
        return without.training_time(state) - budget.training_time(state)

    assert reserved(State(), compared=64, calibrated=250) == 0  # the speed is not known
    state = State(pair_seconds=0.01, save_seconds=1.0)
    comparing = RESERVE_FACTOR * 64 * 2 * (1 + work.beam_cost) * 0.01  # two libraries; greedy search and a beam
    calibrating = RESERVE_FACTOR * 250 * work.beam_cost * 0.01
    converting = 1.0 + uninterrupted_seconds(state)
    assert reserved(state, compared=64) == pytest.approx(comparing + converting)
    assert reserved(state, calibrated=250) == pytest.approx(calibrating)
    assert reserved(state, compared=64, calibrated=250) == pytest.approx(comparing + converting + calibrating)
    slow = State(pair_seconds=1.0, save_seconds=1.0)
    assert reserved(slow, compared=64) == pytest.approx(1000 * ADDED_SHARE)
    assert reserved(slow, compared=64, calibrated=250) == pytest.approx(1000 * ADDED_SHARE)


def test_training_time_is_infinite_without_a_time_budget() -> None:
    b = budget(max_steps=100)
    assert b.training_time(State(step=7, seconds=5.0)) == math.inf
    assert b.training_time(State(step=7, pair_seconds=0.1)) == math.inf


def test_a_step_that_would_end_too_late_is_not_started() -> None:
    b = budget(time="100s")
    assert b.training_time(State()) == pytest.approx(100 * (1 - INITIAL_RESERVED_SHARE))
    late = State(step=3, seconds=85)
    assert b.reason_to_end(late, 4.0) is None
    assert b.reason_to_end(late, 6.0) == "budget used"
    assert b.reason_to_end(State(step=0, seconds=85), 6.0) is None  # there is always one step
    assert budget(max_steps=4).reason_to_end(late, 1000.0) is None


def test_warm_up_takes_at_most_a_fifth_of_the_time() -> None:
    def steps(state: State, **values: object) -> float:
        b = dataclasses.replace(budget(time="100s", warmup_steps=400, **values), chosen=frozenset(chosen))
        return b.warmup_steps(state)

    chosen = ["train.warmup_steps"]
    slow, fast = State(step=10, seconds=45), State(step=10_000, seconds=45)
    assert steps(slow) == pytest.approx(WARMUP_SHARE * 10 / 0.5)
    assert steps(fast) == 400
    assert steps(State()) == 400
    assert steps(State(step=1, seconds=80)) == 400  # the first step of a process may be slow
    assert steps(State(step=2, seconds=80)) == 1
    assert steps(slow, schedule="paper") == 400  # a shorter one would raise its peak
    chosen = []
    assert steps(slow) == 400  # the user set it
    assert budget(max_steps=1000, warmup_steps=400).warmup_steps(State(step=10)) == 400


def test_short_runs_score_fewer_test_pairs() -> None:
    b = Budget(TrainConfig(max_steps=5, batch_tokens=2048), final_work=FinalWork(valid=1000, test=1000))
    assert b.test_pairs(State(step=5)) == 5 * 2048 // int(TOKENS_PER_PAIR * 2.5)
    assert b.test_pairs(State(step=1)) == MIN_TEST_PAIRS
    assert b.test_pairs(State(step=100)) == 1000
    larger = dataclasses.replace(b, train=b.train.model_copy(update={"accumulate": 2}), ranks=3)
    assert larger.test_pairs(State(step=2)) == 6 * 2 * 2048 // int(TOKENS_PER_PAIR * 2.5)
    timed = dataclasses.replace(b, train=TrainConfig(time=60.0))
    assert timed.test_pairs(State(step=1)) == 1000  # the clock decides


def test_work_after_the_last_step_shares_the_remaining_time() -> None:
    b = budget(time="100s", average=5)  # 100, 100 and 80 × 2.5 greedy translations
    state = State(seconds=80)
    assert b.seconds_for_task("valid", state) == pytest.approx(20 * 1.5 / 4)
    assert b.seconds_for_task("average", state) == pytest.approx(20 * 1.5 / 3)
    assert b.seconds_for_task("test", state) == pytest.approx(20)
    assert b.seconds_for_task("test", State(seconds=120)) == 0
    assert b.seconds_for_task("test", State(seconds=80, save_seconds=1.0, write_seconds=3.0)) == pytest.approx(
        20 - 2 * 3
    )
    assert budget(max_steps=5).seconds_for_task("test", state) is None


def test_a_sample_of_the_test_pairs_is_scored_if_beam_search_has_time_for_it() -> None:
    b = budget(time="100s")
    needed = FIRST_PART * 2.5 * 0.1
    assert b.fits("test", FIRST_PART, State(seconds=100 - 1.01 * needed, pair_seconds=0.1))
    assert not b.fits("test", FIRST_PART, State(seconds=100 - 0.99 * needed, pair_seconds=0.1))
    assert b.fits("test", 8, State(seconds=100 - 0.51 * needed, pair_seconds=0.1))
    assert budget(max_steps=5).fits("test", 10**6, State(pair_seconds=0.1))


def test_all_pairs_of_the_average_and_the_starting_model_have_to_fit() -> None:
    b = budget(time="100s", average=5)
    state = State(seconds=80, pair_seconds=0.1)
    for task in ("average", "start"):
        seconds = b.seconds_for_task(task, state)
        assert seconds is not None
        assert b.fits(task, int(seconds / 0.1), state)
        assert not b.fits(task, int(seconds / 0.1) + 1, state)


def test_forecast_of_the_next_step() -> None:
    forecast = Forecast()
    assert forecast.step_seconds == 0
    forecast.add(9.0)
    assert forecast.step_seconds == 9
    for seconds in (1.0, 1.2, 1.1, 30.0):
        forecast.add(seconds)
    assert forecast.step_seconds == pytest.approx(1.15)  # without the first step, and a single slow one does not count
    for _ in range(5):
        forecast.add(5.0)
    assert forecast.step_seconds == 5


def test_the_speed_is_reported_once_and_soon() -> None:
    forecast = Forecast()
    assert not forecast.is_new(progress=0.0)
    for _ in range(4):
        forecast.add(1.0)
        assert not forecast.is_new(progress=0.01)
    forecast.add(1.0)
    assert forecast.is_new(progress=0.01)
    assert not forecast.is_new(progress=0.9)
    slow = Forecast()
    slow.add(100.0)
    assert not slow.is_new(progress=0.4), "the first step of a process is slower, as after resuming on a GPU"
    slow.add(50.0)
    assert not slow.is_new(progress=0.1)
    assert slow.is_new(progress=0.6)


def test_validations_take_no_more_than_their_share_of_the_time() -> None:
    b = dataclasses.replace(budget(time="1000s"), chosen=frozenset({"train.valid_every"}))
    state = State(step=50, seconds=400, validated_step=10, validated_at=300, validation_seconds=5)
    wait = b.training_time(state) / b.validations(state)
    assert not b.validation_is_due(dataclasses.replace(state, seconds=300 + wait - 1), 1.0)
    assert b.validation_is_due(dataclasses.replace(state, seconds=300 + wait + 1), 1.0)
    slow = dataclasses.replace(state, validation_seconds=50)
    wait = 50 * (1 / VALIDATION_SHARE - 1)
    assert not b.validation_is_due(dataclasses.replace(slow, seconds=300 + wait - 1), 1.0)
    assert b.validation_is_due(dataclasses.replace(slow, seconds=300 + wait + 1), 1.0)
    assert not b.validation_is_due(dataclasses.replace(slow, seconds=900, validated_step=50), 1.0)


def test_a_slow_checkpoint_is_written_less_often() -> None:
    b = dataclasses.replace(budget(time="1000s"), chosen=frozenset({"train.save_every"}))
    state = State(step=50, seconds=400, saved_at=300, save_seconds=0.1)
    wait = b.training_time(state) / SAVES
    assert not b.save_is_due(dataclasses.replace(state, seconds=300 + wait - 1), 1.0)
    assert b.save_is_due(dataclasses.replace(state, seconds=300 + wait + 1), 1.0)
    assert not b.save_is_due(dataclasses.replace(state, seconds=300 + wait + 1, save_seconds=30), 1.0)
    assert b.save_is_due(dataclasses.replace(state, seconds=300 + 601, save_seconds=30), 1.0)
    long = dataclasses.replace(b, train=b.train.model_copy(update={"time": 1e6}))
    assert long.save_is_due(dataclasses.replace(state, seconds=300 + 601), 1.0)  # every ten minutes at least


def test_a_validation_takes_as_many_pairs_as_the_last_one_managed() -> None:
    b = budget(time="1000s")  # 100 validation pairs
    allowed = b.seconds_for_validation(State())
    assert allowed
    state = State(validation_seconds=allowed)
    b.fit_validation(state, wanted=100, done=32)
    assert state.valid_pairs == 32
    b.fit_validation(state, wanted=32, done=32)
    assert state.valid_pairs == 32  # as many as before, so that the scores are comparable
    state.validation_seconds = allowed / 3
    b.fit_validation(state, wanted=32, done=32)
    assert state.valid_pairs == 32
    state.validation_seconds = allowed / 5
    b.fit_validation(state, wanted=32, done=32)
    assert state.valid_pairs == 64
    b.fit_validation(state, wanted=64, done=64)
    assert state.valid_pairs == 100
    whole = State(validation_seconds=allowed)
    b.fit_validation(whole, wanted=100, done=100)
    assert whole.valid_pairs is None
    by_steps = State(validation_seconds=1e6)
    budget(max_steps=9).fit_validation(by_steps, wanted=100, done=50)
    assert by_steps.valid_pairs is None


@pytest.mark.parametrize("preset", ["tiny", "small"])
def test_no_preset_below_the_smallest_is_advised(caplog: pytest.LogCaptureFixture, preset: str) -> None:
    log_speed(Budget(TrainConfig(time=60.0)), State(), 1.0, preset=preset)
    assert ("--preset" in caplog.text) == (preset != "tiny")
    assert "a smaller" in caplog.text


def test_few_steps_of_fine_tuning_are_enough_for_a_usable_model(caplog: pytest.LogCaptureFixture) -> None:
    budget = Budget(TrainConfig(time=60.0), frozenset({"train.warmup_steps"}), FinalWork(fine_tunes=True))
    log_speed(budget, State(), 1.0, preset="small")
    assert "too short" not in caplog.text
    long_warmup = dataclasses.replace(budget, train=TrainConfig(time=60.0, warmup_steps=100), chosen=frozenset())
    log_speed(long_warmup, State(), 1.0, preset="small")
    assert "needs 200 or more" in caplog.text
    assert "--preset" not in caplog.text  # the model has its size


@pytest.mark.parametrize("step", [5, 60, 100])
def test_no_more_steps_and_time_are_expected_than_the_steps_allow(caplog: pytest.LogCaptureFixture, step: int) -> None:
    caplog.set_level("INFO")
    limited = Budget(TrainConfig(time=600.0, max_steps=100))
    log_speed(limited, State(step=step, seconds=step * 0.1), 0.1, preset="small")
    assert "0.1 seconds a step: about 100 steps in 0:10" in caplog.text
    assert "too short" not in caplog.text
