"""A trained model in the form that other programs run: a folder for CTranslate2 or for Hugging Face `transformers`.

The folder is complete in itself: weights, tokenizer, search defaults and where it comes from (`mtcli.json`). What was
written is then asked to translate real sentences beside our decoder, and `parity.json` holds the outcome.
"""

import json
import logging
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from mtcli import __version__
from mtcli.config.schema import Config, TokenizerConfig
from mtcli.data.prepare import read_split
from mtcli.data.tokenizer import Tokenizer
from mtcli.errors import DataError, UsageError
from mtcli.export import ctranslate2, huggingface
from mtcli.inference.ctranslate2_backend import Engine
from mtcli.inference.exported import FORMAT, sha256
from mtcli.inference.line_translator import LineTranslator, Options
from mtcli.inference.pytorch_backend import Translator
from mtcli.runtime.files import storage_errors
from mtcli.storage.model_file import load_model
from mtcli.storage.names import PROVENANCE

log = logging.getLogger(__name__)

TARGETS = ("ctranslate2", "huggingface")

SENTENCES = 500
"""Of the run's test (or validation) split that are translated twice, to compare."""

PIECES = 500
"""Longest of them, where the target has positions for as many."""

ENOUGH = 0.95
"""Share of equal translations below which a warning says so."""

SHOWN = 20
"""Differences that `parity.json` lists."""

WRITTEN = {PROVENANCE, "parity.json", *ctranslate2.FILES, *huggingface.FILES}
"""What an exported folder can hold, and all that an export in its place may delete."""


def obstacles(config: Config, target: str) -> list[str]:
    """The settings that keep a model of this configuration from being exported, each with the reason; none: it can be.

    Args:
        config: Of a run, trained or not.
        target: One of `TARGETS`.
    """
    model, found = config.model, []
    share = model.d_model // model.num_heads
    for name in ("d_k", "d_v"):
        if (size := getattr(model, name)) not in (None, share):
            found.append(f"model.{name} = {size}: {target} knows only heads of d_model / num_heads = {share}")
    if target == "huggingface":
        if model.norm == "pre":
            found.append("model.norm = pre: the Marian architecture is post-norm")
        if model.positions == "learned":
            found.append("model.positions = learned: the Marian architecture has sinusoids")
        if not model.tie_embeddings:
            found.append("model.tie_embeddings = false: Marian's output is its embedding")
        if not config.tokenizer.joint:
            found.append("tokenizer.joint = false: one tokenizer.json holds one vocabulary")
    return found


@dataclass(frozen=True)
class Difference:
    """A sentence that two decoders translate differently, and the score each gives its own translation."""

    source: str
    ours: str
    exported: str
    our_score: float
    exported_score: float


@dataclass(frozen=True)
class Parity:
    """How far an exported model and our decoder agree on the same sentences."""

    sentences: int
    equal: int
    beam_size: int
    length_penalty: float
    max_score_difference: float
    """Largest, over the equal translations."""
    differences: tuple[Difference, ...]
    score: str = "log P(y | x) / ((5 + n) / 6)^length_penalty, n pieces with </s>; greedy: log P(y | x)"

    def __str__(self) -> str:
        """One line."""
        how = f"beam {self.beam_size}" if self.beam_size > 1 else "greedy"
        return (
            f"{self.equal} of {self.sentences} translations equal ours ({how}); "
            f"their scores differ by at most {self.max_score_difference:.1e}"
        )


def parity(ours: LineTranslator, exported: LineTranslator, sources: Sequence[str], options: Options) -> Parity:
    """Translate the same lines with both."""
    first = list(ours.translate(sources, options, total=len(sources), warn=False))
    second = list(exported.translate(sources, options, total=len(sources), warn=False))
    differences, largest = [], 0.0
    for a, b in zip(first, second, strict=True):
        score, other = a.candidates[0].score, b.candidates[0].score
        if a.text == b.text:
            largest = max(largest, abs(score - other))
        else:
            differences.append(Difference(a.source, a.text, b.text, score, other))
    return Parity(
        sentences=len(first),
        equal=len(first) - len(differences),
        beam_size=options.beam_size,
        length_penalty=options.length_penalty,
        max_score_difference=largest,
        differences=tuple(differences[:SHOWN]),
    )


def export(model: Path, target: str, out: Path, quantization: str | None = None) -> Parity | None:
    """Export the model of a run folder or a checkpoint.

    Args:
        model: The folder.
        target: One of `TARGETS`.
        out: The folder to write; an earlier export in its place is replaced.
        quantization: For ctranslate2: `int8` and others; None: float32.

    Returns:
        How far it agrees with our decoder; None: there was nothing to compare with, as a warning says.

    Raises:
        UsageError: The target cannot hold this model, or `out` holds something else.
        ModelError: There is no usable model.
        StorageError: It cannot be written.
    """
    if target not in TARGETS:
        raise UsageError(f"--to {target}: choose from {', '.join(TARGETS)}")
    if quantization is not None and (target != "ctranslate2" or quantization not in ctranslate2.QUANTIZATIONS):
        raise UsageError(
            f"--quantization {quantization}: choose from {', '.join(ctranslate2.QUANTIZATIONS)}, with --to ctranslate2"
        )
    _check_replaceable(out)
    weights, info, tokenizer = load_model(model)
    config = Config(model=info.model, tokenizer=TokenizerConfig(joint=info.joint))
    if found := obstacles(config, target):
        raise UsageError(f"{model}: cannot be exported to {target}: {'; '.join(found)}")
    about: dict[str, Any] = {
        "format": FORMAT,
        "mtcli": __version__,
        "run": _run_of(model).name,
        "to": target,
        "quantization": quantization,
        "max_positions": (ctranslate2 if target == "ctranslate2" else huggingface).MAX_POSITIONS,
        "model": info.model_dump(mode="json"),
    }
    aside = out.with_name(f".{out.name}.tmp")  # not as checkpoints are named aside, beside which it may lie
    compared = None
    shutil.rmtree(aside, ignore_errors=True)
    try:
        with storage_errors(out):
            aside.mkdir(parents=True)
            if target == "ctranslate2":
                ctranslate2.convert(weights, tokenizer, aside, quantization)
                tokenizer.save(aside / "tokenizer.json")
            else:
                huggingface.convert(weights, info, tokenizer, aside)
            about["files"] = {path.name: sha256(path) for path in sorted(aside.iterdir())}
            _write(aside / PROVENANCE, about)
            ours, options = Translator(weights, tokenizer, info.longest_src), Options.of(info.decode)
            most = min(
                PIECES, about["max_positions"] - 2 - max(0, options.max_extra)
            )  # of a translation: <s>, </s> too
            if not (sources := _sentences(model, tokenizer, most)):
                log.warning(
                    "not compared with our decoder: no test or valid sentence of at most %d pieces beside %s",
                    most,
                    model,
                )
            elif target == "ctranslate2":
                compared = parity(ours, Engine(aside, "cpu"), sources, options)
            else:
                try:
                    exported = huggingface.Exported(aside, tokenizer, info.longest_src)
                    compared = parity(ours, exported, sources, replace(options, beam_size=1))
                except ImportError:
                    log.warning("not compared with our decoder: transformers is not installed")
            if compared is not None:
                _write(aside / "parity.json", asdict(compared))
            if out.exists():
                shutil.rmtree(out)
            aside.rename(out)
        if compared is not None and compared.equal < ENOUGH * compared.sentences:
            log.warning(
                "only %d of %d translations equal ours: an undertrained model whose scores are near-ties%s, "
                "or an export not to be used; differences are in %s",
                compared.equal,
                compared.sentences,
                f", the rounding to {quantization}" if quantization not in (None, "float32") else "",
                out / "parity.json",
            )
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return compared


def _run_of(model: Path) -> Path:
    """The folder of the run that a model belongs to: its own, or that of its checkpoint."""
    folder = model.resolve()
    return folder.parent.parent if (folder / "manifest.json").exists() else folder


def _check_replaceable(out: Path) -> None:
    """Refuse to replace anything but an earlier export, whole or damaged."""
    found = {p.name for p in out.iterdir()} if out.is_dir() else {out.name} if out.exists() else set()
    if found and PROVENANCE not in found:
        raise UsageError(f"{out}: is there already and holds no exported model; choose another --output")
    if stranger := min(found - WRITTEN, default=None):
        raise UsageError(f"{out}: holds {stranger}, which is no part of an exported model; choose another --output")


def _sentences(model: Path, tokenizer: Tokenizer, most: int) -> list[str]:
    """Real sentences of at most so many pieces to compare on: those beside a run or one of its checkpoints."""
    for run in (model, model.parent.parent):
        for split in ("test", "valid"):
            try:
                sources = [src for src, _ in read_split(run, split)]
            except DataError:
                continue
            lengths = map(len, tokenizer.encode_src(sources))
            return [src for src, n in zip(sources, lengths, strict=True) if n <= most][:SENTENCES]
    return []


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
