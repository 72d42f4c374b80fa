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
    problem: Annotated[
        str, typer.Argument(metavar="PROBLEM|FOLDER", help="A problem by name, or a folder of shards.")
    ],
    samples: Samples = None,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Describe the data of a problem, or of a folder of shards: axes, sizes, ranges, numerical rank."""
    from ._data import info_command

    return info_command(problem, samples=samples, json=json, quiet=quiet)


@data_app.command("check")
def data_check(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help=".npz, .mat, .h5, a folder with inputs.csv, points.csv, outputs.csv, or a folder of shards.",
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
    source: Annotated[
        Path, typer.Argument(metavar="IN", help="A file that data check can read, or a folder of shards.")
    ],
    target: Annotated[
        Path | None,
        typer.Argument(metavar="OUT", help=".npz, .mat or .h5; without an ending a folder of .csv files."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Instead of OUT: a folder of shards, to train on more than fits in memory."
        ),
    ] = None,
    samples_per_shard: Annotated[
        int | None, typer.Option(min=1, help="Samples in a shard.", show_default="about 32 MiB of them")
    ] = None,
    keys: Keys = None,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Write data in another format, under the usual names; or in shards, for data larger than memory.

    An uncompressed .npz larger than memory (np.savez) can be cut into shards; shards go back into one file where
    they fit into memory.

    Examples: trunkfirst data convert my.mat my.npz --key inputs=a --key points=x --key outputs=u

    trunkfirst data convert large.npz --out large, then trunkfirst fit --data large --out runs/large
    """
    from ._own_data import convert_command

    return convert_command(
        source,
        target,
        out=out,
        samples_per_shard=samples_per_shard,
        keys=keys or [],
        json=json,
        quiet=quiet,
    )
