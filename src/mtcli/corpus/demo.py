"""The built-in English–Spanish corpus, `demo.tsv.gz`; `scripts/make_demo.py` generates it from its own grammar."""

import gzip
from dataclasses import dataclass
from importlib.resources import files

from mtcli.text.lines import Pair


@dataclass(frozen=True)
class DemoCorpus:
    """Pairs of (English, Spanish). No source of valid or test is in another split, ignoring case and punctuation."""

    train: list[Pair]
    valid: list[Pair]
    test: list[Pair]


def load() -> DemoCorpus:
    """Read the corpus from the installed package."""
    text = gzip.decompress((files("mtcli.corpus") / "demo.tsv.gz").read_bytes()).decode()
    splits: dict[str, list[Pair]] = {"train": [], "valid": [], "test": []}
    for line in text.removesuffix("\n").split("\n"):
        split, en, es = line.split("\t")
        splits[split].append((en, es))
    return DemoCorpus(**splits)
