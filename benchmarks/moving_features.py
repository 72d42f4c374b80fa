"""Functions that move with the input against fixed ones, where shocks, fronts and bumps move.

    taskset -c 0 python benchmarks/moving_features.py --clock processor --sets riemann bump --seeds 1

400 samples for training, 100 unseen ones; mean relative l2 errors. Fixed functions are the principal modes of the
outputs with the better of two kernel regressions, by the unseen samples: the best of its kind. The bump has width
0.05 and travels 0.5; there the modes are 8, as many as the functions that move. The sensors of burgers-front show
the jump only to their distance: the floor is the least mean error of any operator, from the exact solutions for
all places of the jump that give the same inputs.
"""

import argparse
import dataclasses as dc
from collections.abc import Sequence
from typing import Any

import numpy as np
from _common import Stopwatch, Table, options_for, publish

import trunkfirst
from trunkfirst.fitting import fit_method
from trunkfirst.moving_trunk import moving_inputs
from trunkfirst.problems.conservation_laws import Start, entropy_solution

# Functions of a member, members, and the iterations of each.
SETS = {
    "riemann": (4, 1, 1000),
    "riemann-strong": (4, 3, 1500),
    "bump": (8, 1, 400),
    "burgers-front": (4, 3, 1000),
}
TRAIN, UNSEEN = slice(0, 400), slice(400, 500)


def main(argv: Sequence[str] | None = None) -> None:
    """Both kinds of trunk on every set."""
    options = options_for(__doc__, _add_options, argv)
    if options.quick:
        options.sets, options.seeds, options.iterations = ["bump"], 1, 20
    rows: list[tuple[Any, ...]] = []
    for name in options.sets:
        data, (width, members, iterations) = make_set(name), SETS[name]
        fixed = fixed_error(data, width if name == "bump" else None)
        for seed in range(options.seeds):
            watch = Stopwatch(options.clock)
            operator = moving(data, width, seed, options.iterations or iterations, members=members)
            seconds = watch.read()
            found = trunkfirst.evaluate(operator, data.take(UNSEEN))
            error, median = float(found.errors.mean()), float(np.median(found.errors))
            rows.append((name, seed, fixed, error, median, float(found.optimal_errors.mean()), seconds))
            print(rows[-1], flush=True)
    head = ("set", "seed", "fixed functions", "moving, mean", "moving, median", "best coefficients", "seconds")
    done = (f"{name} {SETS[name][1]} x {options.iterations or SETS[name][2]:,}" for name in options.sets)
    notes = [f"Members and the iterations of each: {', '.join(done)}."]
    if "burgers-front" in options.sets:
        notes.append(f"The floor of burgers-front is {sensor_floor():.3g}.")
    word = "-".join(["moving-features", *(options.sets if options.sets != list(SETS) else [])])
    publish(word, options, Table(_title(), head, rows, notes), {}, lambda axes: draw(axes, rows))


def _title() -> str:
    return (__doc__ or "").splitlines()[0]


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS), help="which")
    parser.add_argument("--seeds", type=int, default=5, help="seeds of the networks")
    parser.add_argument("--iterations", type=int, help="iterations of step 1, of every set")


def make_set(name: str) -> trunkfirst.OperatorData:
    """500 samples; of a shock tube the velocity."""
    if name == "bump":
        x, a = np.linspace(0, 1, 200), np.random.default_rng(0).uniform(0, 1, (500, 1))
        return trunkfirst.OperatorData(a, x[:, None], np.exp(-(((x - 0.25 - 0.5 * a) / 0.05) ** 2)))
    data = trunkfirst.make_data(name)
    if not data.is_multichannel:
        return data
    velocity = data.outputs[..., data.channel_names.index("velocity")]
    return trunkfirst.OperatorData(data.inputs, data.points, velocity, output_name="velocity")


def fixed_error(data: trunkfirst.OperatorData, width: int | None) -> float:
    """The least error of this number of modes with a kernel; None takes all modes."""
    method = trunkfirst.TwoStep(
        trunkfirst.ModesTrunk(width=width), trunkfirst.Kernel(), inputs=moving_inputs(data), weights="relative"
    )
    branches = (trunkfirst.Kernel(), trunkfirst.Kernel(lengths="each"))
    operators = [fit_method(data.take(TRAIN), dc.replace(method, branch=branch)).operator for branch in branches]
    return min(mean_error(operator, data) for operator in operators)


def moving(
    data: trunkfirst.OperatorData, width: int, seed: int, iterations: int, *, members: int = 1
) -> trunkfirst.Operator:
    """An operator with this number of functions that move, of each member."""
    trunk = trunkfirst.MovingTrunk(width=width, iterations=iterations, members=members)
    method = trunkfirst.TwoStep(trunk, trunkfirst.Kernel(), inputs=moving_inputs(data), weights="relative")
    return fit_method(data.take(TRAIN), method, key=seed).operator


def mean_error(operator: trunkfirst.Operator, data: trunkfirst.OperatorData) -> float:
    """On the unseen samples."""
    return float(trunkfirst.evaluate(operator, data.take(UNSEEN)).errors.mean())


def sensor_floor(places: int = 15) -> float:
    """The mean error of the best field of every fourth unseen sample, if its jump is anywhere between two sensors.

    Of all fields the geometric median has the least mean distance: Weiszfeld's iterations from the mean.
    """
    data = trunkfirst.make_data("burgers-front")
    starts = [Start.draw(rng) for rng in np.random.default_rng(0).spawn(500)]
    if not np.array_equal([start.jump for start in starts], data.labels["jump"]):
        raise RuntimeError("burgers-front: the samples are not those of seed 0")
    spacing, errors = 1 / (data.flat_inputs.shape[1] - 1), []
    for start in starts[TRAIN.stop :: 4]:
        low = spacing * np.floor(start.jump / spacing)
        jumps = low + spacing * (np.arange(places) + 0.5) / places
        fields = np.stack([entropy_solution(dc.replace(start, jump=jump), *data.points.T) for jump in jumps])
        sizes, best = np.linalg.norm(fields, axis=1), fields.mean(axis=0)
        for _ in range(20):
            weights = 1 / (sizes * np.linalg.norm(fields - best, axis=1))
            best = weights @ fields / weights.sum()
        errors.append(np.mean(np.linalg.norm(fields - best, axis=1) / sizes))
    return float(np.mean(errors))


def draw(axes: Any, rows: Sequence[tuple[Any, ...]]) -> None:
    """Errors of both kinds, seed by seed."""
    sets = list(dict.fromkeys(row[0] for row in rows))
    for name, column, marker in (("fixed functions", 2, "s"), ("functions that move", 3, "o")):
        axes.plot([sets.index(row[0]) for row in rows], [row[column] for row in rows], marker, label=name)
    axes.set(yscale="log", ylabel="mean relative l2 error", xticks=range(len(sets)), xticklabels=sets)


if __name__ == "__main__":
    main()
