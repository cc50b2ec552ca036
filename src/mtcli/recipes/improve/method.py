"""The recipe of `mtcli improve`: which models are trained on which pairs, and which of them is the result.

With monolingual text: back-translation (Sennrich et al. 2016), repeated if it pays (Hoang et al. 2018). Without it:
data diversification (Nguyen et al. 2020), with the translations of the training pairs by several models.
"""

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
from mtcli.recipes.improve.stages import PLAIN, Scores, Stages, Training
from mtcli.runtime.wording import counted
from mtcli.text.languages import Direction

log = logging.getLogger(__name__)

FilesOfDirections = dict[Direction, list[Path]]
"""Files of synthetic pairs, by the direction that they are for."""

FORWARD = ("--forward",)

TAG = ("--tag",)
GREEDY = ("--beam-size", "1")
"""How a text with more lines than pairs is back-translated.

Tagged back-translations help where they outnumber the pairs (Caswell et al. 2019). Greedy search is faster, so more
lines are translated in the same time.
"""


NO_NUMBERS: Mapping[Direction, int] = {}


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
        self.targets = material.texts(is_source=False)
        """Text in the target language of each direction that has one."""
        self.sources = material.texts(is_source=True)
        """Text in the source language."""
        self.rounds = 0
        """Number of rounds that were begun."""

    def run(self) -> ImproveResult:
        """Run all stages that have not been run yet, and return the result.

        Raises:
            DataError: The pairs or the texts cannot be used.
            StageError: A command failed.
        """
        self.material.train_tokenizer()
        plain = self.stages.train(PLAIN, self.material.specs(), lambda: shares.PLAIN_SHARE * self.budget.total)
        self._add(PLAIN, plain, self.material.num_pairs)
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
        elif self.targets or self.sources:
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
        """Make synthetic pairs with the best model and, if it does not translate backwards, a new reverse model.

        The last model of the round is trained on them.
        """
        self.rounds += 1
        number = self.rounds
        amount, for_later = self.stages.decide(f"budget of round {number}", self._budget_of_round)
        for_translation = shares.TRANSLATION_SHARE * amount / (len(self.targets) + len(self.sources))
        share_of_model = 1 - shares.reverse_share(needs_model=self._needs_reverse_model()) - shares.TRANSLATION_SHARE
        useful = useful_lines(self._pairs_in(amount * share_of_model))
        at_most = max(1, useful // max(len(self.targets), len(self.sources)))
        folder = f"synthetic-{number}"
        files: FilesOfDirections = {direction: [] for direction in self.directions}
        best = self._best.training.folder
        for direction, lines in self.sources.items():
            name = self.request.named(f"{folder}/forward", direction)
            files[direction] += self.material.translate(
                name, best, direction, lines, FORWARD, at_most=at_most, amount=for_translation
            )
        reverse = self._reverse_model(number, amount, files) if self._needs_reverse_model() else best
        for direction, lines in self.targets.items():
            back = direction.reversed()
            model = best if back in self.directions else reverse
            is_large = min(lines.number, at_most) > self.material.num_pairs_of(direction)
            how = (*(TAG if self.request.can_tag else ()), *GREEDY) if is_large else ()
            name = self.request.named(f"{folder}/back", direction)
            files[direction] += self.material.translate(
                name, model, back, lines, how, at_most=at_most, amount=for_translation
            )
        synthetic = self.material.merge(f"{folder}/pairs", files)
        self._train_on(f"improved-{number}", synthetic, for_later)

    def _needs_reverse_model(self) -> bool:
        """Return True if the models do not translate the text back themselves."""
        return self.request.needs_reverse_model([*self.targets])

    def _reverse_model(self, number: int, amount: float, forward: FilesOfDirections) -> str:
        """Train a model of the opposite directions, and return its folder.

        It learns from the translations of the best model too: those of the monolingual text, or from the second round
        on, without such text, those of the training sources.

        Args:
            number: The number of the round.
            amount: The share of the budget of the round.
            forward: Files of synthetic pairs with human sources.
        """
        files = forward
        if not any(files.values()) and number > 1:
            files = {
                direction: self.material.translate(
                    self.request.named(f"synthetic-{number}/sources", direction),
                    self._best.training.folder,
                    direction,
                    self.material.side(direction, source=True),
                    FORWARD,
                    at_most=self.material.num_pairs_of(direction),
                    amount=shares.TRANSLATION_SHARE * amount / len(self.directions),
                )
                for direction in self.directions
            }
        synthetic = self.material.merge(f"synthetic-{number}/reverse", files)
        specs = self.material.specs(synthetic, forward=False)
        name = f"reverse-{number}"
        share = shares.REVERSE_SHARE * amount
        return self.stages.train(name, specs, lambda: share, forward=False, engine=False).folder

    # ---- data diversification ----

    def _diversify(self) -> None:
        """Train on the translations of the training pairs by several models of both directions.

        If each model has both directions, its translations of sources in one are those of targets in the other.
        """
        self.rounds = 1
        used = self._plain.used(self.budget)
        orders = (True, False) if self.request.needs_reverse_model(self.directions) else (True,)
        kinds = len(orders)
        teachers = partial(number_of_teachers, self.budget.total, used, kinds)
        number = self.stages.decide("models of each direction", teachers)
        amount = min(used, shares.TEACHERS_SHARE * self.budget.total / (kinds * number))
        for_translation = shares.TRANSLATION_SHARE * self.budget.total / (kinds * number * len(self.directions))
        first_seed = self.request.config.train.seed
        files: FilesOfDirections = {direction: [] for direction in self.directions}
        for index in range(1, number + 1):
            for forward in orders:
                name = f"{'forward' if forward else 'reverse'}-{index}"
                if forward and index == 1:
                    model = self._plain
                else:
                    seed = first_seed + index - 1
                    specs = self.material.specs(forward=forward)
                    model = self.stages.train(name, specs, lambda: amount, forward=forward, seed=seed, engine=False)
                if forward and index > 1:
                    self._add(name, model, self.material.num_pairs)
                for direction in self.directions:
                    files[direction] += self.material.translate(
                        self.request.named(f"synthetic-1/{name}", direction),
                        model.folder,
                        direction if forward else direction.reversed(),
                        self.material.side(direction, source=forward),
                        FORWARD if forward else (),
                        at_most=self.material.num_pairs_of(direction),
                        amount=for_translation,
                    )
        if kinds == 1:
            files = {direction: files[direction] + files[direction.reversed()] for direction in self.directions}
        synthetic = self.material.merge("synthetic-1/pairs", files)
        self._train_on("improved-1", synthetic, 0.0)

    # ---- models ----

    def _train_on(self, name: str, synthetic: Mapping[Direction, Synthetic], for_later: float) -> None:
        """Train on the real and the synthetic pairs.

        Args:
            name: The name of the stage.
            synthetic: The synthetic pairs of each direction.
            for_later: What is left of the budget for later rounds.
        """
        numbers = {direction: pairs.number for direction, pairs in synthetic.items()}
        for direction, pairs in synthetic.items():
            if not pairs.number:
                what = "no synthetic pairs are left" + (f" of {direction}" if self.request.has_several else "")
                log.warning("%s: %s, so no model is trained on them", pairs.path, what)
        if not any(numbers.values()):
            return
        training = self.stages.train(name, self.material.specs(synthetic), lambda: self._spendable() - for_later)
        self._add(name, training, self.material.num_pairs + sum(numbers.values()), numbers)

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

    def _add(self, name: str, training: Training, pairs: int, synthetic: Mapping[Direction, int] = NO_NUMBERS) -> None:
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
