"""`mtcli data check`: the findings of a survey with counts, examples and advice, as text and as JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mtcli.corpus.quality.corpus import Corpus
from mtcli.corpus.quality.rules import BIT, ODD, REMOVES, Rule, rules
from mtcli.corpus.quality.survey import Survey, TokenCounts, survey
from mtcli.runtime.wording import counted

EXAMPLES = 3
"""Examples of each finding."""

WIDTH = 80
"""Characters of each side of an example."""

FAR_TOO_FEW_PAIRS = 5000
"""Fewer pairs than this are hardly enough for one narrow domain."""

FEW_PAIRS = 30_000
"""With fewer pairs than this, a parent model gives more than any setting of a training (docs/small-languages.md)."""

UNSPACED_SCRIPTS = {"Chinese or Japanese", "Thai", "Lao", "Khmer", "Myanmar", "Tibetan"}
"""Scripts without spaces between words, as `rules.script` names them. Words are not counted in them."""


@dataclass(frozen=True)
class Example:
    """A pair and its place."""

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
    """The result of `mtcli data check`."""

    corpus: Corpus
    survey: Survey
    findings: list[Finding]
    """The rules that any pair breaks, the most serious first."""


def check(pairs: Corpus, model: Path | None = None) -> Report:
    """Find the problems of a corpus, without changing anything.

    Raises:
        DataError, ModelError: See `survey`.
    """
    seen = survey(pairs, model)
    findings: list[Finding] = []
    wanted: dict[str, list[int]] = {}
    for rule in rules(pairs.max_length, pairs.max_ratio):
        hits = np.flatnonzero(seen.found & BIT[rule.name])
        if len(hits):
            findings.append(Finding(rule, len(hits)))
            spread = hits[np.linspace(0, len(hits) - 1, EXAMPLES).astype(int)]  # from all parts of the corpus
            wanted[rule.name] = list(dict.fromkeys(spread.tolist()))
    examples = _read_examples(pairs, set().union(*wanted.values()))
    for finding in findings:
        finding.examples = [examples[i] for i in wanted[finding.rule.name] if i in examples]
    return Report(pairs, seen, findings)


def _read_examples(pairs: Corpus, numbers: set[int]) -> dict[int, Example]:
    """Return the pairs with these numbers. Reads the corpus again, up to the last of them."""
    found: dict[int, Example] = {}
    for index, (path, number, record) in enumerate(pairs.records("looking up examples")):
        if index in numbers:
            src, tgt = (record, "") if isinstance(record, str) else record
            found[index] = Example(pairs.place(path, number), src, tgt)
        if len(found) == len(numbers):
            break
    return found


def to_json(report: Report) -> str:
    """Return one JSON object: `pairs`, the statistics of `src` and `tgt`, `notices` and `findings`."""
    src, tgt = _statistics(report)
    findings = [
        {
            "name": finding.rule.name,
            "level": finding.rule.level,
            "pairs": finding.pairs,
            "advice": finding.rule.advice,
            "examples": [vars(example) for example in finding.examples],
        }
        for finding in report.findings
    ]
    content = {
        "pairs": len(report.survey.found),
        "src": src,
        "tgt": tgt,
        "notices": report.survey.notices + report.survey.languages,
        "left_out_by_clean": _removed(report),
        "findings": findings,
    }
    return json.dumps(content, indent=1)


def _statistics(report: Report) -> list[dict[str, Any]]:
    """Return the statistics of each side."""
    statistics = []
    for side, language in enumerate((report.corpus.src, report.corpus.tgt)):
        tokens = report.survey.tokens[side] if report.survey.tokens else None
        statistics.append(_side_statistics(report.survey, side, language, tokens))
    return statistics


def _side_statistics(seen: Survey, side: int, language: str, tokens: TokenCounts | None) -> dict[str, Any]:
    pairs = max(len(seen.found), 1)
    spaced = seen.scripts[side] not in UNSPACED_SCRIPTS
    found: dict[str, Any] = {
        "language": language,
        "script": seen.scripts[side] or None,
        "words": seen.words[side] if spaced else None,
        "words_per_pair": round(seen.words[side] / pairs, 2) if spaced else None,
        "characters_per_pair": round(seen.characters[side] / pairs, 2),
    }
    if tokens:
        found["tokens_per_word"] = round(tokens.tokens / max(tokens.words, 1), 3) if spaced else None
        found["share_of_byte_tokens"] = round(tokens.byte_tokens / max(tokens.tokens, 1), 6)
    return found


def remark_on_size(pairs: int, *, several: bool = False) -> str | None:
    """Return what would help a training on so few pairs; None for `FEW_PAIRS` or more, or for no pairs.

    Args:
        pairs: Number of training pairs; of several directions, of the smallest one.
        several: The model learns several directions.
    """
    if not 0 < pairs < FEW_PAIRS:
        return None
    number = counted(pairs, "training pair")
    mono = "--mono CODE=FILE" if several else "--mono-tgt FILE"
    related = "train the pairs of related languages in the same model (several --train); "
    ways = (
        f"start from a model of a large or related language that shares a side with yours (--init PARENT); "
        f"{'' if several else related}use text that you have in one language only (mtcli improve {mono}); "
        "docs/small-languages.md shows how"
    )
    if pairs < FAR_TOO_FEW_PAIRS:
        return (
            f"{number}: far too few for a usable translator, which needs 10,000 or more in one narrow domain and "
            f"100,000 or more for everyday sentences. What helps: {ways}"
        )
    return f"{number}: few for everyday sentences. What helps: {ways}"


def to_text(report: Report) -> str:
    """Return a summary, then each finding with advice and examples."""
    pairs = len(report.survey.found)
    lines = [f"{', '.join(report.corpus.paths)}: {counted(pairs, 'pair')}", ""]
    src, tgt = _statistics(report)
    for name in src:
        label = name.replace("_", " ")
        lines.append(f"{label:22}{_cell(src[name]):>14}{_cell(tgt[name]):>14}")
    lines += [f"note: {notice}" for notice in report.survey.notices]
    lines += [f"warning: {problem}" for problem in report.survey.languages]
    for finding in report.findings:
        lines += ["", *_finding_lines(finding, pairs)]
    removed = _removed(report)
    lines.append("")
    if remark := remark_on_size(pairs - removed):
        lines += [remark, ""]
    if removed:
        lines.append(f"mtcli data clean would remove {_share(removed, pairs)}; its --rejected FILE lists them")
        invalid = next((finding.pairs for finding in report.findings if finding.rule.name == "invalid UTF-8"), 0)
        if invalid:
            lines.append(f"convert the file first: cleaning would lose {counted(invalid, 'pair')} of invalid UTF-8")
    else:
        lines.append("nothing to clean")
    return "\n".join(lines)


def _cell(value: str | int | float | None) -> str:
    return f"{value:,}" if isinstance(value, int | float) else value or "-"


def _finding_lines(finding: Finding, pairs: int) -> list[str]:
    lines = [f"{finding.rule.level}: {finding.rule.name}, {_share(finding.pairs, pairs)}", f"    {finding.rule.advice}"]
    for example in finding.examples:
        sides = [_excerpt(example.src)]
        if example.tgt:
            sides.append(_excerpt(example.tgt))
        lines.append(f"      {example.where}  {'  |  '.join(sides)}")
    return lines


def _removed(report: Report) -> int:
    """Return the number of pairs that `clean` would remove."""
    return int(np.count_nonzero(report.survey.found & REMOVES))


def _share(pairs: int, of: int) -> str:
    """Return `38 pairs (0.02%)`."""
    share = f"{100 * pairs / of:.2f}%" if pairs >= of / 20_000 else "under 0.01%"
    return f"{counted(pairs, 'pair')} ({share})"


def _excerpt(text: str) -> str:
    """Return at most `WIDTH` characters of a text, with invisible characters and invalid bytes as escapes.

    It is the beginning of the text, or a later part around the first match of `ODD`.
    """
    odd = ODD.search(text)
    start = max(0, odd.start() - WIDTH // 2) if odd and odd.end() > WIDTH else 0
    end = start + WIDTH
    before = "…" if start > 0 else ""
    after = "…" if len(text) > end else ""
    shown = before + text[start:end] + after
    escaped = "".join(c if c.isprintable() or "\udc80" <= c <= "\udcff" else repr(c)[1:-1] for c in shown)
    return escaped.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
