"""The start and the end of `mtcli improve`: its plan, the folder that it works in, its model and what is said of it."""

import shlex
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from mtcli.config.scores import METRIC_NAMES
from mtcli.errors import UsageError
from mtcli.evaluation.remarks import too_few_pairs
from mtcli.recipes.commands import StageCorpus, weighted
from mtcli.recipes.improve import budget as shares
from mtcli.recipes.improve.budget import SharedBudget
from mtcli.recipes.improve.material import Material, check_material, tokenizer_texts
from mtcli.recipes.improve.method import ImproveResult, Method, metric_on
from mtcli.recipes.improve.plan import PLAIN, diversification_stages, model_kinds, plain_training, round_stages
from mtcli.recipes.improve.real_pairs import numbers_of
from mtcli.recipes.improve.request import ImproveRequest
from mtcli.recipes.improve.stages import Stages, copy_run, score_command, tokenizer_command, training_command
from mtcli.recipes.recipe import STATE, Changes, Recipe, delete_files, open_recipe
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
            _delete_results(request)
    changes = Changes(may_grow=[request.budget.option], remedy="choose another --out, or start over with --overwrite")
    texts = {str(text.path): request.fingerprints[str(text.path)] for text in request.texts}
    with open_recipe(request.out, NAME, identity, changes, texts) as recipe:
        _refuse_changed_result(recipe)
        stages = Stages(request, recipe)
        material = Material(stages)
        for text in request.texts:
            material.lines_of(text)  # refuses what cannot be used before anything is trained
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


def _delete_results(request: ImproveRequest) -> None:
    """Delete what an earlier command left. The state is deleted last, so that the folder is recognised until then.

    Raises:
        UsageError: The folder holds another file, or one that this command reads.
    """
    folder = request.out
    ours = [path for pattern in WRITTEN for path in sorted(folder.glob(pattern))]
    others = {path.name for path in folder.iterdir()} - {path.name for path in ours} - {STATE, ".lock"}
    if others:
        raise UsageError(f"{folder}: holds {min(others)}, which is not of this command; choose another --out")
    for path in request.inputs():
        if real_path(path).is_relative_to(real_path(folder)):
            raise UsageError(
                f"{path}: is read, and --overwrite would delete it with the results in {folder}; copy it to another "
                "folder, or choose another --out"
            )
    delete_files([*ours, folder / STATE])


def plan(request: ImproveRequest) -> str:
    """Return the stages of a request with one round, as lines of text. Nothing is written.

    Raises:
        DataError: The pairs or the texts cannot be used.
    """
    num_valid = check_material(request)
    total = request.budget.total
    plain = plain_training(request)
    used = plain.amount or 0.0
    if request.texts:
        stages = round_stages(request, 1, total - used)
        more = f"it is divided into up to {shares.MAX_ROUNDS} rounds"
    else:
        number = shares.number_of_teachers(total, used, len(model_kinds(request)))
        stages = diversification_stages(request, number, used)
        more = f"up to {shares.MAX_TEACHERS} models of each direction translate the pairs"
    amount_of_last = total - used - sum(stage.amount or 0.0 for stage in stages)

    within = request.budget.in_words(total)
    lines = [f"The stages within {within}. Commands that depend on measurements are shown when they begin:"]
    if request.trains_tokenizer:
        command = tokenizer_command(request, tokenizer_texts(request))
        lines.append(_described("tokenizer", "trains one tokenizer for all models", command=command))
    corpora = [StageCorpus(corpus.direction, weighted(corpus.path, corpus.weight)) for corpus in request.corpora]
    command = training_command(request, plain, corpora, used)
    lines.append(_described(plain.name, plain.purpose, used / total, command))
    command = score_command(request, "valid", str(request.out / PLAIN))
    lines.append(_described(f"{PLAIN}, validation", "scores it, as each model after it", command=command))
    for stage in stages:
        amount = amount_of_last if stage.amount is None else stage.amount
        lines.append(_described(stage.name, stage.purpose, amount / total))
    last = stages[-1].name
    command = [*score_command(request, "test", str(request.out / PLAIN)), "--compare", str(request.out / last)]
    lines.append(_described("comparison", f"compares the plain model and {last} on the test pairs", command=command))
    if request.has_one_tokenizer:
        lines.append(_described("ensemble, validation", "scores all models together"))

    pairs = counted(sum(number for _, number in num_valid), "validation pair")
    where = f"{pairs} of {len(num_valid)} directions (the mean)" if request.has_several else pairs
    metric = METRIC_NAMES[metric_on(num_valid)]
    return "\n".join(
        [
            *lines,
            f"The model with the best {metric} on {where} is kept, and gets what is left.",
            f"If plain training would see each pair fewer than {shares.MIN_EPOCHS:g} times, it gets the whole budget.",
            f"If the plain model needs little of the budget, {more}.",
        ]
    )


def _described(name: str, purpose: str, share: float = 0.0, command: Sequence[str] = ()) -> str:
    """Return the line of a stage, and that of its command.

    Args:
        name: The name of the stage.
        purpose: What it does.
        share: Its share of the budget; 0: it has none of its own.
        command: The arguments of `mtcli`; empty: they depend on what is measured.
    """
    in_words = f" ({share:.0%} of the budget)" if share else ""
    line = f"{name}{in_words}: {purpose}"
    return f"{line}\n  {shlex.join(['mtcli', *command])}" if command else line


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
