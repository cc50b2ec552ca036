"""The command line. Each command parses its options, calls plain functions and prints.

May import everything, but only inside functions: `mtcli --help` loads nothing heavy.
"""

from mtcli.cli.commands import app
from mtcli.cli.entry import main

__all__ = ["app", "main"]
