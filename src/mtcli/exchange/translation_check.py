"""Compare the translations of an exported model with those of the original."""

from collections.abc import Sequence
from dataclasses import dataclass

from mtcli.runtime.wording import counted
from mtcli.search.length import penalty_formula
from mtcli.translate.translation import Options
from mtcli.translate.translator import Translator

MAX_DIFFERENCES = 20
"""Differences that `parity.json` lists."""


@dataclass(frozen=True)
class Difference:
    """A sentence that the two models translate differently, and the score that each gives its own translation."""

    source: str
    ours: str
    exported: str
    our_score: float
    exported_score: float


@dataclass(frozen=True)
class Parity:
    """How far an exported model and the original agree on the same sentences: the content of `parity.json`."""

    sentences: int
    """Sentences compared."""
    equal: int
    """Sentences with the same translation."""
    beam_size: int
    length_penalty: float
    max_score_difference: float
    """The largest difference of the scores of equal translations."""
    differences: tuple[Difference, ...]
    """The first `MAX_DIFFERENCES`."""
    score: str
    """The definition of the scores."""

    def __str__(self) -> str:
        """Return a summary on one line."""
        search = f"beam {self.beam_size}" if self.beam_size > 1 else "greedy"
        return (
            f"checked on {counted(self.sentences, 'sentence')}: "
            f"{self.equal} of {self.sentences} translations equal those of the run ({search}); "
            f"their scores differ by at most {self.max_score_difference:.1e}"
        )


def compare(
    ours: Translator, exported: Translator, sources: Sequence[str], options: Options, *, quiet: bool = False
) -> Parity:
    """Translate the same sentences with both models, and compare their best translations.

    Args:
        ours: The original model.
        exported: The exported model.
        sources: The sentences.
        options: Options of the search.
        quiet: Show no progress bar.
    """
    num = len(sources)
    our_translations = list(ours.translate(sources, options, total=num, warn=False, quiet=quiet))
    exported_translations = list(exported.translate(sources, options, total=num, warn=False, quiet=quiet))
    differences = []
    max_score_difference = 0.0
    for our_translation, exported_translation in zip(our_translations, exported_translations, strict=True):
        a = our_translation.candidates[0]
        b = exported_translation.candidates[0]
        if a.text == b.text:
            max_score_difference = max(max_score_difference, abs(a.score - b.score))
        else:
            differences.append(Difference(our_translation.source, a.text, b.text, a.score, b.score))
    penalty = penalty_formula(options.length_penalty, options.length_normalization)
    return Parity(
        sentences=len(sources),
        equal=len(sources) - len(differences),
        beam_size=options.beam_size,
        length_penalty=options.length_penalty,
        max_score_difference=max_score_difference,
        differences=tuple(differences[:MAX_DIFFERENCES]),
        score=f"log P(y | x) / {penalty}, n tokens with </s>; greedy: log P(y | x)",
    )
