#!/usr/bin/env python3
"""Write the built-in demo corpus, `src/mtcli/corpus/demo.tsv.gz`, from the grammar in `scripts/demo/`.

    scripts/make_demo.py

Each line is a split (train, valid or test), an English sentence and its Spanish translation, separated by tabs. A test
generates the corpus again and compares it with the file.
"""

import gzip
from pathlib import Path

from demo import generate

from mtcli.corpus.demo import DemoCorpus

TARGET = Path(__file__).parents[1] / "src" / "mtcli" / "corpus" / "demo.tsv.gz"


def to_tsv(corpus: DemoCorpus) -> str:
    """Return the lines of the file."""
    splits = (("train", corpus.train), ("valid", corpus.valid), ("test", corpus.test))
    return "".join(f"{split}\t{en}\t{es}\n" for split, pairs in splits for en, es in pairs)


def main() -> None:
    """Write the file. No time is stored in it, so the same corpus gives the same bytes."""
    text = to_tsv(generate())
    TARGET.write_bytes(gzip.compress(text.encode(), compresslevel=9, mtime=0))
    print(f"{TARGET.name}: {text.count(chr(10)):,} pairs, {TARGET.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
