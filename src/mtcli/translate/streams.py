"""Read lines from arguments, files, standard input or a terminal, and format translations."""

import json
import os
import select
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from mtcli.errors import DataError, UsageError
from mtcli.runtime.signals import QuietInterrupt
from mtcli.runtime.wording import counted, printable
from mtcli.terms.report import record_of
from mtcli.text.lines import LINE_BYTES, Counts, read_lines
from mtcli.text.numbers import check_numbers
from mtcli.translate.translation import Translation, pharaoh

READ_BYTES = 1 << 16
"""Bytes that are read from standard input at a time, at most."""

PAUSE = 0.1
"""Seconds without input after which the lines so far are translated. Programs that write steadily pause for less."""


def lines_of(path: str, *, replace: bool = False, lenient: bool = False, counts: Counts | None = None) -> Iterator[str]:
    """Yield the lines of a file, or of standard input for `-`; see `read_lines` for the options.

    Raises:
        UsageError: Standard input is closed.
        DataError: The text cannot be read.
    """
    source = _stdin() if path == "-" else Path(path)
    return read_lines(source, replace=replace, lenient=lenient, name=name_of(path), counts=counts)


def input_lines(path: str, *, replace: bool, counts: Counts) -> tuple[Iterator[str], Callable[[], bool]]:
    """Return the lines of an input, and a function that returns True if the next line is available.

    Args:
        path: A file, or `-` for standard input, whose lines may come with pauses.
        replace: See `read_lines`.
        counts: See `read_lines`.

    Raises:
        UsageError: Standard input is closed.
    """
    if path != "-":
        return lines_of(path, replace=replace, counts=counts), lambda: True
    arriving = _ArrivingLines(_stdin().fileno())
    return read_lines(arriving, replace=replace, name=name_of(path), counts=counts), arriving.ready


def name_of(path: str) -> str:
    """Return the name of an input for messages; `-` is standard input."""
    return "standard input" if path == "-" else path


def _stdin() -> BinaryIO:
    if sys.stdin is None:
        raise UsageError("standard input is closed; name a file with --input, or give sentences")
    return sys.stdin.buffer


class _ArrivingLines:
    """Lines of a file descriptor, as bytes. Unlike a buffered stream, it can tell whether the next line has arrived."""

    def __init__(self, descriptor: int):
        self.descriptor = descriptor
        self.ended = False
        self.lines: deque[bytes] = deque()
        self.parts: list[bytes] = []
        """Parts of the last line, whose end has not arrived."""
        self.size = 0
        """Bytes in `parts`."""

    def __iter__(self) -> Iterator[bytes]:
        while self.lines or not self.ended:
            if self.lines:
                yield self.lines.popleft()
            else:
                self._read()

    def ready(self) -> bool:
        """Return True if the next line, or the end, has arrived or arrives within `PAUSE`."""
        while not (self.lines or self.ended) and self._has_input():
            self._read()
        return bool(self.lines) or self.ended

    def _has_input(self) -> bool:
        readable, _, _ = select.select([self.descriptor], [], [], PAUSE)
        return bool(readable)

    def _read(self) -> None:
        data = os.read(self.descriptor, READ_BYTES)
        self.parts.append(data)
        self.size += len(data)
        is_too_long = self.size > LINE_BYTES + READ_BYTES  # `read_lines` will refuse the line
        self.ended = not data or is_too_long
        if not self.ended and b"\n" not in data:
            return
        *lines, rest = b"".join(self.parts).split(b"\n")
        self.lines.extend(line + b"\n" for line in lines)
        if self.ended and rest:
            self.lines.append(rest)
        self.parts = [rest]
        self.size = len(rest)


def arguments(texts: Iterable[str]) -> list[str]:
    """Return the lines of sentences given as arguments, decoded as UTF-8 whatever the locale is.

    A carriage return at the end of a line is removed, as in a file: an argument may be the content of one.

    Raises:
        DataError: An argument is not UTF-8.
    """
    lines: list[str] = []
    for text in texts:
        try:
            decoded = os.fsencode(text).decode("utf-8")
        except UnicodeDecodeError:
            raise DataError(f"the argument {text!r} is not UTF-8; put it in a file and use --replace") from None
        lines += [line.removesuffix("\r") for line in decoded.split("\n")]
    return lines


def report_counts(counts: Counts) -> None:
    """Print the notices of reading on stderr, and the number of invalid bytes if they were replaced."""
    for notice in counts.notices:
        print(printable(notice), file=sys.stderr)
    if counts.replaced:
        print(f"read {counted(counts.replaced, 'invalid byte')} as U+FFFD", file=sys.stderr)


def typed_lines() -> Iterator[str]:
    """Yield the lines typed at a terminal."""
    import readline  # noqa: F401 - line editing for input()

    print("Type a sentence and press Enter; Ctrl-D ends.", file=sys.stderr)
    shows_results = sys.stdout is not None and sys.stdout.isatty()
    prompt = "> " if shows_results else ""  # input() writes it to standard output, which may be a file
    while True:
        try:
            yield input(prompt)
        except EOFError:
            return
        except KeyboardInterrupt:
            raise QuietInterrupt from None


def formatted(
    found: Translation,
    number: int,
    format_: str,
    *,
    scores: bool,
    alignments: bool,
    draws: bool = False,
    reranked: bool = False,
) -> Iterator[str]:
    """Yield the output lines of one translation.

    Args:
        found: The translation.
        number: Of its line, from 0.
        format_: `text`, `json`, or `nbest` (Moses: `id ||| text ||| scores`).
        scores: Begin lines of text with the score.
        alignments: Add the word alignment.
        draws: Add to JSON how often each translation was drawn.
        reranked: Add to JSON the log-probability of the reverse model; null if it did not score the line.
    """
    if format_ == "json":
        record = _record(found, number, alignments=alignments, draws=draws, reranked=reranked)
        yield json.dumps(record, ensure_ascii=False)
        return
    for candidate in found.candidates:
        alignment = pharaoh(candidate.alignment)
        if format_ == "nbest":
            features = f"logprob={candidate.log_prob:.4f}"
            if candidate.reverse_log_prob is not None:
                features += f" reverse_logprob={candidate.reverse_log_prob:.4f}"
            columns = [str(number), candidate.text, features, f"{candidate.score:.4f}"]
            if alignments:
                columns.append(alignment)
            yield " ||| ".join(columns)
        elif not found.source.strip():
            yield ""
        else:
            columns = [candidate.text]
            if scores:
                columns.insert(0, f"{candidate.score:.4f}")
            if alignments:
                columns.append(alignment)
            yield "\t".join(columns)


def _record(found: Translation, number: int, *, alignments: bool, draws: bool, reranked: bool) -> dict[str, Any]:
    """Return one translation as a JSON object. The lists of several translations begin with the best."""
    best = found.candidates[0]
    record: dict[str, Any] = {
        "sentence_id": number,
        "source": found.source,
        "translation": best.text,
        "score": best.score,
        "log_prob": best.log_prob,
    }
    if best.confidence is not None:
        record["confidence"] = round(best.confidence, 1)
    if len(found.candidates) > 1:
        record["translations"] = [candidate.text for candidate in found.candidates]
        record["scores"] = [candidate.score for candidate in found.candidates]
    if reranked:
        record["reverse_log_prob"] = best.reverse_log_prob
    if draws:
        record["draws"] = [candidate.draws for candidate in found.candidates]
    check = check_numbers(found.source, best.text)
    if check.differs:
        record["numbers"] = {"missing": list(check.missing), "added": list(check.added)}
    if found.terms:
        record["terms"] = [record_of(use) for use in found.terms]
    if found.memory:
        record["memory"] = [match.record() for match in found.memory]
    if alignments:
        record["alignment"] = pharaoh(best.alignment)
        if len(found.candidates) > 1:
            record["alignments"] = [pharaoh(candidate.alignment) for candidate in found.candidates]
    return record
