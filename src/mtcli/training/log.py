"""What a training run writes to the log besides its progress: samples, scores and the next commands."""

import logging
from collections.abc import Sequence
from pathlib import Path

from mtcli.report.messages import command, first_remark
from mtcli.runtime.progress import clock
from mtcli.runtime.terminal import log_columns, one_line
from mtcli.storage.state import State
from mtcli.training.validation import TestScores, Validation

log = logging.getLogger(__name__)


def log_validation(state: State, found: Validation) -> None:
    """Log a validation of this step, and its samples."""
    best = ", now the best model" if state.best_step == state.step else ""
    log.info("step %s, epoch %d, %s: %s%s", f"{state.step:,}", state.epoch + 1, clock(state.seconds), found, best)
    log_samples(found.samples)


def log_samples(samples: Sequence[dict[str, str]]) -> None:
    """Log validation samples, one line each, cut to the width of the log; `metrics.jsonl` has the full ones."""
    width = (log_columns() - len("     → ")) // 2
    for sample in samples:
        log.info("    %s → %s", one_line(sample["src"], width), one_line(sample["hyp"], width))


def log_scores(found: TestScores, *, demo: bool) -> None:
    """Log the test scores, and what a very low or very high one means; the built-in demo is known to be easy."""
    log.info("%s", found)
    remark = first_remark((score["name"], score["score"]) for score in found.scores)
    if remark and not demo:
        log.warning("%s", remark)


def log_next(run: Path, *, test: bool) -> None:
    """Name the report and the commands that use the model; `test`: there are test pairs."""
    log.info("report:    %s", run / "report.html")
    log.info("translate: %s", command("translate", run, '"…"'))
    if test:
        log.info("score:     %s", command("eval", run))
