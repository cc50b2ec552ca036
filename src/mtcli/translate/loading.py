"""Load a model for translating, with the library that it is for."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mtcli.errors import ModelError, UsageError
from mtcli.translate.backends.ctranslate2 import CTranslate2Backend
from mtcli.translate.backends.exported import GIVE_THE_RUN, provenance
from mtcli.translate.backends.run_engine import load_any_run_engine, load_run_engine
from mtcli.translate.confidence import read_confidence
from mtcli.translate.translation import Options
from mtcli.translate.translator import ModelTranslator

if TYPE_CHECKING:
    from mtcli.translate.backends.pytorch import PyTorchBackend
    from mtcli.translate.scoring import Reranker

ENGINES = ("auto", "torch", "ctranslate2")

NO_OPTIONS = Options()


def load(
    folder: Path, device: str = "auto", engine: str | None = None, options: Options = NO_OPTIONS
) -> tuple[ModelTranslator, Options, tuple[str, str]]:
    """Load one model, see `load_ensemble`."""
    return load_ensemble([folder], device, engine, options)


def load_ensemble(
    folders: Sequence[Path], device: str = "auto", engine: str | None = None, options: Options = NO_OPTIONS
) -> tuple[ModelTranslator, Options, tuple[str, str]]:
    """Load one model, or several whose probabilities are averaged in each step of the search.

    Args:
        folders: Runs, checkpoints or, if it is the only one, an exported model.
        device: `auto`, `cpu`, `cuda` or `mps`.
        engine: `torch` or `ctranslate2`; None: `ctranslate2` for an exported model, otherwise `torch`; `auto`: also
            `ctranslate2` for a run whose engine can be used, see `run_engine`. Several models are loaded with PyTorch.
        options: The options that the user set, which decide whether the engine of a run can be used.

    Returns:
        The translator, the model's default options, and its source and target language. Of several models, the first
        one decides the default options.

    Raises:
        ModelError: A folder has no usable model.
        UsageError: The engine or device does not exist, or the engine cannot combine models, or the models have
            different vocabularies or languages.
    """
    first, *others = folders
    if others and engine == "ctranslate2":
        raise UsageError("--engine ctranslate2: takes one model; several are combined with PyTorch")
    if not others:
        if engine not in (None, *ENGINES):
            raise UsageError(f"--engine {engine}: choose from {', '.join(ENGINES)}")
        is_exported = provenance(first) is not None
        backend: CTranslate2Backend | None = None
        if is_exported and engine != "torch":
            backend = CTranslate2Backend(first, device)
        elif engine == "ctranslate2":
            backend = load_any_run_engine(first, device)
        elif engine == "auto":
            backend = load_run_engine(first, device, options)
        if backend is not None:
            translator = ModelTranslator(backend)
            translator.confidence = read_confidence(first)
            return translator, backend.defaults, backend.languages
        if is_exported:
            raise ModelError(f"{first}: an exported model, not for --engine torch; {GIVE_THE_RUN}")
    pytorch, defaults, languages = load_with_pytorch(folders, device)
    translator = ModelTranslator(pytorch)
    if not others:
        translator.confidence = read_confidence(first)
    return translator, defaults, languages


def load_with_pytorch(folders: Sequence[Path], device: str) -> tuple["PyTorchBackend", Options, tuple[str, str]]:
    """Load one or several models, see `load_ensemble`, with PyTorch."""
    # PyTorch takes seconds to import, and an exported model does not need it.
    from mtcli.runtime.device import pick_device
    from mtcli.translate.backends.pytorch import PyTorchBackend

    first, *others = folders
    if not others:
        return PyTorchBackend.load(first, pick_device(device))
    for folder in folders:
        if provenance(folder) is not None:
            raise ModelError(f"{folder}: an exported model cannot be combined with others; {GIVE_THE_RUN}")
    loaded = [PyTorchBackend.load(folder, pick_device(device)) for folder in folders]
    backend, defaults, languages = loaded[0]
    for folder, (other, _, other_languages) in zip(folders, loaded, strict=True):
        if other_languages != languages:
            raise UsageError(
                f"{folder}: translates {' → '.join(other_languages)}, and {first} {' → '.join(languages)}; "
                "models are combined for one pair of languages"
            )
        if other.tokenizer.digest() != backend.tokenizer.digest():
            raise UsageError(
                f"{folder}: has another vocabulary than {first}; combine models that were trained on the same "
                f"pairs with other seeds, from one model with --init, or with --set tokenizer.file={first}"
            )
    members = [other.model for other, _, _ in loaded]
    longest_src = min(other.longest_src for other, _, _ in loaded)
    together = PyTorchBackend(members[0], backend.tokenizer, longest_src, others=members[1:])
    together.usual_src = min(other.usual_src for other, _, _ in loaded)
    together.trained_with_terms = all(other.trained_with_terms for other, _, _ in loaded)
    together.bleu_tokenizer = backend.bleu_tokenizer
    together.directions = backend.directions
    return together, defaults, languages


def load_reranker(
    folder: Path, weight: float | None, device: str, languages: tuple[str, str], options: Options
) -> "Reranker":
    """Load a model of the reverse direction, to rerank the hypotheses of a translator.

    Args:
        folder: The run or checkpoint of the reverse model.
        weight: The weight of its log-probability; None: the default.
        device: See `load`.
        languages: Source and target language of the translator.
        options: Options of its search.

    Raises:
        ModelError: The folder has no usable model, or an exported one.
        UsageError: The model does not translate in the reverse direction, a model is multilingual, or the beam has
            only one hypothesis.
    """
    from mtcli.translate.scoring import DEFAULT_WEIGHT, Reranker

    if options.beam_size == 1:
        raise UsageError("--rerank: a beam of 1 has nothing to rerank; give -b 4 or more")
    if provenance(folder) is not None:
        raise ModelError(f"{folder}: an exported model, not for --rerank; {GIVE_THE_RUN}")
    reverse, _, (src, tgt) = load_with_pytorch([folder], device)
    if options.to or reverse.tokenizer.tags:
        raise UsageError(f"--rerank {folder}: not with a model that translates into several languages")
    if (tgt, src) != languages:
        needed = " → ".join(reversed(languages))
        raise UsageError(f"--rerank {folder}: translates {src} → {tgt}; give a model that translates {needed}")
    return Reranker(reverse, DEFAULT_WEIGHT if weight is None else weight)
