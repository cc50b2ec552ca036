#!/usr/bin/env python3
"""What one GPU reaches: its limits, attention kernels, the parts of a training step, training and decoding.

    python scripts/bench_gpu.py [--only PART]

The text is synthetic: random tokens, with sentences as long as those of news text. The parts are

- `limits`: bandwidth of copies, and matrix products in bf16, TF32 and float32;
- `attention`: PyTorch's attention kernels on batches of 25,000 tokens, forward and backward;
- `step`: the parts of one training step of base, each with a wait for the GPU around it, so that their sum is more than
  the step takes in training;
- `training`: target tokens per second of base and big with batches of 25,000 tokens, as `mtcli train` takes its steps;
  also of base with `train.compile`, without the time of the compiler;
- `decoding`: sentences per second of base, greedy and with a beam of 4, as `mtcli translate` searches. Random weights
  almost never end a translation, so each is as long as its source.

All parts take less than ten minutes. The last line is JSON with all figures. The predicted figures are those of
docs/gpu.md for an H200, from counts on a simulated device. The goal is the paper's base run in an hour.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from mtcli.config.build import build
from mtcli.config.schema import Config, DecodeConfig
from mtcli.corpus.batching import BatchPlan, Position, collate
from mtcli.corpus.cache.encoded_pairs import EncodedPairs, Ints, encode_pairs
from mtcli.model.loss import projected_loss
from mtcli.runtime.device import pick_device
from mtcli.runtime.distributed import Group
from mtcli.storage.model_file import ModelInfo
from mtcli.storage.translation_info import TranslationInfo
from mtcli.text.lines import Counts
from mtcli.text.tokenizer.tokenizer import Tokenizer
from mtcli.training.learner import Learner, PendingStep
from mtcli.training.loading import load_batches
from mtcli.training.optimizer import clip_norm_
from mtcli.translate.backends.pytorch import PyTorchBackend
from mtcli.translate.translation import Options
from mtcli.translate.translator import ModelTranslator
from mtcli.translate.windows import Reading

Figures = dict[str, Any]
DEVICE = torch.device("cuda")

GOAL = 694_000
"""Target tokens per second of base with which the paper's base run (100,000 steps of 25,000 tokens) takes an hour."""

PREDICTED = {"base": 640_000, "base, compiled": 840_000, "big": 245_000}
"""Target tokens per second that are predicted for an H200 (docs/gpu.md)."""


@dataclass(frozen=True)
class Size:
    """How much is measured."""

    vocabulary: int = 37_000
    batch_tokens: int = 25_000
    pairs: int = 60_000
    """Pairs of the synthetic corpus."""
    sentences: int = 3_000
    """Sentences that are decoded."""
    steps: int = 60
    """Measured training steps. Ten more precede them."""
    repetitions: int = 20
    """Repetitions of a copy, a product or an attention kernel."""
    copy_bytes: int = 2**30
    product: int = 8192
    """Rows and columns of the square matrices."""
    widths: tuple[int, ...] = (8, 32, 48, 128, 256)
    """Padded lengths of the batches for attention. Batches of news text are mostly 16 to 64 wide."""
    mean_length: float = 25.0
    """Mean length of a sentence in tokens."""
    sets: tuple[str, ...] = ()
    """Changes of the configuration."""


TINY = Size(
    vocabulary=100,
    batch_tokens=200,
    pairs=60,
    sentences=5,
    steps=2,
    repetitions=1,
    copy_bytes=2**10,
    product=16,
    widths=(8,),
    mean_length=4.0,
    sets=(
        "model.d_model=16",
        "model.d_ff=32",
        "model.num_heads=2",
        "model.num_encoder_layers=1",
        "model.num_decoder_layers=1",
        "train.compile=off",  # the simulated device has no compiler
    ),
)
"""For a test of this script."""


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", choices=list(PARTS), help="measure one part")
    parser.add_argument("--tiny", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        raise SystemExit("no CUDA device")
    pick_device("cuda")  # disables what training and translating disable
    size = TINY if args.tiny else Size()
    found: Figures = {"gpu": torch.cuda.get_device_name(DEVICE), "torch": torch.__version__}
    print(f"{found['gpu']}, PyTorch {found['torch']}")
    for name, measure in PARTS.items():
        if args.only in (None, name):
            started_at = time.perf_counter()
            found[name] = measure(size)
            print(f"({name}: {time.perf_counter() - started_at:.0f} s)\n")
    print(json.dumps(found))


def milliseconds(work: Callable[[], object], repetitions: int) -> float:
    """Return the time of some work on the GPU, after one call to warm up."""
    work()
    start = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    end = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    start.record()
    for _ in range(repetitions):
        work()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / repetitions


def show(title: str, rows: Sequence[tuple[object, ...]]) -> None:
    """Print a table. The first row is its head."""
    texts = [[f"{x:,.2f}" if isinstance(x, float) else str(x) for x in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    print(title)
    for row in texts:
        print("  " + "  ".join(text.rjust(width) for text, width in zip(row, widths, strict=True)))


def limits(size: Size) -> Figures:
    """Measure copies in GB/s, where a copy within the GPU reads and writes each byte, and products in TFLOP/s."""
    on_device = torch.empty(size.copy_bytes, dtype=torch.uint8, device=DEVICE)
    other = torch.empty_like(on_device)
    on_host = torch.empty(size.copy_bytes, dtype=torch.uint8, pin_memory=True)
    copies = {
        "within the GPU": (2, lambda: other.copy_(on_device)),
        "to the GPU": (1, lambda: on_device.copy_(on_host, non_blocking=True)),
        "from the GPU": (1, lambda: on_host.copy_(on_device, non_blocking=True)),
    }
    found: Figures = {}
    for name, (times, copy) in copies.items():
        found[f"GB/s {name}"] = times * size.copy_bytes / 1e6 / milliseconds(copy, size.repetitions)
    n = size.product
    for name, dtype, tf32 in (
        ("bf16", torch.bfloat16, False),
        ("TF32", torch.float32, True),
        ("float32", torch.float32, False),
    ):
        a, b = (torch.randn(n, n, device=DEVICE, dtype=dtype) for _ in range(2))
        with products_in_tf32(tf32):
            found[f"TFLOP/s {name}"] = 2 * n**3 / 1e9 / milliseconds(partial(torch.matmul, a, b), size.repetitions)
    show("limits", [("", "reached"), *found.items()])
    return found


@contextmanager
def products_in_tf32(allowed: bool) -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if allowed else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


KERNELS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "math": SDPBackend.MATH,
}


def attention(size: Size) -> Figures:
    """Measure forward and backward passes of attention in ms, in bf16 with the heads of base."""
    found: Figures = {}
    rows: list[tuple[object, ...]] = [("width", "mask", *KERNELS)]
    for width in size.widths:
        for kind in ("none", "causal", "padding"):
            times = {name: attention_time(size, kernel, width, kind) for name, kernel in KERNELS.items()}
            found[f"{width} {kind}"] = times
            rows.append((width, kind, *("–" if ms is None else ms for ms in times.values())))
    show("attention, ms forward and backward", rows)
    return found


def attention_time(size: Size, kernel: SDPBackend, width: int, kind: str) -> float | None:
    """Return the time of one kernel, or None if it does not support the mask."""
    B = max(1, size.batch_tokens // width)
    q, k, v = (torch.randn(B, 8, width, 64, device=DEVICE, dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    mask = None
    if kind == "padding":
        lengths = torch.randint(1 + width // 2, width + 1, (B, 1, 1, 1), device=DEVICE)
        mask = torch.arange(width, device=DEVICE) < lengths  # (B, 1, 1, width)
    direction = torch.randn(B, 8, width, 64, device=DEVICE, dtype=torch.bfloat16)

    def pass_both_ways() -> tuple[Tensor, ...]:
        output = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=kind == "causal")
        return torch.autograd.grad(output, (q, k, v), direction)

    try:
        with sdpa_kernel(kernel):
            return milliseconds(pass_both_ways, size.repetitions)
    except RuntimeError:
        return None


MAX_LENGTH = 150
"""Tokens of the longest sentence."""


class NumberedRows:
    """One side of a tokenizer that gives row i of some token ids for the line "i". It is a `Side`."""

    kind = "word"

    def __init__(self, rows: list[list[int]], vocabulary: int) -> None:
        self.rows = rows
        self.tokens = [f"token-{i}" for i in range(vocabulary)]
        self.byte_of: dict[int, int] = {}
        self.tags: dict[str, int] = {}

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        return [self.rows[int(text)] if text else [] for text in texts]

    def decode(self, rows: Sequence[Sequence[int]]) -> list[str]:
        return [" ".join(map(str, row)) for row in rows]

    def split(self, text: str) -> list[int]:
        return self.encode([text])[0]


def random_text(lines: int, size: Size) -> Tokenizer:
    """Draw sentences. A target has 0.8 to 1.25 times the tokens of its source."""
    random = np.random.default_rng(1)
    src_lengths = random.gamma(3.0, size.mean_length / 3, lines).clip(1, MAX_LENGTH).astype(int)
    tgt_lengths = (src_lengths * random.uniform(0.8, 1.25, lines)).clip(1, MAX_LENGTH).astype(int)

    def draw(lengths: Ints) -> NumberedRows:
        rows = [random.integers(4, size.vocabulary, length).tolist() for length in lengths]
        return NumberedRows(rows, size.vocabulary)

    return Tokenizer(draw(src_lengths), draw(tgt_lengths))


def configuration(size: Size, preset: str, compiled: bool) -> Config:
    values = {"data.train": ["random"], "data.src": "en", "data.tgt": "de", "preset": preset}
    compiling = "train.compile=auto" if compiled else "train.compile=off"
    return build(None, values, [f"train.batch_tokens={size.batch_tokens}", compiling, *size.sets])


@contextmanager
def learner_of(size: Size, preset: str, compiled: bool = False) -> Iterator[tuple[Learner, BatchPlan]]:
    """Yield a model with its optimizer, and the plan of its batches."""
    config = configuration(size, preset, compiled)
    text = random_text(size.pairs, size)
    info = ModelInfo(
        model=config.model, decode=config.decode, src="en", tgt="de", src_vocab=size.vocabulary,
        tgt_vocab=size.vocabulary, joint=True, tokenizer="", step=0, longest_src=MAX_LENGTH,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pairs.arrow"
        numbered = ((0, (str(row), str(row))) for row in range(size.pairs))
        encode_pairs(numbered, text, path, max_length=MAX_LENGTH, counts=Counts())
        pairs = EncodedPairs(path)
        plan = BatchPlan(pairs, size.batch_tokens, config.train.seed, [(size.pairs, 1.0)])
        yield Learner(config, info, pairs, DEVICE, Group()), plan


def step(size: Size) -> Figures:
    """Measure the parts of a training step of base in ms. The GPU has finished each part before the next begins."""
    with learner_of(size, "base") as (learner, plan):
        rows = [planned.rows for planned in islice(plan.batches_from(Position()), size.repetitions + 2)]
        for warm_up in rows[:2]:
            time_parts(learner, warm_up)
        times = [time_parts(learner, each) for each in rows[2:]]
    found = {part: 1e3 * float(np.median([each[part] for each in times])) for part in times[0]}
    found["all"] = sum(found.values())
    show("parts of a training step of base, ms", [("", "median"), *found.items()])
    return found


def time_parts(learner: Learner, rows: Ints) -> dict[str, float]:
    """Take one step, and return the seconds of its parts."""
    seconds: dict[str, float] = {}

    @contextmanager
    def part(name: str) -> Iterator[None]:
        torch.cuda.synchronize()
        started_at = time.perf_counter()
        yield
        torch.cuda.synchronize()
        seconds[name] = time.perf_counter() - started_at

    def timed_loss(*args: Any, **kwargs: Any) -> Any:
        with part("loss"):
            return projected_loss(*args, **kwargs)

    learner.model.train()
    with part("collate"):
        batch = collate(learner.pairs, rows).pin_memory()
    with part("copy"):
        batch = batch.to(DEVICE)
    with patch("mtcli.training.gradients.projected_loss", timed_loss), part("forward"):
        loss, _ = learner.objective(batch)
    seconds["forward"] -= seconds["loss"]
    with part("backward"):
        gradients = list(torch.autograd.grad(loss / batch.tokens, learner.optimizer.parameters))
    with part("clip"):
        clip_norm_(gradients, 1.0)
    with part("optimizer"):
        learner.optimizer.step(gradients, learning_rate=1e-4)
    return seconds


def training(size: Size) -> Figures:
    """Measure the target tokens per second of base and big."""
    found: Figures = {}
    rows: list[tuple[object, ...]] = [("", "tokens/s", "predicted (H200)", "of the goal")]
    for name, predicted in PREDICTED.items():
        preset, _, compiled = name.partition(", ")
        found[name] = training_speed(size, preset, compiled == "compiled")
        print(f"{name}: {found[name]:,.0f}", flush=True)
        share = f"{found[name] / GOAL:.0%}" if preset == "base" else ""
        rows.append((name, f"{found[name]:,.0f}", f"{predicted:,}", share))
    found["goal of base"] = GOAL
    show("training, target tokens per second", rows)
    return found


def training_speed(size: Size, preset: str, compiled: bool) -> float:
    """Return the target tokens per second of steps that are taken as `Trainer` takes them."""
    warmup_steps = min(10, size.steps)
    with learner_of(size, preset, compiled) as (learner, plan):
        started_at = time.perf_counter()
        learner.prepare()
        if compiled:
            print(f"compiled in {time.perf_counter() - started_at:.0f} s", flush=True)
        planned = plan.batches_from(Position())
        batches = load_batches(planned, Group(), DEVICE, num_micro_batches=1)
        pending: PendingStep | None = None
        tokens = 0
        for number in range(1, warmup_steps + size.steps + 1):
            last = pending
            batch = next(batches)
            pending = learner.step([batch], number, learning_rate=1e-4)
            if last:
                last.read()  # while the GPU computes this step
            if number == warmup_steps:
                torch.cuda.synchronize()
                started_at = time.perf_counter()
            elif number > warmup_steps:
                tokens += batch.planned.tokens
        torch.cuda.synchronize()
        seconds = time.perf_counter() - started_at
        batches.close()
    return tokens / seconds


def decoding(size: Size) -> Figures:
    """Measure the sentences per second of base."""
    text = random_text(size.sentences, size)
    with learner_of(replace(size, pairs=10), "base") as (learner, _):
        model = learner.model.eval()
    info = TranslationInfo(decode=DecodeConfig(), src="en", tgt="de", longest_src=MAX_LENGTH)
    translator = ModelTranslator(PyTorchBackend(model, text, info))
    lines = [str(row) for row in range(size.sentences)]
    searches = {"greedy": Options(beam_size=1, max_extra=0), "beam 4": Options(beam_size=4, max_extra=0)}
    found: Figures = {}
    for name, options in searches.items():
        list(translator.translate(lines[: len(lines) // 3], options, Reading(warn=False, quiet=True)))
        torch.cuda.synchronize()
        started_at = time.perf_counter()
        list(translator.translate(lines, options, Reading(warn=False, quiet=True)))
        torch.cuda.synchronize()
        found[name] = size.sentences / (time.perf_counter() - started_at)
    show("decoding, sentences per second", [("", "reached"), *found.items()])
    return found


PARTS: dict[str, Callable[[Size], Figures]] = {
    "limits": limits,
    "attention": attention,
    "step": step,
    "training": training,
    "decoding": decoding,
}

if __name__ == "__main__":
    main()
