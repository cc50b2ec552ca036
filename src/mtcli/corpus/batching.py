"""From encoded pairs to batches: the plan of an epoch, and the tensors of one batch.

The plan is a pure function of (lengths, batch size, seed, epoch, block). Three integers are therefore a complete
position in training, and a resumed run draws the same batches as an uninterrupted one. A corpus of more than
`BLOCK_ROWS` pairs is planned block by block, so that the plan does not take more memory for a larger corpus.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from itertools import groupby
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from mtcli.config.schema import Config
from mtcli.corpus.cache.encoded_pairs import EncodedPairs, Ints, Lengths, Rows
from mtcli.corpus.cache.prepare import Prepared
from mtcli.corpus.variant_processes import MAX_PROCESSES, VariantProcesses
from mtcli.corpus.variants import SHARES, DrawnVariants, EpochPairs, Variants
from mtcli.runtime.device import copy_to
from mtcli.text.special_tokens import BOS, EOS, PAD

BLOCK_ROWS = 10_000_000
"""The most pairs that are planned at a time."""

BLOCK_ROWS_WITH_VARIANTS = 1_000_000
"""The same if variants of the pairs are drawn, which takes time and memory (0.1 ms and some 250 bytes each)."""


def generator(*key: int) -> np.random.Generator:
    """Return a random generator that depends on the key alone, such as (seed, epoch, purpose)."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(key)))


def plan_epoch(
    src_lengths: Lengths,
    tgt_lengths: Lengths,
    *,
    batch_tokens: int,
    key: tuple[int, ...] | None,
    weights: Sequence[tuple[int, float]] = (),
) -> list[Ints]:
    """Divide an epoch, or one block of it, into batches; each is an array of row numbers.

    Without weights every row is in exactly one batch, and the last batch is kept however small it is. Rows of similar
    width share a batch, which keeps padding low: rows are sorted by the wider side, then coarsely by the other side,
    and randomly among equals. The batches themselves come in random order.

    Args:
        src_lengths: (rows,), source lengths in tokens, without `</s>`.
        tgt_lengths: (rows,), target lengths in tokens, without `</s>`.
        batch_tokens: Limit of rows × the wider padded side, `</s>` included. A row over the limit has its own batch.
        key: Key of the random order: (seed, epoch), or (seed, epoch, block). None: no randomness, widest batch last.
        weights: (rows, weight) of each corpus in order; empty: all 1. With weight 2.5 a row comes twice in every epoch
            and a third time in half of them. If the weights would leave an epoch empty, one row is drawn.
    """
    width, coarse = _sort_keys(src_lengths, tgt_lengths)
    rows: Ints = np.arange(len(width), dtype=np.int32 if len(width) < 2**31 else np.int64)
    random = generator(*key) if key else None
    if random is not None:
        rows = _draw_by_weight(rows, weights, random)
        random.shuffle(rows)
    # Both sorts are stable, so the first one and the random order decide among rows of equal width.
    rows = rows[np.argsort(coarse[rows], kind="stable")]
    rows = rows[np.argsort(width[rows], kind="stable")]
    batches = _fill_batches(rows, width[rows], batch_tokens)
    if random is None:
        return batches
    return [batches[i] for i in random.permutation(len(batches))]


def _sort_keys(src_lengths: Lengths, tgt_lengths: Lengths) -> tuple[Ints, Ints]:
    """Return the width of each row, `</s>` included, and a quarter of that of its narrower side.

    Both have the smallest type that fits. For ten million pairs an array of 64-bit numbers takes another 80 MB, and
    NumPy sorts 16-bit numbers by radix.
    """
    width = np.maximum(src_lengths, tgt_lengths) + 1
    coarse = (np.minimum(src_lengths, tgt_lengths) + 1) >> 2
    width_type = np.min_scalar_type(width.max(initial=0))
    coarse_type = np.min_scalar_type(coarse.max(initial=0))
    return width.astype(width_type), coarse.astype(coarse_type)


def _draw_by_weight(rows: Ints, weights: Sequence[tuple[int, float]], random: np.random.Generator) -> Ints:
    """Repeat or omit rows at random by the weight of their corpus."""
    if all(weight == 1 for _, weight in weights):
        return rows
    per_row = weight_of_rows(weights)
    whole = np.floor(per_row)
    drawn = random.random(len(rows))
    copies = (whole + (drawn < per_row - whole)).astype(np.int64)
    if len(rows) and not copies.any():
        copies[np.argmax(per_row - drawn)] = 1  # a small corpus with a small weight: no epoch is empty
    return np.repeat(rows, copies)


def weights_within(rows: Ints, weights: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """Return (rows, weight) of each corpus within some of the rows.

    Args:
        rows: Row numbers, ascending.
        weights: (rows, weight) of each corpus in order, for all rows.
    """
    bounds = np.cumsum([0, *(num_rows for num_rows, _ in weights)])
    sizes = np.diff(np.searchsorted(rows, bounds))
    return [(int(size), weight) for size, (_, weight) in zip(sizes, weights, strict=True)]


def weight_of_rows(weights: Sequence[tuple[int, float]]) -> npt.NDArray[np.float64]:
    """Return the weight of each row, (rows,), from (rows, weight) of each corpus in order."""
    return np.concatenate([np.full(num_rows, weight) for num_rows, weight in weights])


def _fill_batches(rows: Ints, width: Ints, batch_tokens: int) -> list[Ints]:
    """Cut rows, sorted by width, into the largest batches that `batch_tokens` allows."""
    batches = []
    first = 0
    while first < len(rows):
        # Widths rise, so rows × width rises with the end of the batch: search for the last end that fits.
        last = min(len(rows), first + max(1, batch_tokens // int(width[first])))
        sizes = np.arange(1, last - first + 1, dtype=np.int64) * width[first:last]
        end = first + max(1, int(np.searchsorted(sizes, batch_tokens, side="right")))
        batches.append(rows[first:end])
        first = end
    return batches


@dataclass(frozen=True)
class Batch:
    """The tensors of one batch, all int64. N is the number of target tokens, `</s>` included, padding excluded.

    The N tokens are selected on the host: a GPU would have to wait to learn N from a boolean mask.
    """

    src: Tensor
    """Sources, (B, S), each with `</s>`, padded at the end."""
    tgt_in: Tensor
    """Input of the decoder: the targets shifted right behind `<s>`, (B, T), padded at the end."""
    target: Tensor
    """The tokens to predict: the targets, each with `</s>`, one behind the other, (N,)."""
    target_index: Tensor
    """The position at which each of them is predicted, as an index into the flattened (B · T) positions, (N,)."""

    @classmethod
    def of(cls, src: Sequence[Any], tgt: Sequence[Any]) -> "Batch":
        """Build the tensors from B rows of source ids and of target ids, without `<s>` and `</s>`."""
        tgt_out = pad(tgt, after=(EOS,)).flatten()
        target_index = torch.from_numpy(np.flatnonzero(tgt_out.numpy() != PAD))
        return cls(pad(src, after=(EOS,)), pad(tgt, before=(BOS,)), tgt_out[target_index], target_index)

    @property
    def tokens(self) -> int:
        """Number of target tokens N."""
        return len(self.target)

    def at_targets(self, states: Tensor) -> Tensor:
        """Return the decoder states (B, T, D) of the positions that are not padding, (N, D)."""
        return states.flatten(0, 1).index_select(0, self.target_index)

    def pin_memory(self) -> "Batch":
        """Return the batch in pinned memory, from which the copy to a CUDA device is asynchronous."""
        return Batch(*(tensor.pin_memory() for tensor in self._tensors))

    def to(self, device: torch.device) -> "Batch":
        """Return the batch on a device. The host does not wait for the copy to a CUDA device."""
        if device.type == "cpu":
            return self
        return Batch(*(copy_to(device, tensor) for tensor in self._tensors))

    @property
    def _tensors(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return self.src, self.tgt_in, self.target, self.target_index


def pad(rows: Sequence[Any], before: tuple[int, ...] = (), after: tuple[int, ...] = ()) -> Tensor:
    """Return rows of ids as one int64 tensor (rows, longest), each between `before` and `after`, padded at the end."""
    width = len(before) + max(map(len, rows)) + len(after)
    out = np.full((len(rows), width), PAD, dtype=np.int64)
    for line, row in zip(out, rows, strict=True):
        end = len(before) + len(row)
        line[: len(before)] = before
        line[len(before) : end] = row
        line[end : end + len(after)] = after
    return torch.from_numpy(out)


class PairSource(Protocol):
    """Encoded pairs by row number."""

    def gather(self, rows: Ints) -> tuple[Rows, Rows]:
        """Return the sources and the targets of some rows; see `EncodedPairs.gather`."""

    def origins(self, rows: Ints) -> Ints:
        """Return the rows of the cache that some rows are, or are variants of."""


def collate(pairs: PairSource, rows: Ints) -> Batch:
    """Return the batch of the pairs with these row numbers: what `Batch.of` makes of them, without a loop over rows."""
    (src_ids, src_lengths), (tgt_ids, tgt_lengths) = pairs.gather(rows)
    row = np.arange(len(rows))
    S = int(src_lengths.max()) + 1
    T = int(tgt_lengths.max()) + 1
    src = np.full((len(rows), S), PAD, dtype=np.int64)
    src[np.arange(S) < src_lengths[:, None]] = src_ids
    src[row, src_lengths] = EOS
    is_token = np.arange(T) < tgt_lengths[:, None]  # (B, T); `</s>` is not among these
    tgt_in = np.full((len(rows), T), PAD, dtype=np.int64)
    tgt_in[:, 0] = BOS
    tgt_in[:, 1:][is_token[:, :-1]] = tgt_ids
    tgt_out = np.full((len(rows), T), EOS, dtype=np.int64)
    tgt_out[is_token] = tgt_ids
    is_token[row, tgt_lengths] = True
    target_index = np.flatnonzero(is_token)
    tensors = (src, tgt_in, tgt_out.ravel()[target_index], target_index)
    return Batch(*map(torch.from_numpy, tensors))


@dataclass(frozen=True)
class Position:
    """A position in training: the epoch, its block, and the number of batches of that block already drawn."""

    epoch: int = 0
    block: int = 0
    batch: int = 0


@dataclass(frozen=True)
class PlannedBatch:
    """A batch before its tensors are built."""

    pairs: PairSource
    """The pairs of its epoch."""
    rows: Ints
    """Its row numbers in these."""
    tokens: int
    """Target tokens, `</s>` included."""
    after: Position
    """The position in training once this batch has been drawn."""

    @property
    def origins(self) -> Ints:
        """The rows of the cache that its rows are, or are variants of."""
        return self.pairs.origins(self.rows)


@dataclass(frozen=True)
class Block:
    """The unit of planning: an epoch, or a part of one."""

    pairs: PairSource
    """The pairs of its epoch."""
    rows: Ints
    """Its row numbers in these, ascending: those of the cache, then those of variants."""
    src_lengths: Lengths
    tgt_lengths: Lengths
    batches: list[Ints]
    """Each batch holds indices into the three arrays above."""

    def tokens(self, batch: Ints) -> int:
        """Return the number of target tokens of a batch, `</s>` included."""
        return int(self.tgt_lengths[batch].sum()) + len(batch)


class BatchPlan:
    """The endless sequence of training batches, from any position.

    An epoch of more than `BLOCK_ROWS` pairs is divided into equal blocks, and each block is planned when training
    reaches it. Each epoch assigns the chunks of the cache to its blocks at random. So a block is a sample of all
    corpora, and is read from few places in the file.
    """

    def __init__(
        self,
        pairs: EncodedPairs,
        batch_tokens: int,
        seed: int,
        weights: list[tuple[int, float]],
        variants: Variants | None = None,
    ):
        """Plan batches.

        Args:
            pairs: The training pairs.
            batch_tokens: See `plan_epoch`.
            seed: Decides the order of the batches.
            weights: See `plan_epoch`.
            variants: Draws variants of the pairs, which each epoch has in addition.
        """
        self.pairs = pairs
        self.batch_tokens = batch_tokens
        self.seed = seed
        self.weights = weights
        self.variants = variants
        self.blocks = max(1, -(-len(pairs) // (BLOCK_ROWS_WITH_VARIANTS if variants else BLOCK_ROWS)))
        """Blocks per epoch."""
        self._planned: tuple[tuple[int, int], Block] | None = None
        self._processes: VariantProcesses | None = None
        self._begun: dict[tuple[int, int], list[Future[DrawnVariants]]] = {}
        """The variants that processes are drawing, by epoch and block."""

    @classmethod
    def of(cls, config: Config, data: Prepared) -> "BatchPlan":
        """Return the batches of a run.

        Args:
            config: The complete configuration.
            data: The prepared data.
        """
        settings = config.data
        seed = config.train.seed
        shares = SHARES if settings.variants == "on" else {}
        variants = None
        if shares or data.terms is not None:
            by_direction = groupby(data.sources, key=lambda source: source.direction)
            parts = [(sum(source.pairs for source in sources), direction) for direction, sources in by_direction]
            variants = Variants(data.tokenizer, parts, settings.max_length, seed, shares=shares, annotators=data.terms)
        return cls(data.train, config.train.batch_tokens, seed, data.weights, variants)

    @contextmanager
    def drawing_ahead(self, cores: int) -> Iterator[None]:
        """Draw the variants of each block in other processes, while the batches of the block before are used.

        Args:
            cores: The cores of this process. With one, nothing is drawn ahead.
        """
        size = min(MAX_PROCESSES, cores - 1)
        if self.variants is None or size < 1:
            yield
            return
        self._processes = VariantProcesses(self.variants, self.pairs, size)
        try:
            yield
        finally:
            self._processes.close()
            self._processes = None
            self._begun = {}

    def _begin_to_draw(self, epoch: int, number: int) -> None:
        """Let the processes draw the variants of a block, if there are processes."""
        if self._processes is not None and self.variants is not None and (epoch, number) not in self._begun:
            chunks, key = self._chunks_of(epoch, number)
            rows, _, _ = self.pairs.lengths(chunks)
            self._begun[epoch, number] = self._processes.begin(self.variants.portions(rows, key))

    def _drawn(self, variants: Variants, epoch: int, number: int, rows: Ints, key: tuple[int, ...]) -> DrawnVariants:
        """Return the variants of a block."""
        self._begin_to_draw(epoch, number)
        if (epoch, number) in self._begun:
            return DrawnVariants.together(each.result() for each in self._begun.pop((epoch, number)))
        return variants.draw(self.pairs, rows, key)

    def _chunks_of(self, epoch: int, number: int) -> tuple[Ints, tuple[int, ...]]:
        """Return the chunks of the cache that a block has, and the key of its random draws."""
        chunks: Ints = np.arange(self.pairs.chunks)
        key: tuple[int, ...] = (self.seed, epoch)
        if self.blocks > 1:
            dealt = generator(*key).permutation(chunks)
            chunks = np.sort(dealt[number :: self.blocks])
            key = (*key, number + 1)
        return chunks, key

    def block(self, epoch: int, number: int) -> Block:
        """Return one block of an epoch. The last one is kept in memory."""
        if self._planned and self._planned[0] == (epoch, number):
            return self._planned[1]
        self._planned = None  # free it before planning: two blocks would take twice the memory
        chunks, key = self._chunks_of(epoch, number)
        rows, src_lengths, tgt_lengths = self.pairs.lengths(chunks)
        weights = weights_within(rows, self.weights)
        epoch_pairs: PairSource = self.pairs
        if self.variants is not None:
            drawn = self._drawn(self.variants, epoch, number, rows, key)
            epoch_pairs = EpochPairs(self.pairs, drawn)
            weights += weights_within(drawn.origins, self.weights)
            numbers = np.arange(len(self.pairs), len(self.pairs) + len(drawn.origins))
            rows = np.concatenate([rows, numbers])
            src_lengths = np.concatenate([src_lengths, drawn.src[1]])
            tgt_lengths = np.concatenate([tgt_lengths, drawn.tgt[1]])
        batches = plan_epoch(src_lengths, tgt_lengths, batch_tokens=self.batch_tokens, key=key, weights=weights)
        block = Block(epoch_pairs, rows, src_lengths, tgt_lengths, batches)
        self._planned = (epoch, number), block
        return block

    def batches_from(self, position: Position) -> Iterator[PlannedBatch]:
        """Yield the batches after a position, without end."""
        epoch, number, first = astuple(position)
        while True:
            block = self.block(epoch, number)
            end = Position(epoch, number + 1) if number + 1 < self.blocks else Position(epoch + 1)
            self._begin_to_draw(end.epoch, end.block)
            for i, batch in enumerate(block.batches[first:], first + 1):
                after = Position(epoch, number, i) if i < len(block.batches) else end
                yield PlannedBatch(block.pairs, block.rows[batch], block.tokens(batch), after)
            epoch, number, first = astuple(end)
            del block  # free it before the next one is planned
