"""Commands that give a trained operator to other programs: export and serve."""

from pathlib import Path
from typing import Annotated

import typer

from ._console import number, print_json, say
from ._options import Json, Quiet, RunFolder


def export(
    folder: RunFolder,
    to: Annotated[
        str,
        typer.Option(
            help="onnx (onnxruntime, any language), stablehlo (JAX), numpy (a Python file that needs only NumPy), "
            "html (an interactive explorer in a browser)."
        ),
    ],
    out: Annotated[Path, typer.Option(help="The file to write, e.g. model.onnx, model.py or page.html.")],
    precision: Annotated[
        str | None, typer.Option(help="single or double.", show_default="the operator's own")
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Write a trained operator to one file for other programs.

    The file does not need this library. It computes outputs from inputs and points in physical units, with
    encoders, branch, trunk and output map. Single precision is refused if it changes outputs by over 1e-5.
    The html page has sliders for the inputs and draws the predicted field; it works offline.

    Example: trunkfirst export runs/mine --to onnx --out model.onnx
    """
    from .. import exporters

    done = exporters.export(folder, to, out, precision=precision)
    if json:
        print_json(
            {"to": to, "precision": done.precision, "bytes": done.size, "error": done.error, "out": str(out)}
        )
        return 0
    cost = "" if done.error is None else f", which changes outputs by {number(done.error)} (relative)"
    say(f"{to} in {done.precision} precision{cost}, {done.size / 1024:,.0f} KiB: {out}", quiet=quiet)
    return 0


def serve(
    folder: RunFolder,
    host: Annotated[str, typer.Option(help="Address to listen on; any but this machine's needs --token.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 selects a free one.")] = 8000,
    token: Annotated[
        str | None,
        typer.Option(help="Token that clients must send.", envvar="TRUNKFIRST_TOKEN", show_default=False),
    ] = None,
    limit_mib: Annotated[float, typer.Option(min=0.001, max=1024, help="Largest request body in MiB.")] = 8.0,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Serve a trained operator over HTTP.

    A page is at /, predictions are at /predict. Needs: pip install 'trunkfirst[serve]'

    Example: trunkfirst serve runs/mine
    """
    from ..serve import Limits
    from ..serve import serve as run_server

    def on_start(url: str) -> None:
        if json:
            print_json({"url": url, "folder": str(folder)})
        else:
            say(f"{folder} is served at {url}; stop with Ctrl-C", quiet=quiet)

    limits = Limits(bytes=int(limit_mib * 2**20))
    run_server(folder, host=host, port=port, token=token, limits=limits, on_start=on_start)
    return 0
