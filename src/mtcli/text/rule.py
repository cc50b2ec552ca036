"""The form of a rule that says which text is protected. `protected_rules` has the table of all rules."""

from dataclasses import dataclass
from enum import Enum
from typing import Literal

_NOT_IN_WORD = "(?<![A-Za-z0-9_])"


class Start(Enum):
    """The first character of a protected text, as a pattern that looks at the character but does not take it.

    It decides which rules are tried. Most places of a text are inside words, where none begins.
    """

    LETTER = rf"{_NOT_IN_WORD}(?=[^\W\d_])"
    """A letter, or a number that is no digit, such as `½`."""
    DIGIT = rf"{_NOT_IN_WORD}(?=\d)"
    SIGN = r"(?=[^\w\s]|_)"
    """Any other character that is no white space."""


@dataclass(frozen=True)
class Rule:
    """One kind of protected text."""

    name: str
    pattern: str
    """A regular expression without capturing groups. It must take linear time, so limit its repetitions, or make them
    possessive."""
    starts: tuple[Start, ...] = (Start.SIGN,)
    """Where the text may begin. A rule is not tried anywhere else."""
    kind: Literal["text", "measure", "figure"] = "text"
    """A measure is a number with a unit. A figure is any other number, which is protected only if languages write it
    alike (see `numbers.is_alike`). A translation may have new numbers, but no new text of another kind."""
