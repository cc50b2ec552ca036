"""Text to text: lines are encoded, sorted into batches by length, searched, decoded, and given back in their order."""

import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch

from mtcli.align import Links, align
from mtcli.batching import pad
from mtcli.checkpoint import load_model
from mtcli.config import DecodeConfig
from mtcli.decode import Expansion, Hypothesis, Limits, beam_search, greedy_search, sampler
from mtcli.model import Transformer
from mtcli.progress import progress_bar
from mtcli.tokenizer import EOS, Tokenizer

log = logging.getLogger(__name__)

WINDOW = 4096
"""Lines that are held, sorted and translated together, so that a file of any size fits in memory."""

BATCH_TOKENS = {"cpu": 6_000, "cuda": 200_000, "mps": 20_000}
"""Rows × width × beam of one search."""


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


class Translator:
    """A model with its tokenizer, on a device."""

    def __init__(self, model: Transformer, tokenizer: Tokenizer, longest_src: int):
        """Wrap a model in evaluation mode; `longest_src` is the longest source in its training, in pieces."""
        self.model, self.tokenizer, self.longest_src = model, tokenizer, longest_src
        self.device = next(model.parameters()).device

    @classmethod
    def load(cls, folder: Path, device: torch.device) -> tuple["Translator", Options]:
        """The translator of a run folder, and the search options its configuration asks for.

        Raises:
            ModelError: There is no usable model.
        """
        model, info, tokenizer = load_model(folder)
        return cls(model.to(device), tokenizer, info.longest_src), Options.of(info.decode)

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
                    bar.update(len(rows))
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
        budget = BATCH_TOKENS[self.device.type] // (1 if options.sample else options.beam_size)
        rows = sorted((r for r, line in enumerate(window) if line.strip()), key=lambda r: -len(ids[r]))
        while rows:
            size = max(1, budget // (len(ids[rows[0]]) + 1))
            yield rows[:size]
            rows = rows[size:]

    def search(
        self,
        ids: Sequence[Sequence[int]],
        options: Options,
        *,
        numbers: Sequence[int] | None = None,
        observe: Callable[[Expansion], None] | None = None,
    ) -> list[list[Hypothesis]]:
        """The `n_best` translations of each source, ids to ids.

        Args:
            ids: Sources without `</s>`.
            options: How to search.
            numbers: Of the lines, which sampling depends on besides the seed; none: 0, 1, 2, …
            observe: Is shown every step of a beam search.
        """
        src = pad(ids, after=(EOS,)).to(self.device)
        prefix = self.tokenizer.encode_tgt([options.prefix])[0] if options.prefix else []
        limits = Limits(
            max_length=[options.max_length or len(row) + options.max_extra for row in ids],
            forbidden=self.tokenizer.forbidden,
            prefix=[prefix] * len(ids) if prefix else None,
        )
        if options.sample:
            draws = []
            for draw in range(options.n_best):
                generators = [_generator(options.seed, line, draw) for line in numbers or range(len(ids))]
                choose = sampler(options.temperature, options.top_k, generators)
                draws.append(greedy_search(self.model, src, limits, choose))
            return [list(drawn) for drawn in zip(*draws, strict=True)]
        if options.beam_size == 1:
            return [[hypothesis] for hypothesis in greedy_search(self.model, src, limits)]
        found = beam_search(
            self.model, src, limits, beam_size=options.beam_size, alpha=options.length_penalty, observe=observe
        )
        return [hypotheses[: options.n_best] for hypotheses in found]

    def _candidates(
        self, window: Sequence[str], ids: Sequence[Sequence[int]], rows: Sequence[int], options: Options, first: int
    ) -> Iterator[tuple[Candidate, ...]]:
        """The translations of these rows of a window, of which `first` is the number of the first line."""
        src = [ids[row] for row in rows]
        found = self.search(src, options, numbers=[first + row for row in rows])
        texts = [self.tokenizer.decode([h.ids for h in hypotheses]) for hypotheses in found]
        links: list[list[Links]] = [[()] * len(row) for row in texts]
        if options.alignments:
            tgt = [[h.ids for h in hypotheses] for hypotheses in found]
            links = align(self.model, self.tokenizer, [window[row] for row in rows], src, texts, tgt)
        for line in zip(texts, found, links, strict=True):
            yield tuple(Candidate(text, h.log_prob, h.score, link) for text, h, link in zip(*line, strict=True))


def _generator(seed: int, line: int, draw: int) -> torch.Generator:
    """Random numbers of their own for each draw for each line."""
    digest = hashlib.sha256(f"{seed} {line} {draw}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)
