"""The process of a command: its environment variables, its folder and its standard streams."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import PLAIN
from helpers.harness import run

from mtcli.cli import process
from mtcli.runtime.cores import usable_cores
from mtcli.runtime.signals import stopped


@pytest.mark.parametrize("name", ["COLUMNS", "TERMINAL_WIDTH"])
@pytest.mark.parametrize("value", ["0", "1", "-5", "x", "²", "9" * 20, "9" * 5000])
def test_a_width_that_no_terminal_has_hides_no_error(name: str, value: str, tmp_path: Path) -> None:
    done = run("translate", "--bogus", cwd=tmp_path, env={name: value})
    assert done.code == 2
    assert "No such option: --bogus" in done.err


def test_a_width_that_a_terminal_has_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    process.ignore_unusable_widths()
    assert os.environ["COLUMNS"] == "40"


@pytest.mark.parametrize("value", ["9" * 5000, "²", "0", "x"])
def test_threads_are_counted_where_the_variable_does_not_say(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    expected = usable_cores()
    monkeypatch.setenv("OMP_NUM_THREADS", value)
    assert usable_cores() == expected


def test_an_import_does_not_change_the_environment() -> None:
    code = (
        "import os; before = dict(os.environ); import mtcli.cli, mtcli.training.run; assert dict(os.environ) == before"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_plain_environment_has_no_developer_variables() -> None:
    given = {
        "HOME": "/home/a b",
        "PATH": os.environ["PATH"],
        "PIP_INDEX_URL": 'https://x/?a="$b"`c`',
        "https_proxy": "p",
    }
    dropped = {"PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1", "MTCLI_MODEL": "m", "X": "1\nPIP_Y=2\nX"}
    code = "import os, json; print(json.dumps(dict(os.environ)))"
    done = subprocess.run([PLAIN, sys.executable, "-c", code], env=given | dropped, capture_output=True, check=True)
    kept = json.loads(done.stdout)
    kept.pop("LC_CTYPE", None)  # which Python sets itself in the C locale
    assert kept == given


def test_the_tests_have_a_plain_environment() -> None:
    names = [name for name in os.environ if not name.startswith("MTCLI_TEST_")]
    assert not [name for name in names if name.startswith(("PYTHON", "OMP_", "GOMP_", "MTCLI_"))]


def test_a_current_folder_that_was_deleted_is_refused_in_one_line(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    command = (sys.executable, "-m", "mtcli", "translate", "Hello")
    script = ("sh", "-c", 'rmdir "$PWD" && exec "$@"', "sh", *command)
    done = subprocess.run(script, capture_output=True, text=True, cwd=gone, check=False)
    assert done.returncode == 2
    assert done.stderr == "mtcli: the current folder was deleted; change to another (cd) and run the command again\n"


def test_a_stop_names_its_cause() -> None:
    assert stopped(signal.SIGINT) == "stopped by Ctrl-C"
    assert stopped(signal.SIGTERM) == "stopped by the signal SIGTERM"
    assert stopped(signal.SIGHUP) == "stopped because the terminal was closed"
