#!/usr/bin/env python3
"""Measure what a model learns from corrections: how many it gives, and how it translates the lines that come later.

    python scripts/check_corrections.py RUN OUT [--blocks 100,200,400] [--set section.key=value]...

The test pairs of RUN arrive in order. Each line that the model translates otherwise than its reference is corrected:
the reference is its correction. After as many corrections as a block has, the model learns them by
`mtcli train --init RUN --corrections FILE --out OUT/NUMBER`. Further options go to this command.

For each block, the script prints how many corrections the model gave before and gives now; BLEU of the test pairs that
were not corrected, before and after training (`mtcli eval`); BLEU and chrF of the lines that come after the last
correction, translated as `mtcli translate --memory FILE` does, by RUN and by the new model; and the steps and CPU
seconds of the command.
"""

import argparse
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mtcli.corpus.held_out import read_split, source_key
from mtcli.documents.lines import BySentence
from mtcli.evaluation import metrics
from mtcli.storage.events import best_of, read_events
from mtcli.text.lines import Pair, normalized
from mtcli.translate.loading import load
from mtcli.translate.memory import Entry, Memory
from mtcli.translate.windows import Reading

HEADER = "source\ttranslation\tdate\tnote\n"


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--blocks", default="100,200,400")
    arguments, options = parser.parse_known_args()
    pairs = list(
        {source_key(source): (source, target) for source, target in read_split(arguments.run, "test")}.values()
    )
    plain = translated(arguments.run, [source for source, _ in pairs])
    differs = [normalized(text) != normalized(target) for text, (_, target) in zip(plain, pairs, strict=True)]
    arguments.out.mkdir(parents=True, exist_ok=True)
    print(f"{len(pairs)} lines, {sum(differs)} of them translated otherwise than their reference")
    print("| corrections | lines until then | given before, now | other test pairs: BLEU before, now | later lines "
          "| with the memory alone: BLEU, chrF | after training: BLEU, chrF | steps | CPU seconds |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    for number in map(int, arguments.blocks.split(",")):
        places = [place for place, wrong in enumerate(differs) if wrong][:number]
        corrections = [pairs[place] for place in places]
        later = pairs[places[-1] + 1 :]
        folder = arguments.out / str(len(corrections))
        seconds = learn(arguments.run, folder, write(corrections, folder.with_suffix(".tsv")), options)
        print(row(arguments.run, folder, corrections, later, places[-1] + 1, seconds), flush=True)


def write(corrections: Sequence[Pair], file: Path) -> Path:
    """Write corrections as the server does, and return their file."""
    lines = (f"{source}\t{target}\t2026-11-25T00:00:00+00:00\t\n" for source, target in corrections)
    file.write_text(HEADER + "".join(lines), encoding="utf-8")
    return file


def learn(run: Path, folder: Path, file: Path, options: Sequence[str]) -> float:
    """Train, and return the CPU seconds of the command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    paths = ["--init", str(run), "--corrections", str(file), "--out", str(folder)]
    command = [sys.executable, "-m", "mtcli", "train", *paths, *options]
    with folder.with_suffix(".log").open("w") as log:
        subprocess.run(command, check=True, stderr=log)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def row(run: Path, folder: Path, corrections: Sequence[Pair], later: Sequence[Pair], lines: int, seconds: float) -> str:
    """Return a row of the table."""
    events, _ = read_events(folder / "metrics.jsonl")
    best: dict[str, Any] = best_of(events) or {}
    of_kind = {event["event"]: event for event in events}
    first = next(event for event in events if event["event"] == "valid")
    given = f"{first['corrections']['given']}, {best['corrections']['given']}"
    bleus = ", ".join(f"{of_kind[kind]['scores'][0]['score']:.1f}" for kind in ("start_test", "test"))
    memory = Memory()
    for source, target in corrections:
        memory.add(Entry(source, target))
    both = [scores(translated(model, [source for source, _ in later], memory), later) for model in (run, folder)]
    steps = of_kind["end"]["step"]
    cells = [len(corrections), lines, given, bleus, len(later), *both, steps, f"{seconds:.0f}"]
    return f"| {' | '.join(map(str, cells))} |"


def translated(model: Path, sources: Sequence[str], memory: Memory | None = None) -> list[str]:
    """Translate lines as `mtcli translate` does."""
    translator, options, (src, tgt) = load([model], "cpu", "torch")
    by_sentence = BySentence(translator, src, tgt, memory)
    return [translation.text for translation in by_sentence.translate(sources, options, Reading(warn=False))]


def scores(texts: Sequence[str], pairs: Sequence[Pair]) -> str:
    """Return BLEU and chrF of translations."""
    found = metrics.score(list(texts), [[target for _, target in pairs]], metrics=("bleu", "chrf"))
    return ", ".join(f"{score.value:.1f}" for score in found)


if __name__ == "__main__":
    main()
