#!/usr/bin/env python3
"""Measure what a translation memory costs: reading, and the search for exact and near matches.

    python scripts/bench_memory.py PAIRS --src en --tgt de [--entries 100000] [--sentences 2000]

The pairs are shuffled. The first ones are the entries, and the sources of the last ones are looked up.
"""

import argparse
import os
import random
import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mtcli.corpus.readers.pairs import read_pairs
from mtcli.translate.memory import Entry, Memory


@dataclass
class Timed:
    """The times of a function for some sentences, sorted, in milliseconds."""

    times: list[float]

    @property
    def text(self) -> str:
        """Mean, 99th percentile and maximum."""
        mean = sum(self.times) / len(self.times)
        return f"mean {mean:.3f} ms, p99 {self.times[len(self.times) * 99 // 100]:.2f} ms, max {self.times[-1]:.2f} ms"


def timed(function: Callable[[str], object], sentences: Sequence[str]) -> Timed:
    times = []
    for sentence in sentences:
        start = time.process_time()
        function(sentence)
        times.append(1000 * (time.process_time() - start))
    return Timed(sorted(times))


def megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pairs")
    parser.add_argument("--src", required=True)
    parser.add_argument("--tgt", required=True)
    parser.add_argument("--entries", type=int, default=100_000)
    parser.add_argument("--sentences", type=int, default=2000)
    options = parser.parse_args()
    pairs = list(read_pairs(options.pairs, options.src, options.tgt))
    random.Random(1).shuffle(pairs)
    sentences = [source for source, _ in pairs[-options.sentences :]]
    print(f"{os.cpu_count()} cores; CPU time")

    memory = Memory()
    before = megabytes()
    start = time.process_time()
    for source, target in pairs[: options.entries]:
        memory.add(Entry(source, target))
    print(f"{len(memory):,} entries: {time.process_time() - start:.2f} s, {megabytes() - before:.0f} MB")
    before = megabytes()
    start = time.process_time()
    memory.find("a sentence that is in no memory")
    print(f"index of words: {time.process_time() - start:.2f} s, {megabytes() - before:.0f} MB")
    print(f"exact match of a sentence: {timed(memory.exact, sentences).text}")
    print(f"near match of a sentence: {timed(memory.find, sentences).text}")
    found = [match for match in map(memory.find, sentences) if match is not None]
    exact = sum(match.is_exact for match in found)
    print(f"of {len(sentences):,} sentences, {exact:,} have an exact match, and {len(found) - exact:,} a near one")


if __name__ == "__main__":
    main()
