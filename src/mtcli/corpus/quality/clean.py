"""`mtcli data clean`: write the pairs that break no removing rule, in order, and account for the others."""

from __future__ import annotations

import csv
import gzip
import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from io import TextIOWrapper
from pathlib import Path
from typing import TextIO

from mtcli.corpus.quality.corpus import Corpus
from mtcli.corpus.quality.rules import BIT, REMOVES, rules, tidy
from mtcli.corpus.quality.survey import Bits, survey
from mtcli.corpus.readers.sources import form_suffix, is_table
from mtcli.errors import DataError, UsageError
from mtcli.runtime.outputs import check_outputs, is_special, whole_files
from mtcli.runtime.wording import counted
from mtcli.text.lines import TO_UTF8

WRITTEN_SUFFIXES = (".tsv", ".csv", ".jsonl")
"""The forms in which one file holds both sides."""

REMEDY = "name the output x.tsv, x.csv or x.jsonl (or .gz of these), or a prefix for two files"

_RULE_NAMES = [rule.name for rule in rules()]


@dataclass
class Cleaned:
    """The result of `clean`: `read` is the sum of `kept` and `removed`."""

    read: int = 0
    kept: int = 0
    tidied: int = 0
    """Kept pairs whose white space was changed."""
    removed: Counter[str] = field(default_factory=Counter)
    """Pairs by the rule that removed them."""
    languages: list[str] = field(default_factory=list)
    """What is wrong with the declared languages."""


def clean(pairs: Corpus, output: Path, rejected: Path | None = None, *, force: bool = False) -> Cleaned:
    """Write the pairs that break no removing rule, in order and with tidy white space.

    The corpus is read twice: to find the problems, and to write the rest.

    Args:
        pairs: The corpus.
        output: `x.tsv`, `x.csv`, `x.jsonl`, or a prefix for one file per language, each with an optional `.gz`.
        rejected: A file for the removed pairs as JSON lines, with reason and place.
        force: Replace existing files.

    Raises:
        DataError: The corpus cannot be read to its end, or changed while it was read.
        UsageError: The name of the output has no known form or is that of an input, or a file that is not empty exists
            and `force` is not set.
        StorageError: The output cannot be written.
    """
    files = _output_files(output, pairs.src, pairs.tgt)
    inputs = pairs.files()
    check_outputs([*files, rejected], [*inputs, *pairs.folders()], force=force)
    before = {file: _state(file) for file in inputs}
    surveyed = survey(pairs)
    paths = [*files, rejected] if rejected else files
    with _text_files(paths) as streams:
        outputs = _PairWriter(streams[: len(files)], files[0], pairs.src, pairs.tgt)
        done = _copy(pairs, surveyed.found, outputs, streams[-1] if rejected else None)
        for file, state in before.items():
            if _state(file) != state:
                raise DataError(f"{file}: changed while it was read; run the same command again")
    done.languages = surveyed.languages
    return done


def _copy(pairs: Corpus, found: Bits, outputs: _PairWriter, rejected: TextIO | None) -> Cleaned:
    """Read the corpus again, and write each pair to the output or to the rejected ones.

    Args:
        pairs: The corpus.
        found: The bits of the rules that each pair breaks.
        outputs: Receives the kept pairs.
        rejected: Receives the others as JSON lines.

    Raises:
        DataError: The corpus does not have the same pairs as before.
    """
    done = Cleaned()
    for path, number, record in pairs.records("writing"):
        if done.read == len(found):
            raise DataError(f"{path}: grew while it was read; run the same command again")
        bits = int(found[done.read])
        done.read += 1
        removing = bits & REMOVES
        if removing:
            most_serious = removing & -removing  # the lowest bit
            reason = _RULE_NAMES[most_serious.bit_length() - 1]
            done.removed[reason] += 1
            if rejected:
                src, tgt = (record, "") if isinstance(record, str) else record
                translation = {pairs.src: src, pairs.tgt: tgt}
                where = pairs.place(path, number)
                rejected.write(_json({"reason": reason, "where": where, "translation": translation}))
        elif isinstance(record, str):
            raise DataError(f"{pairs.place(path, number)}: changed while it was read; run the same command again")
        else:
            done.kept += 1
            if bits & BIT["white space"]:
                done.tidied += 1
            outputs.write(tidy(record[0]), tidy(record[1]))
    if done.read < len(found):
        raise DataError(f"{', '.join(pairs.paths)}: shrank while it was read; run the same command again")
    return done


def to_text(done: Cleaned) -> str:
    """Return the counts, which add up: read = kept + removed."""
    lines = [
        f"{counted(done.read, 'pair')} read",
        f"{done.kept:,} kept ({done.tidied:,} with white space tidied)",
        f"{done.removed.total():,} removed",
    ]
    lines += [f"  {n:,} {reason}" for reason, n in done.removed.most_common()]
    lines += [f"warning: {problem}, and clean again" for problem in done.languages]
    if done.removed["invalid UTF-8"]:
        lines.append(f"to keep the pairs of invalid UTF-8, convert the file ({TO_UTF8}) and clean it again")
    return "\n".join(lines)


def _state(file: Path) -> tuple[int, int] | None:
    """Return size and modification time of a file; None: it does not exist."""
    status = file.stat() if file.exists() else None
    return (status.st_size, status.st_mtime_ns) if status else None


def _output_files(output: Path, src: str, tgt: str) -> list[Path]:
    """Return the file to write, or the two files of a prefix.

    Raises:
        UsageError: The name does not tell a form that can be written.
    """
    ending = output.name[-len(".gz") :] if _is_gzipped(output) else ""
    bare = output.name.removesuffix(ending)
    suffix = form_suffix(output)
    if os.path.isdir(output):  # noqa: PTH112 - the name may be too long for a path
        raise UsageError(f"{output}: is a folder; {REMEDY}")
    if output.name.lower().removesuffix(".gz") in ("", *WRITTEN_SUFFIXES):
        raise UsageError(f"{output}: has no name before its suffix; {REMEDY}")
    if suffix in WRITTEN_SUFFIXES:
        return [output]
    if suffix == ".txt" or is_table(output):
        raise UsageError(f"{output}: pairs are not written as {suffix}; {REMEDY}")
    if is_special(output):
        raise UsageError(f"{output}: is a device or pipe, whose name does not tell the form of the pairs; {REMEDY}")
    return [output.with_name(f"{bare}.{language}{ending}") for language in (src, tgt)]


def _is_gzipped(path: Path) -> bool:
    return path.suffix.lower() == ".gz"


class _PairWriter:
    """Writes pairs in the form that the name of the output gives."""

    def __init__(self, streams: list[TextIO], output: Path, src_language: str, tgt_language: str):
        """Write to one stream, or to one for each side; `output` is the name of the first."""
        self.streams = streams
        self.suffix = form_suffix(output)
        self.src_language = src_language
        self.tgt_language = tgt_language
        if len(streams) == 1 and self.suffix == ".csv":
            self.write(src_language, tgt_language)  # the header, by which any reader knows the sides

    def write(self, src: str, tgt: str) -> None:
        """Write a pair."""
        if len(self.streams) == 2:
            self.streams[0].write(f"{src}\n")
            self.streams[1].write(f"{tgt}\n")
        elif self.suffix == ".tsv":
            self.streams[0].write(f"{src}\t{tgt}\n")
        elif self.suffix == ".csv":
            csv.writer(self.streams[0], lineterminator="\n").writerow((src, tgt))
        else:
            self.streams[0].write(_json({"translation": {self.src_language: src, self.tgt_language: tgt}}))


def _json(row: object) -> str:
    return json.dumps(row, ensure_ascii=False) + "\n"


@contextmanager
def _text_files(paths: Sequence[Path]) -> Iterator[list[TextIO]]:
    """Open text files that appear under their names together at the end of the block, or not at all if it fails.

    They are compressed if their names say so. An invalid byte, which only rejected pairs contain, becomes a JSON
    escape.
    """
    with whole_files(paths) as files, ExitStack() as stack:
        streams: list[TextIO] = []
        for file, path in zip(files, paths, strict=True):
            binary = stack.enter_context(gzip.GzipFile("", "wb", fileobj=file, mtime=0)) if _is_gzipped(path) else file
            text = TextIOWrapper(binary, "utf-8", "backslashreplace", newline="\n", write_through=False)
            stack.callback(text.detach)  # flushes it, and leaves the file open
            streams.append(text)
        yield streams
