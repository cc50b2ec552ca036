"""Remarks on scores: too low to be useful, too high to be believed, of too few pairs."""

import math
from collections.abc import Iterable

from mtcli.runtime.wording import counted

LOW = {"BLEU": 5.0, "chrF2": 20.0}
"""Scores below which hardly any translation is right. Unrelated text in the same script has a chrF of 10 to 20."""

HIGH = {"BLEU": 90.0, "chrF2": 95.0}
"""Scores above which the test set is suspiciously easy: no two human translators agree so closely."""

IN_WORDS = (
    (15.0, "some words are right, the meaning often is not; train longer (a larger --time continues) or on more pairs"),
    (30.0, "the meaning usually comes through, with errors; correct what you publish; more pairs and time still help"),
    (50.0, "most translations of such sentences can be used; check other kinds of text: mtcli eval --pairs FILE"),
    (90.0, "close to the references, as on short or similar sentences; check other text: mtcli eval --pairs FILE"),
)
"""What a BLEU below each of these means for sentences like those of the test, and what to do next."""

DEMO_IN_WORDS = (
    "the demo has few words, so this says nothing about other text; next: mtcli train PAIRS --src en --tgt es"
)

FEW_TEST_PAIRS = 30
"""Fewer test pairs than this are reported as too few.

A score of so few sentences depends mostly on which sentences they are. Resampling does not show it: with one sentence,
all resamples are equal, the interval is ± 0 and any difference is significant. 30 is the usual lower bound for samples
whose spread is estimated from the sample itself; 200 or more are advised.
"""

ADVISED_TEST_PAIRS = 200
"""Test pairs that give an interval of a few points."""


def what_it_means(metric: str, score: float) -> str | None:
    """Return a remark on a score that is too low to be useful or too high to be believed; None for other scores.

    Args:
        metric: As sacrebleu names it; only BLEU and chrF2 have limits.
        score: From 0 to 100.
    """
    if score < LOW.get(metric, 0.0):
        return (
            f"{metric} below {LOW[metric]:g}: the translations are hardly usable. Usual causes: too few pairs, too "
            "little training time, or a mismatch (source and target swapped, sentences that do not belong together, "
            "text already tokenized); `mtcli data check` finds mismatches"
        )
    if score > HIGH.get(metric, math.inf):
        return (
            f"{metric} above {HIGH[metric]:g} is rare on real text: make sure that no test sentence is also a "
            "training sentence; `mtcli data check TRAIN --test TEST` counts them"
        )
    return None


def in_words(bleu: float) -> str | None:
    """Return what a BLEU score means, and what to do next; None if it has a remark of `what_it_means`."""
    if what_it_means("BLEU", bleu):
        return None
    return next((f"BLEU {bleu:.1f}: {words}" for limit, words in IN_WORDS if bleu <= limit), None)


def too_few_pairs(pairs: int) -> str | None:
    """Return a remark on a number of test pairs that is too small to score; None for `FEW_TEST_PAIRS` or more."""
    if pairs >= FEW_TEST_PAIRS:
        return None
    verb = "is" if pairs == 1 else "are"
    return (
        f"{counted(pairs, 'test pair')} {verb} too few for a score, an interval or a comparison to mean anything: "
        f"use at least {FEW_TEST_PAIRS}, better {ADVISED_TEST_PAIRS} or more"
    )


def remarks(scores: Iterable[tuple[str, float]], pairs: int) -> list[str]:
    """Return the remarks on several scores: that there are too few test pairs, and the first one on an unusual score.

    A high score of too few pairs gets no remark of its own.

    Args:
        scores: Each a metric and its value.
        pairs: Test pairs that were scored.
    """
    few = too_few_pairs(pairs)
    found = [few] if few else []
    for metric, score in scores:
        remark = what_it_means(metric, score)
        is_high = score > HIGH.get(metric, math.inf)
        if remark is not None and not (few and is_high):
            found.append(remark)
            break
    return found
