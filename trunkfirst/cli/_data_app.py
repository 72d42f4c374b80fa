"""`trunkfirst data ...`: the commands about data, as thin as the others."""

from pathlib import Path
from typing import Annotated

import typer

from ._options import Json, Keys, Quiet, Samples, Scheduler

data_app = typer.Typer(help="Make, check, describe and convert data.", no_args_is_help=True, rich_markup_mode=None)


@data_app.command("make")
def data_make(
    problem: Annotated[str, typer.Argument(metavar="PROBLEM", help="A problem by name.")],
    samples: Samples = None,
    points: Annotated[
        str | None,
        typer.Option(help='"random:M" for M random points, "grid:N" for N x N cells.', show_default="the mesh"),
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes.", show_default="all cores")] = None,
    scheduler: Scheduler = None,
    out: Annotated[
        Path | None, typer.Option(help="Also write them to a file (.npz, .mat, .h5) for `fit` or other programs.")
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Solve a problem by finite elements and keep the samples, checksummed, for later runs.

    Example: trunkfirst data make random-conductivity --samples 10000 --scheduler tcp://127.0.0.1:8786
    """
    from ._data import make_command

    return make_command(
        problem,
        samples=samples,
        points=points,
        workers=workers,
        scheduler=scheduler,
        out=out,
        json=json,
        quiet=quiet,
    )


@data_app.command("info")
def data_info(
    problem: Annotated[str, typer.Argument(metavar="PROBLEM", help="A problem by name.")],
    samples: Samples = None,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Describe the data of a problem: axes, sizes, ranges, numerical rank."""
    from ._data import info_command

    return info_command(problem, samples=samples, json=json, quiet=quiet)


@data_app.command("check")
def data_check(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help=".npz, .mat, .h5, or a folder with inputs.csv, points.csv, outputs.csv."
        ),
    ],
    keys: Keys = None,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Say what is in your own file: axes, sizes, ranges, rank, the best reachable error, and what looks wrong.

    Example: trunkfirst data check my.mat --key inputs=a --key points=x --key outputs=u
    """
    from ._own_data import check_command

    return check_command(file, keys=keys or [], json=json, quiet=quiet)


@data_app.command("convert")
def data_convert(
    source: Annotated[Path, typer.Argument(metavar="IN", help="A file that data check can read.")],
    target: Annotated[
        Path, typer.Argument(metavar="OUT", help=".npz, .mat or .h5; without an ending a folder of .csv files.")
    ],
    keys: Keys = None,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Write data in another format, under the usual names.

    Example: trunkfirst data convert my.mat my.npz --key inputs=a --key points=x --key outputs=u
    """
    from ._own_data import convert_command

    return convert_command(source, target, keys=keys or [], json=json, quiet=quiet)
