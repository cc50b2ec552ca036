"""`mtcli data clean`: the pairs that no removing rule catches, written in their order, and what was left out."""

from __future__ import annotations

import csv
import gzip
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from io import TextIOWrapper
from pathlib import Path
from typing import BinaryIO, TextIO

from mtcli.data.quality.rules import BIT, REMOVES, rules, tidy
from mtcli.data.quality.survey import Corpus, survey
from mtcli.errors import DataError, UsageError
from mtcli.runtime.outputs import check_outputs, whole_files


@dataclass
class Cleaned:
    """What `clean` did: `read` is `kept` and everything in `removed`."""

    read: int = 0
    kept: int = 0
    tidied: int = 0
    """Pairs among those kept whose white space was changed."""
    removed: Counter[str] = field(default_factory=Counter)


def clean(pairs: Corpus, output: Path, rejected: Path | None = None, *, force: bool = False) -> Cleaned:
    """Write the pairs that no removing rule catches, in their order and with tidy white space.

    Args:
        pairs: What to read.
        output: `x.tsv`, `x.csv`, `x.jsonl`, or a prefix for a file a language, each with `.gz` if wanted.
        rejected: JSON lines: each pair that was left out, with its reason and line.
        force: Replace files that are there already.

    Raises:
        DataError: A reader cannot go on, or a file changed meanwhile.
        UsageError: A name for the output that says no form, one of a file that is read, or, without `force`, one of a
            file that is not empty.
        StorageError: The output cannot be written.
    """
    files = _output_files(output, pairs.src, pairs.tgt)
    inputs = pairs.files()
    check_outputs([*files, rejected], [*inputs, *pairs.folders()], force=force)
    before = _states(inputs)
    found, table, done = survey(pairs).found, rules(), Cleaned()
    with _written([*files, *([rejected] if rejected else [])]) as streams:
        outputs, aside = streams[: len(files)], streams[-1] if rejected else None
        if output.name.removesuffix(".gz").endswith(".csv"):  # the header, by which any reader knows the sides
            _write(outputs, files, {pairs.src: pairs.src, pairs.tgt: pairs.tgt})
        for path, number, record in pairs.records("writing"):
            if done.read == len(found):
                raise DataError(f"{path}: grew while it was read; run the same command again")
            bits = int(found[done.read]) & REMOVES
            if isinstance(record, str) and not bits:
                raise DataError(f"{pairs.place(path, number)}: changed while it was read; run the same command again")
            done.read += 1
            if not bits:
                done.kept += 1
                done.tidied += bool(found[done.read - 1] & BIT["white space"])
                _write(outputs, files, {pairs.src: tidy(record[0]), pairs.tgt: tidy(record[1])})
                continue
            reason = table[(bits & -bits).bit_length() - 1].name
            done.removed[reason] += 1
            if aside:
                sides = (record, "") if isinstance(record, str) else record
                row = {"translation": dict(zip((pairs.src, pairs.tgt), sides, strict=True))}
                aside.write(_json({"reason": reason, "where": pairs.place(path, number), **row}))
        if done.read < len(found):
            raise DataError(f"{', '.join(pairs.paths)}: shrank while it was read; run the same command again")
        for file, state in _states(inputs).items():
            if state != before[file]:
                raise DataError(f"{file}: changed while it was read; run the same command again")
    return done


def to_text(done: Cleaned) -> str:
    """Counts that add up: read = kept + removed."""
    lines = [f"{done.read:,} pairs read", f"{done.kept:,} kept ({done.tidied:,} with white space tidied)"]
    lines += [f"{done.removed.total():,} removed"]
    return "\n".join(lines + [f"  {n:,} {reason}" for reason, n in done.removed.most_common()])


def _states(files: Iterable[Path]) -> dict[Path, tuple[int, int] | None]:
    """Size and time of change of each file; None: it is gone."""
    found = {file: file.stat() if file.exists() else None for file in files}
    return {file: stat and (stat.st_size, stat.st_mtime_ns) for file, stat in found.items()}


def _output_files(output: Path, src: str, tgt: str) -> list[Path]:
    bare = output.name.removesuffix(".gz")
    if bare.endswith((".tsv", ".csv", ".jsonl")):
        return [output]
    if bare.endswith((".json", ".parquet", ".txt")):
        raise UsageError(
            f"{output}: name the output x.tsv, x.csv or x.jsonl (or .gz of these), or a prefix for two files"
        )
    return [output.with_name(f"{bare}.{language}{output.name[len(bare) :]}") for language in (src, tgt)]


def _write(outputs: list[TextIO], files: list[Path], pair: dict[str, str]) -> None:
    if len(outputs) == 2:
        for file, text in zip(outputs, pair.values(), strict=True):
            file.write(f"{text}\n")
    elif files[0].name.removesuffix(".gz").endswith(".tsv"):
        outputs[0].write("\t".join(pair.values()) + "\n")
    elif files[0].name.removesuffix(".gz").endswith(".csv"):
        csv.writer(outputs[0], lineterminator="\n").writerow(pair.values())
    else:
        outputs[0].write(_json({"translation": pair}))


def _json(row: object) -> str:
    return json.dumps(row, ensure_ascii=False) + "\n"


@contextmanager
def _written(paths: Sequence[Path]) -> Iterator[list[TextIO]]:
    """Text files that appear under their names when all are whole: none does if the block or a disk fails.

    A byte that is no text becomes a JSON escape; only the file of rejected pairs has any.
    """
    with whole_files(paths) as files, ExitStack() as stack:
        yield [
            stack.enter_context(_stream(file, gzipped=path.suffix == ".gz"))
            for file, path in zip(files, paths, strict=True)
        ]


@contextmanager
def _stream(file: BinaryIO, *, gzipped: bool) -> Iterator[TextIO]:
    """Text on its way to a file, packed if wanted; all of it is handed over when the block ends."""
    stream = gzip.GzipFile("", "wb", fileobj=file, mtime=0) if gzipped else file
    text = TextIOWrapper(stream, "utf-8", "backslashreplace", newline="\n", write_through=False)
    yield text
    text.detach()
    if stream is not file:
        stream.close()
