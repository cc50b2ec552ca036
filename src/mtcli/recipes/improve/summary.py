"""The end of `mtcli improve`: a table of the models, what they were compared by, and what can be done with them."""

import shlex
from collections.abc import Sequence

from mtcli.evaluation.remarks import too_few_pairs
from mtcli.recipes.improve.budget import Budget
from mtcli.recipes.improve.method import PLAIN, Result
from mtcli.recipes.improve.stages import Stages
from mtcli.report.run_record import RecipeRecord
from mtcli.runtime.progress import clock
from mtcli.runtime.wording import aligned, counted

SIGNIFICANT = 0.05


def summary(result: Result, stages: Stages) -> str:
    """Return the table of the models and the comparison, as lines of text."""
    request = stages.request
    lines = [*aligned(_table(result)), "", _comparison(result, stages), _plain_training(result, stages.budget)]
    lines.append(f"Model: {request.out} (copied from {result.candidates[result.best].training.folder})")
    if result.ensemble is not None and result.ensemble.is_better:
        models = " ".join(f"--model {shlex.quote(folder)}" for folder in result.ensemble.folders)
        lines.append(f"All models together, as in the last row: mtcli translate {models}")
    return "\n".join(lines)


def recipe_record(result: Result, stages: Stages, commands: Sequence[str]) -> RecipeRecord:
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


def _table(result: Result) -> list[tuple[str, ...]]:
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


def _comparison(result: Result, stages: Stages) -> str:
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


def _plain_training(result: Result, budget: Budget) -> str:
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
