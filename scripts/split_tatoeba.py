#!/usr/bin/env python3
"""Make a task with few pairs and more text from the pairs of Tatoeba, for `scripts/results low-resource`.

    python scripts/split_tatoeba.py en-es.tsv.gz OUT

The table has an English sentence and its translation in two columns. OUT gets `train.tsv` (20,000 pairs), `valid.tsv`
and `test.tsv` (1,000 pairs each), and `mono.txt`: 80,000 other sentences of the second language, without translations.

All pairs of an English sentence go into the same file. No translation of a validation or test sentence is in the
other two files, and no sentence of `mono.txt` is in `train.tsv`.
"""

import argparse
import gzip
import hashlib
from collections.abc import Iterable
from pathlib import Path

NUM_TRAIN = 20_000
NUM_HELD_OUT = 1000
NUM_MONO = 80_000

Pairs = list[tuple[str, str]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path)
    parser.add_argument("out", type=Path)
    arguments = parser.parse_args()
    translations = read_translations(arguments.table)
    sources = sorted(translations, key=digest)
    test = sources[:NUM_HELD_OUT]
    valid = sources[NUM_HELD_OUT : 2 * NUM_HELD_OUT]
    held_out = {target.strip() for source in test + valid for target in translations[source]}
    train: Pairs = []
    rest = iter(sources[2 * NUM_HELD_OUT :])
    while len(train) < NUM_TRAIN:
        source = next(rest)
        train += [(source, target) for target in translations[source] if target.strip() not in held_out]
    del train[NUM_TRAIN:]
    known = held_out | {target for _, target in train}
    other = dict.fromkeys(target for source in rest for target in translations[source])
    mono = [target for target in other if target not in known][:NUM_MONO]
    arguments.out.mkdir(parents=True, exist_ok=True)
    write_pairs(arguments.out / "train.tsv", train)
    write_pairs(arguments.out / "valid.tsv", [(source, translations[source][0]) for source in valid])
    write_pairs(arguments.out / "test.tsv", [(source, translations[source][0]) for source in test])
    (arguments.out / "mono.txt").write_text("".join(f"{target}\n" for target in mono), encoding="utf-8")


def digest(source: str) -> bytes:
    """Return a key that sorts sentences in an order that looks random and is always the same."""
    return hashlib.sha256(source.encode()).digest()


def read_translations(table: Path) -> dict[str, list[str]]:
    """Return all translations of each English sentence."""
    translations: dict[str, list[str]] = {}
    with gzip.open(table, "rt", encoding="utf-8", newline="\n") as lines:
        for line in lines:
            source, target = line.rstrip("\n").split("\t")[:2]
            translations.setdefault(source, []).append(target)
    return translations


def write_pairs(path: Path, pairs: Iterable[tuple[str, str]]) -> None:
    path.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8")


if __name__ == "__main__":
    main()
