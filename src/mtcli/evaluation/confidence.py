"""Fit the confidence of a model (`translate.confidence`) to sentence pairs that it was not trained on.

The chrF of their translations is known. A least-squares fit weights what the search knows of each translation, and
isotonic regression maps the weighted sums to chrF. Held-out pairs are all proper sentences, so lines that are none are
made from some of them. They extend the map to lower confidence than any pair has, and change nothing above that.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mtcli.corpus.readers.pairs import read_pairs
from mtcli.errors import DataError, UsageError
from mtcli.evaluation.metrics import sacrebleu_metrics
from mtcli.runtime.progress import Progress
from mtcli.runtime.wording import counted
from mtcli.text.letter_case import has_case, upper
from mtcli.text.lines import Pair
from mtcli.translate.confidence import (
    MOST_DEVIATIONS,
    Confidence,
    Features,
    Reliability,
    features,
    read_confidence,
    store_confidence,
)
from mtcli.translate.loading import load
from mtcli.translate.translation import Options
from mtcli.translate.translator import Translator
from mtcli.translate.windows import Reading

Floats = NDArray[np.float64]

MIN_PAIRS = 100
"""Pairs without which nothing is fitted."""

MAX_PAIRS = 1000
"""Pairs that are translated, at most."""

NOISY_LINES = 50
"""Lines of each kind of noise, at most. The search of one takes five times as long as that of a sentence."""

NOISE_WEIGHT = 0.1
"""Weight of a noisy line in the least-squares fit; that of a pair is 1."""

RIDGE = 0.01
"""Penalty of the squared weights, as a share of the number of pairs."""

POINTS = 20
"""Groups of pairs with similar weighted sums whose means are the points of the map."""

NOISE_POINTS = 4
"""Groups of noisy lines."""

FOLDS = 5
"""Parts of the pairs. The confidence of one part by a fit to the others shows how reliable it is."""

TENTHS = 10

FIRST_LINES = 32
"""Lines of the first part that is translated, which measures the speed. Each further part is twice as large."""

MAX_SLOWDOWN = 3
"""A part takes at most this many times as long as the one before it, which is half as large."""

SEED = 1


class TooFewError(Exception):
    """Too few pairs were translated in the time."""


@dataclass(frozen=True)
class ScoredLine:
    """A translation with a reference."""

    values: Features
    chrf: float
    """chrF of the translation as a sentence."""
    is_noisy: bool = False
    """Its source is no sentence."""


def num_calibration_lines(num_pairs: int) -> int:
    """Return how many lines a calibration on some pairs translates at most; 0 if they are too few."""
    if num_pairs < MIN_PAIRS:
        return 0
    return min(num_pairs, MAX_PAIRS) + 3 * min(num_pairs, NOISY_LINES)


def noisy_pairs(
    pairs: Sequence[Pair], languages: tuple[str, str], tags: Sequence[str] = (), number: int = NOISY_LINES
) -> dict[str, list[Pair]]:
    """Return pairs whose sources are random `letters`, shuffled `characters`, or `capitals`, by these names.

    References stay, but those of capitals are in capitals too.

    Args:
        pairs: Sentence pairs.
        languages: Source and target.
        tags: The target languages of a multilingual model. The tag of one at the start of a source stays there.
        number: Pairs that are made into noise, the first ones.
    """
    random = Random(SEED)
    letters = sorted({character for src, _ in pairs for character in src if character.isalpha()}) or [""]
    src_language, tgt_language = languages
    noisy: dict[str, list[Pair]] = {"letters": [], "characters": [], "capitals": []}
    for source, target in pairs[:number]:
        tag, text = _split_tag(source, tags)
        characters = list(text)
        random.shuffle(characters)
        replaced = "".join(random.choice(letters) if each.isalpha() else each for each in text)
        noisy["letters"].append((tag + replaced, target))
        noisy["characters"].append((tag + "".join(characters), target))
        if has_case(text):
            noisy["capitals"].append((tag + upper(text, src_language), upper(target, tgt_language)))
    return noisy


def _split_tag(source: str, tags: Sequence[str]) -> tuple[str, str]:
    """Return the tag that a source begins with, if it is one of `tags`, and the rest."""
    before, end, rest = source.partition("<<")
    if end and before.strip().removeprefix(">>") in tags:
        return before + end, rest
    return "", source


def _examples_of(
    translator: Translator,
    options: Options,
    pairs: Sequence[Pair],
    seconds_left: Callable[[], float],
    *,
    is_noisy: Sequence[bool] = (),
) -> list[ScoredLine]:
    """Translate the sources of pairs, and return what the search knows of the translations, with their chrF.

    Args:
        translator: The model.
        options: Options of the search.
        pairs: Sentence pairs, in an order in which the first ones are a sample of all.
        seconds_left: Returns the seconds that remain. Those pairs are taken for which they are enough.
        is_noisy: For each pair, see `ScoredLine`; empty: none is.
    """
    options = replace(options, scores=True, repair=True)
    progress = Progress("calibrating", total=len(pairs), unit="lines")
    (metric,) = sacrebleu_metrics(("chrf",), False, None)
    noise = is_noisy or [False] * len(pairs)
    examples: list[ScoredLine] = []
    first = 0
    size = FIRST_LINES
    seconds = 0.0
    with progress:
        while first < len(pairs) and MAX_SLOWDOWN * seconds < seconds_left():
            started_at = time.monotonic()
            part = pairs[first : first + size]
            sources = [source for source, _ in part]
            ids = translator.tokenizer.encode_src(sources)
            found = translator.translate(sources, options, Reading(warn=False, bar=progress))
            for number, (translation, row) in enumerate(zip(found, ids, strict=True), first):
                best = translation.candidates[0]
                if row and np.isfinite(best.log_prob):
                    values = features(best.log_prob, len(best.ids), len(row))
                    chrf = _chrf(metric, best.text, pairs[number][1])
                    examples.append(ScoredLine(values, chrf, noise[number]))
            seconds = time.monotonic() - started_at
            first += len(part)
            size *= 2
    return examples


def _chrf(metric: Any, translation: str, reference: str) -> float:
    return float(metric.sentence_score(translation, [reference]).score)


def calibrate(
    translator: Translator,
    options: Options,
    pairs: Sequence[Pair],
    languages: tuple[str, str],
    seconds_left: Callable[[], float],
) -> Confidence:
    """Fit the confidence of a model to pairs that it was not trained on.

    Args:
        translator: The model.
        options: The options of the search that translations will usually have.
        pairs: Sentence pairs, at least `MIN_PAIRS`, of which a random sample is taken.
        languages: Source and target.
        seconds_left: Returns the seconds that remain for this.

    Raises:
        TooFewError: They were enough for fewer than `MIN_PAIRS` pairs.
    """
    random = Random(SEED)
    sample = random.sample(pairs, min(len(pairs), MAX_PAIRS))
    lines = [(pair, False) for pair in sample]
    noisy = noisy_pairs(sample, languages, sorted(translator.tokenizer.tags))
    lines += [(pair, True) for kind in noisy.values() for pair in kind]
    random.shuffle(lines)
    is_noisy = [is_noise for _, is_noise in lines]
    examples = _examples_of(translator, options, [pair for pair, _ in lines], seconds_left, is_noisy=is_noisy)
    if sum(not example.is_noisy for example in examples) < MIN_PAIRS:
        raise TooFewError
    return fit(examples, options.beam_size)


def fit(examples: Sequence[ScoredLine], beam_size: int) -> Confidence:
    """Fit a confidence to translations with references, and measure how reliable it is on translations it did not see.

    Args:
        examples: The translations; `FOLDS` or more are of proper sentences.
        beam_size: Of the search that found them.
    """
    usual = [example for example in examples if not example.is_noisy]
    noisy = [example for example in examples if example.is_noisy]
    unseen: list[tuple[float, float]] = []
    for fold in range(FOLDS):
        others = [example for number, example in enumerate(usual) if number % FOLDS != fold]
        fitted = _fit_once([*others, *noisy], beam_size)
        unseen += [
            (fitted.chrf_at(fitted.weighted_sum(example.values)), example.chrf) for example in usual[fold::FOLDS]
        ]
    return _fit_once(examples, beam_size).model_copy(update={"tenths": tuple(reliability(unseen))})


def reliability(rated: Sequence[tuple[float, float]]) -> list[Reliability]:
    """Return the means of tenths of some translations by confidence, the lowest first.

    Args:
        rated: The confidence and the chrF of each translation.
    """
    ordered = np.array(sorted(rated), dtype=np.float64).reshape(-1, 2)
    means = [part.mean(axis=0) for part in np.array_split(ordered, TENTHS) if len(part)]
    return [Reliability(confidence=round(float(mean), 2), chrf=round(float(chrf), 2)) for mean, chrf in means]


def _fit_once(examples: Sequence[ScoredLine], beam_size: int) -> Confidence:
    """Fit a confidence."""
    values = np.array([example.values for example in examples])
    chrf = np.array([example.chrf for example in examples])
    noisy = np.array([example.is_noisy for example in examples])
    means = values[~noisy].mean(axis=0)
    deviations = np.maximum(values[~noisy].std(axis=0), 1e-6)
    weights = _least_squares(values, chrf, noisy, means, deviations)
    fitted = Confidence(
        pairs=int((~noisy).sum()),
        noisy=int(noisy.sum()),
        beam_size=beam_size,
        means=tuple(means.tolist()),
        deviations=tuple(deviations.tolist()),
        weights=tuple(weights.tolist()),
        points=((0.0, 0.0),),
    )
    sums = np.array([fitted.weighted_sum(example.values) for example in examples])
    return fitted.model_copy(update={"points": tuple(_points(sums, chrf, noisy))})


def _least_squares(values: Floats, chrf: Floats, noisy: NDArray[np.bool_], means: Floats, deviations: Floats) -> Floats:
    """Return the weight of each standardized feature in a ridge regression of chrF."""
    standardized = np.clip((values - means) / deviations, -MOST_DEVIATIONS, MOST_DEVIATIONS)
    columns = np.column_stack([np.ones(len(values)), standardized])
    weighted = columns * np.where(noisy, NOISE_WEIGHT, 1.0)[:, None]
    penalty = RIDGE * float((~noisy).sum()) * np.eye(columns.shape[1])
    penalty[0, 0] = 0.0
    solution = np.linalg.solve(weighted.T @ columns + penalty, weighted.T @ chrf)
    return np.asarray(solution[1:], dtype=np.float64)


def _points(sums: Floats, chrf: Floats, noisy: NDArray[np.bool_]) -> list[tuple[float, float]]:
    """Return the points of the map from weighted sums to chrF, which rise in both."""
    lower = noisy & (sums < sums[~noisy].min())
    groups = [*_groups(sums[lower], chrf[lower], NOISE_POINTS), *_groups(sums[~noisy], chrf[~noisy], POINTS)]
    merged: list[tuple[float, float, int]] = []
    for group in groups:
        merged.append(group)
        while len(merged) > 1 and (merged[-2][0] >= merged[-1][0] or merged[-2][1] >= merged[-1][1]):
            second = merged.pop()
            first = merged.pop()
            merged.append(_together(first, second))
    return [(mean, value) for mean, value, _ in merged]


def _groups(sums: Floats, chrf: Floats, number: int) -> Iterator[tuple[float, float, int]]:
    """Yield the mean sum, the mean chrF and the size of equally large groups, in the order of their sums."""
    order = np.argsort(sums, kind="stable")
    for part in np.array_split(order, number):
        if len(part):
            yield float(sums[part].mean()), min(100.0, float(chrf[part].mean())), len(part)


def _together(first: tuple[float, float, int], second: tuple[float, float, int]) -> tuple[float, float, int]:
    """Return the means and the size of two groups together."""
    size = first[2] + second[2]
    mean, value = ((a * first[2] + b * second[2]) / size for a, b in zip(first[:2], second[:2], strict=True))
    return mean, value, size


def update_confidence(
    run: Path,
    pairs: Sequence[Pair],
    device: str = "auto",
    seconds_left: Callable[[], float] = lambda: float("inf"),
) -> Confidence | None:
    """Calibrate the model of a run or an import, and store the result in its folder, unless that has been done.

    Args:
        run: The folder.
        pairs: Sentence pairs that the model was not trained on.
        device: See `loading.load`. The engine of a run translates if it is usable.
        seconds_left: Returns the seconds that remain for this.

    Returns:
        The confidence; None: there are fewer than `MIN_PAIRS` pairs.

    Raises:
        TooFewError: See `calibrate`.
        ModelError: The folder has no usable model.
        StorageError: The file cannot be written.
    """
    if len(pairs) < MIN_PAIRS:
        return None
    known = read_confidence(run)
    if known is not None:
        return known
    translator, options, languages = load([run], device, "auto")
    confidence = calibrate(translator, options, pairs, languages, seconds_left)
    store_confidence(run, confidence)
    return confidence


def calibrate_import(model: Path, spec: str, src: str, tgt: str, tags: Sequence[str] = ()) -> Confidence:
    """Calibrate an imported model on pairs that the user names.

    Args:
        model: The folder of the model.
        spec: The pairs, in any form that `--train` takes.
        src: Source language.
        tgt: Target language.
        tags: The target languages of a multilingual model.

    Raises:
        UsageError: The model is multilingual, and a source does not begin with the tag of a language.
        DataError: The pairs cannot be read, or are too few.
        ModelError: The folder has no usable model.
        StorageError: The result cannot be written.
    """
    pairs = list(read_pairs(spec, src, tgt))
    if len(pairs) < MIN_PAIRS:
        raise DataError(f"{spec}: {counted(len(pairs), 'pair')}; give --calibrate {MIN_PAIRS} or more, better 1,000")
    without_tag = [source for source, _ in pairs if tags and not _split_tag(source, tags)[0]]
    if without_tag:
        raise UsageError(
            f"--calibrate {spec}: this model has several target languages, and {without_tag[0][:40]!r} does not begin "
            f"with the tag of one, such as >>{tags[0]}<<"
        )
    try:
        confidence = update_confidence(model, pairs)
    except TooFewError:
        raise DataError(f"{spec}: too few sentences that the model translates; give other pairs") from None
    assert confidence is not None
    return confidence
