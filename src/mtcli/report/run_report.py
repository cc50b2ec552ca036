"""Write the report of a run: `report.html`, a self-contained page (see `run_page`), and `README.md`, the model card.

Both are made from the files of the run folder, at every validation and at the end. The model card is Markdown with the
YAML header that the Hugging Face Hub reads.
"""

import json
import logging
from collections.abc import Sequence
from pathlib import Path

from mtcli.report.plan import describe_counts, describe_sources
from mtcli.report.run_page import to_html
from mtcli.report.run_record import RecipeRecord, RunRecord, read_run, score_rows
from mtcli.runtime import files

log = logging.getLogger(__name__)


def write_report(folder: Path, device: str, recipe: RecipeRecord | None = None) -> None:
    """Write `report.html` and `README.md`. A failure is a warning: it must not end the training.

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


CARD = """\
---
language:
- {src_quoted}
- {tgt_quoted}
library_name: mtcli
pipeline_tag: translation
# license: to be filled in; it depends on the licence of the training data
---

# {name}: {src} → {tgt}

A Transformer that translates sentences from {src} to {tgt}; {status}.

{remark}## Use

```sh
mtcli translate --model . "A sentence."
mtcli eval --model . --bleu --chrf --confidence
```

Translating needs only `model.safetensors` and `tokenizer.json`.

## Scores

{scores}

## Data

{data}
- licence of the data: to be filled in

## Model and training

{training}

{recipe}## Limits

- It translates one sentence at a time and ignores the context.
- Expect poor translations of sentences whose topic, style, script or length differs from the training pairs. Some are
  fluent but wrong: have a person check important translations.
- It reproduces the errors and biases of its training pairs, which were not filtered for content.
"""


def to_card(record: RunRecord) -> str:
    """Return the model card of a run."""
    data = record.config.data
    return CARD.format(
        src=data.src,
        tgt=data.tgt,
        src_quoted=json.dumps(data.src, ensure_ascii=False),  # YAML reads an unquoted `no` as false
        tgt_quoted=json.dumps(data.tgt, ensure_ascii=False),
        name=record.name,
        status=record.status,
        remark=f"{record.remark}\n\n" if record.remark else "",
        scores=_scores(record),
        data=_data(record),
        training=_training(record),
        recipe=_recipe(record.recipe) if record.recipe else "",
    )


def _scores(record: RunRecord) -> str:
    rows = score_rows(record)
    if not rows:
        return "None yet."
    lines = ["| metric | score | how |", "|---|---|---|"]
    for row in rows:
        value = f"{row.value} {row.margin}".strip()
        how = f"{row.measured}; {row.signature}" if row.signature else row.measured
        how = how.replace("|", "\\|")
        lines.append(f"| {row.metric}, {row.split} | {value} | {how} |")
    return "\n".join(lines)


def _data(record: RunRecord) -> str:
    lines = [f"- `{name}`: {text}" for name, text in describe_sources(record.sources)]
    if not lines:
        lines = [f"- `{source}`" for source in record.config.data.train] or ["- the built-in demo corpus of mtcli"]
    if record.counts:
        lines.append(f"- {describe_counts(record.counts)}")
    return "\n".join(lines)


def _training(record: RunRecord) -> str:
    rows = record.plan.rows(record.config) if record.plan else []
    lines = [f"- {name}: {text}" for name, text in rows if name not in ("memory", "disk")]
    lines.append(f"- device: {record.device}")
    lines.append(f"- command: `{record.command}`")
    lines.append(f"- versions: {', '.join(record.versions)}")
    return "\n".join(lines)


def _recipe(recipe: RecipeRecord) -> str:
    """Return the section about the recipe that made the run."""
    headings, *rows = recipe.table
    table = [_table_row(headings), "|---" * len(headings) + "|", *map(_table_row, rows)]
    commands = ["```sh", *recipe.commands, "```"]
    parts = (["## Recipe"], [recipe.description], table, ["The commands of its stages:"], commands)
    return "".join("\n".join(lines) + "\n\n" for lines in parts)


def _table_row(cells: Sequence[str]) -> str:
    texts = (cell.replace("|", "\\|") for cell in cells)
    return f"| {' | '.join(texts)} |"
