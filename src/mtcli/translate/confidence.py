"""The confidence of a translation: the chrF that it is expected to have, 0 to 100.

It is computed from what a search knows anyway: the log-probability of the translation, its length, and that of its
source. `evaluation.confidence` fits the numbers to the validation pairs of a model at the end of training. They are
stored in the run folder, and in `mtcli.json` of an export. A model without them has no confidence.

This module needs no NumPy, so that an exported model loads quickly.
"""

import json
import logging
import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Self

from pydantic import BaseModel, Field, FiniteFloat, PositiveFloat, ValidationError, model_validator

from mtcli import limits
from mtcli.config.fields import Within
from mtcli.runtime.files import read_regular, replace_file
from mtcli.storage import CONFIDENCE
from mtcli.storage.model_folder import ModelIdentity, has_identity, identity_of, run_of
from mtcli.translate.backends.exported import provenance
from mtcli.translate.translation import Candidate

log = logging.getLogger(__name__)

NUM_FEATURES = 4

MOST_DEVIATIONS = 4.0
"""Standard deviations from the mean at which a feature is cut: the sum is linear only near the sentences it is of."""

Percent = Annotated[FiniteFloat, Field(ge=0, le=100)]
Features = tuple[float, float, float, float]
_Numbers = Annotated[tuple[FiniteFloat, ...], Field(min_length=NUM_FEATURES, max_length=NUM_FEATURES)]


def features(log_prob: float, tgt_tokens: int, src_tokens: int) -> Features:
    """Return what the confidence of a translation is computed from.

    Args:
        log_prob: log P(translation | source) in nats.
        tgt_tokens: Tokens of the translation, without `</s>`.
        src_tokens: Tokens of the source, without `</s>`.

    Returns:
        log P per token, the logarithm of the length, that of the ratio of the two lengths, and its absolute value.
    """
    length = tgt_tokens + 1
    ratio = math.log(length / (src_tokens + 1))
    return log_prob / length, math.log(length), ratio, abs(ratio)


class Reliability(BaseModel, frozen=True):
    """Some of the calibration pairs that have similar confidence, in which the fit did not see them."""

    confidence: Percent
    """Its mean."""
    chrf: Percent
    """The mean chrF of the translations."""


class Confidence(BaseModel, frozen=True):
    """The numbers with which a model's confidence is computed.

    A weighted sum of the standardized features is mapped to chrF by a function that never falls and is linear between
    its points.
    """

    pairs: Annotated[int, Within(limits.COUNT)]
    """Pairs of sentences that it was fitted to."""
    noisy: Annotated[int, Within(limits.COUNT)]
    """Lines made from them that are no sentences, such as random letters."""
    beam_size: Annotated[int, Within(limits.BEAM_SIZE)]
    """Of the search that translated them."""
    means: _Numbers
    """Mean of each feature over the pairs."""
    deviations: Annotated[tuple[PositiveFloat, ...], Field(min_length=NUM_FEATURES, max_length=NUM_FEATURES)]
    """Standard deviation of each feature."""
    weights: _Numbers
    """Weight of each standardized feature."""
    points: Annotated[tuple[tuple[FiniteFloat, Percent], ...], Field(min_length=1)]
    """Weighted sums with the chrF that they stand for, both rising."""
    tenths: tuple[Reliability, ...] = ()
    """The pairs in ten groups by confidence, the lowest first. The confidence of each is that of a fit to others."""

    @model_validator(mode="after")
    def _check_points(self) -> Self:
        for (low, low_chrf), (high, high_chrf) in pairwise(self.points):
            if not (low < high and low_chrf <= high_chrf):
                raise ValueError("the points do not rise")
        return self

    def of(self, log_prob: float, tgt_tokens: int, src_tokens: int) -> float | None:
        """Return the confidence of a translation, see `features`; None if its log-probability is not known."""
        if not math.isfinite(log_prob):
            return None
        return self.chrf_at(self.weighted_sum(features(log_prob, tgt_tokens, src_tokens)))

    def weighted_sum(self, values: Features) -> float:
        """Return the weighted sum of the standardized features."""
        total = 0.0
        for value, mean, deviation, weight in zip(values, self.means, self.deviations, self.weights, strict=True):
            standardized = (value - mean) / deviation
            total += weight * max(-MOST_DEVIATIONS, min(MOST_DEVIATIONS, standardized))
        return total

    def chrf_at(self, weighted_sum: float) -> float:
        """Return the chrF that a weighted sum stands for. Outside of the points, it is that of the nearest one."""
        points = self.points
        after = bisect_right(points, weighted_sum, key=lambda point: point[0])
        if after == 0:
            return points[0][1]
        if after == len(points):
            return points[-1][1]
        (low, low_chrf), (high, high_chrf) = points[after - 1 : after + 1]
        return low_chrf + (high_chrf - low_chrf) * (weighted_sum - low) / (high - low)

    def rated(self, candidates: Sequence[Candidate], src_tokens: int) -> tuple[Candidate, ...]:
        """Return translations of a source of this many tokens, as a search found them, with their confidence."""
        return tuple(
            replace(candidate, confidence=self.of(candidate.log_prob, len(candidate.ids), src_tokens))
            for candidate in candidates
        )


class _Stored(BaseModel):
    """The content of the file in a run folder."""

    model: ModelIdentity
    """The `model.safetensors` whose translations it was fitted to."""
    confidence: Confidence


def store_confidence(run: Path, confidence: Confidence) -> None:
    """Write the confidence of a run's present model into its folder.

    Raises:
        OSError: A file cannot be read or written.
        ValueError: The run has no usable model.
    """
    stored = _Stored(model=identity_of(run / "model.safetensors"), confidence=confidence)
    replace_file(run / CONFIDENCE, (json.dumps(stored.model_dump(mode="json"), indent=1) + "\n").encode())


def read_confidence(model: Path) -> Confidence | None:
    """Return the confidence of a run, a checkpoint or an exported model; None if it has none for its present weights.

    Raises:
        ModelError: See `provenance`.
    """
    about = provenance(model)
    path = run_of(model) / CONFIDENCE
    try:
        if about is not None:
            found = about.get("confidence")
            return None if found is None else Confidence.model_validate(found)
        stored = _Stored.model_validate_json(read_regular(path, most=limits.METADATA))
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        log.warning("%s: no confidence, because its numbers cannot be read (%s)", model, _first_line(error))
        return None
    return stored.confidence if has_identity(model / "model.safetensors", stored.model) else None


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
