"""Splines through points that form a grid: everything that is computed once, in NumPy and SciPy.

`interpolants.GridSpline` evaluates them in JAX.
"""

import math
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int
from scipy.interpolate import BSpline, make_interp_spline

# Coordinates that differ by less, relative to the extent of the points or to the period, are the same.
SAME = 1e-9
# At points left out, the squared error of smooth functions must be below this share of that of linear ones.
GAIN = 0.5
# Lines, quadrilaterals and hexahedra: their names in VTK, and their corners in its order.
_QUAD = ((0, 0), (1, 0), (1, 1), (0, 1))
_CELLS = {
    1: ("line", ((0,), (1,))),
    2: ("quad", _QUAD),
    3: ("hexahedron", tuple((*corner, top) for top in (0, 1) for corner in _QUAD)),
}
# An axis with fewer points is not thinned out for that choice.
_FEWEST = 8


class Axis(NamedTuple):
    """Splines along one axis of a grid."""

    degree: int
    coefficients: Float[np.ndarray, "splines ..."]
    cells: Float[np.ndarray, "cells _"]
    """Start, 1 / width, and the coefficients of the powers 0, 1, ... of the splines that are not zero there."""


def is_grid(points: Float[np.ndarray, "points coordinates"]) -> bool:
    """Whether the points are all combinations of some values of each coordinate, in any order."""
    axes, places = _axes(points)
    shape = tuple(map(len, axes))
    return math.prod(shape) == len(points) and len(np.unique(np.ravel_multi_index(places, shape))) == len(points)


def grid_axes(points: Float[np.ndarray, "points coordinates"]) -> list[Float[np.ndarray, " _"]]:
    """The distinct values of every coordinate, ascending."""
    return _axes(points)[0]


def grid_order(
    points: Float[np.ndarray, "points coordinates"],
) -> tuple[list[Float[np.ndarray, " _"]], Int[np.ndarray, " points"]]:
    """The axes of the grid, and which point is at each of its places, the last axis running fastest."""
    axes, places = _axes(points)
    order = np.empty(len(points), np.int64)
    order[np.ravel_multi_index(places, tuple(map(len, axes)))] = np.arange(len(points))
    return axes, order


def grid_cells(
    points: Float[np.ndarray, "points coordinates"],
) -> tuple[str, Int[np.ndarray, "cells corners"]] | None:
    """The cells between points that form a grid, after their name in VTK; None for other points."""
    if not is_grid(points):
        return None
    axes, order = grid_order(points)
    shape = [len(axis) for axis in axes if len(axis) > 1]
    if len(shape) not in _CELLS:
        return None
    kind, corners = _CELLS[len(shape)]
    places = order.reshape(shape)
    starts = [tuple(slice(c, n - 1 + c) for c, n in zip(corner, shape, strict=True)) for corner in corners]
    return kind, np.stack([places[start].ravel() for start in starts], axis=1)


def on_grid(
    points: Float[np.ndarray, "points coordinates"], values: Float[np.ndarray, "points functions"]
) -> tuple[list[Float[np.ndarray, " _"]], Float[np.ndarray, "*axes functions"]]:
    """The axes of the grid, and the values in its order, in double precision."""
    axes, places = _axes(points)
    field = np.empty((*map(len, axes), values.shape[1]))
    field[places] = values
    return axes, field


def wrapped(x: Any, start: Any, period: float) -> Any:
    """x shifted by multiples of the period to [start, start + period)."""
    floor = np.floor if isinstance(x, np.ndarray) else jnp.floor
    return x - period * floor((x - start) / period)


def _axes(points: np.ndarray) -> tuple[list[np.ndarray], tuple[np.ndarray, ...]]:
    """The distinct values of every coordinate, ascending, and the place of each point among them."""
    found = [_distinct(x) for x in points.T]
    return [values for values, _ in found], tuple(places for _, places in found)


def _distinct(x: Float[np.ndarray, " points"]) -> tuple[Float[np.ndarray, " _"], Int[np.ndarray, " points"]]:
    order = np.argsort(x, kind="stable")
    is_new = np.diff(x[order], prepend=-np.inf) > SAME * np.ptp(x)
    places = np.empty(len(x), np.int64)
    places[order] = np.cumsum(is_new) - 1
    return x[order][is_new], places


def axis_spline(x: Float[np.ndarray, " n"], field: np.ndarray, period: float, *, smooth: bool) -> Axis:
    """The spline through `field` along its first axis: cubic if smooth and there are four points, else linear."""
    if len(x) == 1:
        return Axis(0, field, np.array([[x[0], 0.0, 1.0]]))
    degree = 3 if smooth and len(x) >= 4 else 1
    if period:
        x, field = _whole_period(x, field, period)
    spline = make_interp_spline(x, field, k=degree, bc_type="periodic" if period and degree == 3 else None)
    return Axis(degree, spline.c, _cells(spline.t, degree))


def _whole_period(x: np.ndarray, field: np.ndarray, period: float) -> tuple[np.ndarray, np.ndarray]:
    """The points of one period in ascending order, the first once more at the end."""
    x, places = _distinct(wrapped(x, x[0], period))
    first = np.unique(places, return_index=True)[1][x < x[0] + period * (1 - SAME)]
    x = x[: len(first)]
    return np.append(x, x[0] + period), field[np.append(first, first[0])]


def _cells(knots: np.ndarray, degree: int) -> Float[np.ndarray, "cells _"]:
    ends = np.unique(knots[degree : len(knots) - degree])
    starts, widths = ends[:-1], np.diff(ends)
    # In a cell the splines are polynomials, which their values at degree + 1 places determine.
    s = (np.arange(degree + 1) + 0.5) / (degree + 1)
    inside = starts[:, None] + widths[:, None] * s
    splines = BSpline.design_matrix(inside.ravel(), knots, degree).data.reshape(-1, degree + 1, degree + 1)
    powers = np.linalg.solve(np.vander(s, increasing=True), splines)
    return np.column_stack([starts, 1 / widths, powers.reshape(len(starts), -1)])


def is_smooth_on_grid(
    points: Float[np.ndarray, "points coordinates"], values: Float[np.ndarray, "points functions"]
) -> bool:
    """Whether cubic splines through every other point of the axes predict the others better than linear ones."""
    axes, field = on_grid(points, values)
    linear, cubic = (_squared_error(axes, field, degree) for degree in (1, 3))
    return cubic < GAIN * linear


def _squared_error(axes: list[np.ndarray], field: np.ndarray, degree: int) -> float:
    kept = [_every_other(len(x)) for x in axes]
    predicted = field[np.ix_(*kept, np.arange(field.shape[-1]))]
    for axis, (x, some) in enumerate(zip(axes, kept, strict=True)):
        if len(some) < len(x):
            predicted = make_interp_spline(x[some], predicted, k=degree, axis=axis)(x)
    return float(np.sum((predicted - field) ** 2))


def _every_other(count: int) -> Int[np.ndarray, " _"]:
    """With both ends."""
    return np.arange(count) if count < _FEWEST else np.unique([*range(0, count, 2), count - 1])
