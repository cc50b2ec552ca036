"""Learning corrections: how many the model gives, and how much of its old score it loses."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from mtcli.config.schema import Config
from mtcli.config.scores import selection_metric
from mtcli.corpus.cache.prepare import Prepared
from mtcli.documents.lines import BySentence
from mtcli.errors import UsageError
from mtcli.runtime.wording import counted
from mtcli.storage.state import State
from mtcli.text.lines import Pair, normalized
from mtcli.translate.backends.pytorch import PyTorchBackend
from mtcli.translate.translation import Options
from mtcli.translate.translator import ModelTranslator
from mtcli.translate.windows import Reading

log = logging.getLogger(__name__)

SHARES_OF_START = (0.0, 0.2, 0.4, 0.6)
"""The shares of the starting model in the means of `with_start`."""

MOST_SHOWN = 20
"""Corrections that an event lists because the model gives another text."""


EVERY_ONE_GIVEN = "every correction is given"
"""The reason for the early end of a run."""


@dataclass(frozen=True)
class CorrectionFigures:
    """How many corrections a model gives."""

    given: int
    """Corrections whose source the model translates into the corrected text; white space may differ."""
    of: int
    """All corrections."""
    others: list[dict[str, str]] = field(default_factory=list)
    """The first of the others: source, correction and translation (`src`, `ref`, `hyp`)."""
    forgets: bool = False
    """The validation pairs have lost more than `train.corrections_limit`."""

    def __str__(self) -> str:
        return f"{self.given:,} of {counted(self.of, 'correction')} given"


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


def compared_with_start(figures: CorrectionFigures, scores: dict[str, Any], state: State, config: Config) -> Any:
    """Return the figures with `forgets`, which compares the scores with those of the model that training started from.

    Args:
        figures: The figures of a model.
        scores: Its `bleu` and `chrf` on the validation pairs.
        state: The state of the run.
        config: Its configuration.
    """
    if state.start is None:
        return figures
    name = selection_metric(config.data.tgt)
    bleu, chrf, *_ = state.start
    lost = (bleu if name == "bleu" else chrf) - scores[name]
    return replace(figures, forgets=lost > config.train.corrections_limit)


def with_start(steps: list[int]) -> Iterator[list[int]]:
    """Yield lists of checkpoints whose mean has more and more of the model that training started from, step 0.

    Between the weights of two models, of which one was fine-tuned from the other, what was learned and what was
    forgotten change gradually (Wortsman et al. 2022, "Robust fine-tuning of zero-shot models").

    Args:
        steps: The steps of the last checkpoints, whose mean is the first one.
    """
    for share in SHARES_OF_START:
        yield [0] * round(share / (1 - share) * len(steps)) + steps


def why_ended(state: State, of: int) -> str:
    """Return why training ended early, for the end of the run.

    Args:
        state: The state of the run.
        of: Number of corrections.
    """
    if state.best is not None and given_by_best(state) == of:
        return EVERY_ONE_GIVEN
    return "cut short, as no more corrections were learned"


def given_by_best(state: State) -> int:
    """Return how many corrections the run's model gives."""
    assert state.best is not None
    return int(state.best[3])


def describe_gain(state: State, of: int) -> str:
    """Describe how many corrections the model gave before training, and gives after it.

    Args:
        state: The state at the end.
        of: Number of corrections.
    """
    assert state.start is not None
    before = int(state.start[3])
    return f"corrections: the model gave {before:,} of {of:,} before, and gives {given_by_best(state):,} now"
