"""The model card of a run: Markdown with the YAML header that the Hugging Face Hub reads."""

import json
from collections.abc import Sequence

from mtcli.report.plan import describe_counts, describe_sources
from mtcli.report.run_record import RecipeRecord, RunRecord, score_rows

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
