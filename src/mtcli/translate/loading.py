"""Load a model for translating, with the library that it is for."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from mtcli.errors import ModelError, UsageError
from mtcli.text.languages import Direction
from mtcli.translate.backends.backend import Backend
from mtcli.translate.backends.ctranslate2 import CTranslate2Backend
from mtcli.translate.backends.exported import GIVE_THE_RUN, provenance
from mtcli.translate.backends.run_engine import load_any_run_engine, load_run_engine
from mtcli.translate.confidence import read_confidence
from mtcli.translate.translation import Options, Rerank
from mtcli.translate.translator import ModelTranslator

if TYPE_CHECKING:
    from mtcli.translate.backends.pytorch import PyTorchBackend

ENGINES = ("auto", "torch", "ctranslate2")

NOTHING_GIVEN: Mapping[str, Any] = {}


class LoadedModel(NamedTuple):
    """A model that translates, or several that do so together."""

    translator: ModelTranslator
    options: Options
    """Its default options, with those that the user set; of several models, the first one decides the defaults."""
    languages: Direction
    """Its source and target language, of several the first ones."""


def load(
    folders: Sequence[Path], device: str = "auto", engine: str | None = None, given: Mapping[str, Any] = NOTHING_GIVEN
) -> LoadedModel:
    """Load one model, or several whose probabilities are averaged in each step of the search.

    Args:
        folders: Runs, checkpoints or, if it is the only one, an exported model.
        device: `auto`, `cpu`, `cuda` or `mps`.
        engine: `torch` or `ctranslate2`; None: `ctranslate2` for an exported model, otherwise `torch`; `auto`: also
            `ctranslate2` for a run whose engine can be used, see `run_engine`. Several models are loaded with PyTorch.
        given: The options that the user set, which decide whether the engine of a run can be used. See
            `Options.with_given`.

    Raises:
        ModelError: A folder has no usable model.
        UsageError: The engine or device does not exist, or the engine cannot combine models, or the models have
            different vocabularies or languages.
    """
    if engine not in (None, *ENGINES):
        raise UsageError(f"--engine {engine}: choose from {', '.join(ENGINES)}")
    folder = folders[0]
    is_one = len(folders) == 1
    is_exported = is_one and provenance(folder) is not None
    if engine == "ctranslate2" and not is_one:
        raise UsageError("--engine ctranslate2: takes one model; several are combined with PyTorch")
    if engine == "torch" and is_exported:
        raise ModelError(f"{folder}: an exported model, not for --engine torch; {GIVE_THE_RUN}")
    backend: Backend | None = None
    if is_exported:
        backend = CTranslate2Backend(folder, device)
    elif engine == "ctranslate2":
        backend = load_any_run_engine(folder, device)
    elif engine == "auto" and is_one:
        backend = load_run_engine(folder, device, Options().with_given(given))
    if backend is None:
        backend = load_with_pytorch(folders, device)
    translator = ModelTranslator(backend)
    if is_one:
        translator.confidence = read_confidence(folder)
    return LoadedModel(translator, backend.default_options.with_given(given), backend.info.languages)


def load_with_pytorch(folders: Sequence[Path], device: str) -> "PyTorchBackend":
    """Load one or several models, see `load`, with PyTorch."""
    # PyTorch takes seconds to import, and an exported model does not need it.
    from mtcli.runtime.device import pick_device
    from mtcli.translate.backends.pytorch import PyTorchBackend

    if len(folders) == 1:
        return PyTorchBackend.load(folders[0], pick_device(device))
    for folder in folders:
        if provenance(folder) is not None:
            raise ModelError(f"{folder}: an exported model cannot be combined with others; {GIVE_THE_RUN}")
    loaded = [PyTorchBackend.load(folder, pick_device(device)) for folder in folders]
    first = loaded[0]
    for folder, other in zip(folders, loaded, strict=True):
        if other.info.languages != first.info.languages:
            raise UsageError(
                f"{folder}: translates {other.info.languages}, and {folders[0]} {first.info.languages}; "
                "models are combined for one pair of languages"
            )
        if other.tokenizer.digest() != first.tokenizer.digest():
            raise UsageError(
                f"{folder}: has another vocabulary than {folders[0]}; combine models that were trained on the same "
                f"pairs with other seeds, from one model with --init, or with --set tokenizer.file={folders[0]}"
            )
    common = {
        "longest_src": min(each.info.longest_src for each in loaded),
        "usual_src": min(each.usual_src for each in loaded),
        "terms": all(each.info.terms for each in loaded),
    }
    info = first.info.model_copy(update=common)
    return PyTorchBackend(first.model, first.tokenizer, info, others=[each.model for each in loaded[1:]])


def load_reranker(folder: Path, weight: float | None, device: str, model: LoadedModel) -> Rerank:
    """Load a model of the reverse direction, to rerank the hypotheses of a translator.

    Args:
        folder: The run or checkpoint of the reverse model.
        weight: The weight of its log-probability; None: the default.
        device: See `load`.
        model: The model whose hypotheses it reranks, with the options of its search.

    Raises:
        ModelError: The folder has no usable model, or an exported one.
        UsageError: The model does not translate in the reverse direction, a model is multilingual, or the beam has
            only one hypothesis.
    """
    from mtcli.translate.scoring import DEFAULT_WEIGHT, Reranker

    if model.options.beam_size == 1:
        raise UsageError("--rerank: a beam of 1 has nothing to rerank; give -b 4 or more")
    if provenance(folder) is not None:
        raise ModelError(f"{folder}: an exported model, not for --rerank; {GIVE_THE_RUN}")
    reverse = load_with_pytorch([folder], device)
    if model.options.to or reverse.tokenizer.tags:
        raise UsageError(f"--rerank {folder}: not with a model that translates into several languages")
    found = reverse.info.languages
    needed = model.languages.reversed()
    if found != needed:
        raise UsageError(f"--rerank {folder}: translates {found}; give a model that translates {needed}")
    return Reranker(reverse, DEFAULT_WEIGHT if weight is None else weight).rerank
