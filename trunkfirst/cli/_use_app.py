"""Commands for what was trained, as they are called; the work is in files that import JAX when it is asked for."""

from pathlib import Path
from typing import Annotated

import typer

from ._options import (
    Json,
    Keys,
    Quiet,
)


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


def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder written by run or compare.")],
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Draw the figures of a run or comparison again and write its report.html."""
    from ._report import report_command

    return report_command(folder, json=json, quiet=quiet)


def export(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder written by run or fit.")],
    to: Annotated[
        str,
        typer.Option(
            help="onnx (onnxruntime, any language), stablehlo (JAX), numpy (one Python file, NumPy alone), "
            "html (interactive explorer for the browser)."
        ),
    ],
    out: Annotated[Path, typer.Option(help="The file to write, e.g. model.onnx, model.py or page.html.")],
    precision: Annotated[
        str | None, typer.Option(help="single or double.", show_default="the operator's own")
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Write a trained operator to one file that other programs can run without this library.

    The file computes outputs from inputs and points, in physical units; it contains encoders, branch, trunk and
    output map. Single precision is refused if it would change the outputs by more than 1e-5. The interactive
    explorer, html, has sliders for the inputs and draws the predicted field; it opens from disk and needs no
    network.

    Example: trunkfirst export runs/mine --to onnx --out model.onnx
    """
    from .deploy import export_command

    return export_command(folder, to=to, out=out, precision=precision, json=json, quiet=quiet)


def serve(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder written by run or fit.")],
    host: Annotated[str, typer.Option(help="Address to listen on; all but loopback addresses need --token.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")] = 8000,
    token: Annotated[
        str | None,
        typer.Option(help="Token that clients must send.", envvar="TRUNKFIRST_TOKEN", show_default=False),
    ] = None,
    limit_mib: Annotated[float, typer.Option(min=0.001, max=1024, help="Largest body of a request, MiB.")] = 8.0,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Serve a trained operator over HTTP: an interactive explorer at /, predictions at /predict.

    Needs: pip install 'trunkfirst[serve]'

    Example: trunkfirst serve runs/mine
    """
    from .deploy import serve_command

    return serve_command(folder, host=host, port=port, token=token, limit_mib=limit_mib, json=json, quiet=quiet)


def doctor(json: Json = False, quiet: Quiet = False) -> int:
    """Say in one screen whether this machine is ready: versions, devices, precision, write access."""
    from ._doctor import doctor_command

    return doctor_command(json=json, quiet=quiet)
