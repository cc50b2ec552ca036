"""Corrections of translations, which a model learns besides its other pairs."""

from dataclasses import dataclass, field
from pathlib import Path

from mtcli.corpus.held_out import source_key
from mtcli.corpus.readers.pairs import read_pairs
from mtcli.errors import DataError
from mtcli.text.languages import Direction
from mtcli.text.lines import Counts, Pair, normalized, read_lines

HEADER = ("source", "translation", "date", "note")
"""The columns of a file of corrections that the server writes. The first two are read."""

REPLACED = "replaced by a later correction of the same source"
"""The reason for which a correction is skipped."""

CORRECTED = "with the source of a correction"
"""The reason for which another pair is skipped, so that it is neither learned instead of the correction nor scored."""


@dataclass
class Corrections:
    """The corrections of a training, one for each source."""

    pairs: list[Pair] = field(default_factory=list)
    counts: Counts = field(default_factory=Counts)
    """The corrections read, and why some are skipped."""

    def __post_init__(self) -> None:
        self._sources = frozenset(source_key(source) for source, _ in self.pairs)

    def has_source(self, source: str) -> bool:
        """Return True if a source is corrected, in any case, spacing or Unicode form."""
        return bool(self._sources) and source_key(source) in self._sources


def is_corrections_file(spec: str) -> bool:
    """Return True if the server wrote a file, by its columns."""
    path = Path(spec)
    if not path.is_file() or path.suffix.lower() != ".tsv":
        return False
    return next(read_lines(path, lenient=True), "") == "\t".join(HEADER)


def read_corrections(spec: str, languages: Direction, *, swap: bool = False, replace: bool = False) -> Corrections:
    """Read corrections. Of several with one source, the last one counts, as in a translation memory.

    Args:
        spec: What to read, in any form that `--train` takes.
        languages: The languages of their sides.
        swap: The translation comes first.
        replace: Read invalid bytes as U+FFFD.

    Raises:
        DataError: They cannot be read, or there are none.
    """
    counts = Counts()
    latest: dict[str, Pair] = {}
    for pair in read_pairs(spec, *languages, swap=swap, replace=replace, counts=counts):
        source = normalized(pair[0])
        if source in latest:
            del latest[source]
            counts.drop(REPLACED)
        latest[source] = pair
    if not latest:
        raise DataError(
            f"{spec}: has no corrections; correct translations first, for example on the page of the server"
        )
    return Corrections(list(latest.values()), counts)
