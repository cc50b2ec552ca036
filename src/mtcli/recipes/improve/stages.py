"""The stages of `mtcli improve`: the mtcli command of each, and its result."""

import json
import logging
from collections.abc import Callable, Sequence, Set
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from mtcli.config.toml_file import load as load_config
from mtcli.corpus.held_out import HeldOutSplit
from mtcli.errors import ModelError
from mtcli.recipes.commands import (
    StageCorpus,
    as_argument,
    corpora_options,
    device_option,
    repeated,
    setting_name,
)
from mtcli.recipes.improve.budget import SharedBudget
from mtcli.recipes.improve.plan import PLAIN, PlannedTraining
from mtcli.recipes.improve.request import ImproveRequest
from mtcli.recipes.recipe import Recipe, Stage
from mtcli.runtime.files import copy_file, storage_errors
from mtcli.storage import checkpoint
from mtcli.storage.events import read_events
from mtcli.storage.run_folder import RUN_FILES

log = logging.getLogger(__name__)

BLEU_TOKENIZER = "train.bleu_tokenizer"

COPIED = tuple(name for name in RUN_FILES if name not in ("checkpoints", "tensorboard"))
"""The files and folders of a run that are copied, together with its last checkpoint."""


@dataclass(frozen=True)
class Training:
    """A training that has ended."""

    folder: str
    steps: int
    seconds: float
    epochs: float
    """Passes over the training pairs. Each draws a pair as often as the weight of its corpus says."""
    reason: str
    """Why it ended."""
    limit: float
    """The budget that it was given, of which it may have used less: steps or seconds."""

    def used(self, budget: SharedBudget) -> float:
        """Return what it used of the budget."""
        return self.seconds if budget.is_time else float(self.steps)


@dataclass(frozen=True)
class Scores:
    """Scores of a model on the validation pairs: means over the directions, if there are several."""

    bleu: float
    chrf: float
    seconds: float
    """Time for translating and scoring."""


def training_command(
    request: ImproveRequest, training: PlannedTraining, corpora: Sequence[StageCorpus], amount: float
) -> list[str]:
    """Return the command that trains a model.

    Args:
        request: The request.
        training: The training.
        corpora: Training pairs.
        amount: The amount of the budget.
    """
    words = ["train", *corpora_options(corpora, request.held_out_file, for_each=request.has_several)]
    if request.preset is not None:
        words += ["--preset", request.preset]
    if request.init is not None:
        words += ["--init", as_argument(request.init.path)]
    words += repeated("--set", _settings(request, training))
    if training.seed is not None:
        words += ["--set", f"train.seed={training.seed}"]
    if not training.engine:
        words += ["--set", "train.engine=false"]
    return [
        *words,
        "--out",
        str(request.out / training.name),
        *device_option(request.device),
        *request.budget.options(amount),
    ]


def _settings(request: ImproveRequest, training: PlannedTraining) -> list[str]:
    """Return the settings of a training; a tokenizer that models share replaces those of a new one."""
    settings = list(request.sets)
    if not training.forward:  # the tokenizer of BLEU is for the target languages of the request
        settings = [text for text in settings if setting_name(text) != BLEU_TOKENIZER]
    has_that_of_plain = request.has_tokenizer_of_plain and training.forward and training.name != PLAIN
    if request.trains_tokenizer or has_that_of_plain:
        kept = "tokenizer.transfer"  # it may say that the model is a parent, although it has the same languages
        names = [(setting_name(text), text) for text in settings]
        settings = [text for name, text in names if name == kept or not name.startswith("tokenizer.")]
        settings.append(f"tokenizer.file={request.out / PLAIN if has_that_of_plain else request.tokenizer}")
    return settings


def tokenizer_command(request: ImproveRequest, texts: Sequence[Path]) -> list[str]:
    """Return the command that trains the tokenizer of all models on texts in both languages."""
    settings = request.config.tokenizer
    words = ["tokenizer", "train", *map(as_argument, texts), "-o", str(request.tokenizer), "--type", settings.type]
    if settings.vocab_size is not None:
        words += ["--vocab-size", str(settings.vocab_size)]
    if request.config.data.placeholders:
        words.append("--placeholders")
    if request.has_several:  # also for models of the opposite directions
        words += repeated("--target-language", request.languages)
    return [*words, "--force"]


def score_command(request: ImproveRequest, split: HeldOutSplit, *folders: str) -> list[str]:
    """Return the command that scores a model, or several together, on the validation or test pairs."""
    if request.has_several:  # the pairs of each direction are in the run
        pairs = ["--split", split]
    else:
        pairs = ["--pairs", str(request.held_out_file(split, request.directions[0]))]
    return ["eval", *repeated("--model", folders), *pairs, "--bleu", "--chrf", "--json", *device_option(request.device)]


class Stages:
    """The stages of one request.

    Args:
        request: The request.
        recipe: Runs the commands and stores the results.
    """

    def __init__(self, request: ImproveRequest, recipe: Recipe):
        self.request = request
        self.recipe = recipe
        self.trainings: dict[str, Training] = {}
        """The trainings by the name of their stage; one that is extended replaces its earlier state."""

    @property
    def budget(self) -> SharedBudget:
        """The budget of all stages together."""
        return self.request.budget

    def remaining(self) -> float:
        """Return the rest of the budget. With a budget of time it changes, so use it only in `decide`."""
        if self.budget.is_time:
            return self.budget.total - self.recipe.elapsed()
        return self.budget.total - sum(training.steps for training in self.trainings.values())

    def decide(self, name: str, decision: Callable[[], Any]) -> Any:
        """Return a decision or a result, which is made and stored when it is first asked for."""
        return self.recipe.value(name, decision)

    def run(self, name: str, command: Callable[[], list[str]], *, is_captured: bool = False) -> str:
        """Run a command, unless it is done.

        Args:
            name: The name of the stage.
            command: Returns the arguments of `mtcli`, when the stage is started for the first time.
            is_captured: Return its standard output.
        """
        words = self.decide(_command_of(name), command)
        return self.recipe.run(Stage(name, tuple(words), is_captured))

    def train(self, training: PlannedTraining, corpora: Sequence[StageCorpus], amount: Callable[[], float]) -> Training:
        """Train a model.

        Args:
            training: The training.
            corpora: Training pairs.
            amount: Returns the amount of the budget, when the stage is started for the first time.
        """
        name = training.name
        self.run(name, lambda: training_command(self.request, training, corpora, amount()))
        return self._ended(name, name, self.request.out / name)

    def extend(self, name: str, stage: str, limit: float) -> Training:
        """Give a training more of the budget.

        Args:
            name: The name of the stage of the training.
            stage: The name of the stage that extends it.
            limit: The amount of the budget for the whole training. It is larger than the earlier one.
        """

        def command() -> list[str]:
            before = self.decide(_command_of(name), list)
            without_budget = before[:-2]
            return [*without_budget, *self.budget.options(limit)]

        self.run(stage, command)
        return self._ended(stage, name, Path(self.trainings[name].folder))

    def copy(self, name: str) -> Training:
        """Copy the run of a training that will be extended, and return the training with the folder of the copy.

        Args:
            name: The name of the stage of the training.
        """
        training = self.trainings[name]
        folder = f"{training.folder}-{training.steps}-steps"
        self.decide(f"{folder}: copied", lambda: copy_run(Path(training.folder), Path(folder)))
        return replace(training, folder=folder)

    def _ended(self, stage: str, name: str, folder: Path) -> Training:
        """Return the result of a training that has ended, as it was when its stage ended."""
        found = self.decide(f"{stage}: result", lambda: asdict(_read_training(folder, self.budget)))
        self.trainings[name] = Training(**found)
        return self.trainings[name]

    def score(self, stage: str, *folders: str) -> Scores:
        """Score a model, or several together, on the validation pairs.

        Args:
            stage: The name of the stage that trained it.
            folders: The folders of the models.
        """
        name = f"{stage}, validation"
        output = self.run(name, lambda: score_command(self.request, "valid", *folders), is_captured=True)
        found = json.loads(output)
        if self.request.has_several:
            values = found["mean"]
        else:
            values = {score["name"]: float(score["score"]) for score in found}
        log.info("%s: BLEU = %.1f, chrF = %.1f", name, values["BLEU"], values["chrF2"])
        return Scores(values["BLEU"], values["chrF2"], self.recipe.seconds_of(name))

    def compare(self, name: str, folder: str, other: str) -> Any:
        """Return the paired bootstrap of two models on the test pairs, as `mtcli eval --json` prints it.

        With several directions, there is one for each.

        The validation pairs chose one of the models, so its scores on them are too high.

        Args:
            name: The name of the stage.
            folder: The folder of a model.
            other: The folder of the other one.
        """
        command = [*score_command(self.request, "test", folder), "--compare", other]
        return json.loads(self.run(name, lambda: command, is_captured=True))


def _command_of(name: str) -> str:
    """Return the name under which the command of a stage is stored."""
    return f"{name}: command"


def _read_training(folder: Path, budget: SharedBudget) -> Training:
    """Return what a training has done, from its `metrics.jsonl`.

    Args:
        folder: The folder of the run.
        budget: The budget of all stages together, whose unit that of the training has.

    Raises:
        ModelError: The file is damaged.
    """
    path = folder / "metrics.jsonl"
    events, _ = read_events(path)
    plan = next((event for event in events if event["event"] == "plan"), None)
    end = next((event for event in reversed(events) if event["event"] == "end"), None)
    if plan is None or end is None:
        raise ModelError(f"{path}: does not say how the training ended; start over with --overwrite")
    settings = load_config(folder / "config.toml").train
    limit = settings.time if budget.is_time else settings.max_steps
    return Training(
        str(folder),
        steps=end["step"],
        seconds=end["seconds"],
        epochs=end["step"] * settings.accumulate / max(plan["batches"], 1),
        reason=str(end["reason"]),
        limit=float(limit or 0),
    )


def copy_run(run: Path, folder: Path) -> None:
    """Copy the model of a run and what describes it. They replace those of an earlier copy.

    With the last checkpoint, the copy is a run that has ended, for `mtcli info` and `mtcli train` too.

    Args:
        run: The run folder.
        folder: The folder of the copy, which is created.

    Raises:
        StorageError: The files cannot be read or written.
    """
    last = checkpoint.steps(run / "checkpoints")[-1:]
    copies = set()
    for source in [*(run / name for name in COPIED), *last]:
        files = sorted(source.rglob("*")) if source.is_dir() else [source]
        for file in files:
            if file.is_file():
                target = folder / file.relative_to(run)
                copy_file(file, target)
                copies.add(target)
    with storage_errors(folder):
        _delete_earlier_copy(folder, copies)


def _delete_earlier_copy(folder: Path, copies: Set[Path]) -> None:
    """Delete the files of an earlier run that are not replaced by those of the new one, and empty folders."""
    for name in RUN_FILES:
        for path in sorted((folder / name).rglob("*"), reverse=True):  # the content of a folder before the folder
            if path.is_dir():
                if not any(path.iterdir()):
                    path.rmdir()
            elif path not in copies:
                path.unlink()
