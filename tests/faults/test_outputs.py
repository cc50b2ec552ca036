"""Inputs and outputs of commands: endless lines, outputs that would overwrite an input, interrupted outputs."""

import gzip
import os
import random
import resource
import shutil
import signal
from collections.abc import Callable
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from helpers.harness import Job, Result, limit, run, start, until

from faults.conftest import Case
from faults.inputs import FOLDER, JSONL, LOG, PAIRS, PREFIX, TSV, TWO, Count, failed, is_one_line, train, write
from mtcli.runtime import signals
from mtcli.text.lines import LINE_BYTES, read_lines

MIB = 2**20
NEWLINE = "\n"


def packed(path: Path, mebibytes: int, *, first: bytes = b"") -> Path:
    """Write a `.gz` file with a first line and a second line of this many MiB."""
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(first)
        file.writelines(repeat(b"tree " * (MIB // 5), mebibytes))
    return path


def test_80_line_without_end(case: Case, job: Job, tmp_path: Path) -> None:
    text = packed(tmp_path / "text.gz", 17, first=b"red tree.\n")
    pairs = packed(tmp_path / "pairs.tsv.gz", 17, first=b"red tree.\tder eert.\n")
    plain = tmp_path / "plain"
    plain.write_bytes(gzip.decompress(text.read_bytes()))
    model = ("--model", job.clean)
    commands: list[Callable[[], Result]] = [
        lambda: run("translate", *model, "-i", text, "-o", tmp_path / "out"),
        lambda: run("tokenizer", "train", text, "-o", tmp_path / "out"),
        lambda: run("eval", "--hyp-file", text, "--ref-file", text),
        lambda: run("score", *model, "--src-file", text, "--tgt-file", text),
        lambda: run("data", "check", pairs),
        lambda: run("data", "clean", pairs, "-o", tmp_path / "out.tsv"),
        lambda: train(str(pairs), tmp_path / "run"),
    ]
    for command in commands:
        with case.fault():
            failed(command(), 3, ".gz:2: longer than 16 MiB")
    for command in (("translate", *model), ("tokenizer", "encode", *model)):
        with case.fault():
            done = run(*command, stdin=plain)
            assert (done.code, done.last.partition(";")[0]) == (
                3,
                "mtcli: standard input:2: longer than 16 MiB, the limit",
            )


def test_80_the_longest_line_that_is_read(tmp_path: Path) -> None:
    for end in (b"\n", b"\n.\n", b""):
        (tmp_path / "text").write_bytes(b"x" * LINE_BYTES + end)
        assert len(next(read_lines(tmp_path / "text"))) == LINE_BYTES
    assert len(next(read_lines([b"x" * LINE_BYTES + b"\n"]))) == LINE_BYTES


def test_80_no_more_of_a_file_is_read_than_its_line_may_have() -> None:
    asked = list[int]()

    class Endless:
        def readline(self, size: int) -> bytes:
            asked.append(size)
            return b"x" * size

    with pytest.raises(Exception, match="longer than 16 MiB"):
        next(read_lines(Endless()))  # type: ignore[arg-type]
    assert asked == [LINE_BYTES + 1]


def links(file: Path) -> dict[str, Path]:
    """Return other names of a file."""
    names = {kind: file.with_name(f"{kind}-{file.name}") for kind in ("symbolic", "hard")}
    names["symbolic"].symlink_to(file.name)
    names["hard"].hardlink_to(file)
    return {**names, "dotted": file.parent / ".." / file.parent.name / file.name}


def keeps(case: Case, file: Path, *arguments: str | Path, code: int = 2, **options: Any) -> None:
    """Assert that a command refuses to write to a file and leaves it unchanged."""
    before = file.read_bytes()
    with case.fault():
        done = run(*arguments, **options)
        assert (done.code, file.read_bytes()) == (code, before), (arguments, done.err)
        is_one_line("".join(line for line in done.err.splitlines(True) if not line.startswith(LOG)))
        assert not [path for path in file.parent.iterdir() if ".partial" in path.name or path.name.startswith(".mtcli")]


def test_81_output_is_input(case: Case, job: Job, tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("red tree.\n")
    model = ("--model", job.clean)
    for name in (text, *links(text).values()):
        keeps(case, text, "translate", *model, "-i", text, "-o", name)
        keeps(case, text, "translate", *model, "-o", name, stdin=text)
        keeps(case, text, "tokenizer", "train", text, "-o", name, "--force")
    for command in (
        ("translate", *model, "-i", text),
        ("tokenizer", "encode", *model, "-i", text),
        ("tokenizer", "decode", *model, "-i", text),
        ("eval", "--hyp-file", text, "--ref-file", text),
        ("score", *model, "--src-file", text, "--tgt-file", text),
    ):
        keeps(case, text, *command, stdout=text)
    keeps(case, text, "translate", *model, stdin=text, stdout=text)


def test_81_output_is_one_of_the_pairs(case: Case, tmp_path: Path, count: Count) -> None:
    forms = {form: write(tmp_path / form, form, PAIRS) for form in (PREFIX, JSONL, TWO, TSV, FOLDER)}
    for form, spec in [*forms.items()][: count(5, 2)]:
        folder = tmp_path / form
        file = next(folder.iterdir())
        packed = folder / f"link.{'jsonl' if form == JSONL else 'tsv'}"
        packed.symlink_to(file.name)
        place = spec if form == PREFIX else packed
        keeps(case, file, "data", "clean", spec, "--tgt", "de", "-o", place, "--force")
        keeps(case, file, "data", "clean", spec, "--tgt", "de", "-o", tmp_path / "o.tsv", "--rejected", file, "--force")
        other = str(write(tmp_path / f"{form}-other", TSV, PAIRS[:9]))
        keeps(case, file, "data", "clean", other, "--valid", spec, "--src", "en", "--tgt", "de", "-o", place, "--force")
    keeps(
        case, next((tmp_path / FOLDER).iterdir()), "data", "clean", forms[FOLDER], "-o", tmp_path / FOLDER / "new.tsv"
    )
    keeps(case, Path(forms[TSV]), "data", "check", forms[TSV], stdout=Path(forms[TSV]))


def test_81_output_is_part_of_the_model(case: Case, job: Job, tmp_path: Path) -> None:
    copy = shutil.copytree(job.clean, tmp_path / "run")
    weights = copy / "model.safetensors"
    hard = tmp_path / "hard"
    hard.hardlink_to(weights)
    for name in (weights, hard):
        keeps(case, name, "translate", "--model", copy, "-o", name, "red tree.", code=2)
        keeps(case, name, "explain", "--model", copy, "--html", name, "red tree.")
    keeps(case, copy / "data" / "test.jsonl", "translate", "--model", copy, "-o", copy / "data" / "test.jsonl", "sun")
    (copy / "hyp.txt").write_text("mine")  # other files in the folder are not part of the model
    done = run("translate", "--model", copy, "-o", copy / "hyp.txt", "-b", "1", "--max-length", "2", "sun.")
    assert (done.code, done.err) == (0, "")


def test_81_run_folder_holds_the_input(case: Case, job: Job, tmp_path: Path) -> None:
    copy = shutil.copytree(job.clean, tmp_path / "run")
    valid = copy / "data" / "valid.jsonl"
    for option in ((), ("--overwrite",)):
        keeps(case, valid, "train", "--train", valid, "--src", "en", "--tgt", "xx", "--out", copy, *option)
    keeps(case, copy / "model.safetensors", "train", "--init", copy, "--out", copy, "--overwrite")


def test_81_existing_output_needs_force(case: Case, tmp_path: Path) -> None:
    spec = write(tmp_path / "in", TSV, PAIRS)
    for name in ("o.tsv", "rejected.jsonl"):
        (tmp_path / name).write_text("precious")
    command = (
        "data",
        "clean",
        spec,
        "--tgt",
        "de",
        "--rejected",
        tmp_path / "rejected.jsonl",
        "-o",
        tmp_path / "o.tsv",
    )
    keeps(case, tmp_path / "o.tsv", *command)
    keeps(case, tmp_path / "rejected.jsonl", *command[:-1], tmp_path / "new.tsv")
    keeps(case, tmp_path / "o.tsv", "tokenizer", "train", spec, "-o", tmp_path / "o.tsv")
    (tmp_path / "o.tsv").chmod(0o640)
    assert run(*command, "--force").code == 0
    assert (tmp_path / "o.tsv").stat().st_mode & 0o777 == 0o640
    assert run("tokenizer", "train", spec, "-o", tmp_path / "o.tsv", "--force").code == 0


def outputs(job: Job, folder: Path) -> list[tuple[str | Path, ...]]:
    """Return every command that writes a file, without the name of the file at its end."""
    spec = write(folder / "in", TSV, PAIRS)
    model = ("--model", job.clean)
    return [
        ("translate", *model, "red tree.", "-o"),
        ("explain", *model, "red tree.", "--html"),
        ("tokenizer", "train", spec, "-o"),
        ("data", "clean", spec, "--tgt", "de", "-o", folder / "o.tsv", "--rejected"),
        ("data", "clean", spec, "--tgt", "de", "-o"),
    ]


def folders(job: Job, folder: Path) -> list[tuple[str | Path, ...]]:
    """Return every command that writes a folder, without the name of the folder at its end."""
    return [
        ("train", "--max-steps", "1", "--out"),
        ("average", job.clean, "-n", "2", "-o"),
        ("export", job.clean, "--to", "huggingface", "-o"),
    ]


def test_82_output_cannot_be_written(case: Case, job: Job, tmp_path: Path, rng: random.Random, count: Count) -> None:
    files = outputs(job, tmp_path)
    inside = folders(job, tmp_path)
    (tmp_path / "file").write_text("stays")
    (tmp_path / "folder.tsv").mkdir()
    (tmp_path / "loop.tsv").symlink_to("loop.tsv")
    places: dict[str | Path, tuple[int, list[tuple[str | Path, ...]]]] = {
        tmp_path / "folder.tsv": (2, files),
        tmp_path / "none" / "x.tsv": (2, files),
        tmp_path / "loop.tsv": (2, files + inside),
        tmp_path / "file" / "x.tsv": (2, files + inside),
        tmp_path / f"{'x' * 300}.tsv": (2, files),
        "/proc/x.tsv": (5, files + inside),
    }
    wanted = [(place, code, command) for place, (code, commands) in places.items() for command in commands]
    for place, code, command in rng.sample(wanted, count(len(wanted), 20)):
        with case.fault():
            failed(run(*command, place, cwd=tmp_path), code, Path(place).name)
    assert (tmp_path / "file").read_text() == "stays"
    assert not (tmp_path / "o.tsv").exists()


def test_82_devices_and_links_are_written_through(job: Job, tmp_path: Path) -> None:
    """Not a fault: devices, and the targets of links, are written. Only a regular file is replaced by a new one."""
    for command in outputs(job, tmp_path)[:4]:
        assert run(*command, "/dev/null").code == 0
        assert Path("/dev/null").is_char_device()
        (tmp_path / "o.tsv").unlink(missing_ok=True)
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    for name in ("link", "/dev/stdout"):
        (tmp_path / "log").write_text("before\n")
        done = run(*outputs_of_translate(job), name, cwd=tmp_path, stdout=tmp_path / "log")
        assert (done.code, done.err) == (0, "")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "log").read_text() == "before\n" + (tmp_path / "real").read_text()


def outputs_of_translate(job: Job) -> tuple[str | Path, ...]:
    return ("translate", "--model", job.clean, "-b", "1", "--max-length", "2", "red tree.", "-o")


def small_windows() -> None:
    from mtcli.translate import windows

    patch.object(windows, "WINDOW", 16).start()


def small_first_window() -> None:
    from mtcli.translate import windows

    patch.object(windows, "FIRST_WINDOW", 16).start()


def test_83_interrupted_translation(case: Case, job: Job, tmp_path: Path) -> None:
    out = tmp_path / "out"
    part = tmp_path / "out.partial"
    command = ("translate", "--model", job.clean, "-b", "1", "--max-length", "2", "-o", out, "-i")
    os.mkfifo(tmp_path / "pipe")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        out.write_text("old")
        child = start(*command, tmp_path / "pipe", within=[small_windows])
        with case.fault(), (tmp_path / "pipe").open("wb", buffering=0) as source:
            source.write(b"red tree.\n" * 40)
            until(lambda: part.exists() and part.read_bytes().count(b"\n") == 32, child)
            child.send(number)
            done = child.wait()
            assert (done.code, out.read_text()) == (128 + number, "old")
            assert done.last == f"mtcli: {signals.stopped(number)}; the first 32 lines of the output are in {part}"
            assert part.read_bytes().count(b"\n") == 32
        part.unlink()


def test_83_a_translation_of_less_than_a_whole_window_is_kept(case: Case, job: Job, tmp_path: Path) -> None:
    out = tmp_path / "out"
    part = tmp_path / "out.partial"
    command = ("translate", "--model", job.clean, "-b", "1", "--max-length", "2", "-o", out, "-i")
    os.mkfifo(tmp_path / "pipe")
    child = start(*command, tmp_path / "pipe", within=[small_first_window])
    with case.fault(), (tmp_path / "pipe").open("wb", buffering=0) as source:
        source.write(b"red tree.\n" * 100)
        until(lambda: part.exists() and part.read_bytes().count(b"\n") == 48, child)
        child.send(signal.SIGINT)
        done = child.wait()
        assert done.last == f"mtcli: stopped by Ctrl-C; the first 48 lines of the output are in {part}"


def test_83_translation_that_fails_keeps_its_lines(case: Case, job: Job, tmp_path: Path) -> None:
    out = tmp_path / "out"
    part = tmp_path / "out.partial"
    command = ("translate", "--model", job.clean, "-b", "1", "--max-length", "2", "-o", out, "-i", tmp_path / "in")
    (tmp_path / "in").write_bytes(b"red tree.\n" * 40 + b"\xff\n")
    out.write_text("old")
    with case.fault():
        failed(
            run(*command, within=[small_windows]), 3, "in:41: byte 1", f"the first 32 lines of the output are in {part}"
        )
        assert (out.read_text(), part.read_bytes().count(b"\n")) == ("old", 32)
    (tmp_path / "in").write_bytes(b"red tree.\n" * 40)
    with case.fault():  # an earlier partial file is not overwritten
        done = run(*command, "--format", "json", within=[partial(limit, resource.RLIMIT_FSIZE, 2000)])
        kept = (tmp_path / "out.partial1").read_text()
        failed(done, 5, "out.partial1: File too large", f"the first {kept.count(NEWLINE)} lines")
        assert kept.endswith(NEWLINE)
        assert (out.read_text(), part.read_bytes().count(b"\n")) == ("old", 32)
    before = out.stat().st_ino
    done = run(*command)
    assert (done.code, done.err, out.read_bytes().count(b"\n")) == (0, "", 40)
    assert out.stat().st_ino != before  # a new file, renamed when it was complete
    assert {path.name for path in tmp_path.iterdir()} == {"in", "out", "out.partial", "out.partial1"}


def test_84_latest_cannot_be_set(case: Case, tmp_path: Path) -> None:
    def folder(latest: Path) -> None:
        latest.mkdir(parents=True)
        (latest / "mine").touch()

    def file(latest: Path) -> None:
        latest.parent.mkdir()
        latest.write_text("mine")

    def no_folder(latest: Path) -> None:
        latest.parent.write_text("mine")

    def loop(latest: Path) -> None:
        latest.parent.symlink_to("runs")

    spec = write(tmp_path / "in", TSV, PAIRS)
    for place in (folder, file, no_folder, loop):
        here = tmp_path / place.__name__
        here.mkdir()
        place(here / "runs" / "latest")
        before = sorted((here / "runs").rglob("*")) if place is not loop else []
        with case.fault():
            done = train(spec, here / "run", cwd=here)
            assert done.code == 0, done.err
            assert "warning: runs/latest does not lead to this run" in done.err
            assert f"--model {here / 'run'}" in done.err
            assert before == (sorted((here / "runs").rglob("*")) if place is not loop else [])
        with case.fault():  # another failure has its own line and code
            failing = train(spec, here / "run", "--set", "train.max_steps=9", cwd=here, within=[full_disk])
            assert (failing.code, failing.last.partition(":")[0]) == (5, "mtcli")


def full_disk() -> None:
    limit(resource.RLIMIT_FSIZE, 1000)


def test_84_latest_that_is_a_link_is_set(tmp_path: Path) -> None:
    spec = write(tmp_path / "in", TSV, PAIRS)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "latest").symlink_to("latest")
    done = train(spec, tmp_path / "run", cwd=tmp_path)
    assert (done.code, (tmp_path / "runs" / "latest").resolve()) == (0, tmp_path / "run"), done.err
