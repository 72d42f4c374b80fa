"""Generalised Fourier coefficients <f, psi_j> of an input function, as one matrix acting on its sensor values.

The functions psi_j are orthonormal on an interval, or tensor products of such functions on a box. Where the data
give no interval or no quadrature weights, both follow from the positions of the sensors.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Float

from .errors import DataError, UnknownNameError, ValueRangeError
from .linear.blocked_qr import one_blas_thread

Interval: TypeAlias = tuple[float, float]
_SUM_TOLERANCE = 1e-3  # of the quadrature weights against the volume of the box
_EXACT = 1e-8  # relative, of positions that are given as numbers


def _legendre(t: np.ndarray, count: int) -> np.ndarray:
    return np.polynomial.legendre.legvander(t, count - 1) * np.sqrt(np.arange(count) + 0.5)


def _chebyshev(t: np.ndarray, count: int) -> np.ndarray:
    values = np.polynomial.chebyshev.chebvander(t, count - 1) * np.sqrt(2 / np.pi)
    values[:, 0] /= np.sqrt(2)
    return values


def _fourier(t: np.ndarray, count: int) -> np.ndarray:
    orders = (np.arange(count) + 1) // 2
    angles = np.pi * orders * t[:, None]
    values = np.where(np.arange(count) % 2 == 1, np.sin(angles), np.cos(angles))
    values[:, 0] = np.sqrt(0.5)
    return values


# Orthonormal on [-1, 1]; Chebyshev's inner product has the weight 1 / sqrt(1 - t^2).
BASES: dict[str, Callable[[np.ndarray, int], np.ndarray]] = {
    "legendre": _legendre,
    "chebyshev": _chebyshev,
    "fourier": _fourier,
}


def coefficient_matrix(
    basis: str,
    sensors: Float[np.ndarray, "sensors coordinates"],
    sensor_weights: Float[np.ndarray, " sensors"] | None,
    count: int,
    interval: Interval | Sequence[Interval] | None = None,
) -> Float[np.ndarray, "sensors features"]:
    """The matrix M with <f, psi_j> = sum_i f(x_i) M_ij, of the first `count` functions in every coordinate.

    Args:
        basis: "legendre", "chebyshev" or "fourier".
        sensors: coordinates of the sensors.
        sensor_weights: weights that integrate over the box (Chebyshev: with its weight, so that their sum is pi
            in every coordinate); computed where they are None, which needs a grid in several coordinates.
        count: number of functions in every coordinate; d coordinates give `count**d` coefficients.
        interval: (low, high) of every coordinate, or one pair for each; from the sensors if None.

    Raises:
        UnknownNameError: where there is no such basis.
        DataError: where sensors are outside the interval, too few, or contradict the weights.
    """
    if basis not in BASES:
        raise UnknownNameError("basis", basis, tuple(BASES))
    axes = [np.unique(x) for x in sensors.T]
    if min(map(len, axes)) < max(count, 2):
        raise DataError(
            f"sensors: {count} {basis} coefficients in a coordinate need at least {max(count, 2)} different "
            f"positions in it, got {min(map(len, axes))}; use fewer coefficients or another kind of inputs"
        )
    box = _box(basis, axes, sensor_weights, interval)
    if sensor_weights is None:
        weights = _grid_weights(basis, sensors, axes, box, count)
    else:  # weights of [-1, 1]
        weights = sensor_weights * (_total(basis, [(-1.0, 1.0)] * len(box)) / _total(basis, box))
    values = np.ones((len(sensors), 1))
    for x in _rescaled(sensors, box).T:  # the last coordinate varies fastest
        values = (values[:, :, None] * BASES[basis](x, count)[:, None, :]).reshape(len(sensors), -1)
    return values * weights[:, None]


# -- the interval


def _box(
    basis: str,
    axes: list[np.ndarray],
    weights: np.ndarray | None,
    given: Interval | Sequence[Interval] | None,
) -> list[Interval]:
    """The interval of every coordinate, checked against the sensors and the sum of the weights."""
    if given is None:
        return _box_of_sensors(basis, axes, weights)
    box = _pairs(given, len(axes))
    for number, (x, (low, high)) in enumerate(zip(axes, box, strict=True), 1):
        slack = _EXACT * (high - low)
        if x[0] < low - slack or x[-1] > high + slack:
            raise DataError(
                f"sensors: coordinate {number} is from {x[0]:g} to {x[-1]:g}, outside the interval "
                f"({low:g}, {high:g}) of the basis; set interval to where the function is given"
            )
    return _fitting(basis, [box], weights)


def _pairs(given: Interval | Sequence[Interval], coordinates: int) -> list[Interval]:
    pairs = np.asarray(checked_interval(given), float).reshape(-1, 2)
    if len(pairs) not in (1, coordinates):
        raise DataError(f"interval: {len(pairs)} pairs are given, but the sensors have {coordinates} coordinates")
    return [(float(low), float(high)) for low, high in np.broadcast_to(pairs, (coordinates, 2))]


def checked_interval(given: Any) -> Any:
    """`given`, if it is None, a pair of numbers low < high, or several such pairs."""
    if given is None:
        return given
    try:
        pairs = np.asarray(given, float)
    except (TypeError, ValueError):
        pairs = np.empty(0)
    is_pairs = pairs.ndim in (1, 2) and pairs.shape[-1] == 2 and len(pairs) > 0
    if not (is_pairs and np.isfinite(pairs).all() and (pairs[..., 0] < pairs[..., 1]).all()):
        raise ValueRangeError(
            f"interval is {given!r}; expected two numbers [low, high] with low < high, or such a pair for each "
            "coordinate"
        )
    return given


def _box_of_sensors(basis: str, axes: list[np.ndarray], weights: np.ndarray | None) -> list[Interval]:
    """The box of the first rule that all axes belong to and that the weights, where given, agree with."""
    rules = [_rules(basis, x) for x in axes]
    shared = [name for name in rules[0] if all(name in others for others in rules)]
    own = [next(iter(found.values())) for found in rules]  # a rule of its own for every axis
    boxes = [[found[name] for found in rules] for name in shared]
    return own if weights is None else _fitting(basis, [*boxes, own], weights)


def _rules(basis: str, x: np.ndarray) -> dict[str, Interval]:
    """The intervals of the rules that sorted positions can belong to, the most specific rule first."""
    count, low, high = len(x), float(x[0]), float(x[-1])
    step, closed = (high - low) / (count - 1), {"with both ends": (low, high)}
    is_even = np.ptp(np.diff(x)) <= _EXACT * (high - low)
    if basis == "fourier":
        return ({"one period": (low, high + step)} if is_even else {}) | closed
    nodes = {
        "Gauss-Legendre": np.polynomial.legendre.leggauss,
        "Gauss-Chebyshev": np.polynomial.chebyshev.chebgauss,
    }
    gauss = {name: image for name, rule in nodes.items() if (image := _image(x, np.sort(rule(count)[0])))}
    cells = {"cell centres": (low - step / 2, high + step / 2)} if is_even else {}
    return gauss | closed | cells


def _image(x: np.ndarray, nodes: np.ndarray) -> Interval | None:
    """Where [-1, 1] goes when the nodes go to x; None where no linear map does that."""
    scale = (x[-1] - x[0]) / (nodes[-1] - nodes[0])
    shift = x[0] - scale * nodes[0]
    # Two positions belong to any rule.
    if len(x) < 3 or np.abs(shift + scale * nodes - x).max() > _EXACT * scale:
        return None
    return float(shift - scale), float(shift + scale)


def _fitting(basis: str, boxes: list[list[Interval]], weights: np.ndarray | None) -> list[Interval]:
    """The first box that the weights integrate over; any will do without weights."""
    for box in boxes:
        if weights is None or abs(weights.sum() - _total(basis, box)) <= _SUM_TOLERANCE * _total(basis, box):
            return box
    assert weights is not None
    raise DataError(
        f"sensor_weights: the sum is {weights.sum():g}; weights of a {basis} basis on "
        f"{' x '.join(f'({low:g}, {high:g})' for low, high in boxes[-1])} sum to {_total(basis, boxes[-1]):g}; "
        "set interval to where the function is given, or leave the weights out to have them computed"
    )


def _total(basis: str, box: list[Interval]) -> float:
    """What the weights of the basis' inner product sum to: the volume, or for Chebyshev pi in each coordinate."""
    return math.prod(math.pi if basis == "chebyshev" else high - low for low, high in box)


# -- the weights


def _rescaled(sensors: np.ndarray, box: list[Interval]) -> Float[np.ndarray, "sensors coordinates"]:
    """The sensors with the box as [-1, 1]^d; rounding must not lead out of it."""
    low, high = np.array(box).T
    return np.clip((2 * sensors - low - high) / (high - low), -1.0, 1.0)


def _grid_weights(
    basis: str, sensors: np.ndarray, axes: list[np.ndarray], box: list[Interval], count: int
) -> Float[np.ndarray, " sensors"]:
    """Products of the weights on every axis, for [-1, 1]^d; the sensors must be a grid in any order."""
    places = np.stack([np.searchsorted(x, values) for x, values in zip(axes, sensors.T, strict=True)], axis=1)
    is_grid = len(sensors) == math.prod(map(len, axes)) and len(np.unique(places, axis=0)) == len(sensors)
    if not is_grid:
        raise DataError(
            "sensors: without sensor_weights a basis needs sensors on a grid, each position once; "
            "give sensor_weights, which integrate over the domain"
        )
    each = [
        _axis_weights(basis, _rescaled(x[:, None], [pair])[:, 0], count) for x, pair in zip(axes, box, strict=True)
    ]
    return np.prod([w[column] for w, column in zip(each, places.T, strict=True)], axis=0)


def _axis_weights(basis: str, t: np.ndarray, count: int) -> Float[np.ndarray, " sensors"]:
    """Weights at sorted t in [-1, 1] for the inner product of the basis: the cells around the sensors, corrected.

    The correction is the smallest, relative to the cells, that makes the weights exact for as many of the first
    `2 count - 1` functions as positive weights allow; then all products of two of the `count` functions are exact.
    """
    cells = _cells(basis, t)
    for degree in range(min(2 * count - 1, len(t)), 0, -1):
        values = BASES[basis](t, degree)
        # Only the first function, a constant, has an integral other than zero.
        wanted = np.zeros(degree)
        wanted[0] = values[0, 0] * _total(basis, [(-1.0, 1.0)])
        roots = np.sqrt(cells)
        with one_blas_thread():
            change = np.linalg.lstsq((values * roots[:, None]).T, wanted - values.T @ cells, rcond=None)[0]
        weights = cells + roots * change
        if (weights > 0).all() and np.abs(values.T @ weights - wanted).max() < 1e-10:
            return weights
    return cells


def _cells(basis: str, t: np.ndarray) -> Float[np.ndarray, " sensors"]:
    """The lengths of the cells between the midpoints of neighbours, up to the ends or around the period."""
    if basis == "fourier":
        wrapped = np.concatenate([[t[-1] - 2], t, [t[0] + 2]])
        return (wrapped[2:] - wrapped[:-2]) / 2
    if basis == "chebyshev":  # in the angle, where the inner product has no weight
        angles = np.arccos(t)
        return -np.diff(np.concatenate([[np.pi], (angles[1:] + angles[:-1]) / 2, [0.0]]))
    return np.diff(np.concatenate([[-1.0], (t[1:] + t[:-1]) / 2, [1.0]]))
