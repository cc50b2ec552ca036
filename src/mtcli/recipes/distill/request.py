"""What `mtcli distill` is asked for, and what it needs to know of the teachers."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mtcli.config.build import build
from mtcli.config.schema import SHAPE, Config, DataConfig
from mtcli.config.toml_file import load as load_config
from mtcli.corpus.cache.tokenizer_file import given_tokenizer
from mtcli.corpus.held_out import HELD_OUT_SPLITS, ByDirection, HeldOutSplit, read_directions, source_key
from mtcli.corpus.readers.pairs import read_pairs
from mtcli.corpus.readers.sources import parse_source, source_files
from mtcli.corpus.readers.tables import are_side_names
from mtcli.errors import DataError, UsageError
from mtcli.exchange.export import obstacles
from mtcli.recipes.commands import check_settings, setting_name
from mtcli.recipes.monolingual import Text
from mtcli.storage.model_folder import run_of
from mtcli.storage.run_name import RUNS
from mtcli.text.languages import Direction, same
from mtcli.text.tokenizer.tokenizer import Tokenizer
from mtcli.training.request import directed_data
from mtcli.translate.backends.ctranslate2 import import_ctranslate2
from mtcli.translate.backends.pytorch import PyTorchBackend
from mtcli.translate.loading import load
from mtcli.translate.translator import Translator

DEFAULT_PRESET = "tiny"
"""The preset of a student whose size no option decides."""

SHAPE_SETTINGS = (*SHAPE, "model.d_k", "model.d_v")
"""Settings that `--parameters` and `--latency` choose."""

NO_LANGUAGES: Mapping[str, str] = {}


@dataclass(frozen=True)
class Request:
    """What the user asks `mtcli distill` for."""

    teachers: tuple[Path, ...]
    train: tuple[str, ...]
    """Training pairs, each `PATH` or `PATH@WEIGHT`."""
    valid: tuple[str, ...] = ()
    """Validation pairs, one for each corpus of several directions; empty: those of the first teacher's run."""
    test: tuple[str, ...] = ()
    """Test pairs, see `valid`."""
    src: tuple[str, ...] = ()
    """Source languages, if the teacher has several directions: one, or one for each corpus."""
    tgt: tuple[str, ...] = ()
    """Target languages, see `src`."""
    both_directions: bool = False
    swap: bool = False
    replace: bool = False
    """Read invalid UTF-8 as U+FFFD, in the text and the held-out pairs."""
    mono_src: Path | None = None
    """More text in the source language to translate."""
    keep_pairs: bool = False
    """Train on the training pairs too, not only on the translations of their sources."""
    preset: str | None = None
    parameters: int | None = None
    """Maximum number of parameters."""
    latency: float | None = None
    """Maximum seconds of a sentence."""
    time: str | None = None
    max_steps: int | None = None
    sets: tuple[str, ...] = ()
    out: Path | None = None
    device: str = "auto"


@dataclass(frozen=True)
class Teachers:
    """What the stages need to know of the teachers."""

    data: DataConfig
    """The training pairs with their directions, and the held-out pairs if the request names some."""
    run: Path
    """The run folder of the first teacher."""
    held_out: Mapping[HeldOutSplit, ByDirection]
    """The validation and test pairs of each direction."""
    has_several: bool
    """The teachers have several directions, so each translation names one."""
    tokenizer: Tokenizer
    num_parameters: int | None
    """Parameters of all teachers; None: not known, because it is an exported model."""
    bleu_tokenizer: str | None
    """The setting of the student, or of the first teacher; None: the target language decides."""
    student_tokenizer: Tokenizer | None = None
    """The tokenizer of the student; None: it trains one."""
    tokenizer_file: Path | None = None
    """The file of the teacher's tokenizer, if the student uses that."""

    @property
    def directions(self) -> tuple[Direction, ...]:
        """The directions of the student."""
        return self.data.directions

    @property
    def source_languages(self) -> tuple[str, ...]:
        """The languages that are translated from, each once."""
        return tuple(dict.fromkeys(direction.src for direction in self.directions))


def check(request: Request) -> Teachers:
    """Check a request before hours of work, and return what it says about the teachers.

    Raises:
        UsageError, DataError, ModelError: See `distill`.
    """
    import_ctranslate2()
    sizes = {"--preset": request.preset, "--parameters": request.parameters, "--latency": request.latency}
    given = [name for name, value in sizes.items() if value is not None]
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)}: each decides the size of the student; give one")
    _check_sets(request)
    config = student_config(request)
    problems = obstacles(config, "ctranslate2")
    if problems:
        raise UsageError(f"the student cannot be exported to CTranslate2: {'; '.join(problems)}")
    for teacher in request.teachers:
        _check_not_latest(teacher)
    translator, _, (src, tgt) = load(request.teachers, "cpu")
    tokenizer = translator.tokenizer
    info = translator.backend.info
    known = info.directions if info.has_several_directions else ()
    if tokenizer.tags and not known:
        raise UsageError(f"--teacher {request.teachers[0]}: has several target languages; name a model with one")
    if request.swap and are_side_names(src, tgt):
        raise UsageError(f"--swap: the teacher's languages are {src} and {tgt}; write the pairs in this order instead")
    first = request.teachers[0]
    own_tokenizer = given_tokenizer(student_config(request, {"data.src": src, "data.tgt": tgt}))
    data = _data_of_several(request, known) if known else _data_of_one(request, src, tgt)
    file_of_teacher = _tokenizer_file(first, tokenizer, config)
    teachers = Teachers(
        data,
        run_of(first),
        {name: _held_out_pairs(name, data, run_of(first), is_one=not known) for name in HELD_OUT_SPLITS},
        bool(known),
        tokenizer,
        num_parameters=_num_parameters(translator),
        bleu_tokenizer=config.train.bleu_tokenizer or _bleu_tokenizer(first) or info.bleu_tokenizer,
        student_tokenizer=own_tokenizer if file_of_teacher is None else tokenizer,
        tokenizer_file=file_of_teacher,
    )
    _check_data(request, teachers)
    return teachers


def _data_of_one(request: Request, src: str, tgt: str) -> DataConfig:
    """Return the pairs of a student of one direction, which is that of the teacher.

    Raises:
        UsageError: The request names other languages, or there are no held-out pairs.
    """
    for name, codes, own in (("--src", request.src, src), ("--tgt", request.tgt, tgt)):
        if any(not same(code, own) for code in codes):
            given = " ".join(codes)
            raise UsageError(f"{name} {given}: the languages are those of the teacher, {src} → {tgt}; omit the option")
    if request.both_directions:
        raise UsageError(f"--both-directions: the teacher translates only {src} → {tgt}; omit it")
    held_out = {}
    for name, specs in (("valid", request.valid), ("test", request.test)):
        if len(specs) > 1:
            raise UsageError(f"--{name}: given {len(specs)} times, and the teacher has one direction; give it once")
        held_out[name] = specs[0] if specs else _split_of_teacher(request.teachers[0], name)
    valid, test = held_out.values()
    return DataConfig(
        train=request.train, src=src, tgt=tgt, valid=valid, test=test, swap=request.swap, replace=request.replace
    )


def _data_of_several(request: Request, directions: Sequence[Direction]) -> DataConfig:
    """Return the pairs of a student with the directions of its corpora.

    Args:
        request: The request.
        directions: Those of the teacher.

    Raises:
        UsageError: The languages of a corpus cannot be found, or the teacher does not translate them.
    """
    options = {
        "data.train": list(request.train),
        "data.src": list(request.src) or None,
        "data.tgt": list(request.tgt) or None,
        "data.valid": list(request.valid) or None,
        "data.test": list(request.test) or None,
        "data.both_directions": request.both_directions or None,
        "data.swap": request.swap or None,
        "data.replace": request.replace or None,
    }
    data = directed_data(options)
    for corpus in data.directed:
        if corpus.direction not in directions:
            every = ", ".join(map(str, directions))
            raise UsageError(
                f"{corpus.train}: pairs of {corpus.direction}, and the teacher translates {every}; choose with --src "
                "and --tgt, once for all corpora or once for each"
            )
    for name in HELD_OUT_SPLITS:
        if not data.given_splits(name):
            _split_of_teacher(request.teachers[0], name)
    return data


def _check_sets(request: Request) -> None:
    """Check that `--set` contradicts no option and no teacher.

    Raises:
        UsageError: It does.
    """
    size = "--parameters" if request.parameters is not None else "--latency"
    is_shape_chosen = request.parameters is not None or request.latency is not None
    for text in request.sets:
        name = setting_name(text)
        if name in ("data.src", "data.tgt", "data.both_directions"):
            raise UsageError(f"--set {text}: the languages are those of the teacher; omit it")
        if is_shape_chosen and name in SHAPE_SETTINGS:
            raise UsageError(f"--set {text}: {size} chooses the shape of the student; omit one of them")
    check_settings(request.sets, "distill")


def _num_parameters(translator: Translator) -> int | None:
    """Return the number of parameters of one or several models; None: not known, because the model is exported."""
    backend = translator.backend
    if not isinstance(backend, PyTorchBackend):
        return None
    return sum(parameter.numel() for member in backend.members for parameter in member.parameters())


def _check_data(request: Request, teachers: Teachers) -> None:
    """Check that the training pairs exist, and that there are held-out pairs, and lines in the text.

    Raises:
        UsageError, DataError: There are none, or they cannot be read.
    """
    for corpus in teachers.data.directed:
        source_files(parse_source(corpus.train).path, *corpus.languages)
    for name in HELD_OUT_SPLITS:
        for direction, pairs in teachers.held_out[name].items():
            if not pairs:
                given = [spec for spec, languages in teachers.data.given_splits(name) if {*languages} == {*direction}]
                where = f"--{name} {', '.join(given)}" if given else f"{teachers.run}"
                of_direction = f" of {direction}" if len(teachers.directions) > 1 else ""
                raise UsageError(f"{where}: has no {name} pairs{of_direction}; name others")
    if request.mono_src is not None and len(teachers.source_languages) > 1:
        languages = ", ".join(teachers.source_languages)
        raise UsageError(f"--mono-src {request.mono_src}: for one source language, and these are {languages}; omit it")
    text = text_of(request, teachers)
    if text is not None and next(text.usable(), None) is None:
        raise DataError(f"--mono-src {text.path}: has no usable line; give text with one sentence per line")


def student_config(request: Request, languages: Mapping[str, str] = NO_LANGUAGES) -> Config:
    """Return the configuration of the student as far as the request decides it.

    Args:
        request: The request.
        languages: The languages, by the names of their settings, if they are known.

    Raises:
        UsageError: A wrong setting.
    """
    preset = request.preset or DEFAULT_PRESET
    options = {"preset": preset, "train.time": request.time, "train.max_steps": request.max_steps}
    return build(None, {**options, **languages, "data.train": list(request.train)}, request.sets)


def _tokenizer_file(teacher: Path, tokenizer: Tokenizer, student: Config) -> Path | None:
    """Return the file of a teacher's tokenizer for `tokenizer.file`, or None if the student does not use it.

    An imported model has another kind of tokenizer. Separate vocabularies need a run, which names their languages.

    Args:
        teacher: A run, a checkpoint of a run, or an exported model.
        tokenizer: The tokenizer of the teacher.
        student: The configuration of the student. A setting of the tokenizer asks for another one.
    """
    needs_placeholders = student.data.placeholders and not tokenizer.has_placeholders
    if student.tokenizer.model_fields_set or needs_placeholders or tokenizer.sentencepiece is not None:
        return None
    folder = run_of(teacher)
    path = folder / "tokenizer.json"
    is_usable = tokenizer.joint or (folder / "config.toml").is_file()
    if path.is_file() and is_usable and Tokenizer.load(path).digest() == tokenizer.digest():
        return path
    return None


def _check_not_latest(teacher: Path) -> None:
    """Refuse the link `runs/latest` as a teacher: at the end of the command, it leads to the student.

    Raises:
        UsageError: The teacher is this link.
    """
    if teacher.is_symlink() and Path.cwd() / teacher == Path.cwd() / RUNS / "latest":
        run = teacher.parent / teacher.readlink()
        raise UsageError(
            f"--teacher {teacher}: leads to another run after training; name the run: --teacher {shlex.quote(str(run))}"
        )


def _split_of_teacher(teacher: Path, name: str) -> str:
    """Return the held-out pairs in the run of a teacher, which may be a checkpoint of the run.

    Raises:
        UsageError: There are none.
    """
    path = run_of(teacher) / "data" / f"{name}.jsonl"
    if path.is_file() and path.stat().st_size:
        return str(path)
    raise UsageError(f"--{name}: there are no {name} pairs beside {teacher}; name some that it was not trained on")


def _bleu_tokenizer(teacher: Path) -> str | None:
    """Return the setting of the teacher's run; None: it has none, or there is no run."""
    file = run_of(teacher) / "config.toml"
    return load_config(file).train.bleu_tokenizer if file.is_file() else None


def _held_out_pairs(name: HeldOutSplit, data: DataConfig, run: Path, *, is_one: bool) -> ByDirection:
    """Return the validation or test pairs of each direction: those that the request names, or those of the teacher.

    Those of a pair of languages are also those of the opposite direction.

    Args:
        name: The split.
        data: Names the pairs of the request, and the directions of the student.
        run: The run folder of the teacher.
        is_one: The teacher has one direction, so repeated pairs count as often as they are there.
    """
    given = data.given_splits(name)
    own = {} if given else read_directions(run, name)
    found: ByDirection = {}
    for direction in data.directions:
        pairs = list(own.get(direction, ()))
        pairs += (pair[::-1] for pair in own.get(direction.reversed(), ()))
        for spec, languages in given:
            read = read_pairs(spec, *languages, swap=data.swap, replace=data.replace)
            if languages == direction:
                pairs += read
            elif languages == direction.reversed():
                pairs += (pair[::-1] for pair in read)
        found[direction] = pairs if is_one else list(dict.fromkeys(pairs))
    return found


def text_of(request: Request, teachers: Teachers) -> Text | None:
    """Return the text in the source language, without the sentences of the held-out pairs; None: there is none."""
    if request.mono_src is None:
        return None
    every = (pair for split in teachers.held_out.values() for pairs in split.values() for pair in pairs)
    keys = frozenset(source_key(text) for pair in every for text in pair)
    return Text(request.mono_src, keys, teachers.data.replace)
