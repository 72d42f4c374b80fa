"""Options that several commands share, and output.

Results go to standard output, everything else to standard error.
"""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from ..errors import without_controls

# Title, titles of the columns, and rows.
Rows: TypeAlias = tuple[str, Sequence[str], Iterable[Sequence[str]]]


def show(found: object, *parts: str | Rows, json: bool, quiet: bool) -> int:
    """Print a result, as JSON or as lines and tables; return the exit code."""
    if json:
        from ..files.text_files import to_json

        typer.echo(to_json(found))
    for part in () if json or quiet else parts:
        say(part) if isinstance(part, str) else _print_table(*part)
    return 0


def _print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right")
    for row in rows:
        table.add_row(*map(without_controls, row))
    # Without a terminal there is no width to respect: long lines are better than cut numbers.
    width = None if sys.stdout.isatty() else 160
    Console(highlight=False, width=width).print(table)


def say(text: str, *, quiet: bool = False) -> None:
    """Print a line, or several; names from files can do nothing to the terminal."""
    if not quiet:
        typer.echo("\n".join(map(without_controls, text.split("\n"))))


def number(value: float | None) -> str:
    """Three digits, or a dash."""
    return "-" if value is None else f"{value:.2e}"


# -- results of runs


def write_run_report(folder: Path) -> Path:
    """Write the report of a run, comparison or sweep."""
    from ..report.pages import write_report, write_sweep

    return (write_sweep if (folder / "sweep.json").is_file() else write_report)(folder)


def validation_lines(metrics: dict[str, Any]) -> list[str]:
    """The error on samples that were left out, with the baselines."""
    from ..records import BASELINES

    error = (metrics.get("validation") or {}).get("mean_relative_l2")
    if error is None:
        return []
    baselines = metrics.get("baseline") or []
    known = [f"{BASELINES[each['kind']]} {number(each['mean_relative_l2'])}" for each in baselines]
    return [f"validation error {number(error)}" + (f" ({', '.join(known)})" if known else "")]


def metrics_table(title: str, metrics: list[dict[str, Any]]) -> Rows:
    """The most important metrics, a row for each run."""
    rows = [_metrics_row(each) for each in metrics]
    return title, list(rows[0]), [list(row.values()) for row in rows]


def _metrics_row(metrics: dict[str, Any]) -> dict[str, str]:
    """The most important metrics of a run, by the title of their column."""
    trunk, branch, test = metrics["trunk"], metrics["branch"] or {}, metrics["test"] or {}
    status = "" if metrics["status"] == "finished" else f" ({metrics['status']})"
    return {
        "method": f"{metrics['method']}{status}",
        "seed": str(metrics["seed"]),
        "loss": number(trunk["loss"]),
        "branch loss": number(branch.get("loss")),
        "rank": str(trunk["rank"]),
        "test mean": number(test.get("mean_relative_l2")),
        "median": number(test.get("median_relative_l2")),
        "max": number(test.get("max_relative_l2")),
        "optimal": number(test.get("optimal_mean_relative_l2")),
        "seconds": f"{trunk['seconds'] + branch.get('seconds', 0):.0f}",
    }


RunFolder: TypeAlias = Annotated[Path, typer.Argument(metavar="DIR", help="A folder written by run or fit.")]
Target: TypeAlias = Annotated[
    str, typer.Argument(metavar="PROBLEM|CONFIG.toml", help="Name of a problem, or a configuration file.")
]
Preset: TypeAlias = Annotated[
    str | None,
    typer.Option(help="fast, or paper (exactly as in the paper).", show_default="fast"),
]
Seed: TypeAlias = Annotated[int | None, typer.Option(help="Seed of the networks.", show_default="0")]
Samples: TypeAlias = Annotated[
    int | None, typer.Option(min=4, help="Number of samples.", show_default="as many as the paper")
]
Iterations: TypeAlias = Annotated[
    int | None, typer.Option(min=1, help="Iterations for each step.", show_default="the preset's")
]
Settings: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Change any setting, e.g. --set trunk.activation=tanh. Can be repeated."
    ),
]
Out: TypeAlias = Annotated[
    Path | None,
    typer.Option(help="Folder for the results; must not exist or be empty.", show_default="runs/..."),
]
Keys: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--key",
        metavar="KEY=NAME",
        help="Name of an array in the file, e.g. --key inputs=a; several: --key points=x,t. Can be repeated.",
    ),
]
Scheduler: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Use the workers of a Dask scheduler, e.g. tcp://127.0.0.1:8786; needs the extra dask.",
        show_default=False,
    ),
]
Devices: TypeAlias = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Number of devices in each process that share the work; a CPU is divided into virtual ones.",
        show_default="one",
    ),
]
Json: TypeAlias = Annotated[
    bool, typer.Option("--json", help="Print one JSON object to standard output, and nothing else.")
]
Quiet: TypeAlias = Annotated[bool, typer.Option("--quiet", help="Print neither progress nor tables.")]


def default_folder(name: str) -> Path:
    """Return `runs/NAME`, or `runs/NAME-2` and so on if that exists."""
    folder, count = Path("runs") / name, 1
    while folder.exists():
        count += 1
        folder = Path("runs") / f"{name}-{count}"
    return folder
