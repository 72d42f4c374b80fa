"""Training on data larger than memory: peak resident memory and time against the number of samples.

    python benchmarks/out_of_core.py --gib 0.25 0.5 1 2 4 8

Samples of multiple-inputs at 541 points, by its closed form for parameters drawn evenly from [0.1, 10]^3, are
written in shards, trained in a process of their own and removed. Everything is as `trunkfirst fit --data FOLDER`
does it with its settings given, so that nothing is chosen. The peak is that of the whole process, libraries
included; seconds are wall time. "passes" are the reading of the samples in memory, the compression and the
coefficients; step 2 is the search on some of the samples and the last layer on all.

    python benchmarks/out_of_core.py --points 1000000

The same with few samples (200) at many random points of a cube, by another closed form.
"""

import argparse
import dataclasses as dc
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from _common import Table, draw_curves, options_for, publish
from peak_memory import peak

import trunkfirst
from trunkfirst.data.operator_data import InputFunction, OperatorData
from trunkfirst.data.read_write import read_data
from trunkfirst.data.sharded_data import write_shards
from trunkfirst.problems.generate import get_problem
from trunkfirst.run_data import DataSettings
from trunkfirst.runs.config import RunConfig
from trunkfirst.runs.run import run

PROBLEM = get_problem("multiple-inputs")
BLOCK = 8192
BYTES = 8 * (len(PROBLEM.mesh.points) + len(PROBLEM.parameter_names))
HEAD = ("samples", "data, GiB", "peak, GiB", "passes, s", "step 1, s", "step 2, s", "all, s", "test error")


def main(argv: Sequence[str] | None = None) -> None:
    """Make the data of each size, train in a child; as a child, one run."""
    options = options_for(__doc__, _add_options, argv)
    options.command = options.command.replace(f" --folder {options.folder}", "")
    if options.child:
        print(json.dumps(train_and_measure(options.child, options.iterations)))
        return
    if options.points:
        measure_points(options)
        return
    if options.quick:
        options.gib, options.iterations = [0.1], 5
    found = [in_child(make_blocks(round(size * 2**30 / BYTES)), options) for size in options.gib]
    rows = [make_row(each) for each in found]

    def draw(axes: Any) -> None:
        curves: dict[str, Sequence[tuple[float, float]]] = {
            "data, GiB": [(each["samples"], each["bytes"] / 2**30) for each in found],
            "peak memory, GiB": [(each["samples"], each["peak"] / 2**30) for each in found],
            "all, hundred seconds": [(each["samples"], each["total"] / 100) for each in found],
            "passes, hundred seconds": [(each["samples"], each["passes"] / 100) for each in found],
        }
        axes.set(xlabel="samples", title="multiple-inputs, 541 points, from shards")
        draw_curves(axes, curves)

    publish("out-of-core", options, Table("Training on data larger than memory", HEAD, rows), found, draw)


def measure_points(options: argparse.Namespace) -> None:
    """Few samples at many points."""
    found = in_child(make_cube(200, options.points), options)

    def draw(axes: Any) -> None:
        axes.bar(("data", "peak memory"), (found["bytes"] / 2**30, found["peak"] / 2**30))
        axes.set(ylabel="GiB", title=f"{found['samples']} samples at {options.points:,} points")

    title = f"Training at {options.points:,} points"
    publish("many-points", options, Table(title, HEAD, [make_row(found)]), found, draw)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--gib", type=float, nargs="+", default=[0.25, 0.5, 1.0], help="sizes of the data")
    parser.add_argument("--points", type=int, help="instead: 200 samples at this number of points of a cube")
    parser.add_argument("--iterations", type=int, default=300, help="of trunk and branch")
    parser.add_argument("--folder", type=Path, help="where the data are while they are needed", default=None)
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)


def in_child(blocks: Iterable[OperatorData], options: argparse.Namespace) -> dict[str, Any]:
    """What a run in another process measured of itself, on these data."""
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        write_shards(blocks, Path(folder) / "data")
        stored = sum(path.stat().st_size for path in (Path(folder) / "data").iterdir())
        command = [sys.executable, __file__, "--child", folder, "--iterations", str(options.iterations)]
        lines = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    found = {**json.loads(lines[-1]), "bytes": stored}
    print(f"{found['samples']:,} samples: {found['peak'] / 2**30:.2f} GiB, {found['total']:.0f} s", flush=True)
    return found


def make_blocks(samples: int) -> Iterator[OperatorData]:
    """Samples by the closed form, a shard of them at a time."""
    for begin in range(0, samples, BLOCK):
        parameters = np.random.default_rng([0, begin]).uniform(0.1, 10, (min(BLOCK, samples - begin), 3))
        yield dc.replace(PROBLEM.assemble(parameters, None), labels={})


def make_cube(samples: int, points: int) -> Iterator[OperatorData]:
    """u(y) = 2 + sin(a . y) + a_1 exp(y_2 y_3) at random points of [-1, 1]^3, ten samples a shard."""
    rng = np.random.default_rng(0)
    y = rng.uniform(-1, 1, (points, 3))
    for _ in range(0, samples, 10):
        a = rng.uniform(0.5, 2, (10, 3))
        yield OperatorData({"a": InputFunction(a)}, y, 2 + np.sin(a @ y.T) + a[:, :1] * np.exp(y[:, 1] * y[:, 2]))


def train_and_measure(folder: Path, iterations: int) -> dict[str, Any]:
    """Samples, seconds by stage, the peak in bytes and the test error."""
    data = read_data(folder / "data")
    method = trunkfirst.TwoStep(
        trunk=trunkfirst.NetworkTrunk(hidden=(50, 50), width=50, iterations=iterations),
        branch=trunkfirst.NetworkBranch(iterations=iterations, decay=1e-8),
        inputs=trunkfirst.StandardisedInputs("log"),
        weights="relative",
    )
    config = RunConfig(data=DataSettings(file=str(folder / "data")), method=method)
    metrics = run(config, folder / "run").metrics
    passes = metrics["stream"]["seconds"]
    return {
        "samples": data.samples,
        "peak": peak() * 1e6,
        "passes": metrics["seconds"]["data"] + sum(passes.values()),
        "step 1": metrics["trunk"]["seconds"],
        "step 2": metrics["branch"]["seconds"],
        "total": metrics["seconds"]["total"] + metrics["seconds"]["data"],
        "error": metrics["test"]["mean_relative_l2"],
        "stages": {"data": metrics["seconds"]["data"], **passes},
    }


def make_row(found: dict[str, Any]) -> tuple[Any, ...]:
    """One line of the table."""
    sizes = (found["bytes"] / 2**30, found["peak"] / 2**30)
    seconds = (round(found[name]) for name in ("passes", "step 1", "step 2", "total"))
    return found["samples"], *sizes, *seconds, found["error"]


if __name__ == "__main__":
    main()
