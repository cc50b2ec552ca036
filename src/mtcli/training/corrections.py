"""Learning corrections: how many the model gives, and how much of its old score it loses."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace

from mtcli.config.schema import Config
from mtcli.config.scores import selection_metric
from mtcli.corpus.cache.prepare import Prepared
from mtcli.documents.lines import BySentence
from mtcli.errors import UsageError
from mtcli.storage.state import FiguresWithCorrections, State
from mtcli.text.lines import Pair, normalized
from mtcli.training.time.budget import BUDGET_USED
from mtcli.training.validation import CorrectionFigures, Validation
from mtcli.translate.backends.pytorch import PyTorchBackend
from mtcli.translate.translation import Options
from mtcli.translate.translator import ModelTranslator
from mtcli.translate.windows import Reading

log = logging.getLogger(__name__)

SHARES_OF_START = (0.0, 0.2, 0.4, 0.6)
"""The shares of the starting model in `LearnedCorrections.means`."""

MOST_SHOWN = 20
"""Corrections that an event lists because the model gives another text."""


EVERY_ONE_GIVEN = "every correction is given"
"""The reason for the early end of a run."""


def check_validation(data: Prepared) -> None:
    """Check that there are validation pairs, which show what the model forgets while it learns corrections.

    Raises:
        UsageError: There are none.
    """
    if data.corrections and not data.valid:
        raise UsageError(
            "--corrections: no validation pairs, which show what the model forgets; name some with --valid"
        )


def count_given(backend: PyTorchBackend, pairs: Sequence[Pair], config: Config) -> CorrectionFigures:
    """Translate the sources of corrections as `mtcli translate` does, and count the corrected texts.

    Args:
        backend: The model, in evaluation mode.
        pairs: The corrections.
        config: The configuration of the run.
    """
    target = config.data.tgt
    translator = BySentence(ModelTranslator(backend), config.data.src, target)
    sources = [source for source, _ in pairs]
    options = replace(Options.of(config.decode), to=target if backend.tokenizer.has_tag(target) else "")
    translations = translator.translate(sources, options, Reading(warn=False, quiet=True))
    others = [
        {"src": source, "ref": correction, "hyp": translation.text}
        for (source, correction), translation in zip(pairs, translations, strict=True)
        if normalized(translation.text) != normalized(correction)
    ]
    return CorrectionFigures(len(pairs) - len(others), len(pairs), others[:MOST_SHOWN])


class LearnedCorrections:
    """What differs in the evaluation of a run that learns corrections. In other runs, nothing does.

    Args:
        pairs: The corrections; empty in other runs.
        config: The configuration of the run.
    """

    def __init__(self, pairs: Sequence[Pair], config: Config):
        self.pairs = pairs
        self.config = config

    def measured(self, result: Validation, backend: PyTorchBackend, state: State) -> Validation:
        """Return a validation with how many corrections the model gives, and if it has forgotten too much.

        Args:
            result: The validation.
            backend: The model, in evaluation mode.
            state: The state of the run, with the figures of the model that training started from.
        """
        if not self.pairs:
            return result
        figures = count_given(backend, self.pairs, self.config)
        if isinstance(state.start, FiguresWithCorrections):
            name = selection_metric(self.config.data.tgt)
            before, now = (state.start.bleu, result.bleu) if name == "bleu" else (state.start.chrf, result.chrf)
            figures = replace(figures, forgets=before - now > self.config.train.corrections_limit)
        return replace(result, corrections=figures)

    def are_given(self, result: Validation) -> bool:
        """Return True if the model of a validation gives every correction."""
        return result.corrections is not None and result.corrections.given == result.corrections.of

    def means(self, steps: list[int]) -> Iterator[list[int]]:
        """Yield the checkpoints to average: the given ones, and if they forget too much, with more and more of step 0.

        Step 0 is the model that training started from. Between the weights of two models, of which one was fine-tuned
        from the other, what was learned and what was forgotten change gradually (Wortsman et al. 2022, "Robust
        fine-tuning of zero-shot models").

        Args:
            steps: The steps of the last checkpoints.
        """
        for share in SHARES_OF_START if self.pairs else (0.0,):
            yield [0] * round(share / (1 - share) * len(steps)) + steps

    def tested(self, state: State) -> dict[str, list[int]]:
        """Return what is scored on the test pairs: the checkpoints that are averaged, by the name of the event.

        Beside the run's model, this is the one that training started from, to show what was forgotten.
        """
        before = {"start_test": [0]} if self.pairs else {}
        return {**before, "test": state.best_steps}

    def why_ended(self, state: State, reason: str) -> str:
        """Return why training ended, given the usual reason."""
        if not self.pairs or reason == BUDGET_USED:
            return reason
        if state.best is not None and given_by_best(state) == len(self.pairs):
            return EVERY_ONE_GIVEN
        return "cut short, as no more corrections were learned"


def given_by_best(state: State) -> int:
    """Return how many corrections the run's model gives."""
    assert isinstance(state.best, FiguresWithCorrections)
    return int(state.best.given)


def describe_gain(state: State, of: int) -> str:
    """Describe how many corrections the model gave before training, and gives after it.

    Args:
        state: The state at the end.
        of: Number of corrections.
    """
    assert isinstance(state.start, FiguresWithCorrections)
    before = int(state.start.given)
    return f"corrections: the model gave {before:,} of {of:,} before, and gives {given_by_best(state):,} now"
