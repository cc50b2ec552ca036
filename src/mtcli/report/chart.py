"""Line charts as SVG, to stand inside a page that gives the colours: no library, no script."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 460, 250
LEFT, RIGHT, TOP, BOTTOM = 58, 14, 10, 30
POINTS = 300
"""Drawn of one line; of more, means of neighbours."""


@dataclass(frozen=True)
class Series:
    """One line of a chart."""

    name: str
    points: Sequence[tuple[float, float]]
    marks: bool = False
    """A dot at each point, with its figures."""


def chart(title: str, note: str, series: Sequence[Series], *, from_zero: bool) -> str:
    """A figure with its caption; lines over training steps.

    Args:
        title: What is shown.
        note: Unit, and how it is measured.
        series: The lines; those without a finite point are left out.
        from_zero: The scale starts at 0, otherwise below the smallest value.
    """
    lines = [Series(one.name, [p for p in one.points if all(map(math.isfinite, p))], one.marks) for one in series]
    lines = [one for one in lines if one.points]
    head = f"<figure><h3>{escape(title)}</h3>"
    if not lines:
        return f"{head}<figcaption>{escape(note)} Nothing measured yet.</figcaption></figure>"
    xs, ys = ([p[axis] for one in lines for p in one.points] for axis in (0, 1))
    x_ticks, y_ticks = ticks(0, max(xs)), ticks(0 if from_zero else min(ys), max(ys))
    x_most, (y_least, y_most) = max(*xs, x_ticks[1]), (y_ticks[0], y_ticks[-1])

    def x(value: float) -> float:
        return LEFT + value / x_most * (WIDTH - LEFT - RIGHT)

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - (value - y_least) / (y_most - y_least) * (HEIGHT - TOP - BOTTOM)

    parts = []
    for tick in y_ticks:
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(tick):.1f}" y2="{y(tick):.1f}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y(tick) + 4:.1f}" text-anchor="end">{_number(tick)}</text>')
    for tick in (tick for tick in x_ticks if tick <= x_most):
        anchor = "end" if x(tick) > WIDTH - 40 else "middle"
        parts.append(f'<text x="{x(tick):.1f}" y="{HEIGHT - 10}" text-anchor="{anchor}">{_number(tick)}</text>')
    for n, one in enumerate(lines):
        path = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in thinned(one.points))
        parts.append(f'<polyline class="s{n}" points="{path}"/>')
        if one.marks or len(one.points) == 1:
            for a, b in thinned(one.points, 60):
                told = f"{one.name} {_number(b)} at step {_number(a)}"
                parts.append(
                    f'<circle class="s{n}" cx="{x(a):.1f}" cy="{y(b):.1f}" r="3"><title>{escape(told)}</title></circle>'
                )
    ends = [f"{one.name} from {_number(one.points[0][1])} to {_number(one.points[-1][1])}" for one in lines]
    label = f"{title}: {', '.join(ends)}, over {_number(max(xs))} steps"
    keys = " ".join(
        f'<span class="key k{n}">{escape(one.name)} <b>{_number(one.points[-1][1])}</b></span>'
        for n, one in enumerate(lines)
    )
    return (
        f'{head}<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(label)}">{"".join(parts)}</svg>'
        f"<figcaption>{keys} {escape(note)}</figcaption></figure>"
    )


def ticks(low: float, high: float) -> list[float]:
    """Four to seven round numbers, the first at or below `low` and the last at or above `high`."""
    span = high - low or abs(high) or 1.0
    exponent = 10 ** math.floor(math.log10(span / 5))
    step = next(m * exponent for m in (1, 2, 5, 10) if span / (m * exponent) <= 5)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [n * step for n in range(first, max(last, first + 1) + 1)]


def thinned(points: Sequence[tuple[float, float]], most: int = POINTS) -> list[tuple[float, float]]:
    """At most so many points: means over neighbours, the last point as it is."""
    if len(points) <= most:
        return list(points)
    size = math.ceil((len(points) - 1) / (most - 1))
    groups = [points[i : min(i + size, len(points) - 1)] for i in range(0, len(points) - 1, size)]
    means = [(sum(a for a, _ in g) / len(g), sum(b for _, b in g) / len(g)) for g in groups]
    return [*means, points[-1]]


def _number(value: float) -> str:
    """Four digits at most, or whole thousands."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
