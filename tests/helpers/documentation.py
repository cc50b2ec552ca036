"""The README, the pages in docs/, and the commands that they, the notebook, the configurations and `--help` show."""

import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path

import typer

from mtcli.cli import app

ROOT = Path(__file__).parents[2]

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
NOTEBOOK = json.loads((ROOT / "docs" / "first-model.ipynb").read_text(encoding="utf-8"))
CELLS = ["".join(cell["source"]) for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]
"""The code of the notebook. A cell with a command of a shell begins with `!`."""
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = {path.name: path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs").glob("*.md"))}
DOCUMENTATION = "\n".join([README, *PAGES.values()])


def commands(text: str) -> list[str]:
    """Return the `mtcli …` commands in code blocks and between backticks, without pipes and redirections.

    A command may continue on the next line after a backslash.
    """
    blocks = re.findall(r"```sh\n(.*?)```", text, flags=re.DOTALL)
    inline = re.findall(r"`(mtcli [^`]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    unbroken = [re.sub(r"\\\n\s*", "", block) for block in blocks]
    lines = [part for block in unbroken for line in block.splitlines() for part in line.split("|")]
    found = [line.strip() for line in (*lines, *inline)]
    return [re.split(r"\s[>#]", line)[0].strip() for line in found if line.startswith("mtcli ")]


def examples(command: typer.core.TyperCommand | typer.core.TyperGroup, name: str = "mtcli") -> Iterator[str]:
    """Yield the examples in the `--help` of every command."""
    for part, inner in getattr(command, "commands", {}).items():
        yield from examples(inner, f"{name} {part}")
    shown = re.findall(r"^mtcli .*$", command.epilog or "", re.MULTILINE)
    assert all(line.startswith(name) for line in shown)
    assert shown or name == "mtcli" or len(name.split()) > 2, f"{name} has no example"
    yield from shown


SHOWN = commands(DOCUMENTATION)
IN_CONFIGS = [
    line
    for path in sorted((ROOT / "configs").glob("*.toml"))
    for line in re.findall(r"^#\s+(mtcli .*)$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
]
IN_NOTEBOOK = [cell.removeprefix("!") for cell in CELLS if cell.startswith("!mtcli ")]
COMMANDS = sorted({*SHOWN, *IN_CONFIGS, *IN_NOTEBOOK, *examples(typer.main.get_command(app))})


def parse(line: str) -> None:
    """Parse a command without running it, and raise what a wrong name, option or value raises."""
    command = typer.main.get_command(app)
    arguments = shlex.split(line)[1:]
    while hasattr(command, "commands"):
        if arguments[0].startswith("-"):
            return
        command = command.commands[arguments.pop(0)]
    command.make_context("mtcli", [a for a in arguments if a != "…"])
