"""Wrong values for every setting, option, request field and metadata field of the schema.

Each command ends in time, with a documented code and no unexpected error, and changes only its own output.
"""

import hashlib
import json
import random
import re
import shutil
from collections.abc import Callable, Iterator
from itertools import count as counted
from pathlib import Path
from typing import Any

import pytest
from helpers.harness import Job, Result, run

from faults import schema
from faults.conftest import Case
from faults.inputs import Count
from faults.test_server import serving, whole
from mtcli.serve.requests import TranslationRequest

CODES = {0, 2, 3, 4, 5, 6}
"""The documented exit codes, except for those of signals and other processes."""

OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}

Command = list[str | Path]
Attempt = Callable[[Path], Command]
"""Return the arguments of `mtcli`, given an empty folder to work in."""

OUTPUTS = {"--out", "--output", "--html", "--rejected"}
"""Options that name files to write. Their values must stay inside the working folder."""

FOUND: list[tuple[tuple[str, ...], str]] = [
    (("tokenizer", "train"), f"--output={schema.CONTROL}"),
    (("eval",), f"--hyp-file={'x' * 100_000}"),
    (("translate",), "--length-penalty=nan"),
    (("serve",), "--host=\ufeff"),
]
"""Options that once ended with an unexpected error."""

SPOILERS: dict[str, tuple[Callable[[Path, random.Random], None], tuple[str, ...]]] = {
    "model.safetensors": (schema.spoil_model, ("translate", "info", "export", "eval", "train-from")),
    "tokenizer.json": (schema.spoil_json, ("translate", "encode", "train")),
    "config.toml": (schema.spoil_toml, ("info", "train")),
    "metrics.jsonl": (schema.spoil_lines, ("info", "average", "train")),
    "data/info.json": (schema.spoil_info, ("train", "plan")),
    "data/test.jsonl": (schema.spoil_lines, ("eval", "export")),
    "checkpoints/NEWEST/state.json": (schema.spoil_json, ("train", "info", "plan")),
    "checkpoints/NEWEST/manifest.json": (schema.spoil_json, ("train", "info", "average")),
}
"""The files of a run with metadata: how to spoil each, and which commands read it."""


@pytest.fixture(scope="module")
def exported(job: Job, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("fuzz") / "export"
    assert run("export", job.clean, "-o", out).code == 0
    return out


def bases(job: Job, model: Path) -> dict[tuple[str, ...], Command]:
    """Return a valid command line for each command that does little work."""
    pairs = job.folder / "train.tsv"
    text = job.folder / "text"
    if not text.exists():
        text.write_text("red tree.\nblue sun.\n")
    return {
        ("train",): job.command(Path("run"), "--dry-run"),
        ("translate",): ["translate", "red tree.", "--model", model, "--max-length", "5"],
        ("eval",): ["eval", "--hyp-file", text, "--ref-file", text, "--model", model],
        ("score",): ["score", "--src-file", text, "--tgt-file", text, "--model", model],
        ("explain",): ["explain", "red tree.", "--model", model],
        ("augment",): ["augment", "--model", model, "-i", text, "-o", "synthetic.tsv", "--force"],
        ("improve",): ["improve", "--train", pairs, "--src", "en", "--tgt", "xx", "--dry-run"],
        ("distill",): ["distill", "--teacher", model, "--train", pairs, "--dry-run"],
        ("average",): ["average", model, "-n", "1", "-o", "average"],
        ("export",): ["export", model, "-o", "export"],
        ("import",): ["import", job.folder / "no-model", "-o", "imported"],
        ("info",): ["info", model],
        ("serve",): ["serve", "--model", "nowhere", "--port", "0"],
        ("tokenizer", "train"): ["tokenizer", "train", text, "-o", "tokenizer.json"],
        ("tokenizer", "encode"): ["tokenizer", "encode", "--model", model, "-i", text],
        ("tokenizer", "decode"): ["tokenizer", "decode", "--model", model, "-i", text],
        ("data", "check"): ["data", "check", pairs, "--tgt", "xx"],
        ("data", "clean"): ["data", "clean", pairs, "--tgt", "xx", "-o", "clean.tsv"],
    }


def of_settings(job: Job, rng: random.Random) -> Iterator[Attempt]:
    """Yield wrong settings on the command line or in a file."""
    cases = [(name, value) for name, values in schema.settings() for value in values]
    rng.shuffle(cases)
    for number, (name, value) in enumerate(cases):
        if number % 4:
            yield lambda _, name=name, value=value: [*job.command(Path("run"), "--dry-run", "--set", f"{name}={value}")]
            continue

        def in_a_file(folder: Path, name: str = name, value: str = value) -> Command:
            section, _, key = name.rpartition(".")
            head = f"[{section}]\n" if section else ""
            (folder / "c.toml").write_text(f"{head}{key} = {value}\n", errors="surrogateescape")
            return ["train", "c.toml", *job.command(Path("run"), "--dry-run")[1:]]

        yield in_a_file


def of_options(job: Job, rng: random.Random) -> Iterator[Attempt]:
    """Yield wrong options and arguments of every command."""
    every = bases(job, job.clean)
    missing = {option.command for option in schema.options()} - every.keys()
    assert not missing
    for command, word in FOUND:
        yield lambda _, command=command, word=word: [*every[command], word]
    cases = []
    for option in schema.options():
        values = [*schema.around(option.low, option.high), *schema.NUMBERS, *schema.TEXTS]
        if option.name in OUTPUTS:
            values = [value for value in values if "/" not in value and value not in ("..", ".", "")]
        cases += [(option, value) for value in values if not option.flag or rng.random() < 0.1]
    rng.shuffle(cases)
    for option, value in cases:
        base = every[option.command]
        if option.name:
            yield lambda _, base=base, option=option, value=value: [*base, f"{option.name}={value}"]
        else:
            yield lambda _, base=base, value=value: [*base, "--", value]


def of_folders(job: Job, exported: Path, rng: random.Random) -> Iterator[Attempt]:
    """Yield commands on a run or an exported model with spoiled metadata."""
    newest = max(path.name for path in (job.clean / "checkpoints").iterdir())
    readers: dict[str, Callable[[Path], Command]] = {
        "translate": lambda folder: ["translate", "red tree.", "--model", folder, "--max-length", "5"],
        "info": lambda folder: ["info", folder],
        "export": lambda folder: ["export", folder, "-o", "out"],
        "eval": lambda folder: ["eval", "--model", folder, "-b", "1"],
        "train-from": lambda folder: job.command(Path("new"), "--init", str(folder), "--dry-run"),
        "encode": lambda folder: ["tokenizer", "encode", "--model", folder, "-i", job.folder / "text"],
        "train": lambda folder: job.command(folder, "--max-steps", "61"),
        "plan": lambda folder: job.command(folder, "--max-steps", "61", "--dry-run"),
        "average": lambda folder: ["average", folder, "-n", "2", "--best", "-o", "out"],
    }
    for number in counted():
        seed = rng.getrandbits(32)
        name = [*SPOILERS, "mtcli.json", "parity.json"][number % (len(SPOILERS) + 2)]

        def spoil(folder: Path, name: str = name, seed: int = seed) -> Command:
            rng = random.Random(seed)
            if name not in SPOILERS:
                shutil.copytree(exported, folder / "export")
                schema.spoil_json(folder / "export" / name, rng)
                return readers[rng.choice(["translate", "info"])](Path("export"))
            shutil.copytree(job.clean, folder / "run")
            path = folder / "run" / name.replace("NEWEST", newest)
            spoiler, commands = SPOILERS[name]
            spoiler(path, rng)
            if path.name == "state.json":
                seal(path.parent)
            return readers[rng.choice(commands)](Path("run"))

        yield spoil


def seal(checkpoint: Path) -> None:
    """Make a checkpoint's manifest agree with its files."""
    manifest = json.loads((checkpoint / "manifest.json").read_bytes())
    for name, facts in manifest.items():
        content = (checkpoint / name).read_bytes()
        facts.update(size=len(content), sha256=hashlib.sha256(content).hexdigest())
    (checkpoint / "manifest.json").write_text(json.dumps(manifest))


def state(folder: Path) -> dict[str, tuple[int, int]]:
    """Return the size and the modification time of every file."""
    found = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != ".lock")
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in found}


def ends_well(done: Result) -> None:
    """Assert that a command succeeded, or failed with a short message."""
    details = f"{done.code}: {done.err[-1000:]!r}"
    assert done.code in CODES, details
    assert not re.search(r"Traceback|panicked|\bunexpected [A-Z]\w+:|\x1b", done.err), details
    assert len(done.err) < 20_000 or done.err.startswith("Usage: "), details  # Typer repeats an unknown value
    assert done.err.strip() or not done.code


def test_97_schema_fuzz(case: Case, job: Job, exported: Path, tmp_path: Path, rng: random.Random, count: Count) -> None:
    n = count(800, 14)
    kinds = [of_settings(job, rng), of_options(job, rng), of_folders(job, exported, rng)]
    bases(job, job.clean)  # writes the text that is read
    before = state(job.folder)
    wrong = []
    outside = tmp_path / "outside"
    outside.mkdir()
    for number in range(n):
        attempt = next(kinds[rng.choices(range(3), (3, 4, 3))[0]], None)
        if attempt is None:
            continue
        folder = outside / str(number)
        folder.mkdir()
        line = attempt(folder)
        try:
            with case.fault():
                ends_well(run(*line, cwd=folder, env=OFFLINE))
                assert state(job.folder) == before
                assert [path.name for path in outside.iterdir()] == [folder.name]
        except (AssertionError, pytest.fail.Exception) as error:
            wrong.append(f"{[str(word)[:200] for word in line]!r}: {str(error)[-2000:]}")
        shutil.rmtree(folder)
    assert not wrong, "\n\n".join(wrong)


def test_97_schema_fuzz_requests(case: Case, tmp_path: Path, rng: random.Random, count: Count) -> None:
    values = [*schema.JSON, *schema.TEXTS, *range(-1, 12)]
    asks: list[Any] = [{"q": "red", field: value} for field in TranslationRequest.model_fields for value in values]
    asks += values
    rng.shuffle(asks)
    with serving(tmp_path) as site:
        for ask in asks[: count(150, 4)]:
            body = schema.dumped(ask)
            with case.fault():
                status, answer = site.send(whole(body)())
                assert status in (200, 400, 413, 415), (status, body[:200], answer[-500:])
