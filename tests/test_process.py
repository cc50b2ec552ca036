"""Environment variables: those that mtcli sets in its own process, and those of the tests."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import PLAIN

from mtcli.cli import process
from mtcli.runtime.signals import stopped

COMMAND = "import sys; from mtcli.cli import main; sys.argv = ['mtcli', '--version']; main()"


def settings(code: str) -> str:
    """Run code that loads PyTorch, and return the settings that its OpenMP prints."""
    environment = os.environ | {"OMP_DISPLAY_ENV": "VERBOSE"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    return done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="the OpenMP of PyTorch is GNU's on Linux only")
def test_waiting_threads_sleep_soon() -> None:
    assert f"GOMP_SPINCOUNT = '{process.SPIN_COUNT}'" in settings(COMMAND)


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, process.SPIN_COUNT),
        ({"GOMP_SPINCOUNT": "77"}, "77"),
        ({"OMP_WAIT_POLICY": "passive"}, None),
        ({"KMP_BLOCKTIME": "0"}, None),
    ],
)
def test_a_variable_that_says_how_threads_wait_is_kept(
    variables: dict[str, str], expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in process.WAITING:
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    process.limit_spinning()
    assert os.environ.get("GOMP_SPINCOUNT") == expected


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
    assert not [name for name in os.environ if name.startswith(("PYTHON", "OMP_", "GOMP_", "MTCLI_"))]


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
