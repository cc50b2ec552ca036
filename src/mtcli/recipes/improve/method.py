"""The recipe of `mtcli improve`: run the stages of its plan within the budget, and choose the best model."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from mtcli.config.scores import FEW_VALIDATION_PAIRS, METRIC_NAMES, selection_metric
from mtcli.recipes.improve import budget as shares
from mtcli.recipes.improve.budget import number_of_teachers, planned_rounds, useful_lines
from mtcli.recipes.improve.material import Material, Synthetic
from mtcli.recipes.improve.plan import (
    BEST,
    PLAIN,
    PlannedStage,
    PlannedTraining,
    PlannedTranslation,
    diversification_stages,
    model_kinds,
    plain_training,
    round_stages,
)
from mtcli.recipes.improve.stages import Scores, Stages, Training
from mtcli.runtime.wording import counted
from mtcli.text.languages import Direction

log = logging.getLogger(__name__)

FORWARD = ("--forward",)

TAG = ("--tag",)
GREEDY = ("--beam-size", "1")
"""How a text with more lines than pairs is back-translated.

Tagged back-translations help where they outnumber the pairs (Caswell et al. 2019). Greedy search is faster, so more
lines are translated in the same time.
"""


@dataclass(frozen=True)
class CandidateModel:
    """A model that may be the result."""

    training: Training
    pairs: int
    """Number of training pairs, synthetic ones included."""
    scores: Scores
    synthetic: Mapping[Direction, int] = field(default_factory=dict)
    """Number of synthetic pairs of each direction."""


@dataclass(frozen=True)
class ScoredEnsemble:
    """Models that translate together, by averaging their probabilities."""

    folders: tuple[str, ...]
    """The folders of the models, the best one first."""
    scores: Scores
    is_better: bool
    """They translate the validation pairs better than the best one of them."""


@dataclass
class ImproveResult:
    """The models that were trained for the directions of the request, and the best of them."""

    candidates: dict[str, CandidateModel] = field(default_factory=dict)
    """By the name of their stage, in order."""
    best: str = PLAIN
    comparison: Any = None
    """See `Stages.compare`, of the plain model (A) and the best one (B); None if the plain one is the best."""
    ensemble: ScoredEnsemble | None = None
    """All models together; None if there is one, or if they have different tokenizers."""
    part: int = 1
    """1, and one more for each time that the command has ended and was then given a larger budget."""

    def in_part(self, name: str) -> str:
        """Return the name of a stage or a decision that each part has once."""
        return name if self.part == 1 else f"{name}, part {self.part}"


def metric_on(num_valid: Sequence[tuple[str, int]]) -> str:
    """Return the score that decides which model is the best, and warn of too few validation pairs.

    Args:
        num_valid: The target language and the number of validation pairs of each direction.
    """
    fewest = min(number for _, number in num_valid)
    if fewest >= FEW_VALIDATION_PAIRS:
        return "bleu" if all(selection_metric(language) == "bleu" for language, _ in num_valid) else "chrf"
    pairs = counted(fewest, "validation pair")
    if len(num_valid) > 1:
        pairs += " of a direction"
    log.warning("%s are too few to tell which model is better; name more with --valid", pairs)
    return "chrf"  # BLEU of a few sentences is often 0


class Method:
    """The recipe for one request.

    Args:
        stages: Runs the stages.
        material: The pairs and texts.
    """

    def __init__(self, stages: Stages, material: Material):
        self.stages = stages
        self.budget = stages.budget
        self.material = material
        self.request = stages.request
        self.directions = stages.request.directions
        self.metric = metric_on(material.num_valid)
        self.result = ImproveResult()
        self.rounds = 0
        """Number of rounds that were begun."""

    def run(self) -> ImproveResult:
        """Run all stages that have not been run yet, and return the result.

        Raises:
            DataError: The pairs or the texts cannot be used.
            StageError: A command failed.
        """
        self.material.train_tokenizer()
        self._run_stages([plain_training(self.request)])
        self._use_budget()
        while self._was_extended():
            self.result.part += 1
            self._use_budget()
        if self.result.best != PLAIN:
            name = self.result.in_part("comparison")
            self.result.comparison = self.stages.compare(name, self._plain.folder, self._best.training.folder)
        self._combine()
        return self.result

    def _was_extended(self) -> bool:
        """Return True if the budget is larger than when this part ended."""
        ended_with = self.stages.decide(self.result.in_part("budget"), lambda: self.budget.total)
        return self.budget.total > float(ended_with)

    def _use_budget(self) -> None:
        """Use the rest of the budget: for synthetic pairs and trainings on them, and then for the best model."""
        in_part = self.result.in_part
        rounds_before = self.rounds
        if self.stages.decide(in_part("more pairs would not help"), self._is_short_of_time):
            log.warning(
                "training on the pairs alone would see each of them fewer than %g times in the whole budget, so more "
                "pairs would not help: the plain model gets the rest of the budget",
                shares.MIN_EPOCHS,
            )
        elif self.request.texts:
            while self.stages.decide(in_part(f"round {self.rounds + 1}"), self._another_round):
                self._round()
        elif not self.rounds and self.stages.decide(in_part("diversification"), self._another_round):
            self._diversify()
        is_extended = self._extend_best()
        if self.result.part > 1 and self.rounds == rounds_before and not is_extended:
            log.warning("nothing is trained: too little of this budget is left; give a larger one")

    # ---- rounds with monolingual text ----

    def _budget_of_round(self) -> list[float]:
        """Return the share of the budget of the next round, and what it leaves for later rounds."""
        remaining = self._spendable()
        amount = remaining / planned_rounds(remaining, self._plain.used(self.budget))
        return [amount, remaining - amount]

    def _another_round(self) -> bool:
        """Return True if there was no round or the last one made a better model, and there is budget for another."""
        has_paid = not self.rounds or self.result.best == f"improved-{self.rounds}"
        is_enough = self._spendable() >= shares.MIN_ROUND_SHARE * self.budget.total
        return has_paid and is_enough and self.rounds < shares.MAX_ROUNDS

    def _round(self) -> None:
        """Run the stages of the next round."""
        self.rounds += 1
        number = self.rounds
        amount, for_later = self.stages.decide(f"budget of round {number}", self._budget_of_round)
        stages = round_stages(self.request, number, amount)
        of_reverse_model = sum(stage.amount or 0.0 for stage in stages if isinstance(stage, PlannedTraining))
        useful = useful_lines(self._pairs_in((1 - shares.TRANSLATION_SHARE) * amount - of_reverse_model))
        num_texts = max(len(self.request.texts_of(is_source=is_source)) for is_source in (True, False))
        self._run_stages(stages, max_lines=max(1, useful // num_texts), for_later=for_later)

    # ---- data diversification ----

    def _diversify(self) -> None:
        """Train on the translations of the training pairs."""
        self.rounds = 1
        used = self._plain.used(self.budget)
        teachers = partial(number_of_teachers, self.budget.total, used, len(model_kinds(self.request)))
        number = self.stages.decide("models of each direction", teachers)
        self._run_stages(diversification_stages(self.request, number, used))

    # ---- stages ----

    def _run_stages(self, stages: Sequence[PlannedStage], *, max_lines: int = 0, for_later: float = 0.0) -> None:
        """Run stages of the plan, in their order.

        Args:
            stages: The stages.
            max_lines: Largest number of lines of a monolingual text to translate.
            for_later: What a training that uses the rest of the budget leaves for later rounds.
        """
        folders = {name: model.training.folder for name, model in self.result.candidates.items()}
        if folders:
            folders[BEST] = self._best.training.folder
        made: list[tuple[PlannedTranslation, list[Path]]] = []
        for stage in stages:
            if isinstance(stage, PlannedTranslation):
                made.append((stage, self._translate(stage, folders[stage.model], max_lines)))
                continue
            learned = [(each, files) for each, files in made if each.name in stage.translations]
            training = self._train(stage, self._synthetic(stage, learned), for_later)
            if training is not None:
                folders[stage.name] = training.folder

    def _translate(self, stage: PlannedTranslation, model: str, max_lines: int) -> list[Path]:
        """Return the files of pairs that a translation makes; see `_run_stages` for `max_lines`."""
        direction = stage.direction
        num_pairs = self.material.num_pairs_of(direction)
        if stage.text is None:
            lines = self.material.side(direction, source=stage.is_source)
            at_most = num_pairs
        else:
            lines = self.material.lines_of(stage.text)
            at_most = max_lines
        is_large = min(lines.number, at_most) > num_pairs
        if stage.is_source:
            how = FORWARD
        else:
            how = (*(TAG if self.request.can_tag else ()), *GREEDY) if is_large else ()
            direction = direction.reversed()
        return self.material.translate(stage.name, model, direction, lines, how, at_most=at_most, amount=stage.amount)

    def _synthetic(
        self, stage: PlannedTraining, learned: Sequence[tuple[PlannedTranslation, Sequence[Path]]]
    ) -> dict[Direction, Synthetic]:
        """Return the synthetic pairs of a training.

        Args:
            stage: The training.
            learned: The translations that it learns from, and their files.
        """
        files: dict[Direction, list[Path]] = {direction: [] for direction in self.directions}
        for translation, own in learned:
            files[translation.direction] += own
        for translation, own in learned:
            if translation.both_ways:
                files[translation.direction.reversed()] += own
        return self.material.merge(stage.synthetic, files)

    def _train(
        self, stage: PlannedTraining, synthetic: Mapping[Direction, Synthetic], for_later: float
    ) -> Training | None:
        """Train a model, and score it if it may be the result; None: no synthetic pairs are left for the last model.

        Args:
            stage: The training.
            synthetic: The synthetic pairs of each direction.
            for_later: See `_run_stages`.
        """
        numbers = {direction: pairs.number for direction, pairs in synthetic.items()}
        if stage.amount is None:
            for direction, pairs in synthetic.items():
                if not pairs.number:
                    what = "no synthetic pairs are left" + (f" of {direction}" if self.request.has_several else "")
                    log.warning("%s: %s, so no model is trained on them", pairs.path, what)
            if not any(numbers.values()):
                return None

        def amount() -> float:
            return self._spendable() - for_later if stage.amount is None else stage.amount

        training = self.stages.train(stage, self.material.specs(synthetic, forward=stage.forward), amount)
        if stage.forward:
            self._add(stage.name, training, self.material.num_pairs + sum(numbers.values()), numbers)
        return training

    def _extend_best(self) -> bool:
        """Give the best model the rest of the budget, and return True, unless this would not train it further.

        If it scores lower then, the earlier model is kept.
        """
        result = self.result
        best = result.best
        limit = self.stages.decide(result.in_part("extend"), self._limit_of_extension)
        if limit is None:
            return False
        if best == PLAIN and len(result.candidates) > 1:
            log.warning("no model is better than the plain one: it gets the rest of the budget")
        stage = result.in_part(f"{best}, extended")
        before = self._copy_of_best()
        training = self.stages.extend(best, stage, limit)
        after = replace(before, training=training, scores=self.stages.score(stage, training.folder))
        if self._figure(after.scores) >= self._figure(before.scores):
            result.candidates[best] = after
        else:
            result.candidates[best] = before
            log.warning(
                "%s: %s did not help: %s %.1f instead of %.1f on the validation pairs; the earlier model is kept: %s",
                best,
                counted(training.steps - before.training.steps, "more training step"),
                METRIC_NAMES[self.metric],
                self._figure(after.scores),
                self._figure(before.scores),
                before.training.folder,
            )
        return True

    def _copy_of_best(self) -> CandidateModel:
        """Return the best model in a folder that training it further does not change."""
        name = self.result.best
        is_copy = self._best.training.folder != self.stages.trainings[name].folder
        return self._best if is_copy else replace(self._best, training=self.stages.copy(name))

    def _limit_of_extension(self) -> float | None:
        """Return the amount of the budget for the whole training of the best model; None: it is not extended.

        When the user extends the command, no rest of the budget is too small. A training that ended because nothing
        improved continues only with a larger limit than the one that it did not use.
        """
        training = self.stages.trainings[self.result.best]
        rest = self._spendable(extending=True)
        minimum = shares.MIN_SHARE * self.budget.total if self.result.part == 1 else 1.0
        if rest < minimum:
            if self.result.part == 1 and not self.rounds:  # the last round uses the rest
                log.warning(
                    "only %s left after the time for scoring models: too little to train the best one further",
                    self.budget.in_words(rest),
                )
            return None
        limit = training.used(self.budget) + rest
        if int(limit) > training.limit:
            return limit
        log.warning(
            "%s ended because nothing improved, so the rest of the budget is not used: %s",
            self.result.best,
            self.budget.in_words(rest),
        )
        return None

    # ---- models ----

    def _add(self, name: str, training: Training, pairs: int, synthetic: Mapping[Direction, int]) -> None:
        """Score a model, and make it the result if it is the best; of equal scores, the earlier model's counts."""
        candidates = self.result.candidates
        scores = self.stages.score(name, training.folder)
        candidates[name] = CandidateModel(training, pairs, scores, synthetic)
        self.result.best = max(candidates, key=lambda each: self._figure(candidates[each].scores))

    def _combine(self) -> None:
        """Score all models together, if they share a tokenizer."""
        candidates = self.result.candidates
        if len(candidates) < 2 or not self.stages.request.has_one_tokenizer:
            return
        names = sorted(candidates, key=lambda name: name != self.result.best)  # the best one first
        folders = tuple(candidates[name].training.folder for name in names)
        stage = self.result.in_part("ensemble")
        scores = self.stages.score(stage, *folders)
        is_better = self._figure(scores) > self._figure(self._best.scores)
        self.result.ensemble = ScoredEnsemble(folders, scores, is_better)

    def _figure(self, scores: Scores) -> float:
        """Return the score that decides which model is the best."""
        return float(getattr(scores, self.metric))

    @property
    def _best(self) -> CandidateModel:
        return self.result.candidates[self.result.best]

    @property
    def _plain(self) -> Training:
        return self.result.candidates[PLAIN].training

    # ---- budget ----

    def _spendable(self, *, extending: bool = False) -> float:
        """Return the rest of the budget, without the time for scoring, comparing and combining models.

        Args:
            extending: The best model is trained further; otherwise there is a new one.
        """
        if not self.budget.is_time:
            return max(self.stages.remaining(), 0.0)
        candidates = self.result.candidates
        number = 1
        if not extending or self.result.best != PLAIN:
            number += 2  # the best model and the plain one, on the test pairs
        num_models = len(candidates) if extending else len(candidates) + 1
        if num_models > 1 and self.stages.request.has_one_tokenizer:
            number += num_models
        # A model that has learned little writes longer translations than the next one, so it takes longer.
        seconds = min(candidate.scores.seconds for candidate in candidates.values())
        return max(self.stages.remaining() - number * seconds, 0.0)

    def _pairs_in(self, amount: float) -> float:
        """Return how many pairs training can use in an amount of the budget, at the speed of the plain model."""
        return amount * self._plain.epochs * self.material.pairs_per_epoch / self._plain.used(self.budget)

    def _is_short_of_time(self) -> bool:
        """Return True if plain training would see each pair too few times, in the whole budget, for more to help."""
        return self._plain.epochs * self.budget.total / self._plain.used(self.budget) < shares.MIN_EPOCHS
