"""Numbers out of bounds, and special files in model folders: refused with one line, without hanging."""

import hashlib
import json
import os
import random
import shutil
import socket
from pathlib import Path
from typing import Any

import pytest
from helpers.harness import Job, Result, refused, run

from faults.conftest import Case
from faults.inputs import Count
from mtcli.errors import ModelError
from mtcli.translate.loading import load

SETTINGS = {
    "tokenizer.vocab_size": ["1000000000", "true", '"9"'],
    "model.d_model": ["100000000000000000000", "65538", "-2", "true"],
    "model.num_encoder_layers": ["1000000000", "0x" + "f" * 5000],
    "model.max_positions": ["1e400", "-5"],
    "train.time": ["true", "inf", "nan", "1e300", "9" * 400],
    "train.lr": ["true", "1e31", "nan"],
    "train.seed": ["-1", str(2**63), "1.5"],
    "train.max_steps": ["10000000000"],
    "decode.beam_size": ["1000000"],
    "decode.length_penalty": ["1e300", "inf"],
    "data.valid": ['"a\\u0000b"'],
}

OPTIONS = {
    "translate": [
        ("-b", ["1000000", "0", "1" * 5000]),
        ("--n-best", ["1000000000", "-1"]),
        ("--length-penalty", ["1e300", "inf", "nan", "-0.5"]),
        ("--temperature", ["inf", "nan", "0"]),
        ("--max-length", ["1000000000000"]),
        ("--top-k", ["-1", str(10**30)]),
        ("--seed", [str(2**64)]),
    ],
    "eval": [("-b", ["1000000"]), ("--length-penalty", ["nan"])],
    "average": [("-n", ["0", "1000000000"])],
    "serve": [("--timeout", ["inf", "nan", "1e300"]), ("--port", ["65536"]), ("--max-body", [str(10**18)])],
}


@pytest.fixture(scope="module")
def exported(job: Job, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run, exported to CTranslate2."""
    out = tmp_path_factory.mktemp("exported") / "export"
    done = run("export", job.clean, "-o", out)
    assert done.code == 0, done.err
    return out


def refused_number(done: Result, *words: str) -> None:
    """Assert that a number was refused, by the command line (in a box) or by the configuration (in a line)."""
    assert done.code == 2, done.err
    assert "unexpected" not in done.err
    assert "Traceback" not in done.err
    for word in words:
        assert word in done.err


def test_94_number_out_of_bounds(case: Case, job: Job, tmp_path: Path, count: Count) -> None:
    settings = [(name, value) for name, values in SETTINGS.items() for value in values]
    for name, value in settings[: count(len(settings), 12)]:
        with case.fault():
            done = run(*job.command(tmp_path / "run", "--dry-run", "--set", f"{name}={value}"))
            refused_number(done, name)
            assert len(done.err) < 1000
    options = [(command, name, value) for command, rows in OPTIONS.items() for name, vs in rows for value in vs]
    for command, name, value in options[: count(len(options), 12)]:
        with case.fault():
            refused_number(run(command, "--model" if command != "average" else "-o", job.clean, f"{name}={value}"
                               if name.startswith("--") else name + value), name)  # fmt: skip
    for weight in ("1e308", "inf", "nan", "0", "-1", "10001"):
        with case.fault():
            spec = f"{job.folder / 'train.tsv'}@{weight}"
            done = run("train", "--train", spec, "--tgt", "xx", "--dry-run", cwd=tmp_path)
            refused_number(done, "weight after @")
    with case.fault():
        done = run(
            "tokenizer", "train", job.folder / "train.tsv", "-o", tmp_path / "t.json", "--vocab-size", str(10**9)
        )
        refused_number(done, "--vocab-size")
    assert not list(tmp_path.iterdir())


def fifo(path: Path) -> None:
    os.mkfifo(path)


def listening(path: Path) -> None:
    server = socket.socket(socket.AF_UNIX)
    here = Path.cwd()
    os.chdir(path.parent)  # the path of a socket is limited to about 100 characters
    try:
        server.bind(path.name)
    finally:
        os.chdir(here)
        server.close()


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def pipe_elsewhere(path: Path) -> None:
    os.mkfifo(path.with_name("pipe-elsewhere"))
    path.symlink_to("pipe-elsewhere")


def loop(path: Path) -> None:
    path.symlink_to(path.name)


SPECIAL = (fifo, listening, endless, pipe_elsewhere, loop, Path.mkdir)
"""Functions that put something else in the place of a file."""

TEXT = ("red tree.",)

READERS = {
    "model.safetensors": ["translate", "explain", "eval", "score", "info", "export", "serve", "init"],
    "tokenizer.json": ["translate", "explain", "eval", "score", "export", "serve", "init", "encode"],
    "config.toml": ["info", "train"],
    "metrics.jsonl": ["info", "average", "train"],
    "data/test.jsonl": ["eval"],
    "checkpoints/NEWEST/manifest.json": ["average"],
    "checkpoints/NEWEST/model.safetensors": ["average"],
    "checkpoints/NEWEST/state.json": ["average"],
}
"""For each file of a run, the commands that need it."""

NEVER = {"data/info.json", "data/train.arrow", "data/valid.jsonl", "checkpoints/NEWEST/optimizer.safetensors"}
"""Files that training does not need: it writes them again, or uses the previous checkpoint."""


def commands(folder: Path, job: Job, aside: Path) -> dict[str, list[str | Path]]:
    source = job.folder / "source"
    source.write_text("red tree.\n")
    return {
        "translate": ["translate", "--model", folder, *TEXT],
        "explain": ["explain", "--model", folder, *TEXT],
        "eval": ["eval", "--model", folder],
        "score": ["score", "--model", folder, "--src-file", source, "--tgt-file", source],
        "info": ["info", folder],
        "export": ["export", folder, "-o", aside / "export"],
        "serve": ["serve", "--model", folder, "--port", "0"],
        "average": ["average", folder, "-n", "3", "--best", "-o", aside / "average"],
        "encode": ["tokenizer", "encode", "--model", folder, "-i", source],
        "init": job.command(aside / "new", "--init", str(folder)),
        "train": job.command(folder),
    }


def test_95_no_regular_file(
    case: Case, job: Job, tmp_path: Path, rng: random.Random, count: Count, exported: Path
) -> None:
    newest = max(path.name for path in (job.clean / "checkpoints").iterdir())
    todo = [(name, what, reader) for name, readers in READERS.items() for what in SPECIAL for reader in readers]
    todo += [(name, what, "train") for name in NEVER for what in SPECIAL]
    rng.shuffle(todo)
    for name, what, reader in todo[: count(len(todo), 6)]:
        folder = tmp_path / "run"
        shutil.copytree(job.clean, folder)
        path = folder / name.replace("NEWEST", newest)
        path.unlink()
        what(path)
        with case.fault():
            done = run(*commands(folder, job, tmp_path)[reader])
            assert "unexpected" not in done.err
            allowed = (0, 4, 5) if name in NEVER or reader == "train" else (4,)
            assert done.code in allowed, (name, what, reader, done)
            assert path.name in done.err or folder.name in done.err, (name, what, reader, done)
        for made in tmp_path.iterdir():
            shutil.rmtree(made)
    todo = [(name.name, what) for name in exported.iterdir() if name.name != "parity.json" for what in SPECIAL]
    rng.shuffle(todo)
    for name, what in todo[: count(len(todo), 3)]:
        folder = tmp_path / "export"
        shutil.copytree(exported, folder)
        (folder / name).unlink()
        what(folder / name)
        with case.fault():
            refused(run("translate", "--model", folder, *TEXT), 4, name)
        shutil.rmtree(folder)


OUTSIDE = ("/dev/zero", "../outside", "/etc/passwd", "a/../../outside", "..", ".", "", "link")
"""Names that lead out of a folder. `link` is a link to a file outside."""

WRONG: dict[str, list[Any]] = {
    "max_positions": [-5, 0, 10**30, float("inf"), float("nan"), "9", None, [], True],
    "model.decode.beam_size": [10**30, 0, -1, 1.5, float("inf"), "4", True, None],
    "model.decode.length_penalty": [1e300, float("nan"), -1, "0", {}],
    "model.decode.max_extra": [10**30, 0, float("-inf")],
    "model.longest_src": [-1, 10**30, float("inf"), "many", None],
    "model.src": [5, None, ["en"]],
    "files": [{}, [], None, "all", {"model.bin": 5}],
    "to": [5, None],
    "format": [0, 3, float("inf"), True, "2"],
}
"""Values in `mtcli.json`, by dotted name, with which an exported model must be refused."""


def changed(about: dict[str, Any], name: str, value: Any) -> dict[str, Any]:
    """Return a copy with another value."""
    first, _, rest = name.partition(".")
    return about | {first: changed(about[first], rest, value) if rest else value}


def test_96_hostile_metadata(case: Case, tmp_path: Path, exported: Path) -> None:
    folder = tmp_path / "export"
    shutil.copytree(exported, folder)
    (tmp_path / "outside").write_text("outside")
    (folder / "link").symlink_to("../outside")
    about = json.loads((folder / "mtcli.json").read_bytes())
    load([folder])

    def is_refused(content: str, *words: str) -> None:
        (folder / "mtcli.json").write_text(content)
        with case.fault(), pytest.raises(ModelError) as caught:
            load([folder])
        message = str(caught.value)
        assert all(word in message for word in words), message
        assert len(message) < 1000

    digest = hashlib.sha256(b"outside").hexdigest()
    for name in OUTSIDE:
        is_refused(json.dumps(changed(about, "files", about["files"] | {name: digest})), "export the model again")
    for name in about["files"]:
        less = {other: digest for other, digest in about["files"].items() if other != name}
        is_refused(json.dumps(changed(about, "files", less)), name)
    for name, values in WRONG.items():
        for value in values:
            is_refused(json.dumps(changed(about, name, value)))
    is_refused(json.dumps(changed(about, "max_positions", 0)).replace(": 0,", ": 1e400,"), "max_positions")
    is_refused("[" * 100_000)
    is_refused(" " * (64 * 2**20 + 1))
    (folder / "mtcli.json").write_text(json.dumps(about))
    (folder / "vmap.txt").write_text("")
    with case.fault(), pytest.raises(ModelError, match=r"no checksum of vmap\.txt"):
        load([folder])
