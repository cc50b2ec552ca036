"""`mtcli train --dry-run`: the plan of a run and its expected end, without training it.

The speed is estimated from a few real steps of a model that is thrown away.
"""

import logging
import math
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from mtcli.config.build import filled
from mtcli.config.schema import Config
from mtcli.corpus.batching import BatchPlan
from mtcli.corpus.cache.prepare import Prepared, check_inputs, prepare, prepared
from mtcli.errors import UsageError
from mtcli.report.plan import Plan, describe_counts, describe_sources, describe_transfer
from mtcli.runtime import files, torchrun
from mtcli.runtime.device import UNKNOWN_GPU, describe, gpu_of
from mtcli.runtime.distributed import Group
from mtcli.runtime.progress import clock
from mtcli.runtime.wording import counted
from mtcli.storage.run_folder import (
    check_freezing,
    refuse_other_files,
    resumable_state,
    resumed_config,
)
from mtcli.storage.state import State
from mtcli.training.defaults.choose import with_defaults
from mtcli.training.defaults.describe import describe_choice
from mtcli.training.defaults.speed import cost_share, seconds_per_token
from mtcli.training.defaults.workload import Workload
from mtcli.training.log import needed_steps, warn_of_few_pairs
from mtcli.training.request import InitialModel
from mtcli.training.time.budget import Budget
from mtcli.training.time.timed_parts import PartDuration
from mtcli.training.trainer import LOG_EVERY, Trainer
from mtcli.training.validation import check_bleu_tokenizer

log = logging.getLogger(__name__)

YEAR = 365 * 24 * 3600

MAX_SECONDS = 10 * YEAR
"""No date is given for an end that is further away: `datetime` ends with the year 9999."""

LARGER = "a larger --time or --max-steps continues training"

NUM_UNTIMED_STEPS = 2
"""Steps before the timed ones: the first steps are slower."""

MAX_TIMED_STEPS = 20
MAX_TIMED_SECONDS = 1.0
"""Timing ends after this many steps or, after a whole step, this many seconds."""

MAX_STEP_SECONDS = 0.5
"""If a step probably takes longer than this, a smaller batch is timed."""

MIN_BATCH_TOKENS = 64
"""Tokens of the smallest batch that is timed."""

LAYER_SECONDS = 0.002
"""About the least time that a step takes per layer, to launch its operations, however small the batch is."""


def dry_run(
    config: Config, run: Path, device: torch.device, *, init: InitialModel | None = None, overwrite: bool = False
) -> Iterator[tuple[str, str]]:
    """Yield pairs of a name and a text about the run: first the counts, and the timing last.

    The data is prepared as for training, which takes as long: in a temporary folder, unless the run folder has it. The
    speed is that of a few real steps of a model that is thrown away.

    Args:
        config: The configuration, with some options unset.
        run: The run folder. It is not changed.
        device: The device to train on.
        init: A model to start from.
        overwrite: Plan as if the run in the folder was deleted.

    Raises:
        UsageError: Several ranks were started, or the run in the folder has another configuration, or the folder holds
            other files than those of a run, or parameters are frozen without a model to start from.
        DataError: The pairs cannot be used.
        ModelError: The state of the run is of another version, or its tokenizer is not the one it began with.
    """
    if torchrun.size() > 1:
        raise UsageError("--dry-run: for one process; start it without torchrun, and divide the steps by the ranks")
    check_freezing(config, run, fine_tunes=init is not None, overwrite=overwrite)
    check_bleu_tokenizer(config)
    check_inputs(config)
    if run.exists():
        refuse_other_files(run, overwrite)
    existing_config = None if overwrite else resumed_config(config, run)
    with _data(config, run, init, overwrite) as data:
        workload = Workload.of(data, device, ranks=1)
        config = with_defaults(config, workload, existing_config)
        if existing_config is None and data.init is None:
            warn_of_few_pairs(config, data.sources)
        state = State() if overwrite else resumable_state(run)
        budget = Budget.of(
            config, len(data.valid), len(data.test), fine_tunes=data.fine_tunes, on_gpu=device.type == "cuda"
        )
        is_finished = budget.remains_finished(state)
        yield "run folder", f"{run} ({_describe_folder(run, state, is_finished=is_finished, overwrite=overwrite)})"
        budget.reopen(state)
        yield "data", describe_counts(data.counts)
        for name, text in describe_sources(data.sources):
            yield "corpus", f"{name}: {text}"
        yield from describe_transfer(data.transfer)
        yield "settings", describe_choice(config, workload, resumed=existing_config is not None)
        batches = BatchPlan.of(config, data)
        plan = Plan.of(config, data, batches, device, ranks=1)
        yield from plan.rows(config)
        speed = estimate_speed(config, data, device, plan)
        epoch_steps = plan.steps(config.train.accumulate)
        tokens_per_second = speed.steps_per_second * (plan.target_tokens / epoch_steps)
        description = f"{speed.steps_per_second:.3g} steps a second, {tokens_per_second:,.0f} target tokens a second"
        yield "speed", f"{description}: {speed.method}"
        if is_finished:
            yield "finish", f"it is finished; {LARGER}"
        else:
            yield "finish", _describe_end(budget, speed.steps_per_second, epoch_steps, state)


@contextmanager
def _data(config: Config, run: Path, init: InitialModel | None, overwrite: bool) -> Iterator[Prepared]:
    """Return the data of the run folder if it is complete; otherwise prepare it in a temporary folder."""
    existing = None if overwrite else prepared(config, run)
    if existing is not None:
        yield existing
        return
    started = time.monotonic()
    with TemporaryDirectory(prefix="mtcli-") as folder:
        with files.storage_errors(Path(folder)):
            data = prepare(config, Path(folder), init=init.parent if init else None)
        log.info("preparing the data took %s; training prepares it again", clock(time.monotonic() - started))
        yield data


def _describe_folder(run: Path, state: State, *, is_finished: bool, overwrite: bool) -> str:
    """Describe what the run folder holds, and what training would do with it.

    Args:
        run: The run folder.
        state: The state that training would resume from.
        is_finished: The run has ended, and this budget is not larger than the one it used.
        overwrite: The run would be deleted.
    """
    if not (run / "config.toml").exists():
        return "new"
    if overwrite:
        return "holds a run, which --overwrite deletes"
    status = f"at step {state.step:,}" if state.step else "without a checkpoint"
    if state.finished:
        status = f"finished {status} ({state.finished})"
    continuation = LARGER if is_finished else "the same command resumes it"
    return f"holds a run, {status}: {continuation}, --overwrite starts over"


def _describe_end(budget: Budget, steps_per_second: float, epoch_steps: float, state: State) -> str:
    """Describe when training ends, and how many steps and epochs it takes by then.

    Args:
        budget: The budget.
        steps_per_second: The speed.
        epoch_steps: Steps per epoch.
        state: The state from which training starts.
    """
    train = budget.train
    seconds_by_steps = math.inf
    if train.max_steps:
        seconds_by_steps = (train.max_steps * state.share_of_budget - state.step) / steps_per_second
    seconds_by_time = train.time * state.share_of_budget - state.seconds if train.time else math.inf
    seconds = max(0.0, min(seconds_by_steps, seconds_by_time))
    used_for_steps = state.seconds - state.seconds_before_first_step
    seconds_of_steps = min(seconds, budget.training_time(state) * state.share_of_budget - used_for_steps)
    steps = state.step + max(1, round(seconds_of_steps * steps_per_second))
    in_all = " in all" if state.step else ""
    reach = f"about {counted(steps, 'step')}{in_all}, {steps / epoch_steps:,.1f} epochs"
    validations = steps // train.valid_every - state.step // train.valid_every
    if budget.adapts("train.valid_every"):
        validations = round(budget.validations(state))
    effort = f"with {counted(validations, 'validation')}"
    if seconds_by_steps <= seconds:
        effort += " in addition"
    else:
        effort += " within this time, so probably fewer steps"
    return f"{_describe_time(seconds)}: {reach}, {effort}{_advice(budget, steps)}"


def _describe_time(seconds: float) -> str:
    """Describe a time in the future: `in 3:20, about 14:05`."""
    if seconds > MAX_SECONDS:
        return f"in more than {MAX_SECONDS / YEAR:.0f} years"
    end = datetime.now() + timedelta(seconds=seconds)
    text = f"in {clock(seconds)}, about {end:%H:%M}"
    if seconds > 12 * 3600:
        text += f" of {end:%d %B}"
    return text


def _advice(budget: Budget, steps: int) -> str:
    """Return what to change if the steps are too few, or an empty text."""
    train = budget.train
    needed = needed_steps(budget)
    if train.time and steps < needed:
        return f"; a usable translator needs {needed:,} steps or more: give it more time"
    if steps < 2 * train.warmup_steps and not budget.adapts("train.warmup_steps"):
        warmup = counted(train.warmup_steps, "step")
        return f"; the warm-up alone is {warmup}: lower train.warmup_steps, or give it more time"
    return ""


@dataclass(frozen=True)
class SpeedEstimate:
    """The speed of training."""

    steps_per_second: float
    method: str
    """How it was found, in words."""


def estimate_speed(config: Config, data: Prepared, device: torch.device, plan: Plan) -> SpeedEstimate:
    """Time some steps of training. If they are slow, time two smaller batches. If they are too slow, only estimate.

    The two sizes separate the time per token from that of Adam, which is the same for every batch and large in a model
    with a large vocabulary.

    Args:
        config: The complete configuration.
        data: The prepared data.
        device: The device to train on.
        plan: The plan of the run.

    Raises:
        StorageError: There is too little memory for the model or its batches.
    """
    plan.check_memory(config)
    rows, num_src, num_tgt = plan.largest
    batch_tokens = min(config.train.batch_tokens, rows * max(num_src, num_tgt))
    step_tokens = batch_tokens * config.train.accumulate
    share = cost_share(config.model, plan.tgt_vocab, config.train.freeze)
    gpu = gpu_of(device) if device.type == "cuda" else UNKNOWN_GPU
    token_seconds = seconds_per_token(config.model, plan.tgt_vocab, device.type, gpu, share)
    launch_seconds = LAYER_SECONDS * (config.model.num_encoder_layers + config.model.num_decoder_layers)
    where = describe(device)
    if MIN_BATCH_TOKENS * token_seconds + launch_seconds > MAX_STEP_SECONDS:
        seconds = step_tokens * token_seconds + config.train.accumulate * launch_seconds
        return SpeedEstimate(1 / seconds, f"an estimate from the number of parameters, too many to try on {where}")
    timed_tokens = min(batch_tokens, max(MIN_BATCH_TOKENS, int(MAX_STEP_SECONDS / token_seconds)))
    if step_tokens <= timed_tokens:
        steps, seconds = _time_steps(config, data, device)
        return SpeedEstimate(steps / seconds, f"{counted(steps, 'step')} of a throwaway model on {where}")
    steps, duration = _time_two_sizes(config, data, device, timed_tokens)
    # Adam takes as long for a small batch: that time must not be multiplied.
    step_seconds = duration.fixed_seconds + duration.seconds_per_item * step_tokens
    method = f"{counted(steps, 'step')} of a throwaway model with {timed_tokens:,} tokens each on {where}"
    return SpeedEstimate(1 / step_seconds, method)


def _time_two_sizes(
    config: Config, data: Prepared, device: torch.device, batch_tokens: int
) -> tuple[int, PartDuration]:
    """Time steps with batches of this size and of half of it.

    Returns:
        The number of steps with the larger batches, and the duration of a step by its number of tokens.
    """
    duration = PartDuration()
    steps = 0
    for tokens in sorted({max(MIN_BATCH_TOKENS, batch_tokens // 2), batch_tokens}):
        smaller = filled(config, {"train.batch_tokens": tokens, "train.accumulate": 1})
        steps, seconds = _time_steps(smaller, data, device)
        duration.add(tokens, seconds / steps)
    return steps, duration


def _time_steps(config: Config, data: Prepared, device: torch.device) -> tuple[int, float]:
    """Take some steps, and return how many were timed and how many seconds they took."""
    assert NUM_UNTIMED_STEPS + MAX_TIMED_STEPS < LOG_EVERY  # so that no event is recorded
    with TemporaryDirectory(prefix="mtcli-") as folder:
        trainer = Trainer(config, Path(folder), device, data, time.monotonic(), Group())
        with closing(trainer.batches()) as batches:
            for _ in range(NUM_UNTIMED_STEPS):
                trainer.step(batches)
            _wait_for(device)
            started = time.monotonic()
            steps = 0
            seconds = 0.0
            while steps < MAX_TIMED_STEPS and seconds < MAX_TIMED_SECONDS:
                trainer.step(batches)
                _wait_for(device)
                steps += 1
                seconds = time.monotonic() - started
    return steps, seconds


def _wait_for(device: torch.device) -> None:
    """Wait until a GPU has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
