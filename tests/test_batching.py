import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import astuple
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import toy_pairs
from helpers.processes import no_hang
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mtcli.corpus import batching
from mtcli.corpus.batching import Batch, BatchPlan, Position, collate, plan_epoch
from mtcli.corpus.cache import encoded_pairs
from mtcli.corpus.cache.encoded_pairs import EncodedPairs, encode_pairs
from mtcli.errors import DataError
from mtcli.runtime.cores import iterate_ahead, prefetch_map
from mtcli.text.lines import Counts
from mtcli.text.special_tokens import BOS, EOS, PAD
from mtcli.text.tokenizer.learning import train_tokenizer
from mtcli.text.tokenizer.tokenizer import Tokenizer

PAIRS = toy_pairs(100)


@pytest.fixture(scope="module")
def toy() -> Tokenizer:
    return train_tokenizer(PAIRS, vocab_size=300)


def write(
    path: Path, toy: Tokenizer, pairs: list[tuple[str, str]], max_length: int = 256
) -> tuple[EncodedPairs, Counts]:
    counts = Counts(read=len(pairs), used=len(pairs))
    rows = encode_pairs(((i % 2, p) for i, p in enumerate(pairs)), toy, path, max_length=max_length, counts=counts)
    cache = EncodedPairs(path)
    assert rows.total() == len(cache) == counts.used
    assert counts.read == counts.used + sum(counts.skipped.values())
    return cache, counts


# ---- the cache ----


@pytest.mark.parametrize("chunk", [1, 7, 100, 20_000])
def test_ids_come_back_exactly_from_any_number_of_chunks(
    toy: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr(encoded_pairs, "CHUNK_ROWS", chunk)
    cache, counts = write(tmp_path / "c.arrow", toy, PAIRS)
    src, tgt = toy.encode_src([s for s, _ in PAIRS]), toy.encode_tgt([t for _, t in PAIRS])
    assert [(a.tolist(), b.tolist()) for a, b in (cache[i] for i in range(len(cache)))] == list(
        zip(src, tgt, strict=True)
    )
    rows, src_lengths, tgt_lengths = cache.lengths()
    assert rows.tolist() == list(range(len(PAIRS)))
    assert src_lengths.tolist() == [len(row) for row in src]
    assert tgt_lengths.tolist() == [len(row) for row in tgt]
    assert cache.longest_src == max(map(len, src))
    assert cache.chunks == -(-len(PAIRS) // chunk)
    last, *both = cache.lengths([cache.chunks - 1])
    assert last.tolist() == list(range(chunk * (cache.chunks - 1), len(PAIRS)))
    assert [side.tolist() for side in both] == [src_lengths[last].tolist(), tgt_lengths[last].tolist()]
    assert counts.skipped == {}
    assert list(tmp_path.iterdir()) == [tmp_path / "c.arrow"]
    rows = np.random.default_rng(chunk).integers(len(PAIRS), size=60, dtype=np.int32)  # in any order, some repeated
    for (ids, lengths), side in zip(cache.gather(rows), (src, tgt), strict=True):
        assert [row.tolist() for row in np.split(ids, lengths.cumsum())[:-1]] == [side[row] for row in rows]


@pytest.mark.parametrize("chunk", [1, 7, 20_000])
def test_a_pair_with_a_long_side_is_skipped_and_counted(
    toy: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr(encoded_pairs, "CHUNK_ROWS", chunk)  # of 1: some chunks are empty
    src, tgt = toy.encode_src([s for s, _ in PAIRS]), toy.encode_tgt([t for _, t in PAIRS])
    most = sorted(max(len(a), len(b)) for a, b in zip(src, tgt, strict=True))[50]
    kept = [(a, b) for a, b in zip(src, tgt, strict=True) if max(len(a), len(b)) <= most]
    cache, counts = write(tmp_path / "c.arrow", toy, PAIRS, most)
    assert 0 < len(kept) < 100
    assert [(a.tolist(), b.tolist()) for a, b in (cache[i] for i in range(len(cache)))] == kept
    assert counts.skipped == {f"longer than {most} tokens": 100 - len(kept)}


@pytest.mark.parametrize("long_side", [0, 1])
def test_the_maximum_length_is_that_of_each_side(toy: Tokenizer, tmp_path: Path, long_side: int) -> None:
    pair = ["red", "red"]
    pair[long_side] *= 50
    cache, counts = write(tmp_path / "c.arrow", toy, [PAIRS[0], (pair[0], pair[1])], 49)
    assert len(cache) == 1
    assert counts.skipped == {"longer than 49 tokens": 1}


def test_encoding_counts_rows_by_corpus(toy: Tokenizer, tmp_path: Path) -> None:
    long = ("red " * 300, "red")
    pairs = [(0, PAIRS[0]), (2, PAIRS[1]), (0, long), (2, PAIRS[2]), (1, long)]
    counts = Counts(read=5, used=5)
    rows = encode_pairs(iter(pairs), toy, tmp_path / "c", max_length=100, counts=counts)
    assert rows == {0: 1, 2: 2}
    assert rows[1] == 0


def test_the_cache_needs_no_pandas(toy: Tokenizer, tmp_path: Path) -> None:
    toy.save(tmp_path / "tokenizer.json")
    code = f"""
import sys
from pathlib import Path
from mtcli.corpus.cache.encoded_pairs import EncodedPairs, encode_pairs
from mtcli.text.lines import Counts
from mtcli.text.tokenizer.tokenizer import Tokenizer
folder = Path({str(tmp_path)!r})
tokenizer = Tokenizer.load(folder / "tokenizer.json")
encode_pairs([(0, ("red", "blue"))], tokenizer, folder / "c", max_length=9, counts=Counts(read=1, used=1))
assert len(EncodedPairs(folder / "c")[0]) == 2
print("pandas" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "False\n"), done.stderr


@pytest.mark.parametrize("pairs", [[], [("red " * 300, "red")] * 3])
def test_a_cache_may_be_empty(toy: Tokenizer, tmp_path: Path, pairs: list[tuple[str, str]]) -> None:
    cache, _ = write(tmp_path / "c.arrow", toy, pairs, 100)
    assert [len(cache), cache.longest_src, *map(len, cache.lengths())] == [0] * 5


def test_a_damaged_cache_is_a_data_error(toy: Tokenizer, tmp_path: Path) -> None:
    import pyarrow as pa

    path = tmp_path / "c.arrow"
    write(path, toy, PAIRS)
    whole = path.read_bytes()
    other = pa.BufferOutputStream()
    table = pa.table({"x": [1, 2]})
    with pa.ipc.new_file(other, table.schema) as writer:
        writer.write_table(table)
    ids = encoded_pairs._schema().types[0]
    nulls = pa.BufferOutputStream()
    with pa.ipc.new_file(nulls, encoded_pairs._schema()) as writer:
        writer.write_batch(
            pa.record_batch([pa.array([[1, None]], ids), pa.array([[1, 2]], ids)], schema=encoded_pairs._schema())
        )
    compressed = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    batch = pa.ipc.open_file(whole).get_batch(0)
    with pa.ipc.new_file(compressed, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    damaged = [b"", whole[:-1], whole[: len(whole) // 2], b"no Arrow"]
    for content in (*damaged, *(stream.getvalue().to_pybytes() for stream in (other, nulls, compressed))):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"c\.arrow: not a readable cache"):
            EncodedPairs(path)
    path.unlink()
    with pytest.raises(DataError, match=r"c\.arrow: not a readable cache"):
        EncodedPairs(path)


def test_nothing_appears_where_encoding_fails(toy: Tokenizer, tmp_path: Path) -> None:
    def breaking():
        yield 0, PAIRS[0]
        raise DataError("line 2")

    path = tmp_path / "c.arrow"
    path.write_bytes(b"before")
    with pytest.raises(DataError, match="line 2"):
        encode_pairs(breaking(), toy, path, max_length=100, counts=Counts(read=1, used=1))
    assert path.read_bytes() == b"before"


# ---- the plan ----

LENGTHS = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=120)


def arrays(lengths: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    return tuple(np.array([pair[i] for pair in lengths], dtype=np.int32) for i in (0, 1))  # type: ignore[return-value]


def listed(batches: list[np.ndarray]) -> list[list[int]]:
    return [batch.tolist() for batch in batches]


@given(lengths=LENGTHS, batch_tokens=st.integers(1, 300), seed=st.integers(0, 2**32), epoch=st.integers(0, 99))
@settings(max_examples=150, deadline=None)
def test_every_row_once_in_batches_that_fit(
    lengths: list[tuple[int, int]], batch_tokens: int, seed: int, epoch: int
) -> None:
    src, tgt = arrays(lengths)
    for key in ((seed, epoch), None):
        batches = plan_epoch(src, tgt, batch_tokens=batch_tokens, key=key)
        assert sorted(np.concatenate(batches).tolist()) == list(range(len(lengths)))
        for rows in batches:
            assert len(rows) == 1 or len(rows) * (max(src[rows].max(), tgt[rows].max()) + 1) <= batch_tokens
        assert listed(batches) == listed(plan_epoch(src, tgt, batch_tokens=batch_tokens, key=key))
        weights = [(len(lengths) // 2, 1.0), (len(lengths) - len(lengths) // 2, 1.0)]
        weighted = plan_epoch(src, tgt, batch_tokens=batch_tokens, key=key, weights=weights)
        assert listed(weighted) == listed(batches)


@given(lengths=LENGTHS, batch_tokens=st.integers(1, 300))
@settings(max_examples=50, deadline=None)
def test_batches_are_as_full_as_they_can_be(lengths: list[tuple[int, int]], batch_tokens: int) -> None:
    src, tgt = arrays(lengths)
    batches = plan_epoch(src, tgt, batch_tokens=batch_tokens, key=None)
    width = np.maximum(src, tgt) + 1
    for rows, following in pairwise(batches):
        assert (len(rows) + 1) * width[following[0]] > batch_tokens


def synthetic(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Lengths like those of real pairs: log-normal, the target close to the source."""
    rng = np.random.default_rng(seed)
    src = rng.lognormal(2.8, 0.6, n)
    tgt = src * rng.lognormal(0.05, 0.2, n)
    return tuple(np.clip(side, 1, 256).astype(np.int32) for side in (src, tgt))  # type: ignore[return-value]


def test_epochs_and_seeds_differ_and_without_a_key_nothing_is_random() -> None:
    src, tgt = synthetic(2000)
    plans = {key: listed(plan_epoch(src, tgt, batch_tokens=1000, key=key)) for key in ((1, 0), (1, 1), (2, 0))}
    assert plans[1, 0] != plans[1, 1]
    assert plans[1, 0] != plans[2, 0]
    assert {tuple(sorted(b)) for b in plans[1, 0]} != {tuple(sorted(b)) for b in plans[1, 1]}  # other batch mates too
    plain = plan_epoch(src, tgt, batch_tokens=1000, key=None)
    widest = [int(np.maximum(src, tgt)[rows].max()) for rows in plain]
    assert widest == sorted(widest)
    random_widest = [int(np.maximum(src, tgt)[rows].max()) for rows in plans[1, 0]]
    assert abs(np.corrcoef(random_widest, range(len(random_widest)))[0, 1]) < 0.3


def test_batches_have_little_padding() -> None:
    src, tgt = synthetic(20_000)
    batches = plan_epoch(src, tgt, batch_tokens=4096, key=(1, 0))
    real = int(src.sum() + tgt.sum()) + 2 * len(src)
    padded = sum(len(rows) * (int(src[rows].max()) + int(tgt[rows].max()) + 2) for rows in batches)
    assert 1 - real / padded < 0.12
    assert len(batches) < 1.05 * int((np.maximum(src, tgt) + 1).sum()) / 4096


def test_no_epoch_is_empty_however_small_the_weights() -> None:
    lengths = np.arange(1, 41, dtype=np.int32)
    drawn = Counter[int]()
    for epoch in range(400):
        batches = plan_epoch(lengths, lengths, batch_tokens=500, key=(3, epoch), weights=[(30, 0.03), (10, 0.01)])
        rows = np.concatenate(batches)
        assert len(rows)
        drawn.update(rows.tolist())
    assert len(drawn) == 40


def test_a_weight_is_the_average_number_of_copies_of_a_row() -> None:
    src, tgt = synthetic(1000)
    weights = [(400, 1.0), (300, 2.5), (300, 0.25)]
    total = Counter[int]()
    for epoch in range(20):
        count = Counter(
            np.concatenate(plan_epoch(src, tgt, batch_tokens=500, key=(3, epoch), weights=weights)).tolist()
        )
        assert all(count[row] == 1 for row in range(400))
        assert all(count[row] in (2, 3) for row in range(400, 700))
        assert all(count[row] in (0, 1) for row in range(700, 1000))
        total.update(count)
    assert sum(total[row] for row in range(400, 700)) / 6000 == pytest.approx(2.5, abs=0.05)
    assert sum(total[row] for row in range(700, 1000)) / 6000 == pytest.approx(0.25, abs=0.05)


def test_planning_a_million_pairs() -> None:
    src, tgt = synthetic(1_000_000)
    with no_hang():
        batches = plan_epoch(src, tgt, batch_tokens=4096, key=(1, 0))
    assert sum(map(len, batches)) == 1_000_000


# ---- blocks and the position ----


@pytest.fixture(scope="module")
def cache(toy: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> EncodedPairs:
    """100 pairs in chunks of 7."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encoded_pairs, "CHUNK_ROWS", 7)
        return write(tmp_path_factory.mktemp("cache") / "c.arrow", toy, PAIRS)[0]


def plan_of(cache: EncodedPairs, batch_tokens: int, block: int = batching.BLOCK_ROWS, weight: float = 1.0) -> BatchPlan:
    """A plan in blocks of so many pairs, at most but for the size of a chunk."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batching, "BLOCK_ROWS", block)
        return BatchPlan(cache, batch_tokens, 5, [(40, 1.0), (len(cache) - 40, weight)])


def drawn(plan: BatchPlan, n: int, *position: int) -> list[tuple[list[int], int, Position]]:
    batches = islice(plan.batches_from(Position(*position)), n)
    return [(planned.rows.tolist(), planned.tokens, planned.after) for planned in batches]


BLOCKS = st.sampled_from([20, 34, 50, 99, 100, batching.BLOCK_ROWS])
WEIGHTS = st.sampled_from([1.0, 0.3, 1.7])


@given(batch_tokens=st.integers(20, 2000), block=BLOCKS, weight=WEIGHTS, start=st.integers(0, 60))
@settings(max_examples=40, deadline=None)
def test_batches_from_any_position_are_the_tail_of_all_batches(
    cache: EncodedPairs, batch_tokens: int, block: int, weight: float, start: int
) -> None:
    def fresh() -> BatchPlan:
        return plan_of(cache, batch_tokens, block, weight)

    whole = drawn(fresh(), start + 15)
    position = astuple(whole[start - 1][2]) if start else ()
    assert drawn(fresh(), 15, *position) == whole[start:]
    once = fresh()  # a plan that has already moved elsewhere draws the same
    drawn(once, 1, 7)
    assert drawn(once, 1, *position) == whole[start : start + 1]


@given(batch_tokens=st.integers(20, 2000), block=BLOCKS, epoch=st.integers(0, 3))
@settings(max_examples=30, deadline=None)
def test_the_blocks_of_an_epoch_hold_every_pair_once_and_none_is_too_large(
    cache: EncodedPairs, batch_tokens: int, block: int, epoch: int
) -> None:
    plan = plan_of(cache, batch_tokens, block)
    assert plan.blocks == -(-len(cache) // block)
    blocks = [plan.block(epoch, number) for number in range(plan.blocks)]
    assert sorted(np.concatenate([part.rows for part in blocks]).tolist()) == list(range(len(cache)))
    assert all(len(part.rows) < block + 7 for part in blocks)
    batches = [part.rows[batch].tolist() for part in blocks for batch in part.batches]
    assert [rows for rows, *_ in drawn(plan, len(batches), epoch)] == batches
    assert sorted(row for batch in batches for row in batch) == list(range(len(cache)))
    assert drawn(plan, len(batches), epoch)[-1][2] == Position(epoch + 1)
    assert drawn(plan, 1, epoch, plan.blocks - 1, len(blocks[-1].batches)) == drawn(plan, 1, epoch + 1)


def test_a_corpus_of_one_block_is_planned_as_a_whole(cache: EncodedPairs) -> None:
    _, *lengths = cache.lengths()
    for weight in (1.0, 1.7):
        plan = plan_of(cache, 300, 100, weight)
        for epoch in (0, 3):
            weights = [(40, 1.0), (60, weight)]
            whole = plan_epoch(*lengths, batch_tokens=300, key=(5, epoch), weights=weights)
            assert [rows for rows, *_ in drawn(plan, len(whole), epoch)] == listed(whole)


def test_every_epoch_has_other_blocks_in_random_order(cache: EncodedPairs) -> None:
    plan = plan_of(cache, 60, 50)
    blocks = [plan.block(epoch, number) for epoch in (0, 1) for number in (0, 1)]
    assert len({tuple(part.rows.tolist()) for part in blocks}) == 4
    assert all(0 < np.count_nonzero(part.rows < 50) < 50 for part in blocks)  # each from the whole corpus
    assert len({tuple(map(len, part.batches)) for part in blocks}) == 4


@pytest.mark.parametrize("block", [30, batching.BLOCK_ROWS])
def test_each_corpus_has_its_share_of_the_epochs(cache: EncodedPairs, block: int) -> None:
    """The first 40 rows once; the other 60 so many times on average that theirs is rows × weight of the sum."""
    for weight in (2.5, 0.4):
        plan, count = plan_of(cache, 300, block, weight), Counter[int]()
        for epoch in range(40):
            for number in range(plan.blocks):
                part = plan.block(epoch, number)
                count.update(row for batch in part.batches for row in part.rows[batch].tolist())
        assert all(count[row] == 40 for row in range(40))
        share = sum(count[row] for row in range(40, 100)) / count.total()
        assert share == pytest.approx(60 * weight / (40 + 60 * weight), abs=0.02)
        assert all(abs(count[row] / 40 - weight) < 0.4 for row in range(40, 100))


# ---- one batch ----


def tensors_of(batch: Batch) -> list[Tensor]:
    return [batch.src, batch.tgt_in, batch.target, batch.target_index]


@given(st.lists(st.tuples(*[st.lists(st.integers(3, 90), min_size=1, max_size=9)] * 2), min_size=1, max_size=6))
@settings(max_examples=60, deadline=None)
def test_the_tensors_of_a_batch(rows: list[tuple[list[int], list[int]]]) -> None:
    batch = Batch.of([src for src, _ in rows], [tgt for _, tgt in rows])
    longest_src, longest_tgt = (max(len(pair[i]) for pair in rows) for i in (0, 1))
    assert batch.src.shape == (len(rows), longest_src + 1)
    assert batch.tgt_in.shape == (len(rows), longest_tgt + 1)
    assert {x.dtype for x in tensors_of(batch)} == {torch.int64}
    tgt_out = torch.full(batch.tgt_in.shape, PAD)
    tgt_out.view(-1)[batch.target_index] = batch.target
    for i, (src, tgt) in enumerate(rows):
        assert batch.src[i].tolist() == [*src, EOS] + [PAD] * (longest_src - len(src))
        assert batch.tgt_in[i].tolist() == [BOS, *tgt] + [PAD] * (longest_tgt - len(tgt))
        assert tgt_out[i].tolist() == [*tgt, EOS] + [PAD] * (longest_tgt - len(tgt))
    assert batch.tokens == len(batch.target_index) == sum(len(tgt) + 1 for _, tgt in rows)
    assert batch.at_targets(tgt_out[:, :, None]).flatten().tolist() == batch.target.tolist()
    assert batch.to(torch.device("cpu")) is batch


def test_collate_reads_the_cache_and_the_plan_knows_the_token_counts(cache: EncodedPairs) -> None:
    first = plan_of(cache, 300).block(0, 0)
    assert first.rows.tolist() == list(range(len(cache)))
    for rows in first.batches:
        batch = collate(cache, rows)
        expected = Batch.of([cache[r][0].tolist() for r in rows], [cache[r][1].tolist() for r in rows])
        for tensor, wanted in zip(tensors_of(batch), tensors_of(expected), strict=True):
            assert torch.equal(tensor, wanted)
        assert first.tokens(rows) == batch.tokens
        assert batch.src.numel() <= 300 or len(rows) == 1
        assert batch.tgt_in.numel() <= 300 or len(rows) == 1


# ---- prefetching ----


def test_prefetching_keeps_the_order_of_the_items() -> None:
    def slow_when_even(i: int) -> int:
        time.sleep(0.02 * (i % 2 == 0))
        return i * i

    for workers in (1, 2, 5):
        assert list(prefetch_map(slow_when_even, range(9), workers=workers)) == [i * i for i in range(9)]
    assert list(prefetch_map(slow_when_even, [])) == []


def test_prefetching_takes_few_items_in_advance_and_raises_in_order() -> None:
    drawn = []

    def items():
        for i in range(100):
            drawn.append(i)
            yield i

    results = prefetch_map(lambda i: 10 // (3 - i), items(), workers=2)
    assert [next(results) for _ in range(3)] == [3, 5, 10]
    assert len(drawn) <= 6
    with pytest.raises(ZeroDivisionError):
        next(results)


def test_prefetching_yields_the_results_before_a_failed_item() -> None:
    results = prefetch_map(lambda i: 10 // i, (60 // i for i in (3, 2, 1, 0)), workers=2)
    assert [next(results) for _ in range(3)] == [0, 0, 0]
    with pytest.raises(ZeroDivisionError):
        next(results)


def test_iterating_ahead_takes_few_items_in_advance_and_raises_in_order() -> None:
    drawn = []

    def items():
        for i in range(6, -1, -1):
            drawn.append(i)
            yield 60 // i

    for number in range(7):
        drawn.clear()
        threads = threading.active_count()
        results = iterate_ahead(items(), ahead=2)
        assert [next(results) for _ in range(number)] == [10, 12, 15, 20, 30, 60][:number]
        assert len(drawn) <= number + 2
        if number == 6:
            with pytest.raises(ZeroDivisionError):
                next(results)
        results.close()
        assert threading.active_count() == threads
    assert list(iterate_ahead(range(5), ahead=3)) == [*range(5)]
    assert list(iterate_ahead([], ahead=3)) == []
