"""Export a model: write its folder for another library, and compare the translations.

The folder has all that the library needs: weights, tokenizer, default options of the search, and the origin of the
model (`mtcli.json`). For Argos Translate, it has one package that Argos Translate and LibreTranslate install. After the
folder is written, its translations of real sentences are compared with those of the run; the result is in
`parity.json`.
"""

import json
import logging
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from mtcli import __version__
from mtcli.config.schema import Config, TokenizerConfig
from mtcli.corpus.splits.split_files import read_split
from mtcli.errors import DataError, ModelError, UsageError
from mtcli.exchange import argos, ctranslate2_model, huggingface, sentencepiece_model
from mtcli.exchange.targets import MAX_POSITIONS, TARGETS, obstacles
from mtcli.exchange.translation_check import Parity, compare
from mtcli.model.transformer import Transformer
from mtcli.runtime.outputs import check_replaceable, folder_beside, real_path, whole_folder
from mtcli.storage import PROVENANCE
from mtcli.storage.model_file import ModelInfo, load_model
from mtcli.storage.model_folder import run_of
from mtcli.text.tokenizer.tokenizer import Tokenizer
from mtcli.translate.backends.backend import Backend
from mtcli.translate.backends.ctranslate2 import CTranslate2Backend
from mtcli.translate.backends.exported import FORMAT, sha256
from mtcli.translate.backends.pytorch import PyTorchBackend
from mtcli.translate.translation import Options
from mtcli.translate.translator import Translator

log = logging.getLogger(__name__)

MAX_SENTENCES = 500
"""Sentences of the run's test (or validation) split that are compared."""

MAX_TOKENS = 500
"""Tokens of the longest sentence that is compared. Each target has positions for at least twice as many."""

ENOUGH_EQUAL = 0.95
"""Share of equal translations below which a warning is printed."""

EXPORTED_FILES = {PROVENANCE, "parity.json", *ctranslate2_model.FILES, *huggingface.FILES}
"""All files that an exported folder may have, besides a package for Argos Translate.

An export that replaces a folder deletes no others.
"""


def default_folder(model: Path, target: str) -> Path:
    """Return the folder of an export that names none: beside the run.

    That of a checkpoint is not in the folder of checkpoints, which `train --overwrite` deletes.

    Args:
        model: The folder of the run or checkpoint.
        target: One of `TARGETS`.
    """
    run = run_of(model)
    if run == model:
        return folder_beside(run, target)
    return folder_beside(run, f"{real_path(model).name}-{target}")


def export(model: Path, target: str, out: Path, quantization: str | None = None) -> Parity | None:
    """Export the model of a run folder or a checkpoint.

    Args:
        model: The folder of the run or checkpoint.
        target: One of `TARGETS`.
        out: The folder to write. An earlier export there is replaced.
        quantization: One of `ctranslate2.QUANTIZATIONS`, for ctranslate2 only; None: float32.

    Returns:
        How far its translations agree with those of the run. None: they were not compared, for the reason in a warning.

    Raises:
        UsageError: The target does not support this model, or `out` contains something else.
        ModelError: The folder has no usable model.
        LockedError: Another process is writing `out`.
        StorageError: `out` cannot be written.
    """
    _check_options(target, quantization)
    check_replaceable(out, "exported model", PROVENANCE, _is_exported_file)
    _check_source(model)
    weights, info, tokenizer = load_model(model)
    problems = obstacles(Config(model=info.model, tokenizer=TokenizerConfig(joint=info.joint)), target)
    if target == "argos":
        problems += sentencepiece_model.obstacles(tokenizer)
    if problems:
        raise UsageError(f"{model}: cannot be exported to {target}: {'; '.join(problems)}")
    about = export_details(model, info, target, quantization)
    if target == "argos":
        about["tokenizer_pairs"] = _check_sentencepiece(tokenizer, model)
    with whole_folder(out) as folder:
        write_model(weights, info, tokenizer, folder, about)
        parity = _compare_with_original(weights, info, tokenizer, folder, target, model)
        if parity is not None:
            _write_json(folder / "parity.json", asdict(parity))
    if parity is not None and parity.equal < ENOUGH_EQUAL * parity.sentences:
        _warn_about_differences(parity, quantization, out)
    return parity


def export_details(model: Path, info: ModelInfo, target: str, quantization: str | None = None) -> dict[str, Any]:
    """Return the content of `mtcli.json` but for the checksums, which `write_model` adds.

    Args:
        model: The folder of the run or checkpoint.
        info: The metadata of its model.
        target: One of `TARGETS`.
        quantization: See `export`.
    """
    return {
        "format": FORMAT,
        "mtcli": __version__,
        "run": run_of(model).resolve().name,
        "to": target,
        "quantization": quantization,
        "max_positions": MAX_POSITIONS[target],
        "model": info.model_dump(mode="json"),
    }


def _check_options(target: str, quantization: str | None) -> None:
    if target not in TARGETS:
        raise UsageError(f"--to {target}: choose from {', '.join(TARGETS)}")
    if quantization is None:
        return
    if target == "huggingface" or quantization not in ctranslate2_model.QUANTIZATIONS:
        choices = ", ".join(ctranslate2_model.QUANTIZATIONS)
        raise UsageError(f"--quantization {quantization}: choose from {choices}, with --to ctranslate2 or argos")


def _is_exported_file(name: str) -> bool:
    """Return True if an exported folder may have a file of this name."""
    return name in EXPORTED_FILES or name.endswith(argos.SUFFIX)


def _check_source(model: Path) -> None:
    """Refuse a path that is not the folder of a run, a checkpoint or a model. `load_model` checks the model itself."""
    remedy = "give the folder of a run or of one of its checkpoints, or train a model with `mtcli train`"
    if not model.exists():
        raise ModelError(f"{model}: no such folder; {remedy}")
    if not model.is_dir():
        raise ModelError(f"{model}: is a file; {remedy}")
    names = ("model.safetensors", "config.toml", PROVENANCE)
    if not any((model / name).exists() for name in names):
        raise ModelError(f"{model}: no model here; {remedy}")


def write_model(
    weights: Transformer, info: ModelInfo, tokenizer: Tokenizer, folder: Path, about: dict[str, Any]
) -> None:
    """Write the files of the target, and `mtcli.json` with `about` and their checksums."""
    if about["to"] == "ctranslate2":
        ctranslate2_model.convert(weights, tokenizer, folder, about["quantization"])
        tokenizer.save(folder / "tokenizer.json")
    elif about["to"] == "argos":
        argos.convert(weights, info, tokenizer, folder, about)
    else:
        huggingface.convert(weights, info, tokenizer, folder)
    checksums = {path.name: sha256(path) for path in sorted(folder.iterdir())}
    write_details(folder, about | {"files": checksums})


def _compare_with_original(
    weights: Transformer, info: ModelInfo, tokenizer: Tokenizer, folder: Path, target: str, model: Path
) -> Parity | None:
    """Compare the exported model in `folder` with the original. None: not possible, for the reason in a warning."""
    sources = _sentences(model, tokenizer)
    if not sources:
        message = "not compared with the run: no test or valid sentence of at most %d tokens beside %s"
        log.warning(message, MAX_TOKENS, model)
        return None
    max_target_tokens = MAX_POSITIONS[target] - 2  # without <s> and </s>
    options = Options.of(info.decode)
    options = replace(options, max_extra=min(options.max_extra, max_target_tokens - MAX_TOKENS))
    ours = PyTorchBackend(weights, tokenizer, info.longest_src)
    exported: Backend
    if target == "argos":
        return _compare_package(ours, folder / f"{argos.package_name(info)}{argos.SUFFIX}", sources)
    if target == "ctranslate2":
        options = replace(options, early_stopping=True)  # CTranslate2 has no other rule
        exported = CTranslate2Backend(folder, "cpu")
    else:
        options = replace(options, beam_size=1)
        try:
            exported = huggingface.Exported(folder, tokenizer, info.longest_src)
        except ImportError:
            log.warning("not compared with the run: transformers (or sentencepiece) is not installed")
            return None
    return compare(Translator(ours), Translator(exported), sources, options)


def _compare_package(ours: Backend, package: Path, sources: Sequence[str]) -> Parity:
    """Unpack a package for Argos Translate, and compare its translations with ours by the search of Argos Translate."""
    with tempfile.TemporaryDirectory() as folder:
        installed = argos.install(package, Path(folder))
        exported = argos.Installed(installed, ours.tokenizer, ours.longest_src)
        return compare(Translator(ours), Translator(exported), sources, argos.SEARCH)


def _check_sentencepiece(tokenizer: Tokenizer, model: Path) -> int:
    """Check that the SentencePiece model of a package splits and joins the held-out pairs as our tokenizer does.

    Returns:
        The number of pairs.

    Raises:
        UsageError: It does not, or there are no pairs to prove it; an imported tokenizer needs no proof.
    """
    pairs = [*_held_out(model, "test"), *_held_out(model, "valid")]
    if not pairs and tokenizer.sentencepiece is None:
        raise UsageError(
            f"{model}: cannot be exported to argos: there are no test or valid pairs beside it to prove that "
            "SentencePiece splits text as its tokenizer does; export the run or one of its checkpoints"
        )
    try:
        sentencepiece_model.check(sentencepiece_model.to_sentencepiece(tokenizer), tokenizer, pairs)
    except UsageError as error:
        raise UsageError(f"{model}: cannot be exported to argos: {error}") from None
    return len(pairs)


def _held_out(model: Path, split: str) -> Sequence[tuple[str, str]]:
    """Return the pairs of a split of the model's run; none if there is no such split."""
    try:
        return read_split(run_of(model), split)
    except DataError:
        return []


def _sentences(model: Path, tokenizer: Tokenizer) -> Sequence[str]:
    """Return the sentences to compare on: sources of the model's run with at most `MAX_TOKENS` tokens."""
    pairs = _held_out(model, "test") or _held_out(model, "valid")
    sources = [src for src, _ in pairs]
    lengths = [len(ids) for ids in tokenizer.encode_src(sources)]
    short = [src for src, length in zip(sources, lengths, strict=True) if length <= MAX_TOKENS]
    return short[:MAX_SENTENCES]


def _warn_about_differences(parity: Parity, quantization: str | None, out: Path) -> None:
    reasons = "an undertrained model whose best translations have nearly equal scores"
    if quantization not in (None, "float32"):
        reasons += f", the rounding to {quantization}"
    log.warning(
        "only %d of %d translations equal those of the run: possible reasons are %s, or a faulty export; "
        "see the differences in %s",
        parity.equal,
        parity.sentences,
        reasons,
        out / "parity.json",
    )


def write_details(folder: Path, about: dict[str, Any]) -> None:
    """Write the `mtcli.json` of an exported model."""
    _write_json(folder / PROVENANCE, about)


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
