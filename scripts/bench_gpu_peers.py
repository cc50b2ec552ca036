#!/usr/bin/env python3
"""Training and decoding of base on one GPU: mtcli, a plain PyTorch loop, and Hugging Face transformers.

    python scripts/bench_gpu_peers.py [--runs 3] [--compiled]

All three train on the batches of `bench_gpu.py` (random tokens, sentences as long as those of news text, batches of
25,000 tokens), which mtcli loads ahead for all of them. They differ in model, loss and optimizer:

- `plain` is `torch.nn.Transformer` with `torch.nn.CrossEntropyLoss`;
- `transformers` is `MarianMTModel` with the same loss, which is faster than the label smoothing of its trainer;
- both use bf16 by `torch.autocast` and PyTorch's fused Adam, and never wait for the GPU to read a loss.

Decoding compares `mtcli translate` with `MarianMTModel.generate` in bf16, on sentences sorted by length. Random weights
almost never end a translation, so each of mtcli's is as long as its source, and each of transformers' as long as the
longest source of its batch. The runs alternate; medians are shown.
"""

import argparse
import json
import math
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from statistics import median
from typing import Any

import torch
from bench_gpu import DEVICE, MAX_LENGTH, TINY, Figures, Size, learner_of, random_text, show
from torch import Tensor, nn

from mtcli.config.schema import DecodeConfig
from mtcli.corpus.batching import Batch, BatchPlan, Position, pad
from mtcli.runtime.device import pick_device
from mtcli.runtime.distributed import Group
from mtcli.storage.translation_info import TranslationInfo
from mtcli.text.special_tokens import BOS, EOS, PAD
from mtcli.training.learner import Learner, PendingStep
from mtcli.training.loading import LoadedBatch, load_batches
from mtcli.translate.backends.pytorch import PyTorchBackend
from mtcli.translate.translation import Options
from mtcli.translate.translator import ModelTranslator
from mtcli.translate.windows import Reading

WARMUP_STEPS = 8
SENTENCES_PER_BATCH = {1: 512, 4: 256}
"""Of `generate`, by the size of the beam."""

TakeStep = Callable[[LoadedBatch], object]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--compiled", action="store_true", help="also mtcli with train.compile=on")
    parser.add_argument("--tiny", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("no CUDA device")
    pick_device("cuda")
    size = TINY if args.tiny else Size(steps=25)
    found: Figures = {"gpu": torch.cuda.get_device_name(DEVICE), "torch": torch.__version__}
    print(f"{found['gpu']}, PyTorch {found['torch']}", flush=True)
    for name, measure in (("decoding", decoding), ("training", training)):
        found[name] = measure(size, args)
        rows = [(key, f"{value:,.0f}") for key, value in found[name].items()]
        show(f"{name}, {UNITS[name]}", [("", "median"), *rows])
    print(json.dumps(found))


UNITS = {"training": "target tokens per second", "decoding": "sentences per second"}


def training(size: Size, args: argparse.Namespace) -> Figures:
    """Return the target tokens per second of each."""
    with ExitStack() as stack:
        learner, plan = stack.enter_context(learner_of(size, "base"))
        steps: dict[str, TakeStep] = {
            "mtcli": step_of_mtcli(learner),
            "plain": step_of(plain_model(learner, size)),
            "transformers": step_of(marian_model(learner, size)),
        }
        if args.compiled:
            compiled, _ = stack.enter_context(learner_of(size, "base", compiled=True))
            started = time.perf_counter()
            compiled.prepare()
            print(f"compiled in {time.perf_counter() - started:.0f} s", flush=True)
            steps["mtcli, compiled"] = step_of_mtcli(compiled)
        figures: dict[str, list[float]] = {name: [] for name in steps}
        for run in range(args.runs):
            for name, take_step in steps.items() if run % 2 == 0 else reversed(steps.items()):
                figures[name].append(speed_of(take_step, plan, size))
                print(f"run {run + 1}, {name}: {figures[name][-1]:,.0f}", flush=True)
        return {name: median(each) for name, each in figures.items()}


def speed_of(take_step: TakeStep, plan: BatchPlan, size: Size) -> float:
    """Return the target tokens per second of some steps."""
    batches = load_batches(plan.batches_from(Position()), Group(), DEVICE, num_micro_batches=1)
    tokens = 0
    for number in range(WARMUP_STEPS + size.steps):
        if number == WARMUP_STEPS:
            torch.cuda.synchronize()
            started_at = time.perf_counter()
        batch = next(batches)
        take_step(batch)
        if number >= WARMUP_STEPS:
            tokens += batch.planned.tokens
    torch.cuda.synchronize()
    seconds = time.perf_counter() - started_at
    batches.close()
    return tokens / seconds


def step_of_mtcli(learner: Learner) -> TakeStep:
    pending: list[PendingStep] = []

    def take_step(batch: LoadedBatch) -> None:
        pending.append(learner.step([batch], 1, learning_rate=1e-4))
        if len(pending) > 1:
            pending.pop(0).read()

    return take_step


def step_of(model: nn.Module) -> TakeStep:
    """Return a training step of a model that returns logits (B, T, V) for sources and shifted targets."""
    criterion = nn.CrossEntropyLoss(ignore_index=-100, label_smoothing=0.1)
    parameters = list(model.parameters())
    optimizer = torch.optim.Adam(parameters, lr=1e-4, betas=(0.9, 0.98), eps=1e-9, fused=True)
    model.train()

    def take_step(loaded: LoadedBatch) -> None:
        (batch,) = (each.to(DEVICE) for each in loaded.micro_batches)
        with torch.autocast("cuda", torch.bfloat16):
            logits = model(batch.src, batch.tgt_in)
            loss = criterion(logits.flatten(0, 1), labels(batch))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()

    return take_step


def labels(batch: Batch) -> Tensor:
    """Return the tokens to predict (B · T,), with -100 where there is padding."""
    found = torch.full((batch.tgt_in.numel(),), -100, device=DEVICE)
    return found.index_copy(0, batch.target_index, batch.target)


class Plain(nn.Module):
    """`torch.nn.Transformer` with one embedding matrix for sources, targets and output."""

    def __init__(self, learner: Learner, vocabulary: int):
        super().__init__()
        sizes = learner.model.config
        self.d_model = sizes.d_model
        self.transformer = nn.Transformer(
            sizes.d_model, sizes.num_heads, sizes.num_encoder_layers, sizes.num_decoder_layers, sizes.d_ff,
            sizes.dropout, batch_first=True,
        )  # fmt: skip
        self.embedding = nn.Embedding(vocabulary, sizes.d_model)
        nn.init.normal_(self.embedding.weight, std=sizes.d_model**-0.5)
        self.dropout = nn.Dropout(sizes.dropout)
        self.register_buffer("positions", learner.model.tgt_embedding.table.clone())

    def embed(self, ids: Tensor) -> Tensor:
        positions: Tensor = self.positions[: ids.size(1)]  # type: ignore[index]
        embedded: Tensor = self.dropout(self.embedding(ids) * math.sqrt(self.d_model) + positions)
        return embedded

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        causal = nn.Transformer.generate_square_subsequent_mask(tgt.size(1), device=DEVICE, dtype=torch.bool)
        padding = src == PAD
        hidden = self.transformer(
            self.embed(src), self.embed(tgt), tgt_mask=causal, tgt_is_causal=True, src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
        )  # fmt: skip
        logits: Tensor = hidden @ self.embedding.weight.t()
        return logits


def plain_model(learner: Learner, size: Size) -> nn.Module:
    return Plain(learner, size.vocabulary).to(DEVICE)


class Marian(nn.Module):
    """`MarianMTModel`, of the size of our model."""

    def __init__(self, learner: Learner, vocabulary: int):
        from transformers import MarianConfig, MarianMTModel

        super().__init__()
        sizes = learner.model.config
        config = MarianConfig(
            vocab_size=vocabulary, d_model=sizes.d_model, encoder_layers=sizes.num_encoder_layers,
            decoder_layers=sizes.num_decoder_layers, encoder_attention_heads=sizes.num_heads,
            decoder_attention_heads=sizes.num_heads, encoder_ffn_dim=sizes.d_ff, decoder_ffn_dim=sizes.d_ff,
            dropout=sizes.dropout, activation_function="relu", scale_embedding=True, pad_token_id=PAD, eos_token_id=EOS,
            bos_token_id=BOS, decoder_start_token_id=BOS, forced_eos_token_id=None, max_position_embeddings=512,
            attn_implementation="sdpa",
        )  # fmt: skip
        self.model: Any = MarianMTModel(config)

    def forward(self, src: Tensor, tgt: Tensor) -> Tensor:
        logits: Tensor = self.model(input_ids=src, attention_mask=(src != PAD).long(), decoder_input_ids=tgt).logits
        return logits


def marian_model(learner: Learner, size: Size) -> Marian:
    return Marian(learner, size.vocabulary).to(DEVICE)


def decoding(size: Size, args: argparse.Namespace) -> Figures:
    """Return the sentences per second of each."""
    text = random_text(size.sentences, size)
    lines = [str(row) for row in range(size.sentences)]
    with learner_of(size, "base") as (learner, _):
        info = TranslationInfo(decode=DecodeConfig(), src="en", tgt="de", longest_src=MAX_LENGTH)
        translator = ModelTranslator(PyTorchBackend(learner.model.eval(), text, info))
        marian = marian_model(learner, size).eval().bfloat16()
        sources = sorted(text.encode_src(lines), key=len)

        def ours(beam_size: int, part: int) -> None:
            options = Options(beam_size=beam_size, max_extra=0)
            list(translator.translate(lines[:part], options, Reading(warn=False, quiet=True)))

        def theirs(beam_size: int, part: int) -> None:
            for batch in batches_of(sources[:part], SENTENCES_PER_BATCH[beam_size]):
                src = pad(batch, after=(EOS,)).to(DEVICE)
                with torch.inference_mode():
                    generated = marian.model.generate(
                        src, attention_mask=(src != PAD).long(), num_beams=beam_size, do_sample=False,
                        max_new_tokens=src.size(1),
                    )  # fmt: skip
                generated.tolist()

        figures: dict[str, list[float]] = {}
        for run in range(args.runs):
            for beam_size in (1, 4):
                for name, translate in (("mtcli", ours), ("transformers", theirs)):
                    if not run:
                        translate(beam_size, 600)
                    torch.cuda.synchronize()
                    started_at = time.perf_counter()
                    translate(beam_size, size.sentences)
                    key = f"{name}, {'greedy' if beam_size == 1 else f'beam {beam_size}'}"
                    figures.setdefault(key, []).append(size.sentences / (time.perf_counter() - started_at))
                    print(f"run {run + 1}, {key}: {figures[key][-1]:,.0f}", flush=True)
    return {name: median(each) for name, each in figures.items()}


def batches_of(rows: list[list[int]], number: int) -> Iterator[list[list[int]]]:
    for start in range(0, len(rows), number):
        yield rows[start : start + number]


if __name__ == "__main__":
    main()
