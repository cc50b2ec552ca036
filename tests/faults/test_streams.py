"""Standard streams that are closed, full, slow or in another locale: results stay complete, errors appear once."""

import os
import shlex
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from threading import Timer
from typing import Any

import pytest
from helpers.harness import Job, refused, run, run_alone, start
from helpers.processes import HANGS

from faults.conftest import Case
from faults.inputs import PAIRS, TSV, Count, failed, train, write

MODEL = ("-b", "1", "--max-length", "2")


def write_scored(folder: Path) -> None:
    """Write translations whose score causes no warning: neither near 0 nor near 100, and not of too few pairs."""
    (folder / "few").write_text("the red tree stands near the old house.\n" * 30)
    (folder / "ref").write_text("the red tree stands by the old house.\n" * 30)


def test_61_pipe_head(case: Case, job: Job, tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("red tree.\n" * 9000)
    write_scored(tmp_path)
    scored = ("eval", "--hyp-file", tmp_path / "few", "--ref-file", tmp_path / "ref")
    translate = ("translate", "--model", job.clean, *MODEL, "-i", tmp_path / "lines")
    dry_run = job.command(tmp_path / "new", "--dry-run")
    for command in (translate, scored, ("info", job.clean), dry_run):
        pipe = tmp_path / f"pipe-{command[0]}"
        os.mkfifo(pipe)
        with case.fault():
            child = start(*command, stdout=pipe)
            with pipe.open("rb") as head:
                if command is translate:
                    assert len(head.readline()) > 1
            done = child.wait()
            assert done.code == -signal.SIGPIPE  # a shell shows it as 141
            assert "mtcli: " not in done.err
            assert done.err == "" or command is dry_run  # which logs the preparation of the data


def test_61_pipe_head_of_a_shell(case: Case, job: Job, tmp_path: Path, count: Count) -> None:
    write_scored(tmp_path)
    (tmp_path / "short").write_text("red tree.\n")
    translate = f"translate --model {shlex.quote(str(job.clean))} {' '.join(MODEL)} -i short -o /dev/stdout"
    commands = ("--help", translate, "eval --hyp-file few --ref-file ref")
    for command in commands[: count(3, 2)]:
        with case.fault():
            done = shell(f"{command} 2>err | true; echo ${{PIPESTATUS[0]}}", tmp_path)
            assert (done.stdout, (tmp_path / "err").read_text()) == ("141\n", "")


def test_62_stdin_closed(case: Case, job: Job, tmp_path: Path, count: Count) -> None:
    commands = [["translate", "--model", job.clean], ["tokenizer", "encode", "--model", job.clean]]
    for command in [*commands, ["eval", "--model", job.clean, "--src-file", "-", "--ref-file", "/dev/null"]]:
        with case.fault():
            failed(run(*command, within=[partial(without, 0, "stdin")]), 2, "standard input is closed")
    with case.fault():
        done = run("translate", "--model", job.clean, *MODEL, "red tree.", within=[partial(without, 0, "stdin")])
        assert (done.code, done.out.count("\n")) == (0, 1), done.err
    with case.fault():
        spec = write(tmp_path / "in", TSV, PAIRS)
        assert train(spec, tmp_path / "run", within=[partial(without, 0, "stdin")]).code == 0
    for command in commands[: count(2, 0)]:  # by the shell, in a new interpreter
        words = " ".join(f"'{word}'" for word in [sys.executable, "-m", "mtcli", *command])
        with case.fault():
            done = subprocess.run(["bash", "-c", f"{words} <&-"], cwd=tmp_path, capture_output=True, timeout=HANGS)
            assert (done.returncode, done.stdout) == (2, b"")


def printing(job: Job, folder: Path) -> list[list[str | Path]]:
    """Return a command of every kind that writes to standard output."""
    few = folder / "few"
    pairs = folder / "pairs.tsv"
    few.write_text("red tree.\n" * 30)
    pairs.write_text("".join(f"{a}\t{b}\n" for a, b in PAIRS))
    model = ["--model", job.clean]
    return [
        ["translate", *model, *MODEL, "red tree."],
        ["eval", "--hyp-file", few, "--ref-file", few],
        ["score", *model, "--src-file", few, "--tgt-file", few],
        ["explain", *model, "-b", "1", "red tree."],
        ["explain", *model, "-b", "1", "--json", "red tree."],
        ["info", job.clean],
        ["data", "check", pairs],
        ["data", "clean", pairs, "-o", folder / "clean.tsv"],
        ["tokenizer", "encode", *model, "-i", few],
        ["export", job.clean, "-o", folder / "exported"],
        [*job.command(folder / "run"), "--dry-run"],
        ["--help"],
        ["translate", "--help"],
        ["--version"],
    ]


def test_63_full_device(case: Case, job: Job, tmp_path: Path) -> None:
    full = Path("/dev/full")
    for command in printing(job, tmp_path):
        with case.fault():
            done = run(*command, stdout=full)
            refused(done, 5, "standard output: No space left on device")
            assert "Exception ignored" not in done.err
    with case.fault():
        to_file = ("translate", "--model", job.clean, *MODEL, "red tree.", "-o", full)
        refused(run(*to_file), 5, "No space left on device")


@pytest.mark.parametrize("command", ["eval --hyp-file few --ref-file ref", "--help"])
def test_63_full_device_of_a_shell(case: Case, tmp_path: Path, command: str) -> None:
    """Run a new interpreter, which flushes its streams again at its end."""
    write_scored(tmp_path)
    with case.fault():
        done = shell(f"{command} >/dev/full", tmp_path)
        assert (done.returncode, done.stderr) == (5, "mtcli: standard output: No space left on device\n")
    with case.fault():
        done = shell(f"{command} >&-", tmp_path)
        assert (done.returncode, done.stderr) == (5, "mtcli: standard output: is closed\n")


def shell(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run `mtcli LINE` in bash, with redirections."""
    words = ["bash", "-c", f"{shlex.quote(sys.executable)} -m mtcli {line}"]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=HANGS)


def test_64_c_locale(case: Case, job: Job, tmp_path: Path, count: Count) -> None:
    text = "ñandú 中文 🙂\n".encode()
    (tmp_path / "ñandú").write_bytes(text)
    commands = [
        ("tokenizer", "encode", "--model", job.clean, "-i", tmp_path / "ñandú"),
        ("translate", "--model", job.clean, *MODEL, "--format", "json", "ñandú 中文 🙂"),
        ("translate", "--model", job.clean, *MODEL, "--format", "json", "-i", tmp_path / "ñandú"),
    ]
    for command in commands[: count(3, 1)]:
        with case.fault():
            locale = {"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
            there = run_alone(*command, env=locale)
            here = run(*command)
            assert (there.code, there.out) == (0, here.out), there.err


def test_65_eval_length_mismatch(case: Case, job: Job, tmp_path: Path) -> None:
    (tmp_path / "two").write_text("red tree.\nsun.\n")
    (tmp_path / "three").write_text("red tree.\nsun.\nmoon.\n")
    for name in ("--hyp-file", "--src-file"):
        with case.fault():
            line = ("eval", "--model", job.clean, name, tmp_path / "two", "--ref-file", tmp_path / "three")
            failed(run(*line), 3, "2", "3")
    with case.fault():
        line = ("eval", "--ref-file", tmp_path / "two", "--hyp-file")
        file = run(*line, tmp_path / "two")
        stdin = run(*line, "-", stdin=tmp_path / "two")
        assert (file.code, stdin.code) == (0, 0)
        assert file.out == stdin.out
        assert file.out.startswith("BLEU = ")


def test_65_a_slow_pipe_is_answered_as_it_goes(job: Job, tmp_path: Path) -> None:
    """Not a fault: a program can write a line, wait for its translation, and write the next."""
    ask = tmp_path / "ask"
    answer = tmp_path / "answer"
    os.mkfifo(ask)
    os.mkfifo(answer)
    child = start("translate", "--model", job.clean, *MODEL, stdin=ask, stdout=answer)
    watchdog = Timer(HANGS, child.process.kill)
    watchdog.start()
    with answer.open("rb") as found, ask.open("wb", buffering=0) as source:
        for text in (b"red tree.\n", b"sun.\nmoon. half", b" a line\n"):
            source.write(text)
            assert found.readline().endswith(b"\n")
        source.write(b"no end")
        source.close()
        assert len(found.readlines()) == 1
    watchdog.cancel()
    assert child.wait().code == 0


def without(descriptor: int, name: str) -> None:
    """Do what the interpreter does if it is started with this standard stream closed."""
    os.close(descriptor)
    setattr(sys, name, None)


def test_76_stdout_closed(case: Case, job: Job, tmp_path: Path) -> None:
    closed = [partial(without, 1, "stdout")]
    for command in printing(job, tmp_path):
        with case.fault():
            refused(run(*command, within=closed), 5, "standard output: is closed")
    with case.fault():
        out = tmp_path / "out"
        done = run("translate", "--model", job.clean, *MODEL, "red tree.", "-o", out, within=closed)
        assert (done.code, len(out.read_text().splitlines())) == (0, 1), done.err
    with case.fault():
        assert run(*job.command(tmp_path / "trained", "--max-steps", "4"), within=closed).code == 0


def test_77_stderr_gone(case: Case, job: Job, tmp_path: Path) -> None:
    """A broken standard error changes neither results nor exit codes."""
    long = tmp_path / "long"
    long.write_text("red tree " * 400 + "\n")  # it causes a warning
    commands = [
        ["translate", "--model", job.clean, *MODEL, "-i", long],
        ["translate", "--model", tmp_path / "none", "red tree."],
        ["translate", "--no-such-option"],
        [*job.command(tmp_path / "run", "--overwrite", "--max-steps", "4")],
    ]
    faults: list[dict[str, Any]] = [
        {"stderr": Path("/dev/full")},
        {"within": [partial(without, 2, "stderr")]},
        {"within": [close_reader]},
    ]
    for command in commands:
        heard = run(*command)
        assert heard.err
        for fault in faults:
            with case.fault():
                done = run(*command, **fault)
                assert (done.code, done.out) == (heard.code, heard.out)


def close_reader() -> None:
    """Make standard error a pipe without a reader."""
    reader, writer = os.pipe()
    os.dup2(writer, 2)
    os.close(reader)
