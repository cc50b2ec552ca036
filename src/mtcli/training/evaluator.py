"""Evaluation during and after training: validations, the average of the last checkpoints, and the test scores."""

import logging
from contextlib import nullcontext
from dataclasses import asdict
from typing import Any

from mtcli.errors import NotFiniteError
from mtcli.runtime.wording import counted
from mtcli.storage import checkpoint
from mtcli.storage.state import mean_in_words
from mtcli.text.language_identifier import learned_from
from mtcli.training import validation
from mtcli.training.averaging import weights_of
from mtcli.training.corrections import EVERY_ONE_GIVEN, LearnedCorrections
from mtcli.training.learner import Learner, diverged
from mtcli.training.log import log_scores, log_validation
from mtcli.training.saving import Checkpoints
from mtcli.training.session import Session
from mtcli.training.time.budget import NOTHING_IMPROVED
from mtcli.training.time.timed_parts import FIRST_PART, Deadline
from mtcli.training.validation import PairsToScore, TestScores, Validation
from mtcli.translate.backends.pytorch import PyTorchBackend

log = logging.getLogger(__name__)


class Evaluator:
    """Evaluates the model, and decides which checkpoint is the best. Only rank 0 evaluates.

    Args:
        session: The training.
        learner: Its model and optimizer.
        checkpoints: Its checkpoints.
    """

    def __init__(self, session: Session, learner: Learner, checkpoints: Checkpoints):
        self.session = session
        self.learner = learner
        self.checkpoints = checkpoints
        data = session.data
        identifier = None
        if len(data.directions) > 1:
            identifier = learned_from([data.valid_split, data.test_split])
        valid = PairsToScore(data.valid, data.directions_of("valid"), identifier)
        self.valid = valid if session.config.train.time is None else valid.in_turn()
        """The validation pairs. With a time budget, the first N are a sample of all, for any N."""
        self.test = PairsToScore(data.test, data.directions_of("test"), identifier)
        self.corrections = LearnedCorrections(data.corrections, session.config)

    def validate(self, *, is_last: bool = False) -> None:
        """Evaluate the model of this step, and make it the best one if it improves.

        Args:
            is_last: There is no step after this one: take all pairs, or as many as the rest of the time allows.
        """
        session = self.session
        state = session.state
        budget = session.budget
        state.validated_step = state.step
        if not self.valid:
            state.best_step = state.step
            if session.config.train.time:
                state.validated_at = state.seconds
            return
        measures_speed = is_last or budget.measurement_is_due(state)
        num_pairs = len(self.valid)
        if not measures_speed:
            num_pairs = state.valid_pairs or num_pairs
        seconds = budget.seconds_for_task("valid", state) if is_last else budget.seconds_for_validation(state)
        result = self._measure(num_pairs, seconds, measures_speed=measures_speed)
        if not measures_speed:
            budget.fit_validation(state, num_pairs, result.pairs)
        if state.record_if_best(asdict(result)):
            state.best_step = state.step
            state.averaged = []
            state.validations_since_best = 0
        else:
            state.validations_since_best += 1
        self._record("valid", result)
        log_validation(state, result)
        validations = counted(state.validations_since_best, "validation")
        reason = f"no better model by {state.metric_name} in {validations}"
        if state.step and self.corrections.are_given(result):  # before the first step, nothing can end
            reason = EVERY_ONE_GIVEN
            budget.expect_no_improvement(state)
        if budget.cool_down_early(state):
            log.info("%s: the learning rate falls to zero from here, and training ends early", reason)

    def validate_start(self) -> None:
        """Evaluate the model that fine-tuning starts from. It stays the best one until a validation is better."""
        session = self.session
        if session.config.train.time:
            session.count_time()
            # This validation counts as preparation: the training time begins after it.
            session.state.seconds_before_first_step = session.state.seconds
        self.validate()
        session.state.start = session.state.best
        session.state.start_pairs = session.state.best_pairs

    def average(self) -> None:
        """Make the mean of the last checkpoints the run's model, if it is better than the best checkpoint (§6.1).

        Both are scored on the same validation pairs, even if these are few. If the mean has learned corrections and
        forgotten too much, further means include the model that training started from.
        """
        session = self.session
        state = session.state
        self.checkpoints.save()
        steps = self._steps_to_average()
        if len(steps) < 2:
            return
        num_pairs = state.best_pairs or len(self.valid)
        if not session.budget.fits("average", num_pairs, state):
            log.info("no time is left to average the last checkpoints; `mtcli average` does")
            return
        seconds = session.budget.seconds_for_task("average", state)
        for averaged in self.corrections.means(steps):
            with weights_of(self.learner.model, self.checkpoints.paths(averaged)):
                result = self._measure(num_pairs, seconds)
            is_better = result.pairs == num_pairs and state.record_if_better(asdict(result))
            if is_better:
                state.averaged = averaged
            self._record("average", result, steps=averaged, kept=is_better)
            verdict = "kept" if is_better else f"no better by {state.metric_name}"
            log.info("%s: %s: %s", mean_in_words(averaged), result, verdict)
            if result.corrections is None or not result.corrections.forgets:
                break

    def compare_with_start(self) -> None:
        """Make the model that fine-tuning started from the run's model again, if the best one is not better.

        With a time budget, validations may take samples of different sizes, of which the newest counts as the best.
        So both models are compared on the pairs of the best validation.
        """
        session = self.session
        state = session.state
        if not session.data.init or state.start is None or state.best is None or state.start_is_best:
            return
        num_pairs = state.best_pairs
        if num_pairs == state.start_pairs and not state.start_is_better():
            return
        paths = self.checkpoints.paths([0])
        if checkpoint.verify(paths[0]):
            log.warning("%s is damaged: the new model is not compared with the one it started from", paths[0])
            return
        result = None
        if session.budget.fits("start", num_pairs, state):
            with weights_of(self.learner.model, paths):
                result = self._measure(num_pairs, session.budget.seconds_for_task("start", state))
        if result is None or result.pairs < num_pairs:
            log.warning("no time was left to score the starting model on the same pairs: the new one may be worse")
            return
        state.record_start(asdict(result))
        is_kept = state.start_is_better()
        if is_kept:
            state.restore_start(asdict(result))
        self._record("start", result, kept=is_kept)
        log.info("the model that training started from: %s", result)

    def _steps_to_average(self) -> list[int]:
        """Return the steps of the last undamaged checkpoints, this step's included: at most `train.average`."""
        current = self.session.state.step
        earlier = [step for step in self.checkpoints.scheduled() if step < current]
        steps = [*earlier, current][-self.session.config.train.average :]
        return [
            step
            for step, path in zip(steps, self.checkpoints.paths(steps), strict=True)
            if checkpoint.verify(path) is None
        ]

    def score_test(self) -> None:
        """Score the run's model on the test pairs, with the same search as `mtcli eval`."""
        for event, steps in self.corrections.tested(self.session.state).items():
            self._score_test(event, steps)

    def _score_test(self, event: str, steps: list[int]) -> None:
        """Score the mean of some checkpoints on the test pairs, and record the scores.

        Args:
            event: The name of the event.
            steps: The steps of the checkpoints.
        """
        session = self.session
        state = session.state
        paths = self.checkpoints.paths(steps)
        is_current = steps == [state.step]
        if not is_current and any(checkpoint.verify(path) for path in paths):
            problem = "one of its checkpoints is damaged or was deleted"
            scored = "best model" if event == "test" else "model that training started from"
            log.warning("the %s is not scored: %s; `mtcli eval` scores it", scored, problem)
            return
        session.count_time()
        num_pairs = len(self.test) if self.corrections.pairs else session.budget.test_pairs(state)
        if not session.budget.fits("test", min(num_pairs, FIRST_PART), state):
            log.warning("no time is left to score the test pairs; `mtcli eval` does")
            return
        seconds = session.budget.seconds_for_task("test", state)
        with nullcontext() if is_current else weights_of(self.learner.model, paths):
            scores = validation.score_test(
                self.backend_in_eval_mode(), self.test, session.config, num_pairs, self._deadline(seconds)
            )
        session.count_time()
        session.record(event, steps=steps, **_recorded(scores), seconds=round(state.seconds, 3))
        if event == "test":
            log_scores(scores, demo=session.config.data.is_demo)
        else:
            log.info("before training: %s", scores)

    def conclude(self, reason: str) -> None:
        """Validate, average and score for the last time, and record the end of training.

        Args:
            reason: Why training ends.
        """
        session = self.session
        settings = session.config.train
        state = session.state
        if state.step < session.budget.warmup_steps(state):
            problem = f"ended within its warm-up, after {state.step:,} of {counted(settings.warmup_steps, 'step')}"
            log.warning("%s: give it more time or steps, or a lower --set train.warmup_steps", problem)
        num_valid = len(self.valid)
        if state.validated_step != state.step:
            self.checkpoints.save()  # the work that follows may take minutes: a kill must not cost the last steps
            self.validate(is_last=True)
        elif settings.time and state.best_pairs < num_valid and reason != NOTHING_IMPROVED:
            # If more pairs are scored, the model after the cool-down counts as the best. If training ended because
            # nothing improved, the best model is an earlier one.
            self.validate(is_last=True)
        if settings.average > 1 and num_valid:
            self.average()
        self.compare_with_start()
        if self.test:
            self.score_test()
        reason = self.corrections.why_ended(state, reason)
        state.finished = reason
        state.budget = session.budget.limits
        session.record(
            "end",
            reason=reason,
            best_step=state.best_step,
            averaged=state.averaged,
            seconds=round(state.seconds, 1),
        )

    def _measure(self, num_pairs: int, seconds: float | None, *, measures_speed: bool = False) -> Validation:
        """Validate the model with its current weights, and note how long that took.

        Args:
            num_pairs: How many validation pairs to take.
            seconds: Stop with fewer pairs after about this many seconds; None: take all of `num_pairs`.
            measures_speed: Note the time per pair even if fewer than all pairs are taken.

        Raises:
            DivergedError: Training has made weights with which scores are not finite.
            NotFiniteError: The model that fine-tuning starts from has such weights.
        """
        session = self.session
        state = session.state
        session.count_time()
        started_at = state.seconds
        try:
            result = validation.validate(
                self.backend_in_eval_mode(),
                self.valid,
                session.config,
                self.learner.objective,
                num_pairs,
                self._deadline(seconds),
            )
        except NotFiniteError:
            if state.step == 0:
                raise
            raise diverged(state.step, "it left weights with which scores are not finite") from None
        result = self.corrections.measured(result, self.backend_in_eval_mode(), state)
        session.count_time()
        if session.config.train.time:
            state.validated_at = state.seconds
            state.validation_seconds = state.seconds - started_at
            if measures_speed or result.pairs == len(self.valid):
                state.pair_seconds = state.validation_seconds / result.pairs
        return result

    def _record(self, event: str, result: Validation, **values: Any) -> None:
        """Record the figures of a validation as an event, after other values of the event."""
        state = self.session.state
        self.session.record(
            event, **values, **_recorded(result), metric=state.selection_metric, seconds=round(state.seconds, 3)
        )

    def _deadline(self, seconds: float | None) -> Deadline | None:
        """Return the deadline in this many seconds, or None for no deadline."""
        if seconds is None:
            return None
        clock = self.session.clock
        return Deadline(clock() + seconds, clock)

    def backend_in_eval_mode(self) -> PyTorchBackend:
        """Put the model into evaluation mode, and return a backend that uses its current weights."""
        session = self.session
        return PyTorchBackend(self.learner.model.eval(), session.data.tokenizer, session.info)


def _recorded(result: Validation | TestScores) -> dict[str, Any]:
    """Return the figures of an event, without those of one direction, and without corrections that are not learned."""
    values = asdict(result)
    if len(result.directions) < 2:
        del values["directions"]
    if isinstance(result, Validation) and result.corrections is None:
        del values["corrections"]
    return values
