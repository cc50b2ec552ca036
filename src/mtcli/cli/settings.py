"""`mtcli train --list-settings`."""

import sys


def print_settings() -> None:
    """Print every setting with its type, default and meaning: tables on a terminal, otherwise one line per setting."""
    from mtcli.config.settings import to_text

    if sys.stdout.isatty():
        _print_tables()
    else:
        print(to_text(), end="")


def _print_tables() -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from mtcli.config.settings import sections

    console = Console(highlight=False)
    for section in sections():
        table = Table(title=Text(f"{section.name}: {section.meaning}", style="bold"), title_justify="left", box=None)
        table.add_column("setting", style="cyan", no_wrap=True, header_style="dim")
        table.add_column("type", style="yellow", header_style="dim")
        table.add_column("default", header_style="dim")
        table.add_column("meaning", header_style="dim", ratio=1)
        for setting in section.settings:
            table.add_row(setting.name, setting.type, setting.default, Text(setting.meaning))
        console.print(table)
        console.print()
