"""Render an explanation as text for the terminal: one screen by default, every matrix on request.

`rich` lays out the tables. Without colour the result is plain text. Control characters in tokens are escaped.
"""

import io
from collections.abc import Iterable

from rich.console import Console, RenderableType

from mtcli.explain.explanation import Explanation
from mtcli.explain.text_matrices import details
from mtcli.explain.text_summary import summary

DEFAULT_WIDTH = 100
UNLIMITED_WIDTH = 100_000


def to_text(
    explanation: Explanation,
    layer: int | None = None,
    head: int | None = None,
    *,
    step: int | None = None,
    full: bool = False,
    colour: bool = False,
    width: int | None = None,
) -> str:
    """Return the explanation as lines of text.

    Args:
        explanation: The explanation.
        layer: Layer, from 0. None: the sharpest cross-attention in the summary, otherwise the first layer.
        head: Head, from 0. None: the mean of the heads in the summary without `layer`, otherwise the first head.
        step: Show this decoder step only, from 0, with its matrices.
        full: Show every stage and every step instead of the summary; with `step`, whole matrices.
        colour: Colour tokens by probability.
        width: Columns of the terminal; None: matrices are not cut to a width.
    """
    if step is None and not full:
        parts = summary(explanation, layer, head, colour)
        return _render(parts, width or DEFAULT_WIDTH, colour)
    if width is None and not full:
        width = DEFAULT_WIDTH
    columns = width or UNLIMITED_WIDTH
    parts = details(explanation, layer or 0, head or 0, step, columns)
    return _render(parts, columns, colour)


def _render(parts: Iterable[RenderableType], width: int, colour: bool) -> str:
    stream = io.StringIO()
    console = Console(
        file=stream,
        width=width,
        force_terminal=colour,
        color_system="standard" if colour else None,
        no_color=not colour,
        markup=False,
        emoji=False,
        highlight=False,
        legacy_windows=False,
    )
    for part in parts:
        console.print(part)
    return "".join(f"{line.rstrip()}\n" for line in stream.getvalue().splitlines())
