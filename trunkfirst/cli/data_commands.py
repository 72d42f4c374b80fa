"""`trunkfirst data ...`: make, describe, check and convert data."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import OutputExistsError, UsageError
from ..progress import TerminalReporter
from .console import Json, Keys, Quiet, Samples, Scheduler, show

if TYPE_CHECKING:
    from ..data.operator_data import OperatorData
    from ..data.scattered_data import AnyData
    from ..data.sharded_data import ShardedData

data_app = typer.Typer(help="Make, check, describe and convert data.", no_args_is_help=True, rich_markup_mode=None)


@data_app.command("make")
def data_make(
    problem: Annotated[str, typer.Argument(metavar="PROBLEM", help="Name of a problem.")],
    samples: Samples = None,
    points: Annotated[
        str | None,
        typer.Option(
            help='Output points: "random:M" for M random ones, "grid:N" for N x N cells.', show_default="the mesh"
        ),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Number of parallel processes.", show_default="one for each core")
    ] = None,
    scheduler: Scheduler = None,
    out: Annotated[Path | None, typer.Option(help="Also write the samples to a file: .npz, .mat or .h5.")] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Solve a problem by finite elements, and store the samples for later runs.

    Example: trunkfirst data make random-conductivity --samples 10000 --scheduler tcp://127.0.0.1:8786
    """
    from ..data.read_write import write_data
    from ..problems.generate import make_data

    with TerminalReporter(quiet=quiet or json) as reporter:
        data = make_data(
            problem,
            samples=samples,
            points=points,
            workers=workers,
            scheduler=scheduler,
            progress=reporter.on_samples,
        )
    if out is not None:
        write_data(data, out)
    text = f"{problem}: {data.samples:,} samples at {len(data.points):,} points"
    return show(_describe(problem, data), text, json=json, quiet=quiet)


@data_app.command("info")
def data_info(
    problem: Annotated[
        str, typer.Argument(metavar="PROBLEM|FOLDER", help="Name of a problem, or a folder of shards.")
    ],
    samples: Samples = None,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Describe the data of a problem, or of a folder of shards: axes, sizes, ranges, numerical rank."""
    from ..data.data_check import check_data
    from ..data.sharded_data import is_sharded

    if is_sharded(problem):
        title, found = problem, {"folder": problem, **check_data(problem).numbers}
    elif Path(problem).exists():
        raise UsageError(f"{problem} is not a problem; describe a file with: trunkfirst data check {problem}")
    else:
        title, found = _info_of_problem(problem, samples, quiet=quiet or json)
    rows = [[name.replace("_", " "), str(value)] for name, value in found.items()]
    return show(found, (title, ["what", "found"], rows), json=json, quiet=quiet)


def _info_of_problem(problem: str, samples: int | None, *, quiet: bool) -> tuple[str, dict[str, Any]]:
    from ..linear.low_rank import compress
    from ..problems.generate import any_problem, make_data

    with TerminalReporter(quiet=quiet) as reporter:
        data = make_data(problem, samples=samples, progress=reporter.on_samples)
    rank = compress(data.outputs, tolerance=1e-10).factor.shape[0]
    return any_problem(problem).title, {**_describe(problem, data), "rank": rank}


def _describe(problem: str, data: "OperatorData") -> dict[str, Any]:
    """Return sizes and ranges in plain values."""
    return {
        "problem": problem,
        "samples": data.samples,
        "points": len(data.points),
        "coordinates": data.points.shape[1],
        "inputs": {name: f.values.shape[1] for name, f in data.inputs.items()},
        "labels": {name: [float(label.min()), float(label.max())] for name, label in data.labels.items()},
        "output_range": [float(data.outputs.min()), float(data.outputs.max())],
        "has_reference": data.reference_outputs is not None,
    }


@data_app.command("check")
def data_check(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help=".npz, .mat, .h5, .nc, .zarr, a mesh, a folder of meshes, a folder with inputs.csv, points.csv, "
            "outputs.csv, or a folder of shards.",
        ),
    ],
    keys: Keys = None,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Describe a data file: axes, sizes, ranges, rank, the smallest possible error, and what looks suspicious.

    Example: trunkfirst data check my.mat --key inputs=a --key points=x --key outputs=u
    """
    from ..data.data_check import check_data
    from ..data.named_arrays import parse_keys

    found = check_data(file, keys=parse_keys(keys or []))
    suspicious = [f"suspicious: {sentence}" for sentence in found.suspicious] or ["nothing looks suspicious"]
    lines = (f"{file}:", *found.sentences, *suspicious)
    return show({"file": str(file), **found.numbers}, *lines, json=json, quiet=quiet)


@data_app.command("convert")
def data_convert(
    source: Annotated[
        Path, typer.Argument(metavar="IN", help="A file that data check can read, or a folder of shards.")
    ],
    target: Annotated[
        Path | None,
        typer.Argument(
            metavar="OUT", help="File to write: .npz, .mat or .h5; without an ending, a folder of .csv files."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Instead of OUT: folder of shards to write, for data larger than memory."
        ),
    ] = None,
    samples_per_shard: Annotated[
        int | None, typer.Option(min=1, help="Samples in a shard.", show_default="about 32 MiB of them")
    ] = None,
    keys: Keys = None,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Write data in another format, with the standard names, or as shards for data larger than memory.

    An uncompressed .npz (np.savez) larger than memory can be divided into shards. Shards can be joined to one file
    if they fit into memory.

    Examples: trunkfirst data convert my.mat my.npz --key inputs=a --key points=x --key outputs=u

    trunkfirst data convert large.npz --out large, then trunkfirst fit --data large --out runs/large
    """
    from ..data.named_arrays import parse_keys
    from ..data.read_write import read_data, shard_data, write_data
    from ..data.sharded_data import ShardedData

    if (target is None) == (out is None):
        raise UsageError("give either OUT, a file or a folder of .csv files, or --out FOLDER for shards")
    if samples_per_shard is not None and out is None:
        raise UsageError("--samples-per-shard is for a folder of shards: give --out FOLDER instead of OUT")
    if target is not None:
        if target.exists():
            raise OutputExistsError(f"{target} exists already; remove it first or choose another name")
        data = in_memory(read_data(source, keys=parse_keys(keys or [])))
        write_data(data, target)
    else:
        assert out is not None
        data = shard_data(source, out, keys=parse_keys(keys or []), samples_per_shard=samples_per_shard)
        target = out
    found = {"file": str(target), "samples": data.samples, "points": data.points.shape[-2]}
    if isinstance(data, ShardedData):
        found["shards"] = len(data.counts)
    words = f" in {found['shards']:,} shards" if "shards" in found else ""
    text = f"{target}: {data.samples:,} samples at {found['points']:,} points{words}"
    return show(found, text, json=json, quiet=quiet)


def in_memory(data: "AnyData | ShardedData") -> "AnyData":
    """Return all samples at once; a `MemoryNeedError` if they do not fit."""
    from ..data.sharded_data import ShardedData

    if not isinstance(data, ShardedData):
        return data
    from ..memory import check_memory

    check_memory(data.samples, data.numbers, copies=2)
    return data.take(slice(None))
