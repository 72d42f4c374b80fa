"""What checkpoints cost: the trunk search of the paper's problems with them and without.

    taskset -c 1 python benchmarks/checkpoint_cost.py

Both run the same iterations in turn, one with a checkpoint every second, thirty times as often as by default; the
median of the rounds counts. From it follows the share of the time at the default interval.
"""

import argparse
import contextlib
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.random as jr
import numpy as np
from _common import Stopwatch, Table, add_problems, options_for, publish
from profile_trunk import make_search

from trunkfirst.checkpoints import keep_checkpoints
from trunkfirst.minimisers.lbfgs import LBFGS
from trunkfirst.minimisers.loop import minimise

EVERY, DEFAULT = 1.0, 30.0


def main(argv: Sequence[str] | None = None) -> None:
    """Time the searches of each problem."""
    options = options_for(__doc__, _add_options, argv)
    if options.quick:
        options.problems, options.rounds, options.iterations = options.problems[:1], 1, 20
    with jax.enable_x64(True):
        found = {problem: measure(problem, options) for problem in options.problems}

    def draw(axes: Any) -> None:
        shares = [100 * (found[name]["with"] / found[name]["without"] - 1) for name in found]
        axes.bar(list(found), shares)
        axes.axhline(5, color="0.5", linestyle="--", label="promised, at one in 30 s")
        axes.set(ylabel="% more time", title="a checkpoint every second")

    rows: list[tuple[Any, ...]] = []
    for name, each in found.items():
        more = each["with"] / each["without"] - 1
        share = f"{100 * max(more, 0) * EVERY / DEFAULT:.2f} %"
        rows.append((name, each["without"], each["with"], f"{100 * more:.1f} %", share))
    head = ("problem", "without, s", "one a second, s", "more", f"more with one in {DEFAULT:.0f} s, the default")
    publish("checkpoint-cost", options, Table("What checkpoints cost", head, rows), found, draw)


def _add_options(parser: argparse.ArgumentParser) -> None:
    add_problems(parser)
    parser.add_argument("--rounds", type=int, default=5, help="rounds whose median counts")
    parser.add_argument("--iterations", type=int, default=1000, help="of a search")


def measure(name: str, options: argparse.Namespace) -> dict[str, float]:
    """Seconds of a search without checkpoints and with them, after one that compiles."""
    problem, start = make_search(name)

    def seconds(has_checkpoints: bool) -> float:
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
            if has_checkpoints:
                stack.enter_context(keep_checkpoints(Path(folder), interval=EVERY))
            watch = Stopwatch(options.clock)
            minimise(problem, start, LBFGS(), iterations=options.iterations, key=jr.key(0))
            return watch.read()

    for has_checkpoints in (False, True):
        seconds(has_checkpoints)
    rounds = np.array([[seconds(False), seconds(True)] for _ in range(options.rounds)])
    without, with_them = np.median(rounds, axis=0).tolist()
    return {"without": without, "with": with_them}


if __name__ == "__main__":
    main()
