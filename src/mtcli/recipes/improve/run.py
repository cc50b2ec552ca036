"""The start and the end of `mtcli improve`: its plan, the folder that it works in, its model and what is said of it."""

import shlex
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from mtcli.config.scores import METRIC_NAMES
from mtcli.errors import DataError, UsageError
from mtcli.evaluation.remarks import too_few_pairs
from mtcli.recipes.improve import budget as shares
from mtcli.recipes.improve.budget import SharedBudget
from mtcli.recipes.improve.material import Material, check_material, numbers_of, plain_corpora, tokenizer_texts
from mtcli.recipes.improve.method import ImproveResult, Method, metric_on
from mtcli.recipes.improve.request import ImproveRequest
from mtcli.recipes.improve.stages import PLAIN, Stages, copy_run, score_command, tokenizer_command, training_command
from mtcli.recipes.recipe import STATE, Changes, Recipe, open_recipe
from mtcli.report.run_record import RecipeRecord
from mtcli.report.run_report import write_report
from mtcli.runtime.device import describe, pick_device
from mtcli.runtime.files import folder_lock
from mtcli.runtime.outputs import real_path
from mtcli.runtime.progress import clock
from mtcli.runtime.wording import aligned, counted
from mtcli.storage.run_folder import RUN_FILES
from mtcli.text.languages import Direction

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
    metric = METRIC_NAMES[metric_on(num_valid)]
    has_text = bool(request.texts)
    steps = [*_first_steps(request), *(_round(request) if has_text else _diversification(request))]
    folder = request.out / steps[-1].name
    compared = [*score_command(request, "test", str(request.out / PLAIN)), "--compare", str(folder)]
    steps.append(_Step("comparison", f"compares the plain model and {folder.name} on the test pairs", command=compared))
    if request.has_one_tokenizer:
        steps.append(_Step("ensemble, validation", "scores all models together"))
    total = request.budget.in_words(request.budget.total)
    first = f"The stages within {total}. Commands that depend on measurements are shown when they begin:"
    pairs = counted(sum(number for _, number in num_valid), "validation pair")
    where = f"{pairs} of {len(num_valid)} directions (the mean)" if request.has_several else pairs
    kept = f"The model with the best {metric} on {where} is kept, and gets what is left."
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
    forward = request.directions_with_text(is_source=True)
    back = request.directions_with_text(is_source=False)
    num_texts = len(forward) + len(back)
    share = shares.TRANSLATION_SHARE * amount / num_texts if request.budget.is_time else 0.0
    steps = [
        _translation(request, "synthetic-1/forward", direction, "the best model so far", share, is_source=True)
        for direction in forward
    ]
    if request.needs_reverse_model(back):
        steps.append(_Step("reverse-1", _trains_reverse(request), shares.REVERSE_SHARE * amount))
    for direction in back:
        model = "the best model so far" if direction.reversed() in request.directions else "it"
        steps.append(_translation(request, "synthetic-1/back", direction, model, share, is_source=False))
    return [*steps, _last_step(steps)]


def _translation(
    request: ImproveRequest, name: str, direction: Direction, model: str, share: float, *, is_source: bool
) -> _Step:
    """Return the translation of the text of a direction, see `ImproveRequest.text_of`."""
    text = request.text_of(direction, is_source=is_source)
    path = text.path if text else ""
    into = ""
    if request.has_several:
        into = f" into {direction.tgt if is_source else direction.src}, for pairs of {direction},"
    return _Step(request.named(name, direction), f"translates {path}{into} by {model}", share)


def _trains_reverse(request: ImproveRequest) -> str:
    every = "s" if request.has_several else ""
    return f"trains a model of the opposite direction{every}"


def _diversification(request: ImproveRequest) -> list[_Step]:
    """Return the stages of data diversification if the plain model uses all of its share.

    Then there is one model of each direction, or two that have both directions.
    """
    orders = (True, False) if request.needs_reverse_model(request.directions) else (True,)
    number = shares.number_of_teachers(1.0, shares.PLAIN_SHARE, len(orders))
    num_models = len(orders) * number
    num_texts = num_models * len(request.directions)
    share = shares.TRANSLATION_SHARE / num_texts if request.budget.is_time else 0.0
    steps = []
    for index in range(1, number + 1):
        for forward in orders:
            name = f"{'forward' if forward else 'reverse'}-{index}"
            is_plain = forward and index == 1
            if not is_plain:
                trains = "trains another model" if forward else _trains_reverse(request)
                steps.append(_Step(name, trains, shares.TEACHERS_SHARE / num_models))
            for direction in request.directions:
                of_direction = f" of {direction}" if request.has_several else ""
                sides = f"{'sources' if forward else 'targets'} of the pairs{of_direction}"
                purpose = f"translates the {sides} by {'the plain model' if is_plain else 'it'}"
                steps.append(_Step(request.named(f"synthetic-1/{name}", direction), purpose, share))
    return [*steps, _last_step(steps)]


def _last_step(before: Sequence[_Step]) -> _Step:
    """Return the training on the synthetic pairs, which uses what the plain model and these stages have left."""
    rest = 1 - shares.PLAIN_SHARE - sum(step.share for step in before)
    return _Step("improved-1", "trains a model on the pairs and these translations", rest)


def summary(result: ImproveResult, stages: Stages) -> str:
    """Return the table of the models and the comparison, as lines of text."""
    request = stages.request
    lines = [*aligned(_table(result)), "", _comparison(result, stages), _plain_training(result, stages.budget)]
    lines += _synthetic(result, stages)
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
    description = ". ".join([description, *_synthetic(result, stages)])
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
        pairs = counted(sum(number for _, number in numbers_of(stages.request, sizes["valid"])), "validation pair")
        return f"The plain model is the best of {counted(len(result.candidates), 'model')} on {pairs}."
    if not stages.request.has_several:
        gains = _gains(result.comparison, sizes["test"])
        return f"{result.best} against {PLAIN}, on {gains}{_remark(sizes['test'])}"
    means = ", ".join(f"{name} {mean:+.1f}" for name, mean in result.comparison["mean"].items())
    directions = [
        f"{each['src']} → {each['tgt']}, on {_gains(each, each['pairs'])}" for each in result.comparison["directions"]
    ]
    mean = f"{result.best} against {PLAIN}: {means} (mean of {len(directions)} directions)"
    fewest = min(each["pairs"] for each in result.comparison["directions"])
    return f"{mean}. {'. '.join(directions)}{_remark(fewest)}"


def _remark(num_pairs: int) -> str:
    """Return what to add to a score on few test pairs; empty: they are enough."""
    few = too_few_pairs(num_pairs)
    return f". {few}" if few else ""


def _gains(comparison: Any, num_pairs: int) -> str:
    """Return the differences of a paired bootstrap, and if they are significant.

    Args:
        comparison: See `Stages.compare`, of one direction.
        num_pairs: Number of test pairs.
    """
    pairs = counted(num_pairs, "test pair")
    few = too_few_pairs(num_pairs)
    gains = []
    for difference in comparison["differences"]:
        gain = f"{difference['name']} {difference['b']['score'] - difference['a']['score']:+.1f}"
        p_value = difference["b"]["p_value"]
        verdict = "significant" if p_value < SIGNIFICANT else "not significant"
        gains.append(gain if few else f"{gain} (p = {p_value:.3f}, {verdict})")
    how = "" if few else ", by paired bootstrap"
    return f"{pairs}{how}: {'; '.join(gains)}"


def _synthetic(result: ImproveResult, stages: Stages) -> list[str]:
    """Return how many synthetic pairs each direction of the best model had; nothing if it has one direction."""
    if not stages.request.has_several or result.best == PLAIN:
        return []
    numbers = result.candidates[result.best].synthetic
    each = ", ".join(f"{direction} {numbers.get(direction, 0):,}" for direction in stages.request.directions)
    return [f"Synthetic pairs of {result.best}: {each}."]


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
