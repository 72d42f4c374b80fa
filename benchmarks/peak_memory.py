"""Peak resident memory of a run on the paper's three problems: preset fast against the paper's two-step Adam.

    python benchmarks/peak_memory.py

Every run has a process of its own, whose peak the system reports. It needs all of its memory at once and early, so
that a few --iterations are enough. The memory of Python and the libraries alone is in its own column.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

from _common import Table, add_problems, make_run_config, options_for, publish

from trunkfirst.run_data import load_run_data
from trunkfirst.runs.run import run

PRESETS = {"fast": "preset fast", "paper": "two-step Adam"}


def main(argv: Sequence[str] | None = None) -> None:
    """A child for every problem and preset; as a child, one run."""
    options = options_for(__doc__, _add_options, argv)
    if options.child:
        print(json.dumps(run_and_measure(*options.child, options.iterations)))
        return
    if options.quick:
        options.problems, options.iterations = options.problems[:1], 2
    peaks = {p: {preset: in_child(p, preset, options.iterations) for preset in PRESETS} for p in options.problems}
    rows = [make_row(problem, both) for problem, both in peaks.items()]

    def draw(axes: Any) -> None:
        for shift, (preset, label) in zip((-0.2, 0.2), PRESETS.items(), strict=True):
            heights = [both[preset]["peak"] for both in peaks.values()]
            axes.bar([place + shift for place in range(len(peaks))], heights, 0.4, label=label)
        for place, both in enumerate(peaks.values()):
            label = None if place else "outputs"
            axes.hlines(both["fast"]["data"], place - 0.4, place + 0.4, colors="black", label=label)
        axes.set_xticks(range(len(peaks)), list(peaks))
        axes.set(ylabel="MB", title="peak resident memory")

    head = (
        "problem",
        "outputs, MB",
        "libraries, MB",
        "fast, MB",
        "two-step Adam, MB",
        "fast / outputs",
        "Adam / fast",
    )
    publish("peak-memory", options, Table("Peak resident memory of a run", head, rows), peaks, draw)


def _add_options(parser: argparse.ArgumentParser) -> None:
    add_problems(parser)
    parser.add_argument("--iterations", type=int, default=20, help="of trunk and branch: memory needs few")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)


def make_row(problem: str, both: dict[str, dict[str, float]]) -> tuple[Any, ...]:
    """Sizes and their ratios."""
    fast, adam = both["fast"], both["paper"]
    sizes = (fast["data"], fast["before"], fast["peak"], adam["peak"])
    return problem, *map(round, sizes), fast["peak"] / fast["data"], adam["peak"] / fast["peak"]


def in_child(problem: str, preset: str, iterations: int) -> dict[str, float]:
    """What a run in another process measured of itself."""
    command = [sys.executable, __file__, "--child", preset, problem, "--iterations", str(iterations)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])


def run_and_measure(preset: str, problem: str, iterations: int) -> dict[str, float]:
    """Megabytes before the data, of all outputs, and at the peak."""
    before = peak()
    config = make_run_config(preset, problem, {}, iterations=iterations)
    with tempfile.TemporaryDirectory() as folder:
        run(config, folder)
    highest = peak()
    data = load_run_data(config.data, config.problem)
    return {"before": before, "data": data.data.outputs.nbytes / 1e6, "peak": highest}


def peak() -> float:
    """The largest resident size so far; Linux counts it in kibibytes, macOS in bytes."""
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return size / 1e6 if sys.platform == "darwin" else size * 1024 / 1e6


if __name__ == "__main__":
    main()
