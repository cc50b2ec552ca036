"""From encoded pairs to batches: the cache on disk, the plan of an epoch, and the tensors of one batch.

The cache is one Arrow file that is memory-mapped, and a corpus of more than `BLOCK` pairs is planned block by block, so
neither is limited by memory. The plan is a pure function of (lengths, batch size, seed, epoch, block): a position in
training is three integers, and a resumed run draws the batches that the uninterrupted one would have drawn.
"""

import os
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import astuple, dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from mtcli.data.corpus import Pair
from mtcli.data.lines import Counts
from mtcli.data.tokenizer import BOS, EOS, PAD, Tokenizer
from mtcli.errors import DataError
from mtcli.runtime.progress import Progress
from mtcli.runtime.regular_file import check_regular

Ints = npt.NDArray[np.integer[Any]]
Lengths = npt.NDArray[np.int32]
Ids = list[list[int]]
T = TypeVar("T")
R = TypeVar("R")

CHUNK = 20_000
"""Pairs that are encoded, and stored as one Arrow record batch, at a time."""

BLOCK = 10_000_000
"""Pairs that are planned at a time, at most."""


class EncodedPairs:
    """Pairs of piece ids, memory-mapped; rows by index, in chunks as they were written."""

    def __init__(self, path: Path):
        """Open a cache.

        Raises:
            DataError: The file is missing or damaged.
        """
        import pyarrow as pa

        try:
            check_regular(path)
            reader = pa.ipc.open_file(pa.memory_map(os.fsencode(path)))
            if reader.schema != _schema():
                raise ValueError(f"its columns are {', '.join(reader.schema.names)}")
            batches = [reader.get_batch(i) for i in range(reader.num_record_batches)]
            for batch in batches:
                batch.validate(full=True)  # offsets that lead outside would be read outside the file
        except (OSError, ValueError) as error:  # Arrow's own errors are among these
            raise DataError(f"{path}: not a readable cache of encoded pairs: {error}") from None
        self._chunks = []
        for batch in batches:
            sides = []
            for name in ("src", "tgt"):
                column = batch.column(name)
                sides.append((column.values.to_numpy(), column.offsets.to_numpy()))
            self._chunks.append(sides)
        self._starts = np.cumsum([0, *(len(sides[0][1]) - 1 for sides in self._chunks)])

    @property
    def chunks(self) -> int:
        """How many chunks there are."""
        return len(self._chunks)

    @property
    def longest_src(self) -> int:
        """Pieces of the longest source."""
        return max((int(np.diff(offsets).max(initial=0)) for (_, offsets), _ in self._chunks), default=0)

    def sources(self) -> Iterator[tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]]:
        """Chunk by chunk, the ids of all sources in one array, and where each begins, the end of the last included."""
        for src, _ in self._chunks:
            yield src

    def lengths(self, chunks: Iterable[int] | None = None) -> tuple[Ints, Lengths, Lengths]:
        """The row numbers of these chunks, of all by default, and the pieces of their sources and of their targets."""
        chosen = list(range(self.chunks) if chunks is None else chunks)
        number = np.int32 if len(self) < 2**31 else np.int64
        empty = np.zeros(0, dtype=np.int32)
        rows = (np.arange(self._starts[i], self._starts[i + 1], dtype=number) for i in chosen)
        src, tgt = ([np.diff(self._chunks[i][side][1]) for i in chosen] for side in (0, 1))
        return np.concatenate([empty, *rows]), np.concatenate([empty, *src]), np.concatenate([empty, *tgt])

    def __len__(self) -> int:
        return int(self._starts[-1])

    def __getitem__(self, row: int) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
        chunk = int(np.searchsorted(self._starts, row, side="right")) - 1
        i = row - self._starts[chunk]
        src, tgt = ((values[offsets[i] : offsets[i + 1]]) for values, offsets in self._chunks[chunk])
        return src, tgt


def _schema() -> Any:
    import pyarrow as pa

    ids = pa.list_(pa.int32())
    return pa.schema([("src", ids), ("tgt", ids)])


def encode_pairs(
    pairs: Iterable[tuple[int, Pair]], tokenizer: Tokenizer, path: Path, *, max_length: int, counts: Counts
) -> Counter[int]:
    """Encode pairs into a cache, in their order; a pair with a side over `max_length` pieces is skipped and counted.

    Args:
        pairs: The number of the corpus, and (src, tgt) text that `counts.used` already counts.
        tokenizer: Which turns text into ids.
        path: The Arrow file to write; it appears whole or not at all.
        max_length: In pieces.
        counts: Moved from `used` to `skipped` for each pair that is too long.

    Returns:
        Rows written of each corpus.
    """
    import pyarrow as pa

    schema = _schema()
    aside = path.with_name(f".{path.name}.tmp")
    reason = f"longer than {max_length} pieces"
    iterator = iter(pairs)
    rows: Counter[int] = Counter()

    def encoded(chunk: list[tuple[int, Pair]]) -> tuple[list[tuple[int, Pair]], Ids, Ids]:
        src, tgt = [pair[0] for _, pair in chunk], [pair[1] for _, pair in chunk]
        return chunk, tokenizer.encode_src(src), tokenizer.encode_tgt(tgt)

    aside.unlink(missing_ok=True)  # never written through a link
    with aside.open("xb") as file, Progress("encoding", unit="pairs") as bar:
        with pa.ipc.new_file(file, schema) as writer:
            # The library uses every core while it encodes, but one to hand over its ids: chunks take turns in both.
            for chunk, src, tgt in ahead(encoded, iter(lambda: list(islice(iterator, CHUNK)), []), workers=2):
                kept = [i for i in range(len(chunk)) if max(len(src[i]), len(tgt[i])) <= max_length]
                if dropped := len(chunk) - len(kept):
                    counts.used -= dropped
                    counts.skipped[reason] = counts.skipped.get(reason, 0) + dropped
                rows.update(chunk[i][0] for i in kept)
                columns = [pa.array([side[i] for i in kept], type=schema.types[0]) for side in (src, tgt)]
                writer.write_batch(pa.record_batch(columns, schema=schema))
                bar.update(len(chunk))
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)
    return rows


def ahead(make: Callable[[T], R], items: Iterable[T], *, workers: int = 1) -> Iterator[R]:
    """`map(make, items)`, in order, with as many results as there are workers being made in threads meanwhile.

    `items` is drawn in the caller's thread, and an error of `make` is raised where its result would have come.
    """
    waiting: deque[Future[R]] = deque()
    with ThreadPoolExecutor(workers) as pool:
        for item in items:
            waiting.append(pool.submit(make, item))
            if len(waiting) > workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def generator(*key: int) -> np.random.Generator:
    """Random numbers that are a function of the key alone, such as (seed, epoch, purpose)."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(key)))


def plan_epoch(
    src_lengths: Lengths,
    tgt_lengths: Lengths,
    *,
    batch_tokens: int,
    key: tuple[int, ...] | None,
    weights: Sequence[tuple[int, float]] = (),
) -> list[Ints]:
    """Batches of one epoch, or of a block of it, as arrays of row numbers: every row in one batch, the last batch kept.

    Rows of like width share a batch, so that little of it is padding: sorted by the wider side and, more coarsely,
    by the other, in random order where those agree. The batches then come in random order.

    Args:
        src_lengths: Pieces of each source, without `</s>`.
        tgt_lengths: Pieces of each target, without `</s>`.
        batch_tokens: Rows × the wider padded side, `</s>` included; a wider single row has a batch of its own.
        key: (seed, epoch) of the random order, or (seed, epoch, block); None: no randomness, widest last.
        weights: (rows, weight) of each corpus in turn; a row of weight 2.5 comes twice, and a third time in half
            of the epochs. Where the weights would leave the epoch empty, one row is drawn. None: every row once.
    """
    # Small types: at ten million pairs each array of 64 bits is another 80 MB, and 16 bits are sorted by radix.
    width = np.maximum(src_lengths, tgt_lengths) + 1
    coarse = np.minimum(src_lengths, tgt_lengths) + 1 >> 2
    width, coarse = (key.astype(np.min_scalar_type(key.max(initial=0))) for key in (width, coarse))
    rows: Ints = np.arange(len(width), dtype=np.int32 if len(width) < 2**31 else np.int64)
    random = generator(*key) if key else None
    if random is not None:
        if any(weight != 1 for _, weight in weights):
            per_row = np.concatenate([np.full(n, weight) for n, weight in weights])
            whole = np.floor(per_row)
            drawn = random.random(len(rows))
            copies = (whole + (drawn < per_row - whole)).astype(np.int64)
            if len(rows) and not copies.any():  # a small corpus of small weight: never an epoch without a batch
                copies[np.argmax(per_row - drawn)] = 1
            rows = np.repeat(rows, copies)
        random.shuffle(rows)
    for sort_key in (coarse, width):  # stable: by width, then coarsely by the other side, then in random order
        rows = rows[np.argsort(sort_key[rows], kind="stable")]
    width = width[rows]
    batches, first = [], 0
    while first < len(rows):
        # Widths rise, so rows × width rises with the end of the batch: look for the last end that fits.
        most = min(len(rows), first + max(1, batch_tokens // int(width[first])))
        sizes = np.arange(1, most - first + 1, dtype=np.int64) * width[first:most]
        end = first + max(1, int(np.searchsorted(sizes, batch_tokens, side="right")))
        batches.append(rows[first:end])
        first = end
    if random is not None:
        batches = [batches[i] for i in random.permutation(len(batches))]
    return batches


@dataclass(frozen=True)
class Batch:
    """One batch: `src` (B, S) and `tgt_out` (B, T) end in `</s>`, `tgt_in` (B, T) is shifted right behind `<s>`."""

    src: Tensor
    tgt_in: Tensor
    tgt_out: Tensor

    @classmethod
    def of(cls, src: Sequence[Any], tgt: Sequence[Any]) -> "Batch":
        """The tensors of these rows of ids."""
        return cls(pad(src, after=(EOS,)), pad(tgt, before=(BOS,)), pad(tgt, after=(EOS,)))

    @property
    def tokens(self) -> int:
        """Real target pieces, `</s>` included."""
        return int((self.tgt_out != PAD).sum())

    def to(self, device: torch.device) -> "Batch":
        """The same on another device."""
        if device.type == "cpu":
            return self
        src, tgt_in, tgt_out = (
            x.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else x.to(device)
            for x in (self.src, self.tgt_in, self.tgt_out)
        )
        return Batch(src, tgt_in, tgt_out)


def pad(rows: Sequence[Any], before: tuple[int, ...] = (), after: tuple[int, ...] = ()) -> Tensor:
    """(B, longest) int64: each row between `before` and `after`, padded behind."""
    width = len(before) + max(map(len, rows)) + len(after)
    out = np.full((len(rows), width), PAD, dtype=np.int64)
    for line, row in zip(out, rows, strict=True):
        end = len(before) + len(row)
        line[: len(before)] = before
        line[len(before) : end] = row
        line[end : end + len(after)] = after
    return torch.from_numpy(out)


def collate(pairs: EncodedPairs, rows: Ints) -> Batch:
    """The tensors of the pairs with these row numbers."""
    both = [pairs[int(row)] for row in rows]
    return Batch.of([src for src, _ in both], [tgt for _, tgt in both])


@dataclass(frozen=True)
class Position:
    """Where training stands: so many blocks into an epoch, and so many batches into the next one."""

    epoch: int = 0
    block: int = 0
    batch: int = 0


@dataclass(frozen=True)
class PlannedBatch:
    """A batch that is still to be made."""

    rows: Ints
    tokens: int
    """Target pieces, `</s>` included."""
    after: Position
    """Where training stands once it has been drawn."""


@dataclass(frozen=True)
class Block:
    """What is planned at a time: an epoch, or a part of it."""

    rows: Ints
    """Its row numbers in the cache, rising."""
    src_lengths: Lengths
    tgt_lengths: Lengths
    batches: list[Ints]
    """Each an array of places in the three above."""

    def tokens(self, batch: Ints) -> int:
        """Target pieces of a batch, `</s>` included."""
        return int(self.tgt_lengths[batch].sum()) + len(batch)


class BatchPlan:
    """The endless sequence of batches that training draws, from any position.

    An epoch of more than `BLOCK` pairs is planned in equal blocks, each when it is reached: the chunks of the cache are
    dealt to them at random, anew in every epoch, so a block is a sample of all corpora that is read from few places.
    """

    def __init__(self, pairs: EncodedPairs, batch_tokens: int, seed: int, weights: list[tuple[int, float]]):
        self.pairs, self.batch_tokens, self.seed, self.weights = pairs, batch_tokens, seed, weights
        self.blocks = max(1, -(-len(pairs) // BLOCK))
        """Of an epoch."""
        self._planned: tuple[tuple[int, int], Block] | None = None

    def block(self, epoch: int, number: int) -> Block:
        """One block of an epoch; the last one asked for is kept."""
        if self._planned and self._planned[0] == (epoch, number):
            return self._planned[1]
        self._planned = None  # two at once would take twice the memory
        chunks: Ints = np.arange(self.pairs.chunks)
        key: tuple[int, ...] = (self.seed, epoch)
        if self.blocks > 1:
            dealt = generator(*key).permutation(chunks)[number :: self.blocks]
            chunks, key = np.sort(dealt), (*key, number + 1)
        rows, src_lengths, tgt_lengths = self.pairs.lengths(chunks)
        of_corpora = np.diff(np.searchsorted(rows, np.cumsum([0, *(n for n, _ in self.weights)])))
        weights = [(int(n), weight) for n, (_, weight) in zip(of_corpora, self.weights, strict=True)]
        batches = plan_epoch(src_lengths, tgt_lengths, batch_tokens=self.batch_tokens, key=key, weights=weights)
        self._planned = (epoch, number), Block(rows, src_lengths, tgt_lengths, batches)
        return self._planned[1]

    def batches_from(self, position: Position) -> Iterator[PlannedBatch]:
        """The batches behind a position."""
        epoch, number, first = astuple(position)
        while True:
            block = self.block(epoch, number)
            end = Position(epoch, number + 1) if number + 1 < self.blocks else Position(epoch + 1)
            for i, batch in enumerate(block.batches[first:], first + 1):
                after = Position(epoch, number, i) if i < len(block.batches) else end
                yield PlannedBatch(block.rows[batch], block.tokens(batch), after)
            epoch, number, first = astuple(end)
            del block  # before the next one is planned
