"""The plan of `mtcli improve`: which models are trained on what, and with which share of the budget.

With monolingual text: back-translation (Sennrich et al. 2016), repeated if it pays (Hoang et al. 2018). Without it:
data diversification (Nguyen et al. 2020), with the translations of the training pairs by several models.

The command runs the stages that these functions return, and `--dry-run` prints them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from mtcli.recipes.improve import budget as shares
from mtcli.recipes.improve.request import GivenText, ImproveRequest
from mtcli.text.languages import Direction

PLAIN = "plain"
"""The name of the model that is trained on the pairs alone."""

BEST = ""
"""In place of the name of a model: the best one before these stages."""


@dataclass(frozen=True)
class PlannedTraining:
    """A model to train."""

    name: str
    """The name of the stage, and of its folder."""
    purpose: str
    """What it does, for `--dry-run`."""
    amount: float | None
    """The amount of the budget; None: what is left of it."""
    translations: tuple[str, ...] = ()
    """The names of the translations from which it learns, beside the real pairs."""
    synthetic: str = ""
    """The name of the file that joins the pairs of these translations."""
    forward: bool = True
    """It translates in the directions of the request; otherwise in the opposite ones."""
    seed: int | None = None
    """The seed; None: that of the request."""
    engine: bool = True
    """It is converted for faster translation at the end."""


@dataclass(frozen=True)
class PlannedTranslation:
    """A text to translate for synthetic pairs."""

    name: str
    """The name of its files, such as `synthetic-1/back`."""
    purpose: str
    """What it does, for `--dry-run`."""
    amount: float
    """Seconds; 0 if the budget is a number of training steps."""
    model: str
    """The name of the model that translates."""
    direction: Direction
    """The direction of the pairs that it makes."""
    is_source: bool
    """The text is in the source language of the pairs; otherwise in their target language."""
    text: GivenText | None
    """The text; None: a side of the training pairs."""
    both_ways: bool
    """The pairs are for the opposite direction too."""


PlannedStage = PlannedTraining | PlannedTranslation


def plain_training(request: ImproveRequest) -> PlannedTraining:
    """Return the training of the plain model."""
    return PlannedTraining(PLAIN, "trains a model on the pairs alone", shares.PLAIN_SHARE * request.budget.total)


def round_stages(request: ImproveRequest, number: int, amount: float) -> list[PlannedStage]:
    """Return the stages of a round with monolingual text.

    The best model translates the text. If it does not translate backwards, a new reverse model does that, which learns
    from translations of the best model too: of the text in the source language or, from the second round on, of the
    training sources if there is no such text. The last model of the round learns from all translations of the text.

    Args:
        request: The request.
        number: The number of the round, from 1.
        amount: The amount of the budget for the round.
    """
    folder = f"synthetic-{number}"
    sources = request.texts_of(is_source=True)
    targets = request.texts_of(is_source=False)
    seconds = _seconds_for_translation(request, amount)
    of_text = seconds / (len(sources) + len(targets))
    forward = [
        _translation(request, f"{folder}/forward", direction, BEST, of_text, is_source=True, text=text)
        for direction, text in sources.items()
    ]
    stages: list[PlannedStage] = [*forward]
    reverse = f"reverse-{number}"
    if request.needs_reverse_model([*targets]):
        learned = forward
        if not learned and number > 1:
            of_pairs = seconds / len(request.directions)
            learned = [
                _translation(request, f"{folder}/sources", direction, BEST, of_pairs, is_source=True)
                for direction in request.directions
            ]
            stages += learned
        of_reverse = shares.REVERSE_SHARE * amount
        stages.append(_reverse_training(request, reverse, of_reverse, learned, synthetic=f"{folder}/reverse"))
    back = []
    for direction, text in targets.items():
        model = BEST if direction.reversed() in request.directions else reverse
        back.append(_translation(request, f"{folder}/back", direction, model, of_text, is_source=False, text=text))
    return [*stages, *back, _last_training(number, [*forward, *back])]


def model_kinds(request: ImproveRequest) -> tuple[bool, ...]:
    """Return the kinds of models that diversify the training pairs.

    True is a model of the directions of the request, False one of the opposite directions. If every model has both,
    there is one kind.
    """
    return (True, False) if request.needs_reverse_model(request.directions) else (True,)


def diversification_stages(request: ImproveRequest, number: int, used_by_plain: float) -> list[PlannedStage]:
    """Return the stages of data diversification: several models translate both sides of the training pairs.

    If each model has both directions, its translations of sources in one are those of targets in the other.

    Args:
        request: The request.
        number: The number of models of each kind, see `number_of_teachers`. The plain one is the first.
        used_by_plain: What the plain model used of the budget.
    """
    kinds = model_kinds(request)
    num_models = len(kinds) * number
    of_model = min(used_by_plain, shares.TEACHERS_SHARE * request.budget.total / num_models)
    of_pairs = _seconds_for_translation(request, request.budget.total) / (num_models * len(request.directions))
    stages: list[PlannedStage] = []
    made: list[PlannedTranslation] = []
    for index in range(1, number + 1):
        seed = request.config.train.seed + index - 1
        for forward in kinds:
            name = f"{'forward' if forward else 'reverse'}-{index}"
            model = PLAIN if forward and index == 1 else name
            if not forward:
                stages.append(_reverse_training(request, name, of_model, seed=seed))
            elif model != PLAIN:
                stages.append(PlannedTraining(name, "trains another model", of_model, seed=seed, engine=False))
            part = f"synthetic-1/{name}"
            translations = [
                _translation(request, part, direction, model, of_pairs, is_source=forward, both_ways=len(kinds) == 1)
                for direction in request.directions
            ]
            stages += translations
            made += translations
    return [*stages, _last_training(1, made)]


def _seconds_for_translation(request: ImproveRequest, amount: float) -> float:
    """Return the seconds for all translations within an amount of the budget; 0 if it is a number of steps."""
    return shares.TRANSLATION_SHARE * amount if request.budget.is_time else 0.0


def _translation(
    request: ImproveRequest,
    name: str,
    direction: Direction,
    model: str,
    amount: float,
    *,
    is_source: bool,
    text: GivenText | None = None,
    both_ways: bool = False,
) -> PlannedTranslation:
    """Return the translation of a text, or of one side of the training pairs; see `PlannedTranslation`."""
    if text is None:
        of_direction = f" of {direction}" if request.has_several else ""
        what = f"the {'sources' if is_source else 'targets'} of the pairs{of_direction}"
    else:
        into = direction.tgt if is_source else direction.src
        for_pairs = f" into {into}, for pairs of {direction}," if request.has_several else ""
        what = f"{text.path}{for_pairs}"
    who = {BEST: "the best model so far", PLAIN: "the plain model"}.get(model, "it")
    purpose = f"translates {what} by {who}"
    return PlannedTranslation(
        request.named(name, direction), purpose, amount, model, direction, is_source, text, both_ways
    )


def _reverse_training(
    request: ImproveRequest,
    name: str,
    amount: float,
    learned: Sequence[PlannedTranslation] = (),
    *,
    synthetic: str = "",
    seed: int | None = None,
) -> PlannedTraining:
    """Return the training of a model of the opposite directions."""
    purpose = f"trains a model of the opposite direction{'s' if request.has_several else ''}"
    return PlannedTraining(name, purpose, amount, _names(learned), synthetic, forward=False, seed=seed, engine=False)


def _last_training(number: int, learned: Sequence[PlannedTranslation]) -> PlannedTraining:
    """Return the training on all synthetic pairs of a round, which uses what is left of its budget."""
    purpose = "trains a model on the pairs and these translations"
    return PlannedTraining(f"improved-{number}", purpose, None, _names(learned), f"synthetic-{number}/pairs")


def _names(translations: Sequence[PlannedTranslation]) -> tuple[str, ...]:
    return tuple(translation.name for translation in translations)
