"""Translate with the engine of a run: its model for CTranslate2, which is used where it is proven equal to PyTorch.

Training writes the engine to `RUN/engine` at its end (`exchange/engine_export.py`). It is a model exported to
CTranslate2 in float32. Its `mtcli.json` has also a proof: how many translations of held-out sentences are equal with
both libraries, and the identity of the model that was converted. The engine starts in a fifth of the time, because it
does not import PyTorch. It is not used if

- the proof is missing or fails, or the run's model has changed since, or another version of CTranslate2 is installed;
- there is a GPU, on which PyTorch translates;
- an option is set that CTranslate2 does not support, or several translations are wanted: behind the best one, the two
  libraries may keep different hypotheses.

A translation that repeats itself is searched again by the engine too (`Translator`), although with a beam CTranslate2
may find other hypotheses where n-grams are blocked: PyTorch would have to be loaded for a few lines of a text.
"""

import logging
import shlex
import sys
from importlib.util import find_spec
from pathlib import Path

from pydantic import BaseModel, ValidationError

from mtcli.errors import ModelError, MtcliError
from mtcli.runtime.files import sha256
from mtcli.storage import ENGINE
from mtcli.storage.model_folder import ModelIdentity, has_identity
from mtcli.translate.backends.backend import Backend
from mtcli.translate.backends.ctranslate2 import CTranslate2Backend, import_ctranslate2, unsupported_options
from mtcli.translate.backends.exported import provenance
from mtcli.translate.translation import Options

log = logging.getLogger(__name__)

ENOUGH_EQUAL = 0.98
"""Share of equal translations from which an engine is proven. Others are near-ties of a beam search."""

MAX_BEAM = 16
"""Largest beam that the engine searches. Of wide beams, PyTorch checks the memory before."""

GPU_FILES = ("/dev/nvidiactl", "/dev/nvidia0", "/dev/nvhost-gpu", "/dev/nvgpu", "/dev/dxg", "/dev/kfd")
"""Device files of GPUs: NVIDIA, its Tegra systems, Windows Subsystem for Linux, AMD."""

MAX_SCORE_DIFFERENCE = 1e-3
"""Largest difference of the scores of equal translations with which an engine is proven; float32 has about 1e-5."""


class SearchComparison(BaseModel):
    """The translations of some sentences by one search, with PyTorch and with the engine."""

    beam_size: int
    sentences: int
    """Sentences compared."""
    equal: int
    """Sentences with the same translation."""
    max_score_difference: float
    """The largest difference of the scores of equal translations."""

    @property
    def agrees(self) -> bool:
        """The translations are as equal as a proof needs."""
        return self.sentences > 0 and self._has_equal_translations and self._has_equal_scores

    @property
    def _has_equal_translations(self) -> bool:
        return self.equal >= ENOUGH_EQUAL * self.sentences

    @property
    def _has_equal_scores(self) -> bool:
        return self.max_score_difference <= MAX_SCORE_DIFFERENCE  # False for NaN

    def __str__(self) -> str:
        """Return a summary for `mtcli info`, with the rules that the search fails."""
        search = f"beam {self.beam_size}" if self.beam_size > 1 else "greedy"
        text = f"{self.equal} of {self.sentences} translations equal ({search})"
        if not self._has_equal_translations:
            text += f", fewer than {ENOUGH_EQUAL:.0%}"
        if not self._has_equal_scores:
            text += f", scores differ by up to {self.max_score_difference:.3g}, more than {MAX_SCORE_DIFFERENCE:g}"
        return text


class Proof(BaseModel):
    """The key `proof` in the `mtcli.json` of an engine."""

    model: ModelIdentity
    """The `model.safetensors` of the run that was converted."""
    ctranslate2: str
    """Version of the library that was compared."""
    searches: tuple[SearchComparison, ...]
    """Greedy search and the model's own beam search."""

    def __str__(self) -> str:
        """Return a summary for `mtcli info`."""
        return ", ".join(map(str, self.searches))


def proof_of(run: Path) -> Proof:
    """Return the proof in the engine of a run.

    Raises:
        ModelError: There is none. The message is the reason why PyTorch translates.
    """
    folder = run / ENGINE
    about = provenance(folder)
    if about is None:
        raise ModelError("training wrote no engine")
    try:
        return Proof.model_validate(about.get("proof"))
    except ValidationError:
        raise ModelError(f"{folder} has no comparison with PyTorch") from None


def check_current(run: Path, proof: Proof) -> None:
    """Check that the engine of a run is made from the model and the tokenizer that the run has now.

    Raises:
        ModelError: It is not. The message is the reason why PyTorch translates.
    """
    if not has_identity(run / "model.safetensors", proof.model):
        raise ModelError(f"model.safetensors has changed since {run / ENGINE} was written")
    try:
        is_same_tokenizer = sha256(run / "tokenizer.json") == sha256(run / ENGINE / "tokenizer.json")
    except OSError as error:
        raise ModelError(f"{error.filename}: {error.strerror}") from None
    if not is_same_tokenizer:
        raise ModelError(f"tokenizer.json has changed since {run / ENGINE} was written")


def check_proven(run: Path) -> Proof:
    """Check that the engine of a run can be used instead of PyTorch, and return its proof.

    Raises:
        ModelError: It cannot. The message is the reason.
    """
    proof = proof_of(run)
    failed = [search for search in proof.searches if not search.agrees]
    if failed or not proof.searches:
        raise ModelError(f"the engine differs from PyTorch: {failed[0]}" if failed else "nothing was compared")
    check_current(run, proof)
    if find_spec("ctranslate2") is None:
        raise ModelError("ctranslate2 is not installed")
    version = import_ctranslate2().__version__
    if version != proof.ctranslate2:
        raise ModelError(f"the engine was compared with ctranslate2 {proof.ctranslate2}, and {version} is installed")
    return proof


def _is_supported(options: Options) -> bool:
    """Return True if both libraries give the same result with these options."""
    if options.n_best > 1 or options.beam_size > MAX_BEAM or options.precision == "bf16":
        return False
    return not unsupported_options(options)


class RunEngine(CTranslate2Backend):
    """The engine of a run. PyTorch, which is loaded when it is needed first, searches with unsupported options."""

    requires_terms = True

    def __init__(self, run: Path):
        """Load the engine.

        Args:
            run: The run folder.

        Raises:
            ModelError: The engine is not proven, or damaged.
        """
        self.proof = check_proven(run)
        self.run = run
        self.pytorch: Backend | None = None
        """It searches with the options that the engine does not support; None: not loaded."""
        super().__init__(run / ENGINE, "cpu")

    def for_options(self, options: Options) -> Backend:
        """See `Backend.for_options`.

        Raises:
            ModelError: The run has another model now, for example because training has continued.
        """
        if _is_supported(options):
            return self
        if self.pytorch is None:
            from mtcli.runtime.device import pick_device
            from mtcli.translate.backends.pytorch import PyTorchBackend

            pytorch = PyTorchBackend.load(self.run, pick_device("cpu"))
            if not has_identity(self.run / "model.safetensors", self.proof.model):
                raise ModelError(f"{self.run}: has another model than when this command started; start it again")
            self.pytorch = pytorch
        return self.pytorch


def load_run_engine(run: Path, device: str, options: Options) -> RunEngine | None:
    """Load the engine of a run if it can be used.

    Args:
        run: The run folder.
        device: What the user chose: `auto`, `cpu`, `cuda` or `mps`.
        options: The options that the user set.

    Returns:
        The engine, or None if PyTorch translates.
    """
    if not (run / ENGINE).is_dir():
        return None
    if not _is_supported(options):
        log.debug("PyTorch translates: an option is set that the engine of the run does not support")
        return None
    if not _is_cpu(device):
        return None
    try:
        return RunEngine(run)
    except (MtcliError, OSError) as error:  # OSError: training is replacing the folder
        log.debug("PyTorch translates: %s", error)
        return None


def load_any_run_engine(run: Path, device: str) -> CTranslate2Backend:
    """Load the engine of a run because the user asks for it, even if it is not proven equal to PyTorch.

    Raises:
        ModelError: The run has no engine of its present model.
    """
    remedy = f"create one: `mtcli export {shlex.quote(str(run))} --to ctranslate2`"
    try:
        check_current(run, proof_of(run))
    except ModelError as error:
        raise ModelError(f"{run}: no exported model here ({error}); {remedy}") from None
    return CTranslate2Backend(run / ENGINE, device)


def _is_cpu(device: str) -> bool:
    """Return True if PyTorch would compute on a CPU. PyTorch is not imported where that is certain."""
    if device != "auto":
        return device == "cpu"
    if "torch" not in sys.modules and not _may_have_gpu():
        return True
    from mtcli.runtime.device import pick_device

    return pick_device(device).type == "cpu"


def _may_have_gpu() -> bool:
    """Return False if PyTorch cannot find a GPU here. If this returns True, only PyTorch knows."""
    return sys.platform == "darwin" or any(Path(file).exists() for file in GPU_FILES)
