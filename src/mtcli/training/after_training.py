"""After the last checkpoint: what makes the translations of a run faster, and what says how good they are."""

import logging
import shlex
from collections.abc import Sequence

from mtcli.errors import MtcliError
from mtcli.evaluation.confidence import TooFewError, num_calibration_lines, update_confidence
from mtcli.exchange.engine_export import NoTimeError, can_have_engine, update_engine
from mtcli.report.run_report import write_report
from mtcli.runtime.device import describe
from mtcli.runtime.wording import counted
from mtcli.training.session import Session
from mtcli.training.time.final_work import uninterrupted_seconds
from mtcli.training.time.timed_parts import spread
from mtcli.translate.confidence import read_confidence

log = logging.getLogger(__name__)

MAX_ENGINE_SECONDS = 60.0
"""Seconds that converting the model and comparing the translations may take."""

MAX_CALIBRATION_SECONDS = 300.0
"""Seconds that calibrating the confidence may take."""


def prepare_use(session: Session, received: Sequence[int], *, in_budget: bool) -> None:
    """Add to a finished run its engine and the confidence of its model, and what that changes in its report.

    Args:
        session: The training, after its last checkpoint.
        received: Numbers of the signals that this process has received; the first one ends the work.
        in_budget: The time budget of the run counts. If not, the run has ended before.
    """
    update_run_engine(session, received, in_budget=in_budget)
    if _update_run_confidence(session, received, in_budget=in_budget):
        write_report(session.run, describe(session.device))


def update_run_engine(session: Session, received: Sequence[int], *, in_budget: bool) -> None:
    """Write the engine of the run, unless it has one of its present model. A failure leaves the run without one.

    Args:
        session: See `prepare_use`.
        received: See there.
        in_budget: See there.
    """
    held_out = [*spread(session.data.valid), *spread(session.data.test)]
    if not can_have_engine(session.config, len(held_out)):
        return
    uninterrupted = uninterrupted_seconds(session.state)
    seconds = _seconds_after_training(session, MAX_ENGINE_SECONDS, uninterrupted, in_budget=in_budget)
    deadline = session.clock() + seconds
    sources = [src for src, _ in held_out]
    try:
        update_engine(session.run, sources, lambda: 0.0 if received else deadline - session.clock())
    except NoTimeError:
        if received or seconds < MAX_ENGINE_SECONDS:
            remedy = "run the same command again to convert it"
        else:
            remedy = f"`mtcli export {shlex.quote(str(session.run))} --to ctranslate2` converts it"
        log.info("no time was left to convert the model for faster translation; %s", remedy)
    except (MtcliError, OSError, RuntimeError, ValueError, MemoryError) as error:
        log.info("the model was not converted for faster translation: %s", error)


def _update_run_confidence(session: Session, received: Sequence[int], *, in_budget: bool) -> bool:
    """Calibrate the confidence of the run's model on its validation pairs, unless that has been done.

    A failure leaves the run without one. Few pairs are no failure.

    Args:
        session: See `prepare_use`.
        received: See there.
        in_budget: See there.

    Returns:
        It has been calibrated now.
    """
    if num_calibration_lines(len(session.data.valid)) == 0 or read_confidence(session.run) is not None:
        return False
    seconds = _seconds_after_training(session, MAX_CALIBRATION_SECONDS, 0.0, in_budget=in_budget)
    deadline = session.clock() + seconds
    try:
        confidence = update_confidence(
            session.run,
            session.data.valid,
            session.device.type,
            lambda: 0.0 if received else deadline - session.clock(),
        )
    except TooFewError:
        if received or seconds < MAX_CALIBRATION_SECONDS:
            log.info("no time was left to calibrate the confidence of translations; run the same command again for it")
        else:
            log.info("translating is too slow here to calibrate the confidence of translations")
        return False
    except (MtcliError, OSError, RuntimeError, ValueError, MemoryError) as error:
        log.info("the confidence of translations was not calibrated: %s", error)
        return False
    assert confidence is not None
    log.debug("the confidence of translations is calibrated on %s", counted(confidence.pairs, "validation pair"))
    return True


def _seconds_after_training(session: Session, most: float, needed: float, *, in_budget: bool) -> float:
    """Return the seconds that work after the last checkpoint may take.

    Args:
        session: The training.
        most: The result without a time budget.
        needed: Seconds of the time budget that the work needs besides.
        in_budget: See `prepare_use`.
    """
    session.count_time()
    if not in_budget or not session.config.train.time:
        return most
    return min(most, session.config.train.time - session.state.seconds - needed)
