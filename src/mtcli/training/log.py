"""Log messages of a training besides its progress: validations, samples, test scores and the next commands."""

import logging
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from operator import itemgetter
from pathlib import Path

from mtcli.config.schema import Config, TrainConfig
from mtcli.config.scores import FEW_VALIDATION_PAIRS, METRIC_NAMES
from mtcli.corpus.cache.training_sources import TrainingSource
from mtcli.corpus.quality.report import FAR_TOO_FEW_PAIRS, remark_on_size
from mtcli.evaluation.remarks import DEMO_IN_WORDS, in_words, remarks, too_few_pairs
from mtcli.runtime.progress import clock
from mtcli.runtime.wording import command, counted, log_columns, one_line, to_option
from mtcli.storage.state import OneFigure, State, mean_in_words
from mtcli.text.languages import Direction
from mtcli.training.corrections import describe_gain
from mtcli.training.defaults.from_scratch import MIN_MICRO_BATCH_TOKENS
from mtcli.training.time.budget import Budget
from mtcli.training.time.final_work import MAX_RESERVED_SHARE
from mtcli.training.validation import TestScores, Validation, describe_other_language, describe_scores

log = logging.getLogger(__name__)

USABLE_STEPS = 500
"""A time budget for fewer steps causes a warning: Multi30K has 32 BLEU after 900 steps, and almost none after 100."""


def log_validation(state: State, result: Validation) -> None:
    """Log the validation of the current step, and its samples."""
    best = ""
    if state.best_step == state.step:
        best = ", now the best model"
        if state.selection_metric not in ("combined", "corrections"):
            best += f" by {state.metric_name}"
    if state.step:
        log.info("step %s, epoch %d, %s: %s%s", f"{state.step:,}", state.epoch + 1, clock(state.seconds), result, best)
    else:
        log.info("step 0, before training, %s: %s", clock(state.seconds), result)
    if len(result.directions) > 1:
        for figures in result.directions:
            log.info("    %s", figures)
    log_samples(result.samples)


def warn_of_few_pairs(config: Config, sources: Sequence[TrainingSource]) -> None:
    """Say what helps with few training pairs, as a warning if they are far too few. The built-in demo gets none.

    Of several directions, the smallest counts, also if its pairs are synthetic.

    Args:
        config: The configuration of a run that starts without another model.
        sources: The training corpora.
    """
    pairs: Counter[Direction] = Counter()
    for source in sources:
        pairs[source.direction] += source.pairs
    direction, fewest = min(pairs.items(), key=itemgetter(1))
    remark = remark_on_size(fewest, several=len(pairs) > 1)
    if not config.data.is_demo and remark:
        prefix = f"{direction}: " if len(pairs) > 1 else ""
        log.log(logging.WARNING if fewest < FAR_TOO_FEW_PAIRS else logging.INFO, "%s%s", prefix, remark)


def warn_of_long_warmup(train: TrainConfig) -> None:
    """Warn before the first step if the last one is still within the warm-up."""
    if train.max_steps and train.max_steps < train.warmup_steps:
        log.warning(
            "train.max_steps = %s: training will end within its warm-up of %s; give it more steps, or a lower "
            "--set train.warmup_steps",
            f"{train.max_steps:,}",
            counted(train.warmup_steps, "step"),
        )


def needed_steps(budget: Budget) -> int:
    """Return the steps that a usable model needs, or all steps of the budget if they are fewer.

    The model that fine-tuning starts from is usable before the first step.
    """
    train = budget.train
    needed = 1 if budget.final_work.fine_tunes else USABLE_STEPS
    if not budget.adapts("train.warmup_steps"):
        needed = max(needed, 2 * train.warmup_steps)
    return min(needed, train.max_steps or needed)


def log_speed(budget: Budget, state: State, step_seconds: float, *, preset: str) -> None:
    """Log how many steps there will be and when, and warn if the time allows too few.

    Args:
        budget: The budget, with a limited time.
        state: The state after a step.
        step_seconds: Seconds per step.
        preset: The preset of the model.
    """
    train = budget.train
    assert train.time
    left = budget.training_time(state) - (state.seconds - state.seconds_before_first_step)
    steps = max(state.step + int(left / max(step_seconds, 1e-9)), 1)
    seconds = train.time
    if train.max_steps and train.max_steps <= steps:
        steps = train.max_steps
        seconds = state.seconds + (steps - state.step) * step_seconds
    log.info("%.2g seconds a step: about %s in %s", step_seconds, counted(steps, "step"), clock(seconds))
    needed = needed_steps(budget)
    if steps >= needed:
        return
    keeps_size = preset == "tiny" or budget.final_work.fine_tunes
    enough = (state.seconds_before_first_step + needed * step_seconds) / (1 - MAX_RESERVED_SHARE)
    log.warning(
        "a time of %s is too short at this speed: about %s, and a usable translator needs %s or more; "
        "give it --time %dm, or %s",
        clock(train.time),
        counted(steps, "step"),
        f"{needed:,}",
        math.ceil(enough / 60),
        "a smaller train.batch_tokens" if keeps_size else "a smaller --preset or train.batch_tokens",
    )


def log_unused_cores(train: TrainConfig, num_cores: int) -> None:
    """Log that a step on a CPU uses fewer cores than this process may use, and the setting that uses more of them."""
    used = train.micro_batches * train.accumulate
    if used >= num_cores:
        return
    largest = train.batch_tokens // MIN_MICRO_BATCH_TOKENS
    wanted = min(math.ceil(num_cores / train.accumulate), largest)
    remedy = f"a larger train.batch_tokens than {train.batch_tokens:,} can use more of them"
    if wanted > train.micro_batches:
        used_then = min(wanted * train.accumulate, num_cores)
        remedy = f"--set train.micro_batches={wanted} uses {used_then} of them (other random numbers for dropout)"
    log.info("a step uses %d of %s; %s", used, counted(num_cores, "core"), remedy)


def log_selection(valid: Mapping[Direction, int], state: State) -> None:
    """Log how the model is selected, if there are no validation pairs or too few in a direction.

    Args:
        valid: Number of validation pairs of each direction.
        state: The state of the run.
    """
    some = {direction: number for direction, number in valid.items() if number}
    if not some:
        log.info("no validation pairs: the last checkpoint becomes the model")
        return
    direction, fewest = min(some.items(), key=itemgetter(1))
    if fewest < FEW_VALIDATION_PAIRS:
        pairs = counted(fewest, "validation pair")
        if len(valid) > 1:
            pairs += f" of {direction}"
        verb = "is" if fewest == 1 else "are"
        if state.metric == "corrections":
            problem = "too few to measure what the model forgets"
            log.warning("%s %s %s; name %d or more pairs with --valid", pairs, verb, problem, FEW_VALIDATION_PAIRS)
            return
        log.warning(
            "%s %s too few to choose the best model by BLEU or chrF: the %s chooses it; "
            "name %d or more pairs with --valid",
            pairs,
            verb,
            state.metric_name,
            FEW_VALIDATION_PAIRS,
        )


def log_samples(samples: Sequence[dict[str, str]]) -> None:
    """Log validation samples, one line each, cut to the width of the log. `metrics.jsonl` has the whole texts."""
    width = (log_columns() - len("     → ")) // 2
    for sample in samples:
        log.info("    %s → %s", one_line(sample["src"], width), one_line(sample["hyp"], width))


def log_scores(scores: TestScores, *, demo: bool) -> None:
    """Log the test scores and what they mean. Warn about too few pairs, and about unusual scores.

    Args:
        scores: The scores.
        demo: The pairs are the built-in demo's, whose scores are expected to be high.
    """
    log.info("%s", scores)
    if len(scores.directions) > 1:
        for each in scores.directions:
            others = describe_other_language(each["other_language"])
            log.info("    %s → %s: %s%s", each["src"], each["tgt"], describe_scores(each["scores"]), others)
    if demo:
        few = too_few_pairs(scores.pairs)
        warnings = [few] if few else []
    else:
        warnings = remarks(((score["name"], score["score"]) for score in scores.scores), scores.pairs)
    bleu = next((score["score"] for score in scores.scores if score["name"] == "BLEU"), None)
    if not warnings and bleu is not None:
        words = f"BLEU {bleu:.1f}: {DEMO_IN_WORDS}" if demo else in_words(bleu)
        if words:
            log.info("%s", words)
    for warning in warnings:
        log.warning("%s", warning)


def log_next(run: Path, *, test: bool, targets: Sequence[str] = ()) -> None:
    """Log where the report is, and the commands that use the model.

    Args:
        run: The run folder.
        targets: The target languages of the model.
        test: The run has test pairs.
    """
    log.info("report:    %s", run / "report.html")
    log.info("translate: %s", command("translate", run, *to_option(targets), '"…"'))
    if test:
        log.info("score:     %s", command("eval", run))


def log_end(run: Path, state: State, *, test: bool, targets: Sequence[str] = (), corrections: int = 0) -> None:
    """Log that training has finished, which model is the best one, and where it is.

    Args:
        run: The run folder.
        state: The state at the end.
        test: The run has test pairs.
        targets: The target languages of the model.
        corrections: Number of corrections that were to be learned.
    """
    end = f"at step {state.step:,} after {clock(state.seconds)} ({state.finished})"
    best = mean_in_words(state.averaged) if state.averaged else f"of step {state.best_step:,}"
    if state.start_is_best:
        best = "the one that training started from"
        log.warning("fine-tuning made the model no better: the weights it started from stay the run's model")
    elif gain := _describe_gain(state):
        log.info("fine-tuning: %s", gain)
    if corrections:
        log.info("%s", describe_gain(state, corrections))
    criterion = f"the best model by {state.metric_name}" if state.best else "the last model"
    log.info("finished %s; %s, %s, is in %s", end, criterion, best, run)
    log_next(run, test=test, targets=targets)


def _describe_gain(state: State) -> str:
    """Describe the score of the validation pairs before and after fine-tuning; empty if they are not comparable."""
    if state.start is None or state.best is None or state.start_pairs != state.best_pairs:
        return ""
    if state.selection_metric == "loss":
        name = "validation loss"
        before, after = (f"{-figures.negative_loss:.3f}" for figures in (state.start, state.best))
    else:
        name = METRIC_NAMES["chrf" if state.metric == "chrf" else "bleu"]
        scores = (each.selecting if isinstance(each, OneFigure) else each.bleu for each in (state.start, state.best))
        before, after = (f"{score:.1f}" for score in scores)
    return f"{name} on the validation pairs: {before} before, {after} after"
