"""Translate one file with several ranks. They take its windows in turn and write a file each; rank 0 joins these."""

import logging
import shutil
from collections.abc import Callable, Iterable, Iterator
from itertools import count, islice
from pathlib import Path

import torch

from mtcli.errors import RankError, StorageError
from mtcli.runtime.distributed import Group, join
from mtcli.runtime.files import storage_errors
from mtcli.runtime.outputs import PartialFile, partial_file
from mtcli.runtime.signals import stopped_by_signals
from mtcli.text.lines import Counts
from mtcli.translate.streams import lines_of, report_counts
from mtcli.translate.translation import Options, Translation
from mtcli.translate.translator import Translator
from mtcli.translate.windows import WINDOW, Reading

log = logging.getLogger(__name__)

RenderLines = Callable[[Translation, int], Iterable[str]]
"""The output lines of the translation of the line with this number, from 0."""


def translate_file(
    translator: Translator,
    source: str,
    target: Path,
    options: Options,
    render: RenderLines,
    *,
    replace: bool,
) -> None:
    """Translate a file with all ranks.

    The windows are those of a single process. On a CPU so are their batches, if each rank has as many threads as that
    process. On a GPU, batches follow from the free memory.

    Args:
        translator: The translator of this rank.
        source: The file to read. Every rank reads all of it and keeps its own lines.
        target: The file to write. It appears when it is complete; after an error, the finished part is kept beside it.
        options: Options of the search.
        render: Formats a translation.
        replace: Read invalid UTF-8 as U+FFFD.

    Raises:
        RankError: Another rank has ended or does not answer.
        DataError: The text cannot be read.
        StorageError: The output cannot be written.
        StoppedError: A signal came.
    """
    parts = target.with_name(f".{target.name}.parts")
    counts = Counts()
    with join(torch.device("cpu")) as group, storage_errors(target):
        if group.is_main:
            shutil.rmtree(parts, ignore_errors=True)  # left by a job that was killed
            parts.mkdir()
        group.barrier()
        try:
            with stopped_by_signals():
                lines = _own_lines(lines_of(source, replace=replace, counts=counts), group)
                found = translator.translate(lines, options, Reading(rank=group.rank, num_ranks=group.size))
                num_written = _write_windows(found, parts, render, group)
                group.barrier()  # waits for hours, as `all_reduce_sum` does not: some ranks may take much longer
                num_windows = int(group.all_reduce_sum(torch.tensor(num_written)))
        except BaseException:
            if group.is_main:
                _keep_windows(parts, target)
            raise
        if group.is_main:
            with partial_file(target) as output:
                if _join_windows(parts, output) < num_windows:
                    raise StorageError(f"{parts}: windows of another machine are missing; use a shared file system")
            shutil.rmtree(parts)
            report_counts(counts)


def _own_lines(lines: Iterable[str], group: Group) -> Iterator[str]:
    """Yield the lines of this rank's windows."""
    for number, line in enumerate(lines):
        if number // WINDOW % group.size == group.rank:
            yield line


def _write_windows(found: Iterator[Translation], parts: Path, render: RenderLines, group: Group) -> int:
    """Write each window of this rank to a file with the window's number as its name, and return how many there are.

    Raises:
        RankError: Rank 0 has failed and deleted the folder.
    """
    num_written = 0
    for window in count(group.rank, group.size):
        translations = list(islice(found, WINDOW))
        if not translations:
            break
        unfinished = parts / f"{window}.tmp"
        try:
            with unfinished.open("w", encoding="utf-8", newline="\n") as file:
                for number, translation in enumerate(translations, window * WINDOW):
                    file.writelines(f"{line}\n" for line in render(translation, number))
            unfinished.replace(parts / str(window))
        except FileNotFoundError:
            if parts.exists() or not parts.parent.exists():
                raise
            raise RankError(f"rank {group.rank}: rank 0 has failed and kept the finished part of the output") from None
        num_written += 1
    return num_written


def _keep_windows(parts: Path, target: Path) -> None:
    """Join the finished windows beside the output, and warn where they are.

    It is a warning of its own because the error that ends the job may be reported by another rank.
    """
    if not parts.exists():  # deleted with the folder of the output, which the error names
        return
    try:
        output = PartialFile(target)
        _join_windows(parts, output)
    except (OSError, StorageError):  # no space for a copy
        log.warning("the finished parts of the output are in %s, %d lines per file", parts, WINDOW)
        return
    log.warning("%s", output.keep())
    shutil.rmtree(parts, ignore_errors=True)


def _join_windows(parts: Path, output: PartialFile) -> int:
    """Copy the windows up to the first that is missing, and return how many these are."""
    for window in count():
        part = parts / str(window)
        if not part.exists():
            break
        output.write_bytes(part.read_bytes())
    return window
