"""The command line. Commands are thin: read options, call the library, print."""

import sys
import warnings
from pathlib import Path
from typing import Annotated

import typer
from typer.exceptions import TyperException

from ..errors import TrunkfirstError, UsageError
from ._data_app import data_app
from ._launch_app import LAUNCH_SETTINGS, launch
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
from ._sweep_app import sweep

app = typer.Typer(
    name="trunkfirst",
    help="Trains deep operator networks (DeepONets) trunk first: fit the trunk, orthonormalise, fit the branch.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(data_app, name="data")
app.command(context_settings=LAUNCH_SETTINGS)(launch)


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


@app.command()
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


@app.command()
def evaluate(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder written by run or fit.")],
    data: Annotated[
        Path | None, typer.Option(help="Data to judge on.", show_default="the run's own test samples")
    ] = None,
    keys: Keys = None,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Judge a trained operator on samples that it has not seen.

    Example: trunkfirst evaluate runs/mine --data test.npz
    """
    from ._own_data import parse_keys
    from ._predict import evaluate_command

    return evaluate_command(folder, data=data, keys=parse_keys(keys or []), json=json, quiet=quiet)


@app.command()
def predict(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder written by run or fit.")],
    inputs: Annotated[Path, typer.Option(help="Inputs: .npz with 'inputs' (and 'sensors'), or .csv.")],
    out: Annotated[Path, typer.Option(help="The .npz file to write.")],
    points: Annotated[
        Path | None, typer.Option(help="Where to predict.", show_default="the training points")
    ] = None,
    level: Annotated[
        float, typer.Option(min=0.5, max=0.99, help="Confidence of the intervals: 0.8, 0.9 or 0.95.")
    ] = 0.9,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Predict the outputs of new inputs, at any points, with intervals where the run has them.

    Example: trunkfirst predict runs/mine --inputs new.npz --out predicted.npz
    """
    from ._predict import predict_command

    return predict_command(folder, inputs=inputs, points=points, out=out, level=level, json=json, quiet=quiet)


@app.command()
def export(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder written by run or fit.")],
    to: Annotated[
        str,
        typer.Option(
            help="onnx (onnxruntime, any language), stablehlo (JAX), numpy (one Python file, NumPy alone), "
            "html (a page to play with in a browser)."
        ),
    ],
    out: Annotated[Path, typer.Option(help="The file to write, e.g. model.onnx, model.py or page.html.")],
    precision: Annotated[
        str | None, typer.Option(help="single or double.", show_default="the operator's own")
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Write a trained operator into one file that other programs can run without this library.

    The file computes outputs from inputs and points, in physical units: encoders, branch, trunk and output map are
    in it. Single precision is refused where it would change the outputs by more than 1e-5. The page, html, has
    sliders for the inputs and draws the predicted field; it opens from disk, without a network.

    Example: trunkfirst export runs/mine --to onnx --out model.onnx
    """
    from ._export import export_command

    return export_command(folder, to=to, out=out, precision=precision, json=json, quiet=quiet)


@app.command()
def serve(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder written by run or fit.")],
    host: Annotated[str, typer.Option(help="Address to listen on; others than this machine need --token.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")] = 8000,
    token: Annotated[
        str | None,
        typer.Option(help="What clients must send.", envvar="TRUNKFIRST_TOKEN", show_default=False),
    ] = None,
    limit_mib: Annotated[float, typer.Option(min=0.001, max=1024, help="Largest body of a request, MiB.")] = 8.0,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Serve a trained operator over HTTP: a page at /, predictions at /predict.

    Needs: pip install 'trunkfirst[serve]'

    Example: trunkfirst serve runs/mine
    """
    from ._serve import serve_command

    return serve_command(folder, host=host, port=port, token=token, limit_mib=limit_mib, json=json, quiet=quiet)


@app.command()
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


@app.command()
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


@app.command()
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


app.command()(sweep)


@app.command()
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
