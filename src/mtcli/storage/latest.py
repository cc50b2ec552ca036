"""The link to the run that was trained last, which commands use if no model is named."""

import logging
import os
import shlex
from contextlib import suppress
from pathlib import Path

from mtcli.errors import MtcliError
from mtcli.storage.events import read_events

log = logging.getLogger(__name__)


def point_to(link: Path, run: Path) -> None:
    """Point the link to a run. A failure is only a warning, because the training has succeeded.

    A model whose translations are useless, with BLEU 0.0, does not replace one with better scores.

    Args:
        link: `runs/latest`.
        run: The run folder.
    """
    if link.exists() and not link.is_symlink():
        if not link.samefile(run):
            _warn(link, run, "it is not a link; move it away")
        return
    if link.is_symlink() and (link / "model.safetensors").exists() and not link.samefile(run):
        scores = _scores(run)
        if scores is not None and round(scores[0], 1) == 0 and (_scores(link) or scores) > scores:
            _warn(link, run, "its BLEU is 0.0, and the other's is better")
            return
    temporary = link.with_name(f".latest-{os.getpid()}")
    try:
        link.parent.mkdir(parents=True, exist_ok=True)
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(os.path.relpath(os.path.realpath(run), os.path.realpath(link.parent)))
        temporary.replace(link)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        _warn(link, run, error.strerror or str(error))


def modified(model: Path) -> int | None:
    """Return when a model file was written, in nanoseconds; None: there is none."""
    with suppress(OSError):
        return model.stat().st_mtime_ns
    return None


def _warn(link: Path, run: Path, reason: str) -> None:
    log.warning("%s does not lead to this run (%s); name the run: --model %s", link, reason, shlex.quote(str(run)))


def _scores(run: Path) -> tuple[float, float] | None:
    """Return BLEU and chrF of the best validation of a run; None: there was none, or its events cannot be read."""
    try:
        events, _ = read_events(run / "metrics.jsonl")
        found = [(float(event["bleu"]), float(event["chrf"])) for event in events if event["event"] == "valid"]
    except (MtcliError, OSError, KeyError, TypeError, ValueError):
        return None
    return max(found, default=None)
