"""Commands that train, as they are called; the work is in files that import JAX when it is asked for."""

from pathlib import Path
from typing import Annotated

import typer

from ._options import (
    Devices,
    Iterations,
    Json,
    Keys,
    Out,
    Preset,
    Quiet,
    Samples,
    Scheduler,
    Seed,
    Settings,
    Target,
    with_devices,
)


def run(
    target: Target,
    method: Annotated[
        str | None,
        typer.Option(
            help="two-step, two-step-without-qr, monolithic or monolithic-projected.", show_default="two-step"
        ),
    ] = None,
    preset: Preset = None,
    seed: Seed = None,
    samples: Samples = None,
    iterations: Iterations = None,
    settings: Settings = None,
    scheduler: Scheduler = None,
    devices: Devices = None,
    out: Out = None,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Make data, train an operator, judge it, write a report: the main job.

    Problems: nonlinear-conductivity, discontinuous-conductivity, multiple-inputs, random-conductivity.

    Example: trunkfirst run nonlinear-conductivity --iterations 5000
    """
    from ._run import run_command

    return run_command(
        target,
        methods=None if method is None else [method],
        preset=preset,
        seed=seed,
        samples=samples,
        iterations=iterations,
        settings=with_devices(settings, devices),
        scheduler=scheduler,
        out=out,
        json=json,
        quiet=quiet,
    )


def compare(
    target: Target,
    methods: Annotated[
        str, typer.Option(help="Methods, comma separated.")
    ] = "two-step,two-step-without-qr,monolithic",
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds for each method.")] = 1,
    preset: Preset = None,
    seed: Seed = None,
    samples: Samples = None,
    iterations: Iterations = None,
    settings: Settings = None,
    scheduler: Scheduler = None,
    out: Out = None,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Train with several methods on the same data and set them beside the paper's figures.

    Example: trunkfirst compare nonlinear-conductivity --seeds 5
    """
    from ._compare import compare_command

    return compare_command(
        target,
        methods=list(dict.fromkeys(name.strip() for name in methods.split(","))),
        seeds=seeds,
        preset=preset,
        seed=seed,
        samples=samples,
        iterations=iterations,
        settings=settings or [],
        scheduler=scheduler,
        out=out,
        json=json,
        quiet=quiet,
    )


def fit(
    data: Annotated[
        Path | None, typer.Option(help="Your data: .npz, .mat, .h5 or a folder of CSV files.", show_default=False)
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the results; must not exist or be empty.")] = Path(
        "runs/fit"
    ),
    config: Annotated[
        Path | None, typer.Option(help="Settings in a TOML file; all are optional.", show_default=False)
    ] = None,
    minutes: Annotated[float, typer.Option(min=0.1, help="About how long it may take.")] = 5.0,
    test_share: Annotated[
        float | None,
        typer.Option(
            min=0.0, max=0.9, help="Share of samples kept for judging; 0 if you keep your own.", show_default="0.1"
        ),
    ] = None,
    earlier: Annotated[
        Path | None,
        typer.Option("--from", metavar="DIR", help="Add the samples to an earlier fit.", show_default=False),
    ] = None,
    seed: Seed = None,
    settings: Settings = None,
    devices: Devices = None,
    keys: Keys = None,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Train on your own data: inputs, points and outputs in a file, and nothing else to set.

    Widths, encoders, weights and branch are chosen on validation samples; everything chosen stands in
    config.toml and can be set by hand. `trunkfirst data check FILE` says beforehand what a file holds.

    Example: trunkfirst fit --data my.npz --out runs/mine
    """
    from ._fit import fit_command

    return fit_command(
        data=data,
        config=config,
        minutes=minutes,
        test_share=test_share,
        earlier=earlier,
        seed=seed,
        settings=with_devices(settings, devices),
        keys=keys or [],
        out=out,
        json=json,
        quiet=quiet,
    )


def resume(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="A folder of run, fit, compare or sweep, broken off.")
    ],
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Go on with a run, fit, comparison or sweep that was broken off, to the same result to the bit.

    Ctrl-C, SIGTERM, a crash or a power cut cost at most checkpoint_seconds (30) of work.

    Example: trunkfirst resume runs/mine
    """
    from ._resume import resume_command

    return resume_command(folder, json=json, quiet=quiet)
