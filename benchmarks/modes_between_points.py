"""Modes against a network as trunk, at points that training never saw.

    taskset -c 0 python benchmarks/modes_between_points.py --clock processor

Operators are trained on a grid or on triangles and compared with the exact solution at the points between: on a
grid twice as fine, without the points of training, or at the centres of the triangles. Mean relative l2 errors of
unseen samples. In the smooth sets the outputs are linear in the inputs, so that modes have no error but that of
the interpolation; its order is the slope of that error against the spacing. The front jumps. Of
nonlinear-conductivity the reference is the same finite-element solution at the nodes between.
"""

import argparse
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from _common import Stopwatch, Table, draw_curves, options_for, publish
from scipy.spatial import Delaunay

import trunkfirst
from trunkfirst.fitting import fit_method

TRAIN, UNSEEN, FUNCTIONS = 60, 40, 6
SETS = ("line", "square, grid", "square, triangles", "front", "nonlinear-conductivity")
SIZES = (9, 17, 33)


class Pair(NamedTuple):
    """The same samples at the points of training and at those between; the spacing of the former."""

    given: trunkfirst.OperatorData
    between: trunkfirst.OperatorData
    spacing: float


def main(argv: Sequence[str] | None = None) -> None:
    """Both trunks on every set and size."""
    options = options_for(__doc__, _add_options, argv)
    if options.quick:
        options.sets, options.sizes, options.iterations = ["line", "square, triangles"], [9, 17], 20
    rows: list[tuple[Any, ...]] = []
    for name in options.sets:
        before: tuple[float, float] | None = None
        for size in options.sizes:
            pair = make_pair(name, size)
            modes, how, _ = errors_of(trunkfirst.ModesTrunk(), pair, options.clock)
            width = min(12, len(pair.given.points) - 2)
            network = trunkfirst.NetworkTrunk((30, 30), width, iterations=options.iterations, starts=1)
            trained, _, seconds = errors_of(network, pair, options.clock)
            order = None if before is None else math.log(before[1] / modes[1]) / math.log(before[0] / pair.spacing)
            before = (pair.spacing, modes[1]) if modes[0] < 1e-6 else None
            rows.append((name, len(pair.given.points), how, *modes, order, *trained, seconds))
            print(rows[-1], flush=True)
    head = (
        *("set", "points", "between", "modes, at points", "modes, between", "order"),
        *("network, at points", "network, between", "network, seconds"),
    )
    notes = (f"{TRAIN} samples for training, {UNSEEN} unseen; network: {options.iterations:,} iterations.",)
    title = (__doc__ or "").splitlines()[0]
    publish("modes-between-points", options, Table(title, head, rows, notes), {}, lambda axes: draw(axes, rows))


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS), help="which")
    parser.add_argument("--sizes", nargs="+", type=int, default=list(SIZES), help="points along an axis")
    parser.add_argument("--iterations", type=int, default=400, help="iterations of the network trunk")


def errors_of(trunk: Any, pair: Pair, clock: str) -> tuple[tuple[float, float], str, float]:
    """The errors at the points of training and between, how modes are interpolated, and seconds."""
    is_nonlinear = pair.given.flat_inputs.shape[1] == 1
    branch = trunkfirst.Kernel() if is_nonlinear else trunkfirst.Linear(1e-12)
    method = trunkfirst.TwoStep(trunk, branch, inputs=trunkfirst.StandardisedInputs(), weights="none")
    watch = Stopwatch(clock)
    operator = fit_method(pair.given.take(slice(0, TRAIN)), method).operator
    seconds = watch.read()
    unseen = slice(TRAIN, TRAIN + UNSEEN)
    both = (trunkfirst.evaluate(operator, data.take(unseen)).errors.mean() for data in pair[:2])
    at, between = map(float, both)
    interpolation: Any = getattr(operator.trunk, "interpolation", None)
    how = "-" if interpolation is None else "smooth" if interpolation.is_smooth else "linear"
    return (at, between), how, seconds


# -- sets


def make_pair(name: str, size: int) -> Pair:
    """The samples of a set for `size` points along an axis."""
    if name == "nonlinear-conductivity":
        return conductivity(size)
    if name == "square, triangles":
        return triangles(size)
    axes = 1 if name in ("line", "front") else 2
    fine = grid(2 * size - 1, axes)
    is_given = (np.round(fine * (2 * size - 2)).astype(int) % 2 == 0).all(axis=1)
    function = front if name == "front" else smooth
    return Pair(function(fine[is_given]), function(fine[~is_given]), 1 / (size - 1))


def grid(size: int, axes: int) -> np.ndarray:
    """Points of the unit interval or square."""
    x = np.linspace(0, 1, size)
    return np.stack(np.meshgrid(*[x] * axes, indexing="ij"), axis=-1).reshape(-1, axes)


def smooth(points: np.ndarray) -> trunkfirst.OperatorData:
    """u = sum a_k sin(k x + 1) cos(k y) / k: the amplitudes are the inputs."""
    a = np.random.default_rng(0).normal(size=(TRAIN + UNSEEN, FUNCTIONS))
    k = np.arange(1, FUNCTIONS + 1)[:, None]
    waves = np.sin(k * points[:, 0] + 1) * (np.cos(k * points[:, 1]) if points.shape[1] > 1 else 1.0)
    return trunkfirst.OperatorData(a, points, a @ (waves / k))


def front(points: np.ndarray) -> trunkfirst.OperatorData:
    """u = 1 behind a front at a random place, 0.2 before it."""
    place = np.random.default_rng(0).uniform(0.2, 0.8, (TRAIN + UNSEEN, 1))
    return trunkfirst.OperatorData(place, points, np.where(points[:, 0] < place, 1.0, 0.2))


def triangles(size: int) -> Pair:
    """Random points with those of the boundary, joined by triangles; between them the centres."""
    side = grid(size, 2)
    is_inside = np.all((side > 0) & (side < 1), axis=1, keepdims=True)
    shift = np.random.default_rng(1).uniform(-0.3, 0.3, side.shape) / (size - 1)
    points = side + np.where(is_inside, shift, 0.0)
    centres = points[Delaunay(points).simplices].mean(axis=1)
    return Pair(smooth(points), smooth(centres), 1 / (size - 1))


def conductivity(size: int) -> Pair:
    """Nonlinear conductivity at the nodes of (size - 1)^2 cells, and at those that cells half as large add."""
    make: Callable[..., trunkfirst.OperatorData] = trunkfirst.make_data
    coarse, fine = (
        make("nonlinear-conductivity", samples=TRAIN + UNSEEN, points=f"grid:{cells}", workers=1)
        for cells in (size - 1, 2 * size - 2)
    )
    places = np.round((fine.points + 1) * (size - 1)).astype(int)
    new = (places % 2 == 1).any(axis=1)
    given = trunkfirst.OperatorData(coarse.flat_inputs, coarse.points, coarse.outputs)
    between = trunkfirst.OperatorData(fine.flat_inputs, fine.points[new], fine.outputs[:, new])
    return Pair(given, between, 2 / (size - 1))


def draw(axes: Any, rows: Sequence[tuple[Any, ...]]) -> None:
    """The errors between the points, of modes and networks, against the number of points."""
    for kind, column in (("modes", 4), ("network", 7)):
        names = dict.fromkeys(row[0] for row in rows)
        curves: dict[str, Sequence[tuple[float, float]]] = {
            f"{name}, {kind}": [(row[1], row[column]) for row in rows if row[0] == name] for name in names
        }
        draw_curves(axes, curves)
    axes.set(xscale="log", yscale="log", xlabel="points of training", ylabel="relative l2 error between them")


if __name__ == "__main__":
    main()
