import logging
import os
import pty
import re
import signal
import subprocess
import sys
import termios
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import cast

import pytest
from conftest import TOY_SETTINGS
from helpers.harness import run, start
from helpers.points import strike_in
from helpers.processes import no_hang

from mtcli.documents.request import TextRequest, translate_lines
from mtcli.runtime import progress
from mtcli.runtime.progress import Progress, Recent, TrainingProgress, estimate
from mtcli.terms.report import TermsReport
from mtcli.translate.translation import Candidate, Options, Translation
from mtcli.translate.translator import Translator
from mtcli.translate.windows import DEFAULT_READING, Reading


class Clock:
    """A clock that a test sets."""

    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "on_terminal", lambda _: True)


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> pytest.LogCaptureFixture:
    """The log, with standard error as a pipe."""
    monkeypatch.setattr(progress, "on_terminal", lambda _: False)
    caplog.set_level(logging.INFO, "mtcli")
    return caplog


def test_recent_sums_decay() -> None:
    recent = Recent(10.0)
    assert recent.ratio("steps") == 0.0
    for _ in range(5):
        recent.add(1.0, steps=2)
    assert recent.ratio("steps") == pytest.approx(2.0)
    for _ in range(100):
        recent.add(1.0, steps=4)
    assert recent.ratio("steps") == pytest.approx(4.0, abs=1e-3)


def test_an_estimate_is_rounded_by_its_size() -> None:
    assert [estimate(s) for s in (0, 1, 12, 61, 599, 601, 7000)] == [
        "0:00", "0:05", "0:15", "1:10", "10:00", "11:00", "1:57:00",
    ]  # fmt: skip


def test_training_in_a_pipe_logs_a_line_a_minute(logged: pytest.LogCaptureFixture) -> None:
    shown = TrainingProgress(0, 0.0, max_steps=1000)
    for step in range(1, 151):
        shown.update(float(step), tokens=100, nll=250.0)
    lines = [record.getMessage() for record in logged.records]
    assert lines == [
        "training: step 60 of 1,000, loss 2.500, 100 tokens/s, 1:00 elapsed, about 16:00 left",
        "training: step 120 of 1,000, loss 2.500, 100 tokens/s, 2:00 elapsed, about 15:00 left",
    ]


def test_the_rest_of_a_time_budget_is_exact(logged: pytest.LogCaptureFixture) -> None:
    shown = TrainingProgress(10, 30.0, max_seconds=600.0)
    shown.update(95.0, tokens=6500, nll=0.0)
    assert logged.messages == ["training: step 11, loss 0.000, 100 tokens/s, 1:35 elapsed, 8:25 left"]
    shown.pause(96.0, share=0.5)  # nothing improves any more: half of the budget will do
    assert shown.status().endswith("1:36 elapsed, 3:24 left")


def test_a_validation_slows_the_estimate_and_not_the_tokens_per_second() -> None:
    shown = TrainingProgress(0, 0.0, max_steps=40)
    for step in range(1, 11):
        shown.update(float(step), tokens=100, nll=100.0)
        assert ("left" in shown.status()) == (step > 6)  # not while the first steps say little
    assert "100 tokens/s" in shown.status()
    assert shown.status().endswith("about 0:30 left")
    shown.pause(20.0)
    shown.update(21.0, tokens=100, nll=100.0)
    assert "100 tokens/s" in shown.status()
    assert shown.status().endswith("about 1:00 left")


def test_the_first_step_says_nothing_about_the_others() -> None:
    shown = TrainingProgress(0, 0.0, max_steps=100)
    shown.update(60.0, tokens=100, nll=100.0)
    assert "left" not in shown.status()
    for step in range(1, 11):
        shown.update(60.0 + step, tokens=100, nll=100.0)
    assert shown.status().endswith("about 1:30 left")


@pytest.mark.usefixtures("terminal")
def test_the_bar_of_training_has_one_clock_and_a_rate_per_second(capsys: pytest.CaptureFixture[str]) -> None:
    shown = TrainingProgress(0, 0.0, max_steps=100)
    with shown:
        for step in range(1, 26):
            shown.update(step * 2.0, tokens=4000, nll=12_000.0)
        assert shown._display.bar is not None
        shown._display.bar.refresh()
        drawn = capsys.readouterr().err.split("\r")[-1]
    assert re.fullmatch(r"training:  25%\|.*\| step 25 of 100, loss 3\.000, 2,000 tokens/s, about 2:30 left *", drawn)


@pytest.mark.usefixtures("terminal")
def test_a_terminal_gets_a_bar_and_no_log_lines(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "mtcli")
    now = Clock()
    with Progress("translating", total=10, unit="lines", now=now) as bar:
        now.seconds = 1000.0
        bar.update()
    assert caplog.messages == []


def test_items_in_a_pipe_log_a_line_a_minute(logged: pytest.LogCaptureFixture) -> None:
    now = Clock()
    with Progress("translating", total=600, unit="lines", now=now) as bounded:
        for _ in range(125):
            now.seconds += 1.0
            bounded.update(2)
    assert logged.messages == [
        "translating: 120 of 600 lines, 2 lines/s, about 4:00 left",
        "translating: 240 of 600 lines, 2 lines/s, about 3:00 left",
    ]
    logged.clear()
    with Progress("translating", total=600, done=400, unit="lines", now=now) as resumed:
        now.seconds += 10.0
        resumed.update(20)
        assert resumed.status() == "420 of 600 lines, 2 lines/s, about 1:30 left"
    with Progress("encoding", unit="pairs", now=now) as endless:
        now.seconds += 61.0
        endless.update(61_000)
    assert logged.messages == ["encoding: 61,000 pairs, 1,000 pairs/s, 1:01 elapsed"]
    logged.clear()
    with Progress("encoding", unit="pairs", quiet=True, now=now) as quiet:
        now.seconds += 61.0
        quiet.update()
    assert logged.messages == []


def test_a_training_run_logs_its_own_figures(
    train_toy: Callable[..., Path], tmp_path: Path, logged: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "LOG_SECONDS", 0.0)
    train_toy(tmp_path / "run", "train.max_steps=3")
    lines = [line for line in logged.messages if line.startswith("training: ")]
    assert len(lines) == 3
    form = r"training: step \d of 3, loss \d\.\d{3}, [\d,]+ tokens/s, [\d:]+ elapsed(, about [\d:]+ left)?"
    assert all(re.fullmatch(form, line) for line in lines)


class Recorder:
    """A stand-in for a translator that records whether a progress bar was requested."""

    def __init__(self) -> None:
        self.quiet: list[bool] = []

    def translate(
        self, lines: Iterable[str], options: Options, reading: Reading = DEFAULT_READING
    ) -> Iterator[Translation]:
        self.quiet.append(reading.quiet)
        yield from (Translation(line, (Candidate("", 0.0, 0.0),)) for line in lines)


def test_a_dialogue_has_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    typed = iter(["red tree.", "blue tree."])
    monkeypatch.setattr("mtcli.documents.request.typed_lines", lambda: typed)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    recorder = Recorder()
    translator = cast(Translator, recorder)
    translate_lines(TextRequest(models=()), translator, Options(), TermsReport(), None)
    assert recorder.quiet == [True, True]
    for is_terminal in (False, True):
        monkeypatch.setattr("sys.stdout.isatty", lambda is_terminal=is_terminal: is_terminal, raising=False)
        translate_lines(TextRequest(models=(), texts=("red tree.",)), translator, Options(), TermsReport(), None)
    assert recorder.quiet[2:] == [False, True]


def at_a_terminal(*arguments: str | Path, cwd: Path, typed: bytes = b"") -> str:
    """Return what a terminal shows of a command, which must exit with 0."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 120))
    terminal = Path(os.ttyname(theirs))
    child = start(*arguments, cwd=cwd, stdin=terminal, stdout=terminal, stderr=terminal, env={"TERM": "dumb"})
    with no_hang():
        shown = os.read(ours, 1 << 16)
        if typed:
            while b"> " not in shown:  # the prompt
                shown += os.read(ours, 1 << 16)
            os.write(ours, typed + b"\x04")
        os.close(theirs)  # the child has opened the terminal, since it has written
        try:
            while data := os.read(ours, 1 << 16):
                shown += data
        except OSError:  # the other end is closed
            pass
    os.close(ours)
    assert child.wait().code == 0, shown
    return shown.decode()


def test_ctrl_c_at_the_prompt_ends_silently(toy_run: Path, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    terminal = Path(os.ttyname(theirs))
    strike = partial(strike_in, "builtins:input", 1, signal.SIGINT)
    done = run("translate", "--model", toy_run, cwd=tmp_path, stdin=terminal, within=[strike])
    assert (done.code, done.err) == (130, "Type a sentence and press Enter; Ctrl-D ends.\n")
    for end in (ours, theirs):
        os.close(end)


def test_a_typed_sentence_is_answered_by_its_translation_alone(toy_run: Path, tmp_path: Path) -> None:
    alone = run("translate", "--model", toy_run, "red tree.").out.strip()
    shown = at_a_terminal("translate", "--model", toy_run, cwd=tmp_path, typed=b"red tree.\n")
    assert "translating" not in shown
    assert "%|" not in shown
    assert f"\r\n{alone}\r\n" in shown


def test_results_and_a_bar_do_not_share_a_terminal(toy_run: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("red tree.\n" * 3)
    assert "translating" not in at_a_terminal("translate", "--model", toy_run, "-i", "in.txt", cwd=tmp_path)


def test_training_on_a_terminal_shows_a_bar(toy_tsv: Path, tmp_path: Path) -> None:
    rarely = ["train.valid_every=150", "train.save_every=150"]
    settings = [part for setting in [*TOY_SETTINGS, *rarely] for part in ("--set", setting)]
    line = ["train", "--train", toy_tsv, "--src", "en", "--tgt", "xx", "--out", "run", "--max-steps", "150", *settings]
    shown = at_a_terminal(*line, cwd=tmp_path)
    bars = [part for part in shown.split("\r") if part.startswith("training: ")]
    assert not any(re.search(r"\d s/s|s/it|\d:\d\d<", bar) for bar in bars)
    assert any("tokens/s" in bar for bar in bars)


def test_single_requests_to_the_hub_are_not_logged() -> None:
    code = """
from mtcli.runtime.progress import show_log
show_log()
from huggingface_hub.utils import logging
logging.get_logger("huggingface_hub.utils._http").warning("Retrying in 1s [Retry 1/5].")
"""
    environment = {name: value for name, value in os.environ.items() if name != "HF_HUB_VERBOSITY"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stderr == ""
