"""Checkpoint averaging (§6.1): the mean of the weights of several checkpoints of one run."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from torch import nn

from mtcli.errors import ModelError, UsageError
from mtcli.runtime import files
from mtcli.runtime.files import check_regular
from mtcli.runtime.outputs import check_replaceable, whole_folder
from mtcli.runtime.wording import counted
from mtcli.storage import checkpoint, model_file
from mtcli.storage.events import read_events
from mtcli.storage.model_file import averaged_bytes, mean_parameters
from mtcli.storage.state import figures_of, score_of

DEFAULT_NUM_CHECKPOINTS = 5
"""Checkpoints that `mtcli average` takes if no number is given, as in the paper."""

MODEL = "model.safetensors"

WRITTEN = frozenset({"data", MODEL, "tokenizer.json"})
"""The files that `average_run` writes to its folder."""


@contextmanager
def weights_of(model: nn.Module, paths: Sequence[Path]) -> Iterator[None]:
    """Set the weights of a model to the mean of checkpoints, and restore its own weights on exit.

    Args:
        model: The model.
        paths: Folders of the checkpoints.

    Raises:
        ModelError: A checkpoint is damaged.
    """
    own = {name: tensor.clone() for name, tensor in model_file.parameters(model).items()}
    model_file.set_parameters(model, mean_parameters(paths), paths[0].parent)
    try:
        yield
    finally:
        model_file.set_parameters(model, own, paths[0].parent)


def average_run(run: Path, out: Path, n: int | None = None, *, best: bool = False) -> list[int]:
    """Average checkpoints of a run into a model folder that `translate`, `eval` and `--init` can use.

    Args:
        run: The run folder.
        out: The folder to write: a new or empty one, or one that this function wrote before, which is replaced.
        n: Number of checkpoints; None: `DEFAULT_NUM_CHECKPOINTS`, or as many as there are, but at least two.
        best: Take the checkpoints with the best validations instead of the newest. They are ranked by what selects
            the run's model, see `selection_metric_of_run`.

    Returns:
        The steps of the averaged checkpoints, in ascending order.

    Raises:
        ModelError: `run` is not a run, or has too few undamaged checkpoints, or they do not fit together.
        UsageError: `out` holds something else, or is the current folder.
        LockedError: Another process is writing `out`.
        StorageError: `out` cannot be written.
    """
    if not (run / "checkpoints").is_dir():
        raise ModelError(f"{run}: no run here; name the folder of a run that `mtcli train` made")
    folders = _undamaged_checkpoints(run)
    steps = _select(run, sorted(folders), n, best=best)
    _check_output(out)
    _, info, tokenizer = model_file.load_model(folders[steps[-1]])
    tensors = mean_parameters([folders[step] for step in steps])
    with whole_folder(out) as folder:
        (folder / "data").mkdir()
        for name in ("valid.jsonl", "test.jsonl"):
            source = run / "data" / name
            if source.exists():
                _copy(source, folder / "data" / name)
        files.write_file(folder / "tokenizer.json", tokenizer.to_json().encode())
        files.write_file(folder / MODEL, averaged_bytes(tensors, info, steps))
    return steps


def _undamaged_checkpoints(run: Path) -> dict[int, Path]:
    """Return the folders of the undamaged checkpoints, by step. The model before the first step is none of them."""
    paths = {checkpoint.step_of(path): path for path in checkpoint.steps(run / "checkpoints")}
    return {step: path for step, path in paths.items() if step > 0 and checkpoint.verify(path) is None}


def _select(run: Path, steps: list[int], n: int | None, *, best: bool) -> list[int]:
    """Select the checkpoints to average; see `average_run`.

    Raises:
        ModelError: There are too few.
    """
    kind = "whole"
    if best:
        kind = "validated, whole"
        scores = _validation_scores(run / "metrics.jsonl")
        validated = [step for step in steps if step in scores]
        steps = sorted(validated, key=lambda step: (scores[step], step))
    wanted = n or max(2, min(len(steps), DEFAULT_NUM_CHECKPOINTS))
    if len(steps) < wanted:
        available = counted(len(steps), f"{kind} checkpoint")
        problem = f"has {available}, and {wanted} are needed"
        raise ModelError(f"{run}: {problem}; train longer, or with a larger --set train.keep")
    return sorted(steps[-wanted:])


def _check_output(out: Path) -> None:
    """Check that a folder is new or empty, or holds nothing but an average that `average_run` wrote.

    Raises:
        UsageError: It holds something else, or is the current folder.
    """
    check_replaceable(out, "averaged model", MODEL, WRITTEN.__contains__)
    if not (out / MODEL).exists():
        return
    try:
        _, info, _ = model_file.load_model(out)
        is_average = bool(info.averaged)
    except ModelError:
        is_average = False
    if not is_average:
        raise UsageError(f"{out}: holds a model that is not an average; choose another --output")


def _copy(source: Path, target: Path) -> None:
    """Copy a file of a run.

    Raises:
        ModelError: The source is not a regular file.
    """
    try:
        check_regular(source)
    except OSError as error:
        raise ModelError(f"{source}: cannot read it ({error.strerror}); move it away") from None
    files.copy_file(source, target)


def _validation_scores(path: Path) -> dict[int, tuple[float, ...]]:
    """Return, by step, the score of each validation, by what selects the best model; higher is better.

    Raises:
        ModelError: The file is missing or damaged.
    """
    events, damaged = read_events(path)
    if damaged:
        raise ModelError(f"{path}: has {counted(damaged, 'damaged line')}; use --last")
    validations = [event for event in events if event["event"] == "valid"]
    if not validations:
        return {}
    metric = validations[-1]["metric"]  # a run with a time budget may have used the loss while it scored few pairs
    return {event["step"]: score_of(figures_of(event, metric), metric) for event in validations}
