"""Commands of the theory, as they are called; the work is in `_theory` and `_diagnose`."""

from pathlib import Path
from typing import Annotated

import typer

from ._options import (
    Json,
    Out,
    Quiet,
    Samples,
)


def diagnose(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder written by run or fit.")],
    data: Annotated[
        Path | None,
        typer.Option(
            help="The same inputs at finer points.",
            show_default="a finer grid for our problems, else the run's data",
        ),
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Say where the error of an operator comes from, and what to improve: width, points, samples or branch.

    Example: trunkfirst diagnose runs/mine --data finer.npz
    """
    from ._diagnose import diagnose_command

    return diagnose_command(folder, data=data, json=json, quiet=quiet)


def sensors(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder written by run or fit.")],
    count: Annotated[int, typer.Option(min=1, help="How many sensors.")],
    method: Annotated[str, typer.Option(help="christoffel, pivoted or exchange.")] = "christoffel",
    inputs: Annotated[
        bool, typer.Option("--inputs", help="Place input sensors instead of output sensors.")
    ] = False,
    out: Annotated[
        Path, typer.Option(help="The .npz or .csv file to write; a picture, .svg, goes beside it.")
    ] = Path("sensors.npz"),
    seed: Annotated[int, typer.Option(min=0, help="Seed of the draws.")] = 0,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Say where to measure, with weights for least squares in the trunk's functions, and how many are enough.

    Example: trunkfirst sensors runs/mine --count 60 --out sensors.npz
    """
    from ._theory import sensors_command

    return sensors_command(
        folder, count=count, method=method, inputs=inputs, out=out, seed=seed, json=json, quiet=quiet
    )


def study(
    target: Annotated[
        str, typer.Argument(metavar="[known-rates|PROBLEM]", help="An operator with known rates, or a problem.")
    ] = "known-rates",
    samples: Samples = None,
    run: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Also the trunk of this run.", show_default=False)
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of samples and sensors.")] = 0,
    out: Out = None,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Observe the error bound: slopes of the error in N, K, m_x and m_y, and its four terms beside the error.

    Example: trunkfirst study nonlinear-conductivity --out runs/study
    """
    from ._theory import study_command

    return study_command(target, samples=samples, run=run, seed=seed, out=out, json=json, quiet=quiet)
