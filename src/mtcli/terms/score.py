"""How many of the terms in the sources a system's translations use."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mtcli.terms.terms import Terms, uses


@dataclass(frozen=True)
class TermsScore:
    """The terms of one system's translations."""

    used: int
    """Terms that the translation of their line has, as whole words and in one of their forms."""
    matched: int
    """Terms in the sources."""

    @classmethod
    def of(cls, terms: Terms, sources: Sequence[str], translations: Sequence[str]) -> "TermsScore":
        """Count the terms of translations."""
        found = [
            use
            for source, translation in zip(sources, translations, strict=True)
            for use in uses(terms.matches(source), translation)
        ]
        return cls(sum(use.form is not None for use in found), len(found))

    @property
    def percentage(self) -> float | None:
        """The share of the terms that are used, in percent; None if there are none."""
        return 100 * self.used / self.matched if self.matched else None

    def __str__(self) -> str:
        """Return the score as in `terms = 98.5 (197 of 200)`."""
        if self.percentage is None:
            return "terms: none in the sources"
        return f"terms = {self.percentage:.1f} ({self.used:,} of {self.matched:,})"

    def to_dict(self) -> dict[str, Any]:
        """Return the score as an object for JSON, with the keys of sacrebleu's and the counts."""
        score = None if self.percentage is None else round(self.percentage, 1)
        return {"name": "terms", "score": score, "used": self.used, "matched": self.matched}
