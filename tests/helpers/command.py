"""Run a command of mtcli within the test process."""

from functools import cache

import pytest
import typer.main


def build_commands_once() -> None:
    """Let all runs in a process share what Typer makes of the commands: 0.02 CPU seconds, and half of a short run."""
    if not hasattr(typer.main.get_command, "cache_clear"):
        typer.main.get_command = cache(typer.main.get_command)


def identify_languages_once() -> None:
    """Let all runs in a process share the language identifiers: 0.1 CPU seconds, and a quarter of a short training."""
    from mtcli.corpus.quality import languages

    if isinstance(languages.LanguageIdentifier, type):
        languages.LanguageIdentifier = cache(languages.LanguageIdentifier)


def call(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """Run a command and return what it prints."""
    from mtcli.cli import app

    capsys.readouterr()
    app(list(map(str, arguments)), standalone_mode=False)
    return capsys.readouterr().out
