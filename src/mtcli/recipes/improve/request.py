"""What a user asks `mtcli improve` for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from mtcli.config.schema import Config
from mtcli.corpus.cache.info import Fingerprint, fingerprint, input_files
from mtcli.corpus.cache.tokenizer_file import given_tokenizer, tokenizer_path
from mtcli.corpus.held_out import HeldOutSplit
from mtcli.corpus.readers.sources import parse_source
from mtcli.errors import UsageError
from mtcli.recipes.commands import check_settings, same_languages
from mtcli.recipes.improve.budget import SharedBudget
from mtcli.runtime.outputs import check_folder
from mtcli.text.languages import Direction, code_of_name, same
from mtcli.text.tokenizer.tokenizer import Tokenizer
from mtcli.training.request import InitialModel, resolve

DEFAULT_TIME = "3h"

MONO_TGT = "--mono-tgt"
MONO_SRC = "--mono-src"


@dataclass(frozen=True)
class GivenText:
    """Text in one language that the user gives."""

    option: str
    """The option that gives it, for messages."""
    language: str
    path: Path
    is_source: bool = False
    """It is in a source language, and its translations are targets. Otherwise they are sources (back-translation)."""


class RealCorpus(NamedTuple):
    """Real training pairs of one direction, in the folder of the command."""

    path: Path
    direction: Direction
    weight: float


@dataclass(frozen=True)
class ImproveRequest:
    """A request that was checked."""

    config: Config
    """Names the pairs, the held-out pairs and the directions."""
    out: Path
    budget: SharedBudget
    texts: tuple[GivenText, ...] = ()
    """At most one in each language."""
    preset: str | None = None
    sets: tuple[str, ...] = ()
    """`--set` of every training."""
    device: str = "auto"
    init: InitialModel | None = None
    """The model that every training starts from; None: random weights."""

    @property
    def directions(self) -> tuple[Direction, ...]:
        """The directions of the models."""
        return self.config.data.directions

    @property
    def has_several(self) -> bool:
        """True if the models have several directions."""
        return len(self.directions) > 1

    @property
    def languages(self) -> tuple[str, ...]:
        """All languages, each once."""
        return tuple(dict.fromkeys(language for direction in self.directions for language in direction))

    def named(self, name: str, direction: Direction) -> str:
        """Return the name of what each direction has: with its languages, if there are several."""
        return f"{name}.{direction.src}-{direction.tgt}" if self.has_several else name

    def texts_of(self, *, is_source: bool) -> dict[Direction, GivenText]:
        """Return the text whose translations make pairs of each direction that has one.

        Args:
            is_source: The text is in the source language of the direction; otherwise in its target language.
        """
        of_languages = {text.language: text for text in self.texts if text.is_source == is_source}
        languages = {each: each.src if is_source else each.tgt for each in self.directions}
        return {each: of_languages[code] for each, code in languages.items() if code in of_languages}

    def needs_reverse_model(self, directions: Sequence[Direction]) -> bool:
        """Return True if a model of its own must translate backwards for one of some directions."""
        return any(direction.reversed() not in self.directions for direction in directions)

    @property
    def corpora(self) -> list[RealCorpus]:
        """The real training pairs: a file for each corpus and direction."""
        numbered = enumerate(self.config.data.directed, 1)
        return [
            RealCorpus(self.pairs / f"train-{number}.jsonl", corpus.direction, parse_source(corpus.train).weight)
            for number, corpus in numbered
        ]

    def held_out_file(self, name: HeldOutSplit, direction: Direction) -> Path:
        """Return the file of the validation or test pairs of a direction, which it shares with the opposite one."""
        return self.pairs / f"{self.named(name, same_languages(self.directions, direction))}.jsonl"

    @property
    def pairs(self) -> Path:
        """The folder of the real pairs."""
        return self.out / "pairs"

    @property
    def tokenizer(self) -> Path:
        """The tokenizer that the stages train."""
        return self.pairs / "tokenizer.json"

    @property
    def trains_tokenizer(self) -> bool:
        """True if one tokenizer is trained for all models, which can then be combined in an ensemble."""
        return self.config.tokenizer.joint and not self.config.tokenizer.file and self.init is None

    @property
    def has_tokenizer_of_plain(self) -> bool:
        """True if the plain model makes its tokenizer from that of `init`, for the later models of its directions."""
        if self.init is None or not self.config.tokenizer.joint or self.config.tokenizer.file:
            return False
        parent = self.init.parent
        return parent.has_child(self.config) and parent.choice(self.config) != "keep"

    @property
    def can_tag(self) -> bool:
        """True if the models can tell tagged synthetic sources from others. Imported tokenizers have no tag."""
        return self.has_tokenizer_of_plain or self.init is None or not self.init.tokenizer.sentencepiece

    @property
    def has_one_tokenizer(self) -> bool:
        """True if all models have the same tokenizer."""
        return self.config.tokenizer.joint

    def inputs(self) -> list[Path]:
        """Return the local files that are read.

        Raises:
            DataError: The pairs cannot be read.
        """
        places = [*input_files(self.config), *(text.path for text in self.texts), tokenizer_path(self.config)]
        if self.init is not None:
            places.append(self.init.path / "model.safetensors")
        return [path for path in places if path is not None]

    @cached_property
    def fingerprints(self) -> dict[str, Fingerprint]:
        """The `fingerprint` of each of the `inputs` when the command began, by name."""
        return {str(path): fingerprint(path) for path in self.inputs()}

    def identity(self) -> dict[str, Any]:
        """Return everything that decides the result, by the names of the options.

        Raises:
            DataError: The pairs cannot be read.
        """
        data = self.config.data
        corpora = [corpus.model_dump(exclude_none=True) for corpus in data.corpora]
        texts = {text.option.partition(" ")[0]: str(text.path) for text in self.texts if not self.has_several}
        return {
            "--train": list(data.train),
            "the pairs of languages": corpora or None,
            "--both-directions": data.both_directions or None,
            "--valid": data.valid,
            "--test": data.test,
            "--src": data.src,
            "--tgt": data.tgt,
            "--swap": data.swap,
            "--replace": data.replace,
            "--mono-tgt": texts.get(MONO_TGT),
            "--mono-src": texts.get(MONO_SRC),
            "--mono": [f"{text.language}={text.path}" for text in self.texts] if self.has_several else None,
            "--preset": self.preset,
            "--init": str(self.init.path) if self.init else None,
            "--set": list(self.sets),
            "--out": str(self.out),
            "--device": self.device,
            "tokenizer": "one for all models" if self.trains_tokenizer else None,
            self.budget.option: self.budget.total,
            **{f"SHA-256 of {name}": found["sha256"][:16] for name, found in self.fingerprints.items()},
        }


def resolve_request(
    options: Mapping[str, Any],
    sets: Sequence[str],
    *,
    out: Path | None,
    mono_tgt: Path | None,
    mono_src: Path | None,
    device: str,
    mono: Sequence[str] = (),
    init: Path | None = None,
) -> ImproveRequest:
    """Build the configuration of the trainings, and find languages and folder.

    Args:
        options: Values of the command line by dotted name, as for `mtcli train`; None means unset.
        sets: `section.key=value` strings.
        out: The folder; None: chosen by the data.
        mono_tgt: Text in the target language, if there is one direction.
        mono_src: Text in the source language, if there is one direction.
        device: The device of all stages.
        mono: Texts in target languages, each `LANGUAGE=FILE`.
        init: The model that every training starts from.

    Raises:
        UsageError: A wrong setting, languages that cannot be found, a text in another language than the targets, or a
            folder that cannot be used.
        DataError: Training pairs are missing.
        ModelError: `init` is no model, or `tokenizer.file` is missing or damaged.
    """
    check_settings(sets, "improve")
    given = dict(options)
    if given.get("train.time") is None and given.get("train.max_steps") is None:
        given["train.time"] = DEFAULT_TIME
    preset = given.get("preset")
    if init is not None and preset is not None:
        raise UsageError("--preset: --init brings the shape of its model; omit one of them")
    request = resolve(None, given, sets, out=out, init=init)
    config = request.config
    texts = _texts(config.data.directions, mono_tgt, mono_src, mono)
    tokenizer = given_tokenizer(config)
    if tokenizer is not None and not tokenizer.joint:
        raise UsageError(
            f"tokenizer.file {config.tokenizer.file}: has two vocabularies, and models of both directions are trained; "
            "name one with a joint vocabulary"
        )
    if tokenizer is not None and len(config.data.directions) > 1:
        _check_tags(tokenizer, config)
    folder = out or request.run.with_name(f"{request.run.name}-improved")
    check_folder(folder, [*input_files(config), *(text.path for text in texts)], option="--out")
    if config.train.max_steps is not None:
        budget = SharedBudget(config.train.max_steps, "steps")
    else:
        budget = SharedBudget(config.train.time or 0.0, "seconds")
    return ImproveRequest(config, folder, budget, texts, preset, tuple(sets), device, request.init)


def _check_tags(tokenizer: Tokenizer, config: Config) -> None:
    """Check that a given tokenizer has a tag for each language: models of the opposite directions use it too.

    Raises:
        UsageError: It lacks one.
    """
    missing = [language for direction in config.data.directions for language in direction]
    missing = [language for language in dict.fromkeys(missing) if not tokenizer.has_tag(language)]
    if missing:
        raise UsageError(
            f"tokenizer.file {config.tokenizer.file}: has no tag for {', '.join(missing)}, and models of both "
            "directions are trained; omit it, or train one with --target-language for each language"
        )


def _texts(
    directions: Sequence[Direction], mono_tgt: Path | None, mono_src: Path | None, mono: Sequence[str]
) -> tuple[GivenText, ...]:
    """Return the texts of a request, see `resolve_request`. Those in source languages are the first.

    Raises:
        UsageError: `LANGUAGE=FILE` is written differently, no direction has this target language, or it has two texts.
    """
    first, *others = directions
    if others:
        for option, path in ((MONO_TGT, mono_tgt), (MONO_SRC, mono_src)):
            if path is not None:
                every = ", ".join(map(str, directions))
                targets = _choices(directions)
                raise UsageError(
                    f"{option} {path}: for one pair of languages, and these are {every}; give text in each target "
                    f"language by --mono LANGUAGE=FILE ({targets})"
                )
    texts = []
    if mono_src is not None:
        texts.append(GivenText(MONO_SRC, first.src, mono_src, is_source=True))
    if mono_tgt is not None:
        texts.append(GivenText(MONO_TGT, first.tgt, mono_tgt))
    for given in mono:
        name, _, file = given.partition("=")
        language = _target_language(given, name, directions)
        if not file:
            raise UsageError(f"--mono {given}: names no file; write LANGUAGE=FILE ({_choices(directions)})")
        if any(text.language == language and not text.is_source for text in texts):
            raise UsageError(f"--mono {given}: a second text in {language}; write both into one file")
        texts.append(GivenText(f"--mono {language}" if others else MONO_TGT, language, Path(file)))
    return tuple(texts)


def _target_language(given: str, name: str, directions: Sequence[Direction]) -> str:
    """Return the target language that a `LANGUAGE=FILE` names.

    Raises:
        UsageError: It names none.
    """
    code = code_of_name(name)
    for direction in directions:
        if same(code, direction.tgt):
            return direction.tgt
    choices = _choices(directions)
    if "=" not in given:
        raise UsageError(f"--mono {given}: write LANGUAGE=FILE, such as {directions[0].tgt}=FILE ({choices})")
    if any(same(code, direction.src) for direction in directions):
        raise UsageError(
            f"--mono {given}: no direction has the target language {name}, and text is translated back from target "
            f"languages ({choices}); --both-directions adds the directions into {name}"
        )
    raise UsageError(f"--mono {given}: no pairs of {name or 'this language'}; choose from {choices}")


def _choices(directions: Sequence[Direction]) -> str:
    return ", ".join(dict.fromkeys(direction.tgt for direction in directions))
