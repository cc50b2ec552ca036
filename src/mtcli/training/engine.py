"""The last work of a training: the engine of the run, with which `mtcli translate` starts faster on a CPU."""

import logging
import shlex
from collections.abc import Sequence

from mtcli.errors import MtcliError
from mtcli.exchange.engine_export import NoTimeError, can_have_engine, update_engine
from mtcli.training.session import Session
from mtcli.training.time.timed_parts import spread

log = logging.getLogger(__name__)

MAX_SECONDS = 60.0
"""Seconds that converting the model and comparing the translations may take."""


def update_run_engine(session: Session, received: Sequence[int], *, in_budget: bool) -> None:
    """Write the engine of the run, unless it has one of its present model. A failure leaves the run without one.

    Args:
        session: The training, after its last checkpoint.
        received: Numbers of the signals that this process has received; the first one ends the work.
        in_budget: The time budget of the run counts. If not, the run has ended before.
    """
    held_out = [*spread(session.data.valid), *spread(session.data.test)]
    if not can_have_engine(session.config, len(held_out)):
        return
    session.count_time()
    state = session.state
    seconds = MAX_SECONDS
    if in_budget and session.config.train.time:
        converting = 2 * max(state.save_seconds, state.write_seconds)
        seconds = min(MAX_SECONDS, session.config.train.time - state.seconds - converting)
    deadline = session.clock() + seconds
    sources = [src for src, _ in held_out]
    try:
        update_engine(session.run, sources, lambda: 0.0 if received else deadline - session.clock())
    except NoTimeError:
        if received or seconds < MAX_SECONDS:
            remedy = "run the same command again to convert it"
        else:
            remedy = f"`mtcli export {shlex.quote(str(session.run))} --to ctranslate2` converts it"
        log.info("no time was left to convert the model for faster translation; %s", remedy)
    except (MtcliError, OSError, RuntimeError, ValueError, MemoryError) as error:
        log.info("the model was not converted for faster translation: %s", error)
