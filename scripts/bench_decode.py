#!/usr/bin/env python3
"""Decoding speed of three decoders with the same weights, run alternately.

    python scripts/bench_decode.py --model DIR --input FILE --reference FILE [--beam 5] [--runs 5] [--threads N]
    python scripts/bench_decode.py --model DIR --input FILE --lines 20000 [--beam 5] [--runs 5] [--threads N]

The sides:

- `ours`: `mtcli translate` with PyTorch.
- `ctranslate2`: that library alone, on the exported model. It returns the best hypothesis by its own score, and gets
  batches that are sorted by length, with one thread per core.
- `engine`: the same library in `mtcli translate --engine ctranslate2`, which takes the whole beam and scores it as
  `ours` does.

The measurements, each repeated `--runs` times:

- Sentences per second from lines of text to lines of text, without loading the model and without a first batch. Each
  run is a process of its own with the same number of threads.
- Warm latency: one sentence at a time, in the same process.
- Cold latency: a whole process for one sentence, with `import torch` and `mtcli --help` for comparison.
- Peak memory of `mtcli translate` for files of 1,000 and 20,000 lines, in which the input is repeated.

The script prints a table and, as the last line, JSON. `ratio` is the median of the ratios of neighbouring runs, `ours`
to `ctranslate2`, in sentences per second. `equal_share` is the share of lines with the same translation in `ours` and
`engine`.

With `--lines N`, the script measures something else: whole processes, start and end included, that translate a file of
N lines, in which the input is repeated. They run alternately:

- `mtcli`: `mtcli translate --model DIR`, with the engine of the run.
- `documented`: a Python script with the same weights, as CTranslate2's documentation describes it for throughput: the
  library `tokenizers`, all lines in one call, batches by tokens, and one worker per core with one thread each.

It prints the wall-clock time and the CPU seconds (user + system) of each process, the medians of their ratios
`documented` to `mtcli` (above 1: mtcli is faster), and the share of lines with the same translation. CPU seconds do not
contain the time in which cores wait.
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
"""Lines of the first batch, and of the warm latency."""
MEMORY_LINES = (1000, 20_000)
LENGTH_PENALTY = 0.6
"""Of the documented script, as in mtcli's defaults."""
MAX_EXTRA = 50
"""Tokens of a translation beyond those of the longest source, as in mtcli's defaults."""
Figures = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", type=Path, required=True, help="a run folder")
    parser.add_argument("--input", type=Path, required=True, help="source lines")
    parser.add_argument("--reference", type=Path, help="their translations; not with --lines")
    parser.add_argument("--lines", type=int, help="time whole processes that translate this number of lines")
    parser.add_argument("--batch-tokens", type=int, default=2048, help="of a batch of the documented script")
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--tokenize", help="sacrebleu's tokenizer for BLEU; `none` for tokenized text")
    parser.add_argument("--side", choices=[*SIDES, "documented"], help=argparse.SUPPRESS)  # a process of its own
    parser.add_argument("--output", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(args.threads)
    if args.side == "documented":
        documented(args)
        return
    if args.lines:
        with tempfile.TemporaryDirectory() as folder:
            compare_processes(args, Path(folder))
        return
    if args.reference is None:
        parser.error("--reference is required without --lines")
    if args.side:
        print(json.dumps(one_run(args)))
        return
    with tempfile.TemporaryDirectory() as folder:
        exported = Path(folder) / "exported"
        run_python(["-m", "mtcli", "export", str(args.model), "-o", str(exported)])
        models = {"ours": args.model, "ctranslate2": exported, "engine": exported}
        rest = ["--input", args.input, "--reference", args.reference, "--beam", args.beam, "--threads", args.threads]
        found: dict[str, list[Figures]] = {side: [] for side in SIDES}
        for run in range(args.runs):
            for side in SIDES if run % 2 == 0 else SIDES[::-1]:
                command = [__file__, "--side", side, "--model", models[side], *rest]
                found[side].append(json.loads(run_python(command).splitlines()[-1]))
            print(f"run {run + 1} of {args.runs}: ratio {ratios(found)[-1]:.2f}", file=sys.stderr)
        cold = cold_starts(args.model, exported, args.runs)
        memory = [[peak_memory(args, Path(folder), lines) for lines in MEMORY_LINES] for _ in range(args.runs)]
        report(args, found, cold, memory)


def run_python(command: Sequence[str | Path]) -> str:
    """Run `python …` and return its standard output."""
    return subprocess.run([sys.executable, *map(str, command)], check=True, capture_output=True, text=True).stdout


def ratios(found: dict[str, list[Figures]]) -> list[float]:
    """Return the speed of `ours` relative to `ctranslate2` in each run."""
    pairs = zip(found["ours"], found["ctranslate2"], strict=True)
    return [ours["sentences_per_s"] / theirs["sentences_per_s"] for ours, theirs in pairs]


def one_run(args: argparse.Namespace) -> Figures:
    """Time one side on the whole input, then line by line."""
    from mtcli.text.lines import read_lines

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
    """Return a function that translates as `mtcli translate` does with this folder."""
    from dataclasses import replace

    from mtcli.translate.loading import load
    from mtcli.translate.windows import Reading

    if args.side == "ours":
        import torch

        torch.set_num_threads(args.threads)
    found, options, _ = load([args.model], "cpu")
    options = replace(options, beam_size=args.beam)
    return lambda lines: [translation.text for translation in found.translate(lines, options, Reading(warn=False))]


def library(args: argparse.Namespace) -> Callable[[Sequence[str]], list[str]]:
    """Return a function that calls CTranslate2 as its documentation shows, with our tokenizer."""
    from mtcli.translate.backends.ctranslate2 import BATCH_TOKENS, CTranslate2Backend

    engine = CTranslate2Backend(args.model, "cpu")
    src_tokens = engine.tokenizer.src_vocabulary
    tgt_ids = {token: token_id for token_id, token in enumerate(engine.tokenizer.tgt_vocabulary)}
    defaults = engine.default_options

    def translate(lines: Sequence[str]) -> list[str]:
        sources = [[src_tokens[token_id] for token_id in row] for row in engine.tokenizer.encode_src(lines)]
        results = engine.native.translate_batch(
            sources,
            beam_size=args.beam,
            length_penalty=defaults.length_penalty if args.beam > 1 else 0,
            max_decoding_length=max(map(len, sources)) + defaults.max_extra,  # the same limit for all lines
            max_batch_size=BATCH_TOKENS,
            batch_type="tokens",
        )
        return engine.tokenizer.decode([[tgt_ids[token] for token in result.hypotheses[0]] for result in results])

    return translate


def documented(args: argparse.Namespace) -> None:
    """Translate a file as CTranslate2's documentation describes it, without mtcli."""
    import ctranslate2
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(args.model / "tokenizer.json"))
    translator = ctranslate2.Translator(str(args.model), device="cpu", inter_threads=args.threads, intra_threads=1)
    with args.input.open(encoding="utf-8") as file:
        lines = [line.rstrip("\n") for line in file]
    sources = [encoding.tokens for encoding in tokenizer.encode_batch(lines, add_special_tokens=False)]
    results = translator.translate_batch(
        sources,
        beam_size=args.beam,
        length_penalty=LENGTH_PENALTY,
        max_decoding_length=max(map(len, sources)) + MAX_EXTRA,
        max_batch_size=args.batch_tokens,
        batch_type="tokens",
    )
    vocabulary = tokenizer.get_vocab()
    ids = [[vocabulary[token] for token in result.hypotheses[0]] for result in results]
    with args.output.open("w", encoding="utf-8") as file:
        file.writelines(f"{text}\n" for text in tokenizer.decode_batch(ids))


def compare_processes(args: argparse.Namespace, folder: Path) -> None:
    """Time whole processes of both sides alternately, and print a table and a line of JSON."""
    source = folder / "lines.txt"
    source.write_text(repeated(args.input, args.lines), encoding="utf-8")
    outputs = {side: folder / f"{side}.txt" for side in ("mtcli", "documented")}
    common: list[str | Path] = ["--input", source, "--beam", str(args.beam)]
    documented_options = ["--threads", str(args.threads), "--batch-tokens", str(args.batch_tokens)]
    mtcli: list[str | Path] = ["-m", "mtcli", "translate", "--device", "cpu", "--model", args.model]
    script: list[str | Path] = [__file__, "--side", "documented", "--model", args.model / "engine"]
    commands = {
        "mtcli": [*mtcli, "-i", source, "-b", str(args.beam), "-o", outputs["mtcli"]],
        "documented": [*script, *common, *documented_options, "--output", outputs["documented"]],
    }
    wall: dict[str, list[float]] = {side: [] for side in commands}
    cpu: dict[str, list[float]] = {side: [] for side in commands}
    print(f"{args.lines:,} lines, beam {args.beam}, {args.threads} threads; seconds of whole processes")
    for run in range(args.runs):
        for side in commands if run % 2 == 0 else reversed(commands):
            started = time.perf_counter()
            usage = timed_process(commands[side])
            wall[side].append(time.perf_counter() - started)
            cpu[side].append(usage.ru_utime + usage.ru_stime)
        shown = "; ".join(f"{side} wall {wall[side][-1]:.1f}, CPU {cpu[side][-1]:.1f}" for side in commands)
        print(f"run {run + 1} of {args.runs}: {shown}", flush=True)
    texts = [output.read_text(encoding="utf-8").split("\n") for output in outputs.values()]
    equal = sum(ours == theirs for ours, theirs in zip(*texts, strict=True)) / len(texts[0])
    summary: Figures = {"equal_share": round(equal, 4)}
    for name, seconds in (("wall", wall), ("cpu", cpu)):
        found = [theirs / ours for ours, theirs in zip(seconds["mtcli"], seconds["documented"], strict=True)]
        print(f"{name}: mtcli {median(seconds['mtcli']):.1f}, documented {median(seconds['documented']):.1f}, ", end="")
        print(f"ratio {median(found):.2f} (runs {min(found):.2f} to {max(found):.2f})")
        summary[f"{name}_ratio"] = round(median(found), 3)
        summary |= {f"{side}_{name}_s": round(median(values), 2) for side, values in seconds.items()}
    settings = {"lines": args.lines, "beam_size": args.beam, "threads": args.threads, "runs": args.runs}
    print(json.dumps({**summary, **settings}))


def repeated(path: Path, lines: int) -> str:
    """Return the text of a file that repeats the lines of another."""
    from mtcli.text.lines import read_lines

    return "".join(f"{line}\n" for line in islice(cycle(read_lines(path)), lines))


def timed_process(command: Sequence[str | Path]) -> Any:
    """Run `python …`, and return its resource usage."""
    with subprocess.Popen([sys.executable, *map(str, command)], stderr=subprocess.DEVNULL) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{command} ended with {process.returncode}")
    return usage


def cold_starts(model: Path, exported: Path, runs: int) -> dict[str, float]:
    """Return the median duration of whole processes in seconds, run alternately.

    `cold_default_s` uses the engine of the run if it has one that is proven equal to PyTorch; `mtcli info` shows it.
    """
    commands: dict[str, list[str | Path]] = {
        "cold_ours_s": ["-m", "mtcli", "translate", "--model", model, "--engine", "torch", "Hello World"],
        "cold_default_s": ["-m", "mtcli", "translate", "--model", model, "Hello World"],
        "cold_import_torch_s": ["-c", "import torch"],
        "cold_engine_s": ["-m", "mtcli", "translate", "--model", exported, "Hello World"],
        "cold_help_s": ["-m", "mtcli", "--help"],
    }
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(runs):
        for name, command in commands.items():
            started = time.perf_counter()
            run_python(command)
            times[name].append(time.perf_counter() - started)
    return {name: round(median(values), 3) for name, values in times.items()}


def peak_memory(args: argparse.Namespace, folder: Path, lines: int) -> float:
    """Return the largest resident size, in MB, of a process that translates this number of lines."""
    source = folder / "lines.txt"
    source.write_text(repeated(args.input, lines), encoding="utf-8")
    command = [
        "-m",
        "mtcli",
        "translate",
        "--model",
        args.model,
        "--engine",
        "torch",
        "-b",
        args.beam,
        "-i",
        source,
        "-o",
        folder / "out.txt",
    ]
    usage = timed_process(command)
    return float(usage.ru_maxrss) / (2**20 if sys.platform == "darwin" else 2**10)


def report(
    args: argparse.Namespace, found: dict[str, list[Figures]], cold: dict[str, float], memory: list[list[float]]
) -> None:
    """Print the table, then the line of JSON."""
    from mtcli.evaluation.metrics import score
    from mtcli.text.lines import read_lines

    references = list(read_lines(args.reference))
    texts = {side: runs[-1]["translations"] for side, runs in found.items()}
    bleu = {side: score(texts[side], [references], tokenize=args.tokenize)[0] for side in SIDES}
    print(f"{len(references)} sentences, beam {args.beam}, {args.threads} threads; {bleu['ours'].signature}")
    print(f"{'':12} {'sentences/s of each run':{8 * args.runs}} {'median':>8} {'warm ms':>8} {'BLEU':>6}")
    summary: Figures = {}
    for side, runs in found.items():
        speeds = [run["sentences_per_s"] for run in runs]
        speed = median(speeds)
        warm = median(run["warm_ms"] for run in runs)
        row = "".join(f"{value:8.1f}" for value in speeds)
        print(f"{side:12} {row} {speed:8.1f} {warm:8.1f} {bleu[side].value:6.2f}")
        summary |= {
            f"{side}_sentences_per_s": round(speed, 1),
            f"{side}_warm_sentence_ms": round(warm, 2),
            f"{side}_bleu": round(bleu[side].value, 2),
        }
    num_equal = sum(ours == theirs for ours, theirs in zip(texts["ours"], texts["engine"], strict=True))
    equal = num_equal / len(references)
    ratio = median(ratios(found))
    print(f"ours / ctranslate2 {ratio:.2f}; lines equal in ours and engine {equal:.1%}")
    print("; ".join(f"{name.removesuffix('_s').replace('_', ' ')} {seconds:.2f} s" for name, seconds in cold.items()))
    growth = [many / few for few, many in memory]
    shown = ", ".join(f"{ratio:.2f}" for ratio in growth)
    print(f"peak memory of {MEMORY_LINES[1]:,} lines / of {MEMORY_LINES[0]:,}: {shown}")
    medians = map(median, zip(*memory, strict=True))
    peaks: Figures = {
        f"peak_memory_{lines}_lines_mb": round(peak) for lines, peak in zip(MEMORY_LINES, medians, strict=True)
    }
    peaks["memory_ratio"] = round(median(growth), 3)
    settings = {"beam_size": args.beam, "threads": args.threads, "runs": args.runs, "sentences": len(references)}
    print(json.dumps({"ratio": round(ratio, 3), **summary, "equal_share": equal, **cold, **peaks, **settings}))


if __name__ == "__main__":
    main()
