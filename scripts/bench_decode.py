#!/usr/bin/env python3
"""Decoding speed: our decoder, CTranslate2, and the exported engine, alternately, on the same weights.

    python scripts/bench_decode.py --model DIR --input FILE --reference FILE [--beam 5] [--runs 5] [--threads N]

The model is exported first. Each run is a process of its own with the same number of threads; loading the model and a
first batch are left out, from lines of text to lines of text is measured. `ours` is `mtcli translate` with PyTorch;
`ctranslate2` is that library's own call (best hypothesis only, ranked its way; length-sorted token batches, a worker of
one thread for each core); `engine` is the same library as `mtcli translate --engine ctranslate2` uses it, which asks
for the whole beam and ranks it as `ours` does. Measured alternately besides: one sentence at a time in a process that
has begun (warm), and one sentence as a whole process (cold), beside `import torch` and `mtcli --help`. Last, as
often, the peak memory of `mtcli translate` as a process for files of 1,000 and of 20,000 lines, which are the input
over and over.

Prints a table and, as the last line, JSON. `ratio` is the median of the ratios of neighbouring runs, `ours` to
`ctranslate2` in sentences a second; `equal_share` is the share of lines that `ours` and `engine` translate alike.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from typing import Any

SIDES = ("ours", "ctranslate2", "engine")
WARM_LINES = 50
LINES = (1000, 20_000)
Figures = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", type=Path, required=True, help="a run folder")
    parser.add_argument("--input", type=Path, required=True, help="source lines")
    parser.add_argument("--reference", type=Path, required=True, help="their translations")
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--tokenize", help="sacrebleu's, for BLEU: `none` for text that is tokenised")
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)  # one run, in its own process
    args = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(args.threads)
    if args.side:
        print(json.dumps(one_run(args)))
        return
    with tempfile.TemporaryDirectory() as folder:
        exported = Path(folder) / "exported"
        in_a_process(["-m", "mtcli", "export", str(args.model), "-o", str(exported)])
        models = {"ours": args.model, "ctranslate2": exported, "engine": exported}
        rest = ["--input", args.input, "--reference", args.reference, "--beam", args.beam, "--threads", args.threads]
        found: dict[str, list[Figures]] = {side: [] for side in SIDES}
        for run in range(args.runs):
            for side in SIDES if run % 2 == 0 else SIDES[::-1]:
                command = [__file__, "--side", side, "--model", models[side], *rest]
                found[side].append(json.loads(in_a_process(command).splitlines()[-1]))
            print(f"run {run + 1} of {args.runs}: ratio {ratios(found)[-1]:.2f}", file=sys.stderr)
        cold = cold_starts(args.model, exported, args.runs)
        memory = [[peak_memory(args, Path(folder), lines) for lines in LINES] for _ in range(args.runs)]
        report(args, found, cold, memory)


def in_a_process(command: Sequence[Any]) -> str:
    """Standard output of `python …`."""
    return subprocess.run([sys.executable, *map(str, command)], check=True, capture_output=True, text=True).stdout


def ratios(found: dict[str, list[Figures]]) -> list[float]:
    """Of each run."""
    pairs = zip(found["ours"], found["ctranslate2"], strict=True)
    return [a["sentences_per_s"] / b["sentences_per_s"] for a, b in pairs]


def one_run(args: argparse.Namespace) -> Figures:
    """Time one side on the whole input, then line by line."""
    from mtcli.data.lines import read_lines

    lines = list(read_lines(args.input))
    translate = library(args) if args.side == "ctranslate2" else translator(args)
    translate(lines[:WARM_LINES])
    started = time.perf_counter()
    texts = translate(lines)
    seconds = time.perf_counter() - started
    latencies = []
    for line in lines[:WARM_LINES]:
        started = time.perf_counter()
        translate([line])
        latencies.append(time.perf_counter() - started)
    return {"sentences_per_s": len(lines) / seconds, "warm_ms": 1000 * median(latencies), "translations": texts}


def translator(args: argparse.Namespace) -> Callable[[Sequence[str]], list[str]]:
    """What `mtcli translate` does with the folder."""
    from dataclasses import replace

    from mtcli.inference.loading import load

    if args.side == "ours":
        import torch

        torch.set_num_threads(args.threads)
    found, options, _ = load(args.model, "cpu")
    options = replace(options, beam_size=args.beam)
    return lambda lines: [t.text for t in found.translate(lines, options, warn=False)]


def library(args: argparse.Namespace) -> Callable[[Sequence[str]], list[str]]:
    """CTranslate2 as its documentation shows it, around our tokenizer."""
    from mtcli.inference.ctranslate2_backend import BATCH_TOKENS, Engine

    engine = Engine(args.model, "cpu")
    pieces, ids = engine.tokenizer.src_vocabulary, {p: i for i, p in enumerate(engine.tokenizer.tgt_vocabulary)}

    def translate(lines: Sequence[str]) -> list[str]:
        sources = [[pieces[i] for i in row] for row in engine.tokenizer.encode_src(lines)]
        results = engine.native.translate_batch(
            sources,
            beam_size=args.beam,
            length_penalty=engine.defaults.length_penalty if args.beam > 1 else 0,
            max_decoding_length=max(map(len, sources)) + engine.defaults.max_extra,  # one limit for all
            max_batch_size=BATCH_TOKENS,
            batch_type="tokens",
        )
        return engine.tokenizer.decode([[ids[piece] for piece in result.hypotheses[0]] for result in results])

    return translate


def cold_starts(model: Path, exported: Path, runs: int) -> dict[str, float]:
    """Median seconds of whole processes, run alternately."""
    commands = {
        "cold_ours_s": ["-m", "mtcli", "translate", "--model", model, "Hello World"],
        "cold_import_torch_s": ["-c", "import torch"],
        "cold_engine_s": ["-m", "mtcli", "translate", "--model", exported, "Hello World"],
        "cold_help_s": ["-m", "mtcli", "--help"],
    }
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(runs):
        for name, command in commands.items():
            started = time.perf_counter()
            in_a_process(command)
            times[name].append(time.perf_counter() - started)
    return {name: round(median(values), 3) for name, values in times.items()}


def peak_memory(args: argparse.Namespace, folder: Path, lines: int) -> float:
    """Largest resident size of a process that translates so many lines, in MB."""
    from mtcli.data.lines import read_lines

    source = folder / "lines.txt"
    source.write_text("".join(f"{line}\n" for line in islice(cycle(read_lines(args.input)), lines)), encoding="utf-8")
    command = [
        "-m",
        "mtcli",
        "translate",
        "--model",
        args.model,
        "-b",
        args.beam,
        "-i",
        source,
        "-o",
        folder / "out.txt",
    ]
    with subprocess.Popen([sys.executable, *map(str, command)], stderr=subprocess.DEVNULL) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"translating {lines} lines ended with {process.returncode}")
    return usage.ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)


def report(
    args: argparse.Namespace, found: dict[str, list[Figures]], cold: dict[str, float], memory: list[list[float]]
) -> None:
    """The table, then the JSON line."""
    from mtcli.data.lines import read_lines
    from mtcli.evaluation.metrics import score

    references = list(read_lines(args.reference))
    texts = {side: runs[-1]["translations"] for side, runs in found.items()}
    bleu = {side: score(texts[side], [references], tokenize=args.tokenize)[0] for side in SIDES}
    print(f"{len(references)} sentences, beam {args.beam}, {args.threads} threads; {bleu['ours'].signature}")
    print(f"{'':12} {'sentences/s of each run':{8 * args.runs}} {'median':>8} {'warm ms':>8} {'BLEU':>6}")
    summary: Figures = {}
    for side, runs in found.items():
        speeds = [run["sentences_per_s"] for run in runs]
        speed, warm = median(speeds), median(run["warm_ms"] for run in runs)
        row = "".join(f"{value:8.1f}" for value in speeds)
        print(f"{side:12} {row} {speed:8.1f} {warm:8.1f} {bleu[side].value:6.2f}")
        summary |= {
            f"{side}_sentences_per_s": round(speed, 1),
            f"{side}_warm_sentence_ms": round(warm, 2),
            f"{side}_bleu": round(bleu[side].value, 2),
        }
    equal = sum(a == b for a, b in zip(texts["ours"], texts["engine"], strict=True)) / len(references)
    ratio = median(ratios(found))
    print(f"ours / ctranslate2 {ratio:.2f}; lines equal in ours and engine {equal:.1%}")
    print("; ".join(f"{name.removesuffix('_s').replace('_', ' ')} {seconds:.2f} s" for name, seconds in cold.items()))
    growth = [many / few for few, many in memory]
    print(f"peak memory of {LINES[1]:,} lines / of {LINES[0]:,}: {', '.join(f'{x:.2f}' for x in growth)}")
    medians = map(median, zip(*memory, strict=True))
    peaks = {f"peak_memory_{lines}_lines_mb": round(peak) for lines, peak in zip(LINES, medians, strict=True)}
    peaks["memory_ratio"] = round(median(growth), 3)
    settings = {"beam_size": args.beam, "threads": args.threads, "runs": args.runs, "sentences": len(references)}
    print(json.dumps({"ratio": round(ratio, 3), **summary, "equal_share": equal, **cold, **peaks, **settings}))


if __name__ == "__main__":
    main()
