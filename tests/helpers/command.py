"""Run a command of mtcli within the test process."""

import pytest


def call(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """Run a command and return what it prints."""
    from mtcli.cli import app

    capsys.readouterr()
    app(list(map(str, arguments)), standalone_mode=False)
    return capsys.readouterr().out
