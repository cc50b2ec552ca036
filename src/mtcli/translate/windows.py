"""Windows: the lines of a text that are read, sorted by length and translated together."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count

from mtcli.terms.terms import Match
from mtcli.text.tokenizer.tokenizer import Annotation, Tokenizer

WINDOW = 4096
"""Lines of a window. A file of any size fits in memory, because only one window is in memory at a time."""

FIRST_WINDOW = 256
"""Lines of the first window of a text whose translations are written at once; each further one has twice as many.

A command that is interrupted keeps the windows that it has finished. With growing windows, these are a good part of
what it has translated, even if it had no time for `WINDOW` lines.
"""

MAX_LINE_TOKENS = 2000
"""Tokens of a line that are translated, several times those of any sentence. Time and memory grow with their square."""


@dataclass(frozen=True)
class Window:
    """Lines that are translated together."""

    first: int
    """The number of the first line in the input, from 0."""
    lines: Sequence[str]
    ids: Sequence[Sequence[int]]
    """Source ids of each line without `</s>`."""
    terms: Sequence[Sequence[Match]] = ()
    """The terms in each line; empty if the options have no terms."""


@dataclass(frozen=True)
class SourceLine:
    """A line of a window with its source ids, as a backend searches for its translations."""

    number: int
    """Of the line in the input, from 0. Sampling and errors depend on it."""
    line: str
    ids: Sequence[int]
    """Without `</s>`."""
    terms: Sequence[Match] = ()


def read_windows(
    lines: Iterable[str],
    *,
    ready: Callable[[], bool] = lambda: True,
    rank: int = 0,
    num_ranks: int = 1,
    growing: bool = False,
) -> Iterator[tuple[int, list[str]]]:
    """Divide a text into windows of `WINDOW` lines. A window is shorter if the next line is not available yet.

    Args:
        lines: The lines of the text, or those of one rank's windows.
        ready: Returns True if the next line is available.
        rank: `lines` are the windows `rank`, `rank + num_ranks`, `rank + 2 · num_ranks`, … of the text.
        num_ranks: See `rank`.
        growing: Begin with `FIRST_WINDOW` lines; not with several ranks.

    Yields:
        The number of the window's first line in the text, from 0, and the lines.
    """
    remaining = iter(lines)
    first = rank * WINDOW
    size = min(FIRST_WINDOW, WINDOW) if growing else WINDOW
    while window := _next_lines(remaining, ready, size):
        yield first, window
        size = min(2 * size, WINDOW)
        first += len(window) if num_ranks == 1 else num_ranks * WINDOW


def until_pause(
    window: tuple[int, list[str]], windows: Iterator[tuple[int, list[str]]], ready: Callable[[], bool]
) -> Iterator[tuple[int, list[str]]]:
    """Yield a window and those after it, until the next line is not available yet.

    Args:
        window: The first window.
        windows: Those after it, see `read_windows`.
        ready: Returns True if the next line is available.
    """
    following: tuple[int, list[str]] | None = window
    while following is not None:
        yield following
        _, lines = following
        # A smaller window ends at a pause, or at the end of the text.
        may_follow = len(lines) >= min(FIRST_WINDOW, WINDOW) and ready()
        following = next(windows, None) if may_follow else None


def _next_lines(lines: Iterator[str], ready: Callable[[], bool], size: int) -> list[str]:
    window: list[str] = []
    for line in lines:
        window.append(line)
        if len(window) == size or not ready():
            break
    return window


def sources_with_tokens(window: Window, tokenizer: Tokenizer) -> list[SourceLine]:
    """Return the lines of a window that have anything to translate.

    Besides blank lines, these exclude lines that SentencePiece normalizes to nothing, such as a zero-width space. A
    tag is nothing to translate.
    """
    tags = set(tokenizer.tags.values())
    terms = window.terms or [()] * len(window.lines)
    rows = zip(count(window.first), window.lines, window.ids, terms, strict=False)
    return [SourceLine(*row) for row in rows if row[1].strip() and not tags.issuperset(row[2])]


def tagged(window: Window, tokenizer: Tokenizer, to: str) -> Window:
    """Put the tag of the target language `to` before every line that does not begin with a tag."""
    tag = tokenizer.tag_of(to)
    tags = set(tokenizer.tags.values())
    ids = [row if row and row[0] in tags else [tag, *row] for row in window.ids]
    return replace(window, ids=ids)


def annotated(window: Window, tokenizer: Tokenizer) -> Window:
    """Write the translations of the terms into the lines that have any, unless that makes a line too long."""
    rows = [row for row, matches in enumerate(window.terms) if matches]
    lines = [window.lines[row] for row in rows]
    annotations = []
    for row in rows:
        matches = window.terms[row]
        annotations.append([Annotation(match.start, match.end, match.forms[0]) for match in matches])
    ids = list(window.ids)
    for row, annotated_ids in zip(rows, tokenizer.encode_annotated(lines, annotations), strict=True):
        if len(annotated_ids) <= MAX_LINE_TOKENS:
            ids[row] = annotated_ids
    return replace(window, ids=ids)


def shortened(window: Window, tokenizer: Tokenizer) -> Window:
    """Shorten each line to a beginning of at most `MAX_LINE_TOKENS` tokens."""
    lines = []
    ids = []
    for line, row in zip(window.lines, window.ids, strict=True):
        short_line, short_row = shortened_line(line, row, tokenizer)
        lines.append(short_line)
        ids.append(short_row)
    return replace(window, lines=lines, ids=ids)


def shortened_line(line: str, ids: Sequence[int], tokenizer: Tokenizer) -> tuple[str, Sequence[int]]:
    """Shorten one line. Return it and its ids."""
    while len(ids) > MAX_LINE_TOKENS:
        line = line[: len(line) * MAX_LINE_TOKENS // len(ids)]
        (ids,) = tokenizer.encode_src([line])
    return line, ids
