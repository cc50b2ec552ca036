#!/usr/bin/env python3
"""Speed on a machine whose cores are used by other processes, for several spin counts of OpenMP.

    python scripts/bench_load.py --train PREFIX --src en --tgt de [--spin 300 3000] [--runs 3] [--steps 30]
        [--busy 2] [--model RUN --input FILE]

The script trains as `scripts/bench_train.py` does, each time in a process of its own: on idle cores, and while `--busy`
other processes compute. It compares the spin count that mtcli sets, the default of GNU's OpenMP, and each `--spin`.
With `--model` it also translates a file; this time includes the start of the process.

It prints a table of medians and, as the last line, JSON. Both relative figures are against the speed on idle cores with
the default of OpenMP: `cost` is the loss on idle cores, and `kept` is the speed under load.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import bench_train

from mtcli.cli.process import SPIN_COUNT, WAITING

OPENMP = "300000"
"""The default spin count of GNU's OpenMP."""

Speeds = dict[tuple[str, str, bool], list[float]]
"""Speeds by (work, spin count, True if other processes compute)."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--train", required=True, help="training pairs, as for `mtcli train`")
    parser.add_argument("--src", required=True)
    parser.add_argument("--tgt", required=True)
    parser.add_argument("--spin", nargs="*", default=[], metavar="N", help="further spin counts to try")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=30, help="training steps; a multiple of 5")
    parser.add_argument("--busy", type=int, default=2, metavar="N", help="other processes that compute")
    parser.add_argument("--model", type=Path, help="translate with this model too")
    parser.add_argument("--input", type=Path, help="the lines to translate")
    args = parser.parse_args()
    if (args.model is None) != (args.input is None):
        parser.error("give --model and --input together")
    for name in WAITING:
        os.environ.pop(name, None)
    spins = list(dict.fromkeys([OPENMP, SPIN_COUNT, *args.spin]))
    speeds: Speeds = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        args.folder = Path(folder)
        args.precision = "auto"
        bench_train.prepare_both(args, args.folder)
        for run in range(args.runs):
            for busy in (False, True):
                with load(args.busy if busy else 0):
                    measure(args, spins, busy, speeds)
            print(f"run {run + 1} of {args.runs}", file=sys.stderr)
    report(speeds, spins)


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


def measure(args: argparse.Namespace, spins: list[str], busy: bool, speeds: Speeds) -> None:
    """Measure the speed of each work with each setting once."""
    for spin in spins:
        os.environ["GOMP_SPINCOUNT"] = spin
        speeds["training, tokens/s", spin, busy].append(training_speed(args))
        if args.model:
            speeds["translating, lines/s", spin, busy].append(translating_speed(args))


def training_speed(args: argparse.Namespace) -> float:
    command = [bench_train.__file__, "--train", args.train, "--src", args.src, "--tgt", args.tgt]
    command += ["--steps", str(args.steps), "--folder", str(args.folder), "--side", "ours"]
    return bench_train.in_a_process(command)["target_tokens_per_s"]


def translating_speed(args: argparse.Namespace) -> float:
    command = [sys.executable, "-m", "mtcli", "translate", "--model", args.model, "--engine", "torch"]
    command += ["-i", args.input, "-o", os.devnull]
    started = time.perf_counter()
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    seconds = time.perf_counter() - started
    return len(args.input.read_bytes().splitlines()) / seconds


def report(speeds: Speeds, spins: list[str]) -> None:
    """Print the table, then the line of JSON."""
    line = "{:<22}{:>12}{:>12}{:>12}{:>8}{:>8}".format
    print(line("", "spin count", "quiet", "busy", "cost", "kept"))
    rows = []
    for work in dict.fromkeys(work for work, _, _ in speeds):
        reference = median(speeds[work, OPENMP, False])
        for spin in spins:
            quiet = median(speeds[work, spin, False])
            busy = median(speeds[work, spin, True])
            cost = 1 - quiet / reference
            kept = busy / reference
            print(line(work, spin, f"{quiet:,.1f}", f"{busy:,.1f}", f"{cost:.1%}", f"{kept:.2f}"))
            row = {"work": work, "spin": int(spin), "quiet": quiet, "busy": busy, "cost": cost, "kept": kept}
            rows.append({name: round(value, 3) if isinstance(value, float) else value for name, value in row.items()})
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
