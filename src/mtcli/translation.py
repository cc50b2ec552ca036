"""Lines of text through a search, whatever computes it: windows, batches by length, and the order kept.

Needs no PyTorch, so that an exported model starts at once. `translate.Translator` searches with PyTorch,
`engine.Engine` with CTranslate2.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from mtcli.config import DecodeConfig
from mtcli.progress import progress_bar
from mtcli.tokenizer import Tokenizer

log = logging.getLogger(__name__)

WINDOW = 4096
"""Lines that are held, sorted and translated together, so that a file of any size fits in memory."""

Links = tuple[tuple[int, int], ...]
"""Source word and target word, in the order of the source; see `align`."""


def pharaoh(links: Links) -> str:
    """`0-0 1-2`: source word and target word of each link."""
    return " ".join(f"{src}-{tgt}" for src, tgt in links)


@dataclass(frozen=True)
class Options:
    """How to search."""

    beam_size: int = 4
    length_penalty: float = 0.6
    n_best: int = 1
    max_length: int | None = None
    """Most pieces of a translation; none: those of the source and `max_extra` more."""
    max_extra: int = 50
    prefix: str = ""
    """Text that every translation begins with."""
    sample: bool = False
    """Draw each piece at random instead of searching."""
    temperature: float = 1.0
    top_k: int = 0
    """Draw among so many of the likeliest pieces; 0: all."""
    seed: int = 1
    alignments: bool = False
    """Say which source words each word of a translation comes from."""

    @classmethod
    def of(cls, decode: DecodeConfig) -> "Options":
        """The defaults of a model."""
        return cls(decode.beam_size, decode.length_penalty, max_extra=decode.max_extra)


@dataclass(frozen=True)
class Candidate:
    """One translation of a line: its text, log P(y | x) in nats, and the score it ranks by (higher is better)."""

    text: str
    log_prob: float
    score: float
    alignment: Links = ()
    """Source word and target word, where the options ask for it; see `align`."""


@dataclass(frozen=True)
class Translation:
    """One line and its translations, best first; a blank line has one, which is blank."""

    source: str
    candidates: tuple[Candidate, ...]

    @property
    def text(self) -> str:
        """The best translation."""
        return self.candidates[0].text


class LineTranslator(ABC):
    """A tokenizer, and a search that a subclass adds."""

    def __init__(self, tokenizer: Tokenizer, longest_src: int):
        """Take the tokenizer; `longest_src` is the longest source in training, in pieces."""
        self.tokenizer, self.longest_src = tokenizer, longest_src

    def translate(
        self, lines: Iterable[str], options: Options, *, total: int | None = None, warn: bool = True
    ) -> Iterator[Translation]:
        """One translation for each line, in their order; a blank line gives a blank one without asking the model.

        Args:
            lines: Source text; read in windows, so an endless stream does.
            options: How to search.
            total: Number of lines, for the progress bar.
            warn: Say so of lines longer than any in training.
        """
        lines, first = iter(lines), 0
        with progress_bar("translating", total=total, unit=" lines") as bar:
            while window := list(islice(lines, WINDOW)):
                ids = self.tokenizer.encode_src(window)
                if warn:
                    self._warn_of_long(ids, first)
                found: list[Translation | None] = [None] * len(window)
                for rows in self._batches(window, ids, options):
                    for row, best in zip(rows, self._candidates(window, ids, rows, options, first), strict=True):
                        found[row] = Translation(window[row], best)
                        bar.update()
                for line, translation in zip(window, found, strict=True):
                    yield translation or Translation(line, (Candidate("", 0.0, 0.0),))
                first += len(window)

    def _warn_of_long(self, ids: Sequence[Sequence[int]], first: int) -> None:
        for number, row in enumerate(ids, first + 1):
            if len(row) > self.longest_src:
                log.warning(
                    "line %d has %d pieces, more than any source in training (%d): its translation may be poor",
                    number,
                    len(row),
                    self.longest_src,
                )

    def _batches(self, window: Sequence[str], ids: Sequence[Sequence[int]], options: Options) -> Iterator[list[int]]:
        """Rows of like length, longest first, so that too large a batch fails at once; blank lines in none."""
        rows = sorted((r for r, line in enumerate(window) if line.strip()), key=lambda r: -len(ids[r]))
        while rows:
            size = max(1, self._budget(options) // (len(ids[rows[0]]) + 1))
            yield rows[:size]
            rows = rows[size:]

    @abstractmethod
    def _budget(self, options: Options) -> int:
        """Rows × width of one batch."""

    @abstractmethod
    def _candidates(
        self, window: Sequence[str], ids: Sequence[Sequence[int]], rows: Sequence[int], options: Options, first: int
    ) -> Iterator[tuple[Candidate, ...]]:
        """The translations of these rows of a window, of which `first` is the number of the first line."""
