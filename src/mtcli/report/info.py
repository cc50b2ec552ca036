"""Describe a folder for `mtcli info`: a run, a checkpoint, or an averaged, exported or imported model.

No weights are loaded. A checkpoint is undamaged ("whole") if its files agree with its manifest.
"""

import json
import math
import os
import shlex
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from mtcli.config.schema import TrainConfig
from mtcli.config.scores import SELECTION_NAMES
from mtcli.config.toml_file import load as load_config
from mtcli.corpus.cache.info import DataInfo
from mtcli.corpus.cache.training_sources import training_sources
from mtcli.errors import ModelError, MtcliError
from mtcli.report.plan import describe_counts, describe_sources, describe_transfer, size
from mtcli.runtime.files import check_regular, read_regular
from mtcli.runtime.progress import clock
from mtcli.runtime.wording import command, counted, to_option
from mtcli.storage import ENGINE, ORIGIN, checkpoint, model_file
from mtcli.storage.events import Metrics, best_of
from mtcli.storage.model_folder import run_of, tokenizer_file
from mtcli.storage.state import State
from mtcli.text.tokenizer.tokenizer import Tokenizer
from mtcli.translate.backends.exported import provenance
from mtcli.translate.backends.run_engine import check_proven
from mtcli.translate.confidence import read_confidence

Json = dict[str, Any]
Row = tuple[str, str]

MEAN = "the mean of the checkpoints"


def summary(folder: Path) -> list[Row]:
    """Describe a folder as pairs of a heading and a text.

    Args:
        folder: A run, a checkpoint, an averaged model or an exported one, or a link to it.

    Raises:
        ModelError: It holds no run and no model of mtcli, or its model file or `config.toml` is damaged.
    """
    if folder.is_symlink():  # name the run itself: runs/latest is another run after the next training
        folder = Path(os.path.normpath(folder.parent / folder.readlink()))
    exported = provenance(folder)
    if exported is not None:
        return list(_exported(folder, exported))
    if (folder / ORIGIN).exists():
        return list(_imported(folder))
    if (folder / "metrics.jsonl").exists() or (folder / "config.toml").exists():
        return list(_run(folder))
    if (folder / "model.safetensors").exists():
        return list(_model(folder))
    raise ModelError(f"{folder}: no run and no model here; train one with `mtcli train`, or name its folder")


def _run(run: Path) -> Iterator[Row]:
    config = load_config(run / "config.toml")
    events, damaged = Metrics(run).read()
    problems = {path: checkpoint.verify(path) for path in checkpoint.steps(run / "checkpoints")}
    problems = {path: problem for path, problem in problems.items() if path.exists()}  # training may have deleted some
    undamaged = [path for path, problem in problems.items() if problem is None]
    state = State.of(undamaged[-1]) if undamaged else State()  # the state that training would resume from
    yield "run", f"{run}: {_status(state, events)}"
    model = run / "model.safetensors"
    if model.exists() or model.is_symlink():
        yield from _shape(model)
    else:
        yield "model", "none yet: the first validation writes it"
    if counts := [event for event in events if event["event"] == "data"]:
        corpora = ", ".join(config.data.specs) or "the built-in demo"
        yield "data", f"{corpora}: {describe_counts(counts[-1])}"
        yield from _corpora(run)
    yield "used", _used(state, config.train)
    if best := best_of(events):
        figures = f"BLEU {best['bleu']:.1f}, chrF {best['chrf']:.1f}, loss {best['loss']:.3f} nats per token"
        selected = f"step {best['step']:,}, selected by {SELECTION_NAMES[best['metric']]}"
        yield "best", f"{figures} (validation, greedy), {selected}"
    yield from _checkpoints(problems)
    if damaged:
        yield "damaged", f"{counted(damaged, 'line')} of metrics.jsonl"
    if (run / "report.html").exists():
        yield "report", f"{run / 'report.html'}"
    if model.exists():
        yield "engine", _engine(run)
        confidence = read_confidence(run)
        if confidence is not None:
            yield "confidence", f"calibrated on {counted(confidence.pairs, 'pair')}, beam {confidence.beam_size}"
    yield "on disk", _size_of(run)
    if not state.finished:
        yield "resume", "run the same `mtcli train` command again"
    if model.exists():
        yield from _uses(run)


def _corpora(run: Path) -> Iterator[Row]:
    """Describe the parent, and the training corpora unless there is one plain corpus.

    If the record of them is missing or damaged, nothing is described.
    """
    try:
        info = DataInfo.read(run)
        sources = training_sources(info)
    except (MtcliError, OSError, ValueError):
        return  # also if a corpus is in a folder that this user may not read
    for name, text in describe_sources(sources):
        yield "corpus", f"{name}: {text}"
    yield from describe_transfer(info.transfer)


def _engine(run: Path) -> str:
    """Return which library `mtcli translate` uses on a CPU, and why."""
    try:
        proof = check_proven(run)
    except MtcliError as error:
        if not (run / ENGINE).exists():
            return f"torch: {error}; if the model can have one, the same `mtcli train` command writes it"
        return f"torch: {error}"
    return f"ctranslate2 on a CPU: {proof}"


def _status(state: State, events: list[Json]) -> str:
    if state.finished:
        return f"finished at step {state.step:,} ({state.finished})"
    status = f"at step {state.step:,}, unfinished"
    last_step = max((event["step"] for event in events), default=0)
    if last_step > state.step:
        status += f" (figures up to step {last_step:,})"
    return status


def _used(state: State, train: TrainConfig) -> str:
    """Return the steps and the time that were used, and the budget."""
    text = f"{counted(state.step, 'step')} and {clock(state.seconds)}"
    limits = []
    if train.max_steps:
        limits.append(counted(train.max_steps, "step"))
    if train.time:
        limits.append(clock(train.time))
    if limits:
        text += f" of {' and '.join(limits)}"
    return text


def _model(folder: Path) -> Iterator[Row]:
    problem = None
    rows = list(_shape(folder / "model.safetensors"))
    kind = "model"
    if (folder / "manifest.json").exists():
        kind = "checkpoint"
        problem = checkpoint.verify(folder)
    elif dict(rows)["weights"].startswith(MEAN):
        kind = "average"
    yield kind, f"{folder}: damaged ({problem})" if problem else f"{folder}"
    yield from rows
    yield "on disk", _size_of(folder)
    if problem:
        yield "next", f"use another checkpoint; `mtcli info {shlex.quote(str(run_of(folder)))}` lists them"
    else:
        yield from _uses(folder)


def _imported(folder: Path) -> Iterator[Row]:
    path = folder / ORIGIN
    try:
        origin = json.loads(read_regular(path))
        weights = f"{origin['weights']['file']}, SHA-256 {str(origin['weights']['sha256'])[:16]}…"
        rows = [
            ("imported", f"{folder}: from {origin['source']}, by mtcli {origin['mtcli']}"),
            ("revision", str(origin["revision"] or "none, a local folder")),
            ("licence", str(origin["licence"] or "not named by the origin")),
            ("from file", weights),
        ]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ModelError(f"{path}: damaged ({error}); import the model again") from None
    yield from rows
    for heading, text in _shape(folder / "model.safetensors"):
        if heading != "weights":
            yield heading, text
    tags = Tokenizer.load(folder / "tokenizer.json").tags
    if tags:
        yield "targets", f"{', '.join(sorted(tags))} (--to)"
    yield "on disk", _size_of(folder)
    yield from _uses(folder)
    yield "fine-tune", f"mtcli train --init {shlex.quote(str(folder))} --train PAIRS --out DIR"


def _exported(folder: Path, about: Json) -> Iterator[Row]:
    target = about.get("to")
    precision = about.get("quantization") or "float32"
    yield "exported", f"{folder}: to {target} in {precision}, from {about.get('run')}, by mtcli {about['mtcli']}"
    yield from _model_rows(about.get("model"), folder)
    yield "parity", _parity(folder)
    yield "on disk", _size_of(folder)
    if target == "ctranslate2":
        yield from _uses(folder)
        yield "serve", command("serve", folder)
    elif target == "argos":
        if isinstance(about.get("tokenizer_pairs"), int):
            yield "tokenizer", f"SentencePiece, equal to that of the run on {about['tokenizer_pairs']:,} held-out pairs"
        packages = sorted(path.name for path in folder.glob("*.argosmodel"))
        for package in packages or ["missing"]:
            yield "use", f"argostranslate.package.install_from_path({str(folder / package)!r})"
    else:
        use = f"transformers.AutoModelForSeq2SeqLM.from_pretrained({str(folder)!r}), and AutoTokenizer in the same way"
        yield "use", use
    yield "explain", "explain and score need the run that this model was exported from"


def _parity(folder: Path) -> str:
    """Return how many translations of an exported model are equal to those of its run."""
    try:
        parity = json.loads(read_regular(folder / "parity.json"))
        return f"{int(parity['equal'])} of {int(parity['sentences'])} translations equal to those of the run"
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return "not compared with the run it is from"


def _shape(path: Path) -> Iterator[Row]:
    """Describe the model of a safetensors file."""
    about, parameters = _header(path)
    yield from _model_rows(about, path, parameters)


def _header(path: Path) -> tuple[Any, int]:
    """Return what the header of a safetensors file says about its model, and the number of its parameters.

    Raises:
        ModelError: It is not a model, or damaged.
    """
    from safetensors import SafetensorError, safe_open

    try:
        check_regular(path)
        with safe_open(path, framework="np") as file:
            about = json.loads((file.metadata() or {})["mtcli"])["info"]
            shapes = [file.get_slice(name).get_shape() for name in file.keys()]  # noqa: SIM118 - no mapping
    except (SafetensorError, OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ModelError(f"{path}: not a model of mtcli, or damaged ({error}); use a checkpoint instead") from None
    return about, sum(map(math.prod, shapes))


def _model_rows(about: Any, where: Path, parameters: int | None = None) -> Iterator[Row]:
    """Describe a model.

    Args:
        about: What should be a `ModelInfo`.
        where: The file or folder, for the error.
        parameters: Number of parameters, if it is known.

    Raises:
        ModelError: It is not a `ModelInfo`.
    """
    info = _info_of(about, where)
    model = info.model
    yield "languages", ", ".join(map(str, info.trained_directions))
    shape = (
        f"{model.num_encoder_layers} + {model.num_decoder_layers} layers, d_model {model.d_model}, d_ff {model.d_ff}, "
        f"{counted(model.num_heads, 'head')}, {model.norm}-norm, {model.positions} positions"
    )
    if parameters:
        shape += f"; {parameters:,} parameters"
    yield "model", shape
    if info.joint:
        yield "vocabulary", f"{info.tgt_vocab:,} tokens for both sides"
    else:
        yield "vocabulary", f"{info.src_vocab:,} source and {info.tgt_vocab:,} target tokens"
    steps = ", ".join(f"{step:,}" for step in info.averaged)
    yield "weights", f"{MEAN} of steps {steps}" if steps else f"of step {info.step:,}"


def _info_of(about: Any, where: Path) -> model_file.ModelInfo:
    """Return what should be a `ModelInfo`, see `_model_rows`."""
    try:
        return model_file.ModelInfo.model_validate(about)
    except ValueError:
        raise ModelError(f"{where}: not a model of this version of mtcli") from None


def _checkpoints(problems: dict[Path, str | None]) -> Iterator[Row]:
    whole = ", ".join(f"{checkpoint.step_of(path):,}" for path, problem in problems.items() if not problem)
    yield "checkpoints", f"whole: {whole}" if whole else "none is whole"
    for path, problem in problems.items():
        if problem:
            yield "damaged", f"the checkpoint of step {checkpoint.step_of(path):,}: {problem}"


def _size_of(folder: Path) -> str:
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):  # a running training deletes old checkpoints
                total += Path(parent, name).stat().st_size
    return size(total)


def targets_of(folder: Path) -> list[str]:
    """Return the target languages of a run, model or exported folder; none if it has no tags, or is damaged."""
    with suppress(ModelError):  # what is damaged is reported by the commands that need it
        tags = Tokenizer.load(tokenizer_file(folder)).tags
        if not tags:
            return []
        exported = provenance(folder)
        about = _header(folder / "model.safetensors")[0] if exported is None else exported.get("model")
        directions = _info_of(about, folder).directions
        return sorted({direction.tgt for direction in directions} or tags)
    return []


def _uses(folder: Path) -> Iterator[Row]:
    """Return the commands that use a model; `eval` only if there are test pairs."""
    yield "translate", command("translate", folder, *to_option(targets_of(folder)), '"…"')
    if (run_of(folder) / "data" / "test.jsonl").exists():
        yield "score", command("eval", folder)
