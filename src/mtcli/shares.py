"""A file translated by several workers: they take its windows in turn, write each aside, and the first joins them."""

import shutil
from collections.abc import Callable, Iterable
from itertools import count, islice
from pathlib import Path

import torch

from mtcli.checkpoint import storage_errors
from mtcli.distributed import join
from mtcli.lines import Counts
from mtcli.streams import lines_of, say
from mtcli.translation import WINDOW, LineTranslator, Options, Translation


def translate_file(
    translator: LineTranslator,
    source: str,
    target: Path,
    options: Options,
    render: Callable[[Translation, int], Iterable[str]],
    *,
    replace: bool,
) -> None:
    """Translate a file as one worker would: the same windows, so with as many threads the same batches.

    Args:
        translator: This worker's.
        source: The file to read; every worker reads it, to find its own lines.
        target: The file to write; it appears when all is done.
        options: How to search.
        render: Output lines of the translation of the line with this number.
        replace: Read invalid UTF-8 as U+FFFD.

    Raises:
        WorkerError: Another worker is gone.
        DataError: The text cannot be read.
        StorageError: It cannot be written.
    """
    parts, counts = target.with_name(f".{target.name}.parts"), Counts()
    with join(torch.device("cpu")) as group, storage_errors(target):
        if group.leads:
            shutil.rmtree(parts, ignore_errors=True)  # of a run that was killed
            parts.mkdir()
        group.tell(None)
        lines = enumerate(lines_of(source, replace=replace, counts=counts))
        own = (line for number, line in lines if number // WINDOW % group.size == group.rank)
        found = translator.translate(own, options, share=(group.rank, group.size))
        written = 0
        for window in count(group.rank, group.size):
            if not (batch := list(islice(found, WINDOW))):
                break
            with (parts / str(window)).open("w", encoding="utf-8", newline="\n") as part:
                part.writelines(
                    f"{text}\n" for n, line in enumerate(batch, window * WINDOW) for text in render(line, n)
                )
            written += 1
        (windows,) = group.sum([written])
        if group.leads:
            with (parts / "joined").open("wb") as whole:
                for window in range(int(windows)):
                    with (parts / str(window)).open("rb") as one:
                        shutil.copyfileobj(one, whole)
            (parts / "joined").replace(target)
            shutil.rmtree(parts)
            say(counts)
