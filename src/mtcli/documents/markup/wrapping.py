"""Lines of a limited width, and the joints of lines."""

import re
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from itertools import accumulate, pairwise

from rich.cells import cell_len

from mtcli.documents.markup.inline import Inline, Tag, merged, text_of
from mtcli.text.writing_systems import UNSPACED

_MARK = "\u3000-\u303f\uff00-\uffef"
_CJK = f"{_MARK}\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_OPENING = "「『（【《〈〔"
_CLOSING = "」』）】》〉〕、。，．！？：；…ー"
SEPARATE_CLOSING = r"(?!\.\.)[,;:.!?)\]}]++(?!\S)"
"""Punctuation of tokenized text, with spaces around it. It belongs to the word before it, but `...` may not."""
_UNIT = re.compile(rf"[{_OPENING}]*(?:[{_CJK}]|[^ \t\r\n{_CJK}]+)[{_CLOSING}]*(?: {SEPARATE_CLOSING})*")
"""A word, or a Chinese or Japanese character, with the signs that a line break cannot separate from it."""
_WIDE_MARK = re.compile(f"[{_MARK}]")


def unspaced_at_start(text: str) -> bool:
    """Return True if a text begins with a character of a script without spaces between words."""
    return _is_unspaced(text[:1])


def unspaced_at_end(text: str) -> bool:
    """Return True if a text ends with a character of a script without spaces between words."""
    return _is_unspaced(text[-1:])


def _is_unspaced(character: str) -> bool:
    return bool(UNSPACED.match(character) or _WIDE_MARK.match(character))


def units(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield the parts of a text between which a line may be broken, without the white space between them.

    Yields:
        The space before the part, which is empty between Chinese characters, and the offsets of its start and end.
    """
    end = 0
    for match in _UNIT.finditer(text):
        yield (" " if match.start() > end else ""), match.start(), match.end()
        end = match.end()


def wrap(text: str, first_width: int, width: int) -> list[str]:
    """Break a text into lines. A word that is wider than a line has a line of its own.

    Args:
        text: The text. Its own line breaks do not count.
        first_width: Cells of the first line.
        width: Cells of the other lines.
    """
    lines: list[str] = []
    line: list[str] = []
    used = 0
    for space, start, end in units(text):
        unit = text[start:end]
        unit_width = cell_len(unit)
        limit = width if lines else first_width
        if line and used + len(space) + unit_width > limit:
            lines.append("".join(line))
            line = []
            used = 0
        if line:
            line.append(space)
            used += len(space)
        line.append(unit)
        used += unit_width
    return [*lines, "".join(line)]


def balanced(segment: Inline, num_lines: int) -> Inline:
    r"""Break a segment into lines of about the same width. Line breaks are `\n`.

    Args:
        segment: Text without line breaks, and tags.
        num_lines: Number of lines; there are fewer if there are too few words.
    """
    text = text_of(segment)
    breaks = deque(_even_breaks(text, num_lines))
    parts: list[str | Tag] = []
    start = 0
    for part in segment:
        if isinstance(part, Tag):
            parts.append(part)
            continue
        end = start + len(part)
        place = start
        while breaks and breaks[0][0] < end:
            space_start, space_end = breaks.popleft()
            parts.append(text[place:space_start] + "\n")
            place = min(space_end, end)
        parts.append(text[place:end])
        start = end
    return merged(parts)


def _even_breaks(text: str, num_lines: int) -> Iterator[tuple[int, int]]:
    """Yield start and end of the white space, which may be empty, at the end of each line but the last."""
    found = list(units(text))
    places = [(end, next_start) for (_, _, end), (_, next_start, _) in pairwise(found)]
    widths = list(accumulate(cell_len(text[start:end]) + len(space) for space, start, end in found))
    first = 0
    for number in range(1, num_lines):
        last = len(places) - (num_lines - 1 - number)  # leaves a place for each of the other breaks
        if first >= last:
            return
        target = widths[-1] * number / num_lines
        above = bisect_left(widths, target, first, last - 1)
        near = range(max(first, above - 1), above + 1)
        best = min(near, key=lambda index: abs(widths[index] - target))
        yield places[best]
        first = best + 1
