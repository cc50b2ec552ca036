#!/usr/bin/env python3
"""How costs grow with the corpus and the run, on synthetic pairs with the lengths of WMT14.

    python scripts/bench_scale.py [--pairs 0.3M,3M,10M,20M] [--steps 5000] [--dir DIR]

- Encoding: 0.3M pairs of invented words through our path, from text to the cache, against the `tokenizers` library
  alone, which keeps nothing; slices of them alternately, every core.
- Corpora: for each size, a fresh process hashes the cache as `mtcli train` does when it starts, opens it, plans an
  epoch, or the first block of one, and takes its first steps; then it plans the next. The cache is written from random
  ids, without text, since encoding is measured already. Memory is the largest anonymous resident size (RssAnon,
  sampled), from before PyTorch is loaded to the last step; what is mapped from the file is not part of it.
- What larger corpora would take by the figures of the largest one here, if every cost but memory grows with the pairs;
  the start, by a line through all of them.
- Steps: one run of a toy model, whose step time and memory at the end are compared with those at step 100.

Prints tables and, as the last line, JSON. `ratio` is the encoding speed, ours to that of `tokenizers`. 20M pairs need
4.5 GB of disk.
"""

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
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

ENCODED = 300_000
SLICES = 5
VOCAB = 16_000
LARGER = {"WMT14 English-German": 4_500_000, "a billion pairs": 1_000_000_000}
FIGURES = (
    "pairs", "blocks", "bytes_per_pair", "start_s", "plan_s", "peak_rss_anon_mb", "loader_batches_per_s",
    "model_batches_per_s", "target_pieces_per_s",
)  # fmt: skip
WINDOWS = 20
"""Of a run, in each of which the median step time is taken; their slope is that of the run."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--pairs", default="0.3M,3M,10M,20M", help="sizes of the corpora")
    parser.add_argument("--steps", type=int, default=5000, help="of the run whose step time is to stay flat")
    parser.add_argument("--dir", type=Path, help="where to write; default: the system's temporary folder")
    args = parser.parse_args()
    sizes = [round(float(text.removesuffix("M")) * 1e6) for text in args.pairs.split(",")]
    with tempfile.TemporaryDirectory(dir=args.dir) as name:
        folder = Path(name)
        result: dict[str, Any] = in_a_process(measure_encoding, folder)
        print(f"encoding {result['encoded_pairs']:,} pairs of {result['pieces_per_side']:.1f} pieces a side, pairs/s:")
        print(f"  mtcli {result['mtcli_pairs_per_s']:,.0f}   tokenizers alone {result['tokenizers_pairs_per_s']:,.0f}")
        print(f"  ratio {result['ratio']:.2f}\n")
        result["corpora"] = []
        line = "{:>12} {:>7} {:>8} {:>9} {:>9} {:>11} {:>10} {:>9} {:>9}"
        heads = "pairs", "blocks", "B/pair", "start, s", "plan, s", "memory, MB", "loader/s", "model/s", "pieces/s"
        print(line.format(*heads))
        for size in sizes:
            cache = folder / "train.arrow"
            write_cache(cache, size)
            found = in_a_process(measure_corpus, cache)
            cache.unlink()
            result["corpora"].append(found)
            print(line.format(*(f"{found[name]:,.6g}" for name in FIGURES)))
        result["larger"] = {name: larger(pairs, result) for name, pairs in LARGER.items()}
        line = "{:<22}" + 5 * " {:>15}"
        print(
            "\n"
            + line.format("by these figures", "cache, GB", "encoding, h", "start, min", "planning, s", "epoch, days")
        )
        for name, figures in result["larger"].items():
            print(line.format(name, *(f"{value:,.3g}" for value in figures.values())))
        result["steps"] = in_a_process(measure_steps, folder, args.steps)
        steps = result["steps"]
        early, late, slope = steps["early_ms"], steps["late_ms"], steps["slope_percent_per_1000_steps"]
        print(f"\nstep time over {args.steps:,} steps: {early:.2f} ms at first, {late:.2f} ms at the end")
        print(f"  slope {slope:+.2f}% for 1,000 steps, memory {steps['growth_mb']:+.0f} MB")
    print(json.dumps(result))


def in_a_process(measure: Callable[..., dict[str, Any]], *args: Any) -> dict[str, Any]:
    """What a function returns in a process that has done nothing else."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(measure, args)


def lengths(n: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Pieces of the sources and of the targets: log-normal, the two sides alike; means 26 and 28."""
    src = random.lognormal(3.1, 0.55, n)
    return tuple(np.clip(side, 1, 250).astype(np.int32) for side in (src, src * random.lognormal(0.06, 0.2, n)))


# ---- encoding ----


def sentences(n: int) -> list[tuple[str, str]]:
    """Pairs of invented words, as frequent as words are (Zipf), each cut by the tokenizer into one or more pieces."""
    random = np.random.default_rng(1)
    syllables = np.array([a + b for a in "bdfghklmnprstvz" for b in ("a", "e", "i", "o", "u", "an", "er", "ist")])
    words = ["".join(random.choice(syllables, size)) for size in random.integers(1, 5, 60_000)]
    chances = 1 / np.arange(3, len(words) + 3)
    sides = []
    for pieces in lengths(n, random):
        drawn = random.choice(len(words), int(pieces.sum()), p=chances / chances.sum())
        ends = np.cumsum(np.maximum(1, pieces * 6 // 7))  # a word is some 1.2 pieces
        sides.append([" ".join(words[i] for i in drawn[a:b]) + "." for a, b in zip([0, *ends], ends, strict=False)])
    return list(zip(*sides, strict=True))


def measure_encoding(folder: Path) -> dict[str, Any]:
    from mtcli.data.encoded_pairs import EncodedPairs, encode_pairs
    from mtcli.data.lines import Counts
    from mtcli.data.tokenizer_training import train_tokenizer

    pairs = sentences(ENCODED)
    pieces = train_tokenizer(pairs[:50_000], vocab_size=VOCAB)
    path = folder / "tokenizer.json"
    pieces.save(path)
    from tokenizers import Tokenizer

    library, cache = Tokenizer.from_file(str(path)), folder / "slice.arrow"
    seconds: dict[str, list[float]] = {"mtcli": [], "tokenizers": []}
    pieces_seen = []
    n = ENCODED // SLICES
    for first in range(0, ENCODED, n):
        part = pairs[first : first + n]

        def alone(part: list[tuple[str, str]] = part) -> None:
            for side in zip(*part, strict=True):
                for start in range(0, n, 10_000):
                    library.encode_batch_fast(list(side[start : start + 10_000]), add_special_tokens=False)

        def ours(part: list[tuple[str, str]] = part) -> None:
            counts = Counts(read=n, used=n)
            encode_pairs(((0, pair) for pair in part), pieces, cache, max_length=1000, counts=counts)

        for name, work in (("tokenizers", alone), ("mtcli", ours)):
            started = time.perf_counter()
            work()
            seconds[name].append(time.perf_counter() - started)
        _, src, tgt = EncodedPairs(cache).lengths()
        pieces_seen.append((src.mean() + tgt.mean()) / 2)
    return {
        "encoded_pairs": ENCODED,
        "pieces_per_side": round(float(np.mean(pieces_seen)), 1),
        "mtcli_pairs_per_s": round(n / median(seconds["mtcli"])),
        "tokenizers_pairs_per_s": round(n / median(seconds["tokenizers"])),
        "ratio": round(median(b / a for a, b in zip(seconds["mtcli"], seconds["tokenizers"], strict=True)), 3),
    }


# ---- corpora ----


def write_cache(path: Path, size: int) -> None:
    """Random ids in the form that `mtcli.data.encoded_pairs.encode_pairs` writes."""
    import pyarrow as pa

    from mtcli.data.encoded_pairs import CHUNK_ROWS

    random, ids = np.random.default_rng(2), pa.list_(pa.int32())
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
    """RssAnon of this process, in MB, sampled from a thread."""

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
    memory, started = Memory(), time.perf_counter()

    from mtcli.config.schema import ModelConfig, TrainConfig
    from mtcli.data.batching import Batch, BatchPlan, Position, collate
    from mtcli.data.encoded_pairs import EncodedPairs
    from mtcli.data.tokenizer import PAD
    from mtcli.nn.loss import projected_loss
    from mtcli.nn.transformer import Transformer
    from mtcli.training.optimizer import build_optimizer

    with cache.open("rb") as file:
        hashlib.file_digest(file, "sha256")
    pairs = EncodedPairs(cache)
    plan = BatchPlan(pairs, 4096, 1, [(len(pairs), 1.0)])
    model = Transformer(ModelConfig(), VOCAB, VOCAB, joint=True)
    optimizer = build_optimizer(TrainConfig(), model.parameters())
    batches = plan.batches_from(Position())
    collate(pairs, next(batches).rows)
    start = time.perf_counter() - started

    def step(batch: Batch) -> None:
        real = batch.tgt_out != PAD
        hidden = model.decode(batch.tgt_in, *model.encode(batch.src))
        loss, _ = projected_loss(hidden[real], model.output.weight, batch.tgt_out[real], 0.1)
        (loss / batch.tokens).backward()
        optimizer.step()
        optimizer.zero_grad()

    loading, computing, speeds = [], [], []
    for _ in range(8):
        times = [time.perf_counter()]
        batch = collate(pairs, next(batches).rows)
        times.append(time.perf_counter())
        step(batch)
        times.append(time.perf_counter())
        loading.append(times[1] - times[0])
        computing.append(times[2] - times[1])
        speeds.append(batch.tokens / (times[2] - times[0]))
    started = time.perf_counter()
    following = next(plan.batches_from(Position(epoch=1)))  # plans it, or its first block
    planning = time.perf_counter() - started
    collate(pairs, following.rows)
    block = plan.block(1, 0)
    return {
        "pairs": len(pairs),
        "blocks": plan.blocks,
        "bytes_per_pair": round(cache.stat().st_size / len(pairs), 1),
        "target_pieces_per_pair": round(float(block.tgt_lengths.mean()) + 1, 1),
        "start_s": round(start, 2),
        "plan_s": round(planning, 2),
        "peak_rss_anon_mb": round(max(memory.samples)),
        "loader_batches_per_s": round(1 / median(loading), 1),
        "model_batches_per_s": round(1 / median(computing), 2),
        "target_pieces_per_s": round(median(speeds)),
    }


def larger(pairs: int, result: dict[str, Any]) -> dict[str, float]:
    """What so many pairs would take, in the order of the table."""
    known = result["corpora"][-1]
    sizes, starts = ([corpus[name] for corpus in result["corpora"]] for name in ("pairs", "start_s"))
    start = np.polyval(np.polyfit(sizes, starts, min(1, len(sizes) - 1)), pairs)
    return {
        "cache_gb": pairs * known["bytes_per_pair"] / 1e9,
        "encoding_h": pairs / result["mtcli_pairs_per_s"] / 3600,
        "start_min": round(float(start) / 60, 2),
        "planning_s_per_epoch": pairs / known["pairs"] * known["plan_s"] * known["blocks"],
        "epoch_days": pairs * known["target_pieces_per_pair"] / known["target_pieces_per_s"] / 86400,
    }


# ---- steps ----


def measure_steps(folder: Path, steps: int) -> dict[str, Any]:
    """Step time, from `metrics.jsonl`, of the first and the last fifth of a run, and the memory it gained since."""
    import torch

    from mtcli.config.build import build
    from mtcli.training.run import train

    logging.disable()
    torch.set_num_threads(1)
    corpus, one, run = folder / "toy.tsv", folder / "one.tsv", folder / "run"
    corpus.write_text("".join(f"{a}\t{b}\n" for a, b in sentences(10_000)))
    one.write_text("a\tb\n")
    sets = ["model.d_model=32", "model.d_ff=64", "model.num_encoder_layers=1", "model.num_decoder_layers=1"]
    sets += ["train.batch_tokens=512", "tokenizer.vocab_size=1000", f"train.max_steps={steps}"]
    sets += ["train.valid_every=1000000000", "train.save_every=1000000000"]  # which are no part of a step
    options = {"data.train": [str(corpus)], "data.valid": str(one), "data.test": str(one)}
    memory = Memory()
    train(build(None, options, sets), run, torch.device("cpu"))
    events = [json.loads(text) for text in (run / "metrics.jsonl").read_text().splitlines()]
    events = [event for event in events if event["event"] == "train" and event["step"] >= 100]
    taken = np.diff([event["seconds"] for event in events]) / np.diff([event["step"] for event in events])
    number = np.array([event["step"] for event in events[1:]]) / 1000
    fifth = max(1, len(taken) // 5)
    usual = float(np.median(taken))
    windows = np.array_split(np.arange(len(taken)), min(WINDOWS, len(taken)))
    medians = [np.median(taken[window]) / usual for window in windows]  # other work of the machine apart
    slope = np.polyfit([number[window].mean() for window in windows], medians, 1)[0]
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
