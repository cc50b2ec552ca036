"""What became of a run: `report.html`, a page that needs nothing else, and `README.md`, the model card.

Both are made from what the run folder already holds, at every validation and at the end.
"""

import json
import logging
import platform
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib import resources
from importlib.metadata import version
from pathlib import Path
from string import Template
from typing import Any

from mtcli.config.schema import Config, load, to_toml
from mtcli.config.writing_systems import DEFAULT, METRIC_NAMES
from mtcli.data.info import read_data_info
from mtcli.report.chart import Series, chart
from mtcli.report.plan import Plan, counted
from mtcli.runtime import files
from mtcli.runtime.progress import Pace, clock
from mtcli.storage.run_folder import Metrics, best_of, metric_of

log = logging.getLogger(__name__)

Event = dict[str, Any]

LIBRARIES = ("mtcli", "torch", "tokenizers", "datasets", "sacrebleu", "safetensors", "numpy", "pyarrow")
SHOWN, LONGEST = 8, 240
"""Moments at which a sample is shown, and how many characters of it."""


def write_report(run: Path, device: str) -> None:
    """Write both files anew; whatever keeps them from being written is a warning, for the run matters more.

    Args:
        run: The run folder.
        device: What it is trained on, in words.
    """
    try:
        facts = read(run, device)
        files.replace_file(run / "report.html", to_html(facts).encode())
        files.replace_file(run / "README.md", to_card(facts).encode())
    except Exception as error:
        log.warning("the report could not be written: %s", error)


@dataclass(frozen=True)
class Facts:
    """All that there is to tell of a run."""

    name: str
    config: Config
    counts: dict[str, Any] | None
    inputs: dict[str, Any]
    """Size and SHA-256 of every file the pairs came from, by name."""
    plan: Plan | None
    train: list[Event]
    valid: list[Event]
    best: Event | None
    """The validation of the run's model."""
    test: Event | None
    end: Event | None
    speeds: list[tuple[float, float]]
    """(step, target pieces a second)."""
    device: str
    command: str
    versions: list[str]


def read(run: Path, device: str) -> Facts:
    """Gather what a run folder holds.

    Raises:
        OSError, LookupError, ValueError, TypeError, ModelError: It is not one, or it is damaged.
    """
    events, _ = Metrics(run).read()

    def last(kind: str) -> Event | None:
        return next((event for event in reversed(events) if event["event"] == kind), None)

    def of(kind: str) -> list[Event]:
        return [event for event in events if event["event"] == kind]

    info = run / "data" / "info.json"
    plan, end = last("plan"), last("end")
    ended = end is events[-1]  # or the run was given more time since
    test, steps = last("test"), end and (end["averaged"] or [end["best_step"]])
    return Facts(
        name=run.resolve().name,
        config=load(run / "config.toml"),
        counts=last("data"),
        inputs=read_data_info(info)["inputs"] if info.exists() else {},
        plan=Plan(**{k: v for k, v in plan.items() if k in Plan.__dataclass_fields__}) if plan else None,
        train=of("train"),
        valid=of("valid"),
        best=best_of(events),
        test=test if ended and test and test["steps"] == steps else None,
        end=end if ended else None,
        speeds=speeds(events),
        device=device,
        command=shlex.join(["mtcli", *sys.argv[1:]]),
        versions=[f"{name} {version(name)}" for name in LIBRARIES]
        + [f"Python {platform.python_version()}", platform.platform()],
    )


def speeds(events: Sequence[Event]) -> list[tuple[float, float]]:
    """The step and the pace of each line of `metrics.jsonl` that shows one."""
    pace = Pace()
    return [(float(event["step"]), speed) for event in events if (speed := pace.after(event)) is not None]


def standing(facts: Facts) -> str:
    """How far it has come, in a sentence."""
    last = facts.end or next(reversed(facts.valid or facts.train), None)
    if last is None:
        return "training has begun"
    at = f"step {last['step']:,} after {clock(last['seconds'])}"
    return f"finished at {at} ({last['reason']})" if facts.end else f"in training: {at}"


def scores(facts: Facts) -> list[tuple[str, str, str]]:
    """(What, score, how it was measured) of each score there is."""
    rows = []
    if facts.test:
        for score in facts.test["scores"]:
            mean = score["confidence"]
            text = f"{score['score']:.1f}" + (f" ± {mean[1]:.1f}" if mean else "")
            how = f"{facts.test['pairs']:,} test pairs, beam {facts.test['beam_size']}"
            rows.append((f"{score['name']}, test", text, f"{how}; {score['signature']}"))
    if best := facts.best:
        what = f"mean of {len(best['steps'])} checkpoints" if "steps" in best else f"step {best['step']:,}"
        for key, name in METRIC_NAMES.items():
            how = f"validation pairs, greedy, {what}"
            if key == "bleu":
                how += f"; tokenizer {best.get('tokenize', DEFAULT)}"
            if key == metric_of(best):
                how += "; selects the best model"
            rows.append((f"{name}, validation", f"{best[key]:.1f}", how))
        rows.append(("loss, validation", f"{best['loss']:.3f}", f"validation pairs, nats a target piece, {what}"))
    return rows


def to_html(facts: Facts) -> str:
    """The page."""
    config = facts.config
    title = f"{facts.name}: {config.data.src} → {config.data.tgt}"
    rows = facts.plan.rows(config) if facts.plan else []
    data = [("pairs", counted(facts.counts))] if facts.counts else []
    data += [("training", text) for text in config.data.train or ["the built-in demo"]]
    data += [(name, text) for name, text in (("validation", config.data.valid), ("test", config.data.test)) if text]
    data += [("SHA-256", f"{fact['sha256']}  {name}, {fact['size']:,} bytes") for name, fact in facts.inputs.items()]
    made = [("command", facts.command), ("device", facts.device), ("versions", ", ".join(facts.versions))]
    page = Template((resources.files("mtcli") / "report" / "page.html").read_text(encoding="utf-8"))
    return page.substitute(
        title=escape(title),
        standing=escape(standing(facts)),
        scores=_scores(facts),
        charts=_charts(facts),
        samples=_samples(facts),
        validations=_validations(facts),
        plan=_list(rows),
        data=_list(data),
        made=_list(made),
        config=escape(to_toml(config)),
    )


def _scores(facts: Facts) -> str:
    if not (rows := scores(facts)):
        return '<p class="soft">None yet: the first comes with the first validation.</p>'
    told = "" if facts.test else '<p class="soft">The test pairs are scored once, at the end.</p>'
    if facts.end and not facts.test:
        told = '<p class="soft">No test pairs were scored; <code>mtcli eval</code> scores any.</p>'
    cells = (
        f'<tr><th scope="row">{escape(name)}</th><td class="num">{escape(value)}</td><td>{escape(how)}</td></tr>'
        for name, value, how in rows
    )
    interval = '<p class="soft">±: half of the 95% interval, by bootstrap.</p>' if facts.test else ""
    return f"{told}<table class=scores>{''.join(cells)}</table>{interval}"


def _charts(facts: Facts) -> str:
    train, valid = facts.train, facts.valid
    last = valid[-1] if valid else {}
    tokenizer, selecting = last.get("tokenize", DEFAULT), METRIC_NAMES[metric_of(last)]

    def line(name: str, events: list[Event], key: str, marks: bool = False) -> Series:
        return Series(name, [(event["step"], event[key]) for event in events], marks)

    return "".join(
        chart(title, note, drawn, from_zero=zero)
        for title, note, drawn, zero in (
            (
                "Loss",
                "Negative log-likelihood, nats a target piece; training with dropout.",
                [line("training", train, "nll"), line("validation", valid, "loss", True)],
                False,
            ),
            (
                "Validation scores",
                f"BLEU (tokenizer {tokenizer}) and chrF, greedy, 0 to 100; {selecting} selects the best model.",
                [line("BLEU", valid, "bleu", True), line("chrF", valid, "chrf", True)],
                True,
            ),
            ("Learning rate", "As taken by the step.", [line("rate", train, "lr")], True),
            (
                "Speed",
                "Target pieces, all else but validation included.",
                [Series("pieces a second", facts.speeds)],
                True,
            ),
        )
    )


def _samples(facts: Facts) -> str:
    moments = facts.valid
    if not moments:
        return '<p class="soft">None yet.</p>'
    last = len(moments) - 1
    shown = [moments[i] for i in sorted({round(i * last / max(1, SHOWN - 1)) for i in range(SHOWN)})]
    parts = []
    for n, sample in enumerate(moments[-1]["samples"]):
        steps = "".join(
            f'<dt>step {moment["step"]:,}</dt><dd dir="auto">{escape(_cut(moment["samples"][n]["hyp"]))}</dd>'
            for moment in shown
        )
        parts.append(
            f'<h3 dir="auto">{escape(sample["src"])}</h3><dl>{steps}'
            f'<dt class="ref">reference</dt><dd class="ref" dir="auto">{escape(sample["ref"])}</dd></dl>'
        )
    return "".join(parts)


def _cut(text: str) -> str:
    """What a model writes before it has learnt to end is cut; nothing is said to be so."""
    return (text if len(text) <= LONGEST else text[:LONGEST] + " …") or "(nothing)"


def _validations(facts: Facts) -> str:
    head = "".join(f"<th scope=col>{name}</th>" for name in ("step", "time", "loss", "BLEU", "chrF"))
    rows = "".join(
        f"<tr><th scope=row>{e['step']:,}</th><td>{clock(e['seconds'])}</td><td>{e['loss']:.3f}</td>"
        f"<td>{e['bleu']:.1f}</td><td>{e['chrf']:.1f}</td></tr>"
        for e in facts.valid
    )
    return f"<table class=num><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _list(rows: Sequence[tuple[str, str]]) -> str:
    return "<dl>" + "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in rows) + "</dl>"


def to_card(facts: Facts) -> str:
    """The model card, Markdown with the head that the Hugging Face Hub reads."""
    config, data = facts.config, facts.config.data
    found = [f"| {name} | {value} | {how.replace('|', chr(92) + '|')} |" for name, value, how in scores(facts)]
    table = ["| metric | score | how |", "|---|---|---|", *found] if found else ["None yet."]
    rows = facts.plan.rows(config) if facts.plan else []
    plan = [f"- {name}: {text}" for name, text in rows if name not in ("memory", "disk")]
    sources = [f"- `{name}`" for name in data.train] or ["- the built-in demo corpus of mtcli"]
    pairs = [f"- {counted(facts.counts)}"] if facts.counts else []
    return "\n".join(
        [
            "---",
            "language:",
            f"- {json.dumps(data.src, ensure_ascii=False)}",  # quoted: a bare `no` would be false
            f"- {json.dumps(data.tgt, ensure_ascii=False)}",
            "library_name: mtcli",
            "pipeline_tag: translation",
            "# license: to be filled in; it depends on the licence of the training data",
            "---",
            "",
            f"# {facts.name}: {data.src} → {data.tgt}",
            "",
            f"A Transformer that translates sentences from {data.src} to {data.tgt}; {standing(facts)}.",
            "",
            "## Use",
            "",
            "```sh",
            'mtcli translate --model . "A sentence."',
            "mtcli eval --model . --bleu --chrf --confidence",
            "```",
            "",
            "`model.safetensors` and `tokenizer.json` are all that translating needs.",
            "",
            "## Scores",
            "",
            *table,
            "",
            "## Data",
            "",
            *sources,
            *pairs,
            "- licence of the data: to be filled in",
            "",
            "## Shape and training",
            "",
            *plan,
            f"- device: {facts.device}",
            f"- command: `{facts.command}`",
            f"- versions: {', '.join(facts.versions)}",
            "",
            "## Limits",
            "",
            "- It reads one sentence at a time, and knows nothing of what stands around it.",
            "- What is unlike its training pairs in topic, style, script or length it translates poorly, and fluently",
            "  wrong at times: have a person check what matters.",
            "- It repeats what its training pairs hold, errors and prejudices among it; nothing was filtered out.",
            "",
        ]
    )
