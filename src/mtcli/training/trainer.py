"""The training loop: teacher forcing, token-bucket batches, validation by the real decoder, resumable at any step.

Everything random is a function of (seed, step, batch), and everything else that matters is in the checkpoint: a run
that is killed and started again ends with the numbers of one that was not.
"""

import hashlib
import logging
import math
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import asdict, astuple
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch

from mtcli.config.schema import Config
from mtcli.config.writing_systems import selection_metric
from mtcli.data.batching import BatchPlan, PlannedBatch, Position, collate
from mtcli.data.prepare import Prepared
from mtcli.errors import DivergedError, InterruptedTrainingError, ModelError, UsageError
from mtcli.inference.pytorch_backend import Translator
from mtcli.nn.precision import uses_bf16
from mtcli.nn.transformer import Transformer
from mtcli.report.plan import Plan, check_model_memory
from mtcli.report.run_report import write_report
from mtcli.runtime import files
from mtcli.runtime.device import describe
from mtcli.runtime.distributed import Group
from mtcli.runtime.progress import TrainingProgress, clock
from mtcli.storage import checkpoint, model_file
from mtcli.storage.events import Metrics
from mtcli.storage.model_file import ModelInfo
from mtcli.storage.run_folder import publish
from mtcli.storage.state import State
from mtcli.training.averaging import weights_of
from mtcli.training.budget import Budget, Forecast
from mtcli.training.deadline import Clock, Deadline, spread
from mtcli.training.log import log_next, log_scores, log_validation
from mtcli.training.objective import Objective
from mtcli.training.optimizer import build_optimizer, learning_rate, set_state_tensors, state_tensors
from mtcli.training.validation import Validation, score_test, validate

log = logging.getLogger(__name__)

LOG_EVERY = 50
"""Steps between lines of `metrics.jsonl`."""


class Trainer:
    """The state of one run and the things one can do to it."""

    def __init__(
        self,
        config: Config,
        run: Path,
        device: torch.device,
        data: Prepared,
        started: float,
        group: Group,
        clock: Clock = time.monotonic,
    ):
        self.config, self.run, self.device, self.data, self.group = config, run, device, data, group
        self.clock, self.counted = clock, started  # what it showed when `seconds` of the state was last counted
        self.forecast = Forecast()
        self.valid = spread(data.valid) if config.train.time else data.valid  # the first ones are a sample of all
        self.info = ModelInfo(
            model=config.model,
            decode=config.decode,
            src=config.data.src,
            tgt=config.data.tgt,
            src_vocab=data.tokenizer.src_size,
            tgt_vocab=data.tokenizer.tgt_size,
            joint=data.tokenizer.joint,
            tokenizer=data.tokenizer.digest(),
            step=0,
            longest_src=data.train.longest_src,
        )
        check_model_memory(self.info, device)
        torch.manual_seed(_key(config.train.seed, "weights"))
        self.model: Transformer = model_file.build_model(self.info).to(device)
        self.optimizer = build_optimizer(config.train, self.model.parameters())
        self.plan = BatchPlan(data.train, config.train.batch_tokens, config.train.seed, data.weights)
        self.state = State(ranks=group.size, metric=selection_metric(config.data.tgt))
        self.budget = Budget.of(config, len(data.valid), len(data.test), group.size)
        self.metrics = Metrics(run)
        self.objective = Objective(self.model, config.train.label_smoothing, uses_bf16(config.train, device))
        self.parallel = group.parallel(self.objective)
        if group.size > 1:
            # DDP rebuilds its buckets after the first backward pass, and a sum of more than two floats depends on them.
            # One pass here lets a resumed run add in the same order as an uninterrupted one.
            self.parallel(collate(data.train, np.arange(1)).to(device))[0].backward()
            self.optimizer.zero_grad()

    def resume(self) -> bool:
        """Go back to the newest whole checkpoint; False where there is none.

        Raises:
            ModelError: There are checkpoints, and none can be used.
            UsageError: It was written by another number of ranks, whose run would continue differently.
        """
        found = checkpoint.latest(self.run / "checkpoints") if self.group.is_main else None
        name = self.group.broadcast(found.path.name if found else None)
        if name is None:
            self._cut_metrics()
            return False
        found = found or checkpoint.load(self.run / "checkpoints" / name)
        model_file.set_parameters(self.model, found.model, found.path)
        set_state_tensors(self.optimizer, self.model, found.optimizer)
        self.state = State.of(found.path)
        before = self.state.ranks
        if before != self.group.size:
            ranks = "rank" if before == 1 else "ranks"
            raise UsageError(
                f"{self.run}: began with {before} {ranks}, and this command has {self.group.size}; "
                f"start {before} (torchrun --nproc-per-node), or start over with --overwrite"
            )
        self._cut_metrics()
        if self.state.best_steps and self.group.is_main:  # killed between a checkpoint and its publication
            publish(self.run, self.state.best_steps, self.info)
        log.info("resuming at step %s", f"{self.state.step:,}")
        self.group.barrier()  # rank 0 must not write a checkpoint of this step again while another rank still reads it
        return True

    def _cut_metrics(self) -> None:
        if not self.group.is_main:
            return
        self.state.metrics_bytes = self.metrics.cut(self.state.metrics_bytes)
        if self.config.train.tensorboard:
            from mtcli.report.tensorboard import CurveWriter  # an extra, which need not be installed

            history, _ = self.metrics.read()
            self.metrics.on_event = CurveWriter(self.run, history).add

    def start_from(self, model: Transformer, where: Path | None) -> None:
        """Begin with another model's weights."""
        try:
            heads = model.config.num_heads
            if heads != self.config.model.num_heads:  # which no shape tells
                raise ModelError(f"{where}: has {heads} heads, where this model has {self.config.model.num_heads}")
            model_file.set_parameters(self.model, model_file.parameters(model), where or Path())
        except ModelError as error:
            raise UsageError(f"--init: {error}; give the model section that model was trained with") from None
        log.info("starting from the weights of %s", where)

    def save(self) -> None:
        """Write a checkpoint of this step, then delete those no longer needed. Only rank 0 does this."""
        if not self.group.is_main:
            return
        info = self.info.model_copy(update={"step": self.state.step})
        weights, moments = model_file.parameters(self.model), state_tensors(self.optimizer, self.model)
        if not all(bool(t.isfinite().all()) for t in (*weights.values(), *moments.values())):
            self._diverged(self.state.step, "it left weights that are not finite")  # which no loss has shown yet
        model = model_file.model_bytes(weights, info)
        self._count_time()
        before = self.state.seconds
        checkpoint.write(self.run / "checkpoints", self.state.step, model, moments, self.state.values())
        if self.state.step in self.state.best_steps:
            publish(self.run, self.state.best_steps, self.info)
        pinned = {self.state.best_step or 0, *self._scheduled()[-self.config.train.average :]}
        with files.storage_errors(self.run):
            checkpoint.prune(self.run / "checkpoints", self.config.train.keep, pinned)
        self._count_time()
        if self.config.train.time:
            self.state.saved_at, self.state.save_seconds = self.state.seconds, self.state.seconds - before

    def save_everywhere(self) -> None:
        """`save`, and every rank takes over how long it took."""
        self._on_main_rank(self.save)

    def _diverged(self, step: int, what: str) -> NoReturn:
        remedy = "the last checkpoint is untouched; start over with --overwrite and a lower --set train.lr"
        raise DivergedError(f"step {step:,}: {what}; {remedy}")

    def _scheduled(self) -> list[int]:
        """Steps of the checkpoints that exist, without those that only an interrupted run bounded by steps has."""
        settings = self.config.train
        found = filter(None, map(checkpoint.step_of, checkpoint.steps(self.run / "checkpoints")))
        return [s for s in found if settings.time or s % settings.save_every == 0 or s % settings.valid_every == 0]

    def _record(self, event: str, **values: Any) -> None:
        if self.group.is_main:
            self.state.metrics_bytes += self.metrics.append(event, self.state.step, values)

    def run_until_done(self, received: list[int]) -> None:
        """Train until the budget is used or nothing improves; stop after a step once a signal is in `received`."""
        settings, state = self.config.train, self.state
        self.budget.renew(state)
        if state.finished:
            standing = f"{self.run}: finished at step {state.step:,} ({state.finished})"
            log.info("%s; a larger --max-steps or --time continues training", standing)
            log_next(self.run, test=bool(self.data.test))
            return
        if not state.metrics_bytes:
            self._record("data", **self.data.counts)
            self._describe()
        report = partial(write_report, self.run, describe(self.device))
        batches = self.plan.batches_from(Position(state.epoch, state.block, state.batch))
        if not self.data.valid:
            log.info("no validation pairs: the last checkpoint becomes the model")
        progress = TrainingProgress(
            state.step, state.seconds, max_steps=settings.max_steps, max_seconds=settings.time, share=state.share
        )
        with progress:
            before: float | None = None  # the time used before the last step
            while True:
                self._agree(received)
                self._time_step(before)
                if self.budget.validation_is_due(state, self.forecast.step_seconds):
                    self._on_main_rank(self._validate, self.save, report)
                    self._count_time()
                    progress.pause(state.seconds, state.share)
                elif before is not None and self.budget.save_is_due(state, self.forecast.step_seconds):
                    self.save_everywhere()
                if signal_number := self._agree(received):
                    self._stop(signal_number)
                if reason := self.budget.ends(state, self.forecast.step_seconds):
                    break
                before = state.seconds
                tokens, nll = self._step(batches)
                self._count_time()
                progress.update(state.seconds, tokens=tokens, nll=nll)
        # The save comes last: a finished run has its report.
        self._on_main_rank(partial(self._conclude, reason), report, self._finish)

    def _conclude(self, reason: str) -> None:
        """Validate, average and score for the last time."""
        settings, state = self.config.train, self.state
        if state.step < self.budget.warmup_steps(state):
            told = f"ended within its warm-up, after {state.step:,} of {settings.warmup_steps:,} steps"
            log.warning("%s: give it more time or steps, or a lower --set train.warmup_steps", told)
        if state.validated_step != state.step or (settings.time and state.best_pairs < len(self.valid)):
            self._validate(last=True)
        if settings.average > 1 and self.valid:
            self._average()
        if self.data.test:
            self._score()
        state.finished, state.budget = reason, self.budget.limits
        best = {"best_step": state.best_step, "averaged": state.averaged}
        self._record("end", reason=reason, **best, seconds=round(state.seconds, 1))

    def _finish(self) -> None:
        """Save for the last time."""
        self.save()
        state = self.state
        when = f"at step {state.step:,} after {clock(state.seconds)} ({state.finished})"
        best = f"the mean of {len(state.averaged)} checkpoints" if state.averaged else f"of step {state.best_step:,}"
        log.info("finished %s; the best model, %s, is in %s", when, best, self.run)
        log_next(self.run, test=bool(self.data.test))

    def _on_main_rank(self, *work: Callable[[], None]) -> None:
        """Do this work on rank 0. The other ranks wait, and take over its state."""
        if self.group.is_main:
            for part in work:
                part()
        self.state.set_values(self.group.broadcast(self.state.values()))

    def _agree(self, received: list[int]) -> int:
        """Return the signal that any rank has received, or 0; and set the time used to that of rank 0, on all ranks."""
        self._count_time()
        used = self.state.seconds if self.group.is_main else 0.0
        number, self.state.seconds = self.group.all_reduce_max([received[0] if received else 0, used])
        return int(number)

    def _stop(self, number: int) -> None:
        """Save, and leave as the signal asked."""
        self.save_everywhere()
        message = f"stopped by {signal.Signals(number).name} at step {self.state.step:,}"
        raise InterruptedTrainingError(f"{message}; run the same command again to go on", number)

    def _time_step(self, before: float | None) -> None:
        """Take note of how long a step took, if there was one; and say soon what the time is worth at this speed."""
        state, settings = self.state, self.config.train
        if before is None:
            state.prepared = state.seconds if settings.time and not state.step else state.prepared
            return
        self.forecast.add(state.seconds - before)
        if settings.time and self.forecast.is_new(self.budget.used(state)):
            self.budget.report(state, self.forecast.step_seconds)

    def _next_rate(self) -> float:
        """The learning rate of the next step."""
        state, budget = self.state, self.budget
        progress, warmup = budget.used(state), budget.warmup_steps(state)
        return learning_rate(self.config.train, self.config.model.d_model, state.step + 1, progress, warmup)

    def _step(self, batches: Iterator[PlannedBatch]) -> tuple[int, float]:
        """One optimiser step over `accumulate` batches of each rank, normalised by all their target tokens together.

        The ranks take the step's batches in turn: together they draw the batches that a single process with as many
        accumulated batches draws.

        Returns:
            The target tokens of all batches, and their summed negative log-likelihood in nats.
        """
        settings, state, group = self.config.train, self.state, self.group
        drawn = [next(batches) for _ in range(settings.accumulate * group.size)]
        tokens = sum(planned.tokens for planned in drawn)
        rate = self._next_rate()
        for param_group in self.optimizer.param_groups:
            param_group["lr"] = rate
        self.model.train()
        loss_sum = nll_sum = torch.zeros((), device=self.device)
        own = range(group.rank, len(drawn), group.size)
        for micro in own:
            torch.manual_seed(_key(settings.seed, "dropout", state.step, micro))
            batch = collate(self.data.train, drawn[micro].rows).to(self.device)
            with nullcontext() if micro == own[-1] else group.no_sync(self.parallel):
                loss, nll = self.parallel(batch)
                (loss * group.size / tokens).backward()  # DDP averages over the ranks: this makes it a sum again
            loss_sum, nll_sum = loss_sum + loss.detach(), nll_sum + nll
        limit = settings.clip_norm or math.inf
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), limit)
        loss_value, nll_value = group.all_reduce_sum([float(loss_sum), float(nll_sum)])
        if not (math.isfinite(loss_value) and math.isfinite(float(norm))):
            self._diverged(
                state.step + 1,
                f"the loss is {loss_value / tokens} and the gradient's norm {float(norm)}, "
                f"on the training pairs {', '.join(str(row) for planned in drawn for row in planned.rows[:5])} …",
            )
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        state.step += 1
        state.epoch, state.block, state.batch = astuple(drawn[-1].after)
        state.loss, state.nll, state.tokens = state.loss + loss_value, state.nll + nll_value, state.tokens + tokens
        if state.step % LOG_EVERY == 0:
            self._record(
                "train",
                epoch=state.epoch,
                loss=state.loss / state.tokens,
                nll=state.nll / state.tokens,
                lr=rate,
                grad_norm=float(norm),
                tokens=state.tokens,
                seconds=round(state.seconds, 3),
            )
            state.loss, state.nll, state.tokens = 0.0, 0.0, 0
        return tokens, nll_value

    def _validate(self, *, last: bool = False) -> None:
        """Note how good the model is, and whether it never was better; the `last` time on all pairs that fit."""
        state, pairs = self.state, self.valid
        state.validated_step = state.step
        if not pairs:
            state.best_step = state.step
            return
        large = self.budget.large_sample_is_due(state)
        wanted = len(pairs) if last or large else state.valid_pairs or len(pairs)
        if last:
            seconds = self.budget.may_take("valid", state)
        elif large:
            seconds = self.budget.large_sample_may_take(state)
        else:
            seconds = self.budget.validation_may_take(state)
        found = self._measure(wanted, seconds, settle=last or large)
        if not last:
            self.budget.fit_validation(state, wanted, found.pairs, large=large)
        if state.record_if_best(asdict(found)):
            state.best_step, state.averaged, state.stale = state.step, [], 0
        else:
            state.stale += 1
        self._record("valid", **asdict(found), metric=state.metric, seconds=round(state.seconds, 3))
        log_validation(state, found)
        if self.budget.cool_down_early(state):
            told = f"no better {state.metric_name} in {state.stale} validations"
            log.info("%s: the learning rate falls to zero from here, and training ends early", told)

    def _measure(self, pairs: int, seconds: float | None, *, settle: bool = True) -> Validation:
        """Translate this many pairs, or as many as these seconds allow, with the model as it is, and score them.

        With `settle`, later samples do not replace the seconds per pair that this one measures.
        """
        state = self.state
        self._count_time()
        before, deadline = state.seconds, self._deadline(seconds)
        found = validate(self._translator(), self.valid, self.config, self.objective, pairs, deadline)
        self._count_time()
        if self.config.train.time:
            state.validated_at, state.validation_seconds = state.seconds, state.seconds - before
            if settle or not state.speed_settled:
                state.pair_seconds = state.validation_seconds / found.pairs
            state.speed_settled |= settle
        return found

    def _deadline(self, seconds: float | None) -> Deadline | None:
        """The moment in this many seconds; None: no deadline."""
        return None if seconds is None else Deadline(self.clock() + seconds, self.clock)

    def _translator(self) -> Translator:
        return Translator(self.model.eval(), self.data.tokenizer, self.info.longest_src)

    def _average(self) -> None:
        """§6.1: the mean of the last checkpoints is the run's model if it translates better than each of them."""
        state, folder = self.state, self.run / "checkpoints"
        self.save()
        before = [step for step in self._scheduled() if step < state.step]
        steps = [*before[1 - self.config.train.average :], state.step]
        steps = [step for step in steps if checkpoint.verify(checkpoint.path_of(folder, step)) is None]
        if len(steps) < 2:
            return
        pairs, seconds = state.best_pairs or len(self.valid), self.budget.may_take("average", state)
        if seconds is not None and pairs * state.pair_seconds > seconds:
            log.info("no time is left to average the last checkpoints; `mtcli average` does")
            return
        with weights_of(self.model, [checkpoint.path_of(folder, step) for step in steps]):
            found = self._measure(pairs, seconds)
        if better := found.pairs == pairs and state.record_if_best(asdict(found)):
            state.averaged = steps
        used = round(state.seconds, 3)
        self._record("average", steps=steps, kept=better, **asdict(found), metric=state.metric, seconds=used)
        verdict = "kept" if better else f"no better {state.metric_name}"
        log.info("the mean of %d checkpoints: %s: %s", len(steps), found, verdict)

    def _score(self) -> None:
        """Score the run's model on the test pairs, by the search that `mtcli eval` makes."""
        steps = self.state.best_steps
        paths = [checkpoint.path_of(self.run / "checkpoints", step) for step in steps]
        own = steps == [self.state.step]
        if not own and any(map(checkpoint.verify, paths)):
            log.warning("the best model is not scored: a checkpoint of it is damaged or, long after it, deleted")
            return
        self._count_time()
        pairs, seconds = self.budget.test_pairs(self.state), self.budget.may_take("test", self.state)
        if seconds is not None and not self.budget.test_fits(self.state, seconds):
            log.warning("no time is left to score the test pairs; `mtcli eval` does")
            return
        with nullcontext() if own else weights_of(self.model, paths):
            found = score_test(self._translator(), self.data.test, self.config, pairs, self._deadline(seconds))
        self._count_time()
        self._record("test", steps=steps, **asdict(found), seconds=round(self.state.seconds, 3))
        log_scores(found, demo=not self.config.data.train)

    def _count_time(self) -> None:
        """Add to the time used what has passed since this was last asked."""
        now = self.clock()
        self.state.seconds += now - self.counted
        self.counted = now

    def _describe(self) -> None:
        plan = Plan.of(self.config, self.data, self.plan, self.device, self.group.size)
        self._record("plan", **asdict(plan))
        log.info("%s: %s, %s validation pairs", self.config.preset, plan, f"{len(self.data.valid):,}")
        plan.check_memory(self.config.model)


def _key(seed: int, purpose: str, *numbers: int) -> int:
    """A seed for one draw: a function of what it is for, so that no history need be kept."""
    text = ":".join(map(str, (seed, purpose, *numbers)))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=7).digest(), "little")
