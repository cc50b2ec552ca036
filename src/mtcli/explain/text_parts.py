"""Parts that the summary and the matrices of an explanation as text have in common."""

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from mtcli.explain.explanation import Explanation, Step
from mtcli.runtime.terminal import printable
from mtcli.search.length import penalty_formula

CONFIDENCE_STYLES = ((0.9, "green"), (0.6, "cyan"), (0.3, "yellow"), (0.0, "red"))
"""(probability, colour): a token has the colour of the first row whose probability it reaches."""


def plain_table(*columns: str, right: Sequence[str] = (), header: bool = True) -> Table:
    """Return a table without lines. Cells that do not fit end in `…`."""
    table = Table(box=None, show_header=header, padding=(0, 2, 0, 0), header_style="dim", pad_edge=False)
    for name in columns:
        table.add_column(name, justify="right" if name in right else "left", no_wrap=True, overflow="ellipsis")
    return table


def heading(text: str) -> Text:
    """Return a bold line with a blank line above it."""
    return Text(f"\n{text}", style="bold")


def more(count: int, what: str) -> Text:
    """Return the line that says how much the summary omits."""
    return Text(f"… {count} more {what}; --full shows all", style="dim")


def hypotheses_table(explanation: Explanation, most: int | None = None) -> Iterator[RenderableType]:
    """Yield a table of the finished hypotheses, best first, with at most `most` rows."""
    options = explanation.options
    if options.beam_size == 1:
        yield Text("beam size 1: greedy search, which keeps one hypothesis", style="dim")
    else:
        penalty = penalty_formula(options.length_penalty, options.length_normalization)
        score = f"score = log P(y | x) / {penalty}, n tokens (§6.1)"
        yield Text(f"beam size {options.beam_size}; {score}", style="dim")
    table = plain_table("rank", "score", "log P", "translation", right=("rank", "score", "log P"))
    ranked = list(zip(explanation.texts, explanation.hypotheses, strict=True))
    for rank, (text, hypothesis) in enumerate(ranked[:most], 1):
        is_repeated = text in explanation.texts[: rank - 1]
        shown = (printable(text) or "(empty)") + ("  (same text, other tokens)" if is_repeated else "")
        table.add_row(str(rank), f"{hypothesis.score:.4f}", f"{hypothesis.log_prob:.4f}", shown)
    yield table
    if most is not None and len(ranked) > most:
        yield more(len(ranked) - most, "hypotheses")


def coloured(step: Step) -> Text:
    """Return the token of a step in the colour of its probability."""
    style = next(style for least, style in CONFIDENCE_STYLES if step.probability >= least)
    return Text(printable(step.token), style=style)
