"""Score translations with sacrebleu, in whole and by length of the source.

All functions take raw sentences and leave the computation to sacrebleu, so a score is comparable with any other that
has the same signature. BLEU and chrF are between 0 and 100, and higher is better. TER starts at 0, may exceed 100, and
lower is better.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from typing import Any, Literal

from mtcli.errors import DataError, UsageError
from mtcli.runtime.wording import counted
from mtcli.text.writing_systems import unspaced

Metric = Literal["bleu", "chrf", "ter"]
Texts = Sequence[str]

RESAMPLES = 1000
"""Resamples of confidence intervals and of the paired bootstrap: sacrebleu's default."""

LENGTH_EDGES = {"words": (5, 10, 20, 30, 50), "characters": (10, 20, 40, 60, 100)}
"""The longest source of each bucket of `by_source_length` except the last, by unit."""


@dataclass(frozen=True)
class Score:
    """The score of a whole test set in one metric."""

    name: str
    value: float
    signature: str
    """sacrebleu's signature, which names all settings."""
    confidence: tuple[float, float] | None
    """Mean and half width of the 95% interval by bootstrap resampling."""
    json: str = field(repr=False, compare=False)
    """What `sacrebleu --format json` prints."""

    def __str__(self) -> str:
        return f"{self.name} = {formatted(self.value, self.confidence)}"


@dataclass(frozen=True)
class LengthBucket:
    """BLEU of the sentences whose source has a length within a range."""

    label: str
    """The range: `0–5`, `6–10`, …, `>50`."""
    unit: str
    """`words`, or `characters` if the sources are written without spaces."""
    sentences: int
    """Number of sentences."""
    score: Score


def score(
    hypotheses: Texts,
    references: Sequence[Texts],
    *,
    metrics: Sequence[Metric] = ("bleu",),
    lowercase: bool = False,
    tokenize: str | None = None,
    confidence: bool = False,
) -> list[Score]:
    """Score translations against one or more reference sets.

    Args:
        hypotheses: The translations.
        references: Reference sets, each with one reference for each translation.
        metrics: The metrics.
        lowercase: Ignore case in BLEU and chrF. TER ignores it by definition.
        tokenize: sacrebleu's tokenizer for BLEU; None: 13a. Callers choose it by language, see
            `config.scores`.
        confidence: Also compute confidence intervals.

    Returns:
        A score for each metric, in sacrebleu's order.

    Raises:
        DataError: There is nothing to score, or a reference set has another length.
        UsageError: The tokenizer is unknown or cannot be used here.
    """
    check_lengths(hypotheses, references, {})
    scores = []
    for metric in sacrebleu_metrics(metrics, lowercase, tokenize):
        try:
            result = metric.corpus_score(hypotheses, references, n_bootstrap=RESAMPLES if confidence else 1)
        except TypeError:  # sacrebleu 2.6 cannot take the mean of chrF if some resamples score 0
            result = metric.corpus_score(hypotheses, references)
        signature = metric.get_signature().format()
        interval = None
        if result._mean > 0:  # sacrebleu prints no interval around 0
            interval = (float(result._mean), float(result._ci))
        scores.append(
            Score(
                name=result.name,
                value=float(result.score),
                signature=signature,
                confidence=interval,
                json=result.format(width=1, signature=signature, is_json=True),
            )
        )
    return scores


def check_tokenizer(name: str) -> None:
    """Check that BLEU can be computed with this tokenizer.

    Raises:
        UsageError: It is unknown or cannot be used here.
    """
    sacrebleu_metrics(("bleu",), False, name)


def looks_tokenised(sentences: Sequence[str]) -> bool:
    """Return True if more than a tenth of the sentences end with a space and a full stop, which is rare in raw text."""
    num_tokenised = sum(sentence.endswith((" .", " 。")) for sentence in sentences)
    return 10 * num_tokenised > len(sentences)


def to_text(scores: Sequence[Score]) -> str:
    """Two lines for each metric: the score, as in `BLEU = 36.9`, and its signature."""
    return "\n".join(f"{one}\n{one.signature}" for one in scores)


def to_json(scores: Sequence[Score], more: Sequence[dict[str, Any]] = ()) -> str:
    """Return the output of `sacrebleu --format json`: an object for one metric, a list for several.

    Args:
        scores: The scores.
        more: Other objects, added to the list.
    """
    objects = [one.json for one in scores] + [json.dumps(one, indent=1) for one in more]
    text = ",\n".join(objects)
    return text if len(objects) == 1 else f"[\n{text}\n]"


def by_source_length(
    sources: Texts,
    hypotheses: Texts,
    references: Sequence[Texts],
    *,
    lowercase: bool = False,
    tokenize: str | None = None,
) -> list[LengthBucket]:
    """BLEU by length of the source, without empty buckets.

    The length is the number of words between spaces, or of characters if the sources are written without spaces.

    Raises:
        DataError: There is nothing to score, or the texts have different lengths.
        UsageError: The tokenizer is unknown or cannot be used here.
    """
    check_lengths(hypotheses, references, {"the source": sources})
    if unspaced(sources):
        unit = "characters"
        lengths = [len("".join(source.split())) for source in sources]
    else:
        unit = "words"
        lengths = [len(source.split()) for source in sources]
    buckets = []
    for low, high in pairwise([-1, *LENGTH_EDGES[unit], inf]):
        rows = [i for i, length in enumerate(lengths) if low < length <= high]
        if not rows:
            continue
        hypotheses_of_bucket = [hypotheses[i] for i in rows]
        references_of_bucket = [[one[i] for i in rows] for one in references]
        (bleu,) = score(hypotheses_of_bucket, references_of_bucket, lowercase=lowercase, tokenize=tokenize)
        label = f">{low}" if high == inf else f"{low + 1}–{high}"
        buckets.append(LengthBucket(label, unit, len(rows), bleu))
    return buckets


def lengths_to_text(systems: Sequence[Sequence[LengthBucket]]) -> str:
    """Return a line for each length: BLEU of one system, or of A and of B."""
    suffixes = ("",) if len(systems) == 1 else (" in A", " in B")
    lines = ["BLEU by length of the source"]
    for buckets in zip(*systems, strict=True):
        pairs = zip(buckets, suffixes, strict=True)
        values = ", ".join(f"{bucket.score.value:.1f}{suffix}" for bucket, suffix in pairs)
        first = buckets[0]
        lines.append(f"{first.label} {first.unit}: {values}, {first.sentences} sources")
    return "\n".join(lines)


def formatted(value: float, interval: tuple[float, float] | None) -> str:
    """Return a score as text: `36.9`, or `36.9 (μ = 36.8 ± 1.2)` with the mean and half width of an interval."""
    if interval is None:
        return f"{value:.1f}"
    mean, half_width = interval
    return f"{value:.1f} (μ = {mean:.1f} ± {half_width:.1f})"


def check_lengths(hypotheses: Texts, references: Sequence[Texts], others: dict[str, Texts | None]) -> None:
    """Check that there are translations and references, and that all texts have equally many lines.

    Args:
        hypotheses: The translations.
        references: Reference sets.
        others: Other texts, by their name in messages.
    """
    if not hypotheses:
        raise DataError("nothing to score: there are no translations; give a test set that is not empty")
    if not references:
        raise DataError("nothing to score against: there is no reference; give at least one reference file")
    texts = {f"reference {i}": one for i, one in enumerate(references, start=1)} | others
    for name, text in texts.items():
        if text is not None and len(text) != len(hypotheses):
            counts = f"{counted(len(hypotheses), 'translation')} but {counted(len(text), 'line')} in {name}"
            raise DataError(f"{counts}: every text must have the same lines in the same order")


def sacrebleu_metrics(names: Sequence[Metric], lowercase: bool, tokenize: str | None) -> list[Any]:
    """Return the metric objects of sacrebleu, without repetitions, in the order of sacrebleu's own output."""
    from sacrebleu.metrics import BLEU, METRICS  # imported here because it takes time

    if tokenize is not None and tokenize not in BLEU.TOKENIZERS:
        raise UsageError(f"unknown tokenizer {tokenize!r}; choose from {', '.join(sorted(BLEU.TOKENIZERS))}")
    options: dict[str, dict[str, Any]] = {"bleu": {"lowercase": lowercase, "tokenize": tokenize, "force": True}}
    options |= {"chrf": {"lowercase": lowercase}, "ter": {}}
    try:
        return [METRICS[name.upper()](**options[name]) for name in sorted(set(names))]
    except (ImportError, RuntimeError, OSError) as error:  # a tokenizer's package or download is missing
        raise UsageError(f"tokenizer {tokenize!r} cannot be used: {' '.join(str(error).split())}") from error
