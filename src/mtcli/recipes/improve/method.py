"""The recipe of `mtcli improve`: which models are trained on which pairs, and which of them is the result.

With monolingual text: back-translation (Sennrich et al. 2016), repeated if it pays (Hoang et al. 2018). Without it:
data diversification (Nguyen et al. 2020), with the translations of the training pairs by several models.
"""

import logging
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from mtcli.config.writing_systems import FEW_VALIDATION_PAIRS, selection_metric
from mtcli.recipes.improve import budget as shares
from mtcli.recipes.improve.budget import number_of_teachers, planned_rounds, useful_lines
from mtcli.recipes.improve.commands import Scores, Stages, Training
from mtcli.recipes.improve.material import Lines, Material, Synthetic
from mtcli.runtime.wording import counted

log = logging.getLogger(__name__)

PLAIN = "plain"

FORWARD = ("--forward",)

LARGE_TEXT = ("--tag", "--beam-size", "1")
"""How a text with more lines than pairs is back-translated.

Tagged back-translations help where they outnumber the pairs (Caswell et al. 2019). Greedy search is faster, so more
lines are translated in the same time.
"""


@dataclass(frozen=True)
class Candidate:
    """A model that may be the result."""

    training: Training
    pairs: int
    """Number of training pairs, synthetic ones included."""
    scores: Scores


@dataclass(frozen=True)
class Ensemble:
    """Models that translate together, by averaging their probabilities."""

    folders: tuple[str, ...]
    """The folders of the models, the best one first."""
    scores: Scores


@dataclass
class Result:
    """The models that were trained for the direction of the request, and the best of them."""

    candidates: dict[str, Candidate] = field(default_factory=dict)
    """By the name of their stage, in order."""
    best: str = PLAIN
    comparison: Any = None
    """The paired bootstrap of the plain model (A) and the best one (B); None if the plain one is the best."""
    ensemble: Ensemble | None = None
    """All models together; None if there is one, or if they have different tokenizers."""


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
        self.metric = selection_metric(stages.request.config.data.tgt)
        if self.material.sizes["valid"] < FEW_VALIDATION_PAIRS:
            self.metric = "chrf"  # BLEU of a few sentences is often 0
            pairs = counted(self.material.sizes["valid"], "validation pair")
            log.warning("%s are too few to tell which model is better; name more with --valid", pairs)
        self.result = Result()

    def run(self) -> Result:
        """Run all stages that have not been run yet, and return the result.

        Raises:
            DataError: The pairs or the texts cannot be used.
            StageError: A command failed.
        """
        targets = self.material.text_lines(source=False)
        sources = self.material.text_lines(source=True)
        self.material.train_tokenizer()
        plain = self.stages.train(PLAIN, self.material.specs(), lambda: shares.PLAIN_SHARE * self.budget.total)
        self._add(PLAIN, plain, self.material.num_pairs)
        if self.stages.decide("more pairs would not help", lambda: self._epochs_in_whole_budget() < shares.MIN_EPOCHS):
            log.warning(
                "training on the pairs alone would see each of them fewer than %g times in the whole budget, so more "
                "pairs would not help: the plain model gets the rest of the budget",
                shares.MIN_EPOCHS,
            )
        elif targets or sources:
            self._rounds(targets, sources)
        else:
            self._diversify()
        self._use_the_rest()
        if self.result.best != PLAIN:
            best = self.result.candidates[self.result.best]
            self.result.comparison = self.stages.compare(self._plain.folder, best.training.folder)
        self._combine()
        return self.result

    # ---- rounds with monolingual text ----

    def _rounds(self, targets: Lines | None, sources: Lines | None) -> None:
        """Make synthetic pairs of the texts and train on them, and again while this pays."""
        number = 0
        continues = True
        while continues:
            number += 1
            amount, for_later = self.stages.decide(f"budget of round {number}", self._budget_of_round)
            before = self.result.best
            self._round(number, amount, for_later, targets, sources)
            paid = self.result.best != before
            continues = self.stages.decide(f"round {number + 1}", partial(self._another_round, number, paid))

    def _budget_of_round(self) -> list[float]:
        """Return the share of the budget of the next round, and what it leaves for later rounds."""
        remaining = self._spendable()
        amount = remaining / planned_rounds(remaining, self._plain.used(self.budget))
        return [amount, remaining - amount]

    def _another_round(self, number: int, paid: bool) -> bool:
        is_enough = self._spendable() >= shares.MIN_ROUND_SHARE * self.budget.total
        return paid and is_enough and number < shares.MAX_ROUNDS

    def _round(
        self, number: int, amount: float, for_later: float, targets: Lines | None, sources: Lines | None
    ) -> None:
        """Make synthetic pairs with the best model and a new reverse model, and train on them.

        Args:
            number: The number of the round, from 1.
            amount: Its share of the budget.
            for_later: The share of later rounds.
            targets: Text in the target language.
            sources: Text in the source language.
        """
        for_translation = shares.TRANSLATION_SHARE * amount / sum(text is not None for text in (targets, sources))
        at_most = useful_lines(self._pairs_in(amount * (1 - shares.REVERSE_SHARE - shares.TRANSLATION_SHARE)))
        folder = f"synthetic-{number}"
        files: list[Path] = []
        if sources is not None:
            forward = self._best.training.folder
            files += self.material.translate(
                f"{folder}/forward", forward, sources, FORWARD, at_most=at_most, amount=for_translation
            )
        if targets is not None:
            reverse = self._reverse_model(number, amount, files)
            is_large = min(targets.number, at_most) > self.material.num_pairs
            how = LARGE_TEXT if is_large else ()
            files += self.material.translate(
                f"{folder}/back", reverse, targets, how, at_most=at_most, amount=for_translation
            )
        synthetic = self.material.merge(f"{folder}/pairs", files)
        self._train_on(f"improved-{number}", synthetic, for_later)

    def _reverse_model(self, number: int, amount: float, forward: list[Path]) -> str:
        """Train a model of the opposite direction, and return its folder.

        It learns from the translations of the best model too: those of the monolingual text, or from the second round
        on, without such text, those of the training sources.

        Args:
            number: The number of the round.
            amount: The share of the budget of the round.
            forward: Files of synthetic pairs with human sources.
        """
        files = forward
        if not files and number > 1:
            files = self.material.translate(
                f"synthetic-{number}/sources",
                self._best.training.folder,
                self.material.side(source=True),
                FORWARD,
                at_most=self.material.num_pairs,
                amount=shares.TRANSLATION_SHARE * amount,
            )
        synthetic = self.material.merge(f"synthetic-{number}/reverse", files) if files else None
        specs = self.material.specs(synthetic if synthetic and synthetic.number else None)
        name = f"reverse-{number}"
        share = shares.REVERSE_SHARE * amount
        return self.stages.train(name, specs, lambda: share, forward=False, engine=False).folder

    # ---- data diversification ----

    def _diversify(self) -> None:
        """Train on the translations of the training pairs by several models of both directions."""
        used = self._plain.used(self.budget)
        number = self.stages.decide("models of each direction", lambda: number_of_teachers(self.budget.total, used))
        amount = min(used, shares.TEACHERS_SHARE * self.budget.total / (2 * number))
        for_translation = shares.TRANSLATION_SHARE * self.budget.total / (2 * number)
        first_seed = self.stages.request.config.train.seed
        files: list[Path] = []
        for index in range(1, number + 1):
            for forward in (True, False):
                name = f"{'forward' if forward else 'reverse'}-{index}"
                if forward and index == 1:
                    model = self._plain
                else:
                    seed = first_seed + index - 1
                    specs = self.material.specs()
                    model = self.stages.train(name, specs, lambda: amount, forward=forward, seed=seed, engine=False)
                if forward and index > 1:
                    self._add(name, model, self.material.num_pairs)
                files += self.material.translate(
                    f"synthetic-1/{name}",
                    model.folder,
                    self.material.side(source=forward),
                    FORWARD if forward else (),
                    at_most=self.material.num_pairs,
                    amount=for_translation,
                )
        synthetic = self.material.merge("synthetic-1/pairs", files)
        self._train_on("improved-1", synthetic, 0.0)

    # ---- models ----

    def _train_on(self, name: str, synthetic: Synthetic, for_later: float) -> None:
        """Train on the real and the synthetic pairs.

        Args:
            name: The name of the stage.
            synthetic: The synthetic pairs.
            for_later: What is left of the budget for later rounds.
        """
        if not synthetic.number:
            log.warning("%s: no synthetic pairs are left, so no model is trained on them", synthetic.path)
            return
        training = self.stages.train(name, self.material.specs(synthetic), lambda: self._spendable() - for_later)
        self._add(name, training, self.material.num_pairs + synthetic.number)

    def _use_the_rest(self) -> None:
        """Give the best model the rest of the budget, unless it is small."""
        best = self.result.best
        is_much = self.stages.decide("extend", lambda: self._spendable() >= shares.MIN_SHARE * self.budget.total)
        if not is_much:
            return
        if best == PLAIN and len(self.result.candidates) > 1:
            log.warning("no model is better than the plain one: it gets the rest of the budget")
        training = self.stages.extend(best, self._spendable)
        self._add(best, training, self.result.candidates[best].pairs, f"{best}, extended")

    def _add(self, name: str, training: Training, pairs: int, stage: str | None = None) -> None:
        """Score a model, and make it the result if it is the best."""
        scores = self.stages.score(stage or name, training.folder)
        self.result.candidates[name] = Candidate(training, pairs, scores)
        self.result.best = max(self.result.candidates, key=self._figure)

    def _combine(self) -> None:
        """Score all models together, if they share a tokenizer."""
        candidates = self.result.candidates
        if len(candidates) < 2 or not self.stages.request.has_one_tokenizer:
            return
        names = sorted(candidates, key=lambda name: name != self.result.best)  # the best one first
        folders = tuple(candidates[name].training.folder for name in names)
        self.result.ensemble = Ensemble(folders, self.stages.score("ensemble", *folders))

    def _figure(self, name: str) -> float:
        """Return the score that decides; of equal scores, the earlier model's counts."""
        return float(getattr(self.result.candidates[name].scores, self.metric))

    @property
    def _best(self) -> Candidate:
        return self.result.candidates[self.result.best]

    @property
    def _plain(self) -> Training:
        return self.result.candidates[PLAIN].training

    # ---- budget ----

    def _spendable(self) -> float:
        """Return the rest of the budget, without the time for scoring the next model, comparing it and the ensemble."""
        if not self.budget.is_time:
            return max(self.stages.remaining(), 0.0)
        models = len(self.result.candidates) + 1 if self.stages.request.has_one_tokenizer else 0
        scoring = (3 + models) * self.result.candidates[PLAIN].scores.seconds
        return max(self.stages.remaining() - scoring, 0.0)

    def _pairs_in(self, amount: float) -> float:
        """Return how many pairs training can use in an amount of the budget, at the speed of the plain model."""
        return amount * self._plain.epochs * self.material.num_pairs / self._plain.used(self.budget)

    def _epochs_in_whole_budget(self) -> float:
        return self._plain.epochs * self.budget.total / self._plain.used(self.budget)
