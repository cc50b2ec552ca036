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
from mtcli.config.schema import (
    LENGTH_PENALTY,
    MAX_STEPS,
    Config,
    CorpusConfig,
    DataConfig,
    DecodeConfig,
    ModelConfig,
    unset_settings,
)
from mtcli.config.toml_file import load as load_config
from mtcli.corpus.cache.info import input_files
from mtcli.corpus.cache.parent import Parent
from mtcli.corpus.cache.prepare import starts_from_model
from mtcli.corpus.cache.tokenizer_file import tokenizer_path
from mtcli.corpus.corrections import is_corrections_file
from mtcli.corpus.readers.language_guess import contradiction, guess_each, guess_languages
from mtcli.corpus.readers.sources import is_run, parse_source
from mtcli.errors import DataError, UsageError
from mtcli.model.transformer import Transformer
from mtcli.runtime import torchrun
from mtcli.runtime.outputs import check_folder
from mtcli.runtime.wording import counted
from mtcli.storage.model_file import ModelInfo, checksum, load_model, parameters
from mtcli.storage.model_folder import run_of
from mtcli.storage.run_folder import begun_config
from mtcli.storage.run_name import RUNS, run_name
from mtcli.text.languages import Direction, is_plausible, same
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
        info = self.info
        several = info.directions if info.has_several_directions else ()
        return Parent(self.tokenizer, checksum(parameters(self.model), None), info.src, info.tgt, several)

    def values(self) -> Values:
        """Return its shape, by dotted name, as defaults of a run that starts from it."""
        info = self.info
        decode = info.decode if self.tokenizer.sentencepiece else None
        values = _values_from_model(info.model, decode)
        return {**values, "tokenizer.type": self.tokenizer.kind, "tokenizer.joint": self.tokenizer.joint}


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
    where = f"{file}: " if file else ""
    given = given_values(file, _as_table(options), sets)
    _check_languages_are_used(given, options)
    initial = InitialModel.load(init) if init else None
    from_model: Values = {}
    corrects = given.get("data", {}).get("corrections") is not None
    if initial is not None:
        from_model = initial.values()
        if given.get("tokenizer", {}).get("file"):  # whose type and sides are those of its file
            from_model = {name: value for name, value in from_model.items() if not name.startswith("tokenizer.")}
        if corrects:
            from_model |= _values_for_corrections(initial, given)
    checked = complete(given, initial=from_model, where=where)
    unnamed = checked.data if initial is None else _with_languages_of(initial, checked.data)
    data = _with_languages(unnamed)
    config = checked.model_copy(update={"data": data})
    if initial is not None:
        from_model |= _tokenizer_of_child(initial, config, given)
        if not initial.parent.has_child(config):  # which may have learned from more pairs or from fewer
            from_model[LENGTH_PENALTY] = initial.info.decode.length_penalty
        if corrects and initial.parent.has_child(config):
            raise UsageError("--corrections: for a model of the same languages and tokenizer; omit --src and --tgt")
        _note_corrections(data)
    _warn_of_codes(data)
    run = out or RUNS / run_name(data, file)
    if run != Path(os.fsencode(run).decode(errors="replace")):
        raise UsageError(f"--out {run}: not valid Unicode, as a run folder's name must be; choose another")
    deleted_model = init if overwrite else None
    check_folder(run, _inputs(config, deleted_model), option="--out")
    of_run: Values = {}
    existing_config = None if overwrite else begun_config(run)
    if existing_config is not None:
        of_run["data"] = {"variants": existing_config.data.variants}
        if existing_config.train.time and MAX_STEPS in unset_settings(config):
            # A command without a budget resumes with the time of the run.
            of_run["train"] = {"time": existing_config.train.time}
        if init is None and starts_from_model(run):
            # A fine-tuning that is resumed needs no --init, and has its own languages.
            from_model = _values_of_fine_tuning(existing_config)
            data = _with_languages(checked.data, existing_config.data)
    if corrects and init is None and (existing_config is None or not starts_from_model(run)):
        raise UsageError("--corrections: a model learns them by fine-tuning; name the model with --init")
    values = merged(of_run, {**given, "data": data.model_dump(exclude_unset=True)})
    return TrainingRequest(complete(values, initial=from_model, where=where), run, initial, overwrite)


def directed_data(options: Mapping[str, Any]) -> DataConfig:
    """Return the settings of `data` with the languages of each corpus, as `resolve` finds them.

    Args:
        options: See `resolve`; those of `data`.

    Raises:
        UsageError, DataError: See `resolve`.
    """
    return _with_languages(complete(given_values(None, _as_table(options), ())).data)


def _check_languages_are_used(given: Values, options: Mapping[str, Any]) -> None:
    """Check that each language of the command line is that of a corpus.

    Args:
        given: The given values.
        options: Values of the command line by dotted name.

    Raises:
        UsageError: Each corpus of a table names its own.
    """
    corpora = given.get("data", {}).get("corpora") or ()
    for side in ("src", "tgt"):
        code = options.get(f"data.{side}")
        if isinstance(code, str) and corpora and all(side in corpus for corpus in corpora):
            raise UsageError(f"--{side} {code}: each corpus of the table names its own language; omit the option")


def _with_languages_of(initial: InitialModel, data: DataConfig) -> DataConfig:
    """Return the settings of the data with the languages of a model, unless the names of the pairs say others.

    Args:
        initial: The model that the run starts from.
        data: The settings that are given.

    Raises:
        UsageError: The model was trained on several directions, and neither an option nor a name chooses one.
    """
    info = initial.info
    own = {"src": info.src, "tgt": info.tgt}
    given_data = data.model_dump(exclude_unset=True)
    if data.corrections is None:
        # Beside a language that is certain, the name of a corpus can hold any code, as in `es-nah`.
        for certain in ({}, {"src": info.src}, {"tgt": info.tgt}):
            completed = DataConfig.model_validate(certain | given_data)
            if _names_choose(completed, initial.parent):
                return completed
    if info.has_several_directions and not ("tgt" in given_data or data.corpora):
        directions = ", ".join(map(str, info.directions))
        raise UsageError(f"--init {initial.path}: has several directions ({directions}); choose with --src and --tgt")
    return DataConfig.model_validate(own | given_data)


def _names_choose(data: DataConfig, parent: Parent) -> bool:
    """Return True if the names of some pairs say their languages, and these are not simply those of the model.

    Names such as `de-en` may also stand for en → de: if that is what the model translates, they choose nothing.

    Args:
        data: The settings that are given.
        parent: The model that the run starts from.
    """
    has_several = bool(parent.directions or parent.tokenizer.tags)
    src, tgt = (getattr(data, side) if side in data.model_fields_set else None for side in ("src", "tgt"))
    corpora = [(corpus.train, corpus.src or src, corpus.tgt or tgt) for corpus in data.corpora]
    for spec, own_src, own_tgt in corpora + [(spec, src, tgt) for spec in data.train]:
        if own_src is not None and own_tgt is not None:
            continue
        try:
            guess = guess_languages([parse_source(spec).path], own_src, own_tgt)
        except (UsageError, DataError):
            continue  # the pairs have the languages of the model, or reading them reports what is missing
        named = Direction(guess.src, guess.tgt)
        if parent.translates(named):
            if has_several:
                return True
        elif not parent.translates(named.reversed()):
            return True
    return False


def _values_of_fine_tuning(existing_config: Config) -> Values:
    """Return `InitialModel.values` of the model that a run started from, which need not exist any more.

    Args:
        existing_config: The configuration of the run.
    """
    config = existing_config
    decode = config.decode if config.tokenizer.type == "sentencepiece" else None
    values = _values_from_model(config.model, decode)
    values |= {"tokenizer.type": config.tokenizer.type, "tokenizer.joint": config.tokenizer.joint}
    if LENGTH_PENALTY not in config.chosen:
        values[LENGTH_PENALTY] = config.decode.length_penalty
    if config.data.corrections is not None:
        values |= {f"data.{name}": getattr(config.data, name) for name in (*OWN_PAIRS, *OWN_SETTINGS)}
        values["train.label_smoothing"] = config.train.label_smoothing
    return values


OWN_PAIRS = ("train", "valid", "test")
"""Settings of `data` that name the pairs of the run of a model that learns corrections."""

OWN_SETTINGS = ("max_length", "placeholders", "terms", "variants")
"""Settings of `data` that such a model keeps, because its pairs were prepared with them."""


EXACT = {"train.label_smoothing": 0.0}
"""With label smoothing, a model would also learn other tokens than those of the correction that it must give."""


def _values_for_corrections(initial: InitialModel, given: Values) -> Values:
    """Return the values of a run which learns corrections, by dotted name: `EXACT`, and those of the run of its model.

    The latter are its training pairs, which are mixed with the corrections, and its validation and test pairs, which
    show what the model forgets.

    Args:
        initial: The model.
        given: The given values.

    Raises:
        UsageError: The model has several directions, or it has no training pairs and none are given, or a time is
            given.
        ModelError: The configuration of its run is damaged.
    """
    if initial.info.has_several_directions:
        raise UsageError("--corrections: for a model of one direction; fine-tune this one with --train and other pairs")
    if "time" in given.get("train", {}):
        raise UsageError("--corrections: training ends by itself; limit it with --max-steps, not with --time")
    folder = run_of(Path(os.path.realpath(initial.path)))
    if not is_run(folder):
        if "train" in given.get("data", {}):
            return dict(EXACT)
        raise UsageError(
            f"--corrections: {initial.path} has no training pairs to mix them with, as imported and averaged models; "
            "name pairs like those it was trained on with --train, or texts and their translations by this model, "
            "which `mtcli augment` makes"
        )
    name = str(folder)  # absolute, so that the run can be resumed from any folder
    config = load_config(folder / "config.toml")
    values: Values = {"data.train": [name], "data.valid": f"{name}#valid", "data.test": f"{name}#test"}
    return EXACT | values | {f"data.{setting}": getattr(config.data, setting) for setting in OWN_SETTINGS}


def _values_from_model(model: ModelConfig, decode: DecodeConfig | None) -> Values:
    """Return the values that a run takes from the model it starts from, by dotted name.

    Args:
        model: The shape.
        decode: The search of an imported model, which is kept; None: the model is not imported.
    """
    shape = model.model_dump(exclude={"dropout"}, exclude_none=True)
    values: Values = {f"model.{name}": value for name, value in shape.items()}
    if decode is not None:
        values |= {f"decode.{name}": value for name, value in decode.model_dump().items()}
    return values


def _tokenizer_of_child(initial: InitialModel, config: Config, given: Values) -> Values:
    """Return the tokenizer's settings, by dotted name, that a child does not take from its parent.

    Args:
        initial: The model that the run starts from, its parent or the model that it fine-tunes.
        config: The configuration, in which the tokenizer is of the parent's kind unless the user gives another.
        given: The given values.

    Raises:
        UsageError: The run fine-tunes the model and has another tokenizer, or the parent's cannot be used as given.
    """
    settings = config.tokenizer
    if not initial.parent.has_child(config):
        if settings.file:
            raise UsageError("--init brings the tokenizer of its model, so omit tokenizer.file")
        of_model = {"type": initial.tokenizer.kind, "joint": initial.tokenizer.joint}
        for name, value in of_model.items():
            if getattr(settings, name) != value:
                own = f"--init brings the tokenizer of its model ({name}: {value})"
                raise UsageError(f"{own}, so omit tokenizer.{name}")
        num_tokens = initial.tokenizer.src_size
        if given.get("tokenizer", {}).get("vocab_size") not in (None, num_tokens) and torchrun.rank() == 0:
            log.warning("tokenizer.vocab_size has no effect: --init brings its tokenizer, with %s tokens", num_tokens)
        return {}
    if not settings.file and initial.parent.choice(config) == "new" and settings.type == "sentencepiece":
        return {"tokenizer.type": "bpe"}
    return {}


OF_EACH_CORPUS = ("src", "tgt", "valid", "test")
"""Values of a corpus, each an option that is given once for all corpora or once for each."""


def _as_table(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options without lists of languages or of validation and test pairs: their k-th values belong to the k-th
    training corpus, and make a table of corpora.

    Args:
        options: Values of the command line by dotted name; None means unset.

    Raises:
        UsageError: An option is given several times, but not once for each corpus.
    """
    found = dict(options)
    train = list(found.get("data.train") or ())
    several: dict[str, list[str]] = {}
    for name in OF_EACH_CORPUS:
        values = found.get(f"data.{name}")
        if not isinstance(values, (list, tuple)):
            continue
        found[f"data.{name}"] = values[0] if len(values) == 1 else None
        if len(values) < 2:
            continue
        if len(values) != len(train):
            once = "give it once, or once for each --train" if name in ("src", "tgt") else "give it once for each"
            corpora = counted(len(train), "training corpus", "training corpora")
            raise UsageError(f"--{name}: given {len(values)} times for {corpora}; {once}")
        several[name] = list(values)
    if not several:
        return found
    for name in ("valid", "test"):
        if found.get(f"data.{name}") is not None:
            raise UsageError(f"--{name}: given once for {len(train)} pairs of languages; give it once for each --train")
    table = [
        {"train": spec, **{name: values[row] for name, values in several.items()}} for row, spec in enumerate(train)
    ]
    return {**found, "data.train": None, "data.corpora": table}


def _with_languages(data: DataConfig, known: DataConfig | None = None) -> DataConfig:
    """Return the settings of the data with a language for each side of each corpus.

    Unset languages are guessed from the names of the training pairs. Corpora of different languages become a table of
    corpora. A table of one pair of languages becomes a list of corpora, if it has one set of validation and test pairs.

    Args:
        data: The settings that are given.
        known: Settings whose languages are used instead of guesses.

    Raises:
        DataError: Training pairs are missing.
        UsageError: Languages cannot be found, or one set of validation or test pairs is given for several pairs of
            languages.
    """
    src, tgt = (
        getattr(data, side) if side in data.model_fields_set else getattr(known, side, None) for side in ("src", "tgt")
    )
    found: dict[str, Any] = {}
    if data.corpora:
        found = _as_values([_named(corpus, src, tgt) for corpus in data.corpora])
    elif src is not None and tgt is not None:
        found = {"src": src, "tgt": tgt}
        _warn_of_names(data.train, src, tgt)
    elif not data.is_demo:
        guesses = guess_each([parse_source(spec).path for spec in data.train], src, tgt)
        table = [
            CorpusConfig(train=spec, src=guess.src, tgt=guess.tgt)
            for spec, guess in zip(data.train, guesses, strict=True)
        ]
        first = guesses[0]
        if all(same(guess.src, first.src) and same(guess.tgt, first.tgt) for guess in guesses):
            found = {"src": first.src, "tgt": first.tgt}
            where = f", {first.where}"
        else:
            for name in ("valid", "test"):
                if getattr(data, name) is not None:
                    directions = ", ".join(dict.fromkeys(f"{guess.src} → {guess.tgt}" for guess in guesses))
                    raise UsageError(f"--{name}: one for several pairs of languages ({directions}); give one for each")
            found = _as_values(table)
            where = ""
        if torchrun.rank() == 0:
            directions = ", ".join(map(str, DataConfig.model_validate(found).directions))
            log.info("languages: %s%s; --src and --tgt choose others", directions, where)
    return DataConfig.model_validate({**data.model_dump(exclude_unset=True), **found})


def _named(corpus: CorpusConfig, src: str | None, tgt: str | None) -> CorpusConfig:
    """Return a corpus with its languages: its own, those of all corpora, or those that its names give."""
    src = corpus.src or src
    tgt = corpus.tgt or tgt
    if src is None or tgt is None:
        guess = guess_languages([parse_source(corpus.train).path], src, tgt)
        src = guess.src
        tgt = guess.tgt
    return corpus.model_copy(update={"src": src, "tgt": tgt})


def _as_values(table: Sequence[CorpusConfig]) -> dict[str, Any]:
    """Return the settings of `data` that stand for corpora with their languages: a table only if it is needed."""
    codes = [code for corpus in table for code in (corpus.src, corpus.tgt) if code is not None]

    def first_of(code: str | None) -> str | None:
        """Return the first code of the table for the same language: it stands for all, as `de` for `deu`."""
        return next((known for known in codes if code is not None and same(known, code)), code)

    table = [corpus.model_copy(update={"src": first_of(corpus.src), "tgt": first_of(corpus.tgt)}) for corpus in table]
    first = table[0]
    directions = {(corpus.src, corpus.tgt) for corpus in table}
    held_out = {(corpus.valid, corpus.test) for corpus in table}
    languages = {"src": first.src, "tgt": first.tgt}
    if len(directions) > 1 or len(held_out) > 1:
        return {**languages, "train": [], "corpora": [corpus.model_dump(exclude_none=True) for corpus in table]}
    found = {**languages, "train": [corpus.train for corpus in table], "corpora": []}
    return found | {name: spec for name, spec in (("valid", first.valid), ("test", first.test)) if spec is not None}


def _note_corrections(data: DataConfig) -> None:
    """Log how corrections are learned, if a model is fine-tuned on a file of them as on other pairs."""
    for spec in data.specs:
        path = parse_source(spec).path
        if is_corrections_file(path) and torchrun.rank() == 0:
            log.info("%s: the server's corrections; --corrections %s also keeps what the model knows", path, path)


def _warn_of_names(specs: Sequence[str], src: str, tgt: str) -> None:
    """Warn about pairs whose names say another language than the one that is given for all."""
    for spec in specs if torchrun.rank() == 0 else ():
        others = contradiction(parse_source(spec).path, src, tgt)
        if others:
            log.warning(
                "%s: its name says %s, and it is read as %s → %s; for pairs of several languages, give --src and --tgt "
                "once for each --train", spec, others, src, tgt,
            )  # fmt: skip


def _warn_of_codes(data: DataConfig) -> None:
    """Warn about languages that do not exist: they choose how text is split into sentences and how it is scored."""
    if torchrun.rank() != 0:
        return
    sides = [side for direction in data.directions for side in zip(("src", "tgt"), direction, strict=True)]
    for side, code in dict.fromkeys(sides):
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
