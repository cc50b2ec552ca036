"""Which terms were used where, and how many: reports and scores."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from mtcli.runtime.outputs import open_output
from mtcli.runtime.wording import counted
from mtcli.terms.terms import Terms, TermUse, uses

COLUMNS = ("line", "source", "target", "used", "source_start", "target_start")

ENDINGS = (".tsv", ".jsonl")
"""Endings of the name of a report: a table with a header line, or a JSON object on each line."""

MAX_NAMED = 5
"""Terms that the summary names, at most."""


class TermsReport:
    """Counts the terms that translations use, and writes a line about each."""

    def __init__(self, stream: TextIO | None = None, *, as_json: bool = False) -> None:
        """Start a report.

        Args:
            stream: Receives the lines; None: they are only counted.
            as_json: Write JSON objects, not a table.
        """
        self._stream = stream
        self._as_json = as_json
        self.lines = 0
        """Lines so far."""
        self.matched = 0
        """Places of the sources where a term was found."""
        self.used = 0
        """Those whose translation uses the term."""
        self._not_used: Counter[str] = Counter()  # by source term
        if stream is not None and not as_json:
            stream.write("\t".join(COLUMNS) + "\n")

    def add(self, uses_of_line: Iterable[TermUse]) -> None:
        """Report the terms of the next line."""
        self.lines += 1
        for use in uses_of_line:
            self._add(use)

    def add_sentence(self, source: str, target: str, terms: Terms) -> None:
        """Report the terms of the next sentence of a document.

        Args:
            source: The sentence without its tags.
            target: Its final translation, however often the sentence was translated until then.
            terms: The terms.
        """
        self.lines += 1
        for use in uses(terms.matches(source), target):
            self._add(use)

    def _add(self, use: TermUse) -> None:
        self.matched += 1
        if use.form is None:
            self._not_used[use.match.term.source] += 1
        else:
            self.used += 1
        if self._stream is None:
            return
        record = {"line": self.lines, **record_of(use)}
        line = json.dumps(record, ensure_ascii=False) if self._as_json else _row(record)
        self._stream.write(f"{line}\n")

    def summary(self) -> str:
        """Return one line: how many terms were used, and which were not, the most frequent first."""
        text = f"terms: {self.used:,} of {counted(self.matched, 'match', 'matches')} used"
        if not self._not_used:
            return text
        named = [f"{source} ({number:,})" for source, number in self._not_used.most_common(MAX_NAMED)]
        others = len(self._not_used) - len(named)
        more = f" and {counted(others, 'other term')}" if others else ""
        return f"{text}; not used: {', '.join(named)}{more}"


@contextmanager
def open_report(path: Path | None) -> Iterator[TermsReport]:
    """Open a report that appears under its name when the block ends; without a path, it only counts.

    Raises:
        StorageError: The file cannot be written.
    """
    if path is None:
        yield TermsReport()
        return
    with open_output(str(path)) as stream:
        yield TermsReport(stream, as_json=path.suffix.lower() == ".jsonl")


def record_of(use: TermUse) -> dict[str, Any]:
    """Return one use of a term as a JSON object. The starts are indices of characters, from 0."""
    return {
        "source": use.match.term.source,
        "target": use.match.forms[0] if use.form is None else use.form,
        "used": use.form is not None,
        "source_start": use.match.start,
        "target_start": use.start,
    }


def _row(record: dict[str, Any]) -> str:
    """Return the values of `COLUMNS` with tabs between them."""
    record = {**record, "used": "yes" if record["used"] else "no"}
    return "\t".join("" if record[column] is None else str(record[column]) for column in COLUMNS)


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
