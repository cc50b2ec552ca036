"""The default run folder: named after the data or the configuration, so the same command finds its run again."""

from __future__ import annotations

import re
from pathlib import Path

from mtcli.config.schema import DataConfig
from mtcli.corpus.readers.sources import parse_source
from mtcli.text.languages import known

RUNS = Path("runs")
GENERIC = frozenset(
    {
        "all", "bitext", "clean", "cleaned", "config", "corpora", "corpus", "data", "dataset", "final", "out",
        "output", "pairs", "parallel", "raw", "sentences", "text", "train", "training",
    }
)  # fmt: skip
"""File names that do not identify a corpus. The name of the folder is added before them."""

_LANGUAGES = re.compile(r"(?:^|(?<=[-_.]))([A-Za-z]{2,3})[-_]([A-Za-z]{2,3})(?=$|[-_.])")
"""Two language codes in a name, such as `en-de`."""


def run_name(data: DataConfig, config: Path | None) -> str:
    """Return `NAME-SRC-TGT`, where NAME is that of the configuration file or the first corpus; `demo` without data.

    `pairs.tsv` gives `pairs`. A generic name (`train`, `data`, `en-de`) is preceded by that of its folder:
    `data/multi30k/train` gives `multi30k-train`.
    """
    if not data.train:
        return "demo"
    path = config.with_suffix("") if config else Path(_first_corpus(data))
    parts = [part for part in path.parts if part not in (path.anchor, "..")]
    words: list[str] = []
    for part in reversed(parts):
        is_corpus_file = not words and config is None
        word = _without_languages(part)
        if is_corpus_file:
            word = word.partition(".")[0]
        if word:
            words.insert(0, word)
        if word and word.casefold() not in GENERIC:
            break
    return "-".join([*words, f"{data.src}-{data.tgt}"])


def _first_corpus(data: DataConfig) -> str:
    """Return the path of the first corpus: of two files the first, of a Hub data set its name."""
    path = parse_source(data.train[0]).path
    return path.partition(",")[0].partition(":")[0]


def _without_languages(name: str) -> str:
    """Return a name without language codes: `Tatoeba.en` for `Tatoeba.en-es.en`."""
    found = _LANGUAGES.search(name)
    if found and known(found[1]) and known(found[2]):
        before = name[: found.start()].rstrip("-_.")
        return (before + name[found.end() :]).strip("-_")
    return name
