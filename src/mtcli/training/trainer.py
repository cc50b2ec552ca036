"""The training loop. It can stop and resume at any step.

Everything random is a function of (seed, step, batch), and everything else that matters is in the checkpoint: on a
CPU, a run that is killed and started again ends with the same numbers as one that was not.
"""

import logging
import math
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import asdict, astuple
from functools import partial
from pathlib import Path

import torch

from mtcli.config.schema import Config
from mtcli.corpus.batching import BatchPlan, Position
from mtcli.corpus.cache.prepare import Prepared
from mtcli.errors import InterruptedTrainingError, ModelError, UsageError
from mtcli.model.transformer import Transformer
from mtcli.report.plan import Plan
from mtcli.report.run_report import write_report
from mtcli.runtime.cores import usable_cores
from mtcli.runtime.device import describe, runs_ahead
from mtcli.runtime.distributed import Group
from mtcli.runtime.progress import TrainingProgress
from mtcli.runtime.signals import stopped
from mtcli.runtime.wording import counted
from mtcli.storage import model_file
from mtcli.training.after_training import prepare_use
from mtcli.training.evaluator import Evaluator
from mtcli.training.learner import Learner, PendingStep
from mtcli.training.loading import LoadedBatch, load_batches
from mtcli.training.log import (
    log_end,
    log_next,
    log_selection,
    log_speed,
    log_unused_cores,
    warn_of_few_pairs,
    warn_of_long_warmup,
)
from mtcli.training.optimizer import learning_rate
from mtcli.training.saving import Checkpoints
from mtcli.training.session import Session
from mtcli.training.time.forecast import Forecast

log = logging.getLogger(__name__)

LOG_EVERY = 50
"""Steps between `train` events in `metrics.jsonl`."""


class Trainer:
    """Trains a run from its beginning, or from where it stopped, until its budget is used.

    Args:
        config: The complete configuration.
        run: The run folder.
        device: The device of this rank.
        data: The prepared data.
        started: What `time.monotonic` showed when the command began. The time budget counts from there.
        group: The ranks that train together.

    Raises:
        StorageError: There is too little memory for the model.
    """

    def __init__(
        self,
        config: Config,
        run: Path,
        device: torch.device,
        data: Prepared,
        started: float,
        group: Group,
    ):
        self.session = Session(config, run, device, data, group, started)
        self.learner = Learner(config, self.session.info, data.train, device, group)
        self.checkpoints = Checkpoints(self.session, self.learner)
        self.evaluator = Evaluator(self.session, self.learner, self.checkpoints)
        self.batch_plan = BatchPlan.of(config, data)
        self.forecast = Forecast()
        self.progress: TrainingProgress | None = None
        """Shows the figures of the steps while `run_until_done` takes them."""
        self._pending: PendingStep | None = None
        """The last step, if its figures have not been read."""
        self._grad_norm = math.nan
        """The gradient norm of the last step whose figures have been read."""

    def start_from(self, model: Transformer, path: Path) -> None:
        """Take over the weights of another model, and save them as step 0.

        A run that is killed before its first checkpoint then still starts from these weights.

        Args:
            model: The other model.
            path: The folder it was loaded from.

        Raises:
            UsageError: It has another shape.
        """
        wanted = self.session.config.model
        own = model.config
        try:
            # No tensor's shape depends on these.
            if own.num_heads != wanted.num_heads:
                raise ModelError(f"{path}: has {own.num_heads} heads, where this model has {wanted.num_heads}")
            if own.activation != wanted.activation:
                raise ModelError(
                    f"{path}: has the activation {own.activation}, where this model has {wanted.activation}"
                )
            model_file.set_parameters(self.learner.model, model_file.parameters(model), path)
        except ModelError as error:
            raise UsageError(f"--init: {error}; give the model section that model was trained with") from None
        log.info("starting from the weights of %s", path)
        self.save()
        self.checkpoints.wait()

    def save(self) -> None:
        """Save a checkpoint on rank 0, and copy the time that it took to the state of all ranks."""
        self.read_figures()
        self.session.on_main_rank(self.checkpoints.save)

    def run_until_done(self, received: list[int]) -> None:
        """Train until the budget is used or nothing improves.

        Args:
            received: Numbers of the signals that this process has received. Training stops after the step in which
                the first one arrives.

        Raises:
            InterruptedTrainingError: A signal arrived on some rank. A checkpoint was written first.
        """
        session = self.session
        state = session.state
        session.budget.reopen(state)
        if state.finished:
            status = f"{session.run}: finished at step {state.step:,} ({state.finished})"
            log.info("%s; a larger --max-steps or --time continues training", status)
            log_next(session.run, test=bool(session.data.test), targets=session.config.data.target_languages)
            session.on_main_rank(partial(prepare_use, session, received, in_budget=False))
            return
        with self.batch_plan.drawing_ahead(usable_cores() if runs_ahead(session.device) else 1):
            self._train(received)

    def _train(self, received: list[int]) -> None:
        """Begin or resume, take steps until training ends, and prepare the model for its use."""
        session = self.session
        state = session.state
        if state.step:
            log.info("resuming at step %s", f"{state.step:,}")
            precision = "bf16" if self.learner.objective.bf16 else "float32"
            log.info("matrix products in %s", precision)  # the processor may be another one than before
        self.learner.prepare()
        if not state.metrics_bytes:
            session.record("data", **session.data.counts)
            session.record("lengths", **asdict(session.lengths))
            if not session.data.init:
                warn_of_few_pairs(session.config, session.data.sources)
            warn_of_long_warmup(session.config.train)
            self.describe()
        if session.device.type == "cpu":
            log_unused_cores(session.config.train, usable_cores())
        log_selection(session.num_valid, state)
        with self.checkpoints.completed():
            if session.data.valid and session.data.fine_tunes and not state.step and state.start is None:
                session.on_main_rank(self.evaluator.validate_start, self.checkpoints.save, self._write_report)
            reason = self._run_steps(received)
            # The checkpoint comes last, so that a run whose checkpoint says it is finished has its report.
            session.on_main_rank(partial(self.evaluator.conclude, reason), self._write_report, self._finish)
        session.on_main_rank(partial(prepare_use, session, received, in_budget=True))

    def describe(self) -> None:
        """Record and log the plan of the run, and check that its batches fit into memory.

        Raises:
            StorageError: They do not fit.
        """
        session = self.session
        plan = Plan.of(session.config, session.data, self.batch_plan, session.device, session.group.size)
        session.record("plan", **asdict(plan))
        log.info("%s: %s, %s", session.config.preset, plan, counted(len(session.data.valid), "validation pair"))
        plan.check_memory(session.config)

    def _run_steps(self, received: list[int]) -> str:
        """Take steps, validate and save until training ends, and return why it ends."""
        session = self.session
        state = session.state
        is_new_step = False
        settings = session.config.train
        self.progress = TrainingProgress(
            state.step,
            state.seconds,
            max_steps=settings.max_steps,
            max_seconds=settings.time,
            share=state.share_of_budget,
        )
        with self.progress, closing(self.batches()) as batches:
            signal_number = session.agree_on_time(received)
            if settings.time and not state.step:
                state.seconds_before_first_step = state.seconds
            self.forecast.begin(state.seconds)
            while True:
                # A signal gives a process little time: a validation that is due waits until the run is resumed.
                if not signal_number and self._validate_or_save(is_new_step=is_new_step):
                    signal_number = session.agree_on_time(received)
                    self.forecast.begin(state.seconds)
                if signal_number:
                    self._stop(signal_number)
                if reason := session.budget.reason_to_end(state, self.forecast.step_seconds):
                    self.read_figures()
                    return reason
                self.step(batches)
                is_new_step = True
                signal_number = self._agree_after_step(received)

    def _validate_or_save(self, *, is_new_step: bool) -> bool:
        """Validate or save if it is due. Return True if so.

        Args:
            is_new_step: This process took the last step. Otherwise it has resumed from a checkpoint of it.
        """
        session = self.session
        state = session.state
        step_seconds = self.forecast.step_seconds
        if session.budget.validation_is_due(state, step_seconds):
            self.read_figures()
            session.on_main_rank(self.evaluator.validate, self.checkpoints.save, self._write_report)
            session.count_time()
            if self.progress:
                self.progress.pause(state.seconds, state.share_of_budget)
            return True
        if is_new_step and session.budget.save_is_due(state, step_seconds):
            self.save()
            return True
        return False

    def batches(self) -> Generator[LoadedBatch]:
        """Yield the training batches that follow, without end. Close the generator after use."""
        session = self.session
        state = session.state
        planned = self.batch_plan.batches_from(Position(state.epoch, state.block, state.batch))
        num_micro_batches = session.config.train.micro_batches
        return load_batches(planned, session.group, session.device, num_micro_batches)

    def _agree_after_step(self, received: list[int]) -> int:
        """Agree with the other ranks on time and signals, and measure the last steps, if it is time for that.

        The first measurement that is worth it is reported: how many steps the time budget allows at this speed.

        Args:
            received: Numbers of the signals that this process has received.

        Returns:
            The signal that any rank has received, or 0.
        """
        session = self.session
        forecast = self.forecast
        forecast.unmeasured_steps += 1
        if forecast.unmeasured_steps < session.steps_between_agreements(forecast.step_seconds):
            return 0
        signal_number = session.agree_on_time(received)
        forecast.measure(session.state.seconds)
        if session.config.train.time and forecast.is_new(session.budget.progress(session.state)):
            log_speed(session.budget, session.state, forecast.step_seconds, preset=session.config.preset)
        return signal_number

    def _stop(self, signal_number: int) -> None:
        """Save, then end training with the signal.

        Raises:
            InterruptedTrainingError: Always.
        """
        self.save()
        self.checkpoints.wait()
        message = f"{stopped(signal_number)} at step {self.session.state.step:,}"
        raise InterruptedTrainingError(f"{message}; run the same command again to resume", signal_number)

    def step(self, batches: Iterator[LoadedBatch]) -> None:
        """Take one optimizer step over `accumulate` batches of each rank, and count it in the state.

        If the device runs ahead of the host, this reads the figures of the step before while this step is computed: to
        wait for each step would leave a GPU without work. The figures of this step are read too if they are recorded.

        Raises:
            DivergedError: The loss or the gradient of the last step or of this one is not finite.
        """
        session = self.session
        state = session.state
        num_batches = session.config.train.accumulate * session.group.size
        drawn = [next(batches) for _ in range(num_batches)]
        lr = self.next_learning_rate()
        started = self.learner.step(drawn, state.step + 1, lr)
        self.read_figures()
        self._pending = started
        state.step += 1
        state.epoch, state.block, state.batch = astuple(drawn[-1].planned.after)
        is_recorded = state.step % LOG_EVERY == 0
        if is_recorded or not runs_ahead(session.device):
            self.read_figures()
        if is_recorded:
            self._record_steps(lr)

    def read_figures(self) -> None:
        """Add the figures of the last step to the state, unless they were already read. This waits for the step.

        Raises:
            DivergedError: Its loss or its gradient is not finite.
        """
        if self._pending is None:
            return
        result = self._pending.read()
        self._pending = None
        session = self.session
        state = session.state
        state.loss += result.loss
        state.nll += result.nll
        state.tokens += result.tokens
        self._grad_norm = result.grad_norm
        if session.group.size == 1:  # several ranks count the time together, in `agree_on_time`
            session.count_time()
        if self.progress:
            self.progress.update(state.seconds, tokens=result.tokens, nll=result.nll)

    def next_learning_rate(self) -> float:
        """Return the learning rate of the next step."""
        session = self.session
        state = session.state
        return learning_rate(
            session.config.train,
            session.config.model.d_model,
            step=state.step + 1,
            progress=session.budget.progress(state),
            warmup_steps=session.budget.warmup_steps(state),
        )

    def _record_steps(self, lr: float) -> None:
        """Record the mean losses since the last `train` event and the last gradient norm, and start new sums."""
        state = self.session.state
        self.session.record(
            "train",
            epoch=state.epoch,
            loss=state.loss / state.tokens,
            nll=state.nll / state.tokens,
            lr=lr,
            grad_norm=self._grad_norm,
            tokens=state.tokens,
            seconds=round(state.seconds, 3),
        )
        state.loss = 0.0
        state.nll = 0.0
        state.tokens = 0

    def _write_report(self) -> None:
        write_report(self.session.run, describe(self.session.device))

    def _finish(self) -> None:
        """Save the checkpoint of the finished run, and log where its model is."""
        self.checkpoints.save()
        self.checkpoints.wait()
        session = self.session
        log_end(
            session.run,
            session.state,
            test=bool(session.data.test),
            targets=session.config.data.target_languages,
            corrections=len(session.data.corrections),
        )
