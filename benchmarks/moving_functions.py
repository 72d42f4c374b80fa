"""Error against the number of functions N: fixed ones, and ones that move with the input.

    taskset -c 0 python benchmarks/moving_functions.py --clock processor

The sets, samples and methods of moving_features.py. Few iterations: with more, those that move fall further.
"""

import argparse
from collections.abc import Sequence
from typing import Any

from _common import Stopwatch, Table, draw_curves, options_for, publish
from moving_features import SETS, fixed_error, make_set, mean_error, moving


def main(argv: Sequence[str] | None = None) -> None:
    """Both curves of one set."""
    options = options_for(__doc__, _add_options, argv)
    if options.quick:
        options.set, options.fixed, options.moving, options.iterations = "bump", [4, 8], [2], 20
    data, watch = make_set(options.set), Stopwatch(options.clock)
    fixed = [(N, fixed_error(data, N)) for N in options.fixed]
    moves = [(N, mean_error(moving(data, N, 0, options.iterations), data)) for N in options.moving]
    rows = [("fixed", *each) for each in fixed] + [("moving", *each) for each in moves]
    note = f"{options.iterations:,} iterations for functions that move, seed 0; {watch.read():.0f} s for all rows."
    title = f"{options.set}: mean relative l2 error on 100 unseen samples, with N functions besides the constant"

    def draw(axes: Any) -> None:
        draw_curves(
            axes, {"fixed functions (modes)": fixed, f"that move, {options.iterations:,} iterations": moves}
        )
        axes.set_xscale("log", base=2)
        axes.set(yscale="log", xlabel="N", ylabel="mean relative l2 error", title=options.set)

    publish("moving-functions", options, Table(title, ("functions", "N", "error"), rows, [note]), {}, draw)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--set", choices=SETS, default="riemann", help="which")
    parser.add_argument("--fixed", nargs="+", type=int, default=[2**k for k in range(8)], help="N of fixed ones")
    parser.add_argument("--moving", nargs="+", type=int, default=[1, 2, 4, 8], help="N of those that move")
    parser.add_argument("--iterations", type=int, default=500, help="of those that move")


if __name__ == "__main__":
    main()
