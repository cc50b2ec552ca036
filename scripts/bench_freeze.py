#!/usr/bin/env python3
"""Time and memory of a fine-tuning step with each value of `train.freeze`.

    python scripts/bench_freeze.py [--steps 5] [--runs 3] [--threads 2] [--precision fp32|bf16]

The model has the shape of most OPUS-MT models (6 + 6 layers, d_model 512, d_ff 2048, 58,101 tokens, tied embeddings,
swish, output bias) and random weights. A step is the forward and backward pass of a batch of 32 pairs of 25 tokens (800
on each side), clipping, and Adam. The first step, which allocates memory, is not timed.

Each value runs in a process of its own, the values in turn, `--runs` times. The script prints a table with the medians:
seconds per step, CPU seconds per step, their share of those without frozen parameters, and the peak resident memory of
the process, PyTorch included. The last line is JSON. CPU seconds are summed over the threads. On a machine with other
work they change much less than seconds do.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from statistics import median
from typing import Any, get_args

from mtcli.config.schema import Freeze

ROWS = 32
WIDTH = 25
VOCAB = 58_101
SHAPE = {
    "d_model": 512,
    "d_ff": 2048,
    "num_heads": 8,
    "num_encoder_layers": 6,
    "num_decoder_layers": 6,
    "activation": "swish",
    "output_bias": True,
}
PRECISIONS = ("fp32", "bf16")
Figures = dict[str, Any]


def main() -> None:
    args = arguments()
    if args.freeze:
        print(json.dumps(measure(args.freeze, args.precision, args.steps)))
        return
    values = get_args(Freeze)
    precisions = [args.precision] if args.precision else PRECISIONS
    sides = [(precision, freeze) for precision in precisions for freeze in values]
    found: dict[tuple[str, str], list[Figures]] = {side: [] for side in sides}
    for run in range(args.runs):
        for precision, freeze in sides:
            found[precision, freeze].append(in_a_process(precision, freeze, args))
        print(f"run {run + 1} of {args.runs}", file=sys.stderr)
    report(found)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=5, help="timed steps of each run")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--precision", choices=PRECISIONS, help="measure only this one")
    parser.add_argument("--freeze", help=argparse.SUPPRESS)  # one run, in a process of its own
    return parser.parse_args()


def in_a_process(precision: str, freeze: str, args: argparse.Namespace) -> Figures:
    """Measure one value of `train.freeze` in a new process."""
    command = [sys.executable, __file__, "--precision", precision, "--freeze", freeze, "--steps", str(args.steps)]
    threads = {"OMP_NUM_THREADS": str(args.threads), "OMP_WAIT_POLICY": "passive"}  # waiting takes no CPU seconds
    env = os.environ | threads
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=env)
    figures: Figures = json.loads(done.stdout.splitlines()[-1])
    return figures


def measure(freeze: Freeze, precision: str, steps: int) -> Figures:
    """Take some steps, and return the median time of one and the peak memory of this process."""
    import torch

    from mtcli.config.schema import ModelConfig, TrainConfig
    from mtcli.corpus.batching import Batch
    from mtcli.model.freezing import freeze_parameters
    from mtcli.model.transformer import Transformer
    from mtcli.runtime.memory import keep_freed_memory
    from mtcli.training.gradients import Objective
    from mtcli.training.optimizer import Adam, clip_norm_

    keep_freed_memory()
    torch.manual_seed(1)
    model = Transformer(ModelConfig.model_validate(SHAPE), VOCAB, VOCAB, joint=True).train()
    freeze_parameters(model, freeze)
    optimizer = Adam(TrainConfig(), model.named_parameters())
    objective = Objective(model, smoothing=0.1, bf16=precision == "bf16")
    src, tgt_in, tgt_out = torch.randint(4, VOCAB, (3, ROWS, WIDTH))
    batch = Batch(src, tgt_in, tgt_out.flatten(), torch.arange(tgt_out.numel()))
    seconds = []
    cpu_seconds = []
    for _ in range(1 + steps):
        began = time.perf_counter()
        cpu_began = time.process_time()
        loss, _ = objective(batch)
        gradients = list(torch.autograd.grad(loss / batch.tokens, optimizer.parameters))
        clip_norm_(gradients, 1.0)
        optimizer.step(gradients, learning_rate=1e-5)
        seconds.append(time.perf_counter() - began)
        cpu_seconds.append(time.process_time() - cpu_began)
    return {
        "seconds": median(seconds[1:]),
        "cpu_seconds": median(cpu_seconds[1:]),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000,
        "trainable": sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad),
    }


def report(found: dict[tuple[str, str], list[Figures]]) -> None:
    """Print the table and the line of JSON."""
    medians = {side: medians_of(runs) for side, runs in found.items()}
    print("| precision | train.freeze | trained parameters | seconds | CPU seconds | share | peak memory |")
    print("|---|---|---|---|---|---|---|")
    for (precision, freeze), row in medians.items():
        share = row["cpu_seconds"] / medians[precision, "none"]["cpu_seconds"]
        print(
            f"| {precision} | `{freeze}` | {row['trainable']:,.0f} | {row['seconds']:.2f} | {row['cpu_seconds']:.2f} | "
            f"{share:.0%} | {row['peak_mb'] / 1000:.2f} GB |"
        )
    rows = [{"precision": precision, "freeze": freeze, **row} for (precision, freeze), row in medians.items()]
    print(json.dumps(rows))


def medians_of(runs: list[Figures]) -> Figures:
    """Return the median of each figure."""
    return {name: median(run[name] for run in runs) for name in runs[0]}


if __name__ == "__main__":
    main()
