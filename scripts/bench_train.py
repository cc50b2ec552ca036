#!/usr/bin/env python3
"""Training speed of our trainer and of a plain PyTorch loop, run alternately.

    python scripts/bench_train.py --train PREFIX --src en --tgt de [--baseline SCRIPT] [--runs 5] [--steps 30]
        [--precision fp32|bf16] [--compare plain|one-core|busy] [--micro-batches 2]

Both train the preset `tiny` with a joint vocabulary of 10,000 tokens, with the same initial weights and batches, each
in a process of its own. Ours is `mtcli.training.run.train`; a step includes loading the batch and the optimizer step.
The plain loop uses `torch.nn.Transformer` and `torch.nn.CrossEntropyLoss`, in float32 or with `torch.autocast` in bf16.

Three pairs are compared: both in float32; ours in bf16 and the loop in float32; both in bf16. `--precision` selects the
pairs with ours in that precision. On a CPU without bf16 instructions only the first pair runs. `--baseline "SCRIPT
[OPTIONS]"` replaces the float32 loop by another script, which is run with `--json --steps N` and prints
`{"target_tokens_per_s": …}` as its last line.

`--compare one-core` compares our trainer, which uses as many cores as `--micro-batches`, with the same on one core.
`--compare busy` compares it while two other processes compute with the same on idle cores.

The script prints two tables and, as the last line, JSON: `pairs`, and the figures of the first pair. `ratio` is the
median of the ratios of neighbouring runs, ours to the baseline's, in target tokens per second (with `</s>`, without
padding). The loss is label-smoothed, in nats per token, the mean of the last five steps. Memory is the peak resident
size of the process.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from mtcli.config.schema import Config
    from mtcli.corpus.cache.encoded_pairs import EncodedPairs, Ints
    from mtcli.model.transformer import Transformer

WARMUP_STEPS = 5
Figures = dict[str, float]


Side = tuple[str, str]
"""`ours`, `plain`, `one-core` or `busy` (ours on one core, or beside busy processes), and the precision of products."""

PAIRS: dict[str, list[tuple[Side, Side]]] = {
    "plain": [
        (("ours", "fp32"), ("plain", "fp32")),
        (("ours", "bf16"), ("plain", "fp32")),
        (("ours", "bf16"), ("plain", "bf16")),
    ],
    "one-core": [(("ours", precision), ("one-core", precision)) for precision in ("fp32", "bf16")],
    "busy": [(("busy", precision), ("ours", precision)) for precision in ("fp32", "bf16")],
}
BUSY_PROCESSES = 2
SPEED = "target_tokens_per_s"
MEMORY = "peak_memory_mb"
LOSS = "loss_nats_per_token"


def main() -> None:
    args = arguments()
    if args.side:
        measure = ours if args.side == "ours" else plain
        print(json.dumps(measure(config_of(args), args.folder, args.steps)))
        return
    pairs = pairs_of(args)
    sides = list(dict.fromkeys(side for pair in pairs for side in pair))
    with tempfile.TemporaryDirectory() as folder:
        prepare_both(args, Path(folder))
        commands = {side: command_of(side, args, folder) for side in sides}
        found: dict[Side, list[Figures]] = {side: [] for side in sides}
        for run in range(args.runs):
            for side in sides if run % 2 == 0 else reversed(sides):
                with load(BUSY_PROCESSES if side[0] == "busy" else 0):
                    one_core = {"OMP_NUM_THREADS": "1"} if side[0] == "one-core" else {}
                    found[side].append(in_a_process([*commands[side], "--steps", str(args.steps)], one_core))
            last = ", ".join(f"{ratios(found, pair)[-1]:.2f}" for pair in pairs)
            print(f"run {run + 1} of {args.runs}: {last}", file=sys.stderr)
    report(found, pairs, args)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--train", required=True, help="training pairs, as for `mtcli train`")
    parser.add_argument("--src", required=True)
    parser.add_argument("--tgt", required=True)
    parser.add_argument("--baseline", help="another script in place of the float32 loop")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument(
        "--steps",
        type=int,
        default=30,
        help=f"measured steps, a multiple of {WARMUP_STEPS}; {WARMUP_STEPS} more precede them",
    )
    parser.add_argument("--compare", choices=list(PAIRS), default="plain", help="what ours is compared with")
    parser.add_argument("--micro-batches", type=int, default=2, metavar="N", help="parts of each of our batches")
    parser.add_argument("--precision", choices=["fp32", "bf16"], help="precision of our matrix products; default: both")
    parser.add_argument("--side", choices=["ours", "plain"], help=argparse.SUPPRESS)  # one run, in a process of its own
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.steps < WARMUP_STEPS or args.steps % WARMUP_STEPS:
        parser.error(f"--steps {args.steps}: give a multiple of {WARMUP_STEPS}, the interval of the logged losses")
    return args


def pairs_of(args: argparse.Namespace) -> list[tuple[Side, Side]]:
    """Return the pairs to compare on this CPU."""
    import torch

    from mtcli.config.schema import TrainConfig
    from mtcli.model.precision import uses_bf16

    pairs = PAIRS[args.compare]
    if not uses_bf16(TrainConfig(precision="auto"), torch.device("cpu")):
        print("this CPU has no instructions for bf16: float32 only", file=sys.stderr)
        pairs = pairs[:1]
    chosen = [pair for pair in pairs if args.precision in (None, pair[0][1])]
    if not chosen:
        raise SystemExit(f"--precision {args.precision}: not on this CPU")
    return chosen


def command_of(side: Side, args: argparse.Namespace, folder: str) -> list[str]:
    """Return the command line of one run, without the number of steps."""
    name, precision = side
    if side == ("plain", "fp32") and args.baseline:
        return [*shlex.split(args.baseline), "--json"]
    given = ["--train", args.train, "--src", args.src, "--tgt", args.tgt, "--folder", folder]
    given += ["--micro-batches", str(args.micro_batches)]
    return [__file__, *given, "--side", "plain" if name == "plain" else "ours", "--precision", precision]


@contextmanager
def load(processes: int) -> Iterator[None]:
    """Run processes that compute until the block ends."""
    running = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def ratios(found: dict[Side, list[Figures]], pair: tuple[Side, Side]) -> list[float]:
    """Return the ratios of the speeds of a pair, run by run."""
    first, second = pair
    return [ours[SPEED] / theirs[SPEED] for ours, theirs in zip(found[first], found[second], strict=True)]


def in_a_process(command: list[str], variables: dict[str, str]) -> Figures:
    """Run a script and return the JSON in its last line, with the peak memory of the process."""
    environment = os.environ | variables
    with subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout
        output = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{shlex.join(command)}: ended with {process.returncode}")
    unit = 2**20 if sys.platform == "darwin" else 2**10
    return {**json.loads(output.splitlines()[-1]), MEMORY: usage.ru_maxrss / unit}


def report(found: dict[Side, list[Figures]], pairs: list[tuple[Side, Side]], args: argparse.Namespace) -> None:
    """Print the medians of each side, the ratios of each pair, and both as JSON."""
    from mtcli.runtime.cores import usable_cores

    def middle(side: Side, key: str) -> float:
        return median(run.get(key, math.nan) for run in found[side])

    def name_of(side: Side) -> str:
        who, precision = side
        if who != "plain":
            return f"mtcli{'' if who == 'ours' else f' ({who})'}, {precision}"
        if precision == "fp32" and args.baseline:
            return Path(shlex.split(args.baseline)[0]).name
        return f"plain loop, {precision}"

    line = "{:<20} {:>16} {:>16} {:>14}"
    print(line.format("", "target tokens/s", "peak memory, MB", "loss"))
    for side in found:
        figures = middle(side, SPEED), middle(side, MEMORY), middle(side, LOSS)
        print(line.format(name_of(side), *(f"{x:,.{digits}f}" for x, digits in zip(figures, (0, 0, 3), strict=True))))
    compared = []
    for pair in pairs:
        a, b = pair
        each = ratios(found, pair)
        memory_ratio = middle(a, MEMORY) / middle(b, MEMORY)
        entry: dict[str, Any] = {"mtcli_precision": a[1], "baseline_precision": b[1], "ratio": round(median(each), 3)}
        for key, side in (("mtcli", a), ("baseline", b)):
            entry[f"{key}_{SPEED}"] = round(middle(side, SPEED), 1)
            entry[f"{key}_{MEMORY}"] = round(middle(side, MEMORY))
            if not math.isnan(middle(side, LOSS)):
                entry[f"{key}_{LOSS}"] = round(middle(side, LOSS), 4)
        entry["memory_ratio"] = round(memory_ratio, 3)
        compared.append(entry)
        shown = ", ".join(f"{ratio:.2f}" for ratio in each)
        medians = f"median {median(each):.2f}, memory {memory_ratio:.2f}"
        print(f"{name_of(a)} : {name_of(b)}: {shown}: {medians}")
    cores = usable_cores()
    result = {**compared[0], "pairs": compared, "runs": args.runs, "steps": args.steps, "cores": cores}
    result["micro_batches"] = args.micro_batches
    print(json.dumps(result))


def config_of(args: argparse.Namespace) -> Config:
    from mtcli.config.build import build

    options = {
        "data.train": [args.train],
        "data.src": args.src,
        "data.tgt": args.tgt,
        # Validation and test are not measured: one pair each is enough.
        "data.valid": str(args.folder / "one.tsv"),
        "data.test": str(args.folder / "one.tsv"),
        "data.variants": "off",  # the plain loop reads the pairs as they are
        "preset": "tiny",
        "tokenizer.vocab_size": 10_000,
        "model.dropout": 0.3,
        "train.batch_tokens": 4096,
        "train.micro_batches": args.micro_batches,
        "train.lr": 1e-3,
        "train.warmup_steps": 400,  # set, so that our trainer does not shorten it to the few steps
        "train.precision": args.precision or "fp32",
        "train.valid_every": 10**9,  # validation and saving are not measured
        "train.save_every": 10**9,
        "train.max_steps": WARMUP_STEPS + args.steps,
    }
    return build(None, options, [])


def prepare_both(args: argparse.Namespace, folder: Path) -> None:
    """Encode the pairs and write the initial weights of both."""
    import torch

    from mtcli.config.toml_file import to_toml
    from mtcli.corpus.cache.parent import Parent
    from mtcli.corpus.cache.prepare import prepare
    from mtcli.model.transformer import Transformer
    from mtcli.storage import model_file

    args.folder = folder
    (folder / "one.tsv").write_text("a\tb\n")
    config = config_of(args)
    start = folder / "start"
    tokenizer = prepare(config, folder / "tokenizer").tokenizer
    torch.manual_seed(1)
    model = Transformer(config.model, tokenizer.src_size, tokenizer.tgt_size, joint=True)
    info = model_file.ModelInfo(
        model=config.model, decode=config.decode, src=args.src, tgt=args.tgt, src_vocab=tokenizer.src_size,
        tgt_vocab=tokenizer.tgt_size, joint=True, tokenizer=tokenizer.digest(), step=0, longest_src=256,
    )  # fmt: skip
    init = folder / "init"
    init.mkdir()
    (init / "model.safetensors").write_bytes(model_file.model_bytes(model_file.parameters(model), info))
    tokenizer.save(init / "tokenizer.json")
    start.mkdir()
    (start / "config.toml").write_text(to_toml(config))
    weights = model_file.checksum(model_file.parameters(model), None)
    prepare(config, start, init=Parent(tokenizer, weights, config.data.src, config.data.tgt))


def ours(config: Config, folder: Path, steps: int) -> Figures:
    """Train with mtcli and return the figures from `metrics.jsonl`."""
    from mtcli.runtime.device import pick_device
    from mtcli.training import trainer
    from mtcli.training.request import InitialModel
    from mtcli.training.run import train

    trainer.LOG_EVERY = WARMUP_STEPS
    logging.disable()
    run = Path(tempfile.mkdtemp(dir=folder)) / "run"
    shutil.copytree(folder / "start", run)
    train(config, run, pick_device("cpu"), init=InitialModel.load(folder / "init"))
    events = [json.loads(text) for text in (run / "metrics.jsonl").read_text().splitlines()]
    events = [event for event in events if event["event"] == "train"]
    seconds = events[-1]["seconds"] - events[0]["seconds"]
    return {
        "target_tokens_per_s": sum(event["tokens"] for event in events[1:]) / seconds,
        "loss_nats_per_token": events[-1]["loss"],
    }


def plain(config: Config, folder: Path, steps: int) -> Figures:
    """Train with a plain loop over the modules of PyTorch."""
    import torch

    from mtcli.corpus.batching import BatchPlan, Position
    from mtcli.corpus.cache.prepare import prepare
    from mtcli.storage import model_file

    torch.manual_seed(1)
    data = prepare(config, folder / "start")
    start, info, _ = model_file.load_model(folder / "init")
    take_step = plain_step(config, start, info.tgt_vocab, data.train)
    plan = BatchPlan.of(config, data)
    batches = (planned.rows for planned in plan.batches_from(Position()))
    losses = [take_step(number + 1, next(batches)) for number in range(WARMUP_STEPS)]
    started = time.perf_counter()
    losses += [take_step(number + 1, next(batches)) for number in range(WARMUP_STEPS, WARMUP_STEPS + steps)]
    seconds = time.perf_counter() - started
    last = losses[-WARMUP_STEPS:]
    return {
        "target_tokens_per_s": sum(tokens for _, tokens in losses[WARMUP_STEPS:]) / seconds,
        "loss_nats_per_token": sum(loss * tokens for loss, tokens in last) / sum(tokens for _, tokens in last),
    }


def plain_step(
    config: Config, start: Transformer, vocab: int, train: EncodedPairs
) -> Callable[[int, Ints], tuple[float, int]]:
    """Return the training step of the plain loop.

    Args:
        config: The configuration.
        start: Our model with the initial weights.
        vocab: The size of the joint vocabulary.
        train: The encoded training pairs.

    Returns:
        A function of the number of the step, from 1, and the rows of the batch. It returns the mean loss and the number
        of target tokens.
    """
    import torch
    from torch import nn

    from mtcli.text.special_tokens import BOS, EOS, PAD
    from mtcli.training.optimizer import learning_rate

    sizes = config.model
    settings = config.train
    max_steps = settings.max_steps
    assert max_steps is not None
    model = nn.Transformer(
        sizes.d_model, sizes.num_heads, sizes.num_encoder_layers, sizes.num_decoder_layers, sizes.d_ff, sizes.dropout,
        batch_first=True,
    )  # fmt: skip
    copy_weights(start, model)
    embedding = nn.Embedding(vocab, sizes.d_model)
    embedding.load_state_dict(start.tgt_embedding.tokens.state_dict())
    positions = start.tgt_embedding.table
    dropout = nn.Dropout(sizes.dropout)
    criterion = nn.CrossEntropyLoss(ignore_index=PAD, label_smoothing=settings.label_smoothing)
    parameters = [*model.parameters(), *embedding.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=settings.lr, betas=settings.betas, eps=settings.eps)

    def embed(ids: torch.Tensor) -> torch.Tensor:
        embedded: torch.Tensor = dropout(embedding(ids) * math.sqrt(sizes.d_model) + positions[: ids.size(1)])
        return embedded

    def take_step(number: int, rows: Ints) -> tuple[float, int]:
        pairs = [train[int(row)] for row in rows]
        src = padded([[*source.tolist(), EOS] for source, _ in pairs], PAD)
        tgt = padded([[BOS, *target.tolist()] for _, target in pairs], PAD)
        expected = padded([[*target.tolist(), EOS] for _, target in pairs], PAD)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(settings, sizes.d_model, number, (number - 1) / max_steps)
        with torch.autocast("cpu", torch.bfloat16, enabled=settings.precision == "bf16"):
            hidden = model(
                embed(src),
                embed(tgt),
                tgt_mask=nn.Transformer.generate_square_subsequent_mask(tgt.size(1), dtype=torch.bool),
                src_key_padding_mask=src == PAD,
                memory_key_padding_mask=src == PAD,
                tgt_is_causal=True,
            )
            loss = criterion((hidden @ embedding.weight.t()).flatten(0, 1), expected.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, settings.clip_norm)
        optimizer.step()
        return loss.item(), int((expected != PAD).sum())

    return take_step


def padded(rows: list[list[int]], padding: int) -> torch.Tensor:
    """Return rows of different lengths as one tensor of ids."""
    import torch

    width = max(map(len, rows))
    return torch.tensor([row + [padding] * (width - len(row)) for row in rows])


def copy_weights(start: Any, model: Any) -> None:
    """Copy our initial weights into PyTorch's model.

    The final norms, and dropout inside of attention and feed-forward networks, are removed: the paper has neither.
    """
    import torch

    model.encoder.norm = model.decoder.norm = None
    pairs: list[tuple[tuple[torch.Tensor, ...], torch.Tensor]] = []
    for a, b in [
        *zip(start.encoder, model.encoder.layers, strict=True),
        *zip(start.decoder, model.decoder.layers, strict=True),
    ]:
        attentions = [(a.self_attention, b.self_attn)]
        norms = [(a.self_residual.norm, b.norm1), (a.ffn_residual.norm, b.norm2)]
        if hasattr(a, "cross_attention"):
            attentions.append((a.cross_attention, b.multihead_attn))
            norms[1:] = [(a.cross_residual.norm, b.norm2), (a.ffn_residual.norm, b.norm3)]
        for x, y in attentions:
            y.dropout = 0.0
            pairs += [((x.w_q.weight, x.w_k.weight, x.w_v.weight), y.in_proj_weight)]
            pairs += [((x.w_q.bias, x.w_k.bias, x.w_v.bias), y.in_proj_bias)]
            norms.append((x.w_o, y.out_proj))
        b.dropout.p = 0.0  # inside the feed-forward network
        for x, y in [*norms, (a.feed_forward.w_1, b.linear1), (a.feed_forward.w_2, b.linear2)]:
            pairs += [((x.weight,), y.weight), ((x.bias,), y.bias)]
    with torch.no_grad():
        for parts, parameter in pairs:
            parameter.copy_(torch.cat([part.detach() for part in parts]))


if __name__ == "__main__":
    main()
