"""Messages for users: remarks on unusual scores, and the commands to run next."""

import math
import shlex
from collections.abc import Iterable
from pathlib import Path

LOW = {"BLEU": 5.0, "chrF2": 20.0}
"""Scores below which hardly any translation is right. Unrelated text in the same script has a chrF of 10 to 20."""

HIGH = {"BLEU": 90.0, "chrF2": 95.0}
"""Scores above which the test set is suspiciously easy: no two human translators agree so closely."""


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


def first_remark(scores: Iterable[tuple[str, float]]) -> str | None:
    """Return the first remark on several scores, each a metric and its value; None if there is no remark."""
    for metric, score in scores:
        remark = what_it_means(metric, score)
        if remark is not None:
            return remark
    return None


def command(name: str, model: Path, *arguments: str) -> str:
    """Return the command `mtcli NAME --model DIR …`, quoted for a shell."""
    return " ".join(["mtcli", name, "--model", shlex.quote(str(model)), *arguments])
