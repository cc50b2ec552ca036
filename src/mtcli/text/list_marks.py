"""The marks of items of lists in plain text: `- milk`, `• milk`, `2. milk`."""

import re

BULLET = re.compile(r"[-*+•‣#>|]\s+")
"""The mark of an item or a heading, at the beginning of a line."""

NUMBER = re.compile(r"(?:\d{1,3}[.)]|[–—])\s+")
"""The mark of an item of a list, unless it is part of a sentence: `on the` / `3. October`."""

LIST_ON_ONE_LINE = re.compile(r"\s*([*-])\s+\S.*\s\1\s")
"""The beginning of a line with several items. It keeps its first mark, by which the others are known: `2 * 3` has none.
"""


def mark_of(text: str) -> str:
    """Return the mark at the beginning of a line, with the space after it; empty if there is none."""
    found = BULLET.match(text) or NUMBER.match(text)
    return found[0] if found else ""
