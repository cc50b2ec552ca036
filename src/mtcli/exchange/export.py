"""Export a model: write its folder for another library, and compare the translations.

The folder has all that the library needs: weights, tokenizer, default options of the search, and the origin of the
model (`mtcli.json`). For Argos Translate, it has one package that Argos Translate and LibreTranslate install. After the
folder is written, its translations of real sentences are compared with those of the run; the result is in
`parity.json`.
"""

import logging
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from mtcli import __version__
from mtcli.config.schema import Config, TokenizerConfig
from mtcli.corpus.held_out import ByDirection, read_directions
from mtcli.errors import DataError, ModelError, UsageError
from mtcli.exchange import argos, ctranslate2_model, huggingface, sentencepiece_model
from mtcli.model.transformer import Transformer
from mtcli.runtime.files import json_bytes, sha256
from mtcli.runtime.outputs import check_replaceable, folder_beside, real_path, whole_folder
from mtcli.runtime.wording import counted
from mtcli.search.length import penalty_formula
from mtcli.storage import PROVENANCE
from mtcli.storage.model_file import ModelInfo, load_model
from mtcli.storage.model_folder import run_of
from mtcli.text.languages import Direction
from mtcli.text.tokenizer.tokenizer import Tokenizer
from mtcli.translate.backends.backend import Backend
from mtcli.translate.backends.ctranslate2 import CTranslate2Backend
from mtcli.translate.backends.exported import FORMAT
from mtcli.translate.backends.pytorch import PyTorchBackend
from mtcli.translate.confidence import read_confidence
from mtcli.translate.translation import Options
from mtcli.translate.translator import ModelTranslator, Translator
from mtcli.translate.windows import Reading

TARGETS = ("ctranslate2", "huggingface", "argos")
"""The libraries to export to."""

MAX_POSITIONS = {
    "ctranslate2": ctranslate2_model.MAX_POSITIONS,
    "huggingface": huggingface.MAX_POSITIONS,
    "argos": ctranslate2_model.MAX_POSITIONS,
}
"""Number of positions of the exported model."""

log = logging.getLogger(__name__)

MAX_DIFFERENCES = 20
"""Differences that `parity.json` lists."""

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


def obstacles(config: Config, target: str) -> list[str]:
    """Return the settings that prevent exporting a model of this configuration, each with the reason.

    Args:
        config: The configuration of a run, trained or not.
        target: One of `TARGETS`.
    """
    model = config.model
    found = []
    d_head = model.d_model // model.num_heads
    for name in ("d_k", "d_v"):
        size = getattr(model, name)
        if size not in (None, d_head):
            found.append(f"model.{name} = {size}: {target} knows only heads of d_model / num_heads = {d_head}")
    if target == "argos" and config.tokenizer.type == "word":
        found.append(sentencepiece_model.NO_WORDS)
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
class TranslationDifference:
    """A sentence that the two models translate differently, and the score that each gives its own translation."""

    source: str
    ours: str
    exported: str
    our_score: float
    exported_score: float


@dataclass(frozen=True)
class Parity:
    """How far an exported model and the original agree on the same sentences: the content of `parity.json`."""

    sentences: int
    """Sentences compared."""
    equal: int
    """Sentences with the same translation."""
    beam_size: int
    length_penalty: float
    max_score_difference: float
    """The largest difference of the scores of equal translations."""
    differences: tuple[TranslationDifference, ...]
    """The first `MAX_DIFFERENCES`."""
    score: str
    """The definition of the scores."""

    def __str__(self) -> str:
        """Return a summary on one line."""
        search = f"beam {self.beam_size}" if self.beam_size > 1 else "greedy"
        return (
            f"checked on {counted(self.sentences, 'sentence')}: "
            f"{self.equal} of {self.sentences} translations equal those of the run ({search}); "
            f"their scores differ by at most {self.max_score_difference:.1e}"
        )


def compare(
    ours: Translator, exported: Translator, sources: Sequence[str], options: Options, *, quiet: bool = False
) -> Parity:
    """Translate the same sentences with both models, and compare their best translations.

    Args:
        ours: The original model.
        exported: The exported model.
        sources: The sentences.
        options: Options of the search.
        quiet: Show no progress bar.
    """
    num = len(sources)
    our_translations = list(ours.translate(sources, options, Reading(total=num, warn=False, quiet=quiet)))
    exported_translations = list(exported.translate(sources, options, Reading(total=num, warn=False, quiet=quiet)))
    differences = []
    max_score_difference = 0.0
    for our_translation, exported_translation in zip(our_translations, exported_translations, strict=True):
        a = our_translation.candidates[0]
        b = exported_translation.candidates[0]
        if a.text == b.text:
            max_score_difference = max(max_score_difference, abs(a.score - b.score))
        else:
            differences.append(TranslationDifference(our_translation.source, a.text, b.text, a.score, b.score))
    penalty = penalty_formula(options.length_penalty, options.length_normalization)
    return Parity(
        sentences=len(sources),
        equal=len(sources) - len(differences),
        beam_size=options.beam_size,
        length_penalty=options.length_penalty,
        max_score_difference=max_score_difference,
        differences=tuple(differences[:MAX_DIFFERENCES]),
        score=f"log P(y | x) / {penalty}, n tokens with </s>; greedy: log P(y | x)",
    )


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


def together(found: Sequence[Parity]) -> Parity:
    """Return several comparisons as one."""
    return replace(
        found[0],
        sentences=sum(each.sentences for each in found),
        equal=sum(each.equal for each in found),
        max_score_difference=max(each.max_score_difference for each in found),
        differences=tuple(difference for each in found for difference in each.differences)[:MAX_DIFFERENCES],
    )


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
    held_out = _held_out(model)
    about = export_details(model, info, target, quantization)
    confidence = read_confidence(model)
    if confidence is not None:
        about["confidence"] = confidence.model_dump(mode="json")
    if target == "argos":
        about["tokenizer_pairs"] = _check_sentencepiece(tokenizer, held_out, model)
    with whole_folder(out) as folder:
        write_model(weights, info, tokenizer, folder, about)
        parity = _compare_with_original(PyTorchBackend(weights, tokenizer, info), folder, target, held_out, model)
        if parity is not None:
            (folder / "parity.json").write_bytes(json_bytes(asdict(parity)))
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
) -> dict[str, Any]:
    """Write the files of the target, and `mtcli.json` with `about` and their checksums. Return what it has."""
    if about["to"] == "ctranslate2":
        ctranslate2_model.convert(weights, tokenizer, folder, about["quantization"])
        tokenizer.save(folder / "tokenizer.json")
    elif about["to"] == "argos":
        for direction in info.trained_directions:
            argos.convert(weights, direction, tokenizer, folder, about)
    else:
        huggingface.convert(weights, info, tokenizer, folder)
    checksums = {path.name: sha256(path) for path in sorted(folder.iterdir())}
    details = about | {"files": checksums}
    write_details(folder, details)
    return details


def _held_out(model: Path) -> list[ByDirection]:
    """Return the test pairs and the validation pairs of the model's run, if it has them."""
    splits = []
    for name in ("test", "valid"):
        with suppress(DataError):
            splits.append(read_directions(run_of(model), name))
    return splits


def _compare_with_original(
    ours: PyTorchBackend, folder: Path, target: str, held_out: Sequence[ByDirection], model: Path
) -> Parity | None:
    """Compare the exported model in `folder` with the original. None: not possible, for the reason in a warning."""
    info = ours.info
    tokenizer = ours.tokenizer
    sources = _sentences(held_out, tokenizer)
    if not sources:
        message = "not compared with the run: no test or valid sentence of at most %d tokens beside %s"
        log.warning(message, MAX_TOKENS, model)
        return None
    if target == "argos":
        found = []
        for direction in info.trained_directions:
            own = _sentences_of(direction, held_out, tokenizer) if info.directions else sources
            if own:
                found.append(_compare_package(ours, direction, folder, own))
        return together(found) if found else None
    max_target_tokens = MAX_POSITIONS[target] - 2  # without <s> and </s>
    options = Options.of(info.decode)
    options = replace(options, max_extra=min(options.max_extra, max_target_tokens - MAX_TOKENS))
    exported: Backend
    if target == "ctranslate2":
        options = replace(options, early_stopping=True)  # CTranslate2 has no other rule
        exported = CTranslate2Backend(folder, "cpu")
    else:
        options = replace(options, beam_size=1)
        try:
            exported = huggingface.Exported(folder, tokenizer, info)
        except ImportError:
            log.warning("not compared with the run: transformers (or sentencepiece) is not installed")
            return None
    return compare(ModelTranslator(ours), ModelTranslator(exported), sources, options)


def _compare_package(ours: Backend, direction: Direction, packages: Path, sources: Sequence[str]) -> Parity:
    """Unpack a package for Argos Translate, and compare its translations with ours by the search of Argos Translate."""
    package = packages / f"{argos.package_name(direction)}{argos.SUFFIX}"
    options = replace(argos.SEARCH, to=direction.tgt if ours.tokenizer.tags else "")
    with tempfile.TemporaryDirectory() as folder:
        installed = argos.install(package, Path(folder))
        exported = argos.Installed(installed, ours.tokenizer, ours.info)
        return compare(ModelTranslator(ours), ModelTranslator(exported), sources, options)


def _check_sentencepiece(tokenizer: Tokenizer, held_out: Sequence[ByDirection], model: Path) -> int:
    """Check that the SentencePiece model of a package splits and joins the held-out pairs as our tokenizer does.

    Returns:
        The number of pairs.

    Raises:
        UsageError: It does not, or there are no pairs to prove it; an imported tokenizer needs no proof.
    """
    pairs = [pair for split in held_out for of_direction in split.values() for pair in of_direction]
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


def _sentences(held_out: Sequence[ByDirection], tokenizer: Tokenizer) -> Sequence[str]:
    """Return the sentences to compare on: short sources of the run, of each direction in turn."""
    split = held_out[0] if held_out else {}
    tagged = [
        (place, number, tokenizer.with_tag(src, direction.tgt))
        for number, (direction, pairs) in enumerate(split.items())
        for place, (src, _) in enumerate(pairs)
    ]
    return _short([src for _, _, src in sorted(tagged)], tokenizer)


def _sentences_of(direction: Direction, held_out: Sequence[ByDirection], tokenizer: Tokenizer) -> Sequence[str]:
    """Return the same of one direction, without tags."""
    of_splits = [split[direction] for split in held_out if direction in split]
    return _short([src for src, _ in of_splits[0]], tokenizer) if of_splits else []


def _short(sources: Sequence[str], tokenizer: Tokenizer) -> Sequence[str]:
    """Return the first `MAX_SENTENCES` sources with at most `MAX_TOKENS` tokens."""
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
    (folder / PROVENANCE).write_bytes(json_bytes(about))
