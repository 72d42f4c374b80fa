"""The commands `launch` and `sweep`; what imports JAX is imported inside the functions."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import FailedRunsError, UsageError
from ..progress import TerminalReporter
from .console import print_json, print_table, say
from .options import Json, Quiet, Scheduler

if TYPE_CHECKING:
    from ..runs.sweeps import Sweep

# Options after the launched command belong to that command.
LAUNCH_SETTINGS: dict[str, Any] = {"ignore_unknown_options": True, "allow_interspersed_args": False}


def launch(
    command: Annotated[list[str], typer.Argument(metavar="COMMAND...", help="run, fit, compare or resume.")],
    processes: Annotated[int, typer.Option(min=1, help="Number of processes on this host.")],
    coordinator: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT", help="Address of the first process.", show_default="a free port of this host"
        ),
    ] = None,
    nodes: Annotated[int, typer.Option(min=1, help="Number of hosts, each with a launcher.")] = 1,
    node: Annotated[int, typer.Option(min=0, help="Number of this host among them, from 0.")] = 0,
    restarts: Annotated[int, typer.Option(min=0, help="Restarts after a process is lost.")] = 3,
    patience: Annotated[
        float, typer.Option(min=1, help="Seconds that processes wait for each other before one counts as stuck.")
    ] = 600.0,
) -> int:
    """Train in several processes, on one or more hosts.

    Each process holds its share of the points and samples. The first prints and writes; the others compute. All of
    them read the data, and after a loss the folder of the run: several hosts must share both. When a process dies
    or is stuck all restart from the last checkpoint. Ctrl-C and SIGTERM end all, with a checkpoint.

    Under Slurm and Open MPI no launcher is needed: srun trunkfirst fit ...

    Example: trunkfirst launch --processes 2 fit --data my.npz --out runs/mine
    """
    from ..distributed.launch import Launch, launch as start

    def warn(text: str) -> None:
        if "--quiet" not in command:
            typer.echo(f"trunkfirst launch: {text}", err=True)

    return start(Launch(tuple(command), processes, coordinator, node, nodes, restarts, patience), say=warn)


def sweep(
    config: Annotated[Path, typer.Argument(metavar="CONFIG.toml", help="A configuration with a section [sweep].")],
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for the results; an interrupted sweep there is resumed.", show_default="runs/..."
        ),
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes.", show_default="all cores")] = None,
    scheduler: Scheduler = None,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Train with every combination of some settings.

    Writes one table and one figure. The section [sweep] holds lists: width = [20, 40],
    inputs = ["raw", "standardise"], seed = [0, 1, 2].

    Example: trunkfirst sweep my.toml --out runs/widths
    """
    from ..files.text_files import read_toml
    from ..runs.sweeps import make_grid, sweep as run_all
    from .resolve import default_folder

    if not config.is_file():
        raise UsageError(f"there is no configuration file {config}")
    grid = make_grid(read_toml(config))
    folder = out or default_folder(f"{config.stem}-sweep")
    with TerminalReporter(quiet=quiet or json) as reporter:
        reporter.say(f"{len(grid.configs)} runs in {folder}")
        found = run_all(
            grid, folder, workers=workers, scheduler=scheduler, on_run=reporter.on_run, reporter=reporter
        )
    return show_sweep(found, json=json, quiet=quiet)


def show_sweep(found: "Sweep", *, json: bool, quiet: bool) -> int:
    """Write the report of a sweep and print its table; return the exit code."""
    from ..report.sweep_page import sweep_table, write_sweep

    page, summary = write_sweep(found.folder), found.summary()
    if json:
        print_json(summary)
    else:
        table = sweep_table(summary)
        print_table(table.caption, table.header, table.rows, quiet=quiet)
        say("\n".join((*found.explain_failures(), f"report: {page}")), quiet=quiet)
    return FailedRunsError.exit_code if found.failures else 0
