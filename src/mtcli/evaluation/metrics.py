"""How good translations are: sacrebleu's scores with their signatures, comparison, and BLEU by length.

Everything here takes lists of raw sentences and leaves every number to sacrebleu, so that a score can be
compared with any paper that names the same signature. BLEU and chrF run from 0 to 100 and higher is better;
TER starts at 0, may pass 100, and lower is better.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from math import inf
from typing import Any, Literal

from mtcli.config.writing_systems import unspaced
from mtcli.errors import DataError, UsageError

Metric = Literal["bleu", "chrf", "ter"]
Texts = Sequence[str]
RESAMPLES = 1000  # sacrebleu's own number for confidence intervals and the paired bootstrap
LENGTH_EDGES = {"words": (5, 10, 20, 30, 50), "characters": (10, 20, 40, 60, 100)}
"""Lengths of the source for by_source_length; characters where it is written without spaces."""


@dataclass(frozen=True)
class Score:
    """One metric over a whole test set; `confidence` is the bootstrap's (mean, half of the 95% interval)."""

    name: str
    value: float
    signature: str
    verbose: str
    nrefs: int
    confidence: tuple[float, float] | None
    json: str = field(repr=False, compare=False)  # as `sacrebleu --format json` prints it

    def __str__(self) -> str:
        return f"{self.name} = {_number(self.value, self.confidence)}"


@dataclass(frozen=True)
class Estimate:
    """One system's score in a paired bootstrap; the fields are those of sacrebleu's JSON."""

    score: float
    p_value: float | None  # of the difference from system A; None for A itself
    mean: float
    ci: float


@dataclass(frozen=True)
class Difference:
    """System B against system A in one metric."""

    name: str
    signature: str
    a: Estimate
    b: Estimate

    def __str__(self) -> str:
        a, b = (_number(s.score, (s.mean, s.ci)) for s in (self.a, self.b))
        return f"{self.name} = {a} in A, {b} in B: {self.b.score - self.a.score:+.1f}, p = {self.b.p_value:.3f}"


@dataclass(frozen=True)
class Change:
    """One sentence that two systems translate differently, with the chrF of each translation."""

    line: int  # counted from 1
    source: str | None
    references: tuple[str, ...]
    a: str
    b: str
    chrf_a: float
    chrf_b: float

    def __str__(self) -> str:
        rows = [("source", self.source), *(("reference", r) for r in self.references)]
        rows += [("A", self.a), ("B", self.b)]
        head = f"line {self.line}: {self.chrf_a:.1f} → {self.chrf_b:.1f} ({self.chrf_b - self.chrf_a:+.1f})"
        return "\n".join([head, *(f"  {name:<9}  {text}" for name, text in rows if text is not None)])


@dataclass(frozen=True)
class Comparison:
    """Two systems on one test set: the scores, how many sentences moved, and those that moved most."""

    differences: tuple[Difference, ...]
    better: int  # sentences whose chrF is higher in B than in A
    worse: int
    same: int
    changes: tuple[Change, ...]

    def to_text(self) -> str:
        """A line and a signature for each metric, then the sentences that changed most."""
        lines = [line for d in self.differences for line in (str(d), d.signature)]
        lines.append(f"Sentences: {self.better} better in B by chrF, {self.worse} worse, {self.same} the same")
        return "\n".join(lines + [str(change) for change in self.changes])

    def to_json(self) -> str:
        """The fields of this class and of those it holds, as one object."""
        return json.dumps(asdict(self), indent=1, ensure_ascii=False)


@dataclass(frozen=True)
class LengthBucket:
    """BLEU over the sentences whose source is of one length: `0–5`, `6–10`, … `>50`."""

    label: str
    unit: str
    """`words`, or `characters` where the sources are written without spaces."""
    sentences: int
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
    """Score translations against one or more reference sets, each metric once and in sacrebleu's order.

    `lowercase` is for BLEU and chrF (TER ignores case by definition), `tokenize` for BLEU alone (None: 13a).

    Raises:
        DataError: there is nothing to score, or a reference set is of another length.
        UsageError: an unknown tokenizer, or one that cannot be used here.
    """
    _check_lengths(hypotheses, references, {})
    scores = []
    for metric in _metrics(metrics, lowercase, tokenize):
        try:
            result = metric.corpus_score(hypotheses, references, n_bootstrap=RESAMPLES if confidence else 1)
        except TypeError:  # sacrebleu 2.6 cannot take the mean of chrF where some resamples score 0: it has no interval
            result = metric.corpus_score(hypotheses, references)
        signature = metric.get_signature().format()
        mean, half = float(result._mean), float(result._ci)
        interval = (mean, half) if mean > 0 else None  # sacrebleu shows none around zero
        native = result.format(width=1, signature=signature, is_json=True)
        value, verbose = float(result.score), result._verbose
        scores.append(Score(result.name, value, signature, verbose, len(references), interval, native))
    return scores


def check_tokenizer(name: str) -> None:
    """See that BLEU can be computed with this tokenizer.

    Raises:
        UsageError: It is unknown, or cannot be used here.
    """
    _metrics(("bleu",), False, name)


def looks_tokenised(sentences: Sequence[str]) -> bool:
    """Return True if a tenth of them end with a full stop set apart, as raw text hardly ever does."""
    return 10 * sum(sentence.endswith((" .", " 。")) for sentence in sentences) > len(sentences)


def to_text(scores: Sequence[Score]) -> str:
    """A line for each metric, `BLEU = 36.9`, and its signature on the next."""
    return "\n".join(line for one in scores for line in (str(one), one.signature))


def to_json(scores: Sequence[Score]) -> str:
    """What `sacrebleu --format json` prints: an object for one metric, a list for several."""
    objects = ",\n".join(one.json for one in scores)
    return objects if len(scores) == 1 else f"[\n{objects}\n]"


def compare(
    hyp_a: Texts,
    hyp_b: Texts,
    references: Sequence[Texts],
    sources: Texts | None = None,
    *,
    metrics: Sequence[Metric] = ("bleu",),
    lowercase: bool = False,
    tokenize: str | None = None,
    top: int = 10,
) -> Comparison:
    """Compare system B with A by sacrebleu's paired bootstrap, and find the `top` changes in sentence chrF.

    Equal scores have p = 1: sacrebleu's own formula would call two identical systems significantly different.

    Raises:
        DataError: there is nothing to score, or the texts are not of one length.
        UsageError: an unknown tokenizer, or one that cannot be used here.
    """
    _check_lengths(hyp_a, references, {"system B": hyp_b, "the source": sources})
    from sacrebleu.significance import PairedTest

    tested = {type(metric).__name__: metric for metric in _metrics(metrics, lowercase, tokenize)}
    test = PairedTest([("A", hyp_a), ("B", hyp_b)], tested, references, test_type="bs", n_samples=RESAMPLES)
    signatures, results = test()
    differences = []
    for name, signature in signatures.items():
        a, b = (Estimate(float(r.score), r.p_value, float(r.mean), float(r.ci)) for r in results[name])
        b = replace(b, p_value=1.0) if a.score == b.score else b
        differences.append(Difference(name, signature.format(), a, b))

    (chrf,) = _metrics(("chrf",), lowercase, None)
    changes = []
    for i, (text_a, text_b) in enumerate(zip(hyp_a, hyp_b, strict=True)):
        if text_a != text_b:
            refs = tuple(one[i] for one in references)
            chrf_a, chrf_b = (float(chrf.sentence_score(text, refs).score) for text in (text_a, text_b))
            source = sources[i] if sources else None
            changes.append(Change(i + 1, source, refs, text_a, text_b, chrf_a, chrf_b))
    changes.sort(key=lambda change: -abs(change.chrf_b - change.chrf_a))
    better, worse = (sum(sign * (c.chrf_b - c.chrf_a) > 0 for c in changes) for sign in (1, -1))
    same = len(hyp_a) - better - worse
    return Comparison(tuple(differences), better, worse, same, tuple(changes[: min(top, better + worse)]))


def by_source_length(
    sources: Texts,
    hypotheses: Texts,
    references: Sequence[Texts],
    *,
    lowercase: bool = False,
    tokenize: str | None = None,
) -> list[LengthBucket]:
    """BLEU for short, middling and long sources; empty buckets are omitted.

    Length is counted in words between spaces, or in characters where the sources are written without spaces.

    Raises:
        DataError: there is nothing to score, or the texts are not of one length.
        UsageError: an unknown tokenizer, or one that cannot be used here.
    """
    _check_lengths(hypotheses, references, {"the source": sources})
    unit = "characters" if unspaced(sources) else "words"
    lengths = [len("".join(source.split()) if unit == "characters" else source.split()) for source in sources]
    buckets = []
    for low, high in pairwise([-1, *LENGTH_EDGES[unit], inf]):
        rows = [i for i, length in enumerate(lengths) if low < length <= high]
        if rows:
            chosen = [hypotheses[i] for i in rows], [[one[i] for i in rows] for one in references]
            (bleu,) = score(*chosen, lowercase=lowercase, tokenize=tokenize)
            label = f">{low}" if high == inf else f"{low + 1}–{high}"
            buckets.append(LengthBucket(label, unit, len(rows), bleu))
    return buckets


def lengths_to_text(systems: Sequence[Sequence[LengthBucket]]) -> str:
    """A line for each length: BLEU of the one system, or of A and of B."""
    lines = []
    for same in zip(*systems, strict=True):
        names = (f" in {name}" for name in "AB") if len(systems) > 1 else ("",)
        values = ", ".join(f"{b.score.value:.1f}{name}" for b, name in zip(same, names, strict=True))
        lines.append(f"{same[0].label} {same[0].unit}: {values}, {same[0].sentences} sources")
    return "\n".join(["BLEU by length of the source", *lines])


def _number(value: float, confidence: tuple[float, float] | None) -> str:
    return f"{value:.1f}" + (f" (μ = {confidence[0]:.1f} ± {confidence[1]:.1f})" if confidence else "")


def _check_lengths(hypotheses: Texts, references: Sequence[Texts], others: dict[str, Texts | None]) -> None:
    if not hypotheses:
        raise DataError("nothing to score: there are no translations; give a test set that is not empty")
    if not references:
        raise DataError("nothing to score against: there is no reference; give at least one reference file")
    texts = {f"reference {i}": one for i, one in enumerate(references, start=1)} | others
    for name, text in texts.items():
        if text is not None and len(text) != len(hypotheses):
            counts = f"{len(hypotheses)} translations but {len(text)} lines in {name}"
            raise DataError(f"{counts}: every text must have the same lines in the same order")


def _metrics(names: Sequence[Metric], lowercase: bool, tokenize: str | None) -> list[Any]:
    """The sacrebleu metric objects, each once, in the order of sacrebleu's own output."""
    from sacrebleu.metrics import BLEU, METRICS  # here, for the sake of start-up time

    if tokenize is not None and tokenize not in BLEU.TOKENIZERS:
        raise UsageError(f"unknown tokenizer {tokenize!r}; choose from {', '.join(sorted(BLEU.TOKENIZERS))}")
    options: dict[str, dict[str, Any]] = {"bleu": {"lowercase": lowercase, "tokenize": tokenize, "force": True}}
    options |= {"chrf": {"lowercase": lowercase}, "ter": {}}
    try:
        return [METRICS[name.upper()](**options[name]) for name in sorted(set(names))]
    except (ImportError, RuntimeError, OSError) as error:  # a tokenizer's package or download is missing
        raise UsageError(f"tokenizer {tokenize!r} cannot be used: {' '.join(str(error).split())}") from error
