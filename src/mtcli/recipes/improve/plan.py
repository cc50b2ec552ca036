"""`mtcli improve --dry-run`: the stages, what each does, and its share of the budget, before anything is measured."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from mtcli.config.scores import METRIC_NAMES
from mtcli.recipes.improve import budget as shares
from mtcli.recipes.improve.material import check_material, plain_corpora, tokenizer_texts
from mtcli.recipes.improve.method import PLAIN, metric_on
from mtcli.recipes.improve.request import ImproveRequest
from mtcli.recipes.improve.stages import score_command, tokenizer_command, training_command
from mtcli.runtime.wording import counted


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
