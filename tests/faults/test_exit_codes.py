"""A fault has the same exit code in every command. The table of codes is in docs/robustness.md."""

import gzip
import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from helpers.harness import Job, run

from faults.conftest import Case
from faults.inputs import LOG, PAIRS, TSV, Count, is_one_line, write

Words = tuple[str | Path, ...]
Fails = Callable[..., None]
Fault = Callable[[Path], Path]

LANGUAGES = ("--src", "en", "--tgt", "de")

TEXT: dict[str, Callable[[Path, Path], Words]] = {
    "translate": lambda model, bad: ("translate", "--model", model, "-i", bad),
    "eval-src": lambda model, bad: ("eval", "--model", model, "--src-file", bad, "--ref-file", "good"),
    "eval-ref": lambda model, bad: ("eval", "--model", model, "--src-file", "good", "--ref-file", bad),
    "eval-hyp": lambda _, bad: ("eval", "--hyp-file", bad, "--ref-file", "good"),
    "score-src": lambda model, bad: ("score", "--model", model, "--src-file", bad, "--tgt-file", "good"),
    "score-tgt": lambda model, bad: ("score", "--model", model, "--src-file", "good", "--tgt-file", bad),
    "tokenizer-train": lambda _, bad: ("tokenizer", "train", "good", bad, "-o", "tokenizer.json"),
    "tokenizer-encode": lambda model, bad: ("tokenizer", "encode", "--model", model, "-i", bad),
    "tokenizer-decode": lambda model, bad: ("tokenizer", "decode", "--model", model, "-i", bad),
}
"""Commands that read text, each with one bad file."""

PAIRED: dict[str, Callable[[Path, Path], Words]] = {
    "train": lambda _, bad: ("train", "--train", bad, *LANGUAGES, "--out", "run", "--max-steps", "1"),
    "train-valid": lambda _, bad: ("train", "--train", "good.tsv", "--valid", bad, *LANGUAGES, "--out", "run"),
    "train-dry": lambda _, bad: ("train", "--train", bad, *LANGUAGES, "--out", "run", "--dry-run"),
    "check": lambda _, bad: ("data", "check", bad, *LANGUAGES),
    "check-test": lambda _, bad: ("data", "check", "good.tsv", "--test", bad, *LANGUAGES),
    "clean": lambda _, bad: ("data", "clean", bad, "-o", "clean.tsv", *LANGUAGES),
}

MODEL: dict[str, Callable[[Path], Words]] = {
    "translate": lambda bad: ("translate", "--model", bad, "red tree."),
    "eval": lambda bad: ("eval", "--model", bad),
    "score": lambda bad: ("score", "--model", bad, "--src-file", "good", "--tgt-file", "good"),
    "explain": lambda bad: ("explain", "--model", bad, "red tree."),
    "export": lambda bad: ("export", bad, "--to", "huggingface", "-o", "exported"),
    "average": lambda bad: ("average", bad, "-o", "averaged"),
    "info": lambda bad: ("info", bad),
    "serve": lambda bad: ("serve", "--model", bad, "--port", "0"),
    "train-init": lambda bad: ("train", "--train", "good.tsv", *LANGUAGES, "--init", bad, "--out", "run"),
    "tokenizer-encode": lambda bad: ("tokenizer", "encode", "--model", bad, "-i", "good"),
    "check": lambda bad: ("data", "check", "good.tsv", *LANGUAGES, "--model", bad),
}


def missing(path: Path) -> Path:
    return path


def too_long(path: Path) -> Path:
    return path.with_name(f"{path.stem}{'x' * 300}{path.suffix}")


def in_a_file(path: Path) -> Path:
    path.write_text("no folder")
    return path / path.name


def folder(path: Path) -> Path:
    path.mkdir()
    return path


def unreadable(path: Path) -> Path:
    path.symlink_to("/proc/self/mem")  # not readable, even for root
    return path


def loop(path: Path) -> Path:
    path.symlink_to(path.name)
    return path


def invalid(path: Path) -> Path:
    path.write_bytes(b"1\t1\n\xff\t2\n")
    return path


def with_nul(path: Path) -> Path:
    path.write_bytes(b"1\t1\n\0\t2\n")
    return path


def utf16(path: Path) -> Path:
    path.write_bytes("1\t1\n2\t2\n".encode("utf-16"))
    return path


def cut_short(path: Path) -> Path:
    path = path.with_name(f"{path.name}.gz")
    path.write_bytes(gzip.compress(b"1\t1\n" * 1000)[:-10])
    return path


def file(path: Path) -> Path:
    path.write_text("no folder")
    return path


def damaged(path: Path) -> Path:
    path.mkdir()
    for name in ("model.safetensors", "tokenizer.json", "config.toml", "metrics.jsonl"):
        (path / name).write_bytes(b"\xff\0")
    return path


@pytest.fixture
def fails(case: Case, tmp_path: Path) -> Fails:
    """Assert that a command fails with a code and one line that names the bad input, and writes nothing."""
    (tmp_path / "good").write_text("1\n2\n")
    shutil.copy(write(tmp_path / "pairs", TSV, PAIRS), tmp_path / "good.tsv")

    def fails(words: Words, code: int, **options: Any) -> None:
        before = {path.name for path in tmp_path.iterdir()}
        with case.fault():
            done = run(*words, cwd=tmp_path, **options)
            assert done.code == code, (words, done.err)
            is_one_line("".join(line for line in done.err.splitlines(True) if not line.startswith(LOG)), "bad")
            assert {path.name for path in tmp_path.iterdir()} - {"run"} == before - {"run"}

    return fails


def chosen(commands: list[str], faults: list[Fault], count: Count) -> set[tuple[str, Fault]]:
    """Return all combinations, or in the default suite a few in which every command and every fault occurs."""
    every = {(command, fault) for command in commands for fault in faults}
    longer = max(len(commands), len(faults))
    few = {(commands[i % len(commands)], faults[i % len(faults)]) for i in range(longer)}
    return every if count(1, 0) else few


def test_85_unreadable_text(case: Case, job: Job, tmp_path: Path, count: Count, fails: Fails) -> None:
    faults = [missing, folder, unreadable, loop, too_long, in_a_file, invalid, with_nul, utf16, cut_short]
    for number, (command, fault) in enumerate(chosen(list(TEXT), faults, count)):
        fails(TEXT[command](job.clean, fault(tmp_path / f"bad{number}")), 3)


def test_85_unreadable_pairs(case: Case, job: Job, tmp_path: Path, count: Count, fails: Fails) -> None:
    for name in PAIRED:
        if name.startswith("train"):
            fails(PAIRED[name](job.clean, invalid(tmp_path / f"bad-{name}.tsv")), 3)
    for name in PAIRED:
        fails(PAIRED[name](job.clean, too_long(tmp_path / "bad.tsv")), 3)
    faults = [missing, folder, unreadable, loop, in_a_file, utf16, cut_short]
    for number, (command, fault) in enumerate(chosen(list(PAIRED), faults, count)):
        fails(PAIRED[command](job.clean, fault(tmp_path / f"bad{number}.tsv")), 3)


def test_85_unreadable_model(case: Case, tmp_path: Path, count: Count, fails: Fails) -> None:
    for name in MODEL:
        fails(MODEL[name](too_long(tmp_path / "bad")), 4)
    faults = [missing, file, folder, loop, in_a_file, damaged]
    for number, (command, fault) in enumerate(chosen(list(MODEL), faults, count)):
        fails(MODEL[command](fault(tmp_path / f"bad{number}")), 4)


def test_85_model_without_permission(case: Case, tmp_path: Path, fails: Fails) -> None:
    nobody = 65534
    within = [partial(os.setuid, nobody)] if os.geteuid() == 0 else []  # root may read everything
    tmp_path.chmod(0o755)
    (tmp_path / "bad").mkdir(mode=0)
    for name in MODEL:
        fails(MODEL[name](Path("bad")), 4, within=within)
    for name in MODEL:
        fails(MODEL[name](Path("bad/model")), 4, within=within)


def test_85_unreadable_configuration(case: Case, tmp_path: Path, count: Count, fails: Fails) -> None:
    def endless(path: Path) -> Path:
        path.symlink_to("/dev/zero")
        return path

    for fault in (endless, missing, folder, unreadable, loop, invalid, utf16)[: count(7, 3)]:
        fails(("train", fault(tmp_path / f"bad-{fault.__name__}.toml"), "--out", "run"), 2)
