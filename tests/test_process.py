"""What a process sets up before a command: how OpenMP waits. The streams are in `faults/test_streams.py`."""

import os
import subprocess
import sys

import pytest

from mtcli.cli import process

COMMAND = "import sys; from mtcli.cli import main; sys.argv = ['mtcli', '--version']; main()"


def settings(code: str, **variables: str) -> str:
    """What the OpenMP of PyTorch says of its settings when this code loads it."""
    environment = os.environ | {"OMP_DISPLAY_ENV": "VERBOSE"} | variables
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    return done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="the OpenMP of PyTorch is GNU's on Linux only")
@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, process.SPIN_COUNT),
        ({"GOMP_SPINCOUNT": "77"}, "77"),
        ({"OMP_WAIT_POLICY": "passive"}, "0"),
    ],
)
def test_waiting_threads_sleep_soon_unless_the_user_says_how_they_wait(
    variables: dict[str, str], expected: str
) -> None:
    assert f"GOMP_SPINCOUNT = '{expected}'" in settings(COMMAND, **variables)


def test_the_setting_of_another_runtime_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in process.WAITING:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("KMP_BLOCKTIME", "0")
    process.limit_spinning()
    assert "GOMP_SPINCOUNT" not in os.environ


def test_an_import_leaves_the_environment_alone() -> None:
    code = "import os; before = dict(os.environ); import mtcli.cli, mtcli.train; assert dict(os.environ) == before"
    subprocess.run([sys.executable, "-c", code], check=True)
