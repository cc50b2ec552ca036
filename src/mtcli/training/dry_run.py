"""`mtcli train --dry-run`: the plan of a run and its likely end, told before anything is trained or kept."""

import logging
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from mtcli.config.build import filled
from mtcli.config.schema import Config
from mtcli.data.batching import BatchPlan, Position
from mtcli.data.prepare import Prepared, check_inputs, prepare, prepared
from mtcli.errors import UsageError
from mtcli.report.plan import Plan, describe_counts
from mtcli.runtime import files, torchrun
from mtcli.runtime.device import describe
from mtcli.runtime.distributed import Group
from mtcli.runtime.progress import clock
from mtcli.storage import checkpoint, model_file
from mtcli.storage.run_folder import refuse_other_files, resumed_config, with_split_of
from mtcli.storage.state import State
from mtcli.training.budget import Budget
from mtcli.training.defaults import SPEED, Workload, describe_choice, with_defaults
from mtcli.training.trainer import LOG_EVERY, Trainer

log = logging.getLogger(__name__)

WARM_UP, STEPS, SECONDS = 2, 20, 1.0
"""Steps of the throwaway model that are not timed, and at most how many are, in at most about so many seconds."""

LONGEST_STEP = 0.5
"""Seconds that a timed step should take at most; where training's own takes longer, a smaller batch is timed."""

LEAST_TOKENS = 64
"""Of a batch that is timed."""

LAYER_SECONDS = 0.002
"""Of a layer's step on any batch, about: its operations take so long to start."""

YEAR = 365 * 24 * 3600
FAR = 10 * YEAR
"""Seconds beyond which no date is given: there are none past the year 9999."""

LARGER = "a larger --time or --max-steps continues training"


def dry_run(
    config: Config, run: Path, device: torch.device, *, init: Path | None = None, overwrite: bool = False
) -> Iterator[tuple[str, str]]:
    """A name and a sentence for each thing to know, the counts first and the timing last.

    The data is prepared as training prepares it, which costs as long: in a temporary folder, unless the run folder
    already holds it. The speed is that of a few real steps of a model that is then thrown away.

    Args:
        config: What would be trained.
        run: The run folder; it is not touched.
        device: Where it would be trained.
        init: A model to start from.
        overwrite: Whether the run that is there would be deleted; its data is then not used.

    Raises:
        UsageError: Several ranks were started for it, the run that is there was configured otherwise, or the folder
            holds other files than those of a run.
        DataError: The pairs cannot be used.
        ModelError: `init` is no model, or the run's state is of another version, or its tokenizer is not the one
            it began with.
    """
    if torchrun.size() > 1:
        raise UsageError("--dry-run: for one process; start it without torchrun, and divide the steps by the ranks")
    check_inputs(config)
    if run.exists():
        refuse_other_files(run, overwrite)
    began = None if overwrite else resumed_config(config, run)
    config = with_split_of(config, began)
    with _data(config, run, init, overwrite) as data:
        workload = Workload.of(data, device.type, ranks=1)
        config = with_defaults(config, workload, began)
        state = State() if overwrite else _state(run)
        budget = Budget.of(config, len(data.valid), len(data.test))
        used = bool(state.finished) and state.budget == budget.limits
        yield "run folder", f"{run} ({_standing(run, state, used=used, overwrite=overwrite)})"
        budget.renew(state)
        yield "data", describe_counts(data.counts)
        yield "settings", describe_choice(config, workload, resumed=began is not None)
        batches = BatchPlan(data.train, config.train.batch_tokens, config.train.seed, data.weights)
        plan = Plan.of(config, data, batches, device, ranks=1)
        yield from plan.rows(config)
        speed = _speed(config, data, device, plan)
        per_step = plan.target_tokens / plan.steps(config.train.accumulate)
        yield (
            "speed",
            f"{speed.rate:.3g} steps a second, {speed.rate * per_step:,.0f} target tokens a second: {speed.how}",
        )
        epoch = plan.steps(config.train.accumulate)
        yield "finish", f"it is finished; {LARGER}" if used else _finish(budget, speed.rate, epoch, state)


@dataclass(frozen=True)
class Speed:
    """Steps a second, and how they were found."""

    rate: float
    how: str


@contextmanager
def _data(config: Config, run: Path, init: Path | None, overwrite: bool) -> Iterator[Prepared]:
    """The run's own data where it is whole and of this configuration; else prepared aside, and deleted afterwards."""
    if not overwrite and (found := prepared(config, run)):
        yield found
        return
    started = time.monotonic()
    with TemporaryDirectory(prefix="mtcli-") as folder:
        with files.storage_errors(Path(folder)):
            start = (model_file.load_model(init)[2], "") if init else None
            data = prepare(config, Path(folder), init=start)
        log.info("preparing the data took %s; training prepares it again", clock(time.monotonic() - started))
        yield data


def _state(run: Path) -> State:
    """Where the run that stands there would go on, or a beginning."""
    found = reversed(checkpoint.steps(run / "checkpoints"))
    return next((State.of(path) for path in found if not checkpoint.verify(path)), State())


def _standing(run: Path, state: State, *, used: bool, overwrite: bool) -> str:
    if not (run / "config.toml").exists():
        return "new"
    if overwrite:
        return "holds a run, which --overwrite deletes"
    at = f"at step {state.step:,}" if state.step else "without a checkpoint"
    if state.finished:
        at = f"finished {at} ({state.finished})"
    return f"holds a run, {at}: {LARGER if used else 'the same command resumes it'}, --overwrite starts over"


def _speed(config: Config, data: Prepared, device: torch.device, plan: Plan) -> Speed:
    """Time the very step of training, with less data where a step is slow, and only estimate one that is too slow.

    Raises:
        StorageError: There is too little memory for the model or its batches.
    """
    plan.check_memory(config.model)
    rows, *widths = plan.largest
    full = min(config.train.batch_tokens, rows * max(widths))
    in_step = full * config.train.accumulate
    per_token = plan.parameters / SPEED[device.type]  # seconds, about
    overhead = LAYER_SECONDS * (config.model.num_encoder_layers + config.model.num_decoder_layers)
    where = describe(device)
    if LEAST_TOKENS * per_token + overhead > LONGEST_STEP:
        seconds = in_step * per_token + config.train.accumulate * overhead
        return Speed(1 / seconds, f"an estimate from the number of parameters, too many to try on {where}")
    tokens = min(full, max(LEAST_TOKENS, int(LONGEST_STEP / per_token)))
    if in_step <= tokens:
        steps, rate = _timed(config, data, device)
        return Speed(rate, f"{steps} steps of a throwaway model on {where}")
    smaller = filled(config, {"train.batch_tokens": tokens, "train.accumulate": 1})
    steps, rate = _timed(smaller, data, device)
    return Speed(rate * tokens / in_step, f"{steps} steps of a throwaway model with {tokens:,} tokens each on {where}")


def _timed(config: Config, data: Prepared, device: torch.device) -> tuple[int, float]:
    """Steps timed, and their number a second; nothing is written, since a line of figures covers more of them."""
    assert WARM_UP + STEPS < LOG_EVERY
    with TemporaryDirectory(prefix="mtcli-") as folder:
        trainer = Trainer(config, Path(folder), device, data, time.monotonic(), Group())
        batches = trainer.batch_plan.batches_from(Position())
        for _ in range(WARM_UP):
            trainer.step(batches)
        _wait_for(device)
        started = time.monotonic()
        steps, used = 0, 0.0
        while steps < STEPS and used < SECONDS:
            trainer.step(batches)
            _wait_for(device)
            steps += 1
            used = time.monotonic() - started
    return steps, steps / used


def _wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _finish(budget: Budget, rate: float, epoch: float, start: State) -> str:
    """When it ends, and how far it comes by then."""
    train = budget.train
    by_steps = (train.max_steps * start.share - start.step) / rate if train.max_steps else math.inf
    seconds = max(0.0, min(by_steps, train.time * start.share - start.seconds if train.time else math.inf))
    training = min(seconds, budget.training_time(start) * start.share - (start.seconds - start.prepared))
    steps = start.step + max(1, round(training * rate))
    at = datetime.now() + timedelta(seconds=min(seconds, FAR))
    when = f"in {clock(seconds)}, about {at:%H:%M}" + (f" of {at:%d %B}" if seconds > 12 * 3600 else "")
    if seconds > FAR:
        when = f"in more than {FAR / YEAR:.0f} years"
    reach = f"about {steps:,} steps{' in all' * bool(start.step)}, {steps / epoch:,.1f} epochs"
    validations = steps // train.valid_every - start.step // train.valid_every
    if budget.adapts("train.valid_every"):
        validations = round(budget.validations(start))
    apart = f"with {validations} validations "
    apart += "besides" if by_steps <= seconds else "within the time, so rather fewer steps"
    if train.time and steps < budget.needed_steps:
        apart += f"; a usable translator needs {budget.needed_steps:,} steps or more: give it more time"
    elif steps < 2 * train.warmup_steps and not budget.adapts("train.warmup_steps"):
        apart += f"; the warm-up alone is {train.warmup_steps:,} steps: lower train.warmup_steps, or give it more time"
    return f"{when}: {reach}, {apart}"
