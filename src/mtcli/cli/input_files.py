"""Checks of the input files that a command is given, before any work is done."""

import stat
from collections.abc import Mapping
from pathlib import Path

from mtcli.errors import UsageError

STANDARD_INPUT = "-"


def must_exist(*names: str | None) -> None:
    """Check that files can be read. None and `-` pass.

    Raises:
        DataError: A file is missing, is a folder, or may not be read.
    """
    from mtcli.runtime.files import check_readable

    check_readable(*names)


def check_standard_input(files: Mapping[str, str | None]) -> None:
    """Check that at most one option reads standard input, which can be read only once.

    Args:
        files: The value of each option, by a name for messages.

    Raises:
        UsageError: Several options read standard input.
    """
    options = [option for option, name in files.items() if name == STANDARD_INPUT]
    if len(options) > 1:
        raise UsageError(f"{' and '.join(options)}: only one of them can read standard input; name a file")


def check_plain_text(files: Mapping[str, str | None], remedy: str) -> None:
    """Check that files of sentences are not tables, whose lines would be read with their separators and quotes.

    Args:
        files: The value of each option, by a name for messages.
        remedy: What to do with a table instead.

    Raises:
        UsageError: The name of a file has the ending of a table.
    """
    from mtcli.corpus.readers.sources import is_table

    for option, name in files.items():
        if name is not None and is_table(Path(name)):
            raise UsageError(f"{option} {name}: reads plain text, one sentence per line, not a table; {remedy}")


def check_monolingual(files: Mapping[str, str | None]) -> None:
    """Check the monolingual texts of a command.

    Args:
        files: The value of each option, by a name for messages.

    Raises:
        UsageError: One is standard input, a pipe or a device, or the name of one has the ending of a table.
        DataError: One cannot be read.
    """
    for option, name in files.items():
        if name is not None and (name == STANDARD_INPUT or _is_pipe_or_device(name)):
            raise UsageError(f"{option} {name}: the text is read several times; name a file")
    must_exist(*files.values())
    check_plain_text(files, "write its column to a file of its own")


def _is_pipe_or_device(name: str) -> bool:
    try:
        mode = Path(name).stat().st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))
