#!/usr/bin/env python3
"""Time and memory of a fine-tuning step with each value of `train.freeze`.

    python scripts/bench_freeze.py [--steps 5] [--runs 3] [--threads 2] [--precision fp32|bf16]

The model has the shape of most OPUS-MT models (6 + 6 layers, d_model 512, d_ff 2048, 58,101 tokens, tied embeddings,
swish, output bias) and random weights. A step is the forward and backward pass of a batch of 32 pairs of 25 tokens (800
on each side), clipping, and Adam. The first step, which allocates memory, is not timed.

Each value runs in a process of its own, the values in turn, `--runs` times. The script prints a table with the medians:
seconds per step, its share of that without frozen parameters, and the peak resident memory of the process, PyTorch
included. The last line is JSON.
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
    from mtcli.config.schema import Freeze

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
    env = os.environ | {"OMP_NUM_THREADS": str(args.threads)}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=env)
    figures: Figures = json.loads(done.stdout.splitlines()[-1])
    return figures


def measure(freeze: Any, precision: str, steps: int) -> Figures:
    """Take some steps, and return the median time of one and the peak memory of this process."""
    import torch

    from mtcli.config.schema import ModelConfig, TrainConfig
    from mtcli.data.batching import Batch
    from mtcli.nn.freezing import freeze_parameters
    from mtcli.nn.transformer import Transformer
    from mtcli.runtime.memory import keep_freed_memory
    from mtcli.training.objective import Objective
    from mtcli.training.optimizer import build_optimizer

    keep_freed_memory()
    torch.manual_seed(1)
    model = Transformer(ModelConfig.model_validate(SHAPE), VOCAB, VOCAB, joint=True).train()
    freeze_parameters(model, freeze)
    optimizer = build_optimizer(TrainConfig(lr=1e-5), model.parameters())
    objective = Objective(model, smoothing=0.1, bf16=precision == "bf16")
    src, tgt_in, tgt_out = torch.randint(4, VOCAB, (3, ROWS, WIDTH))
    batch = Batch(src, tgt_in, tgt_out)
    seconds = []
    for _ in range(1 + steps):
        began = time.perf_counter()
        loss, _ = objective(batch)
        (loss / tgt_out.numel()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        seconds.append(time.perf_counter() - began)
    return {
        "seconds": median(seconds[1:]),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000,
        "trainable": sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad),
    }


def report(found: dict[tuple[str, str], list[Figures]]) -> None:
    """Print the table and the line of JSON."""
    rows = []
    print("| precision | train.freeze | trained parameters | seconds per step | share | peak memory |")
    print("|---|---|---|---|---|---|")
    for (precision, freeze), runs in found.items():
        seconds = median(run["seconds"] for run in runs)
        peak_mb = median(run["peak_mb"] for run in runs)
        whole = median(run["seconds"] for run in found[precision, "none"])
        trainable = runs[0]["trainable"]
        print(
            f"| {precision} | `{freeze}` | {trainable:,} | {seconds:.2f} | {seconds / whole:.0%} | "
            f"{peak_mb / 1000:.2f} GB |"
        )
        rows.append({"precision": precision, "freeze": freeze, "seconds": seconds, "peak_mb": peak_mb})
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
