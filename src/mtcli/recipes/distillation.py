"""`mtcli distill`: train a small, fast student on the translations of one or several teachers.

Sequence-level knowledge distillation (Kim & Rush 2016, §3.2): the teachers translate the sources of the training pairs
by beam search, and the student learns these translations. They are more regular than those of people, so that a small
model can learn them, and greedy search finds them nearly as well as beam search.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mtcli.config.build import build
from mtcli.config.schema import Config, DataConfig, ModelConfig
from mtcli.data.corpus import Pair, read_pairs
from mtcli.data.fingerprints import fingerprint_inputs
from mtcli.data.sources import Source, parse_source
from mtcli.data.tokenizer import Tokenizer
from mtcli.errors import UsageError
from mtcli.inference.ctranslate2_backend import import_ctranslate2
from mtcli.inference.exported import provenance, sha256
from mtcli.inference.loading import load_ensemble
from mtcli.recipes.comparison import Comparison, System, compare
from mtcli.recipes.stages import Recipe, Stage, open_recipe
from mtcli.recipes.student_shape import Usage, Vocabulary, nearest_preset, within_latency, within_parameters
from mtcli.runtime.output_checks import check_folder
from mtcli.storage.run_name import RUNS, run_name

log = logging.getLogger(__name__)

VOCABULARY_SIZE = 8000
"""Tokens of a student's vocabulary if that of the teacher cannot be trained again: imported models have large ones."""

GREEDY = 1
"""The default beam size of a student."""


@dataclass(frozen=True)
class Request:
    """What the user asks `mtcli distill` for."""

    teachers: tuple[Path, ...]
    train: tuple[str, ...]
    """Training pairs, each `PATH` or `PATH@WEIGHT`."""
    valid: str | None = None
    """Validation pairs; None: those of the first teacher's run."""
    test: str | None = None
    """Test pairs; None: those of the first teacher's run."""
    swap: bool = False
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

    src: str
    tgt: str
    tokenizer: Tokenizer
    valid: str
    test: str


@dataclass(frozen=True)
class Distillation:
    """A request with everything that it left open."""

    request: Request
    teachers: Teachers
    folder: Path
    shape: ModelConfig | None
    """The shape of the student; None: that of the preset."""

    @property
    def student(self) -> Path:
        """The run folder of the student."""
        return self.folder / "student"

    @property
    def exported_student(self) -> Path:
        """The student for CTranslate2."""
        return self.folder / "student-int8"

    def exported_teacher(self, number: int) -> Path:
        """Return the folder of a teacher for CTranslate2; it is the teacher itself if this is already exported."""
        teacher = self.request.teachers[number]
        if provenance(teacher) is not None:
            return teacher
        return self.folder / f"teacher-{number + 1}-int8"

    def stages(self) -> list[Stage]:
        """Return the commands in their order."""
        return [*self._data_stages(), self._training(), *self._exports()]

    def _data_stages(self) -> Iterator[Stage]:
        """Yield the commands that clean the pairs and translate their sources."""
        request = self.request
        teachers = self.teachers
        languages = ("--src", teachers.src, "--tgt", teachers.tgt)
        held_out = ("--valid", teachers.valid, "--test", teachers.test)
        swap = ("--swap",) if request.swap else ()
        for number, source in enumerate(self._sources(), 1):
            pairs = str(self._pairs(number))
            clean = ("data", "clean", source.path, "-o", pairs, *languages, *swap, *held_out, "--force")
            yield Stage(f"clean {number}", clean)
            yield self._translation(f"translate {number}", f"{pairs}.{teachers.src}", self._translated(number))
        if request.mono_src is not None:
            yield self._translation("translate text", str(request.mono_src), self._translated_text)

    def _translation(self, name: str, text: str, output: Path) -> Stage:
        models = [word for teacher in self.request.teachers for word in ("--model", str(teacher))]
        words = ("augment", *models, "--forward", "-i", text, "-o", str(output), "--force", *self._device())
        return Stage(name, words)

    def _device(self) -> tuple[str, ...]:
        return () if self.request.device == "auto" else ("--device", self.request.device)

    def _training(self) -> Stage:
        """Return the command that trains the student."""
        request = self.request
        teachers = self.teachers
        corpora = []
        for number, source in enumerate(self._sources(), 1):
            corpora.append(_weighted(self._translated(number), source))
            if request.keep_pairs:
                corpora.append(_weighted(self._pairs(number), source))
        if request.mono_src is not None:
            corpora.append(str(self._translated_text))
        words = ["train"]
        for corpus in corpora:
            words += ["--train", corpus]
        words += ["--valid", teachers.valid, "--test", teachers.test, "--src", teachers.src, "--tgt", teachers.tgt]
        words += ["--out", str(self.student), *self._size()]
        for setting in (*self._settings(), *request.sets):
            words += ["--set", setting]
        if request.time is not None:
            words += ["--time", request.time]
        if request.max_steps is not None:
            words += ["--max-steps", str(request.max_steps)]
        return Stage("student", (*words, *self._device()))

    def _size(self) -> list[str]:
        """Return the options that decide the size of the student."""
        preset = self.request.preset or "tiny"
        if self.shape is None:
            return ["--preset", preset]
        names = ("d_model", "d_ff", "num_heads", "num_encoder_layers", "num_decoder_layers")
        words = ["--preset", nearest_preset(self.shape)]
        for name in names:
            words += ["--set", f"model.{name}={getattr(self.shape, name)}"]
        return words

    def _settings(self) -> list[str]:
        """Return the settings in which a student differs from the defaults of training."""
        tokenizer = self.teachers.tokenizer
        settings = [f"decode.beam_size={GREEDY}", f"tokenizer.vocab_size={vocabulary(tokenizer).tgt_size}"]
        if tokenizer.sentencepiece is None:
            joint = "true" if tokenizer.joint else "false"
            settings += [f"tokenizer.type={tokenizer.kind}", f"tokenizer.joint={joint}"]
        return settings

    def _exports(self) -> Iterator[Stage]:
        """Yield the commands that convert the student and the teachers for CTranslate2."""
        how = ("--to", "ctranslate2", "--quantization", "int8")
        yield Stage("export", ("export", str(self.student), *how, "-o", str(self.exported_student)))
        for number, teacher in enumerate(self.request.teachers):
            exported = self.exported_teacher(number)
            if exported != teacher:
                yield Stage(f"export teacher {number + 1}", ("export", str(teacher), *how, "-o", str(exported)))

    def systems(self) -> list[System]:
        """Return the systems to compare, the student last."""
        teachers = self.request.teachers
        systems = []
        if len(teachers) > 1:
            systems.append(System("teachers together, PyTorch", tuple(teachers)))
        for number, teacher in enumerate(teachers):
            systems.append(System(f"teacher {teacher}, int8", (self.exported_teacher(number),)))
        systems.append(System("student, int8", (self.exported_student,)))
        return systems

    def _sources(self) -> list[Source]:
        return [parse_source(spec) for spec in self.request.train]

    def _pairs(self, number: int) -> Path:
        return self.folder / f"pairs-{number}"

    def _translated(self, number: int) -> Path:
        return self.folder / f"translated-{number}.tsv"

    @property
    def _translated_text(self) -> Path:
        return self.folder / "translated-text.tsv"


def distill(request: Request) -> Comparison:
    """Run all stages, or those that are left if the command was interrupted, and compare student and teachers.

    Raises:
        UsageError: Options or models that do not fit together, or a folder with something else.
        DataError: Pairs are missing.
        ModelError: A teacher is no model.
        StageError: A stage failed.
        StoppedError: A signal arrived.
        LockedError: Another process works in the folder.
    """
    teachers = check(request)
    folder = folder_of(request, teachers)
    with open_recipe(folder, _identity(request, teachers)) as recipe:
        distillation = plan(request, teachers, folder, recipe)
        stages = distillation.stages()
        for stage in stages:
            recipe.run(stage)
        pairs = _held_out_pairs(teachers.test, teachers)
        found = recipe.value("comparison", lambda: compare(distillation.systems(), pairs).to_dict())
    return Comparison.of(found)


def commands(request: Request) -> list[Stage]:
    """Return the stages of a request without running them. See `distill` for the errors."""
    teachers = check(request)
    return plan(request, teachers, folder_of(request, teachers), None).stages()


def plan(request: Request, teachers: Teachers, folder: Path, recipe: Recipe | None) -> Distillation:
    """Choose the shape of the student, once per recipe.

    Raises:
        UsageError: No student is small enough.
    """
    if request.parameters is None and request.latency is None:
        return Distillation(request, teachers, folder, None)
    found = recipe.value("shape", lambda: _shape(request, teachers)) if recipe else _shape(request, teachers)
    return Distillation(request, teachers, folder, ModelConfig.model_validate(found))


def _shape(request: Request, teachers: Teachers) -> dict[str, Any]:
    """Return the shape of the student as JSON."""
    student = vocabulary(teachers.tokenizer)
    config = build(None, {}, request.sets)
    if "vocab_size" in config.tokenizer.model_fields_set and config.tokenizer.vocab_size is not None:
        size = config.tokenizer.vocab_size
        student = Vocabulary(size, size, student.joint)
    if request.parameters is not None:
        shape = within_parameters(request.parameters, student)
    else:
        assert request.latency is not None
        shape = within_latency(request.latency, student, _usage(teachers, config))
    return shape.model_dump()


def vocabulary(tokenizer: Tokenizer) -> Vocabulary:
    """Return the vocabulary of a student: of the size of the teacher's, unless this is imported."""
    if tokenizer.sentencepiece is not None:
        return Vocabulary(VOCABULARY_SIZE, VOCABULARY_SIZE, joint=True)
    return Vocabulary(tokenizer.src_size, tokenizer.tgt_size, tokenizer.joint)


def _usage(teachers: Teachers, config: Config) -> Usage:
    """Return the mean lengths of the validation pairs, and the beam size of the student."""
    pairs = _held_out_pairs(teachers.valid, teachers)
    sources = teachers.tokenizer.encode_src([src for src, _ in pairs])
    targets = teachers.tokenizer.encode_tgt([tgt for _, tgt in pairs])
    src_tokens = round(sum(map(len, sources)) / len(pairs))
    tgt_tokens = round(sum(map(len, targets)) / len(pairs))
    is_given = "beam_size" in config.decode.model_fields_set
    return Usage(max(1, src_tokens), max(1, tgt_tokens), config.decode.beam_size if is_given else GREEDY)


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
    options = {"preset": request.preset, "train.time": request.time, "train.max_steps": request.max_steps}
    build(None, options, request.sets)
    translator, _, (src, tgt) = load_ensemble(request.teachers, "cpu")
    if translator.tokenizer.tags:
        raise UsageError(f"--teacher {request.teachers[0]}: has several target languages; name a model with one")
    valid = request.valid or _split_of_teacher(request.teachers[0], "valid")
    test = request.test or _split_of_teacher(request.teachers[0], "test")
    teachers = Teachers(src, tgt, translator.tokenizer, valid, test)
    for name, spec in (("--valid", valid), ("--test", test)):
        if not _held_out_pairs(spec, teachers):
            raise UsageError(f"{name} {spec}: has no pairs; name others")
    return teachers


def _split_of_teacher(teacher: Path, name: str) -> str:
    """Return the held-out pairs in the run of a teacher, which may be a checkpoint of the run.

    Raises:
        UsageError: There are none.
    """
    for run in (teacher, teacher.resolve().parent.parent):
        path = run / "data" / f"{name}.jsonl"
        if path.is_file() and path.stat().st_size:
            return str(path)
    raise UsageError(f"--{name}: there are no {name} pairs beside {teacher}; name some that it was not trained on")


def _held_out_pairs(spec: str, teachers: Teachers) -> list[Pair]:
    return list(read_pairs(spec, teachers.src, teachers.tgt))


def folder_of(request: Request, teachers: Teachers) -> Path:
    """Return the folder of the recipe, named after the first corpus unless the user names it.

    Raises:
        UsageError, StorageError: It cannot be written, or contains an input.
    """
    data = DataConfig(train=request.train, src=teachers.src, tgt=teachers.tgt)
    folder = request.out or RUNS / f"{run_name(data, None)}-distilled"
    inputs = [teacher / "model.safetensors" for teacher in request.teachers]
    check_folder(folder, [*inputs, request.mono_src], option="--out")
    return folder


def _identity(request: Request, teachers: Teachers) -> dict[str, Any]:
    """Return everything that decides the result, by the name that a message can use."""
    data = DataConfig(train=request.train, valid=teachers.valid, test=teachers.test, src=teachers.src, tgt=teachers.tgt)
    files = fingerprint_inputs(Config(data=data))
    return {
        "--teacher": [_digest(teacher) for teacher in request.teachers],
        "--train": request.train,
        "--valid": teachers.valid,
        "--test": teachers.test,
        "the content of the pairs": [file["sha256"][:12] for file in files.values()],
        "--mono-src": sha256(request.mono_src)[:12] if request.mono_src else None,
        "--swap": request.swap,
        "--keep-pairs": request.keep_pairs,
        "--preset": request.preset,
        "--parameters": request.parameters,
        "--latency": request.latency,
        "--time": request.time,
        "--max-steps": request.max_steps,
        "--set": request.sets,
        "--device": request.device,
    }


def _digest(model: Path) -> str:
    names = ("model.safetensors", "model.bin")
    return sha256(next(model / name for name in names if (model / name).is_file()))[:12]


def _weighted(path: Path, source: Source) -> str:
    return str(path) if source.weight == 1 else f"{path}@{source.weight:g}"
