"""A file translated by several ranks: they take its windows in turn, write a file each, and rank 0 joins these."""

import logging
import shutil
from collections.abc import Callable, Iterable, Iterator
from itertools import count, islice
from pathlib import Path

import torch

from mtcli.data.lines import Counts
from mtcli.errors import RankError, StorageError
from mtcli.inference.line_translator import WINDOW, LineTranslator, Options, Translation
from mtcli.inference.streams import lines_of, say
from mtcli.runtime.distributed import join
from mtcli.runtime.files import storage_errors
from mtcli.runtime.outputs import PartialFile, partial_file, stopped_by_signals

log = logging.getLogger(__name__)


def translate_file(
    translator: LineTranslator,
    source: str,
    target: Path,
    options: Options,
    render: Callable[[Translation, int], Iterable[str]],
    *,
    replace: bool,
) -> None:
    """Translate a file as one process does: the same windows, and so the same batches with the same number of threads.

    Args:
        translator: The translator of this rank.
        source: The file to read; every rank reads it, to find its own lines.
        target: The file to write; it appears when all is done, and what there is of it beside it otherwise.
        options: How to search.
        render: Output lines of the translation of the line with this number.
        replace: Read invalid UTF-8 as U+FFFD.

    Raises:
        RankError: Another rank has ended or hangs.
        DataError: The text cannot be read.
        StorageError: It cannot be written.
        StoppedError: A signal came.
    """
    parts, counts = target.with_name(f".{target.name}.parts"), Counts()
    with join(torch.device("cpu")) as group, storage_errors(target):
        if group.is_main:
            shutil.rmtree(parts, ignore_errors=True)  # of a run that was killed
            parts.mkdir()
        group.barrier()
        try:
            with stopped_by_signals():
                lines = enumerate(lines_of(source, replace=replace, counts=counts))
                own = (line for number, line in lines if number // WINDOW % group.size == group.rank)
                found = translator.translate(own, options, share=(group.rank, group.size))
                written = _write_windows(found, parts, render, group.rank, group.size)
                group.barrier()  # some ranks may need much longer than others
                (windows,) = group.all_reduce_sum([written])
        except BaseException:
            if group.is_main:
                _keep_windows(parts, target)
            raise
        if group.is_main:
            with partial_file(target) as output:
                if _join(parts, output) < windows:
                    raise StorageError(f"{parts}: what another machine wrote is missing; give a shared file system")
            shutil.rmtree(parts)
            say(counts)


def _write_windows(
    found: Iterator[Translation], parts: Path, render: Callable[[Translation, int], Iterable[str]], rank: int, size: int
) -> int:
    """Write the windows of this rank, each to a file that is named after its number once it is whole.

    Raises:
        RankError: Rank 0 has failed and removed the folder.
    """
    written = 0
    for window in count(rank, size):
        batch = list(islice(found, WINDOW))
        if not batch:
            return written
        numbered = enumerate(batch, window * WINDOW)
        unfinished = parts / f"{window}.tmp"
        try:
            with unfinished.open("w", encoding="utf-8", newline="\n") as part:
                part.writelines(f"{text}\n" for number, line in numbered for text in render(line, number))
            unfinished.replace(parts / str(window))
        except FileNotFoundError:
            if parts.exists():
                raise
            raise RankError(f"rank {rank}: rank 0 has failed, and kept the finished part of the output") from None
        written += 1
    return written


def _keep_windows(parts: Path, target: Path) -> None:
    """Join what there is beside the output, and say so: the line of the error may be another rank's."""
    try:
        output = PartialFile(target)
        _join(parts, output)
    except (OSError, StorageError):  # no room for a copy
        log.warning("what is finished of the output is in %s, %d lines a file", parts, WINDOW)
        return
    log.warning("%s", output.keep())
    shutil.rmtree(parts, ignore_errors=True)


def _join(parts: Path, output: PartialFile) -> int:
    """Copy the windows, from the first to the last before one that is missing, and return how many these are."""
    window = 0
    while True:
        part = parts / str(window)
        if not part.exists():
            return window
        output.write_bytes(part.read_bytes())
        window += 1
