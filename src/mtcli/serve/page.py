"""The page of `mtcli serve`: its information about the model, and its Content-Security-Policy."""

import logging
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from json import dumps
from pathlib import Path

from mtcli.documents.formats.registry import MODULES, TABLES
from mtcli.errors import MtcliError
from mtcli.runtime.page_template import page_template
from mtcli.translate.backends.exported import provenance

log = logging.getLogger(__name__)

NUM_EXAMPLES = 3

MAX_EXAMPLE_CHARACTERS = 60

KNOWN_EXAMPLES: dict[tuple[str, str], tuple[str, ...]] = {
    ("en", "es"): ("Hello World", "How are you?", "The old king reads a book."),
}
"""Example sentences by source and target language: those of the documentation."""


@dataclass(frozen=True)
class PageData:
    """The information about the model that the page shows."""

    src: str
    """Code of the source language."""
    targets: tuple[str, ...]
    """Codes of the target languages, one of which the page asks for."""
    name: str = ""
    """The name of the run."""
    score: str = ""
    """The score of the model in words; empty if it is not known."""
    examples: tuple[str, ...] = ()
    """Sentences to try."""
    corrects: bool = False
    """Users may correct translations."""


def page_data(folder: Path, src: str, targets: tuple[str, ...], *, public: bool) -> PageData:
    """Collect what the page shows about a model.

    Args:
        folder: A run, or an exported model.
        src: Code of the source language.
        targets: Codes of the target languages.
        public: Show sentences of the run's test pairs. Anyone who reaches the server sees the page, even if
            translating needs a key.
    """
    examples = KNOWN_EXAMPLES.get((src, targets[0]), ())
    if not examples and public:
        examples = _test_sources(folder, src)
    run = (provenance(folder) or {}).get("run")  # an exported model names the run it was made from
    name = run if isinstance(run, str) else folder.resolve().name
    return PageData(src, targets, name, _score(folder), examples)


def _score(folder: Path) -> str:
    """Return the score of a run as text: on the test pairs if they were scored, otherwise on the validation pairs."""
    if not (folder / "metrics.jsonl").exists() or not (folder / "config.toml").exists():
        return ""
    from mtcli.report.run_record import read_run, score_rows

    try:
        rows = score_rows(read_run(folder, ""))
    except Exception as error:
        log.warning("the page shows no score: %s", error)
        return ""
    if not rows:
        return ""
    best = rows[0]
    return f"{best.metric} {best.figure} ({best.split})"


def _test_sources(folder: Path, src: str) -> tuple[str, ...]:
    """Return the first short sentences in a language of the run's test pairs; a folder may have none."""
    if not (folder / "data" / "test.jsonl").exists():
        return ()
    from mtcli.corpus.held_out import read_directions

    try:
        split = read_directions(folder, "test", empty_ok=True)
    except MtcliError as error:
        log.warning("the page shows no examples: %s", error)
        return ()
    sources = (source for direction, pairs in split.items() if direction.src == src for source, _ in pairs)
    short = (source for source in sources if 0 < len(source.strip()) <= MAX_EXAMPLE_CHARACTERS)
    return tuple(dict.fromkeys(short))[:NUM_EXAMPLES]


def render(models: Sequence[PageData]) -> tuple[str, str]:
    """Return the page for some models, and its Content-Security-Policy.

    The policy allows only the page's own script and style, and requests to this server.
    """
    json = dumps(list(map(asdict, models))).replace("<", "\\u003c")
    suffixes = dumps(sorted(MODULES.keys() - TABLES))
    template = page_template("mtcli.serve")
    html = template.replace("/*SUFFIXES*/null", suffixes, 1).replace("/*MODELS*/null", json, 1)
    policy = (
        f"default-src 'none'; script-src {_hash(html, 'script')}; style-src {_hash(html, 'style')}; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return html, policy


def _hash(html: str, tag: str) -> str:
    """Return the policy's source expression for the content of the page's only element of this name."""
    _, _, rest = html.partition(f"<{tag}>")
    content, _, _ = rest.partition(f"</{tag}>")
    return f"'sha256-{b64encode(sha256(content.encode()).digest()).decode()}'"
