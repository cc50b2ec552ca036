"""The default run folder, and the link to the run that was trained last.

The folder is named after the data or the configuration, so that the same command finds its run again. Commands use the
link if no model is named.
"""

from __future__ import annotations

import logging
import os
import re
import shlex
from contextlib import suppress
from pathlib import Path

from mtcli.config.schema import DataConfig
from mtcli.corpus.readers.sources import parse_source
from mtcli.errors import MtcliError
from mtcli.storage.events import read_events
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
    """Return `NAME-SRC-TGT`, where NAME is that of the configuration file, of the corrections or of the first corpus.

    Without data, it is `demo`.

    `pairs.tsv` gives `pairs`. A generic name (`train`, `data`, `en-de`) is preceded by that of its folder:
    `data/multi30k/train` gives `multi30k-train`.
    """
    if data.is_demo and data.corrections is None:
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
    sources = dict.fromkeys(direction.src for direction in data.directions)
    return "-".join([*words, "+".join(sources), "+".join(data.target_languages)])


def _first_corpus(data: DataConfig) -> str:
    """Return the path of the first corpus: of two files the first, of a Hub data set its name."""
    path = parse_source(data.corrections or data.specs[0]).path
    return path.partition(",")[0].partition(":")[0]


def _without_languages(name: str) -> str:
    """Return a name without language codes: `Tatoeba.en` for `Tatoeba.en-es.en`."""
    found = _LANGUAGES.search(name)
    if found and known(found[1]) and known(found[2]):
        before = name[: found.start()].rstrip("-_.")
        return (before + name[found.end() :]).strip("-_")
    return name


log = logging.getLogger(__name__)


def point_to(link: Path, run: Path) -> None:
    """Point the link to a run. A failure is only a warning, because the training has succeeded.

    A model whose translations are useless, with BLEU 0.0, does not replace one with better scores.

    Args:
        link: `runs/latest`.
        run: The run folder.
    """
    if link.exists() and not link.is_symlink():
        if not link.samefile(run):
            _warn(link, run, "it is not a link; move it away")
        return
    if link.is_symlink() and (link / "model.safetensors").exists() and not link.samefile(run):
        scores = _scores(run)
        if scores is not None and round(scores[0], 1) == 0 and (_scores(link) or scores) > scores:
            _warn(link, run, "its BLEU is 0.0, and the other's is better")
            return
    temporary = link.with_name(f".latest-{os.getpid()}")
    try:
        link.parent.mkdir(parents=True, exist_ok=True)
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(os.path.relpath(os.path.realpath(run), os.path.realpath(link.parent)))
        temporary.replace(link)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        _warn(link, run, error.strerror or str(error))


def modified(model: Path) -> int | None:
    """Return when a model file was written, in nanoseconds; None: there is none."""
    with suppress(OSError):
        return model.stat().st_mtime_ns
    return None


def _warn(link: Path, run: Path, reason: str) -> None:
    log.warning("%s does not lead to this run (%s); name the run: --model %s", link, reason, shlex.quote(str(run)))


def _scores(run: Path) -> tuple[float, float] | None:
    """Return BLEU and chrF of the best validation of a run; None: there was none, or its events cannot be read."""
    try:
        events, _ = read_events(run / "metrics.jsonl")
        found = [(float(event["bleu"]), float(event["chrf"])) for event in events if event["event"] == "valid"]
    except (MtcliError, OSError, KeyError, TypeError, ValueError):
        return None
    return max(found, default=None)
