"""The budget of a run: how much of it is used, what is due, how long that may take, and when training ends.

A run with a budget of steps decides from counts alone, so it can be repeated bit for bit. A run with a time budget
decides from its own measurements. They are in `State`, which is equal on all ranks.
"""

import math
from dataclasses import dataclass, field

from mtcli.config.schema import Config, TrainConfig
from mtcli.evaluation.confidence import num_calibration_lines
from mtcli.exchange.engine_export import NUM_SENTENCES, can_have_engine
from mtcli.storage.state import State
from mtcli.training.optimizer import cooldown_begins
from mtcli.training.time.final_work import FinalWork, Task

WARMUP_SHARE = 0.2
"""Share of the budget that the warm-up may take, unless its length is set."""

VALIDATION_SHARE = 0.15
"""Share of the training time that the validations before the last step may take."""

MEASUREMENT_SHARE = 0.1
"""Share of the training time that a validation in its second half may take, if none has scored all pairs before."""

MIN_VALIDATIONS = 8
MAX_VALIDATIONS = 24
"""Bounds of the number of validations before the last step. Between them, there is one per minute."""

SAVES = 24
"""Checkpoints in the training time. The last five, which are averaged (§6.1), are then from its last quarter."""

SAVE_SHARE = 0.05
"""Share of the training time that saving checkpoints may take."""

GPU_SHARE_FACTOR = 1 / 6
"""On CUDA, the three shares above are this many times as large: together 5%.

Training is faster there by more than translating and writing are, so the same number of steps between validations costs
a larger share of the time.
"""

SAVE_SECONDS = 600.0
"""Longest time between checkpoints, as in §6.1."""

MIN_TEST_PAIRS = 200
"""Test pairs that even a short run scores."""

TOKENS_PER_PAIR = 20
"""Target tokens of training that take as long as the greedy translation of a pair.

It is 11 with a good model (661 pairs and 7,130 tokens per second on two cores, scripts/bench_decode.py and
bench_train.py), and more with an early one, which writes longer translations.
"""

BUDGET_USED = "budget used"
"""The reason for the usual end of a run."""

NOTHING_IMPROVED = "nothing improved"
"""The reason for the end of a run without a cool-down that stops early. Its best model is an earlier one."""


@dataclass(frozen=True)
class Budget:
    """What a run may use: steps or seconds. If both are limited, training ends with whichever is used up first."""

    train: TrainConfig
    chosen: frozenset[str] = frozenset()
    """Names of the options that adapt to the speed, because the user did not set them."""
    final_work: FinalWork = field(default_factory=FinalWork)
    ranks: int = 1
    on_gpu: bool = False
    """Training runs on CUDA."""

    @classmethod
    def of(
        cls,
        config: Config,
        valid: int,
        test: int,
        ranks: int = 1,
        *,
        fine_tunes: bool = False,
        on_gpu: bool = False,
    ) -> "Budget":
        """Return the budget of a run.

        Args:
            config: The complete configuration.
            valid: Number of validation pairs.
            test: Number of test pairs.
            ranks: Number of processes that train together.
            fine_tunes: The run starts from another model.
            on_gpu: Training runs on CUDA.
        """
        held_out = valid + test
        final_work = FinalWork(
            valid=valid,
            test=test,
            beam_size=config.decode.beam_size,
            averages=config.train.average > 1,
            fine_tunes=fine_tunes,
            compared=min(held_out, NUM_SENTENCES) if can_have_engine(config, held_out) else 0,
            calibrated=num_calibration_lines(valid),
        )
        return cls(
            config.train,
            chosen=frozenset(config.chosen),
            final_work=final_work,
            ranks=ranks,
            on_gpu=on_gpu,
        )

    @property
    def limits(self) -> list[float | None]:
        """The largest number of steps and of seconds; None: not limited."""
        return [self.train.max_steps, self.train.time]

    # ---- how much is used ----

    def progress(self, state: State) -> float:
        """Return how much of the training is over: 1 at its end, or a little more.

        This is the used share of the budget: of the part that training will use, after an early cool-down began.
        """
        return self._used(state) / state.share_of_budget

    def reason_to_end(self, state: State, next_step: float = 0.0) -> str | None:
        """Return why training ends now, or None if it continues.

        There is always a first step, however short the time: a run without a model would be useless. A schedule with
        a cool-down does not end before it or during it.

        Args:
            state: The state after a step.
            next_step: Seconds that the next step will take. It is not started if it would end too late.
        """
        if self._nothing_improves(state) and cooldown_begins(self.train) is None:
            return NOTHING_IMPROVED
        if not state.step:
            return None
        next_step_fits = self._time_used(state, next_step) <= state.share_of_budget
        if self.progress(state) < 1 and next_step_fits:
            return None
        return BUDGET_USED if state.share_of_budget == 1 else "cut short, as nothing improved"

    def warmup_steps(self, state: State) -> float:
        """Return the steps of the warm-up: as configured, or fewer if that many would take too much of the time.

        The mean speed so far decides how many steps fit into `WARMUP_SHARE` of the time. That of the first step decides
        nothing: on a GPU, it can take many times as long as a later one.
        """
        adapts = self.adapts("train.warmup_steps") and self.train.schedule != "paper"
        used = self._used(state)  # an early cool-down must not shorten a warm-up that is over
        if not adapts or state.step < 2 or used <= 0:
            return self.train.warmup_steps
        return min(self.train.warmup_steps, max(1.0, WARMUP_SHARE * state.step / used))

    def _used(self, state: State) -> float:
        """Return the used share of the whole budget, even if an early cool-down reduces the budget."""
        by_steps = state.step / self.train.max_steps if self.train.max_steps else 0.0
        return max(by_steps, self._time_used(state, 0.0))

    def _time_used(self, state: State, more: float) -> float:
        """Return the share of the training time that is used after `more` seconds; 0 without a time budget."""
        if not self.train.time:
            return 0.0
        return (state.seconds + more - state.seconds_before_first_step) / self.training_time(state)

    def training_time(self, state: State) -> float:
        """Return the seconds from the first to the last step, without the preparation before and the work after them.

        It is infinite without a time budget.
        """
        if not self.train.time:
            return math.inf
        total = self.train.time - state.seconds_before_first_step
        return max(total - self.final_work.reserved_seconds(state, total), 1e-9)

    def adapts(self, name: str) -> bool:
        """Return True if an option follows the measured speed: there is a time budget, and the user did not set it."""
        return bool(self.train.time) and name in self.chosen

    # ---- validating and saving ----

    def validation_is_due(self, state: State, step_seconds: float) -> bool:
        """Return True if this step should be validated.

        A run that was stopped just before a validation does it after resuming. If there was none in the first half of
        the time, one is due then, to measure the time that the work after the last step will take.
        """
        if state.validated_step == state.step:
            return False
        if not self.adapts("train.valid_every"):
            is_late = self.train.time and not state.validated_step and self.progress(state) >= 0.5
            return bool(is_late) or state.step % self.train.valid_every == 0
        since_last = state.seconds - (state.validated_at or state.seconds_before_first_step)
        interval = self._training_seconds(state, step_seconds) / self.validations(state)
        cost = state.validation_seconds + state.save_seconds  # a checkpoint follows each validation
        affordable_interval = cost * (1 / self._affordable(VALIDATION_SHARE) - 1)
        return since_last >= max(interval, affordable_interval)

    def save_is_due(self, state: State, step_seconds: float) -> bool:
        """Return True if a checkpoint should be saved after this step."""
        if not self.adapts("train.save_every"):
            return state.step % self.train.save_every == 0
        since_last = state.seconds - (state.saved_at or state.seconds_before_first_step)
        interval = min(self._training_seconds(state, step_seconds) / SAVES, SAVE_SECONDS)
        affordable_interval = state.save_seconds / self._affordable(SAVE_SHARE)
        return since_last >= max(interval, affordable_interval)

    def validations(self, state: State) -> float:
        """Return about how many validations there are before the last step."""
        return min(max(self.training_time(state) / 60, MIN_VALIDATIONS), MAX_VALIDATIONS)

    def _affordable(self, share: float) -> float:
        """Return a share of the training time on this device, given that on a CPU."""
        return GPU_SHARE_FACTOR * share if self.on_gpu else share

    def _training_seconds(self, state: State, step_seconds: float) -> float:
        """Return the seconds that all steps will take together: less than the training time if steps are limited."""
        seconds = self.training_time(state)
        if self.train.max_steps and step_seconds:
            seconds = min(seconds, step_seconds * self.train.max_steps)
        return seconds

    # ---- how long things may take ----

    def seconds_for_validation(self, state: State) -> float | None:
        """Return the seconds that a validation before the last step may take; None: no limit."""
        if not self.train.time:
            return None
        if self.measurement_is_due(state):
            return MEASUREMENT_SHARE * self.training_time(state)  # once, so on a GPU too
        return self._affordable(VALIDATION_SHARE) * self.training_time(state) / self.validations(state)

    def measurement_is_due(self, state: State) -> bool:
        """Return True if the next validation should take all pairs, to measure how long the work at the end takes.

        In a small sample, each pair takes several times as long. With that speed, too much time would be reserved.
        """
        return bool(self.train.time) and not state.pair_seconds and self.progress(state) >= 0.5

    def seconds_for_task(self, task: Task, state: State) -> float | None:
        """Return the seconds that a task after the last step may take; None: no limit.

        The remaining time is divided among the remaining tasks by cost. Each may take 1.5 times its share.
        """
        if not self.train.time:
            return None
        costs = self.final_work.costs()
        order = list(costs)
        remaining_cost = sum(costs[later] for later in order[order.index(task) :])
        remaining_seconds = max(self.train.time - state.seconds - 2 * state.checkpoint_seconds, 0.0)
        return remaining_seconds * min(1.0, 1.5 * costs[task] / max(remaining_cost, 1e-9))

    def fits(self, task: Task, pairs: int, state: State) -> bool:
        """Return True if a task after the last step can probably translate this many pairs in its time."""
        seconds = self.seconds_for_task(task, state)
        cost = self.final_work.beam_cost if task == "test" else 1.0
        return seconds is None or pairs * cost * state.pair_seconds <= seconds

    def fit_validation(self, state: State, wanted: int, done: int) -> None:
        """Set the number of pairs of the next validation: as many as this one took, or more if it was fast.

        Args:
            state: The state after a validation that was no measurement.
            wanted: Pairs that the validation was to take.
            done: Pairs that it took in its time.
        """
        allowed = self.seconds_for_validation(state)
        if allowed is None:
            return
        if done < wanted:
            state.valid_pairs = done
        elif wanted < self.final_work.valid and state.validation_seconds < allowed / 4:
            state.valid_pairs = min(2 * wanted, self.final_work.valid)

    def test_pairs(self, state: State) -> int:
        """Return how many test pairs to score: fewer than all if scoring them would take longer than the training did.

        With a time budget, the time decides instead.
        """
        if self.train.time:
            return self.final_work.test
        trained_tokens = state.step * self.train.batch_tokens * self.train.accumulate * self.ranks
        pairs = int(trained_tokens / (TOKENS_PER_PAIR * self.final_work.beam_cost))
        return min(self.final_work.test, max(MIN_TEST_PAIRS, pairs))

    # ---- ending early ----

    def reopen(self, state: State) -> None:
        """Let a run that has ended, or began its cool-down early, continue with another budget.

        A run that has ended continues only with a larger one.
        """
        if state.budget not in (None, self.limits) and not self.remains_finished(state):
            state.finished = None
            state.validations_since_best = 0
            state.share_of_budget = 1.0
            state.budget = None

    def remains_finished(self, state: State) -> bool:
        """Return True if a run ended, and this budget is not larger than the one it ended under."""
        if not state.finished:
            return False
        if state.budget is None:
            return True
        has_steps_left = self.train.max_steps is None or self.train.max_steps > state.step
        has_time_left = self.train.time is None or self.train.time > state.seconds
        if not (has_steps_left and has_time_left):
            return True
        return all(
            now is not None and (before is None or now <= before)
            for now, before in zip(self.limits, state.budget, strict=True)
            if now != before
        )

    def cool_down_early(self, state: State) -> bool:
        """Begin the cool-down if nothing improves, by reducing the share of the budget that will be used.

        Returns:
            True if the cool-down begins now.
        """
        cooldown_share = cooldown_begins(self.train)
        progress = self.progress(state)
        if cooldown_share is None or progress >= cooldown_share or not self._nothing_improves(state):
            return False
        state.share_of_budget = state.share_of_budget * progress / cooldown_share
        state.budget = self.limits
        return True

    def expect_no_improvement(self, state: State) -> None:
        """Let training end early, as if it had not improved for `patience` validations: it has reached its goal.

        A patience of 0 turns this off, too.
        """
        state.validations_since_best = max(state.validations_since_best, self.train.patience)

    def _nothing_improves(self, state: State) -> bool:
        """Return True after `patience` validations without a better one. A patience of 0 turns this off."""
        return 0 < self.train.patience <= state.validations_since_best
