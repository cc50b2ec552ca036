"""The pairs that `data check` and `data clean` look at, unchanged, with the number of each line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mtcli.corpus.held_out import source_key
from mtcli.corpus.quality.rules import MAX_LENGTH, MAX_RATIO, tidy
from mtcli.corpus.readers import sources
from mtcli.corpus.readers.pairs import numbered_rows, place_of
from mtcli.corpus.readers.tables import BadRow
from mtcli.runtime.progress import Progress
from mtcli.text.lines import Counts, Pair


@dataclass(frozen=True)
class Corpus:
    """The pairs to look at, and the limits that they must keep."""

    paths: Sequence[str]
    """In any form that `--train` takes."""
    src: str
    tgt: str
    swap: bool = False
    valid: str | None = None
    """Pairs whose sources must not be in `paths`."""
    test: str | None = None
    """Pairs whose sources must not be in `paths`."""
    max_length: int = MAX_LENGTH
    max_ratio: float = MAX_RATIO

    def read(self, path: str, counts: Counts) -> Iterator[tuple[int, Pair | str]]:
        """Read pairs, unchanged, with their line numbers. A string says why a line is not a pair.

        Raises:
            DataError: The rest cannot be read: files of unequal length, a damaged archive, UTF-16.
        """
        rows = numbered_rows(path, self.src, self.tgt, swap=self.swap, lenient=True, counts=counts)
        for number, row in rows:
            yield number, f"{row.problem}: {row.text}" if isinstance(row, BadRow) else row

    def files(self) -> list[Path]:
        """Return every local file that is read.

        Raises:
            DataError: One is missing.
        """
        return [file for path in self._specs() for file in sources.source_files(path, self.src, self.tgt)]

    def folders(self) -> list[Path]:
        """Return the folders of which every file is read."""
        found = (sources.resolve(path, self.src, self.tgt) for path in self._specs())
        return [folder for form, files in found if form == "dataset" for folder in files]

    def _specs(self) -> list[str]:
        return [*self.paths, *(path for path in (self.valid, self.test) if path is not None)]

    def records(self, description: str, counts: Counts | None = None) -> Iterator[tuple[str, int, Pair | str]]:
        """Read all paths in turn, with a progress bar: (path, line number, what `read` gives)."""
        counts = counts if counts is not None else Counts()
        with Progress(description, unit="pairs") as bar:
            for path in self.paths:
                for number, record in self.read(path, counts):
                    yield path, number, record
                    bar.update()

    def source_hashes(self, path: str) -> set[int]:
        """Return the hashes of all sources of a path that are not empty."""
        found = set[int]()
        with Progress("reading", unit="pairs") as bar:
            for _, record in self.read(path, Counts()):
                if not isinstance(record, str):
                    found.add(source_hash(tidy(record[0])))
                bar.update()
        return found - {source_hash("")}

    def place(self, path: str, number: int) -> str:
        """Return the place of a pair, see `place_of`."""
        return place_of(path, self.src, self.tgt, number)


def source_hash(src: str) -> int:
    """Return 64 bits that are equal for sources which count as the same.

    Among ten million sources, the probability of one collision is 3 in a million.
    """
    return hash(source_key(src))
