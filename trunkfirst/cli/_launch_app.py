"""The command `launch` and its options."""

from typing import Annotated, Any

import typer

# What follows the command that is launched belongs to that.
LAUNCH_SETTINGS: dict[str, Any] = {"ignore_unknown_options": True, "allow_interspersed_args": False}


def launch(
    command: Annotated[list[str], typer.Argument(metavar="COMMAND...", help="run, fit, compare or resume.")],
    processes: Annotated[int, typer.Option(min=1, help="How many processes on this host.")],
    coordinator: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT", help="Where the first process listens.", show_default="a free port of this host"
        ),
    ] = None,
    nodes: Annotated[int, typer.Option(min=1, help="How many hosts do the same, each with a launcher.")] = 1,
    node: Annotated[int, typer.Option(min=0, help="The number of this host among them, from 0.")] = 0,
    restarts: Annotated[int, typer.Option(min=0, help="How often all start again when a process is lost.")] = 3,
    patience: Annotated[
        float, typer.Option(min=1, help="Seconds that processes wait for each other before one counts as stuck.")
    ] = 600.0,
) -> int:
    """Train in several processes, on one host or on many: each holds its share of the points and samples.

    The first process prints and writes; the others compute. All read the data, and, to go on after a loss, the
    folder of the run: on several hosts both must lie in a folder that they share. When a process dies or is stuck
    all start again from the last checkpoint. Ctrl-C and SIGTERM end all, with a checkpoint.

    Under Slurm no launcher is needed: srun trunkfirst fit ... finds its place by itself.

    Example: trunkfirst launch --processes 2 fit --data my.npz --out runs/mine
    """
    from ..runs import Launch
    from ._launch import launch_command

    return launch_command(Launch(tuple(command), processes, coordinator, node, nodes, restarts, patience))
