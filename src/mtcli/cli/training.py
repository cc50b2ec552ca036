"""`mtcli train` and `mtcli average`."""

import logging
import os
import shlex
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from mtcli import limits
from mtcli.cli.options import LATEST, DeviceOption, ReplaceOption, bounded, flag, note
from mtcli.errors import DataError, LockedError, ModelError, UsageError

log = logging.getLogger(__name__)


def train(
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="[CONFIG.toml|PAIRS]",
            help="A configuration file, or training pairs; without either, the built-in demo is trained.",
        ),
    ] = None,
    train: Annotated[
        list[str] | None,
        typer.Option(
            "--train",
            metavar="PATH[@WEIGHT]",
            help="Training pairs, with an optional sampling weight; repeat it for several corpora.",
        ),
    ] = None,
    valid: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="Validation pairs.", show_default="held out of the training pairs"),
    ] = None,
    test: Annotated[
        str | None, typer.Option(metavar="PATH", help="Test pairs.", show_default="held out of the training pairs")
    ] = None,
    src: Annotated[
        str | None,
        typer.Option(
            metavar="CODE",
            help="Source language code, as in file and column names.",
            show_default="from the names of files and columns",
        ),
    ] = None,
    tgt: Annotated[
        str | None,
        typer.Option(metavar="CODE", help="Target language code.", show_default="from the names of files and columns"),
    ] = None,
    swap: Annotated[bool | None, flag("--swap", help="Swap source and target.")] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="The run folder to write, or to resume.", show_default="runs/demo or runs/NAME-SRC-TGT"
        ),
    ] = None,
    init: Annotated[
        Path | None, typer.Option(metavar="MODEL", help="Fine-tune: start from the weights and tokenizer of this run.")
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            metavar="tiny|small|base|big", help="Size of the model.", show_default="by number of pairs and budget"
        ),
    ] = None,
    time: Annotated[
        str | None,
        typer.Option(metavar="30m", help="Time budget for everything, scoring included, such as 45s, 30m or 2h30m."),
    ] = None,
    max_steps: Annotated[
        int | None,
        typer.Option(metavar="N", help="Budget of steps.", show_default="by number of pairs, unless --time is given"),
    ] = None,
    tokenize: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The tokenizer that sacrebleu uses for BLEU.",
            show_default="by target language, usually 13a",
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="section.key=value", help="Any setting of config.toml; repeat it for several."),
    ] = None,
    replace: ReplaceOption = False,
    device: DeviceOption = "auto",
    overwrite: Annotated[
        bool, flag("--overwrite", help="Delete the run in the folder and start from scratch.")
    ] = False,
    dry_run: Annotated[
        bool, flag("--dry-run", help="Print the plan (sizes, memory, speed, expected end) without training.")
    ] = False,
) -> None:
    """Train a model, or resume if it was interrupted. Without arguments, train the built-in demo."""
    from time import monotonic

    started = monotonic()  # before PyTorch is loaded, which a budget of time counts too
    from mtcli.config.build import build
    from mtcli.runtime import torchrun
    from mtcli.runtime.device import pick_device
    from mtcli.runtime.output_checks import check_folder
    from mtcli.training.run import train as run_training

    is_config = what is not None and what.lower().endswith((".toml", ".yaml", ".yml"))  # YAML is refused as such
    config = Path(what) if what is not None and is_config else None
    corpora = [what, *(train or ())] if what is not None and config is None else train
    options = {
        "data.train": corpora or None,
        "data.valid": valid,
        "data.test": test,
        "data.src": src,
        "data.tgt": tgt,
        "data.swap": swap,
        "data.replace": replace or None,
        "preset": preset,
        "train.time": time,
        "train.max_steps": max_steps,
        "train.bleu_tokenizer": tokenize,
    }
    initial = _shape_of(init) if init else None
    settings = build(config, options, set_ or (), initial=initial)
    if found := _languages_of(settings.data):
        settings = build(config, {**options, **found}, set_ or (), initial=initial)
    run = out or _default_run(settings.data, config)
    if run != Path(os.fsencode(run).decode(errors="replace")):
        raise UsageError(f"--out {run}: not valid Unicode, as a run folder's name must be; choose another")
    check_folder(run, _inputs(settings, init if overwrite else None), option="--out")
    if dry_run:
        from mtcli.report.plan import table
        from mtcli.training.dry_run import dry_run as tell

        for row in tell(settings, run, pick_device(device), init=init, overwrite=overwrite):
            print(table([row]), flush=True)
        return
    refused = False
    try:
        run_training(settings, run, pick_device(device), init=init, overwrite=overwrite, started=started)
    except (UsageError, DataError, ModelError, LockedError):
        refused = True
        raise
    finally:
        if not refused and (run / "model.safetensors").exists() and torchrun.rank() == 0:
            _remember(run)


def _shape_of(model: Path) -> dict[str, Any]:
    """What a run that starts from a model has in common with it, unless told otherwise."""
    from mtcli.storage.model_file import load_model

    _, info, _ = load_model(model)
    shape = info.model.model_dump(exclude={"dropout"}, exclude_none=True)
    return {"data.src": info.src, "data.tgt": info.tgt, **{f"model.{name}": value for name, value in shape.items()}}


def _inputs(settings: Any, init: Path | None) -> list[Path]:
    """The local files that training reads; none of pairs where one is missing, which training itself reports."""
    from mtcli.data.fingerprints import input_files

    model = [init / "model.safetensors"] if init else []
    try:
        return model + input_files(settings)
    except DataError:
        return model


def _languages_of(data: Any) -> dict[str, str]:
    """The languages that nobody gave, by what the training pairs are called; the demo has its own."""
    from mtcli.data.language_guess import guess_languages
    from mtcli.data.sources import parse_source
    from mtcli.runtime import torchrun

    src, tgt = (getattr(data, side) if side in data.model_fields_set else None for side in ("src", "tgt"))
    if not data.train or (src is not None and tgt is not None):
        return {}
    guess = guess_languages([parse_source(spec).path for spec in data.train], src, tgt)
    if torchrun.rank() == 0:
        log.info("languages: %s → %s, %s; --src and --tgt choose others", guess.src, guess.tgt, guess.where)
    return {"data.src": guess.src, "data.tgt": guess.tgt}


def _default_run(data: Any, config: Path | None) -> Path:
    from mtcli.storage.run_name import default_run

    run, earlier = default_run(data, config)
    if earlier:
        log.info("%s holds a run of this data from an earlier version; it is used", run)
    return run


def _remember(run: Path) -> None:
    """Point `runs/latest` at this run; warn where that is no link, or cannot be written: the training counts."""
    if LATEST.exists() and not LATEST.is_symlink():
        if not LATEST.samefile(run):
            _warn_of_latest(run, "it is no link; move it away")
        return
    aside = LATEST.with_name(f".latest-{os.getpid()}")
    try:
        LATEST.parent.mkdir(parents=True, exist_ok=True)
        aside.unlink(missing_ok=True)
        aside.symlink_to(os.path.relpath(os.path.realpath(run), os.path.realpath(LATEST.parent)))
        aside.replace(LATEST)
    except OSError as error:
        with suppress(OSError):
            aside.unlink(missing_ok=True)
        _warn_of_latest(run, error.strerror or str(error))


def _warn_of_latest(run: Path, reason: str) -> None:
    logging.getLogger(__name__).warning(
        "%s does not lead to this run (%s); name the run: --model %s", LATEST, reason, run
    )


def average(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="[RUN]", envvar="MTCLI_MODEL", help="A run folder. The default is the run trained last."
        ),
    ] = LATEST,
    n: Annotated[
        int | None,
        bounded("-n", within=limits.CHECKPOINTS, help="How many checkpoints.", show_default="5, or all if fewer"),
    ] = None,
    best: Annotated[
        bool,
        typer.Option("--best/--last", help="Take the checkpoints with the highest validation scores, or the newest."),
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="DIR", help="The model folder to write.", show_default="RUN-average"),
    ] = None,
) -> None:
    """Average the weights of checkpoints of a run into a new model (§6.1 of the paper).

    Training does this at its end, and keeps the average if it is better.
    """
    from mtcli.report.messages import command
    from mtcli.runtime.output_checks import check_folder
    from mtcli.training.averaging import average_run

    run = Path(os.path.realpath(run)) if run.is_symlink() else run
    out = output or run.with_name(f"{run.name}-average")
    check_folder(out)
    steps = average_run(run, out, n, best=best)
    found = ", ".join(f"{step:,}" for step in steps)
    plural = "s" * (len(steps) > 1)
    note(f"averaged {len(steps)} checkpoint{plural} (step{plural} {found}) into {out}")
    note(f"compare: {command('eval', run, '--compare', shlex.quote(str(out)))}")
