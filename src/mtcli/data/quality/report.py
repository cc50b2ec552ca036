"""`mtcli data check`: the findings of a survey, with examples and advice, for people and for programs."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mtcli.data.quality.rules import BIT, ODD, REMOVES, Rule, rules
from mtcli.data.quality.survey import Corpus, Survey, survey

EXAMPLES = 3  # of each finding
WIDTH = 80  # characters of each side
UNSPACED_SCRIPTS = {"Chinese or Japanese", "Thai", "Lao", "Khmer", "Myanmar", "Tibetan"}
"""Scripts without spaces between words, as `rules.script` names them: words are not counted there."""


@dataclass(frozen=True)
class Example:
    """A pair and where it is."""

    where: str
    src: str
    tgt: str


@dataclass
class Finding:
    """A rule, and the pairs that break it."""

    rule: Rule
    pairs: int
    examples: list[Example] = field(default_factory=list)


@dataclass
class Report:
    """What `mtcli data check` says."""

    corpus: Corpus
    survey: Survey
    findings: list[Finding]
    """Of the rules that any pair breaks, the gravest first."""


def check(pairs: Corpus, model: Path | None = None) -> Report:
    """Look at a corpus; nothing is changed. Raises what `survey` does."""
    seen = survey(pairs, model)
    findings, wanted = [], {}
    for rule in rules(pairs.max_length, pairs.max_ratio):
        hits = np.flatnonzero(seen.found & BIT[rule.name])
        if len(hits):
            findings.append(Finding(rule, len(hits)))
            spread = hits[np.linspace(0, len(hits) - 1, EXAMPLES).astype(int)]  # not three neighbours
            wanted[rule.name] = list(dict.fromkeys(spread.tolist()))
    examples = _look_up(pairs, set().union(*wanted.values()))
    for finding in findings:
        finding.examples = [examples[i] for i in wanted[finding.rule.name] if i in examples]
    return Report(pairs, seen, findings)


def _look_up(pairs: Corpus, numbers: set[int]) -> dict[int, Example]:
    """The pairs of these numbers, read again up to the last of them."""
    found: dict[int, Example] = {}
    for index, (path, number, record) in enumerate(pairs.records("looking up examples")):
        if index in numbers:
            src, tgt = (record, "") if isinstance(record, str) else record
            found[index] = Example(pairs.place(path, number), src, tgt)
        if len(found) == len(numbers):
            break
    return found


def to_json(report: Report) -> str:
    """One object: `pairs`, `src` and `tgt` with their sizes, and `findings`."""
    return json.dumps(
        {
            "pairs": len(report.survey.found),
            **dict(zip(("src", "tgt"), _facts(report), strict=True)),
            "notices": report.survey.notices,
            "left_out_by_clean": _removed(report),
            "findings": [
                {
                    "name": finding.rule.name,
                    "level": finding.rule.level,
                    "pairs": finding.pairs,
                    "advice": finding.rule.advice,
                    "examples": [vars(example) for example in finding.examples],
                }
                for finding in report.findings
            ],
        },
        indent=1,
    )


def _facts(report: Report) -> list[dict[str, Any]]:
    seen, n = report.survey, max(len(report.survey.found), 1)
    facts: list[dict[str, Any]] = [
        {
            "language": language,
            "script": seen.scripts[side] or None,
            "words": None if seen.scripts[side] in UNSPACED_SCRIPTS else seen.words[side],
            "words_per_pair": None if seen.scripts[side] in UNSPACED_SCRIPTS else round(seen.words[side] / n, 2),
            "characters_per_pair": round(seen.characters[side] / n, 2),
        }
        for side, language in enumerate((report.corpus.src, report.corpus.tgt))
    ]
    for side, pieces in zip(facts, seen.pieces or (), strict=False):
        side["pieces_per_word"] = None if side["words"] is None else round(pieces.pieces / max(pieces.words, 1), 3)
        side["share_of_byte_pieces"] = round(pieces.bytes / max(pieces.pieces, 1), 6)
    return facts


def to_text(report: Report) -> str:
    """A summary, then each finding with what to do about it and examples."""
    n, facts = len(report.survey.found), _facts(report)
    lines = [f"{', '.join(report.corpus.paths)}: {n:,} pairs", ""]
    for name in facts[0]:
        values = [f"{side[name]:,}" if isinstance(side[name], int | float) else side[name] or "-" for side in facts]
        lines.append(f"{name.replace('_', ' '):22}{values[0]:>14}{values[1]:>14}")
    lines += [f"note: {notice}" for notice in report.survey.notices]
    for finding in report.findings:
        lines += ["", f"{finding.rule.level}: {finding.rule.name}, {_pairs(finding.pairs, n)}"]
        lines.append(f"    {finding.rule.advice}")
        lines += [f"      {x.where}  {_shown(x.src)}" + f"  |  {_shown(x.tgt)}" * bool(x.tgt) for x in finding.examples]
    removed = _removed(report)
    lines += [
        "",
        f"mtcli data clean would leave out {_pairs(removed, n)}; its --rejected FILE lists them"
        if removed
        else "nothing to clean",
    ]
    return "\n".join(lines)


def _removed(report: Report) -> int:
    return int(np.count_nonzero(report.survey.found & REMOVES))


def _pairs(pairs: int, of: int) -> str:
    """`38 pairs (0.02%)`."""
    share = f"{100 * pairs / of:.2f}%" if pairs >= of / 20_000 else "under 0.01%"
    return f"{pairs:,} pair{'s' * (pairs != 1)} ({share})"


def _shown(text: str) -> str:
    """The beginning of a text, with what cannot be seen written as an escape: the byte itself if it is not UTF-8."""
    odd = ODD.search(text)
    start = max(0, odd.start() - WIDTH // 2) if odd and odd.end() > WIDTH else 0
    text = "…" * (start > 0) + text[start : start + WIDTH] + "…" * (len(text) > start + WIDTH)
    text = "".join(c if c.isprintable() or "\udc80" <= c <= "\udcff" else repr(c)[1:-1] for c in text)
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
