"""Kinds of options: functions that make an option which takes a number, a file or one of a few values.

A function passes the arguments that it does not name itself to `typer.Option`. `panel` is the panel in `--help`.
"""

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import typer

from mtcli import limits
from mtcli.cli import completion, panels
from mtcli.errors import UsageError

STANDARD_OUTPUT = "-"


def option(*names: str, panel: str, **how: Any) -> Any:
    """Return an option that takes a value."""
    return typer.Option(*names, rich_help_panel=panel, **how)


def flag(*names: str, panel: str, **how: Any) -> Any:
    """Return an option without a value; its help omits typer's `<bool>`."""
    return typer.Option(*names, rich_help_panel=panel, metavar="", **how)


def integer(text: object) -> object:
    """Return the integer of a text, for `parser` of an option. Python itself also reads `1_0` and other digits."""
    if not isinstance(text, str):
        return text  # the default
    if not re.fullmatch(r"[+-]?[0-9]{1,30}", text):
        raise typer.BadParameter(f"{text!r} is not a whole number.")
    return int(text)


def decimal(text: object) -> object:
    """Return the number of a text, for `parser` of an option. Python itself also reads `1_0`."""
    if not isinstance(text, str):
        return text  # the default
    try:
        if "_" not in text:
            return float(text)
    except ValueError:
        pass
    raise typer.BadParameter(f"{text!r} is not a number.")


def number(
    *names: str,
    panel: str,
    within: limits.Range,
    parser: Callable[[object], object] = integer,
    metavar: str = "N",
    **how: Any,
) -> Any:
    """Return a numeric option with bounds. Its help omits them, since they are far from any sensible value.

    Args:
        names: The names of the option.
        panel: Its panel.
        within: Its bounds.
        parser: `integer` or `decimal`.
        metavar: Stands for the value in the help.
        how: Passed to `typer.Option`.
    """

    def check(value: float | None) -> float | None:
        if value is not None and not within.min <= value <= within.max:  # nan is within no bounds
            raise typer.BadParameter(f"{value} is out of range; give a number from {within.min:,} to {within.max:,}.")
        return value

    return typer.Option(*names, rich_help_panel=panel, metavar=metavar, callback=check, parser=parser, **how)


def choice(*names: str, panel: str, values: tuple[str, ...], **how: Any) -> Any:
    """Return an option that takes one of a few values, which the Tab key completes."""

    def check(parameter: typer.CallbackParam, value: str | None) -> str | None:
        if value is not None and value not in values:
            raise UsageError(f"{_shown_name(parameter)} {value}: choose from {', '.join(values)}")
        return value

    complete = completion.values(values)
    return typer.Option(
        *names, rich_help_panel=panel, metavar="|".join(values), autocompletion=complete, callback=check, **how
    )


def pairs_option(*names: str, help: str, show_default: str) -> Any:
    """Return an option that names sentence pairs."""
    return option(*names, panel=panels.DATA, metavar="PATH", help=help, show_default=show_default)


def only(name: str, values: Sequence[str] | None, remedy: str) -> str | None:
    """Return the value of an option that may be given once. Of an option that is no list, typer would take the last.

    Args:
        name: The name of the option.
        values: Its values; None: it is not set.
        remedy: What to do instead of giving it more than once.

    Raises:
        UsageError: It is given more than once.
    """
    if not values:
        return None
    if len(values) > 1:
        raise UsageError(f"{name}: given more than once ({', '.join(values)}); {remedy}")
    return values[0]


def language_option(*names: str, help: str, show_default: str) -> Any:
    """Return an option that names a language by its code or its name; the name `english` becomes `en`."""

    def code(value: str | None) -> str | None:
        from mtcli.text.languages import code_of_name

        return None if value is None else code_of_name(value)

    return option(*names, panel=panels.DATA, metavar="CODE", help=help, show_default=show_default, callback=code)


def languages_option(*names: str, help: str, show_default: str) -> Any:
    """Return an option that names one language or several, see `language_option`."""

    def codes(values: list[str] | None) -> list[str] | None:
        from mtcli.text.languages import code_of_name

        return None if values is None else [code_of_name(value) for value in values]

    return option(*names, panel=panels.DATA, metavar="CODE", help=help, show_default=show_default, callback=codes)


def text_file_option(*names: str, help: str, **how: Any) -> Any:
    """Return an option that names a file of lines, or standard input."""
    return option(*names, panel=panels.DATA, metavar="FILE|-", help=help, **how)


def json_flag(help: str) -> Any:
    """Return the option that chooses JSON as the output format."""
    return flag("--json", panel=panels.OUTPUT, help=help)


def output_file(*names: str, panel: str, **how: Any) -> Any:
    """Return an option that names a file to write, as a `Path`. Standard output is refused."""

    def check(parameter: typer.CallbackParam, value: str | None) -> Path | None:
        if value is None:
            return None
        name = _shown_name(parameter)
        if value == STANDARD_OUTPUT:
            raise UsageError(f"{name} -: is written to a file, not to standard output; name a file")
        if value.endswith(os.sep):  # `Path` drops it
            raise UsageError(f"{name} {value}: names a folder; name a file")
        return Path(value)

    return option(*names, panel=panel, callback=check, parser=str, **how)


def output_folder(*names: str, **how: Any) -> Any:
    """Return an option that names a folder to write, as a `Path`."""

    def check(parameter: typer.CallbackParam, value: str | None) -> Path | None:
        if value is None:
            return None
        name = _shown_name(parameter)
        if value == STANDARD_OUTPUT:
            raise UsageError(f"{name} -: is a folder, not standard output; name a folder")
        return Path(value)

    return option(*names, panel=panels.OUTPUT, metavar="DIR", callback=check, parser=str, **how)


def output_folder_option(help: str, show_default: str) -> Any:
    """Return the option `--output` of a command that writes a folder."""
    return output_folder("-o", "--output", help=help, show_default=show_default)


def _shown_name(parameter: typer.CallbackParam) -> str:
    """Return the name of an option for messages: the long one."""
    return max(parameter.opts, key=len)
