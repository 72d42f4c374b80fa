"""From values at points to functions: splines on grids, elsewhere triangles, tetrahedra or radial functions.

Everything here runs once, in NumPy; the classes of interpolants.py evaluate in JAX.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jaxtyping import Array, Float, Int
from scipy.spatial.distance import cdist

from ..errors import DataError, UsageError
from .grids import SAME, Axis, axis_spline, is_grid, is_smooth_on_grid, on_grid
from .interpolants import (
    AbstractInterpolation,
    FlatInterpolation,
    GridSpline,
    RadialInterpolation,
    SimplexInterpolation,
)
from .simplices import (
    barycentric_slopes,
    covers,
    derivatives,
    is_smooth_between,
    make_bins,
    make_mesh,
    make_size,
)

# Splines on grids of more axes have too many terms.
_MOST_AXES = 4
# Scattered points of more coordinates are interpolated by radial functions around at most this number of points.
_MOST_COORDINATES, _MOST_CENTRES = 3, 2000
# Coordinates follow from others if what is left of them is below this share.
_FLAT = 1e-6
# The choice between linear and smooth uses this many functions, the most important ones.
_FUNCTIONS = 32
# Larger than any coordinate, in both precisions.
_FAR = float(np.finfo(np.float32).max)


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
    points out, where `importance` weighs the functions. `periods` has one entry a coordinate, 0 for one that does
    not repeat. `triangles`, or tetrahedra in space, are used if they have all points as corners and reach over
    every period; otherwise the points are joined by a Delaunay triangulation. The precision is that of `values`.

    Points that coincide are merged. Points on a line or plane are interpolated within it. Scattered points of more
    than three coordinates, at most 2,000, are interpolated by radial functions.

    Raises a `DataError` where values differ at points that coincide, and a `UsageError` for more scattered points.

    >>> import numpy as np
    >>> x = np.linspace(0, 1, 21)[:, None]
    >>> waves = interpolate(x, np.sin(3 * x))
    >>> type(waves).__name__, waves.functions
    ('GridSpline', 1)
    """
    repeats = (0.0,) * points.shape[1] if periods is None else tuple(map(float, periods))
    if not is_grid(points):
        points, values, triangles = _merged(points, values, triangles)
        columns = _independent_coordinates(points)
        if len(columns) < points.shape[1] and not any(repeats):
            options: dict[str, Any] = {"triangles": triangles, "importance": importance, "smooth": smooth}
            inner = interpolate(points[:, columns], values, **options)
            return FlatInterpolation(inner, tuple(columns), points.shape[1])  # pyright: ignore[reportCallIssue]
    weighted = _most_important(np.asarray(values, np.float64), importance)
    if _is_small_grid(points):
        smooth = is_smooth_on_grid(points, weighted) if smooth is None else smooth
        return _grid_spline(points, values, repeats, smooth)
    if points.shape[1] > _MOST_COORDINATES:
        return _radial_interpolation(points, values)
    triangles = triangles if triangles is not None and covers(triangles, points, repeats) else None
    if smooth is None:
        smooth = is_smooth_between(points, weighted, make_size(points, triangles, repeats))
    return _simplex_interpolation(points, values, triangles, repeats, smooth)


def _most_important(values: np.ndarray, importance: np.ndarray | None) -> np.ndarray:
    weights = np.ones(values.shape[1]) if importance is None else np.asarray(importance, np.float64)
    first = np.argsort(-np.abs(weights), kind="stable")[:_FUNCTIONS]
    return values[:, first] * weights[first]


def can_interpolate(points: Float[np.ndarray, "points coordinates"]) -> bool:
    """Whether functions can be interpolated between points like these."""
    is_few = len(points) <= _MOST_CENTRES
    return is_few or _is_small_grid(points) or len(_independent_coordinates(points)) <= _MOST_COORDINATES


def _is_small_grid(points: np.ndarray) -> bool:
    """Whether the points are a grid of few axes."""
    return is_grid(points) and int((np.ptp(points, axis=0) > 0).sum()) <= _MOST_AXES


def _independent_coordinates(points: Float[np.ndarray, "points coordinates"]) -> list[int]:
    """The fewest coordinates that the others follow from, linearly, for all points; at least one."""
    centred = points - points.mean(axis=0)
    size = np.abs(centred).max(axis=0)
    is_constant = size <= SAME * np.abs(points).max(axis=0)
    scaled = np.where(is_constant, 0.0, centred / np.where(is_constant, 1.0, size))
    factors: Any = scipy.linalg.qr(scaled, mode="r", pivoting=True)
    R, order = factors
    sizes = np.abs(np.diag(R))
    return sorted(order[: max(int((sizes > _FLAT * sizes[0]).sum()), 1)].tolist())


def _merged(
    points: np.ndarray, values: np.ndarray, triangles: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """One of each set of points that coincide."""
    _, first, number = np.unique(points, axis=0, return_index=True, return_inverse=True)
    if len(first) == len(points):
        return points, values, triangles
    apart = np.abs(values - values[first][number]).max(axis=1)
    if (worst := int(apart.argmax())) >= 0 and apart[worst] > SAME * np.abs(values).max():
        other = int(first[number[worst]])
        raise DataError(
            f"points: {other} and {worst} coincide, but the outputs differ there, so no function can be "
            "interpolated; move the two sides of a jump apart, or leave one of them out"
        )
    return points[first], values[first], None if triangles is None else number.ravel()[triangles]


def _grid_spline(points: np.ndarray, values: np.ndarray, periods: tuple[float, ...], smooth: bool) -> GridSpline:
    grid, field = on_grid(points, values)
    axes: list[Axis] = []
    for number, (x, period) in enumerate(zip(grid, periods, strict=True)):
        axes.append(axis_spline(x, np.moveaxis(field, number, 0), period, smooth=smooth))
        field = np.moveaxis(axes[-1].coefficients, 0, number)
    as_array = _in_precision(values.dtype)
    return GridSpline(
        as_array(field.reshape(-1, values.shape[1])),
        tuple(as_array(_blocked(axis.cells[:, 0])) for axis in axes),
        tuple(as_array(axis.cells) for axis in axes),
        field.shape[:-1],
        tuple(axis.degree for axis in axes),
        tuple(period if axis.degree else 0.0 for axis, period in zip(axes, periods, strict=True)),
    )


def _blocked(starts: Float[np.ndarray, " edges"]) -> Float[np.ndarray, "blocks block"]:
    """The edges as rows of equal length, for a search in two steps."""
    size = math.ceil(math.sqrt(len(starts)))
    padded = np.full(size * math.ceil(len(starts) / size), _FAR)
    padded[: len(starts)] = starts
    return padded.reshape(-1, size)


def _in_precision(dtype: np.dtype) -> Callable[[np.ndarray], Array]:
    """How numbers become JAX arrays of this precision; indices are in 32 bits."""

    def as_array(array: np.ndarray) -> Array:
        with jax.enable_x64(dtype == np.float64):
            return jnp.asarray(array, dtype if array.dtype.kind == "f" else np.int32)

    return as_array


def _radial_interpolation(points: np.ndarray, values: np.ndarray) -> RadialInterpolation:
    """Coefficients such that the radial part is orthogonal to linear functions, which makes them unique."""
    count, d = points.shape
    if count > _MOST_CENTRES:
        raise UsageError(
            f"points: {count:,} points of {d} coordinates do not form a grid; at most {_MOST_CENTRES:,} such "
            "points can be interpolated; choose a network trunk"
        )
    origin, size = points.mean(axis=0), np.ptp(points, axis=0)
    y = (points - origin) / size
    linear = np.concatenate([np.ones((count, 1)), y], axis=1)
    system = np.block([[cdist(y, y) ** 3, linear], [linear.T, np.zeros((d + 1, d + 1))]])
    table = np.linalg.solve(system, np.concatenate([values, np.zeros((d + 1, values.shape[1]))]))
    as_array = _in_precision(values.dtype)
    return RadialInterpolation(as_array(table), as_array(y), as_array(origin), as_array(size))


def _simplex_interpolation(
    points: np.ndarray, values: np.ndarray, triangles: np.ndarray | None, periods: tuple[float, ...], smooth: bool
) -> SimplexInterpolation:
    nodes, simplices = make_mesh(points, triangles, periods)
    corners = nodes.places[simplices]
    slopes = barycentric_slopes(corners)
    candidates, edges = make_bins(corners, slopes, len(points))
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
        table.shape[1],
    )
