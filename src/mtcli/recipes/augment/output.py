"""The file of synthetic pairs: TSV or JSON lines with both sides and their scores."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from gzip import GzipFile
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from mtcli.corpus.cache.training_sources import SCORES
from mtcli.errors import UsageError
from mtcli.runtime.outputs import whole_files

SUFFIXES = (".tsv", ".jsonl")

Record = Mapping[str, Any]
"""One pair: `translation` with a text for each language, and the scores."""


@dataclass(frozen=True)
class PairOutput:
    """Where pairs are written, and their languages."""

    path: Path
    src: str
    tgt: str

    def check(self) -> None:
        """Check the name of the file.

        Raises:
            UsageError: It has no known ending.
        """
        if self.form not in SUFFIXES:
            raise UsageError(f"--output {self.path}: name it x.tsv or x.jsonl, or x.tsv.gz or x.jsonl.gz")

    @property
    def form(self) -> str:
        """`.tsv` or `.jsonl`, if the name of the file is right."""
        name = self.path.name.lower().removesuffix(".gz")
        return Path(name).suffix

    @property
    def is_compressed(self) -> bool:
        """True if the file is written with gzip."""
        return self.path.name.lower().endswith(".gz")


def write_pairs(records: Callable[[], Iterable[Record]], output: PairOutput, keep: float) -> tuple[int, int]:
    """Write the records with the best scores, in their order.

    Args:
        records: Returns an iterator over all records. It is called twice.
        output: The file.
        keep: Share of the records to write. Of equal scores, the earlier records are written.

    Returns:
        The number of records that were written, and of those that were not.

    Raises:
        StorageError: The file cannot be written.
    """
    chosen = _best([record["score"] for record in records()], keep)
    with whole_files([output.path]) as (file,), _compressed(file, output) as stream:
        columns: list[str] = []
        for is_chosen, record in zip(chosen, records(), strict=True):
            if output.form == ".tsv" and not columns:
                columns = [name for name in SCORES if name in record]
                stream.write("\t".join([output.src, output.tgt, *columns]).encode() + b"\n")
            if is_chosen:
                stream.write(_line(record, output, columns).encode() + b"\n")
    written = int(chosen.sum())
    return written, len(chosen) - written


def _compressed(file: BinaryIO, output: PairOutput) -> AbstractContextManager[GzipFile | BinaryIO]:
    """Return a stream that writes to a file, with gzip if its name asks for it."""
    if not output.is_compressed:
        return nullcontext(file)
    # Without a name and a time in its head, a compressed file has the same bytes for the same pairs.
    return GzipFile("", "wb", fileobj=file, mtime=0)


def _best(scores: Sequence[float], keep: float) -> npt.NDArray[np.bool_]:
    """Return True for each of the best scores."""
    number = round(keep * len(scores))
    order = np.argsort(-np.array(scores, dtype=np.float64), kind="stable")
    chosen = np.zeros(len(scores), dtype=np.bool_)
    chosen[order[:number]] = True
    return chosen


def _line(record: Record, output: PairOutput, columns: Sequence[str]) -> str:
    if output.form == ".jsonl":
        return json.dumps(record, ensure_ascii=False)
    translation = record["translation"]
    # A model can write a tab by its byte, which would begin another column.
    texts = [translation[language].replace("\t", " ") for language in (output.src, output.tgt)]
    scores = [f"{record[name]:.4f}" for name in columns]
    return "\t".join([*texts, *scores])
