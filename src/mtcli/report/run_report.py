"""The report of a run: `report.html`, one page that needs no other file, no network and no script; and the model card.

Both are made from the files of the run folder, at every validation and at the end. The model card (`README.md`) is
Markdown with the YAML header that the Hugging Face Hub reads."""

import json
import logging
import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from html import escape
from pathlib import Path
from string import Template
from textwrap import wrap

from mtcli.config.schema import DataConfig
from mtcli.config.scores import DEFAULT, METRIC_NAMES
from mtcli.config.toml_file import to_toml
from mtcli.corpus.cache.training_sources import DEMO
from mtcli.corpus.variants import SourceLengths
from mtcli.evaluation.remarks import remarks
from mtcli.report.chart import Series, chart, number_table
from mtcli.report.plan import describe_counts, describe_sources
from mtcli.report.robustness import card_section, section
from mtcli.report.run_record import (
    Event,
    RecipeRecord,
    RunRecord,
    ScoreRow,
    direction_table,
    read_run,
    score_rows,
    selection_remark,
)
from mtcli.runtime import files
from mtcli.runtime.page_template import page_template
from mtcli.runtime.progress import clock
from mtcli.runtime.wording import command, counted, to_option
from mtcli.text.writing_systems import unspaced
from mtcli.translate.confidence import Confidence, Reliability

log = logging.getLogger(__name__)


def write_report(folder: Path, device: str, recipe: RecipeRecord | None = None) -> bool:
    """Write `report.html` and `README.md`, and return True. A failure is a warning: it must not end the training.

    Args:
        folder: The run folder.
        device: The device that trains, in words.
        recipe: The recipe that made the run, if one did.
    """
    try:
        record = read_run(folder, device, recipe)
        files.replace_file(folder / "report.html", to_html(record).encode())
        files.replace_file(folder / "README.md", to_card(record).encode())
    except Exception as error:
        log.warning("the report could not be written: %s", error)
        return False
    return True


CARD = """\
---
language:
{languages}
library_name: mtcli
pipeline_tag: translation
# license: to be filled in; it depends on the licence of the training data
---

# {name}: {directions}

A Transformer that translates sentences {directions_in_words}; {status}.

{remark}## Use

```sh
mtcli translate --model . {to}"A sentence."
mtcli eval --model . --bleu --chrf --confidence
```

Translating needs only `model.safetensors` and `tokenizer.json`.

## Scores

{scores}

{confidence}{robust}## Data

{data}
- licence of the data: to be filled in

## Model and training

{training}

{recipe}## Limits

- It translates one sentence at a time and ignores the context.{lengths}
- Expect poor translations of sentences whose topic, style, script or length differs from the training pairs. Some are
  fluent but wrong: have a person check important translations.
- It reproduces the errors and biases of its training pairs, which were not filtered for content.
"""


def to_card(record: RunRecord) -> str:
    """Return the model card of a run."""
    data = record.config.data
    languages = dict.fromkeys(language for direction in data.directions for language in direction)
    targets = data.target_languages
    return CARD.format(
        languages="\n".join(
            f"- {json.dumps(language, ensure_ascii=False)}"
            for language in languages  # YAML reads an unquoted `no` as false
        ),
        directions=_describe_directions(data),
        directions_in_words=", ".join(f"from {src} to {tgt}" for src, tgt in data.directions),
        to="".join(f"{word} " for word in to_option(targets)),
        name=record.name,
        status=record.status,
        remark=f"{record.remark}\n\n" if record.remark else "",
        scores=_card_scores(record),
        confidence=_card_confidence(record.confidence),
        robust=card_section(record.robust),
        data=_card_data(record),
        training=_card_training(record),
        recipe=_card_recipe(record.recipe) if record.recipe else "",
        lengths=f"\n- Length of a source: {_lengths_in_words(record.lengths)}" if record.lengths else "",
    )


def _lengths_in_words(lengths: SourceLengths) -> str:
    """Say how long the sources of the training are, and what happens to longer ones."""

    def described(tokens: int) -> str:
        return f"{tokens:,} tokens (about {round(tokens / lengths.tokens_per_unit):,} {lengths.unit})"

    return (
        f"half of those in training have at most {described(lengths.median)}, and 99% at most "
        f"{described(lengths.usual)}. Expect worse translations of longer sentences. `mtcli translate` divides a text "
        f"into sentences, and a sentence of more than {lengths.longest:,} tokens into parts."
    )


def _card_scores(record: RunRecord) -> str:
    rows = score_rows(record)
    if not rows:
        return "None yet."
    lines = ["| metric | score | how |", "|---|---|---|"]
    for row in rows:
        how = f"{row.measured}; {row.signature}" if row.signature else row.measured
        how = how.replace("|", "\\|")
        lines.append(f"| {row.metric}, {row.split} | {row.figure} | {how} |")
    table = direction_table(record)
    if table:
        lines += ["", *_markdown_table(table)]
    return "\n".join(lines)


def _card_confidence(confidence: Confidence | None) -> str:
    """Return the section about the confidence of translations; empty if there is none."""
    if confidence is None:
        return ""
    rows = [f"| {tenth.confidence:.0f} | {tenth.chrf:.1f} |" for tenth in confidence.tenths]
    lines = ["## Confidence", "", *wrap(_describe(confidence), 120), "", "| confidence | chrF2 |", "|---|---|", *rows]
    return "\n".join([*lines, "", ""])


def _describe(confidence: Confidence) -> str:
    """Return what the confidence is, and what the tenths are."""
    return (
        "Translations have a confidence (`mtcli translate --format json`): the chrF that they are expected to have, "
        f"0 to 100. It is calibrated on {counted(confidence.pairs, 'validation pair')}. In each tenth of them by "
        "confidence, its mean, which does not know their references, and the chrF of the translations:"
    )


def _describe_directions(data: DataConfig) -> str:
    """Return the directions of a run: `es → gn, es → nah`."""
    return ", ".join(map(str, data.directions))


def _markdown_table(table: Sequence[Sequence[str]]) -> list[str]:
    headings, *rows = table
    return [_table_row(headings), "|---" * len(headings) + "|", *map(_table_row, rows)]


def _card_data(record: RunRecord) -> str:
    lines = [f"- `{name}`: {text}" for name, text in describe_sources(record.sources)]
    if not lines:
        lines = [f"- `{source}`" for source in record.config.data.specs] or ["- the built-in demo corpus of mtcli"]
    if record.counts:
        lines.append(f"- {describe_counts(record.counts)}")
    return "\n".join(lines)


def _card_training(record: RunRecord) -> str:
    lines = [f"- {name}: {text}" for name, text in record.plan_rows if name not in ("memory", "disk")]
    lines.append(f"- device: {record.device}")
    lines.append(f"- command: `{record.command}`")
    lines.append(f"- versions: {', '.join(record.versions)}")
    return "\n".join(lines)


def _card_recipe(recipe: RecipeRecord) -> str:
    """Return the section about the recipe that made the run."""
    table = _markdown_table(recipe.table)
    commands = ["```sh", *recipe.commands, "```"]
    parts = (["## Recipe"], [recipe.description], table, ["The commands of its stages:"], commands)
    return "".join("\n".join(lines) + "\n\n" for lines in parts)


def _table_row(cells: Sequence[str]) -> str:
    texts = (cell.replace("|", "\\|") for cell in cells)
    return f"| {' | '.join(texts)} |"


MAX_VALIDATIONS = 8
"""Validations whose translation of a sample is shown."""

MAX_CHARACTERS = 240
"""Characters of a translation that are shown: a model that has not learned to end writes long ones."""

MIN_LOSS_SPAN = 0.05
"""Nats per token."""

MIN_SCORE_SPAN = 2.0
"""Points of BLEU or chrF: smaller differences are mostly noise."""


def to_html(record: RunRecord) -> str:
    """Return the page."""
    config = record.config
    made = [
        ("command", record.command),
        ("device", record.device),
        ("versions", ", ".join(record.versions)),
    ]
    if record.recipe:
        made.append(("recipe", record.recipe.description))
        made += [("stage", text) for text in record.recipe.commands]
    page = Template(page_template("mtcli.report"))
    return page.substitute(
        title=escape(f"{record.name}: {_describe_directions(config.data)}"),
        status=escape(record.status),
        scores=_scores(record),
        confidence=_confidence(record.confidence),
        robust=section(record.folder, record.robust),
        commands=_commands(record),
        charts="".join(_charts(record)),
        samples=_samples(record),
        validations=_validations(record),
        plan=_definitions(record.plan_rows),
        data=_definitions(_data(record)),
        made=_definitions(made),
        config=escape(to_toml(config)),
    )


def _scores(record: RunRecord) -> str:
    """Return the headline score, a remark about it, and a table of the other scores."""
    rows = score_rows(record)
    if not rows:
        return '<p class="soft">No scores yet. The first validation adds them.</p>'
    headline, *others = rows
    parts = [_headline(headline)]
    if record.remark:
        parts.append(f"<p>{escape(record.remark)}</p>")
    is_demo = record.config.data.is_demo
    if record.test is None and record.end is None:
        parts.append('<p class="soft">The test pairs are scored once, at the end.</p>')
    elif record.test is None:
        parts.append(
            '<p class="soft">No test pairs were scored. <code>mtcli eval</code> scores test pairs or files.</p>'
        )
    elif not is_demo:  # high scores on the demo are not suspicious: it is known to be easy
        scores = ((score["name"], score["score"]) for score in record.test["scores"])
        parts += [f"<p>{escape(remark)}.</p>" for remark in remarks(scores, record.test["pairs"])]
    cells = "".join(_score_cells(row) for row in others)
    parts.append(f'<table class="scores">{cells}</table>')
    table = direction_table(record)
    if table:
        parts.append(number_table(table[0], table[1:]))
    parts.append(_not_given(record))
    return "".join(parts)


def _not_given(record: RunRecord) -> str:
    """Return a list of corrections that the run's model does not give, or nothing if there are none."""
    others = record.corrections["others"] if record.corrections else []
    if not others:
        return ""
    items = "".join(
        _sample(other["src"], [("translation", other["hyp"])], "correction", other["ref"]) for other in others
    )
    missing = record.corrections["of"] - record.corrections["given"] if record.corrections else 0
    shown = f", of which {len(others)} are shown" if len(others) < missing else ""
    return f"<details><summary>Corrections that the model does not give: {missing:,}{shown}</summary>{items}</details>"


def _headline(row: ScoreRow) -> str:
    margin = f' <span class="margin">{escape(row.margin)}</span>' if row.margin else ""
    interval = "; ± is half of the 95% bootstrap interval" if row.margin else ""
    return (
        f'<p class="headline"><b>{escape(row.value)}</b>{margin} <span class="metric">{escape(row.metric)}, '
        f'{row.split}</span></p><p class="soft">{escape(row.measured)}{interval}</p>{_signature(row)}'
    )


def _score_cells(row: ScoreRow) -> str:
    return (
        f'<tr><th scope="row">{escape(row.metric)}, {row.split}</th><td class="num">{escape(row.figure)}</td>'
        f"<td>{escape(row.measured)}{_signature(row)}</td></tr>"
    )


def _signature(row: ScoreRow) -> str:
    return f'<p class="signature">{escape(row.signature)}</p>' if row.signature else ""


RELIABILITY_SIDE = 200
"""Width and height of the picture of the confidence."""
RELIABILITY_MARGIN = 34


def _confidence(confidence: Confidence | None) -> str:
    """Return the section about the confidence of translations, with a picture; empty if there is none."""
    if confidence is None:
        return ""
    text = escape(_describe(confidence)).replace(
        "`mtcli translate --format json`", "<code>mtcli translate --format json</code>"
    )
    return (
        '<section aria-labelledby="h-confidence"><h2 id="h-confidence">Confidence</h2>'
        f'<p class="soft">{text}</p>{_reliability(confidence.tenths)}</section>\n'
    )


def _reliability(tenths: Sequence[Reliability]) -> str:
    """Return a picture of each tenth: its confidence to the right, its chrF upwards, and a line where both agree."""
    left = RELIABILITY_MARGIN
    bottom = 8 + RELIABILITY_SIDE

    def x(value: float) -> float:
        return left + RELIABILITY_SIDE * value / 100

    def y(value: float) -> float:
        return bottom - RELIABILITY_SIDE * value / 100

    shapes = []
    for value in (0, 25, 50, 75, 100):
        shapes.append(f'<line class="grid" x1="{x(0)}" x2="{x(100)}" y1="{y(value)}" y2="{y(value)}"/>')
        shapes.append(f'<text x="{left - 6}" y="{y(value) + 4}" text-anchor="end">{value}</text>')
        shapes.append(f'<text x="{x(value)}" y="{bottom + 16}" text-anchor="middle">{value}</text>')
    shapes.append(f'<line class="s1" x1="{x(0)}" y1="{y(0)}" x2="{x(100)}" y2="{y(100)}"/>')
    for tenth in tenths:
        label = f"confidence {tenth.confidence:.1f}, chrF2 {tenth.chrf:.1f}"
        place = f'cx="{x(tenth.confidence):.1f}" cy="{y(tenth.chrf):.1f}"'
        shapes.append(f'<circle class="s0" {place} r="4"><title>{label}</title></circle>')
    summary = ", ".join(f"{tenth.confidence:.0f}: {tenth.chrf:.0f}" for tenth in tenths)
    return (
        f'<figure style="max-width:18rem"><svg viewBox="0 0 {x(100) + 16:.0f} {bottom + 24}" role="img" '
        f'aria-label="{escape(f"chrF2 by confidence: {summary}")}">{"".join(shapes)}</svg>'
        "<figcaption>Upwards: chrF2. To the right: the confidence. Dashed: both agree.</figcaption></figure>"
    )


def _commands(record: RunRecord) -> str:
    if record.best is None and record.end is None:
        return '<p class="soft">Available after the first validation, which writes the first model.</p>'
    sentence = [*to_option(record.config.data.target_languages), '"…"']
    rows = [("translate", command("translate", record.folder, *sentence))]
    if record.counts and record.counts["test"]:
        rows.append(("score on the test pairs", command("eval", record.folder)))
    rows.append(("open in the browser", command("serve", record.folder)))
    rows.append(("look inside", command("explain", record.folder, *sentence)))
    items = (f"<dt>{escape(name)}</dt><dd><code>{escape(text)}</code></dd>" for name, text in rows)
    return f'<dl class="commands">{"".join(items)}</dl>'


def _charts(record: RunRecord) -> Iterator[str]:
    """Yield the charts. BLEU and chrF have one each, or their late changes would be too small to see."""
    last = record.valid[-1] if record.valid else {}
    tokenizer = last.get("tokenize", DEFAULT)
    yield chart(
        "Loss",
        "Negative log-likelihood per target token; training with dropout.",
        [_series("training", record.train, "nll"), _series("validation", record.valid, "loss", marks=True)],
        unit="nats per token",
        min_span=MIN_LOSS_SPAN,
    )
    for key, name in METRIC_NAMES.items():
        note = "Greedy decoding of the validation pairs"
        if key == "bleu":
            note += f", tokenizer {tokenizer}"
        note += selection_remark(key, record.selection_metric)
        yield chart(
            f"Validation {name}",
            f"{note}.",
            [_series(name, record.valid, key, marks=True)],
            unit=f"{name}, 0 to 100",
            min_span=MIN_SCORE_SPAN,
        )
    yield chart(
        "Learning rate",
        "At each step.",
        [_series("learning rate", record.train, "lr")],
        unit="learning rate",
        from_zero=True,
    )
    yield chart(
        "Speed",
        "Target tokens, without the time of validations.",
        [Series("tokens per second", record.speeds)],
        unit="tokens per second",
        from_zero=True,
    )


def _series(name: str, events: Sequence[Event], key: str, *, marks: bool = False) -> Series:
    return Series(name, [(event["step"], event[key]) for event in events], marks)


def _samples(record: RunRecord) -> str:
    if not record.valid:
        return '<p class="soft">No samples yet. The first validation adds them.</p>'
    shown = _evenly_spaced(record.valid)
    parts = [
        '<p class="soft"><mark>Marked</mark>: differs from the reference. <del>Struck out</del>: in the reference, '
        "missing in the translation. ✓: equal to the reference.</p>"
    ]
    for sample in record.valid[-1]["samples"]:
        translations = []
        for event in shown:
            of_event = {each["src"]: each["hyp"] for each in event["samples"]}
            if sample["src"] in of_event:  # another validation may have had other samples
                translations.append((f"step {event['step']:,}", of_event[sample["src"]]))
        parts.append(_sample(sample["src"], translations, "reference", sample["ref"]))
    return "".join(parts)


def _sample(source: str, translations: Sequence[tuple[str, str]], reference_name: str, reference: str) -> str:
    """Return a source, its translations, each with a name, and what they are compared with."""
    rows = "".join(f'<dt>{name}</dt><dd dir="auto">{_translation(text, reference)}</dd>' for name, text in translations)
    return (
        f'<h3 dir="auto">{escape(source)}</h3><dl>{rows}'
        f'<dt class="ref">{reference_name}</dt><dd class="ref" dir="auto">{escape(reference)}</dd></dl>'
    )


def _evenly_spaced(validations: Sequence[Event]) -> list[Event]:
    """Return at most `MAX_VALIDATIONS` of them, evenly spread, the first and the last included."""
    last = len(validations) - 1
    indices = {round(number * last / (MAX_VALIDATIONS - 1)) for number in range(MAX_VALIDATIONS)}
    return [validations[index] for index in sorted(indices)]


def _translation(text: str, reference: str) -> str:
    """Return a translation as HTML, with its differences to the reference marked."""
    if not text:
        return "(nothing)"
    if text == reference:
        return f'{escape(text)} <span class="equal" title="equal to the reference">✓</span>'
    cut = text[:MAX_CHARACTERS]
    marked = differences_marked(cut, reference)
    return marked if cut == text else f"{marked} …"


def differences_marked(text: str, reference: str) -> str:
    """Return a text as HTML, with `<mark>` around what differs from the reference and `<del>` around what is missing.

    Words are compared, or characters in languages that are written without spaces.
    """
    by_character = unspaced([reference])
    separator = "" if by_character else " "
    found = _units(text, by_character=by_character)
    wanted = _units(reference, by_character=by_character)
    parts = []
    for kind, i, j, k, m in SequenceMatcher(None, found, wanted, autojunk=False).get_opcodes():
        if kind == "delete" or kind == "replace":
            parts.append(f"<mark>{escape(separator.join(found[i:j]))}</mark>")
        elif kind == "insert":
            parts.append(f"<del>{escape(separator.join(wanted[k:m]))}</del>")
        else:
            parts.append(escape(separator.join(found[i:j])))
    return separator.join(parts)


def _units(text: str, *, by_character: bool) -> list[str]:
    return list(text) if by_character else re.split(r"\s+", text.strip())


def _validations(record: RunRecord) -> str:
    """Return a table that can be opened, or nothing before the first validation."""
    if not record.valid:
        return ""
    rows = [
        [
            f"{event['step']:,}",
            clock(event["seconds"]),
            f"{event['loss']:.3f}",
            f"{event['bleu']:.1f}",
            f"{event['chrf']:.1f}",
        ]
        for event in record.valid
    ]
    table = number_table(("step", "time", "loss", "BLEU", "chrF"), rows)
    return f"<details><summary>Every validation</summary>{table}</details>"


def _data(record: RunRecord) -> Iterator[tuple[str, str]]:
    data = record.config.data
    if record.counts:
        yield "pairs", describe_counts(record.counts)
    if record.lengths:
        yield "lengths of sources", _lengths_in_words(record.lengths)
    described = [f"{name}: {text}" for name, text in describe_sources(record.sources)]
    for source in described or data.specs or [DEMO]:
        yield "training", source
    for noun, name in (("validation", "valid"), ("test", "test")):
        for spec, _ in data.given_splits(name):
            yield noun, spec
    for name, file in record.inputs.items():
        yield "SHA-256", f"{file['sha256']}  {name}, {file['size']:,} bytes"


def _definitions(rows: Sequence[tuple[str, str]] | Iterator[tuple[str, str]]) -> str:
    items = (f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in rows)
    return f"<dl>{''.join(items)}</dl>"
