"""Texts for people: an excerpt that fits on a line of the log, what a score means, and the command to run next."""

import math
import shlex
import shutil
import unicodedata
from pathlib import Path

PIPE_COLUMNS = 120
"""Width of a log line where there is no terminal."""

LOW = {"BLEU": 5.0, "chrF2": 20.0}
"""Below it, hardly any translation is right. Unrelated text in the same script already has a chrF of 10 to 20."""

HIGH = {"BLEU": 90.0, "chrF2": 95.0}
"""Above it, the test set is suspiciously easy: no two human translators agree so closely."""

BIDIRECTIONAL = {*range(0x202A, 0x202F), *range(0x2066, 0x206A)}
"""Characters that change the direction of the text after them."""


def what_it_means(metric: str, score: float) -> str | None:
    """A sentence about a score that is too low to be useful or too high to be believed; None for any other.

    Args:
        metric: As sacrebleu names it; only BLEU and chrF2 have limits.
        score: From 0 to 100.
    """
    if score < LOW.get(metric, 0.0):
        return (
            f"{metric} below {LOW[metric]:g}: the translations are hardly usable. Usual causes: too few pairs, too "
            "little training time, or a mismatch (source and target swapped, sentences that do not belong together, "
            "text already tokenized); `mtcli data check` finds mismatches"
        )
    if score > HIGH.get(metric, math.inf):
        return (
            f"{metric} above {HIGH[metric]:g} is rare on real text: make sure that no test sentence is also a "
            "training sentence; `mtcli data check TRAIN --test TEST` counts them"
        )
    return None


def one_line(text: str, width: int) -> str:
    """A text as one line of at most `width` columns: control characters are escaped, a longer text ends in `…`."""
    shown: list[str] = []
    used = 0
    for character in map(_visible, text):
        columns = _columns(character)
        if used + columns > width:
            while shown and used > width - 1:
                used -= _columns(shown.pop())
            return "".join(shown) + "…"
        shown.append(character)
        used += columns
    return "".join(shown)


def log_columns() -> int:
    """The width of a log line: that of the terminal, or PIPE_COLUMNS."""
    return max(40, shutil.get_terminal_size((PIPE_COLUMNS, 0)).columns)


def command(name: str, model: Path, *arguments: str) -> str:
    """`mtcli NAME --model DIR …`, ready to paste into a shell."""
    return " ".join(["mtcli", name, "--model", shlex.quote(str(model)), *arguments])


def _visible(character: str) -> str:
    control = unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp")
    if control or ord(character) in BIDIRECTIONAL:
        return character.encode("unicode_escape").decode("ascii")
    return character


def _columns(text: str) -> int:
    """The columns of a terminal that a text without control characters takes."""
    bases = [character for character in text if not unicodedata.combining(character)]
    return len(bases) + sum(unicodedata.east_asian_width(character) in "WF" for character in bases)
