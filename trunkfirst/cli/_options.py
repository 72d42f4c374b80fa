"""Options that several commands share."""

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

Target: TypeAlias = Annotated[
    str, typer.Argument(metavar="PROBLEM|CONFIG.toml", help="A problem by name, or a configuration file.")
]
Preset: TypeAlias = Annotated[
    str | None,
    typer.Option(help="fast, or paper (the paper to the letter).", show_default="fast"),
]
Seed: TypeAlias = Annotated[int | None, typer.Option(help="Seed of the networks.", show_default="0")]
Samples: TypeAlias = Annotated[
    int | None, typer.Option(min=4, help="How many samples.", show_default="as many as the paper")
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
        "--key", metavar="KEY=NAME", help="What an array is called in the file, e.g. --key inputs=a. Repeatable."
    ),
]
Scheduler: TypeAlias = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Let the workers of a Dask scheduler do the work, e.g. tcp://127.0.0.1:8786; needs the extra dask.",
        show_default=False,
    ),
]
Devices: TypeAlias = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Spread the work over so many devices, in each process; a CPU is divided into them.",
        show_default="one",
    ),
]
Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
Quiet: TypeAlias = Annotated[bool, typer.Option("--quiet", help="Print no progress and no tables.")]


def with_devices(settings: list[str] | None, devices: int | None) -> list[str]:
    """`--devices N` is `--set devices=N`."""
    return [*(settings or []), *([] if devices is None else [f"devices={devices}"])]
