"""The stages of `mtcli distill` as commands of mtcli."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from mtcli.config.schema import Config, DirectedCorpus, ModelConfig, TokenizerConfig
from mtcli.corpus.held_out import HeldOutSplit
from mtcli.corpus.readers.sources import parse_source
from mtcli.exchange.export import obstacles
from mtcli.recipes.commands import (
    StageCorpus,
    as_argument,
    augment_command,
    corpora_options,
    device_option,
    held_out_options,
    repeated,
    same_languages,
    weighted,
)
from mtcli.recipes.distill.request import DEFAULT_PRESET, Request, Teachers
from mtcli.recipes.distill.student_shape import Vocabulary, nearest_preset
from mtcli.recipes.recipe import Stage
from mtcli.storage.model_file import load_model
from mtcli.text.languages import Direction
from mtcli.text.tokenizer.tokenizer import Tokenizer
from mtcli.translate.backends.exported import provenance

VOCABULARY_SIZE = 8000
"""Tokens of a student's vocabulary if that of the teacher cannot be trained again: imported models have large ones."""

STUDENT = "student"
"""The name of the stage that trains the student."""

EXPORT = "export"
"""The name of the stage that exports the student."""

GREEDY = 1
"""The default beam size of a student."""


@dataclass(frozen=True)
class System:
    """A model, or several whose probabilities are averaged."""

    name: str
    models: tuple[Path, ...]


@dataclass(frozen=True)
class Distillation:
    """A request, and what was chosen for it: the folder, and the shape of the student."""

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

    @property
    def text(self) -> Path:
        """The lines of the text in the source language that are translated."""
        return self.folder / f"text.{self.teachers.source_languages[0]}"

    @property
    def has_several(self) -> bool:
        """True if the student has several directions."""
        return len(self.teachers.directions) > 1

    def held_out(self, name: HeldOutSplit, direction: Direction) -> str:
        """Return the validation or test pairs of a direction: a file of the recipe, if there are several directions.

        Opposite directions share it.
        """
        if not self.has_several and not self.teachers.has_several:
            ((spec, _),) = self.teachers.data.given_splits(name)
            return spec
        first = same_languages(self.teachers.directions, direction)
        return str(self.folder / "held-out" / f"{name}.{first.src}-{first.tgt}.jsonl")

    @cached_property
    def measured_teachers(self) -> list[Path]:
        """For each teacher, its folder for CTranslate2, or the teacher itself if it is not to be exported."""
        return [
            self.folder / f"teacher-{number}-int8" if _can_be_exported(teacher) else teacher
            for number, teacher in enumerate(self.request.teachers, 1)
        ]

    @property
    def translations(self) -> list[Path]:
        """The files of pairs that the teachers make."""
        files = [self._translated(number) for number, _ in self._corpora()]
        return files + [self._translated_text(direction) for direction in self._directions_of_text()]

    def stages(self) -> list[Stage]:
        """Return the commands in their order."""
        return [*self._data_stages(), self._training(), *self._exports()]

    def _data_stages(self) -> Iterator[Stage]:
        """Yield the commands that clean the pairs and translate their sources."""
        request = self.request
        for number, corpus in self._corpora():
            direction = corpus.direction
            pairs = str(self._pairs(number))
            if corpus.is_reversed:  # the files of the stage before have the names of their languages
                source = str(self._pairs(number - 1))
            else:
                source = as_argument(parse_source(corpus.train).path)
            swap = ("--swap",) if request.swap and not corpus.is_reversed else ()
            languages = ("--src", direction.src, "--tgt", direction.tgt)
            held_out = held_out_options(direction, self.held_out)
            yield Stage(
                f"clean {number}", ("data", "clean", source, "-o", pairs, *languages, *swap, *held_out, "--force")
            )
            text = f"{pairs}.{direction.src}"
            yield self._translation(f"translate {number}", direction, text, self._translated(number))
        for direction in self._directions_of_text():
            name = f"translate text to {direction.tgt}" if self.has_several else "translate text"
            yield self._translation(name, direction, str(self.text), self._translated_text(direction))

    def _translation(self, name: str, direction: Direction, text: str, output: Path) -> Stage:
        request = self.request
        languages = direction if self.teachers.has_several else None
        command = augment_command(request.teachers, text, output, ["--forward"], languages, request.device)
        return Stage(name, tuple(command))

    def _training(self) -> Stage:
        """Return the command that trains the student."""
        request = self.request
        corpora: list[StageCorpus] = []
        for number, corpus in self._corpora():
            weight = parse_source(corpus.train).weight
            corpora.append(StageCorpus(corpus.direction, weighted(self._translated(number), weight)))
            if request.keep_pairs:
                corpora.append(StageCorpus(corpus.direction, weighted(self._pairs(number), weight)))
        for direction in self._directions_of_text():
            corpora.append(StageCorpus(direction, str(self._translated_text(direction))))
        words = ["train", *corpora_options(corpora, self.held_out, for_each=self.has_several)]
        if request.swap:
            words.append("--swap")  # for the held-out pairs: the other files name their languages
        if request.replace:
            words.append("--replace")  # for the held-out pairs too
        words += ["--out", str(self.student), *self._size()]
        words += repeated("--set", [*self._settings(), *request.sets])
        if request.time is not None:
            words += ["--time", request.time]
        if request.max_steps is not None:
            words += ["--max-steps", str(request.max_steps)]
        return Stage(STUDENT, (*words, *device_option(request.device)))

    def _size(self) -> list[str]:
        """Return the options that decide the size of the student."""
        if self.shape is None:
            return ["--preset", self.request.preset or DEFAULT_PRESET]
        names = ("d_model", "d_ff", "num_heads", "num_encoder_layers", "num_decoder_layers")
        words = ["--preset", nearest_preset(self.shape)]
        for name in names:
            words += ["--set", f"model.{name}={getattr(self.shape, name)}"]
        return words

    def _settings(self) -> list[str]:
        """Return the settings in which a student differs from the defaults of training."""
        settings = [f"decode.beam_size={GREEDY}", *self._tokenizer_settings()]
        tokenizer = self.teachers.student_tokenizer
        if tokenizer is not None and tokenizer.has_placeholders:
            settings.append("data.placeholders=true")  # the translation of documents uses the tokens of any such model
        if self.teachers.bleu_tokenizer is not None:
            settings.append(f"train.bleu_tokenizer={self.teachers.bleu_tokenizer}")
        return settings

    def _tokenizer_settings(self) -> list[str]:
        """Return the settings that give the student the teacher's tokenizer, or a new one of its kind and size."""
        teachers = self.teachers
        if teachers.tokenizer_file is not None:
            return [f"tokenizer.file={teachers.tokenizer_file}"]
        if teachers.student_tokenizer is not None:  # the user names its file
            return []
        settings = [f"tokenizer.vocab_size={vocabulary(teachers.tokenizer).tgt_size}"]
        if teachers.tokenizer.sentencepiece is None:
            joint = "true" if teachers.tokenizer.joint else "false"
            settings += [f"tokenizer.type={teachers.tokenizer.kind}", f"tokenizer.joint={joint}"]
        return settings

    def _exports(self) -> Iterator[Stage]:
        """Yield the commands that convert the student and the teachers for CTranslate2."""
        how = ("--to", "ctranslate2", "--quantization", "int8")
        yield Stage(EXPORT, ("export", as_argument(self.student), *how, "-o", str(self.exported_student)))
        teachers = zip(self.request.teachers, self.measured_teachers, strict=True)
        for number, (teacher, exported) in enumerate(teachers, 1):
            if exported != teacher:
                yield Stage(f"export teacher {number}", ("export", as_argument(teacher), *how, "-o", str(exported)))

    def systems(self) -> list[System]:
        """Return the systems to compare, the student last."""
        teachers = self.request.teachers
        systems = []
        if len(teachers) > 1:
            systems.append(System("teachers together, PyTorch", tuple(teachers)))
        for teacher, measured in zip(teachers, self.measured_teachers, strict=True):
            library = "as it is" if measured == teacher else "int8"
            systems.append(System(f"teacher {teacher}, {library}", (measured,)))
        systems.append(System("student, int8", (self.exported_student,)))
        return systems

    def _corpora(self) -> list[tuple[int, DirectedCorpus]]:
        """Return the training corpora of each direction, with their numbers from 1."""
        return list(enumerate(self.teachers.data.directed, 1))

    def _directions_of_text(self) -> list[Direction]:
        """Return the directions in which the text in the source language is translated."""
        return [*self.teachers.directions] if self.request.mono_src is not None else []

    def _pairs(self, number: int) -> Path:
        return self.folder / f"pairs-{number}"

    def _translated(self, number: int) -> Path:
        return self.folder / f"translated-{number}.tsv"

    def _translated_text(self, direction: Direction) -> Path:
        name = f"translated-text.{direction.tgt}.tsv" if self.has_several else "translated-text.tsv"
        return self.folder / name


def vocabulary(tokenizer: Tokenizer) -> Vocabulary:
    """Return the vocabulary of a student: of the size of the teacher's, unless this is imported."""
    if tokenizer.sentencepiece is not None:
        return Vocabulary(VOCABULARY_SIZE, VOCABULARY_SIZE, joint=True)
    return Vocabulary(tokenizer.src_size, tokenizer.tgt_size, tokenizer.joint)


def _can_be_exported(teacher: Path) -> bool:
    """Return True if a teacher is a model of PyTorch that CTranslate2 supports."""
    if provenance(teacher) is not None:
        return False
    _, info, _ = load_model(teacher)
    config = Config(model=info.model, tokenizer=TokenizerConfig(joint=info.joint))
    return not obstacles(config, "ctranslate2")
