"""`mtcli average`."""

import os
import shlex
from pathlib import Path
from typing import Annotated

from mtcli import limits
from mtcli.cli import panels
from mtcli.cli.option_kinds import flag, number, output_folder_option
from mtcli.cli.options import LATEST, model_argument
from mtcli.cli.process import note

EXAMPLES = ("mtcli average runs/ende -n 5", "mtcli average --best -o runs/mean")


def average(
    run: Annotated[Path, model_argument("A run folder.", metavar="RUN")] = LATEST,
    n: Annotated[
        int | None,
        number(
            "-n",
            panel=panels.CHECKPOINTS,
            within=limits.CHECKPOINTS,
            help="Number of checkpoints.",
            show_default="5, or all if there are fewer",
        ),
    ] = None,
    best: Annotated[
        bool,
        flag(
            "--best/--last",
            panel=panels.CHECKPOINTS,
            help="Take the checkpoints with the highest validation scores, or the newest.",
        ),
    ] = False,
    output: Annotated[
        Path | None,
        output_folder_option("The model folder to write.", show_default="RUN-average"),
    ] = None,
) -> None:
    """Average the weights of several checkpoints of a run into a new model (§6.1 of the paper).

    Training does this at its end, and keeps the average if it is better.
    """
    from mtcli.runtime.outputs import check_folder, folder_beside
    from mtcli.runtime.wording import command
    from mtcli.training.averaging import average_run

    out = output or folder_beside(run, "average")
    run = Path(os.path.realpath(run)) if run.is_symlink() else run
    check_folder(out)
    steps = average_run(run, out, n, best=best)
    listed = ", ".join(f"{step:,}" for step in steps)
    if len(steps) == 1:
        note(f"averaged 1 checkpoint (step {listed}) into {out}")
    else:
        note(f"averaged {len(steps)} checkpoints (steps {listed}) into {out}")
    note(f"compare: {command('eval', run, '--compare', shlex.quote(str(out)))}")
