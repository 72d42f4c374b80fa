"""The command line. Commands are thin: read options, call the library, print."""

import sys
import warnings
from pathlib import Path
from typing import Annotated

import typer
from typer.exceptions import TyperException

from ..errors import TrunkfirstError, UsageError
from ._options import Iterations, Json, Out, Preset, Quiet, Samples, Seed, Settings, Target

app = typer.Typer(
    name="trunkfirst",
    help="Trains deep operator networks (DeepONets) trunk first: fit the trunk, orthonormalise, fit the branch.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
data_app = typer.Typer(help="Make and describe data.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(data_app, name="data")


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit code, and turns our own errors into one line each."""
    warnings.showwarning = _show_warning
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        code = app(args=arguments or ["--help"], standalone_mode=False, prog_name="trunkfirst")
    except TyperException as error:
        # Where Typer has a sentence that names the parameter, that is the better one.
        sentence = getattr(error, "format_message", error.__str__)()
        print(f"trunkfirst: {sentence}", file=sys.stderr)  # noqa: T201
        return UsageError.exit_code
    except TrunkfirstError as error:
        print(f"trunkfirst: {error}", file=sys.stderr)  # noqa: T201
        return error.exit_code
    except typer.Abort:
        return 130
    except KeyboardInterrupt:
        print("trunkfirst: interrupted", file=sys.stderr)  # noqa: T201
        return 130
    return code if isinstance(code, int) else 0


def _show_warning(message: Warning | str, *_: object) -> None:
    print(f"trunkfirst: warning: {message}", file=sys.stderr)  # noqa: T201


@app.command()
def run(
    target: Target,
    method: Annotated[
        str | None,
        typer.Option(help="two-step, two-step-without-qr or monolithic.", show_default="two-step"),
    ] = None,
    preset: Preset = None,
    seed: Seed = None,
    samples: Samples = None,
    iterations: Iterations = None,
    settings: Settings = None,
    out: Out = None,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Make data, train an operator, judge it, write a report: the main job.

    Problems: nonlinear-conductivity, discontinuous-conductivity, multiple-inputs.

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
        settings=settings or [],
        out=out,
        json=json,
        quiet=quiet,
    )


@app.command()
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
        out=out,
        json=json,
        quiet=quiet,
    )


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder written by run or compare.")],
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Draw the figures of a run or comparison again and write its report.html."""
    from ._report import report_command

    return report_command(folder, json=json, quiet=quiet)


@app.command()
def doctor(json: Json = False, quiet: Quiet = False) -> int:
    """Say in one screen whether this machine is ready: versions, devices, precision, write access."""
    from ._doctor import doctor_command

    return doctor_command(json=json, quiet=quiet)


@data_app.command("make")
def data_make(
    problem: Annotated[str, typer.Argument(metavar="PROBLEM", help="A problem by name.")],
    samples: Samples = None,
    points: Annotated[
        str | None, typer.Option(help='"random:M" for M random points.', show_default="the mesh")
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes.", show_default="all cores")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Also write one .npz file with inputs, points, outputs.")
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Solve a problem by finite elements and keep the samples, checksummed, for later runs."""
    from ._data import make_command

    return make_command(problem, samples=samples, points=points, workers=workers, out=out, json=json, quiet=quiet)


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
