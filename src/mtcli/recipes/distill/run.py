"""Run the stages of `mtcli distill`, or those that are left, and compare the student with its teachers."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Self

from mtcli.config.schema import Config, ModelConfig
from mtcli.config.scores import bleu_tokenizer
from mtcli.corpus.cache.info import fingerprint, fingerprint_inputs
from mtcli.corpus.held_out import HELD_OUT_SPLITS
from mtcli.errors import DataError, StageError, UsageError
from mtcli.evaluation import metrics
from mtcli.recipes.distill.request import Request, Teachers, check, student_config, text_of
from mtcli.recipes.distill.stages import EXPORT, GREEDY, STUDENT, Distillation, System, vocabulary
from mtcli.recipes.distill.student_shape import (
    Usage,
    Vocabulary,
    num_parameters,
    within_latency,
    within_parameters,
)
from mtcli.recipes.monolingual import write_lines, write_pairs
from mtcli.recipes.recipe import Changes, Recipe, Stage, open_recipe
from mtcli.report.plan import size
from mtcli.report.run_record import RecipeRecord
from mtcli.report.run_report import write_report
from mtcli.runtime.device import describe, pick_device
from mtcli.runtime.outputs import check_folder
from mtcli.runtime.wording import aligned, counted
from mtcli.storage.model_folder import model_digest, model_weights
from mtcli.storage.run_name import RUNS, run_name
from mtcli.text.languages import Direction
from mtcli.text.lines import Pair, read_lines
from mtcli.translate.loading import load
from mtcli.translate.translation import Options
from mtcli.translate.translator import Translator
from mtcli.translate.windows import Reading

log = logging.getLogger(__name__)

NAME = "distill"

SHAPE = "shape"
"""The name of the value that has the shape of the student."""

COMPARISON = "comparison"
CARD = "model card"

CHANGES = Changes(
    may_grow=("--time", "--max-steps"),
    may_change=("--keep-pairs", "--preset", "--parameters", "--latency", "--set", "the tokenizer"),
    repeated=(STUDENT, EXPORT, COMPARISON, CARD),
    chosen=(SHAPE,),
)
"""Options of the student may change until it is trained: the translations of the teachers do not depend on them."""

WARM_UP_LINES = 50
"""Lines that are translated before the time is taken."""


def distill(request: Request) -> tuple[SystemComparison, Path]:
    """Run all stages, or those that are left if the command was interrupted, and compare student and teachers.

    If the student gets a larger budget than before, it is trained further, exported and compared again. Until it is
    trained, its other options may change too.

    Returns:
        The comparison, and the run folder of the student.

    Raises:
        UsageError: Options or models that do not fit together, or a folder with something else.
        DataError: Pairs are missing, or no translation of the teachers can be used.
        ModelError: A teacher is no model.
        StageError: A stage failed.
        StoppedError: A signal arrived.
        LockedError: Another process works in the folder.
    """
    pick_device(request.device)  # before the folder records a device that this machine does not have
    teachers = check(request)
    folder = _folder_of(request, teachers)
    inputs = _inputs(request, teachers)
    identity = _identity(request, teachers, inputs)
    with open_recipe(folder, NAME, identity, CHANGES, inputs) as recipe:
        distillation = distillation_of(request, teachers, folder, recipe)
        if teachers.has_several:
            recipe.value("held-out pairs", partial(_write_held_out, distillation))
        text = text_of(request, teachers)
        if text is not None:
            recipe.value("text", lambda: write_lines(text.usable(report=True), distillation.text))
        for stage in distillation.stages():
            if stage.name == STUDENT:
                _check_translations(distillation)
            _run(stage, recipe, distillation.student)
        pairs = teachers.held_out["test"]
        tokenize = teachers.bleu_tokenizer
        found = recipe.value(COMPARISON, lambda: compare(distillation.systems(), pairs, tokenize).to_dict())
        comparison = SystemComparison.of(found)
        device = describe(pick_device(request.device))
        record = recipe_record(distillation, comparison)
        recipe.complete(CARD, lambda: write_report(distillation.student, device, record))
        recipe.link_result(distillation.student)
    return comparison, distillation.student


def _write_held_out(distillation: Distillation) -> dict[str, int]:
    """Write the validation and test pairs of each pair of languages, and return their numbers by file."""
    numbers = {}
    for name, split in distillation.teachers.held_out.items():
        for direction, pairs in split.items():
            path = Path(distillation.held_out(name, direction))
            if path.name not in numbers:
                numbers[path.name] = write_pairs(path, pairs, direction)
    return numbers


def _check_translations(distillation: Distillation) -> None:
    """Check that a student that learns from translations alone has one to learn from.

    Raises:
        DataError: It has none.
    """
    files = distillation.translations
    if distillation.request.keep_pairs or not all(_has_no_pairs(path) for path in files):
        return
    names = ", ".join(map(str, files))
    raise DataError(
        f"{names}: no pair for the student: all translations were dropped, for the reasons that augment has printed; "
        "use a teacher that translates this text better"
    )


def _has_no_pairs(path: Path) -> bool:
    """Return True if a file of `augment` exists and has at most the line with the names of its columns."""
    return path.exists() and sum(1 for _ in islice(read_lines(path), 2)) < 2


def _run(stage: Stage, recipe: Recipe, student: Path) -> None:
    """Run a stage, and if the folder of the student has one with other options, say what to do.

    The stage itself proposes options of `train`, which `distill` does not have.
    """
    try:
        recipe.run(stage)
    except StageError as error:
        if stage.name == STUDENT and student.exists() and error.exit_code == UsageError.exit_code:
            log.warning("%s: to train the student with other options, delete this folder first", student)
        raise


def plan(request: Request) -> list[Stage]:
    """Return the stages of a request without running them. See `distill` for the errors."""
    teachers = check(request)
    return distillation_of(request, teachers, _folder_of(request, teachers), None).stages()


def distillation_of(request: Request, teachers: Teachers, folder: Path, recipe: Recipe | None) -> Distillation:
    """Choose the shape of the student, and return the request with all choices.

    Args:
        request: The request.
        teachers: What `check` returned.
        folder: The folder of the recipe.
        recipe: Stores the shape, because a measured one may differ the next time; None: it is not stored.

    Raises:
        UsageError: No student is small enough.
    """
    config = student_config(request)
    student_vocabulary = _vocabulary(teachers, config)
    shape = None
    if request.parameters is not None or request.latency is not None:
        choose = partial(_choose_shape, request, teachers, config, student_vocabulary)
        shape = ModelConfig.model_validate(recipe.value(SHAPE, choose) if recipe is not None else choose())
    number = num_parameters(shape or config.model, student_vocabulary)
    if teachers.num_parameters is not None and number > teachers.num_parameters:
        larger_than = "its teacher" if len(request.teachers) == 1 else "its teachers together"
        log.warning(
            "the student has %s parameters, more than %s (%s); --parameters N chooses a smaller one",
            f"{number:,}",
            larger_than,
            f"{teachers.num_parameters:,}",
        )
    return Distillation(request, teachers, folder, shape)


def _vocabulary(teachers: Teachers, config: Config) -> Vocabulary:
    """Return the vocabulary of the student: its own, or one of the size of the teacher's.

    Args:
        teachers: The teachers.
        config: What `student_config` returned.
    """
    found = vocabulary(teachers.student_tokenizer or teachers.tokenizer)
    given = config.tokenizer
    if given.vocab_size is not None:
        found = Vocabulary(given.vocab_size, given.vocab_size, found.joint)
    if "joint" in given.model_fields_set:
        found = Vocabulary(found.src_size, found.tgt_size, given.joint)
    return found


def _choose_shape(request: Request, teachers: Teachers, config: Config, student: Vocabulary) -> dict[str, Any]:
    """Return the shape of the student as JSON."""
    if request.parameters is not None:
        shape = within_parameters(request.parameters, student, config.model)
    else:
        assert request.latency is not None
        shape = within_latency(request.latency, student, _usage(teachers, config), config.model)
    return shape.model_dump()


def _usage(teachers: Teachers, config: Config) -> Usage:
    """Return the mean lengths of the validation pairs, and the beam size of the student."""
    pairs = [pair for own in teachers.held_out["valid"].values() for pair in own]
    sources = teachers.tokenizer.encode_src([src for src, _ in pairs])
    targets = teachers.tokenizer.encode_tgt([tgt for _, tgt in pairs])
    src_tokens = round(sum(map(len, sources)) / len(pairs))
    tgt_tokens = round(sum(map(len, targets)) / len(pairs))
    is_given = "beam_size" in config.decode.model_fields_set
    return Usage(max(1, src_tokens), max(1, tgt_tokens), config.decode.beam_size if is_given else GREEDY)


def _folder_of(request: Request, teachers: Teachers) -> Path:
    """Return the folder of the recipe, named after the first corpus unless the user names it.

    Raises:
        UsageError, StorageError: It cannot be written, or contains an input.
    """
    folder = request.out or RUNS / f"{run_name(teachers.data, None)}-distilled"
    inputs = [teacher / "model.safetensors" for teacher in request.teachers]
    check_folder(folder, [*inputs, request.mono_src], option="--out")
    return folder


def _inputs(request: Request, teachers: Teachers) -> dict[str, Any]:
    """Return the fingerprints of the files that the stages read, by name."""
    data = teachers.data
    paths = [model_weights(teacher) for teacher in request.teachers]
    paths += [teachers.run / "data" / f"{name}.jsonl" for name in HELD_OUT_SPLITS if not data.given_splits(name)]
    if request.mono_src is not None:
        paths.append(request.mono_src)
    return fingerprint_inputs(Config(data=data)) | {str(path): fingerprint(path) for path in paths}


def _identity(request: Request, teachers: Teachers, inputs: dict[str, Any]) -> dict[str, Any]:
    """Return everything that decides the result, by the name that a message can use.

    Args:
        request: The request.
        teachers: The teachers.
        inputs: What `_inputs` returned.
    """
    data = teachers.data
    held_out = {name: [spec for spec, _ in data.given_splits(name)] for name in HELD_OUT_SPLITS}
    pairs = fingerprint_inputs(Config(data=data), inputs)
    tokenizer = teachers.student_tokenizer
    return {
        "--teacher": [model_digest(teacher)[:12] for teacher in request.teachers],
        "--train": request.train,
        "--valid": held_out["valid"] if teachers.has_several else held_out["valid"][0],
        "--test": held_out["test"] if teachers.has_several else held_out["test"][0],
        "the directions": [str(corpus.direction) for corpus in data.directed] if teachers.has_several else None,
        "the content of the pairs": [file["sha256"][:12] for file in pairs.values()],
        "--mono-src": inputs[str(request.mono_src)]["sha256"][:12] if request.mono_src else None,
        "--swap": request.swap,
        "--replace": request.replace,
        "--keep-pairs": request.keep_pairs,
        "--preset": request.preset,
        "--parameters": request.parameters,
        "--latency": request.latency,
        "--time": student_config(request).train.time if request.time else None,
        "--max-steps": request.max_steps,
        "--set": request.sets,
        "--device": request.device,
        "the tokenizer": tokenizer.digest()[:12] if tokenizer is not None else None,
    }


@dataclass(frozen=True)
class SystemFigures:
    """The figures of one system."""

    name: str
    beam_size: int
    bleu: float
    chrf: float
    lines_per_second: float
    """Lines per second of CPU time."""
    bytes: int
    """Size of the weights."""


@dataclass(frozen=True)
class SystemComparison:
    """The figures of several systems on the same pairs, the student's last."""

    pairs: int
    signature: str
    """sacrebleu's signature of BLEU."""
    results: tuple[SystemFigures, ...]
    directions: int = 1
    """The scores are means over this many directions."""

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as JSON types."""
        return asdict(self)

    @classmethod
    def of(cls, found: dict[str, Any]) -> Self:
        """Return the comparison that `to_dict` described."""
        results = tuple(SystemFigures(**result) for result in found["results"])
        return cls(found["pairs"], found["signature"], results, found.get("directions", 1))

    def pairs_in_words(self) -> str:
        """Return how many pairs were scored."""
        mean = f", mean of {self.directions} directions" if self.directions > 1 else ""
        return f"{counted(self.pairs, 'test pair')}{mean}"

    def table(self) -> list[tuple[str, ...]]:
        """Return a row of headings, and a row for each system."""
        rows: list[tuple[str, ...]] = [("", "BLEU", "chrF", "beam", "lines/s on one core", "weights")]
        for result in self.results:
            scores = (f"{result.bleu:.1f}", f"{result.chrf:.1f}")
            speed = f"{result.lines_per_second:,.0f}"
            rows.append((result.name, *scores, f"{result.beam_size}", speed, size(result.bytes)))
        return rows

    def __str__(self) -> str:
        lines = aligned(self.table(), numeric=True)
        return "\n".join([f"{self.pairs_in_words()}, {self.signature}", *lines, self.summary()])

    def summary(self) -> str:
        """Compare the student with the first system."""
        teacher, *_, student = self.results
        share = f"{100 * student.bleu / teacher.bleu:.1f}% of" if teacher.bleu else "no share of"
        times = student.lines_per_second / teacher.lines_per_second
        return f"the student has {share} the BLEU of {teacher.name}, at {times:.1f} times its speed"


def compare(
    systems: Sequence[System], pairs: Mapping[Direction, Sequence[Pair]], tokenize: str | None = None
) -> SystemComparison:
    """Translate the sources of some pairs with each system, score the translations, and measure the speed.

    The speed is in lines per second of CPU time, so that it is that of one core on any number of cores, and other work
    on the machine matters little.

    Args:
        systems: The systems.
        pairs: Test pairs of each direction. Scores are means over the directions.
        tokenize: sacrebleu's tokenizer for BLEU; None: that of the target language.

    Raises:
        ModelError: A system has no usable model.
        UsageError: Models that cannot be combined.
    """
    num_pairs = sum(map(len, pairs.values()))
    results = []
    signatures: list[str] = []
    for system in systems:
        translator, options, _ = load(system.models, "cpu")
        seconds = 0.0
        scores = []
        signatures = []
        for direction, own in pairs.items():
            to = direction.tgt if translator.tokenizer.tags else ""
            translations, used = _timed(translator, replace(options, to=to), [src for src, _ in own])
            seconds += used
            tokenizer = tokenize or bleu_tokenizer(direction.tgt)
            references = [[tgt for _, tgt in own]]
            bleu, chrf = metrics.score(translations, references, metrics=("bleu", "chrf"), tokenize=tokenizer)
            scores.append((bleu.value, chrf.value))
            signatures.append(bleu.signature)
        mean_bleu, mean_chrf = (sum(values) / len(pairs) for values in zip(*scores, strict=True))
        bytes_ = sum(model_weights(model).stat().st_size for model in system.models)
        speed = num_pairs / max(seconds, 1e-9)
        results.append(SystemFigures(system.name, options.beam_size, mean_bleu, mean_chrf, speed, bytes_))
    return SystemComparison(num_pairs, ", ".join(dict.fromkeys(signatures)), tuple(results), len(pairs))


def _timed(translator: Translator, options: Options, sources: Sequence[str]) -> tuple[list[str], float]:
    """Return the translations of some sources, and the CPU seconds that they took."""
    list(translator.translate(sources[:WARM_UP_LINES], options, Reading(warn=False, quiet=True)))
    started = time.process_time()
    found = list(translator.translate(sources, options, Reading(total=len(sources), warn=False)))
    seconds = time.process_time() - started
    return [translation.text for translation in found], seconds


def recipe_record(distillation: Distillation, comparison: SystemComparison) -> RecipeRecord:
    """Return how the student was made, for its model card."""
    teachers = " and ".join(f"`{teacher}`" for teacher in distillation.request.teachers)
    pairs = comparison.pairs_in_words()
    description = (
        f"`mtcli distill` trained this student on translations by {teachers}. The corpora of its training are listed "
        f"under Data. On {pairs} ({comparison.signature}), {comparison.summary()}."
    )
    shown = [str(stage) for stage in distillation.stages()]
    return RecipeRecord(distillation.folder.resolve().name, description, comparison.table(), shown)
