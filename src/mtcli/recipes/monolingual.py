"""Monolingual text for recipes: the lines that can be used, without those of held-out pairs."""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mtcli.corpus.readers.pairs import read_pairs
from mtcli.corpus.splits.held_out import source_key
from mtcli.runtime.files import new_file
from mtcli.runtime.wording import counted
from mtcli.text.lines import Counts, read_lines

log = logging.getLogger(__name__)


def held_out_keys(corpora: Sequence[str], src: str, tgt: str, *, replace: bool = False) -> frozenset[str]:
    """Return the keys (see `source_key`) of both sides of all held-out pairs.

    Args:
        corpora: Held-out pairs, in any form that `--train` takes.
        src: Source language.
        tgt: Target language.
        replace: Read invalid UTF-8 as U+FFFD.
    """
    pairs = (pair for corpus in corpora for pair in read_pairs(corpus, src, tgt, replace=replace))
    return frozenset(source_key(text) for pair in pairs for text in pair)


@dataclass(frozen=True)
class Text:
    """The usable lines of a monolingual text: those that are neither blank nor part of a held-out pair."""

    path: Path
    held_out: frozenset[str] = frozenset()
    """Keys of held-out sentences."""
    replace: bool = False
    """Read invalid UTF-8 as U+FFFD."""

    def usable(self, *, report: bool = False) -> Iterator[str]:
        """Yield the usable lines.

        Args:
            report: Log at the end how many other lines there are, by reason, and how many bytes were replaced.

        Raises:
            DataError: The text cannot be read.
        """
        dropped = Counter[str]()
        counts = Counts()
        for line in read_lines(self.path, replace=self.replace, counts=counts):
            if not line.strip():
                dropped["blank line"] += 1
            elif source_key(line) in self.held_out:
                dropped["held-out sentence"] += 1
            else:
                yield line
        if not report:
            return
        for reason, number in dropped.items():
            log.info("%s: dropped %s: %s", self.path, counted(number, "line"), reason)
        if counts.replaced:
            log.info("%s: read %s as U+FFFD", self.path, counted(counts.replaced, "invalid byte"))


def write_lines(lines: Iterable[str], path: Path, chosen: Callable[[int], bool]) -> int:
    """Write the lines whose index is chosen, and return their number.

    Raises:
        StorageError: The file cannot be written.
    """
    number = 0
    with new_file(path) as file:
        for index, line in enumerate(lines):
            if chosen(index):
                file.write(line.encode() + b"\n")
                number += 1
    return number
