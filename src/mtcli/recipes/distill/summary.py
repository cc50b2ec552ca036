"""The end of `mtcli distill`: the quality, the speed on one core and the size of the student and its teachers."""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

from mtcli.config.scores import bleu_tokenizer
from mtcli.evaluation import metrics
from mtcli.recipes.distill.stages import Distillation, System
from mtcli.report.plan import size
from mtcli.report.run_record import RecipeRecord
from mtcli.runtime.wording import aligned, counted
from mtcli.text.lines import Pair
from mtcli.translate.backends.exported import model_weights
from mtcli.translate.loading import load_ensemble
from mtcli.translate.translation import Options
from mtcli.translate.translator import Translator

WARM_UP_LINES = 50
"""Lines that are translated before the time is taken."""


@dataclass(frozen=True)
class Result:
    """The figures of one system."""

    name: str
    beam_size: int
    bleu: float
    chrf: float
    lines_per_second: float
    """Lines per second of CPU time."""
    bytes: int
    """Size of the weights."""


@dataclass(frozen=True)
class Comparison:
    """The figures of several systems on the same pairs, the student's last."""

    pairs: int
    signature: str
    """sacrebleu's signature of BLEU."""
    results: tuple[Result, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as JSON types."""
        return asdict(self)

    @classmethod
    def of(cls, found: dict[str, Any]) -> Self:
        """Return the comparison that `to_dict` described."""
        results = tuple(Result(**result) for result in found["results"])
        return cls(found["pairs"], found["signature"], results)

    def table(self) -> list[tuple[str, ...]]:
        """Return a row of headings, and a row for each system."""
        rows: list[tuple[str, ...]] = [("", "BLEU", "chrF", "beam", "lines/s on one core", "weights")]
        for result in self.results:
            scores = (f"{result.bleu:.1f}", f"{result.chrf:.1f}")
            speed = f"{result.lines_per_second:,.0f}"
            rows.append((result.name, *scores, f"{result.beam_size}", speed, size(result.bytes)))
        return rows

    def __str__(self) -> str:
        lines = aligned(self.table(), numeric=True)
        return "\n".join([f"{counted(self.pairs, 'test pair')}, {self.signature}", *lines, self.summary()])

    def summary(self) -> str:
        """Compare the student with the first system."""
        teacher, *_, student = self.results
        share = f"{100 * student.bleu / teacher.bleu:.1f}% of" if teacher.bleu else "no share of"
        times = student.lines_per_second / teacher.lines_per_second
        return f"the student has {share} the BLEU of {teacher.name}, at {times:.1f} times its speed"


def compare(systems: Sequence[System], pairs: Sequence[Pair], tokenize: str | None = None) -> Comparison:
    """Translate the sources of some pairs with each system, score the translations, and measure the speed.

    The speed is in lines per second of CPU time, so that it is that of one core on any number of cores, and other work
    on the machine matters little.

    Args:
        systems: The systems.
        pairs: Test pairs.
        tokenize: sacrebleu's tokenizer for BLEU; None: that of the target language.

    Raises:
        ModelError: A system has no usable model.
        UsageError: Models that cannot be combined.
    """
    sources = [src for src, _ in pairs]
    references = [tgt for _, tgt in pairs]
    results = []
    signature = ""
    for system in systems:
        translator, options, (_, tgt) = load_ensemble(system.models, "cpu")
        translations, seconds = _timed(translator, options, sources)
        tokenizer = tokenize or bleu_tokenizer(tgt)
        bleu, chrf = metrics.score(translations, [references], metrics=("bleu", "chrf"), tokenize=tokenizer)
        signature = bleu.signature
        bytes_ = sum(model_weights(model).stat().st_size for model in system.models)
        speed = len(sources) / max(seconds, 1e-9)
        results.append(Result(system.name, options.beam_size, bleu.value, chrf.value, speed, bytes_))
    return Comparison(len(pairs), signature, tuple(results))


def _timed(translator: Translator, options: Options, sources: Sequence[str]) -> tuple[list[str], float]:
    """Return the translations of some sources, and the CPU seconds that they took."""
    list(translator.translate(sources[:WARM_UP_LINES], options, warn=False, quiet=True))
    started = time.process_time()
    found = list(translator.translate(sources, options, total=len(sources), warn=False))
    seconds = time.process_time() - started
    return [translation.text for translation in found], seconds


def recipe_record(distillation: Distillation, comparison: Comparison) -> RecipeRecord:
    """Return how the student was made, for its model card."""
    teachers = " and ".join(f"`{teacher}`" for teacher in distillation.request.teachers)
    pairs = counted(comparison.pairs, "test pair")
    description = (
        f"`mtcli distill` trained this student on translations by {teachers}. The corpora of its training are listed "
        f"under Data. On {pairs} ({comparison.signature}), {comparison.summary()}."
    )
    shown = [str(stage) for stage in distillation.stages()]
    return RecipeRecord(distillation.folder.resolve().name, description, comparison.table(), shown)
