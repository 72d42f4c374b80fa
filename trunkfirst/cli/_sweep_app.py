"""`trunkfirst sweep ...` as it is called; the work is in `_sweep`, which imports JAX."""

from pathlib import Path
from typing import Annotated

import typer

from ._options import Json, Quiet, Scheduler


def sweep(
    config: Annotated[Path, typer.Argument(metavar="CONFIG.toml", help="A configuration with a section [sweep].")],
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the results; one where it was broken off goes on.", show_default="runs/..."),
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes.", show_default="all cores")] = None,
    scheduler: Scheduler = None,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Train with every combination of some settings: widths, encoders, seeds; one table, one figure.

    [sweep] holds lists: width = [20, 40], branch.encoder = ["none", "log"], seed = [0, 1, 2].

    Example: trunkfirst sweep my.toml --out runs/widths
    """
    from ._sweep import sweep_command

    return sweep_command(config, workers=workers, scheduler=scheduler, out=out, json=json, quiet=quiet)
