"""One intermediate result of the forward pass, as an explanation shows it."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Stage:
    """One intermediate result of the forward pass: a matrix whose rows belong to tokens."""

    key: str
    """Name in JSON, such as `encoder.1.self.q`."""
    title: str
    paper: str
    """Section, equation or figure."""
    formula: str
    """`_` and `^` start a subscript or superscript; `{…}` encloses one that is longer than a word."""
    description: str
    """The formula in one sentence."""
    rows: Sequence[str]
    """The token of each row."""
    values: Tensor
    """(rows, columns)."""
    columns: Sequence[str] | None = None
    """The token of each column, for attention scores and weights; None for other matrices."""
    of_head: bool = False
    """True if the matrix belongs to one head (head i in the formula)."""
