"""Standard streams: closed, full, gone, slow, or of another locale. Results stay whole, and nothing is said twice."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from threading import Timer

from faults.conftest import Case
from faults.harness import Job, run, run_alone, start
from faults.inputs import PAIRS, TSV, Count, failed, train, write

MODEL = ("-b", "1", "--max-length", "2")


def test_61_pipe_head(case: Case, job: Job, tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("red tree.\n" * 9000)
    (tmp_path / "few").write_text("red tree.\n" * 3)
    scored = ("eval", "--hyp-file", tmp_path / "few", "--ref-file", tmp_path / "few")
    for command in (("translate", "--model", job.clean, *MODEL, "-i", tmp_path / "lines"), scored):
        pipe = tmp_path / f"pipe-{command[0]}"
        os.mkfifo(pipe)
        with case.fault():
            child = start(*command, stdout=pipe)
            with pipe.open("rb") as head:
                if command is not scored:
                    assert len(head.readline()) > 1
            done = child.wait()
            assert (done.code, done.err) == (-signal.SIGPIPE, "")  # which a shell shows as 141


def test_61_pipe_head_of_a_shell(case: Case, tmp_path: Path) -> None:
    (tmp_path / "few").write_text("red tree.\n" * 3)
    line = f"{sys.executable} -m mtcli eval --hyp-file few --ref-file few 2> err | true; echo ${{PIPESTATUS[0]}}"
    with case.fault():
        done = subprocess.run(["bash", "-c", line], cwd=tmp_path, capture_output=True, timeout=60)
        assert (done.stdout, (tmp_path / "err").read_text()) == (b"141\n", "")


def without_stdin() -> None:
    """What the interpreter does when it is started with its standard input closed."""
    os.close(0)
    sys.stdin = None


def test_62_stdin_closed(case: Case, job: Job, tmp_path: Path, count: Count) -> None:
    commands = [["translate", "--model", job.clean], ["tokenizer", "encode", "--model", job.clean]]
    for command in [*commands, ["eval", "--model", job.clean, "--src-file", "-", "--ref-file", "/dev/null"]]:
        with case.fault():
            failed(run(*command, within=[without_stdin]), 2, "standard input is closed")
    with case.fault():
        done = run("translate", "--model", job.clean, *MODEL, "red tree.", within=[without_stdin])
        assert (done.code, done.out.count("\n")) == (0, 1), done.err
    with case.fault():
        spec = write(tmp_path / "in", TSV, PAIRS)
        assert train(spec, tmp_path / "run", within=[without_stdin]).code == 0
    for command in commands[: count(2, 0)]:  # by the shell, in an interpreter of its own
        words = " ".join(f"'{word}'" for word in [sys.executable, "-m", "mtcli", *command])
        with case.fault():
            done = subprocess.run(["bash", "-c", f"{words} <&-"], cwd=tmp_path, capture_output=True, timeout=60)
            assert (done.returncode, done.stdout) == (2, b"")


def test_63_full_device(case: Case, job: Job, tmp_path: Path) -> None:
    (tmp_path / "few").write_text("red tree.\n" * 3)
    commands = [
        ("translate", "--model", job.clean, *MODEL, "red tree."),
        ("translate", "--model", job.clean, *MODEL, "-i", tmp_path / "few", "-o", "/dev/full"),
        ("eval", "--hyp-file", tmp_path / "few", "--ref-file", tmp_path / "few"),
        ("tokenizer", "encode", "--model", job.clean, "-i", tmp_path / "few"),
    ]
    for command in commands:
        with case.fault():
            failed(run(*command, stdout=Path("/dev/full")), 5, "No space left on device")
    with case.fault(), Path("/dev/full").open("w") as full:  # and an interpreter that flushes its streams at its end
        line = [sys.executable, "-m", "mtcli", *map(str, commands[2])]
        done = subprocess.run(line, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
        assert (done.returncode, done.stderr) == (5, "mtcli: output: No space left on device\n")


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
            there, here = run_alone(*command, env=locale), run(*command)
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
        file, stdin = run(*line, tmp_path / "two"), run(*line, "-", stdin=tmp_path / "two")
        assert (file.code, stdin.code) == (0, 0)
        assert file.out == stdin.out
        assert file.out.startswith("BLEU = ")


def test_65_a_slow_pipe_is_answered_as_it_goes(job: Job, tmp_path: Path) -> None:
    """Not a fault: a program that writes a line and waits for its translation gets it."""
    ask, answer = tmp_path / "ask", tmp_path / "answer"
    os.mkfifo(ask)
    os.mkfifo(answer)
    child = start("translate", "--model", job.clean, *MODEL, stdin=ask, stdout=answer)
    watchdog = Timer(60, child.process.kill)
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
