"""Output: tables and JSON. Results go to standard output, everything else to standard error.

Rich is imported when it is needed, because it would slow down --help.
"""

import sys
from collections.abc import Iterable, Sequence

import typer

from ..errors import without_controls


def print_json(value: object) -> None:
    """Print a JSON object."""
    from ..files.text_files import to_json

    typer.echo(to_json(value))


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], *, quiet: bool = False) -> None:
    """Print a table."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right")
    for row in rows:
        table.add_row(*map(without_controls, row))
    # Without a terminal there is no width to respect: long lines are better than cut numbers.
    width = None if sys.stdout.isatty() else 160
    Console(quiet=quiet, highlight=False, width=width).print(table)


def say(text: str, *, quiet: bool = False) -> None:
    """Print a line, or several; names from files can do nothing to the terminal."""
    if not quiet:
        typer.echo("\n".join(map(without_controls, text.split("\n"))))


def number(value: float | None) -> str:
    """Three digits, or a dash."""
    return "-" if value is None else f"{value:.2e}"
