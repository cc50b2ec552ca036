"""What takes commands long to make. The fork server of `harness.py` imports this module before its first child."""

import os

import typer.main

from helpers.command import build_commands_once, identify_languages_once
from mtcli.cli import app
from mtcli.corpus.quality import languages
from mtcli.text.writing_systems import combining_marks

build_commands_once()
typer.main.get_command(app)
combining_marks()
identify_languages_once()
languages.LanguageIdentifier()  # loads the classifier of all languages: half a second
del os.environ["PYTHONPATH"]  # `harness.py` sets it only to find this module
