"""Windows: the lines of a text that are read, sorted by length and translated together, and how they are read."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from itertools import count

from mtcli.runtime.progress import Progress
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


def _always() -> bool:
    return True


@dataclass(frozen=True)
class Reading:
    """How lines are read, and what is reported of them."""

    total: int | None = None
    """Number of lines, for the progress bar."""
    bar: Progress | None = None
    """A progress bar to use; None: a new one."""
    warn: bool = True
    """Warn about lines unlike those of training, and about translations that repeat themselves."""
    quiet: bool = False
    """Show no progress bar."""
    ready: Callable[[], bool] = _always
    """Returns True if the next line is available. If not, the lines so far are translated without it."""
    rank: int = 0
    """The lines are the windows `rank`, `rank + num_ranks`, `rank + 2 · num_ranks`, … of a file. Warnings and sampling
    use the number of each line in this file."""
    num_ranks: int = 1
    """See `rank`."""
    growing: bool = False
    """Translate the first lines in small windows, so that an interrupted command keeps them; not with several ranks."""

    def groups(self, lines: Iterable[str], *, ahead: bool) -> Iterator[Iterator[tuple[int, list[str]]]]:
        """Divide lines into groups of windows. The windows of a group are one stream for a translator.

        Args:
            lines: The lines.
            ahead: The translator takes a window before it has translated the one before. A group then ends where the
                next line is not available yet. Otherwise each window is a group.

        Yields:
            Windows, see `windows`. Each is read when it is taken; all of a group must be taken before the next group.
        """
        windows = self.windows(lines)
        for window in windows:
            yield self._until_pause(window, windows) if ahead else iter([window])

    def windows(self, lines: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
        """Divide lines into windows of `WINDOW` lines. A window is shorter if the next line is not available yet.

        Yields:
            The number of the window's first line in the text, from 0, and the lines.
        """
        remaining = iter(lines)
        first = self.rank * WINDOW
        size = min(FIRST_WINDOW, WINDOW) if self.growing else WINDOW
        while window := self._next_lines(remaining, size):
            yield first, window
            size = min(2 * size, WINDOW)
            first += len(window) if self.num_ranks == 1 else self.num_ranks * WINDOW

    def _next_lines(self, lines: Iterator[str], size: int) -> list[str]:
        window: list[str] = []
        for line in lines:
            window.append(line)
            if len(window) == size or not self.ready():
                break
        return window

    def _until_pause(
        self, window: tuple[int, list[str]], windows: Iterator[tuple[int, list[str]]]
    ) -> Iterator[tuple[int, list[str]]]:
        """Yield a window and those after it, until the next line is not available yet."""
        following: tuple[int, list[str]] | None = window
        while following is not None:
            yield following
            _, lines = following
            # A smaller window ends at a pause, or at the end of the text.
            may_follow = len(lines) >= min(FIRST_WINDOW, WINDOW) and self.ready()
            following = next(windows, None) if may_follow else None

    def line_bar(self) -> AbstractContextManager[Progress]:
        """Return the progress bar, which counts lines."""
        if self.bar is not None:
            return nullcontext(self.bar)
        return Progress("translating", total=self.total, unit="lines", quiet=self.quiet)


DEFAULT_READING = Reading()
"""A new progress bar, warnings, and all lines of a file, every one available at once."""


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
