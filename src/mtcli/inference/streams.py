"""Lines in, lines out: sentences from arguments, files, standard input or a terminal; translations in three formats."""

import json
import os
import select
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from mtcli.data.lines import LINE_BYTES, Counts, read_lines
from mtcli.errors import DataError, UsageError
from mtcli.inference.line_translator import LineTranslator, Options, Translation, pharaoh

PAUSE = 0.1
"""Seconds without input after which the lines that came are translated; any that a program writes on end is quicker."""


def lines_of(path: str, *, replace: bool = False, counts: Counts | None = None) -> Iterator[str]:
    """The lines of a file, or of standard input for `-`.

    Raises:
        UsageError: Standard input is closed.
        DataError: The text cannot be read.
    """
    source = Path(path) if path != "-" else _stdin()
    return read_lines(source, replace=replace, name="standard input" if path == "-" else path, counts=counts)


def _stdin() -> BinaryIO:
    if sys.stdin is None:
        raise UsageError("standard input is closed; name a file with --input, or give sentences")
    return sys.stdin.buffer


class _Arriving:
    """The lines of a descriptor, as bytes. Unlike a buffered stream it can tell whether another one has come."""

    def __init__(self, descriptor: int):
        self.descriptor, self.ended = descriptor, False
        self.lines: deque[bytes] = deque()
        self.part: list[bytes] = []  # of a line that has no end yet
        self.size = 0  # of that part

    def __iter__(self) -> Iterator[bytes]:
        while self.lines or not self.ended:
            if self.lines:
                yield self.lines.popleft()
            else:
                self._read()

    def ready(self) -> bool:
        """Whether the next line, or the end, is there now or after at most a PAUSE."""
        while not (self.lines or self.ended) and select.select([self.descriptor], [], [], PAUSE)[0]:
            self._read()
        return bool(self.lines) or self.ended

    def _read(self) -> None:
        data = os.read(self.descriptor, 1 << 16)
        self.size += len(data)
        self.ended = not data or self.size > LINE_BYTES + (1 << 16)  # too long a line, which `read_lines` refuses
        self.part.append(data)
        if self.ended or b"\n" in data:
            *whole, rest = b"".join(self.part).split(b"\n")
            self.lines += [line + b"\n" for line in whole] + ([rest] if self.ended and rest else [])
            self.part = [rest]
            self.size = len(rest)


def arguments(texts: Iterable[str]) -> list[str]:
    """Sentences given as arguments, one a line, whatever the locale.

    Raises:
        DataError: An argument is not UTF-8.
    """
    lines: list[str] = []
    for text in texts:
        try:
            lines += os.fsencode(text).decode("utf-8").split("\n")
        except UnicodeDecodeError:
            raise DataError(f"the argument {text!r} is not UTF-8; put it in a file and use --replace") from None
    return lines


def translations(
    translator: LineTranslator,
    texts: list[str] | None,
    path: str | None,
    options: Options,
    *,
    replace: bool,
    quiet: bool = False,
) -> Iterator[Translation]:
    """Translations of arguments, of a file or standard input, or of what is typed at a terminal.

    Args:
        translator: The model.
        texts: Sentences given as arguments.
        path: A file, or `-` for standard input; None: standard input, or a dialogue where that is a terminal.
        options: How to search.
        replace: Read invalid UTF-8 as U+FFFD.
        quiet: Without a progress bar, which would get between the translations where both go to one terminal.
    """
    if texts:
        lines = arguments(texts)
        yield from translator.translate(lines, options, total=len(lines), quiet=quiet)
    elif path is None and sys.stdin is not None and sys.stdin.isatty():
        for line in _typed():
            yield from translator.translate([line], options, quiet=True)
    else:
        counts = Counts()
        if path and path != "-":
            yield from translator.translate(lines_of(path, replace=replace, counts=counts), options, quiet=quiet)
        else:
            stdin = _Arriving(_stdin().fileno())
            arriving = read_lines(stdin, replace=replace, name="standard input", counts=counts)
            yield from translator.translate(arriving, options, ready=stdin.ready, quiet=quiet)
        say(counts)


def say(counts: Counts) -> None:
    """What there was to notice in reading."""
    for notice in counts.notices:
        print(notice, file=sys.stderr)
    if counts.replaced:
        print(f"{counts.replaced} invalid bytes were read as U+FFFD", file=sys.stderr)


def _typed() -> Iterator[str]:
    import readline  # noqa: F401 - line editing for input()

    print("Type a sentence and press Enter; Ctrl-D ends.", file=sys.stderr)
    prompt = "> " if sys.stdout is not None and sys.stdout.isatty() else ""  # input() would write it among the results
    while True:
        try:
            yield input(prompt)
        except EOFError:
            return


def formatted(
    found: Translation, number: int, format_: str, *, scores: bool, alignments: bool, draws: bool = False
) -> Iterator[str]:
    """The output lines of one translation, in the format `text`, `json` or `nbest` (Moses' `id ||| text ||| score`)."""
    best = found.candidates[0]
    if format_ == "json":
        record: dict[str, Any] = {
            "sentence_id": number,
            "source": found.source,
            "translation": best.text,
            "score": best.score,
            "log_prob": best.log_prob,
        }
        if len(found.candidates) > 1:
            record["translations"] = [c.text for c in found.candidates]
            record["scores"] = [c.score for c in found.candidates]
        if draws:
            record["draws"] = [c.draws for c in found.candidates]
        if alignments:
            links = [pharaoh(c.alignment) for c in found.candidates]
            record["alignment"] = links[0]
            if len(links) > 1:
                record["alignments"] = links
        yield json.dumps(record, ensure_ascii=False)
        return
    for c in found.candidates:
        if format_ == "nbest":
            line = f"{number} ||| {c.text} ||| logprob={c.log_prob:.4f} ||| {c.score:.4f}"
            yield f"{line} ||| {pharaoh(c.alignment)}" if alignments else line
        else:
            columns = [f"{c.score:.4f}"] * scores + [c.text] + [pharaoh(c.alignment)] * alignments
            yield "\t".join(columns) if found.source.strip() else ""
