"""Options that several commands share."""

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

RunFolder: TypeAlias = Annotated[Path, typer.Argument(metavar="DIR", help="A folder written by run or fit.")]
Target: TypeAlias = Annotated[
    str, typer.Argument(metavar="PROBLEM|CONFIG.toml", help="Name of a problem, or a configuration file.")
]
Preset: TypeAlias = Annotated[
    str | None,
    typer.Option(help="fast, or paper (exactly as in the paper).", show_default="fast"),
]
Seed: TypeAlias = Annotated[int | None, typer.Option(help="Seed of the networks.", show_default="0")]
Samples: TypeAlias = Annotated[
    int | None, typer.Option(min=4, help="Number of samples.", show_default="as many as the paper")
]
Iterations: TypeAlias = Annotated[
    int | None, typer.Option(min=1, help="Iterations for each step.", show_default="the preset's")
]
Settings: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Any setting, e.g. --set trunk.activation=tanh. Repeatable."),
]
Out: TypeAlias = Annotated[
    Path | None,
    typer.Option(help="Folder for the results; must not exist or be empty.", show_default="runs/..."),
]
Keys: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--key",
        metavar="KEY=NAME",
        help="Name of an array in the file: --key inputs=a; several: --key points=x,t. Repeatable.",
    ),
]
Scheduler: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Use the workers of a Dask scheduler, e.g. tcp://127.0.0.1:8786; needs the extra dask.",
        show_default=False,
    ),
]
Devices: TypeAlias = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Number of devices in each process over which the work is spread; a CPU is divided into them.",
        show_default="one",
    ),
]
Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
Quiet: TypeAlias = Annotated[bool, typer.Option("--quiet", help="Print no progress and no tables.")]


def default_folder(name: str) -> Path:
    """Return `runs/NAME`, or `runs/NAME-2` and so on if that exists."""
    folder, count = Path("runs") / name, 1
    while folder.exists():
        count += 1
        folder = Path("runs") / f"{name}-{count}"
    return folder
