"""The link to the run that was trained last, which commands use if no model is named."""

import logging
import os
import shlex
from contextlib import suppress
from pathlib import Path

log = logging.getLogger(__name__)


def point_to(link: Path, run: Path) -> None:
    """Point the link to a run. A failure is only a warning, because the training has succeeded.

    Args:
        link: `runs/latest`.
        run: The run folder.
    """
    if link.exists() and not link.is_symlink():
        if not link.samefile(run):
            _warn(link, run, "it is not a link; move it away")
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


def _warn(link: Path, run: Path, reason: str) -> None:
    log.warning("%s does not lead to this run (%s); name the run: --model %s", link, reason, shlex.quote(str(run)))
