"""`trunkfirst data make` and `data info`: data of the problems we solve."""

from pathlib import Path
from typing import Any

import numpy as np

from ..data import OperatorData, check_data, is_sharded, write_data
from ..problems import get_problem, make_data
from ._console import TerminalReporter, print_json, print_table, say


def make_command(
    problem: str,
    *,
    samples: int | None,
    points: str | None,
    workers: int | None,
    scheduler: str | None,
    out: Path | None,
    json: bool,
    quiet: bool,
) -> int:
    """Make data, or find them made."""
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
    found = describe_data(problem, data)
    if json:
        print_json(found)
    else:
        say(f"{problem}: {found['samples']:,} samples at {found['points']:,} points", quiet=quiet)
    return 0


def info_command(problem: str, *, samples: int | None, json: bool, quiet: bool) -> int:
    """Describe the data of a problem, or of a folder of shards."""
    if is_sharded(Path(problem)):
        return _info_of_shards(Path(problem), json=json, quiet=quiet)
    with TerminalReporter(quiet=quiet or json) as reporter:
        data = make_data(problem, samples=samples, progress=reporter.on_samples)
    found = describe_data(problem, data)
    found["rank"] = numerical_rank(data.outputs)
    if json:
        print_json(found)
    else:
        rows = [[name.replace("_", " "), str(value)] for name, value in found.items()]
        print_table(get_problem(problem).title, ["what", "found"], rows, quiet=quiet)
    return 0


def _info_of_shards(folder: Path, *, json: bool, quiet: bool) -> int:
    found = {"folder": str(folder), **check_data(folder).numbers}
    if json:
        print_json(found)
    else:
        rows = [[name.replace("_", " "), str(value)] for name, value in found.items()]
        print_table(f"{folder}", ["what", "found"], rows, quiet=quiet)
    return 0


def describe_data(problem: str, data: OperatorData) -> dict[str, Any]:
    """Sizes and ranges in plain values."""
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


def numerical_rank(outputs: np.ndarray, tolerance: float = 1e-10) -> int:
    """How many functions span the outputs up to a relative `tolerance`."""
    from ..linear import compress

    return compress(outputs, tolerance=tolerance).factor.shape[0]
