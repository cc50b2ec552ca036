"""What takes commands long to load. The fork server of `harness.py` imports this module before its first child."""

import sacrebleu.sacrebleu  # noqa: F401 - the command
import typer.main

import mtcli.serve.app  # noqa: F401
from helpers.command import build_commands_once
from mtcli.cli import app
from mtcli.text.language_identifier import LanguageIdentifier

build_commands_once()
typer.main.get_command(app)
LanguageIdentifier()  # loads the classifier of all languages: half a second
