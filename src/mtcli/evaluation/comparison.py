"""Compare two systems: sacrebleu's paired bootstrap, and the sentences that they translate differently."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from mtcli.evaluation.metrics import RESAMPLES, Metric, Texts, check_lengths, formatted, sacrebleu_metrics


@dataclass(frozen=True)
class Estimate:
    """The score of one system in a paired bootstrap. The fields are those of sacrebleu's JSON."""

    score: float
    p_value: float | None
    """p-value of the difference from system A; None for A itself."""
    mean: float
    ci: float
    """Half width of the 95% interval."""


@dataclass(frozen=True)
class Difference:
    """Systems A and B in one metric."""

    name: str
    signature: str
    a: Estimate
    b: Estimate

    def __str__(self) -> str:
        a = formatted(self.a.score, (self.a.mean, self.a.ci))
        b = formatted(self.b.score, (self.b.mean, self.b.ci))
        return f"{self.name} = {a} in A, {b} in B: {self.b.score - self.a.score:+.1f}, p = {self.b.p_value:.3f}"


@dataclass(frozen=True)
class Change:
    """A sentence that two systems translate differently, with the chrF of each translation."""

    line: int
    """From 1."""
    source: str | None
    references: tuple[str, ...]
    a: str
    b: str
    chrf_a: float
    chrf_b: float

    def __str__(self) -> str:
        texts = [("reference", reference) for reference in self.references]
        texts += [("A", self.a), ("B", self.b)]
        if self.source is not None:
            texts.insert(0, ("source", self.source))
        head = f"line {self.line}: {self.chrf_a:.1f} → {self.chrf_b:.1f} ({self.chrf_b - self.chrf_a:+.1f})"
        return "\n".join([head, *(f"  {name:<9}  {text}" for name, text in texts)])


@dataclass(frozen=True)
class Comparison:
    """Two systems on one test set."""

    differences: tuple[Difference, ...]
    """One for each metric."""
    better: int
    """Sentences whose chrF is higher in B than in A."""
    worse: int
    """Sentences whose chrF is lower in B than in A."""
    same: int
    changes: tuple[Change, ...]
    """The sentences whose chrF differs most, the largest difference first."""

    def to_text(self) -> str:
        """Return a line and a signature for each metric, then the sentences that differ most."""
        lines = []
        for difference in self.differences:
            lines += [str(difference), difference.signature]
        lines.append(f"Sentences: {self.better} better in B by chrF, {self.worse} worse, {self.same} the same")
        return "\n".join(lines + [str(change) for change in self.changes])

    def to_json(self, **more: Any) -> str:
        """Return all fields, nested as in this class, and those of `more` that are not empty."""
        given = {name: value for name, value in more.items() if value}
        return json.dumps(asdict(self) | given, indent=1, ensure_ascii=False)


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
    """Compare systems A and B by sacrebleu's paired bootstrap and by the chrF of each sentence.

    Args:
        hyp_a: The translations of system A.
        hyp_b: The translations of system B.
        references: Reference sets, each with one reference for each translation.
        sources: The sources, to show them with the changes.
        metrics: The metrics of the bootstrap.
        lowercase: Ignore case in BLEU and chrF.
        tokenize: sacrebleu's tokenizer for BLEU; None: 13a. Callers choose it by language, see
            `config.scores`.
        top: Maximum number of changes to return.

    Raises:
        DataError: There is nothing to score, or the texts have different lengths.
        UsageError: The tokenizer is unknown or cannot be used here.
    """
    check_lengths(hyp_a, references, {"system B": hyp_b, "the source": sources})
    differences = _paired_bootstrap(hyp_a, hyp_b, references, sacrebleu_metrics(metrics, lowercase, tokenize))
    changes = _changes(hyp_a, hyp_b, references, sources, lowercase)
    better = sum(change.chrf_b > change.chrf_a for change in changes)
    worse = sum(change.chrf_b < change.chrf_a for change in changes)
    same = len(hyp_a) - better - worse
    changes.sort(key=lambda change: -abs(change.chrf_b - change.chrf_a))
    shown = changes[: min(top, better + worse)]  # without those of equal chrF, which are last
    return Comparison(tuple(differences), better, worse, same, tuple(shown))


def _paired_bootstrap(
    hyp_a: Texts, hyp_b: Texts, references: Sequence[Texts], metrics: Sequence[Any]
) -> list[Difference]:
    from sacrebleu.significance import PairedTest

    by_name = {type(metric).__name__: metric for metric in metrics}
    test = PairedTest([("A", hyp_a), ("B", hyp_b)], by_name, references, test_type="bs", n_samples=RESAMPLES)
    signatures, results = test()
    differences = []
    for name, signature in signatures.items():
        a, b = (Estimate(float(r.score), r.p_value, float(r.mean), float(r.ci)) for r in results[name])
        if a.score == b.score:
            b = replace(b, p_value=1.0)  # sacrebleu's formula would call two identical systems significantly different
        differences.append(Difference(name, signature.format(), a, b))
    return differences


def _changes(
    hyp_a: Texts, hyp_b: Texts, references: Sequence[Texts], sources: Texts | None, lowercase: bool
) -> list[Change]:
    """Return the sentences that the systems translate differently, in order."""
    (chrf,) = sacrebleu_metrics(("chrf",), lowercase, None)
    changes = []
    for i, (text_a, text_b) in enumerate(zip(hyp_a, hyp_b, strict=True)):
        if text_a == text_b:
            continue
        references_of_sentence = tuple(one[i] for one in references)
        chrf_a = float(chrf.sentence_score(text_a, references_of_sentence).score)
        chrf_b = float(chrf.sentence_score(text_b, references_of_sentence).score)
        source = sources[i] if sources else None
        changes.append(Change(i + 1, source, references_of_sentence, text_a, text_b, chrf_a, chrf_b))
    return changes
