"""Averaging of checkpoints (§6.1): the mean of the weights of several moments of one training run."""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from torch import nn

from mtcli.errors import ModelError, UsageError
from mtcli.runtime import files
from mtcli.runtime.regular_file import check_regular
from mtcli.storage import checkpoint, model_file
from mtcli.storage.events import read_events
from mtcli.storage.model_file import averaged_bytes, mean_parameters

MOST = 5
"""Checkpoints that are averaged unless a number is given, as in the paper."""


@contextmanager
def weights_of(model: nn.Module, paths: Sequence[Path]) -> Iterator[None]:
    """Meanwhile, the model has the mean weights of these checkpoints.

    Raises:
        ModelError: One is damaged.
    """
    own = {name: tensor.clone() for name, tensor in model_file.parameters(model).items()}
    model_file.set_parameters(model, mean_parameters(paths), paths[0].parent)
    try:
        yield
    finally:
        model_file.set_parameters(model, own, paths[0].parent)


def average_run(run: Path, out: Path, n: int | None = None, *, best: bool = False) -> list[int]:
    """Average checkpoints of a run into a model folder that `translate`, `eval` and `--init` take.

    Args:
        run: The run folder.
        out: A new folder, or one that this wrote before.
        n: How many checkpoints; None: MOST, or as many as there are, at least two.
        best: Those with the highest score on the validation pairs; otherwise the newest. The score is the one that
            selected the run's model: BLEU, or chrF for languages without spaces.

    Returns:
        The steps averaged, in order.

    Raises:
        ModelError: It is no run, or there are not so many whole checkpoints, or they do not fit together.
        UsageError: `out` holds something else.
        StorageError: `out` cannot be written.
    """
    if not (run / "checkpoints").is_dir():
        raise ModelError(f"{run}: no run here; name the folder of a run that `mtcli train` made")
    folders = {checkpoint.step_of(p): p for p in checkpoint.steps(run / "checkpoints") if not checkpoint.verify(p)}
    candidates = sorted(folders)
    if best:
        scores = _valid_scores(run / "metrics.jsonl")
        candidates = sorted((step for step in candidates if step in scores), key=lambda step: (scores[step], step))
    wanted = n or max(2, min(len(candidates), MOST))
    if len(candidates) < wanted:
        kind = "validated, whole" if best else "whole"
        found = f"{len(candidates)} {kind} checkpoint{'s' * (len(candidates) != 1)}, and {wanted} are needed"
        raise ModelError(f"{run}: has {found}; train longer, or with a larger --set train.keep")
    chosen = sorted(candidates[-wanted:])
    if out.exists() and (not out.is_dir() or {p.name for p in out.iterdir()} - set(_WRITTEN)):
        raise UsageError(f"{out}: holds something else; choose another --output")
    _, info, tokenizer = model_file.load_model(folders[chosen[-1]])
    tensors = mean_parameters([folders[step] for step in chosen])
    with files.storage_errors(out):
        (out / "data").mkdir(parents=True, exist_ok=True)
        for name in ("valid.jsonl", "test.jsonl"):
            if (run / "data" / name).exists():
                _copy(run / "data" / name, out / "data" / name)
    files.replace_file(out / "tokenizer.json", tokenizer.to_json().encode())
    files.replace_file(out / "model.safetensors", averaged_bytes(tensors, info, chosen))
    return chosen


def _copy(source: Path, target: Path) -> None:
    """Copy a file of a run.

    Raises:
        ModelError: It is no regular file.
    """
    try:
        check_regular(source)
    except OSError as error:
        raise ModelError(f"{source}: cannot read it ({error.strerror}); move it away") from None
    target.unlink(missing_ok=True)  # never written through a link
    shutil.copyfile(source, target)


_WRITTEN = ("data", "model.safetensors", "tokenizer.json")


def _valid_scores(path: Path) -> dict[int, float]:
    """The selecting score by step of the validations in `metrics.jsonl`.

    Raises:
        ModelError: The file is missing or damaged.
    """
    events, damaged = read_events(path)
    if damaged:
        raise ModelError(f"{path}: has {damaged} damaged lines; use --last")
    return {event["step"]: event[event.get("metric", "bleu")] for event in events if event["event"] == "valid"}
