"""The charts of the report, lines over training steps as SVG, and its tables of numbers.

They need no library and no script; the style of the page has the colours.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

from mtcli.runtime.wording import counted

WIDTH = 460
HEIGHT = 270
LEFT = 58
RIGHT = 14
TOP = 44
"""Above the plot: the title of the y-axis, and the values at the pointer."""
BOTTOM = 48
"""Below the plot: the numbers and the title of the x-axis."""

MAX_POINTS = 300
"""Points drawn per line; neighbours are averaged where there are more."""

MAX_MARKS = 60
"""Dots drawn per line."""

MAX_READINGS = 40
"""Steps per line at which the pointer shows values."""

LATE_SHARE = 2 / 3
"""Share of the steps, counted from the last, whose values a zoomed y-axis covers."""

Point = tuple[float, float]
"""A training step and a value."""


@dataclass(frozen=True)
class Series:
    """One line of a chart."""

    name: str
    points: Sequence[Point]
    marks: bool = False
    """Draw a dot at each point."""


@dataclass(frozen=True)
class Frame:
    """The plot area: converts steps and values to SVG coordinates."""

    last_step: float
    y_ticks: Sequence[float]
    clipped: bool
    """Some early values are outside of the y-axis."""

    def x(self, step: float) -> float:
        """Return the horizontal position of a step."""
        return LEFT + step / self.last_step * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        """Return the vertical position of a value."""
        low = self.y_ticks[0]
        high = self.y_ticks[-1]
        return HEIGHT - BOTTOM - (value - low) / (high - low) * (HEIGHT - TOP - BOTTOM)

    def contains(self, value: float) -> bool:
        """Return True if the y-axis covers the value."""
        low = self.y_ticks[0]
        high = self.y_ticks[-1]
        margin = 1e-6 * (high - low)  # the ticks are rounded
        return low - margin <= value <= high + margin


def chart(
    title: str, note: str, series: Sequence[Series], *, unit: str, from_zero: bool = False, min_span: float = 0.0
) -> str:
    """Return an HTML figure with a line chart over training steps.

    Unless the y-axis starts at 0, it is zoomed to the values of the last two thirds of the steps. Late changes are then
    visible, but the values of the first steps may be outside of the axis.

    Args:
        title: Heading.
        note: How the values are measured.
        series: The lines; those without a finite value are not drawn.
        unit: Title of the y-axis.
        from_zero: Start the y-axis at 0.
        min_span: The smallest difference that a zoomed y-axis covers, so that it does not magnify noise.
    """
    lines = [line for line in map(_finite, series) if line.points]
    heading = f"<figure><h3>{escape(title)}</h3>"
    if not lines:
        return f"{heading}<figcaption>{escape(note)} Nothing measured yet.</figcaption></figure>"
    frame = _frame(lines, from_zero=from_zero, min_span=min_span)
    shapes = [*_axes(frame, unit)]
    for number, line in enumerate(lines):
        shapes += _line(frame, number, line)
    shapes += _readings(frame, lines)
    if frame.clipped:
        note += " The first values are outside of the axis."
    return (
        f'{heading}<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(_summary(title, lines))}">'
        f"{''.join(shapes)}</svg><figcaption>{_key(lines)} {escape(note)}</figcaption></figure>"
    )


def _finite(line: Series) -> Series:
    points = [point for point in line.points if all(map(math.isfinite, point))]
    return Series(line.name, points, line.marks)


def _frame(lines: Sequence[Series], *, from_zero: bool, min_span: float) -> Frame:
    """Return the plot area of a chart; see `chart`."""
    points = [point for line in lines for point in line.points]
    last_step = max(step for step, _ in points)
    values = [value for _, value in points]
    low = min(values)
    high = max(values)
    if from_zero:
        return Frame(max(last_step, 1), ticks(0, high), clipped=False)
    late = [value for step, value in points if step >= (1 - LATE_SHARE) * last_step]
    late_low = min(late)
    late_high = max(late)
    clipped = high - low > 2 * max(late_high - late_low, min_span)
    if clipped:
        low = late_low
        high = late_high
    y_ticks = ticks(*_widened(low, high, min_span))
    return Frame(max(last_step, 1), y_ticks, clipped)


def _widened(low: float, high: float, min_span: float) -> Point:
    """Widen a range around its middle to at least `min_span`, without adding negative values to positive ones."""
    missing = min_span - (high - low)
    if missing <= 0:
        return low, high
    if 0 <= low < missing / 2:
        return 0.0, min_span
    return low - missing / 2, high + missing / 2


def _axes(frame: Frame, unit: str) -> Iterator[str]:
    right = WIDTH - RIGHT
    for tick in frame.y_ticks:
        y = frame.y(tick)
        yield f'<line class="grid" x1="{LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{_number(tick)}</text>'
    for tick in ticks(0, frame.last_step):
        if tick > frame.last_step:
            continue
        x = frame.x(tick)
        anchor = "end" if x > right - 26 else "middle"
        yield f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="{anchor}">{_number(tick)}</text>'
    yield f'<text class="axis" x="{(LEFT + right) / 2}" y="{HEIGHT - 6}" text-anchor="middle">training step</text>'
    yield f'<text class="axis" x="0" y="14">{escape(unit)}</text>'


def _line(frame: Frame, number: int, line: Series) -> Iterator[str]:
    """Yield a line and its dots. The inner `<svg>` cuts off what is outside of the y-axis."""
    path = " ".join(f"{frame.x(step):.1f},{frame.y(value):.1f}" for step, value in thinned(line.points))
    top = TOP - 1
    height = HEIGHT - BOTTOM - TOP + 2
    yield (
        f'<svg x="0" y="{top}" width="{WIDTH}" height="{height}" viewBox="0 {top} {WIDTH} {height}">'
        f'<polyline class="s{number}" points="{path}"/></svg>'
    )
    if not line.marks and len(line.points) > 1:
        return
    for step, value in thinned(line.points, MAX_MARKS):
        if frame.contains(value):
            yield f'<circle class="s{number}" cx="{frame.x(step):.1f}" cy="{frame.y(value):.1f}" r="3"/>'


def _readings(frame: Frame, lines: Sequence[Series]) -> Iterator[str]:
    """Yield a strip for each of some steps, in which the page's style shows a rule and the values under the pointer."""
    values = [dict(line.points) for line in lines]
    steps = sorted({step for line in lines for step in _some_steps(line)})
    for index, step in enumerate(steps):
        x = frame.x(step)
        left = (frame.x(steps[index - 1]) + x) / 2 if index > 0 else LEFT
        right = (frame.x(steps[index + 1]) + x) / 2 if index + 1 < len(steps) else WIDTH - RIGHT
        found = [
            f"{line.name} {_number(of_line[step])}"
            for line, of_line in zip(lines, values, strict=True)
            if step in of_line
        ]
        text = f"step {_number(step)}: {', '.join(found)}"
        yield (
            f'<g class="reading"><rect x="{left:.1f}" y="{TOP}" width="{right - left:.1f}" '
            f'height="{HEIGHT - BOTTOM - TOP}"/>'
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>'
            f'<text x="{WIDTH - RIGHT}" y="34" text-anchor="end">{escape(text)}</text>'
            "</g>"
        )


def _some_steps(line: Series) -> list[float]:
    """Return steps of a line, evenly chosen, the last one among them."""
    stride = math.ceil(len(line.points) / MAX_READINGS)
    from_the_last = line.points[::-1][::stride]
    return [step for step, _ in from_the_last]


def _summary(title: str, lines: Sequence[Series]) -> str:
    """Describe a chart for those who do not see it."""
    changes = [f"{line.name} from {_number(line.points[0][1])} to {_number(line.points[-1][1])}" for line in lines]
    last_step = max(line.points[-1][0] for line in lines)
    return f"{title}: {', '.join(changes)}, over {counted(round(last_step), 'step')}"


def _key(lines: Sequence[Series]) -> str:
    return " ".join(
        f'<span class="key k{number}">{escape(line.name)} <b>{_number(line.points[-1][1])}</b></span>'
        for number, line in enumerate(lines)
    )


def ticks(low: float, high: float) -> list[float]:
    """Return two to eight round numbers, the first at or below `low` and the last at or above `high`."""
    span = high - low or abs(high) or 1.0
    power = 10 ** math.floor(math.log10(span / 5))
    step = next(multiple * power for multiple in (1, 2, 5, 10) if span / (multiple * power) <= 5)
    first = math.floor(low / step + 1e-9)
    last = math.ceil(high / step - 1e-9)
    last = max(last, first + 1)
    return [number * step for number in range(first, last + 1)]


def thinned(points: Sequence[Point], most: int = MAX_POINTS) -> list[Point]:
    """Return at most `most` points: means of neighbours, and the last point as it is."""
    if len(points) <= most:
        return list(points)
    *rest, last = points
    size = math.ceil(len(rest) / (most - 1))
    means = []
    for start in range(0, len(rest), size):
        group = rest[start : start + size]
        mean_step = sum(step for step, _ in group) / len(group)
        mean_value = sum(value for _, value in group) / len(group)
        means.append((mean_step, mean_value))
    return [*means, last]


def _number(value: float) -> str:
    """Format with four significant digits, or as a whole number from 1,000."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def number_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return an HTML table whose rows begin with a name and go on with numbers."""
    head = "".join(f'<th scope="col">{escape(heading)}</th>' for heading in headings)
    body = ""
    for name, *numbers in rows:
        cells = "".join(f"<td>{escape(number)}</td>" for number in numbers)
        body += f'<tr><th scope="row">{escape(name)}</th>{cells}</tr>'
    return f'<div class="scroll"><table class="num"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
