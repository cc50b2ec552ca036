"""Every command that the README shows is one that mtcli takes."""

import re
import shlex
from pathlib import Path

import pytest
import typer

from mtcli.cli import app

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def commands(text: str) -> list[str]:
    """`mtcli …` in code blocks and between backticks, without what is piped or redirected."""
    blocks = re.findall(r"```sh\n(.*?)```", text, flags=re.DOTALL)
    inline = re.findall(r"`(mtcli [^`]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    lines = [part for block in blocks for line in block.splitlines() for part in line.split("|")]
    found = [line.strip() for line in (*lines, *inline)]
    return [re.split(r"\s[>#]", line)[0].strip() for line in found if line.startswith("mtcli ")]


COMMANDS = sorted(set(commands(README)) | {c for p in (ROOT / "configs").glob("*.toml") for c in re.findall(
    r"^#\s+(mtcli .*)$", p.read_text(encoding="utf-8"), flags=re.MULTILINE
)})  # fmt: skip


def parse(line: str) -> None:
    """Raise what the command line would raise for a wrong name, option or value; run nothing."""
    command = typer.main.get_command(app)
    arguments = shlex.split(line)[1:]
    while hasattr(command, "commands"):
        if arguments[0].startswith("-"):
            return
        command = command.commands[arguments.pop(0)]
    command.make_context("mtcli", [a for a in arguments if a != "…"])


def test_there_are_commands_to_check() -> None:
    assert len(COMMANDS) > 15
    assert "mtcli train" in COMMANDS
    assert 'mtcli translate "Hello World"' in COMMANDS


@pytest.mark.parametrize("line", COMMANDS)
def test_the_command_line_takes_it(line: str) -> None:
    parse(line)
    for word in shlex.split(line):
        if word.startswith("configs/"):
            assert (ROOT / word).exists()


@pytest.mark.parametrize("line", ["mtcli train --no-such-option", "mtcli nonsense", "mtcli eval --bleu extra"])
def test_a_wrong_command_would_be_seen(line: str) -> None:
    with pytest.raises((KeyError, typer.BadParameter.__base__)):  # no such command, option or argument
        parse(line)


def test_the_files_the_readme_names_exist() -> None:
    for name in re.findall(r"`((?:configs|tests|scripts)/[\w./-]+)`", README):
        assert (ROOT / name).exists(), name
    modules = {p.name for p in (ROOT / "src" / "mtcli").rglob("*.py")}
    assert set(re.findall(r"`(\w+\.py)`", README)) <= modules
