"""What a user asks `mtcli train` for: the complete configuration and the run folder."""

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from mtcli.config.build import complete, given_values, merged
from mtcli.config.presets import Values
from mtcli.config.schema import MAX_STEPS, Config, DataConfig, DecodeConfig, ModelConfig, unset_settings
from mtcli.corpus.cache.info import input_files
from mtcli.corpus.cache.parent import Parent
from mtcli.corpus.cache.prepare import starts_from_model
from mtcli.corpus.cache.tokenizer_file import tokenizer_path
from mtcli.corpus.readers.language_guess import guess_languages
from mtcli.corpus.readers.sources import parse_source
from mtcli.errors import DataError, UsageError
from mtcli.model.transformer import Transformer
from mtcli.runtime import torchrun
from mtcli.runtime.outputs import check_folder
from mtcli.storage.model_file import ModelInfo, checksum, load_model, parameters
from mtcli.storage.run_folder import begun_config
from mtcli.storage.run_name import RUNS, run_name
from mtcli.text.languages import is_plausible
from mtcli.text.tokenizer.tokenizer import Tokenizer

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class InitialModel:
    """A model that a run starts from (fine-tuning)."""

    path: Path
    model: Transformer
    info: ModelInfo
    tokenizer: Tokenizer

    @classmethod
    def load(cls, path: Path) -> "InitialModel":
        """Load a model.

        Args:
            path: Its folder.

        Raises:
            ModelError: It is no model, or it is damaged.
        """
        return cls(path, *load_model(path))

    @cached_property
    def parent(self) -> Parent:
        """What the data of a run depends on."""
        return Parent(self.tokenizer, checksum(parameters(self.model), None), self.info.src, self.info.tgt)

    def values(self) -> Values:
        """Return its languages and its shape, by dotted name, as defaults of a run that starts from it."""
        info = self.info
        return _values_from_model(info.src, info.tgt, info.model, info.decode if self.tokenizer.sentencepiece else None)


@dataclass(frozen=True)
class TrainingRequest:
    """A training as the user asks for it."""

    config: Config
    run: Path
    init: InitialModel | None
    overwrite: bool
    """Delete the run in the folder first."""


def resolve(
    file: Path | None,
    options: Mapping[str, Any],
    sets: Sequence[str],
    *,
    out: Path | None = None,
    init: Path | None = None,
    overwrite: bool = False,
) -> TrainingRequest:
    """Build the configuration, find languages and run folder, and check that the folder can be written.

    Args:
        file: A configuration file.
        options: Values of the command line by dotted name; None means unset.
        sets: `section.key=value` strings.
        out: The run folder; None: chosen by the data.
        init: A model to start from.
        overwrite: Delete the run in the folder first.

    Raises:
        UsageError: A wrong setting, languages that cannot be found, or a run folder that cannot be one.
        DataError: Training pairs are missing.
        ModelError: `init` is no model, or the run in the folder is damaged.
        StorageError: The run folder may not be written.
    """
    given = given_values(file, options, sets)
    where = f"{file}: " if file else ""
    initial = InitialModel.load(init) if init else None
    from_model = initial.values() if initial else {}
    config = complete(given, initial=from_model, where=where)
    if initial is not None:
        has_child = initial.parent.has_child(config)
        if config.tokenizer.file and not has_child:
            raise UsageError("--init brings the tokenizer of its model, so omit tokenizer.file")
        if has_child:
            from_model = _values_of_child(initial, given, where)
            config = complete(given, initial=from_model, where=where)
    languages = _guessed_languages(config.data)
    data = config.data.model_copy(update=languages)
    _warn_of_codes(data)
    run = out or RUNS / run_name(data, file)
    if run != Path(os.fsencode(run).decode(errors="replace")):
        raise UsageError(f"--out {run}: not valid Unicode, as a run folder's name must be; choose another")
    deleted_model = init if overwrite else None
    check_folder(run, _inputs(config.model_copy(update={"data": data}), deleted_model), option="--out")
    existing_config = None if overwrite else begun_config(run)
    if existing_config is not None and init is None and starts_from_model(run):
        # A fine-tuning that is resumed needs no --init, and has its own languages.
        from_model = _values_of_fine_tuning(existing_config)
        languages = {}
    unset: Values = {"data": languages}
    if existing_config is not None:
        unset["data"] = {**languages, "variants": existing_config.data.variants}
    if existing_config is not None and existing_config.train.time and MAX_STEPS in unset_settings(config):
        # A command without a budget resumes with the time of the run.
        unset["train"] = {"time": existing_config.train.time}
    return TrainingRequest(complete(merged(unset, given), initial=from_model, where=where), run, initial, overwrite)


def _values_of_fine_tuning(existing_config: Config) -> Values:
    """Return `InitialModel.values` of the model that a run started from, which need not exist any more.

    Args:
        existing_config: The configuration of the run.
    """
    config = existing_config
    decode = config.decode if config.tokenizer.type == "sentencepiece" else None
    values = _values_from_model(config.data.src, config.data.tgt, config.model, decode)
    return {**values, "tokenizer.type": config.tokenizer.type, "tokenizer.joint": config.tokenizer.joint}


def _values_from_model(src: str, tgt: str, model: ModelConfig, decode: DecodeConfig | None) -> Values:
    """Return the values that a run takes from the model it starts from, by dotted name.

    Args:
        src: Language code of the source.
        tgt: Language code of the target.
        model: The shape.
        decode: The search of an imported model, which is kept; None: the model is not imported.
    """
    values = {"data.src": src, "data.tgt": tgt}
    shape = model.model_dump(exclude={"dropout"}, exclude_none=True)
    values |= {f"model.{name}": value for name, value in shape.items()}
    if decode is not None:
        values["tokenizer.type"] = "sentencepiece"
        values |= {f"decode.{name}": value for name, value in decode.model_dump().items()}
    return values


def _values_of_child(initial: InitialModel, given: Values, where: str) -> Values:
    """Return the values that a run of other languages than its model's takes from the model, by dotted name.

    Args:
        initial: The model.
        given: The given values.
        where: The beginning of the messages of errors in them.
    """
    tokenizer = initial.tokenizer
    values = {**initial.values(), "tokenizer.type": tokenizer.kind, "tokenizer.joint": tokenizer.joint}
    config = complete(given, initial=values, where=where)
    is_new = not config.tokenizer.file and initial.parent.choice(config) == "new"
    if is_new and config.tokenizer.type == "sentencepiece":
        values["tokenizer.type"] = "bpe"
    return values


def _guessed_languages(data: DataConfig) -> dict[str, str]:
    """Return unset languages, guessed from the names of the training pairs. The demo has its own."""
    src = data.src if "src" in data.model_fields_set else None
    tgt = data.tgt if "tgt" in data.model_fields_set else None
    if not data.train or (src is not None and tgt is not None):
        return {}
    guess = guess_languages([parse_source(spec).path for spec in data.train], src, tgt)
    if torchrun.rank() == 0:
        log.info("languages: %s → %s, %s; --src and --tgt choose others", guess.src, guess.tgt, guess.where)
    return {"src": guess.src, "tgt": guess.tgt}


def _warn_of_codes(data: DataConfig) -> None:
    """Warn about languages that do not exist: they choose how text is split into sentences and how it is scored."""
    if torchrun.rank() != 0:
        return
    for side, code in (("src", data.src), ("tgt", data.tgt)):
        if not is_plausible(code):
            log.warning("--%s %s: no language has this code; if it is a mistake, stop and correct it", side, code)


def _inputs(config: Config, model: Path | None) -> list[Path]:
    """Return the local files that training reads. If pairs are missing, training itself reports it."""
    files = [model / "model.safetensors"] if model else []
    tokenizer = tokenizer_path(config)
    if tokenizer is not None:
        files.append(tokenizer)
    try:
        return files + input_files(config)
    except DataError:
        return files
