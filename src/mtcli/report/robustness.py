"""The scores of text as people type it in a run folder, in its report and in its model card.

`mtcli eval --robust` measures them after training. It writes them into the folder, and into the report and the card,
whose other parts stay as training wrote them.
"""

import json
import re
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from mtcli import limits
from mtcli.report.chart import number_table
from mtcli.runtime.files import read_regular, replace_file
from mtcli.runtime.wording import command
from mtcli.storage import ROBUSTNESS
from mtcli.storage.model_folder import ModelIdentity, has_identity, identity_of

HEADING = "Text as people type it"

WIDTH = 460
LABELS = 176
"""Width of the names of the forms."""
FULL = 210
"""Width of a bar of 100%."""
MOST = 1.15
"""Share at which a bar is cut."""
ROW = 26
"""Height of a form: a bar for each of two metrics."""
TOP = 18

_SECTION = re.compile(
    r'(?:<section aria-labelledby="h-robust">.*?</section>\n)?(?=<section aria-labelledby="h-commands">)', re.DOTALL
)
_CARD_SECTION = re.compile(rf"(?:## {HEADING}\n.*?\n)?(?=## Data\n)", re.DOTALL)


class FormScore(BaseModel, strict=True):
    """The score of one form in one metric, as `Robustness.to_json` writes it."""

    form: str
    lines: int
    plain: float
    share: float
    kept: float | None = None
    name: str
    score: float
    signature: str
    """sacrebleu's signature."""


class _Record(BaseModel, strict=True):
    """The content of the file in the run folder."""

    model: ModelIdentity
    scores: list[FormScore]


def record(run: Path, scores: Sequence[dict[str, Any]]) -> None:
    """Write scores into a run folder, its report and its model card.

    Args:
        run: The run folder.
        scores: The objects of `Robustness.to_json`. That of single words has no metric and is left out.

    Raises:
        OSError: A file cannot be read or written.
    """
    model = identity_of(run / "model.safetensors")
    with_metric = [FormScore.model_validate(score) for score in scores if "name" in score]
    found = _Record(model=model, scores=with_metric)
    replace_file(run / ROBUSTNESS, json.dumps(found.model_dump(), indent=1, ensure_ascii=False).encode())
    _replace(run / "report.html", _SECTION, section(run, found.scores))
    _replace(run / "README.md", _CARD_SECTION, card_section(found.scores))


def _replace(path: Path, pattern: re.Pattern[str], text: str) -> None:
    """Replace a part of a text file. A file that is missing, or that has no such part, stays as it is."""
    if not path.is_file():
        return
    content = read_regular(path, most=limits.METADATA).decode()
    replace_file(path, pattern.sub(lambda _: text, content, count=1).encode())


def recorded(run: Path) -> list[FormScore]:
    """Return the scores in a run folder; none if they were not measured, are damaged, or are of another model."""
    try:
        found = _Record.model_validate_json(read_regular(run / ROBUSTNESS, most=limits.METADATA))
    except (OSError, ValueError):
        return []
    return found.scores if has_identity(run / "model.safetensors", found.model) else []


def section(run: Path, scores: Sequence[FormScore]) -> str:
    """Return the section of the report: a bar for each form and metric, and a table."""
    measuring = f"<code>{escape(command('eval', run, '--robust'))}</code>"
    if scores:
        content = (
            '<p class="soft">The test pairs in the forms in which people type, translated by the model without '
            "what <code>mtcli translate</code> does first, such as splitting a line. A bar is the score as a share of "
            f"that on the same pairs as they are.</p>{_bars(scores)}{_table(scores)}"
        )
    else:
        content = f'<p class="soft">Not measured for this model. {measuring} measures it, and adds it here.</p>'
    return f'<section aria-labelledby="h-robust"><h2 id="h-robust">{HEADING}</h2>{content}</section>\n'


def card_section(scores: Sequence[FormScore]) -> str:
    """Return the section of the model card; empty without scores."""
    if not scores:
        return ""
    lines = [
        f"## {HEADING}",
        "",
        "The test pairs in the forms in which people type, translated line by line. `share`: of the score on the same",
        "pairs as they are (`mtcli eval --robust`).",
        "",
        "| form | lines | metric | score | share |",
        "|---|---|---|---|---|",
    ]
    for each in scores:
        lines.append(f"| {each.form} | {each.lines} | {each.name} | {each.score:.1f} | {each.share:.0%} |")
    signatures = "; ".join(f"{name} {signature}" for name, signature in _signatures(scores))
    return "\n".join([*lines, "", f"{signatures}. Title case is scored without case.", "", ""])


def _signatures(scores: Sequence[FormScore]) -> list[tuple[str, str]]:
    """Return the name of each metric and its signature, which is another one for title case."""
    return [(each.name, each.signature) for each in scores if each.form == scores[0].form]


def _by_form(scores: Sequence[FormScore]) -> dict[str, list[FormScore]]:
    """Return the scores of each form, without those of the pairs as they are, whose shares are 1."""
    first = scores[0].form
    forms: dict[str, list[FormScore]] = {}
    for each in scores:
        if each.form != first:
            forms.setdefault(each.form, []).append(each)
    return forms


def _bars(scores: Sequence[FormScore]) -> str:
    """Return the picture."""
    forms = _by_form(scores)
    height = TOP + ROW * len(forms) + 4
    full = LABELS + FULL
    shapes = [
        "<style>.robust{max-width:36rem}.robust .k1::before{border-top-style:solid}"
        ".robust .s0{fill:var(--accent);stroke:none}"
        ".robust .s1{fill:var(--second);stroke:none}.robust .value{fill:var(--ink)}</style>",
        f'<text class="axis" x="{full}" y="12" text-anchor="middle">100%</text>',
    ]
    for number, (form, found) in enumerate(forms.items()):
        y = TOP + number * ROW
        shapes.append(f'<text class="axis value" x="{LABELS - 8}" y="{y + 15}" text-anchor="end">{escape(form)}</text>')
        thickness = (ROW - 8) / len(found)
        for metric, each in enumerate(found):
            width = max(1.0, FULL * min(each.share, MOST))
            shapes.append(
                f'<rect class="s{metric}" x="{LABELS}" y="{y + 3 + metric * thickness:.1f}" width="{width:.1f}" '
                f'height="{thickness - 1:.1f}"/>'
            )
        shapes.append(f'<text class="value" x="{WIDTH}" y="{y + 15}" text-anchor="end">{found[0].share:.0%}</text>')
    shapes.append(f'<line class="grid" x1="{full}" x2="{full}" y1="{TOP}" y2="{height}"/>')
    names = [each.name for each in next(iter(forms.values()))]
    keys = " ".join(f'<span class="key k{number}">{escape(name)}</span>' for number, name in enumerate(names))
    summary = ", ".join(f"{form} {found[0].share:.0%}" for form, found in forms.items())
    return (
        f'<figure class="robust"><svg viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="{escape(f"Share of {names[0]}: {summary}")}">{"".join(shapes)}</svg>'
        f"<figcaption>{keys} The numbers are the shares of {escape(names[0])}.</figcaption></figure>"
    )


def _table(scores: Sequence[FormScore]) -> str:
    """Return a table of all scores, which can be opened."""
    names = list(dict.fromkeys(each.name for each in scores))
    headings = ["form", "lines", *(f"{name}{of}" for name in names for of in ("", ", plain", ", share")), "kept"]
    forms = {scores[0].form: scores[: len(names)]} | _by_form(scores)
    rows = []
    for form, found in forms.items():
        cells = [form, f"{found[0].lines:,}"]
        for each in found:
            cells += [f"{each.score:.1f}", f"{each.plain:.1f}", f"{each.share:.0%}"]
        cells.append("" if found[0].kept is None else f"{found[0].kept:.1%}")
        rows.append(cells)
    signatures = "".join(
        f'<p class="signature">{escape(name)} {escape(signature)}</p>' for name, signature in _signatures(scores)
    )
    return (
        f"<details><summary>Scores of every form</summary>{number_table(headings, rows)}"
        '<p class="soft">plain: the same pairs as they are. kept: the translations that have the symbol of their '
        f"source. Title case is scored without case.</p>{signatures}</details>"
    )
