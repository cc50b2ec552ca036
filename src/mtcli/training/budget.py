"""The budget of a run: how much of its steps or time is used, what the rest of the time is worth, and how a run ends
sooner once nothing improves.

A run bounded by steps decides from counts alone, so that it can be repeated bit for bit. A run with a time decides
from what it measured of itself. Everything measured is in `State`, which is equal on all ranks.
"""

import logging
import math
from collections import deque
from dataclasses import dataclass
from statistics import median
from typing import Literal

from mtcli.config.schema import Config, TrainConfig
from mtcli.runtime.progress import clock
from mtcli.storage.state import State
from mtcli.training.deadline import FIRST_PART
from mtcli.training.optimizer import cooldown_begins

log = logging.getLogger(__name__)

WARM_UP = 0.2
"""Part of a budget that a warm-up may take, unless its steps were given."""

VALIDATING = 0.15
"""Part of the training time that validations before the last step may take."""

LARGE_SAMPLE = 0.1
"""Part of the training time that the one validation may take which measures the speed of validating."""

VALIDATIONS = 8, 24
"""How few and how many of these there are: one a minute in between."""

SAVES = 24
"""Checkpoints of a training time: the last five, which are averaged (§6.1), then lie in its last quarter."""

SAVING = 0.05
"""Part of the training time that checkpoints may take."""

SAVE_SECONDS = 600.0
"""Between checkpoints at most, as in §6.1."""

AFTERWARDS = 0.3
"""Part of the time that is at most kept for what comes after the last step: validating, averaging, the test scores."""

UNMEASURED = 0.1
"""Part that is kept for it as long as no validation has been measured."""

SPARE = 1.25
"""How much more is kept for it than was measured, since the speed may change."""

SCORED_AT_LEAST = 200
"""Test pairs that a short run scores at least."""

ENOUGH_STEPS = 500
"""Steps below which a time is reported as too short: after 900 steps Multi30K has 32 BLEU, after 100 nearly none."""

TOKENS_PER_PAIR = 20
"""Target tokens that are trained in the time in which a pair is translated greedily: 11 with a good model (661 pairs
and 7,130 tokens a second on two cores, scripts/bench_decode.py and bench_train.py), more with an early one."""

FIRST_STEPS, FIRST_PART_OF_BUDGET = 5, 0.05
"""Steps, or the part of the budget, after which the speed is reported."""

RECENT = 9
"""Steps whose median is the forecast of the next one: one slow step does not count."""

Work = Literal["valid", "average", "test"]
"""What comes after the last step, in this order."""


class Forecast:
    """How long the next step will take, judged by the last ones of this process."""

    def __init__(self) -> None:
        self.steps = 0
        self._recent: deque[float] = deque(maxlen=RECENT)
        self._reported = False

    def add(self, seconds: float) -> None:
        """Take note of a step; the first one of a process is slower than others and is replaced by the second."""
        self.steps += 1
        if self.steps == 2:
            self._recent.clear()
        self._recent.append(seconds)

    def is_new(self, used: float) -> bool:
        """Return True once, as soon as the forecast is worth reporting: after a few steps, or much of the budget."""
        measured = self.steps >= FIRST_STEPS or used >= FIRST_PART_OF_BUDGET
        if self._reported or not measured:
            return False
        self._reported = True
        return True

    @property
    def step_seconds(self) -> float:
        """Seconds of the next step; 0 before the first one."""
        return median(self._recent) if self._recent else 0.0


@dataclass(frozen=True)
class Budget:
    """What a run may use, in steps or seconds; where both are given, whichever is used up first."""

    train: TrainConfig
    chosen: frozenset[str] = frozenset()
    """Names of the settings that may adapt, because the user did not give them."""
    valid: int = 0
    """Validation pairs."""
    test: int = 0
    """Test pairs."""
    beam_size: int = 4
    ranks: int = 1

    @classmethod
    def of(cls, config: Config, valid: int, test: int, ranks: int = 1) -> "Budget":
        """The budget of a run with this many validation and test pairs, on this many ranks."""
        return cls(config.train, frozenset(config.chosen), valid, test, config.decode.beam_size, ranks)

    @property
    def limits(self) -> list[float | None]:
        """Steps and seconds."""
        return [self.train.max_steps, self.train.time]

    # ---- how much is used ----

    def used(self, state: State) -> float:
        """The part that is used, from 0 to 1 and beyond."""
        by_steps = state.step / self.train.max_steps if self.train.max_steps else 0.0
        return max(by_steps, self._time_used(state, 0.0)) / state.share

    def ends(self, state: State, next_step: float = 0.0) -> str | None:
        """Why training is over, if it is: not before a cool-down that the schedule has, nor during it.

        Nor before the first step, however little time there is: a run without a model would be of no use.

        Args:
            state: The state after a step.
            next_step: Seconds of the next step; it is not begun if it would end too late.
        """
        if self._nothing_improves(state) and cooldown_begins(self.train) is None:
            return "nothing improved"
        fits = self._time_used(state, next_step) <= state.share
        if not state.step or (self.used(state) < 1 and fits):
            return None
        return "budget used" if state.share == 1 else "cut short, as nothing improved"

    def warmup_steps(self, state: State) -> float:
        """Steps of the warm-up: those configured, or fewer where that many would take too much of the time.

        The speed so far says how many steps a fifth of the time is worth, whatever the load was until now.
        """
        adapts = self.adapts("train.warmup_steps") and self.train.schedule != "paper"
        used = self.used(state)
        if not adapts or not state.step or used <= 0:
            return self.train.warmup_steps
        return min(self.train.warmup_steps, max(1.0, WARM_UP * state.step / used))

    def _time_used(self, state: State, ahead: float) -> float:
        """The part of the training time that is used after `ahead` more seconds; 0 without a time."""
        if not self.train.time:
            return 0.0
        return (state.seconds + ahead - state.prepared) / self.training_time(state)

    def training_time(self, state: State) -> float:
        """Seconds between the first and the last step: not preparing, nor what comes after the last step."""
        whole = (self.train.time or math.inf) - state.prepared
        if state.pair_seconds:
            afterwards = SPARE * state.pair_seconds * sum(self._costs().values()) + 3 * state.save_seconds
        else:
            afterwards = UNMEASURED * whole
        return max(whole - min(afterwards, AFTERWARDS * whole), 1e-9)

    @property
    def needed_steps(self) -> int:
        """Steps that a usable translator needs at least, or all that were asked for."""
        needed = ENOUGH_STEPS if self.adapts("train.warmup_steps") else max(ENOUGH_STEPS, 2 * self.train.warmup_steps)
        return min(needed, self.train.max_steps or needed)

    def adapts(self, name: str) -> bool:
        """Return True if a setting follows the speed that is measured, since the user gave a time and not this."""
        return bool(self.train.time) and name in self.chosen

    def report(self, state: State, step_seconds: float) -> None:
        """Log how many steps the time is worth at this speed, and warn where they are too few."""
        assert self.train.time
        left = self.training_time(state) - (state.seconds - state.prepared)
        steps = max(state.step + int(left / max(step_seconds, 1e-9)), 1)
        log.info("%.2g seconds a step: about %s steps in %s", step_seconds, f"{steps:,}", clock(self.train.time))
        needed = self.needed_steps
        if steps >= needed:
            return
        enough = (state.prepared + needed * step_seconds) / (1 - AFTERWARDS)
        log.warning(
            "--time %s is too short at this speed: about %s steps, and a usable translator needs %s or more; give it "
            "--time %dm, or a smaller --preset or train.batch_tokens",
            clock(self.train.time),
            f"{steps:,}",
            f"{needed:,}",
            math.ceil(enough / 60),
        )

    # ---- validating and saving ----

    def validation_is_due(self, state: State, step_seconds: float) -> bool:
        """Return True unless this step was validated already, or it is not yet time for it.

        A run that was stopped just before a validation does it on resuming. Half-way through a time a validation is
        due if there was none, so that the time needed after the last step is known.
        """
        if state.validated_step == state.step:
            return False
        if not self.adapts("train.valid_every"):
            late = self.train.time and not state.validated_step and self.used(state) >= 0.5
            return bool(late or state.step % self.train.valid_every == 0)
        since = state.seconds - (state.validated_at or state.prepared)
        expected = self._expected(state, step_seconds) / self.validations(state)
        return since >= max(expected, state.validation_seconds * (1 / VALIDATING - 1))

    def save_is_due(self, state: State, step_seconds: float) -> bool:
        """Return True if it is time for a checkpoint."""
        if not self.adapts("train.save_every"):
            return state.step % self.train.save_every == 0
        since = state.seconds - (state.saved_at or state.prepared)
        expected = min(self._expected(state, step_seconds) / SAVES, SAVE_SECONDS)
        return since >= max(expected, state.save_seconds / SAVING)

    def validations(self, state: State) -> float:
        """About how many validations there are before the last step."""
        return min(max(self.training_time(state) / 60, VALIDATIONS[0]), VALIDATIONS[1])

    def _expected(self, state: State, step_seconds: float) -> float:
        """Seconds that all steps will take together."""
        by_steps = step_seconds * self.train.max_steps if self.train.max_steps and step_seconds else math.inf
        return min(self.training_time(state), by_steps)

    # ---- how long things may take ----

    def validation_may_take(self, state: State) -> float | None:
        """Seconds for a validation before the last step; None: as long as it takes."""
        return VALIDATING * self.training_time(state) / self.validations(state) if self.train.time else None

    def large_sample_is_due(self, state: State) -> bool:
        """Return True if the next validation should take all pairs, to measure how long those after the last step take.

        A small sample takes several times as long per pair, so its speed would reserve much more time than is needed.
        """
        return bool(self.train.time) and not state.speed_settled and self.used(state) >= 0.5

    def large_sample_may_take(self, state: State) -> float:
        """Seconds for that validation."""
        return LARGE_SAMPLE * self.training_time(state)

    def may_take(self, work: Work, state: State) -> float | None:
        """Seconds for something that comes after the last step; None: as long as it takes.

        The rest of the time is divided by the cost of what is still to be done; half as much again may be borrowed from
        what comes later.
        """
        if not self.train.time:
            return None
        costs = self._costs()
        later = sum(list(costs.values())[list(costs).index(work) :])
        left = max(self.train.time - state.seconds - 2 * state.save_seconds, 0.0)
        return left * min(1.0, 1.5 * costs[work] / max(later, 1e-9))

    def fit_validation(self, state: State, wanted: int, done: int, *, large: bool = False) -> None:
        """Choose how many pairs the next validation takes: what this one managed, or more if it was quick.

        The one with a `large` sample had more time than others: it only shows that others may take as many pairs.
        """
        allowed = self.validation_may_take(state)
        if allowed is None:
            return
        if large:
            state.valid_pairs = done if state.validation_seconds <= allowed else state.valid_pairs
        elif done < wanted:
            state.valid_pairs = done
        elif wanted < self.valid and state.validation_seconds < allowed / 4:
            state.valid_pairs = min(2 * wanted, self.valid)

    def test_fits(self, state: State, seconds: float) -> bool:
        """Return True if the least that can be scored is likely to end in these seconds."""
        return min(self.test, FIRST_PART) * self.search * state.pair_seconds <= seconds

    def test_pairs(self, state: State) -> int:
        """How many test pairs are scored: all, unless fewer steps than they are worth are all that was trained.

        A pair is searched in about the time in which as many tokens are trained as `TOKENS_PER_PAIR` says.
        """
        if self.train.time:
            return self.test
        trained = state.step * self.train.batch_tokens * self.train.accumulate * self.ranks
        return min(self.test, max(SCORED_AT_LEAST, int(trained / (TOKENS_PER_PAIR * self.search))))

    @property
    def search(self) -> float:
        """Cost of a beam search in greedy ones; 2.8 was measured with a beam of 5 (scripts/bench_decode.py)."""
        return (1 + self.beam_size) / 2

    def _costs(self) -> dict[Work, float]:
        """What comes after the last step, in validation pairs."""
        return {
            "valid": float(self.valid),
            "average": float(self.valid) if self.train.average > 1 else 0.0,
            "test": self.test * self.search,
        }

    # ---- ending sooner ----

    def renew(self, state: State) -> None:
        """Forget that the run has ended, or was cut short, if that was under another budget."""
        if state.budget not in (None, self.limits):
            state.finished, state.stale, state.share, state.budget = None, 0, 1.0, None

    def cool_down_early(self, state: State) -> bool:
        """Where nothing improves, begin the cool-down at once, as if the budget had been so much smaller."""
        begins, used = cooldown_begins(self.train), self.used(state)
        if begins is None or used >= begins or not self._nothing_improves(state):
            return False
        state.share, state.budget = state.share * used / begins, self.limits
        return True

    def _nothing_improves(self, state: State) -> bool:
        return 0 < self.train.patience <= state.stale
