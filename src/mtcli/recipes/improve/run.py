"""The start and the end of `mtcli improve`: the folder that it works in, and the model that it leaves there."""

import shutil
from functools import partial
from pathlib import Path

from mtcli.errors import DataError, UsageError
from mtcli.recipes.improve.material import Material
from mtcli.recipes.improve.method import PLAIN, Method, Result
from mtcli.recipes.improve.request import ImproveRequest
from mtcli.recipes.improve.stages import Stages, copy_run
from mtcli.recipes.improve.summary import recipe_record
from mtcli.recipes.recipe import STATE, Changes, Recipe, open_recipe
from mtcli.report.run_report import write_report
from mtcli.runtime.device import describe, pick_device
from mtcli.runtime.files import folder_lock
from mtcli.runtime.outputs import real_path
from mtcli.storage.run_folder import RUN_FILES

NAME = "improve"

STAGE_FOLDERS = ("pairs", "plain", "plain-*", "forward-*", "reverse-*", "improved-*", "synthetic-*")

WRITTEN = (*STAGE_FOLDERS, *RUN_FILES, ".*.tmp")
"""Patterns of the names of everything that the command writes, except the state and the lock."""


def improve(request: ImproveRequest, *, overwrite: bool = False) -> tuple[Result, Stages]:
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


def _improve(request: ImproveRequest, recipe: Recipe) -> tuple[Result, Stages]:
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


def _copy_result(result: Result, recipe: Recipe) -> str:
    """Copy the best run into the folder of the recipe, and return the folder of that run."""
    best = Path(result.candidates[result.best].training.folder)
    recipe.note_result(best / "model.safetensors")
    copy_run(best, recipe.folder)
    return str(best)


def _describe_result(result: Result, stages: Stages, recipe: Recipe) -> bool:
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
