"""The cache of encoded training pairs: one Arrow file, memory-mapped, so that its size is not limited by memory."""

import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain, islice, takewhile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mtcli.errors import DataError
from mtcli.runtime.cores import prefetch_map
from mtcli.runtime.files import check_regular, new_file
from mtcli.text.lines import Counts, Pair
from mtcli.text.tokenizer.tokenizer import Tokenizer

Ints = npt.NDArray[np.integer[Any]]
Ids = npt.NDArray[np.int32]
Lengths = npt.NDArray[np.int32]
Rows = tuple[Ids, Lengths]
"""Rows of ids: the ids of all rows, one behind the other, and the length of each row."""
NumberedPair = tuple[int, Pair]
"""The number of a training corpus, from 0, and a pair of it."""

CHUNK_ROWS = 20_000
"""Pairs that are encoded at a time; they form one Arrow record batch."""


class EncodedPairs:
    """Pairs of token ids, memory-mapped. A row is one pair; a chunk is one record batch of the file."""

    def __init__(self, path: Path):
        """Open a cache.

        Raises:
            DataError: The file is missing or damaged.
        """
        self.path = path
        self._words, self._chunks, places = _open(path)
        self._starts = np.cumsum([0, *(len(sides[0][1]) - 1 for sides in self._chunks)])
        self._places = np.array(places, dtype=np.int64).reshape(-1, 2, 2)
        """Where the values and the offsets of both sides of each chunk begin in the file, (chunks, 2, 2)."""

    @property
    def chunks(self) -> int:
        """Number of chunks."""
        return len(self._chunks)

    @property
    def longest_src(self) -> int:
        """Length of the longest source in tokens, without `</s>`."""
        return max((int(np.diff(offsets).max(initial=0)) for (_, offsets), _ in self._chunks), default=0)

    def sources(self) -> Iterator[tuple[Ids, Ids]]:
        """Yield the sources of each chunk: the ids of all its rows in one array, and the offsets (rows + 1,)."""
        for src, _ in self._chunks:
            yield src

    def lengths(self, chunks: Iterable[int] | None = None) -> tuple[Ints, Lengths, Lengths]:
        """Return row numbers, source lengths and target lengths in tokens, without `</s>`, of some chunks or of all."""
        rows = [np.zeros(0, dtype=np.int32 if len(self) < 2**31 else np.int64)]
        src_lengths = [np.zeros(0, dtype=np.int32)]
        tgt_lengths = [np.zeros(0, dtype=np.int32)]
        for chunk in range(self.chunks) if chunks is None else chunks:
            (_, src_offsets), (_, tgt_offsets) = self._chunks[chunk]
            rows.append(np.arange(self._starts[chunk], self._starts[chunk + 1], dtype=rows[0].dtype))
            src_lengths.append(np.diff(src_offsets))
            tgt_lengths.append(np.diff(tgt_offsets))
        return np.concatenate(rows), np.concatenate(src_lengths), np.concatenate(tgt_lengths)

    def __len__(self) -> int:
        return int(self._starts[-1])

    def __getitem__(self, row: int) -> tuple[Ids, Ids]:
        chunk = int(np.searchsorted(self._starts, row, side="right")) - 1
        i = row - self._starts[chunk]
        src, tgt = (values[offsets[i] : offsets[i + 1]] for values, offsets in self._chunks[chunk])
        return src, tgt

    def texts(
        self, rows: Iterable[int], tokenizer: Tokenizer, unwanted: frozenset[int] = frozenset()
    ) -> Iterator[tuple[int, list[int], Pair]]:
        """Yield rows with the tags that their sources begin with, and the text of both sides behind these tags.

        Args:
            rows: Row numbers.
            tokenizer: The tokenizer of the pairs.
            unwanted: Rows with one of these tokens are omitted.
        """
        known = {*tokenizer.tags.values(), tokenizer.back_translation_tag}
        found = []
        for row in rows:
            src, tgt = (side.tolist() for side in self[row])
            if unwanted.isdisjoint(src) and unwanted.isdisjoint(tgt):
                tags = list(takewhile(known.__contains__, src))
                found.append((row, tags, src[len(tags) :], tgt))
        sources = tokenizer.decode_src([src for _, _, src, _ in found])
        targets = tokenizer.decode([tgt for *_, tgt in found])
        for (row, tags, _, _), src_text, tgt_text in zip(found, sources, targets, strict=True):
            yield row, tags, (src_text, tgt_text)

    def origins(self, rows: Ints) -> Ints:
        """Return the same rows, which are no variants; see `EpochPairs.origins`."""
        return rows

    def gather(self, rows: Ints) -> tuple[Rows, Rows]:
        """Return the sources and the targets of some rows, as `[self[row] for row in rows]` does, only faster.

        The time does not depend on the number of chunks that the rows come from, because the file is read as one array.
        """
        chunk = np.searchsorted(self._starts, rows, side="right") - 1
        line = rows - self._starts[chunk]
        sides = []
        for values_at, offsets_at in self._places[chunk].transpose(1, 2, 0):
            begin = self._words[offsets_at + line]
            end = self._words[offsets_at + line + 1]
            lengths = end - begin
            total = lengths.cumsum(dtype=np.int64)
            shift = values_at + begin - (total - lengths)  # from an index into the result to one into the file
            sides.append((self._words[np.repeat(shift, lengths) + np.arange(lengths.sum())], lengths))
        src, tgt = sides
        return src, tgt


def _open(path: Path) -> tuple[Ids, list[list[tuple[Ids, Ids]]], list[list[int]]]:
    """Map a cache into memory, and check it.

    Returns:
        The file as one array; for each chunk the values and the offsets of both sides, which are views of it; and for
        each chunk the indices at which these four begin.

    Raises:
        DataError: The file is missing or damaged.
    """
    import pyarrow as pa

    try:
        check_regular(path)
        file = pa.memory_map(os.fsencode(path))
        reader = pa.ipc.open_file(file)
        if reader.schema != _schema():
            raise ValueError(f"its columns are {', '.join(reader.schema.names)}")
        batches = [reader.get_batch(i) for i in range(reader.num_record_batches)]
        for batch in batches:
            batch.validate(full=True)  # an offset out of bounds would read outside the file
            for column in batch.columns:
                if column.null_count or column.values.null_count:
                    raise ValueError("it has null values")
        file.seek(0)
        content = file.read_buffer()
        words = np.frombuffer(content, dtype=np.int32, count=content.size // np.dtype(np.int32).itemsize)
        chunks = [[(_view(side.values), _view(side.offsets)) for side in batch.columns] for batch in batches]
        places = [[_index_in(words, array) for side in sides for array in side] for sides in chunks]
    except (OSError, ValueError) as error:  # Arrow's own errors are subclasses of these
        raise DataError(f"{path}: not a readable cache of encoded pairs: {error}") from None
    return words, chunks, places


def _index_in(words: Ids, array: Ids) -> int:
    """Return the index at which an array begins in the file of which it is a view; 0 for an empty array.

    Raises:
        ValueError: It is not a view of the file, because the file is compressed or misaligned.
    """
    if not len(array):
        return 0
    index, rest = divmod(array.ctypes.data - words.ctypes.data, words.itemsize)
    if rest or not 0 <= index <= len(words) - len(array):
        raise ValueError("its numbers cannot be read in place")
    return index


def _view(array: Any) -> Ids:
    """Return an Arrow array of int32 without null values as a NumPy array that shares its memory.

    Arrow's own `to_numpy` imports pandas, which takes longer than a small training.
    """
    _, buffer = array.buffers()
    if buffer is None:
        return np.zeros(0, dtype=np.int32)
    return np.frombuffer(buffer, dtype=np.int32, count=len(array), offset=array.offset * np.dtype(np.int32).itemsize)


def _schema() -> Any:
    import pyarrow as pa

    ids = pa.list_(pa.int32())
    return pa.schema([("src", ids), ("tgt", ids)])


def encode_pairs(
    pairs: Iterable[NumberedPair],
    tokenizer: Tokenizer,
    path: Path,
    *,
    max_length: int,
    counts: Counts,
    tags: Sequence[int | None] = (),
) -> Counter[int]:
    """Encode pairs into a cache, in order. Pairs with a side over `max_length` tokens are skipped and counted.

    Args:
        pairs: The pairs as text, each with the number of its corpus. `counts.used` already counts them.
        tokenizer: Encodes both sides.
        path: The Arrow file to write. It appears under its name only when it is complete.
        max_length: Limit of each side in tokens, without `</s>`.
        counts: Each pair that is too long moves from `used` to `skipped`.
        tags: For each corpus, the token of its target language, which is put before sources that begin with no tag;
            None: none is put there. Empty: no corpus has one.

    Returns:
        The number of rows written for each corpus.

    Raises:
        StorageError: The file cannot be written.
    """
    import pyarrow as pa

    def chunks() -> Iterator[list[NumberedPair]]:
        remaining = iter(pairs)
        while chunk := list(islice(remaining, CHUNK_ROWS)):
            yield chunk

    def encode(chunk: list[NumberedPair]) -> tuple[list[NumberedPair], list[list[int]], list[list[int]]]:
        src = tokenizer.encode_src([pair[0] for _, pair in chunk])
        tgt = tokenizer.encode_tgt([pair[1] for _, pair in chunk])
        if tags:
            src = [_tagged(ids, tags[corpus], known_tags) for ids, (corpus, _) in zip(src, chunk, strict=True)]
        return chunk, src, tgt

    known_tags = frozenset(tokenizer.tags.values())
    schema = _schema()
    rows: Counter[int] = Counter()
    with new_file(path) as file, pa.ipc.new_file(file, schema) as writer:
        # The library encodes on all cores but returns the ids on one: two chunks overlap these phases.
        for chunk, src, tgt in prefetch_map(encode, chunks(), workers=2):
            kept = [i for i in range(len(chunk)) if max(len(src[i]), len(tgt[i])) <= max_length]
            num_long = len(chunk) - len(kept)
            if num_long:
                counts.drop(f"longer than {max_length} tokens", num_long)
            rows.update(chunk[i][0] for i in kept)
            columns = [_list_array([side[i] for i in kept]) for side in (src, tgt)]
            writer.write_batch(pa.record_batch(columns, schema=schema))
    return rows


def _tagged(ids: list[int], tag: int | None, known: Collection[int]) -> list[int]:
    """Return the ids of a source with the token of its target language, unless it begins with one."""
    if tag is None or (ids and ids[0] in known):
        return ids
    return [tag, *ids]


def as_rows(rows: Sequence[Sequence[int]]) -> Rows:
    """Return rows of ids as arrays."""
    lengths: Lengths = np.fromiter(map(len, rows), dtype=np.int32, count=len(rows))
    ids: Ids = np.fromiter(chain.from_iterable(rows), dtype=np.int32, count=int(lengths.sum()))
    return ids, lengths


def _list_array(rows: Sequence[Sequence[int]]) -> Any:
    """Return rows of ids as an Arrow array of the column type.

    It is built from buffers, because `pyarrow.array` imports pandas (see `_view`).
    """
    import pyarrow as pa

    ids, lengths = as_rows(rows)
    offsets = np.zeros(len(rows) + 1, dtype=np.int32)
    np.cumsum(lengths, out=offsets[1:])
    values = pa.Array.from_buffers(pa.int32(), len(ids), [None, pa.py_buffer(ids)])
    return pa.Array.from_buffers(_schema().types[0], len(rows), [None, pa.py_buffer(offsets)], children=[values])
