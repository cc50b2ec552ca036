"""The folder of a run where nobody gave one: decided by the input, so that the same command finds its run again."""

from __future__ import annotations

import re
from pathlib import Path

from mtcli.config.languages import known
from mtcli.config.schema import DataConfig
from mtcli.config.toml_file import load
from mtcli.data.sources import parse_source
from mtcli.errors import MtcliError

RUNS = Path("runs")
GENERIC = frozenset(
    {
        "all", "bitext", "clean", "cleaned", "config", "corpora", "corpus", "data", "dataset", "final", "out",
        "output", "pairs", "parallel", "raw", "sentences", "text", "train", "training",
    }
)  # fmt: skip
"""Names that say nothing: with them goes the name of the folder."""

_LANGUAGES = re.compile(r"(?:^|(?<=[-_.]))([A-Za-z]{2,3})[-_]([A-Za-z]{2,3})(?=$|[-_.])")


def run_name(data: DataConfig, config: Path | None) -> str:
    """`demo`, or `NAME-SRC-TGT`, after the configuration or the first corpus.

    `pairs.tsv` is `pairs`. A name that says nothing (`train`, `data`, `en-de`) takes that of its folder along:
    `data/multi30k/train` is `multi30k-train`.
    """
    if not data.train:
        return "demo"
    languages = f"{data.src}-{data.tgt}"
    first = parse_source(data.train[0]).path
    path = config.with_suffix("") if config else Path(first.partition(",")[0].partition(":")[0])
    parts = [part for part in path.parts if part not in (path.anchor, "..")]
    words: list[str] = []
    for part in reversed(parts):
        word = _bare(part, cut=not words and config is None)
        if word:
            words.insert(0, word)
        if word and word.casefold() not in GENERIC:
            break
    return "-".join([*words, languages])


def default_run(data: DataConfig, config: Path | None) -> tuple[Path, bool]:
    """The default run folder, and whether it is that of an earlier version, which holds a run of the same data."""
    run = RUNS / run_name(data, config)
    earlier = RUNS / _earlier_name(data, config)
    if earlier != run and not run.exists() and _holds(earlier, data):
        return earlier, True
    return run, False


def _bare(part: str, *, cut: bool) -> str:
    """A part of a path without languages, and with `cut` without suffixes: `Tatoeba` of `Tatoeba.en-es.en`."""
    found = _LANGUAGES.search(part)
    if found and known(found[1]) and known(found[2]):
        part = (part[: found.start()].rstrip("-_.") + part[found.end() :]).strip("-_")
    return part.partition(".")[0] if cut else part


def _earlier_name(data: DataConfig, config: Path | None) -> str:
    """What version 0.1 called the run: by the file's name alone."""
    if not data.train:
        return "demo"
    first = parse_source(data.train[0]).path.partition(",")[0].partition(":")[0].rstrip("/")
    name = config.stem if config else Path(first).name.partition(".")[0]
    return f"{name}-{data.src}-{data.tgt}"


def _holds(run: Path, data: DataConfig) -> bool:
    """Return True if a run folder holds a run of this data."""
    try:
        began = load(run / "config.toml").data
    except MtcliError:
        return False
    return (began.train, began.src, began.tgt) == (data.train, data.src, data.tgt)
