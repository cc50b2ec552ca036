"""Write the engine of a run: its model for CTranslate2, with a proof that it translates as PyTorch does.

`translate.backends.run_engine` has the form of the proof, and uses the engine.
"""

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from mtcli.config.schema import Config
from mtcli.errors import ModelError
from mtcli.exchange.export import Parity, compare, export_details, obstacles, together, write_details, write_model
from mtcli.runtime.outputs import whole_folder
from mtcli.storage import ENGINE
from mtcli.storage.model_file import load_model
from mtcli.storage.model_folder import identity_of
from mtcli.text.tokenizer.tokenizer import Tokenizer
from mtcli.translate.backends.ctranslate2 import CTranslate2Backend, import_ctranslate2
from mtcli.translate.backends.pytorch import PyTorchBackend
from mtcli.translate.backends.run_engine import Proof, SearchComparison, check_current, proof_of
from mtcli.translate.translation import Options
from mtcli.translate.translator import ModelTranslator, Translator

NUM_SENTENCES = 64
"""Sentences that are compared, if there are as many."""

MIN_SENTENCES = 20
"""Sentences without which there is no proof."""

MAX_TOKENS = 100
"""Tokens of the longest sentence that is compared."""

FIRST_SENTENCES = 4
"""Sentences of the first part, which measures the speed. Each further part is twice as large."""

MAX_SLOWDOWN = 3
"""A part takes at most this many times as long as the one before it, which is half as large."""


def can_have_engine(config: Config, num_held_out: int) -> bool:
    """Return True if a run can have an engine, and CTranslate2 is installed.

    Args:
        config: The configuration of the run.
        num_held_out: Number of its held-out pairs.
    """
    decode = config.decode
    if not config.train.engine or num_held_out < MIN_SENTENCES:
        return False
    if not decode.early_stopping or decode.precision == "bf16":
        return False
    return not obstacles(config, "ctranslate2") and find_spec("ctranslate2") is not None


def update_engine(run: Path, sources: Sequence[str], seconds_left: Callable[[], float]) -> None:
    """Write the engine of a run, unless it has one of its present model.

    Without enough sentences, or if an error is raised, the run then has no engine.

    Args:
        run: The run folder, which must be locked. The run can have an engine.
        sources: Held-out sentences.
        seconds_left: Returns the seconds that remain for this.

    Raises:
        NoTimeError: There was too little time.
        ModelError: The run has no usable model.
        StorageError: The folder cannot be written.
    """
    if _is_current(run):
        return
    shutil.rmtree(run / ENGINE, ignore_errors=True)
    if seconds_left() <= 0:
        raise NoTimeError
    weights, info, tokenizer = load_model(run)
    sentences = _short_sentences(sources, tokenizer)
    if len(sentences) < MIN_SENTENCES:
        return
    model = identity_of(run / "model.safetensors")
    about = export_details(run, info, "ctranslate2")
    pytorch = ModelTranslator(PyTorchBackend(weights, tokenizer, info))
    options = Options.of(info.decode)
    with whole_folder(run / ENGINE) as folder:
        written = write_model(weights, info, tokenizer, folder, about)
        engine = ModelTranslator(CTranslate2Backend(folder, "cpu"))
        searches = _compare(pytorch, engine, sentences, options, seconds_left)
        proof = Proof(model=model, ctranslate2=import_ctranslate2().__version__, searches=searches)
        write_details(folder, written | {"proof": proof.model_dump()})


class NoTimeError(Exception):
    """Too few sentences were compared in the time."""


def _is_current(run: Path) -> bool:
    """Return True if the run has an engine that was made from its present model, proven or not."""
    try:
        proof = proof_of(run)
        check_current(run, proof)
    except ModelError:
        return False
    installed: str = import_ctranslate2().__version__
    return proof.ctranslate2 == installed


def _short_sentences(sources: Sequence[str], tokenizer: Tokenizer) -> list[str]:
    """Return the first `NUM_SENTENCES` that are neither empty nor long."""
    texts = [source for source in sources if source.strip()][: 2 * NUM_SENTENCES]
    lengths = [len(ids) for ids in tokenizer.encode_src(texts)]
    short = [text for text, length in zip(texts, lengths, strict=True) if 0 < length <= MAX_TOKENS]
    return short[:NUM_SENTENCES]


def _compare(
    pytorch: Translator,
    engine: Translator,
    sentences: Sequence[str],
    options: Options,
    seconds_left: Callable[[], float],
) -> tuple[SearchComparison, ...]:
    """Compare the translations of greedy search and of the model's own search, of as many sentences as time allows.

    Raises:
        NoTimeError: It allows fewer than `MIN_SENTENCES`.
    """
    found: dict[int, list[Parity]] = {size: [] for size in sorted({1, options.beam_size})}
    done = 0
    size = FIRST_SENTENCES
    seconds = 0.0
    while done < len(sentences) and MAX_SLOWDOWN * seconds < seconds_left():
        part = sentences[done : done + size]
        started_at = time.monotonic()
        for beam_size, parities in found.items():
            parities.append(compare(pytorch, engine, part, replace(options, beam_size=beam_size), quiet=True))
        seconds = time.monotonic() - started_at
        done += len(part)
        size *= 2
    if done < MIN_SENTENCES:
        raise NoTimeError
    return tuple(
        SearchComparison(
            beam_size=parity.beam_size,
            sentences=parity.sentences,
            equal=parity.equal,
            max_score_difference=parity.max_score_difference,
        )
        for parity in map(together, found.values())
    )
