"""The start and the end of `mtcli improve`: its plan, the folder that it works in, its model and what is said of it."""

import shlex
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from mtcli.config.scores import METRIC_NAMES
from mtcli.errors import DataError, UsageError
from mtcli.evaluation.remarks import too_few_pairs
from mtcli.recipes.improve import budget as shares
from mtcli.recipes.improve.budget import SharedBudget
from mtcli.recipes.improve.material import Material, check_material, plain_corpora, tokenizer_texts
from mtcli.recipes.improve.method import PLAIN, ImproveResult, Method, metric_on
from mtcli.recipes.improve.request import ImproveRequest
from mtcli.recipes.improve.stages import Stages, copy_run, score_command, tokenizer_command, training_command
from mtcli.recipes.recipe import STATE, Changes, Recipe, open_recipe
from mtcli.report.run_record import RecipeRecord
from mtcli.report.run_report import write_report
from mtcli.runtime.device import describe, pick_device
from mtcli.runtime.files import folder_lock
from mtcli.runtime.outputs import real_path
from mtcli.runtime.progress import clock
from mtcli.runtime.wording import aligned, counted
from mtcli.storage.run_folder import RUN_FILES

NAME = "improve"

STAGE_FOLDERS = ("pairs", "plain", "plain-*", "forward-*", "reverse-*", "improved-*", "synthetic-*")

WRITTEN = (*STAGE_FOLDERS, *RUN_FILES, ".*.tmp")
"""Patterns of the names of everything that the command writes, except the state and the lock."""

SIGNIFICANT = 0.05


def improve(request: ImproveRequest, *, overwrite: bool = False) -> tuple[ImproveResult, Stages]:
    """Run the recipe, or continue it, and copy the best model into the folder.

    Args:
        request: The request.
        overwrite: Delete what an earlier command left in the folder.

    Returns:
        The models, and the stages that made them.

    Raises:
        UsageError: The folder holds something else, or was begun with other data or options (a larger budget is none
            of these), or this machine does not have the device.
        DataError: The pairs or the texts cannot be used.
        StageError: A stage failed, and has printed why.
        StoppedError: A signal arrived.
        LockedError: Another process works in the folder.
        StorageError: The folder cannot be written.
    """
    pick_device(request.device)  # before the folder records a device that this machine does not have
    identity = request.identity()
    if overwrite and (request.out / STATE).exists():
        with folder_lock(request.out, "works in this folder"):
            _refuse_other_files(request.out)
            _refuse_inputs(request)
            _delete_results(request.out)
    changes = Changes(may_grow=[request.budget.option], remedy="choose another --out, or start over with --overwrite")
    with open_recipe(request.out, NAME, identity, changes) as recipe:
        return _improve(request, recipe)


def _improve(request: ImproveRequest, recipe: Recipe) -> tuple[ImproveResult, Stages]:
    """Run the recipe in its folder. The folder of a new recipe is left empty if its pairs or texts cannot be used."""
    _refuse_changed_result(recipe)
    stages = Stages(request, recipe)
    try:
        material = Material(stages)
        material.check_texts()
    except DataError:
        if not recipe.commands and not (request.out / PLAIN).exists():
            _delete_results(request.out)
        raise
    result = Method(stages, material).run()
    recipe.value(result.in_part("model"), partial(_copy_result, result, recipe))
    recipe.complete(result.in_part("report"), partial(_describe_result, result, stages, recipe))
    if (recipe.folder / "model.safetensors").exists():
        recipe.link_result(recipe.folder)
    return result, stages


def _refuse_changed_result(recipe: Recipe) -> None:
    """Check that the model that the command may replace is one of its own.

    Raises:
        UsageError: The model in the folder was trained further, or comes from elsewhere.
    """
    model = recipe.folder / "model.safetensors"
    if model.exists() and not recipe.is_result(model):
        raise UsageError(
            f"{model}: was changed after this command wrote it, such as by further training, and would be replaced; "
            f"copy {recipe.folder} to another folder to keep it, and delete this file"
        )


def _copy_result(result: ImproveResult, recipe: Recipe) -> str:
    """Copy the best run into the folder of the recipe, and return the folder of that run."""
    best = Path(result.candidates[result.best].training.folder)
    recipe.note_result(best / "model.safetensors")
    copy_run(best, recipe.folder)
    return str(best)


def _describe_result(result: ImproveResult, stages: Stages, recipe: Recipe) -> bool:
    """Describe the result in the report and the model card of the recipe, and return True if they are written."""
    device = describe(pick_device(stages.request.device))
    return write_report(recipe.folder, device, recipe_record(result, stages, recipe.commands))


def _refuse_other_files(folder: Path) -> None:
    """Check that a folder holds only what the command writes, before any of it is deleted.

    Raises:
        UsageError: It holds another file.
    """
    ours = {path for pattern in (*WRITTEN, STATE, ".lock") for path in folder.glob(pattern)}
    others = sorted(path.name for path in folder.iterdir() if path not in ours)
    if others:
        raise UsageError(f"{folder}: holds {others[0]}, which is not of this command; choose another --out")


def _refuse_inputs(request: ImproveRequest) -> None:
    """Check that a folder holds no file that the command reads, before its content is deleted.

    Raises:
        UsageError: It holds one, such as the pairs that an earlier command wrote.
    """
    for path in request.inputs():
        if real_path(path).is_relative_to(real_path(request.out)):
            raise UsageError(
                f"{path}: is read, and --overwrite would delete it with the results in {request.out}; copy it to "
                "another folder, or choose another --out"
            )


def _delete_results(folder: Path) -> None:
    """Delete what the command writes. The state is deleted last, so that the folder is recognised until then."""
    for path in [path for pattern in WRITTEN for path in sorted(folder.glob(pattern))]:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    (folder / STATE).unlink(missing_ok=True)


@dataclass(frozen=True)
class _Step:
    """A stage of the plan."""

    name: str
    purpose: str
    share: float = 0.0
    """Share of the budget; 0: it has none of its own."""
    command: Sequence[str] = ()
    """The arguments of `mtcli`; empty: they depend on what is measured."""

    def __str__(self) -> str:
        share = f" ({self.share:.0%} of the budget)" if self.share else ""
        line = f"{self.name}{share}: {self.purpose}"
        return f"{line}\n  {shlex.join(['mtcli', *self.command])}" if self.command else line


def plan(request: ImproveRequest) -> str:
    """Return the stages of a request, as lines of text. Nothing is written.

    Raises:
        DataError: The pairs or the texts cannot be used.
    """
    num_valid = check_material(request)
    metric = METRIC_NAMES[metric_on(num_valid, request)]
    has_text = request.mono_tgt is not None or request.mono_src is not None
    steps = [*_first_steps(request), *(_round(request) if has_text else _diversification(request))]
    folder = request.out / steps[-1].name
    compared = [*score_command(request, "test", str(request.out / PLAIN)), "--compare", str(folder)]
    steps.append(_Step("comparison", f"compares the plain model and {folder.name} on the test pairs", command=compared))
    if request.has_one_tokenizer:
        steps.append(_Step("ensemble, validation", "scores all models together"))
    total = request.budget.in_words(request.budget.total)
    first = f"The stages within {total}. Commands that depend on measurements are shown when they begin:"
    kept = (
        f"The model with the best {metric} on {counted(num_valid, 'validation pair')} is kept, and gets what is left."
    )
    return "\n".join([first, *map(str, steps), kept, *_cases(has_text)])


def _cases(has_text: bool) -> list[str]:
    """Return what else the budget may be used for."""
    if has_text:
        more = f"it is divided into up to {shares.MAX_ROUNDS} rounds"
    else:
        more = f"up to {shares.MAX_TEACHERS} models of each direction translate the pairs"
    return [
        f"If plain training would see each pair fewer than {shares.MIN_EPOCHS:g} times, it gets the whole budget.",
        f"If the plain model needs little of the budget, {more}.",
    ]


def _first_steps(request: ImproveRequest) -> list[_Step]:
    """Return the stages up to the plain model, whose commands are known."""
    steps = []
    if request.trains_tokenizer:
        command = tokenizer_command(request, tokenizer_texts(request))
        steps.append(_Step("tokenizer", "trains one tokenizer for all models", command=command))
    amount = shares.PLAIN_SHARE * request.budget.total
    command = training_command(request, PLAIN, plain_corpora(request), amount)
    steps.append(_Step(PLAIN, "trains a model on the pairs alone", shares.PLAIN_SHARE, command))
    command = score_command(request, "valid", str(request.out / PLAIN))
    steps.append(_Step(f"{PLAIN}, validation", "scores it, as each model after it", command=command))
    return steps


def _round(request: ImproveRequest) -> list[_Step]:
    """Return the stages of a round that uses the rest of the budget."""
    amount = 1 - shares.PLAIN_SHARE
    texts = [path for path in (request.mono_src, request.mono_tgt) if path is not None]
    share = shares.TRANSLATION_SHARE * amount / len(texts) if request.budget.is_time else 0.0
    steps = []
    if request.mono_src is not None:
        purpose = f"translates {request.mono_src} by the best model so far"
        steps.append(_Step("synthetic-1/forward", purpose, share))
    if request.mono_tgt is not None:
        purpose = "trains a model of the opposite direction"
        steps.append(_Step("reverse-1", purpose, shares.REVERSE_SHARE * amount))
        steps.append(_Step("synthetic-1/back", f"translates {request.mono_tgt} by it", share))
    return [*steps, _last_step(steps)]


def _diversification(request: ImproveRequest) -> list[_Step]:
    """Return the stages of data diversification with one model of each direction."""
    each = shares.TEACHERS_SHARE / 2
    share = shares.TRANSLATION_SHARE / 2 if request.budget.is_time else 0.0
    steps = [
        _Step("synthetic-1/forward-1", "translates the sources of the pairs by the plain model", share),
        _Step("reverse-1", "trains a model of the opposite direction", each),
        _Step("synthetic-1/reverse-1", "translates the targets of the pairs by it", share),
    ]
    return [*steps, _last_step(steps)]


def _last_step(before: Sequence[_Step]) -> _Step:
    """Return the training on the synthetic pairs, which uses what the plain model and these stages have left."""
    rest = 1 - shares.PLAIN_SHARE - sum(step.share for step in before)
    return _Step("improved-1", "trains a model on the pairs and these translations", rest)


def summary(result: ImproveResult, stages: Stages) -> str:
    """Return the table of the models and the comparison, as lines of text."""
    request = stages.request
    lines = [*aligned(_table(result)), "", _comparison(result, stages), _plain_training(result, stages.budget)]
    lines.append(f"Model: {request.out} (copied from {result.candidates[result.best].training.folder})")
    if result.ensemble is not None and result.ensemble.is_better:
        models = " ".join(f"--model {shlex.quote(folder)}" for folder in result.ensemble.folders)
        lines.append(f"All models together, as in the last row: mtcli translate {models}")
    return "\n".join(lines)


def recipe_record(result: ImproveResult, stages: Stages, commands: Sequence[str]) -> RecipeRecord:
    """Return how the best model was made, for its model card.

    Args:
        result: The models.
        stages: The stages that made them.
        commands: The commands of the stages.
    """
    total = stages.budget.in_words(stages.budget.total)
    description = (
        f"`mtcli improve` trained these models within {total}, and chose {result.best} by the validation pairs. The "
        f"corpora of its training are listed under Data. {_comparison(result, stages)}"
    )
    return RecipeRecord(stages.request.out.resolve().name, description, _table(result), commands)


def _table(result: ImproveResult) -> list[tuple[str, ...]]:
    """Return a row of headings, and a row for each model."""
    rows: list[tuple[str, ...]] = [("model", "pairs", "steps", "time", "end", "BLEU (valid)", "chrF (valid)", "")]
    for name, candidate in result.candidates.items():
        training = candidate.training
        figures = (f"{candidate.scores.bleu:.1f}", f"{candidate.scores.chrf:.1f}")
        mark = "best" if name == result.best else ""
        ends = (f"{training.steps:,}", clock(training.seconds), training.reason)
        rows.append((name, f"{candidate.pairs:,}", *ends, *figures, mark))
    if result.ensemble is not None:
        scores = result.ensemble.scores
        rows.append(("all together", "", "", "", "", f"{scores.bleu:.1f}", f"{scores.chrf:.1f}", ""))
    return rows


def _comparison(result: ImproveResult, stages: Stages) -> str:
    """Return how the best model compares with the plain one."""
    sizes = stages.decide("pairs", dict)
    if result.comparison is None:
        pairs = counted(sizes["valid"], "validation pair")
        return f"The plain model is the best of {counted(len(result.candidates), 'model')} on {pairs}."
    pairs = counted(sizes["test"], "test pair")
    few = too_few_pairs(sizes["test"])
    gains = []
    for difference in result.comparison["differences"]:
        gain = f"{difference['name']} {difference['b']['score'] - difference['a']['score']:+.1f}"
        p_value = difference["b"]["p_value"]
        verdict = "significant" if p_value < SIGNIFICANT else "not significant"
        gains.append(gain if few else f"{gain} (p = {p_value:.3f}, {verdict})")
    how = "" if few else ", by paired bootstrap"
    remark = f". {few}" if few else ""
    return f"{result.best} against {PLAIN}, on {pairs}{how}: {'; '.join(gains)}{remark}"


def _plain_training(result: ImproveResult, budget: SharedBudget) -> str:
    """Return how much of the budget the plain model had, and if more could have helped it."""
    training = result.candidates[PLAIN].training
    share = min(training.used(budget) / budget.total, 1.0)
    text = f"The plain model was trained on the same pairs for {share:.0%} of the budget"
    if training.reason != "budget used":
        return f"{text} and ended because nothing improved, so a longer training would hardly be better."
    if result.best == PLAIN:
        return f"{text}."
    option = " ".join(budget.options(budget.total))
    return (
        f"{text}. The same training for the whole budget was not measured; to compare with it, run the command of "
        f"the stage {PLAIN} with another --out and {option}."
    )
