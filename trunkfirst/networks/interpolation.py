"""Functions that are known at points, evaluated between them: splines on grids, triangles and tetrahedra elsewhere.

All classes compute a weighted sum of the rows of a table; the rows and weights depend on the point. They are
written with few JAX primitives, all of which can be exported.
"""

import abc
import functools as ft
import itertools
import math
from collections.abc import Callable, Iterable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from scipy.interpolate import BSpline, make_interp_spline

from ..errors import DataError, UsageError
from .simplices import (
    GAIN,
    barycentric_slopes,
    derivatives,
    is_smooth_between,
    make_bins,
    make_mesh,
    monomials,
    wrapped,
)

# Coordinates that differ by less, relative to the extent of the points, are the same on an axis of a grid.
_SAME = 1e-9
_MOST_AXES = 4
# The choice between linear and smooth uses the most important functions. An axis takes part from this many points.
_FUNCTIONS, _FEWEST = 32, 8
_FAR = float(np.finfo(np.float32).max)


class AbstractInterpolation(eqx.Module):
    """Functions of points (n, coordinates), with values (n, functions)."""

    table: eqx.AbstractVar[Float[Array, "rows functions"]]

    @abc.abstractmethod
    def __call__(self, points: Float[Array, "n coordinates"]) -> Float[Array, "n functions"]:
        """All functions at the points."""

    @property
    @abc.abstractmethod
    def coordinates(self) -> int:
        """The number of coordinates of a point."""

    @property
    def functions(self) -> int:
        """The number of functions."""
        return self.table.shape[1]

    @property
    def dtype(self) -> np.dtype:
        """The precision."""
        return self.table.dtype


def interpolate(
    points: Float[np.ndarray, "points coordinates"],
    values: Float[np.ndarray, "points functions"],
    *,
    triangles: Int[np.ndarray, "triangles corners"] | None = None,
    periods: Sequence[float] | None = None,
    importance: Float[np.ndarray, " functions"] | None = None,
    smooth: bool | None = None,
) -> AbstractInterpolation:
    """Functions with these values at these points, between the points linear or smooth.

    Smooth are cubic splines on a grid and blended local quadratics elsewhere; `smooth=None` chooses by leaving
    points out, where `importance` weighs the functions. `triangles`, or tetrahedra in space, are used if they have
    all points as corners; without them the points are joined by a Delaunay triangulation. `periods` has one entry
    a coordinate, 0 for one that does not repeat. The precision is that of `values`.

    Raises a `DataError` for points that coincide or are all on a line, and a `UsageError` for scattered points of
    more than three coordinates.

    >>> import numpy as np
    >>> x = np.linspace(0, 1, 21)[:, None]
    >>> waves = interpolate(x, np.sin(3 * x))
    >>> type(waves).__name__, waves.functions
    ('GridSpline', 1)
    """
    periods = tuple(map(float, periods or (0.0,) * points.shape[1]))
    weighted = _most_important(np.asarray(values, np.float64), importance)
    if is_grid(points):
        smooth = _is_grid_smooth(points, weighted) if smooth is None else smooth
        return _grid_spline(points, values, periods, smooth)
    _check_scattered(points)
    smooth = is_smooth_between(points, weighted) if smooth is None else smooth
    return _simplex_interpolation(points, values, triangles, periods, smooth)


def interpolation_bytes(points: Float[np.ndarray, "points coordinates"], functions: int) -> int:
    """The memory of smooth functions at these points, in bytes of double precision.

    Scattered points hold the value, gradient and second derivatives: (1 + d + d (d + 1) / 2) numbers a function.
    """
    count, d = points.shape
    terms = 1 if is_grid(points) else 1 + d + d * (d + 1) // 2
    return 8 * count * terms * functions


def is_grid(points: Float[np.ndarray, "points coordinates"]) -> bool:
    """Whether the points are all combinations of some values of each coordinate, in any order."""
    axes, places = _axes(points)
    shape = tuple(map(len, axes))
    return math.prod(shape) == len(points) and len(np.unique(np.ravel_multi_index(places, shape))) == len(points)


# -- evaluation


def _rows(table: Array, index: Array) -> Array:
    return jnp.take(table, index.astype(jnp.int32), axis=0, mode="clip")


def _weighted_sum(table: Array, terms: Iterable[tuple[Array, Array]]) -> Float[Array, "n functions"]:
    """The sum of the rows of the table, for pairs of row numbers (n,) and weights (n,)."""
    return sum((weight[:, None] * _rows(table, index) for index, weight in terms), jnp.zeros((), table.dtype))


def _cell(x: Float[Array, " n"], edges: Float[Array, "blocks block"]) -> Float[Array, " n"]:
    """The number of the last edge that is not above x, or 0: first its block, then its place in the block."""
    first = jnp.sum((x[:, None] >= edges[:, 0][None]).astype(x.dtype), axis=1)
    block = jnp.maximum(first - 1, 0)
    inside = jnp.sum((x[:, None] >= _rows(edges, block)).astype(x.dtype), axis=1)
    return jnp.maximum(block * edges.shape[1] + inside - 1, 0)


class GridSpline(AbstractInterpolation):
    """Tensor products of splines of degree 0 (one value), 1 or 3 in every coordinate.

    Beyond the ends a linear function goes on; a cubic one does so for one cell and is constant from there.
    """

    table: Float[Array, "rows functions"]
    """The coefficients; the last axis of the grid runs fastest."""
    edges: tuple[Float[Array, "_ _"], ...]
    """For every axis, where its cells start, in blocks."""
    cells: tuple[Float[Array, "_ _"], ...]
    """For every axis and cell: start, 1 / width, and the powers 0, 1, ... of the splines that are not zero there."""
    sizes: tuple[int, ...] = eqx.field(static=True)
    """The number of splines on every axis."""
    degrees: tuple[int, ...] = eqx.field(static=True)
    periods: tuple[float, ...] = eqx.field(static=True)

    @property
    def coordinates(self) -> int:
        return len(self.sizes)

    def __call__(self, points: Float[Array, "n coordinates"]) -> Float[Array, "n functions"]:
        points = jnp.asarray(points, self.dtype)
        found = [self._along(axis, points[:, axis]) for axis in range(self.coordinates)]
        strides = [math.prod(self.sizes[axis + 1 :]) for axis in range(self.coordinates)]
        first = sum(cell * stride for (cell, _), stride in zip(found, strides, strict=True)).astype(jnp.int32)

        def term(steps: tuple[int, ...]) -> tuple[Array, Array]:
            shift = sum(step * stride for step, stride in zip(steps, strides, strict=True))
            return first + shift, math.prod(w[:, step] for (_, w), step in zip(found, steps, strict=True))

        return _weighted_sum(self.table, map(term, itertools.product(*(range(p + 1) for p in self.degrees))))

    def _along(self, axis: int, x: Float[Array, " n"]) -> tuple[Float[Array, " n"], Float[Array, "n splines"]]:
        """The cell of each x, and the splines that are not zero there."""
        degree, cells = self.degrees[axis], self.cells[axis]
        if self.periods[axis]:
            x = wrapped(x, cells[0, 0], self.periods[axis])
        cell = jnp.minimum(_cell(x, self.edges[axis]), len(cells) - 1)
        row = _rows(cells, cell)
        s = (x - row[:, 0]) * row[:, 1]
        s = (jnp.clip(s, -1, 2) if degree == 3 else s)[:, None]
        splines, *lower = (row[:, 2 + k * (degree + 1) :][:, : degree + 1] for k in reversed(range(degree + 1)))
        for power in lower:
            splines = splines * s + power
        return cell, splines


class SimplexInterpolation(AbstractInterpolation):
    """sum_i b_i(y) s_i(y) over the corners x_i of the simplex of y, with barycentric coordinates b_i.

    s_i is the value at x_i or, if `is_smooth`, the local quadratic u_i + g_i.(y - x_i) + (y - x_i).H_i (y - x_i) / 2.
    Outside of all simplices that of the best candidate goes on, and is constant beyond about its own size.
    """

    table: Float[Array, "rows functions"]
    """Values at the points; for local quadratics followed by their derivatives, point after point."""
    corners: Float[Array, "simplices corners coordinates"]
    slopes: Float[Array, "simplices coordinates coordinates"]
    """Gradients of the barycentric coordinates of the corners 1, 2, ..."""
    rows: Int[Array, "simplices corners"]
    """The first row of each corner in the table."""
    candidates: Int[Array, "bins candidates"]
    """Simplices that touch each bin."""
    edges: tuple[Float[Array, "_ _"], ...]
    """For every axis, where its bins start, in blocks."""
    bins: tuple[int, ...] = eqx.field(static=True)
    periods: tuple[float, ...] = eqx.field(static=True)
    starts: tuple[float, ...] = eqx.field(static=True)
    """Where the periods start."""
    is_smooth: bool = eqx.field(static=True)

    @property
    def coordinates(self) -> int:
        return len(self.bins)

    def __call__(self, points: Float[Array, "n coordinates"]) -> Float[Array, "n functions"]:
        y = self._in_one_period(jnp.asarray(points, self.dtype))
        return _weighted_sum(self.table, self._terms(y, self._simplex(y)))

    def _in_one_period(self, points: Float[Array, "n coordinates"]) -> Float[Array, "n coordinates"]:
        if not any(self.periods):
            return points
        columns = [
            wrapped(points[:, axis], start, period) if period else points[:, axis]
            for axis, (start, period) in enumerate(zip(self.starts, self.periods, strict=True))
        ]
        return jnp.stack(columns, axis=1)

    def _simplex(self, y: Float[Array, "n coordinates"]) -> Int[Array, " n"]:
        """The candidate whose smallest barycentric coordinate is the largest."""
        number = jnp.zeros((), y.dtype)
        for axis, count in enumerate(self.bins):
            number = number * count + jnp.minimum(_cell(y[:, axis], self.edges[axis]), count - 1)
        candidates = _rows(self.candidates, number)
        others = self._barycentric(y[:, None], self.corners[:, 0], candidates)
        smallest = ft.reduce(jnp.minimum, _with_first(others))
        best = jax.lax.argmax(smallest, 1, np.int32)
        is_best = best[:, None] == np.arange(candidates.shape[1], dtype=np.int32)[None]
        return jnp.sum(jnp.where(is_best, candidates, np.int32(0)), axis=1, dtype=np.int32)

    def _barycentric(self, y: Array, origins: Array, simplices: Array) -> Float[Array, "*_ coordinates"]:
        """The barycentric coordinates of the corners 1, 2, ..."""
        offset = y - _rows(origins, simplices)
        return jnp.sum(_rows(self.slopes, simplices) * offset[..., None, :], axis=offset.ndim)

    def _terms(self, y: Array, simplex: Int[Array, " n"]) -> Iterable[tuple[Array, Array]]:
        corners, rows = _rows(self.corners, simplex), _rows(self.rows, simplex)
        shares = _with_first(self._barycentric(y, self.corners[:, 0], simplex))
        # A coordinate below -1 pulls the point towards the centre. At the centre itself nothing is divided by 0.
        centre = 1 / len(shares)
        pull = (1 + centre) / jnp.maximum(centre - ft.reduce(jnp.minimum, shares), 1 + centre)
        y = y * pull[:, None] + jnp.mean(corners, axis=1) * (1 - pull)[:, None]
        for k, share in enumerate(shares):
            share = share * pull + centre * (1 - pull)
            yield rows[:, k], share
            for step, monomial in enumerate(monomials(y - corners[:, k]) if self.is_smooth else [], 1):
                yield rows[:, k] + step, share * monomial


def _with_first(others: Float[Array, "... coordinates"]) -> list[Array]:
    """All barycentric coordinates, given those of the corners 1, 2, ..."""
    return [1 - jnp.sum(others, axis=others.ndim - 1), *(others[..., k] for k in range(others.shape[-1]))]


# -- grids


def _axes(points: np.ndarray) -> tuple[list[np.ndarray], tuple[np.ndarray, ...]]:
    """The distinct values of every coordinate, ascending, and the place of each point among them."""
    found = [_distinct(x) for x in points.T]
    return [values for values, _ in found], tuple(places for _, places in found)


def _distinct(x: Float[np.ndarray, " points"]) -> tuple[np.ndarray, np.ndarray]:
    order = np.argsort(x, kind="stable")
    is_new = np.diff(x[order], prepend=-np.inf) > _SAME * np.ptp(x)
    places = np.empty(len(x), np.int64)
    places[order] = np.cumsum(is_new) - 1
    return x[order][is_new], places


def _most_important(values: np.ndarray, importance: np.ndarray | None) -> np.ndarray:
    weights = np.ones(values.shape[1]) if importance is None else np.asarray(importance, np.float64)
    first = np.argsort(-np.abs(weights), kind="stable")[:_FUNCTIONS]
    return values[:, first] * weights[first]


def _on_grid(points: np.ndarray, values: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
    """The axes, and the values in the order of the grid: (*axes, functions)."""
    axes, places = _axes(points)
    field = np.empty((*map(len, axes), values.shape[1]))
    field[places] = values
    return axes, field


def _grid_spline(points: np.ndarray, values: np.ndarray, periods: tuple[float, ...], smooth: bool) -> GridSpline:
    axes, field = _on_grid(points, values)
    if sum(len(x) > 1 for x in axes) > _MOST_AXES:
        raise UsageError(f"points: a grid of {len(axes)} axes; modes are interpolated on at most {_MOST_AXES}")
    cells: list[np.ndarray] = []
    degrees: list[int] = []
    for axis, (x, period) in enumerate(zip(axes, periods, strict=True)):
        coefficients, pieces, degree = _axis_spline(x, np.moveaxis(field, axis, 0), period, smooth)
        field = np.moveaxis(coefficients, 0, axis)
        cells.append(pieces)
        degrees.append(degree)
    as_array = _in_precision(values.dtype)
    return GridSpline(
        as_array(field.reshape(-1, values.shape[1])),
        tuple(as_array(_blocked(pieces[:, 0])) for pieces in cells),
        tuple(map(as_array, cells)),
        field.shape[:-1],
        tuple(degrees),
        periods,
    )


def _axis_spline(
    x: np.ndarray, field: np.ndarray, period: float, smooth: bool
) -> tuple[np.ndarray, np.ndarray, int]:
    """The coefficients along the first axis of the field, the `GridSpline.cells` of this axis, and the degree."""
    if period:
        x, places = _distinct(wrapped(x, x[0], period))
        x, field = x[x < x[0] + period * (1 - _SAME)], field[np.unique(places, return_index=True)[1]]
        x, field = np.append(x, x[0] + period), np.concatenate([field[: len(x)], field[:1]])
    if len(x) == 1:
        return field, np.array([[x[0], 0.0, 1.0]]), 0
    degree = 3 if smooth and len(x) >= 4 + (period > 0) else 1
    spline = make_interp_spline(x, field, k=degree, bc_type="periodic" if period and degree == 3 else None)
    ends = np.unique(spline.t[degree : len(spline.t) - degree])
    widths = np.diff(ends)
    # In a cell the splines are polynomials: their values at some places give the coefficients of the powers.
    s = (np.arange(degree + 1) + 0.5) / (degree + 1)
    inside = ends[:-1, None] + widths[:, None] * s
    splines = BSpline.design_matrix(inside.ravel(), spline.t, degree).data.reshape(-1, degree + 1, degree + 1)
    powers = np.linalg.solve(np.vander(s, increasing=True), splines)
    return spline.c, np.column_stack([ends[:-1], 1 / widths, powers.reshape(len(widths), -1)]), degree


def _blocked(starts: Float[np.ndarray, " edges"]) -> Float[np.ndarray, "blocks block"]:
    """The edges as rows of equal length, for a search in two steps."""
    size = math.ceil(math.sqrt(len(starts)))
    padded = np.full(size * math.ceil(len(starts) / size), _FAR)
    padded[: len(starts)] = starts
    return padded.reshape(-1, size)


def _in_precision(dtype: np.dtype) -> Callable[[np.ndarray], Array]:
    def as_array(array: np.ndarray) -> Array:
        with jax.enable_x64(dtype == np.float64):
            return jnp.asarray(array, dtype if array.dtype.kind == "f" else np.int32)

    return as_array


def _is_grid_smooth(points: np.ndarray, values: np.ndarray) -> bool:
    """Whether cubic splines through every other point of the axes predict the others better than linear ones."""
    axes, field = _on_grid(points, values)
    some = [
        np.unique([*range(0, len(x), 2), len(x) - 1]) if len(x) >= _FEWEST else np.arange(len(x)) for x in axes
    ]
    linear, cubic = (_squared_error(axes, field, some, degree) for degree in (1, 3))
    return cubic < GAIN * linear


def _squared_error(axes: list[np.ndarray], field: np.ndarray, some: list[np.ndarray], degree: int) -> float:
    predicted = field[np.ix_(*some, np.arange(field.shape[-1]))]
    for axis, (x, kept) in enumerate(zip(axes, some, strict=True)):
        if len(kept) < len(x):
            predicted = make_interp_spline(x[kept], predicted, k=degree, axis=axis)(x)
    return float(np.sum((predicted - field) ** 2))


# -- scattered points


def _check_scattered(points: np.ndarray) -> None:
    count, d = points.shape
    if d > 3:
        raise UsageError(
            f"points: {count:,} points of {d} coordinates do not form a grid; modes are interpolated between "
            "scattered points of 2 or 3 coordinates only; choose a network trunk"
        )
    if len(np.unique(points, axis=0)) < count:
        raise DataError(
            "points: some coincide, so functions cannot be interpolated between them; drop repetitions"
        )


def _simplex_interpolation(
    points: np.ndarray, values: np.ndarray, triangles: np.ndarray | None, periods: tuple[float, ...], smooth: bool
) -> SimplexInterpolation:
    nodes, simplices = make_mesh(points, triangles, np.array(periods))
    corners = nodes.places[simplices]
    slopes = barycentric_slopes(corners)
    candidates, edges = make_bins(corners, slopes)
    table = values[:, None]
    if smooth:
        table = np.concatenate([table, derivatives(nodes, values)], axis=1)
    as_array = _in_precision(values.dtype)
    return SimplexInterpolation(
        as_array(table.reshape(-1, values.shape[1])),
        as_array(corners),
        as_array(slopes),
        as_array(nodes.points[simplices] * table.shape[1]),
        as_array(candidates),
        tuple(as_array(_blocked(each)) for each in edges),
        tuple(map(len, edges)),
        periods,
        tuple(points.min(axis=0).tolist()),
        smooth,
    )
