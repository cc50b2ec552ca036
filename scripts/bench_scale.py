#!/usr/bin/env python3
"""How costs grow with the corpus and with the run, on synthetic pairs with the sentence lengths of WMT14.

    python scripts/bench_scale.py [--pairs 0.3M,3M,10M,20M] [--steps 5000] [--dir DIR]

- Encoding: 0.3M pairs of invented words, from text to the cache on disk, against the `tokenizers` library alone, which
  writes nothing. Both use all cores and encode slices of the pairs alternately.
- Corpora: for each size, a new process does what `mtcli train` does when it starts: it hashes and opens the cache,
  plans an epoch (of a large corpus, its first block) and takes some steps. Then it plans the next epoch. The cache has
  random ids without text, because encoding is measured above. Memory is the peak of the anonymous resident size
  (RssAnon) from before PyTorch is loaded until the last step; pages that are mapped from the file do not count.
- Estimates for larger corpora, from the figures of the largest corpus: all costs except memory grow in proportion to
  the pairs; the time to start is extrapolated by a line through all sizes.
- Steps: one run of a tiny model. Its step time and memory at the end are compared with those at step 100.

The script prints tables and, as the last line, JSON. `ratio` is our encoding speed relative to that of `tokenizers`.
20M pairs need 4.5 GB of disk.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import multiprocessing
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from mtcli.corpus.batching import Batch, PlannedBatch
    from mtcli.corpus.cache.encoded_pairs import EncodedPairs

ENCODED_PAIRS = 300_000
SLICES = 5
"""Slices of these pairs, which both sides encode alternately."""
MEASURED_STEPS = 8
"""Steps with each corpus."""
VOCAB = 16_000
LARGER = {"WMT14 English-German": 4_500_000, "a billion pairs": 1_000_000_000}
FIGURES = (
    "pairs", "blocks", "bytes_per_pair", "start_s", "plan_s", "peak_rss_anon_mb", "loader_batches_per_s",
    "model_batches_per_s", "target_tokens_per_s",
)  # fmt: skip
WINDOWS = 20
"""A run is divided into this many windows. The slope is that of a line through their median step times."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--pairs", default="0.3M,3M,10M,20M", help="sizes of the corpora")
    parser.add_argument("--steps", type=int, default=5000, help="steps of the run that measures the step time")
    parser.add_argument("--dir", type=Path, help="folder for the files; default: the temporary folder of the system")
    args = parser.parse_args()
    sizes = [round(float(text.removesuffix("M")) * 1e6) for text in args.pairs.split(",")]
    with tempfile.TemporaryDirectory(dir=args.dir) as name:
        folder = Path(name)
        result: dict[str, Any] = in_new_process(measure_encoding, folder)
        print_encoding(result)
        result["corpora"] = measure_corpora(sizes, folder)
        result["larger"] = {name: estimate(pairs, result) for name, pairs in LARGER.items()}
        print_estimates(result["larger"])
        result["steps"] = in_new_process(measure_steps, folder, args.steps)
        print_steps(result["steps"], args.steps)
    print(json.dumps(result))


def print_encoding(result: dict[str, Any]) -> None:
    print(f"encoding {result['encoded_pairs']:,} pairs of {result['tokens_per_side']:.1f} tokens per side, pairs/s:")
    print(f"  mtcli {result['mtcli_pairs_per_s']:,.0f}   tokenizers alone {result['tokenizers_pairs_per_s']:,.0f}")
    print(f"  ratio {result['ratio']:.2f}\n")


def measure_corpora(sizes: list[int], folder: Path) -> list[dict[str, Any]]:
    """Measure a corpus of each size, and print the figures as a table."""
    row = "{:>12} {:>7} {:>8} {:>9} {:>9} {:>11} {:>10} {:>9} {:>9}"
    print(
        row.format("pairs", "blocks", "B/pair", "start, s", "plan, s", "memory, MB", "loader/s", "model/s", "tokens/s")
    )
    corpora = []
    for size in sizes:
        cache = folder / "train.arrow"
        write_cache(cache, size)
        figures = in_new_process(measure_corpus, cache)
        cache.unlink()
        corpora.append(figures)
        print(row.format(*(f"{figures[name]:,.6g}" for name in FIGURES)))
    return corpora


def print_estimates(estimates: dict[str, dict[str, float]]) -> None:
    row = "{:<22}" + 5 * " {:>15}"
    print()
    print(row.format("estimates", "cache, GB", "encoding, h", "start, min", "planning, s", "epoch, days"))
    for name, figures in estimates.items():
        print(row.format(name, *(f"{value:,.3g}" for value in figures.values())))


def print_steps(figures: dict[str, Any], steps: int) -> None:
    print(
        f"\nstep time over {steps:,} steps: {figures['early_ms']:.2f} ms early, {figures['late_ms']:.2f} ms at the end"
    )
    slope = figures["slope_percent_per_1000_steps"]
    print(f"  slope {slope:+.2f}% per 1,000 steps, memory {figures['growth_mb']:+.0f} MB")


def in_new_process(measure: Callable[..., dict[str, Any]], *args: Any) -> dict[str, Any]:
    """Call a function in a new process, and return its result."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(measure, args)


def lengths(n: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw the numbers of tokens of `n` sources and targets: log-normal, correlated, with means 26 and 28."""
    src = random.lognormal(3.1, 0.55, n)
    tgt = src * random.lognormal(0.06, 0.2, n)
    return np.clip(src, 1, 250).astype(np.int32), np.clip(tgt, 1, 250).astype(np.int32)


# ---- encoding ----


def sentences(n: int) -> list[tuple[str, str]]:
    """Draw pairs of sentences of invented words, whose frequencies follow Zipf's law."""
    random = np.random.default_rng(1)
    syllables = np.array([a + b for a in "bdfghklmnprstvz" for b in ("a", "e", "i", "o", "u", "an", "er", "ist")])
    words = ["".join(random.choice(syllables, size)) for size in random.integers(1, 5, 60_000)]
    chances = 1 / np.arange(3, len(words) + 3)
    sides = []
    for num_tokens in lengths(n, random):
        drawn = random.choice(len(words), int(num_tokens.sum()), p=chances / chances.sum())
        ends = np.cumsum(np.maximum(1, num_tokens * 6 // 7))  # a word has about 1.2 tokens
        starts = [0, *ends[:-1]]
        sides.append(
            [" ".join(words[i] for i in drawn[start:end]) + "." for start, end in zip(starts, ends, strict=True)]
        )
    return list(zip(*sides, strict=True))


def measure_encoding(folder: Path) -> dict[str, Any]:
    """Measure the encoding speed of mtcli and of `tokenizers` alone."""
    from mtcli.corpus.cache.encoded_pairs import EncodedPairs, encode_pairs
    from mtcli.text.lines import Counts
    from mtcli.text.tokenizer.learning import train_tokenizer

    pairs = sentences(ENCODED_PAIRS)
    tokenizer = train_tokenizer(pairs[:50_000], vocab_size=VOCAB)
    path = folder / "tokenizer.json"
    tokenizer.save(path)
    from tokenizers import Tokenizer

    library = Tokenizer.from_file(str(path))
    cache = folder / "slice.arrow"
    seconds: dict[str, list[float]] = {"mtcli": [], "tokenizers": []}
    tokens_per_side = []
    n = ENCODED_PAIRS // SLICES
    for first in range(0, ENCODED_PAIRS, n):
        part = pairs[first : first + n]

        def encode_with_tokenizers(part: list[tuple[str, str]] = part) -> None:
            for side in zip(*part, strict=True):
                for start in range(0, n, 10_000):
                    library.encode_batch_fast(list(side[start : start + 10_000]), add_special_tokens=False)

        def encode_with_mtcli(part: list[tuple[str, str]] = part) -> None:
            counts = Counts(read=n, used=n)
            encode_pairs(((0, pair) for pair in part), tokenizer, cache, max_length=1000, counts=counts)

        for name, work in (("tokenizers", encode_with_tokenizers), ("mtcli", encode_with_mtcli)):
            started = time.perf_counter()
            work()
            seconds[name].append(time.perf_counter() - started)
        _, src, tgt = EncodedPairs(cache).lengths()
        tokens_per_side.append((src.mean() + tgt.mean()) / 2)
    ratios = [theirs / ours for ours, theirs in zip(seconds["mtcli"], seconds["tokenizers"], strict=True)]
    return {
        "encoded_pairs": ENCODED_PAIRS,
        "tokens_per_side": round(float(np.mean(tokens_per_side)), 1),
        "mtcli_pairs_per_s": round(n / median(seconds["mtcli"])),
        "tokenizers_pairs_per_s": round(n / median(seconds["tokenizers"])),
        "ratio": round(median(ratios), 3),
    }


# ---- corpora ----


def write_cache(path: Path, size: int) -> None:
    """Write random ids in the format that `mtcli.corpus.cache.encoded_pairs.encode_pairs` writes."""
    import pyarrow as pa

    from mtcli.corpus.cache.encoded_pairs import CHUNK_ROWS

    random = np.random.default_rng(2)
    ids = pa.list_(pa.int32())
    schema = pa.schema([("src", ids), ("tgt", ids)])
    with path.open("wb") as file, pa.ipc.new_file(file, schema) as writer:
        for first in range(0, size, CHUNK_ROWS):
            columns = []
            for side in lengths(min(CHUNK_ROWS, size - first), random):
                offsets = np.concatenate([[0], np.cumsum(side)]).astype(np.int32)
                values = random.integers(259, VOCAB, offsets[-1], dtype=np.int32)
                columns.append(pa.ListArray.from_arrays(pa.array(offsets), pa.array(values)))
            writer.write_batch(pa.record_batch(columns, schema=schema))


class Memory:
    """The anonymous resident memory (RssAnon) of this process in MB, sampled by a thread."""

    def __init__(self) -> None:
        self.samples = [self.now()]
        threading.Thread(target=self._sample, daemon=True).start()

    def now(self) -> float:
        if not sys.platform.startswith("linux"):
            return float("nan")
        text = Path("/proc/self/status").read_text()
        return int(text.partition("RssAnon:")[2].split()[0]) / 1024

    def _sample(self) -> None:
        while True:
            self.samples.append(self.now())
            time.sleep(0.01)


def measure_corpus(cache: Path) -> dict[str, Any]:
    """Measure the start of a training with this cache, its first steps and the planning of the next epoch."""
    memory = Memory()
    started = time.perf_counter()

    from mtcli.corpus.batching import BatchPlan, Position, collate
    from mtcli.corpus.cache.encoded_pairs import EncodedPairs

    with cache.open("rb") as file:
        hashlib.file_digest(file, "sha256")
    pairs = EncodedPairs(cache)
    plan = BatchPlan(pairs, 4096, 1, [(len(pairs), 1.0)])
    step = make_step()
    batches = plan.batches_from(Position())
    collate(pairs, next(batches).rows)
    start = time.perf_counter() - started
    speeds = measure_speeds(pairs, batches, step)
    started = time.perf_counter()
    following = next(plan.batches_from(Position(epoch=1)))  # plans the epoch, or its first block
    planning = time.perf_counter() - started
    collate(pairs, following.rows)
    block = plan.block(1, 0)
    return {
        "pairs": len(pairs),
        "blocks": plan.blocks,
        "bytes_per_pair": round(cache.stat().st_size / len(pairs), 1),
        "target_tokens_per_pair": round(float(block.tgt_lengths.mean()) + 1, 1),
        "start_s": round(start, 2),
        "plan_s": round(planning, 2),
        "peak_rss_anon_mb": round(max(memory.samples)),
        **speeds,
    }


def make_step() -> Callable[[Batch], None]:
    """Return a function that takes one optimizer step of a model with the default settings on a batch."""
    import torch

    from mtcli.config.schema import ModelConfig, TrainConfig
    from mtcli.model.loss import projected_loss
    from mtcli.model.transformer import Transformer
    from mtcli.training.optimizer import Adam

    model = Transformer(ModelConfig(), VOCAB, VOCAB, joint=True)
    optimizer = Adam(TrainConfig(), model.named_parameters())

    def step(batch: Batch) -> None:
        hidden = batch.at_targets(model.decode(batch.tgt_in, *model.encode(batch.src)))
        loss, _ = projected_loss(hidden, model.output.weight, batch.target, 0.1)
        gradients = torch.autograd.grad(loss / batch.tokens, optimizer.parameters)
        optimizer.step(gradients, learning_rate=3e-3)

    return step


def measure_speeds(
    pairs: EncodedPairs, batches: Iterator[PlannedBatch], step: Callable[[Batch], None]
) -> dict[str, float]:
    """Take some steps, and return the speed of loading batches, of the model and of both together."""
    from mtcli.corpus.batching import collate

    loading = []
    computing = []
    speeds = []
    for _ in range(MEASURED_STEPS):
        began = time.perf_counter()
        batch = collate(pairs, next(batches).rows)
        loaded = time.perf_counter()
        step(batch)
        ended = time.perf_counter()
        loading.append(loaded - began)
        computing.append(ended - loaded)
        speeds.append(batch.tokens / (ended - began))
    return {
        "loader_batches_per_s": round(1 / median(loading), 1),
        "model_batches_per_s": round(1 / median(computing), 2),
        "target_tokens_per_s": round(median(speeds)),
    }


def estimate(pairs: int, result: dict[str, Any]) -> dict[str, float]:
    """Extrapolate the costs to a number of pairs, in the order of the table."""
    known = result["corpora"][-1]
    sizes, starts = ([corpus[name] for corpus in result["corpora"]] for name in ("pairs", "start_s"))
    start = np.polyval(np.polyfit(sizes, starts, min(1, len(sizes) - 1)), pairs)
    return {
        "cache_gb": pairs * known["bytes_per_pair"] / 1e9,
        "encoding_h": pairs / result["mtcli_pairs_per_s"] / 3600,
        "start_min": round(float(start) / 60, 2),
        "planning_s_per_epoch": pairs / known["pairs"] * known["plan_s"] * known["blocks"],
        "epoch_days": pairs * known["target_tokens_per_pair"] / known["target_tokens_per_s"] / 86400,
    }


# ---- steps ----


def measure_steps(folder: Path, steps: int) -> dict[str, Any]:
    """Measure the step time in the first and the last fifth of a run, and the growth of its memory."""
    import torch

    from mtcli.config.build import build
    from mtcli.training.run import train

    logging.disable()
    torch.set_num_threads(1)
    corpus = folder / "toy.tsv"
    one = folder / "one.tsv"
    run = folder / "run"
    corpus.write_text("".join(f"{a}\t{b}\n" for a, b in sentences(10_000)))
    one.write_text("a\tb\n")
    sets = ["model.d_model=32", "model.d_ff=64", "model.num_encoder_layers=1", "model.num_decoder_layers=1"]
    sets += ["train.batch_tokens=512", "tokenizer.vocab_size=1000", f"train.max_steps={steps}"]
    sets += ["train.valid_every=1000000000", "train.save_every=1000000000"]  # not measured
    options = {"data.train": [str(corpus)], "data.valid": str(one), "data.test": str(one)}
    memory = Memory()
    train(build(None, options, sets), run, torch.device("cpu"))
    events = [json.loads(text) for text in (run / "metrics.jsonl").read_text().splitlines()]
    events = [event for event in events if event["event"] == "train" and event["step"] >= 100]
    taken = np.diff([event["seconds"] for event in events]) / np.diff([event["step"] for event in events])
    thousands = np.array([event["step"] for event in events[1:]]) / 1000
    fifth = max(1, len(taken) // 5)
    usual = float(np.median(taken))
    windows = np.array_split(np.arange(len(taken)), min(WINDOWS, len(taken)))
    medians = [
        np.median(taken[window]) / usual for window in windows
    ]  # less sensitive to other programs than single steps
    slope = np.polyfit([thousands[window].mean() for window in windows], medians, 1)[0]
    late = memory.samples[-len(memory.samples) * 4 // 5 :]
    return {
        "early_ms": round(1e3 * float(np.median(taken[:fifth])), 3),
        "late_ms": round(1e3 * float(np.median(taken[-fifth:])), 3),
        "slope_percent_per_1000_steps": round(100 * float(slope), 3),
        "growth_mb": round(max(late) - late[0], 1),
    }


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    main()
