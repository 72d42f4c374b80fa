"""Grids of input functions: found in the data, and their fields interpolated to the output points."""

import dataclasses as dc
import itertools
import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int
from scipy.interpolate import make_interp_spline

from ..data.array_checks import check_length
from ..data.operator_data import InputFunction, OperatorData
from ..data.scattered_data import AnyData
from ..errors import DataError
from ..networks.grids import SAME, grid_axes, grid_order, is_grid

# The most axes of a grid, and the fewest sensors that are taken for the values of a function on an axis.
_MOST_AXES, _FEWEST_SENSORS = 3, 8
# Output coordinates that the input lacks may have this many values, each with a field of its own.
_MOST_FIELDS = 64
# Points whose interpolation is in memory at once.
_BLOCK = 512


@dc.dataclass(frozen=True, eq=False)
class InputGrid:
    """A grid that all input functions share; functions with one sensor are constants there.

    `places` says which of the inputs is the value of a function at a cell, `columns` which coordinates of the
    output points the axes are. Without columns inputs and outputs have different domains, or it is not known.
    """

    axes: tuple[Float[np.ndarray, " _"], ...]
    places: Int[np.ndarray, "functions cells"]
    columns: tuple[int, ...] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Cells along every axis."""
        return tuple(map(len, self.axes))

    @property
    def is_plain(self) -> bool:
        """Whether the inputs are one function in the order of the grid."""
        return len(self.places) == 1 and np.array_equal(self.places[0], np.arange(self.places.size))

    def is_periodic(self, periods: Sequence[float] | None) -> list[bool]:
        """Whether each axis is, given the periods of the output coordinates."""
        return [bool(periods and periods[k]) for k in self.columns] if self.columns else [False] * len(self.axes)


@dc.dataclass(frozen=True, eq=False)
class OutputBasis:
    """The basis at the output points: the coefficients of a field u there are u @ dual."""

    points: Float[np.ndarray, "points coordinates"]
    values: Float[np.ndarray, "points rank"]
    dual: Float[np.ndarray, "points rank"]
    periods: tuple[float, ...] | None = None


def find_grid(data: AnyData) -> InputGrid | None:
    """The grid of the input functions: that of their sensors, that of the output points, or their `grid_shape`.

    Without coordinates of the sensors: as many as output points that form a grid are at these points. As many as
    the output grid has along some of its axes, in one way only, are along these axes. A few sensors are numbers,
    unless they have a `grid_shape`.
    """
    sizes = [f.values.shape[1] for f in data.inputs.values()]
    cells = max(sizes)
    function = next(f for f in data.inputs.values() if f.values.shape[1] == cells)
    is_few = cells < _FEWEST_SENSORS and function.grid_shape is None
    if is_few or not set(sizes) <= {1, cells}:
        return None
    points = data.points if isinstance(data, OperatorData) else None
    found = _of_sensors(function, points) or _of_outputs(function, points) or _of_shape(function)
    if found is None:
        return None
    axes, order, columns = found
    starts = np.cumsum([0, *sizes[:-1]])
    constant = np.zeros(cells, int)
    places = [s + (order if size == cells else constant) for s, size in zip(starts, sizes, strict=True)]
    return InputGrid(tuple(axes), np.stack(places), columns)


_Found = tuple[Sequence[np.ndarray], np.ndarray, tuple[int, ...] | None]


def _of_sensors(function: InputFunction, points: np.ndarray | None) -> _Found | None:
    sensors = function.sensors
    if sensors is None and points is not None and len(points) == function.values.shape[1]:
        sensors = points
    if sensors is None or sensors.shape[1] > _MOST_AXES or not is_grid(sensors):
        return None
    axes, order = grid_order(sensors)
    if min(map(len, axes)) < 2:
        return None
    options = [] if points is None else list(itertools.combinations(range(points.shape[1]), len(axes)))
    covered = [c for c in options if points is not None and _covers(axes, points[:, c])]
    return axes, order, covered[0] if len(covered) == 1 else None


def _covers(axes: Sequence[np.ndarray], points: np.ndarray) -> bool:
    """Whether the points lie on the grid, or at most a cell outside."""
    first = [x[0] - (x[1] - x[0]) * (1 + SAME) for x in axes]
    last = [x[-1] + (x[-1] - x[-2]) * (1 + SAME) for x in axes]
    return bool(((points >= first) & (points <= last)).all())


def _of_outputs(function: InputFunction, points: np.ndarray | None) -> _Found | None:
    if function.sensors is not None or points is None or not is_grid(points):
        return None
    axes, count = grid_axes(points), function.values.shape[1]
    lengths = range(1, min(len(axes), _MOST_AXES) + 1)
    options = [c for n in lengths for c in itertools.combinations(range(len(axes)), n)]
    shapes = {c: tuple(len(axes[k]) for k in c) for c in options}
    fitting = [c for c, s in shapes.items() if math.prod(s) == count and function.grid_shape in (None, s)]
    if len(fitting) != 1 or min(shapes[fitting[0]]) < 2:
        return None
    return [axes[k] for k in fitting[0]], np.arange(count), fitting[0]


def _of_shape(function: InputFunction) -> _Found | None:
    shape = function.grid_shape
    if shape is None or not 1 <= len(shape) <= _MOST_AXES or min(shape) < 2:
        return None
    return [np.arange(n, dtype=float) for n in shape], np.arange(math.prod(shape)), None


def projection(grid: InputGrid, basis: OutputBasis) -> Float[np.ndarray, "values rank"] | None:
    """M, the coefficients of fields on the grid: interpolated to the output points and projected onto the basis.

    Coordinates of the points that the grid lacks, such as a time, have a field for each of their values; `values`
    are those of all fields. None where the domains differ, or there are too many such fields.
    """
    if grid.columns is None:
        return None
    others = [k for k in range(basis.points.shape[1]) if k not in grid.columns]
    rest = _rounded(basis.points[:, others])
    _, which = np.unique(rest, axis=0, return_inverse=True)
    fields = int(which.max()) + 1
    if fields > _MOST_FIELDS:
        return None
    found = np.zeros((fields, math.prod(grid.shape), basis.dual.shape[1]))
    for field in range(fields):
        rows = np.flatnonzero(which == field)
        for block in np.split(rows, range(_BLOCK, len(rows), _BLOCK)):
            found[field] += (
                _interpolation(grid.axes, basis.points[block][:, list(grid.columns)]).T @ basis.dual[block]
            )
    return found.reshape(-1, found.shape[2])


def patched(
    grid: InputGrid, matrix: Float[np.ndarray, "values rank"] | None, size: int
) -> tuple[InputGrid, Float[np.ndarray, "values rank"] | None]:
    """The grid with patches of `size` neighbours along every axis as its cells, and `matrix` for its fields.

    The values in a patch become functions, and fields, of their own.
    """
    if any(n % size for n in grid.shape):
        raise DataError(
            f"branch.patch is {size}, which does not divide the grid of {' x '.join(map(str, grid.shape))} cells"
        )
    order = patches(grid.shape, size)
    places = grid.places[:, order].reshape(-1, order.shape[1])
    if matrix is not None:
        matrix = matrix.reshape(-1, order.size, matrix.shape[1])[:, order].reshape(matrix.shape)
    return InputGrid(tuple(x[::size] for x in grid.axes), places, grid.columns), matrix


def patches(shape: Sequence[int], size: int) -> Int[np.ndarray, "members patches"]:
    """Which cells of the grid are the members of its patches."""
    d = len(shape)
    parts = np.arange(math.prod(shape)).reshape([k for n in shape for k in (n // size, size)])
    return parts.transpose([*range(1, 2 * d, 2), *range(0, 2 * d, 2)]).reshape(size**d, -1)


def _rounded(values: np.ndarray) -> np.ndarray:
    scale = np.ptp(values, axis=0) * SAME if values.size else np.ones(values.shape[1])
    return np.round(values / np.where(scale > 0, scale, 1.0))


def _interpolation(
    axes: Sequence[Float[np.ndarray, " _"]], points: Float[np.ndarray, "points axes"], *, degree: int = 3
) -> Float[np.ndarray, "points cells"]:
    """Splines along every axis, of this degree where there are enough cells."""
    found = np.ones((len(points), 1))
    for x, at in zip(axes, points.T, strict=True):
        along = make_interp_spline(x, np.eye(len(x)), k=degree if len(x) > degree else 1)(at)
        found = (found[:, :, None] * along[:, None]).reshape(len(points), -1)
    return found


def resample(
    values: Float[np.ndarray, "samples cells"],
    sensors: Float[np.ndarray, "cells coordinates"],
    new_sensors: Float[np.ndarray, "new coordinates"],
) -> Float[np.ndarray, "samples new"]:
    """Interpolate input functions on a grid linearly to other sensors in the same domain.

    With it, an operator that was trained on one grid can predict for inputs on another.

    Args:
        values: input functions (samples, cells).
        sensors: the grid, (cells, coordinates), in any order.
        new_sensors: sensors to interpolate to, (new, coordinates).

    Returns:
        Input functions (samples, new).

    Raises:
        DataError: `sensors` are not a grid, or do not match `values`.

    >>> import numpy as np
    >>> x = np.linspace(0, 1, 5)[:, None]
    >>> resample(x.T, x, np.array([[0.125], [0.5]]))
    array([[0.125, 0.5  ]])
    """
    values, sensors, new_sensors = (np.asarray(a, np.float64) for a in (values, sensors, new_sensors))
    if not is_grid(sensors):
        raise DataError(
            f"sensors: {len(sensors)} of them do not form a grid; give all combinations of coordinates"
        )
    check_length("values", "cells", values.shape[1], len(sensors), "sensors")
    axes, order = grid_order(sensors)
    return values[:, order] @ _interpolation(axes, new_sensors, degree=1).T
