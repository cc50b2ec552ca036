#!/usr/bin/env python3
"""Draw the packages and their imports: docs/pictures/architecture.svg.

    scripts/draw_architecture.py

A box stands above all packages that it imports. An arrow that follows from others is omitted: where A imports B and B
imports C, there is no arrow from A to C. `tests/test_architecture.py` checks that the picture is current.
"""

import ast
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from graphlib import TopologicalSorter
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "mtcli"
PICTURE = ROOT / "docs" / "pictures" / "architecture.svg"
MODULES = sorted(PACKAGE.rglob("*.py"))

BOX = (128, 30)
"""Width and height of a box in pixels."""
COLUMN = 152
ROW = 54
LANE = 36
"""Width in pixels that an arrow takes in a row that it passes."""
SWEEPS = 24
"""How often the boxes of all rows are sorted by the positions of their neighbors."""

STYLE = """
  .page { fill: #ffffff } .box { fill: #eef3fb; stroke: #44618f } text { fill: #14213a }
  .arrow { fill: none; stroke: #6b7c99 } .head { fill: #6b7c99 }
  text { font: 600 14px system-ui, sans-serif; text-anchor: middle; dominant-baseline: central }
  .arrow, .box { stroke-width: 1.3 }
  @media (prefers-color-scheme: dark) {
    .page { fill: #0d1117 } .box { fill: #1b2637; stroke: #7f9cc8 } text { fill: #e4ebf7 }
    .arrow { stroke: #8d9bb3 } .head { fill: #8d9bb3 }
  }
"""


def main() -> None:
    PICTURE.write_text(drawn(), encoding="utf-8")
    print(PICTURE.relative_to(ROOT))


def dotted(path: Path) -> str:
    """Return a module's name: `text.lines` for `…/mtcli/text/lines.py`, `text` for `…/mtcli/text/__init__.py`."""
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")


NAMES = {dotted(path) for path in MODULES}


def imports(tree: ast.AST) -> Iterator[str]:
    """Yield the modules of mtcli that code imports, at its top or inside functions: `text.lines`, `errors`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert not node.level, "write imports from the package's root"
            whole = [f"{node.module}.{alias.name}" for alias in node.names] if node.module else []
            for name in whole:
                inner = name.removeprefix("mtcli.")
                if name.startswith("mtcli.") and inner != "__version__":
                    yield inner if inner in NAMES else inner.rpartition(".")[0]
        elif isinstance(node, ast.Import):
            yield from (a.name.removeprefix("mtcli.") for a in node.names if a.name.startswith("mtcli."))


def imports_of_modules() -> dict[str, set[str]]:
    """Return the modules that each module of mtcli imports."""
    return {dotted(path): set(imports(ast.parse(path.read_text(encoding="utf-8")))) for path in MODULES}


def package(name: str) -> str:
    """Return the package of a module: `text` for `text.lines`."""
    return name.partition(".")[0]


def imports_of_packages() -> dict[str, set[str]]:
    """Return the other packages, and modules beside the packages, that each package imports."""
    graph: dict[str, set[str]] = {}
    for name, imported in imports_of_modules().items():
        if not name.startswith("__"):
            graph.setdefault(package(name), set()).update(map(package, imported))
    return {name: imported - {name} for name, imported in graph.items()}


def reduced(graph: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Return the graph without the edges that follow from others."""
    reached: dict[str, set[str]] = {}
    for name in TopologicalSorter(graph).static_order():
        reached[name] = graph[name].union(*(reached[other] for other in graph[name]))
    return {name: {b for b in graph[name] if not any(b in reached[c] for c in graph[name])} for name in graph}


@dataclass(frozen=True, order=True)
class Slot:
    """A place in a row: of a box, or of an arrow that passes the row."""

    row: int
    name: str
    is_box: bool = True


def rows_of(graph: Mapping[str, set[str]]) -> dict[str, int]:
    """Return the row of each package, from 0 at the bottom: one above the highest package that it imports."""
    rows: dict[str, int] = {}
    for name in TopologicalSorter(graph).static_order():
        rows[name] = 1 + max((rows[other] for other in graph[name]), default=-1)
    return rows


def paths_of(edges: Mapping[str, set[str]], rows: Mapping[str, int]) -> list[list[Slot]]:
    """Return the slots that each arrow passes, from the box that imports to the one that is imported."""
    paths = []
    for name in sorted(edges):
        for other in sorted(edges[name]):
            between = [Slot(row, f"{name} {other}", False) for row in range(rows[name] - 1, rows[other], -1)]
            paths.append([Slot(rows[name], name), *between, Slot(rows[other], other)])
    return paths


def centers(paths: list[list[Slot]]) -> dict[Slot, float]:
    """Return the horizontal center of each slot, close to its neighbors."""
    slots = sorted({slot for path in paths for slot in path})
    neighbors: dict[Slot, list[Slot]] = {slot: [] for slot in slots}
    for path in paths:
        for upper, lower in pairwise(path):
            neighbors[upper].append(lower)
            neighbors[lower].append(upper)
    x = dict.fromkeys(slots, 0.0)
    highest = max(slot.row for slot in slots)
    for sweep in range(SWEEPS):
        for row in range(highest + 1) if sweep % 2 else range(highest, -1, -1):
            members = [slot for slot in slots if slot.row == row]
            wanted = {slot: sum(x[n] for n in neighbors[slot]) / len(neighbors[slot]) for slot in members}
            members.sort(key=lambda slot: (wanted[slot], slot))
            end = -math.inf
            for slot in members:
                width = COLUMN if slot.is_box else LANE
                x[slot] = max(wanted[slot], end + width / 2)
                end = x[slot] + width / 2
            too_far = sum(x[slot] - wanted[slot] for slot in members) / len(members)
            for slot in members:
                x[slot] -= too_far
    return x


def drawn() -> str:
    """Return the picture."""
    graph = imports_of_packages()
    rows = rows_of(graph)
    paths = paths_of(reduced(graph), rows)
    x = centers(paths)
    box_width, box_height = BOX
    left = min(x.values()) - COLUMN / 2
    width = round(max(x.values()) + COLUMN / 2 - left)
    height = ROW * (max(rows.values()) + 1) + 12

    def middle(slot: Slot) -> tuple[float, float]:
        return x[slot] - left, height - 6 - ROW * (slot.row + 0.5)

    parts = []
    for path in paths:
        points = [middle(slot) for slot in path]
        (first_x, first_y), (last_x, last_y) = points[0], points[-1]
        points[0] = (first_x, first_y + box_height / 2)
        points[-1] = (last_x, last_y - box_height / 2 - 2)
        line = " ".join(f"{a:.0f},{b:.0f}" for a, b in points)
        parts.append(f'<polyline class="arrow" points="{line}" marker-end="url(#head)"/>')
    for slot in sorted(slot for slot in x if slot.is_box):
        a, b = middle(slot)
        corner = f'x="{a - box_width / 2:.0f}" y="{b - box_height / 2:.0f}"'
        parts.append(f'<rect class="box" {corner} width="{box_width}" height="{box_height}" rx="6"/>')
        parts.append(f'<text x="{a:.0f}" y="{b:.0f}">{slot.name}</text>')
    lines = "\n".join(parts)
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">
<title>The packages of mtcli and their imports</title>
<style>{STYLE}</style>
<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">
<path class="head" d="M0,0 L8,4 L0,8 z"/></marker></defs>
<rect class="page" width="{width}" height="{height}"/>
{lines}
</svg>
"""


if __name__ == "__main__":
    main()
