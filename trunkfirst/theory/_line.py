"""Points laid out on a line: a direction in which no two of them meet, and broken lines through values there."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..errors import DataError
from ..networks import Perceptron

# Directions to try: many where that is cheap (multiplications in all), never less than a few.
_MOST_DIRECTIONS, _FEWEST_DIRECTIONS, _PRODUCTS = 1000, 16, 2 * 10**7
# A smallest gap of so many roundings of the largest coordinate is no gap.
_ROUNDINGS = 64


def spread_direction(
    name: str,
    points: Float[np.ndarray, "points coordinates"],
    *,
    scales: Float[np.ndarray, " coordinates"] | None = None,
    seed: int = 0,
) -> Float[np.ndarray, " coordinates"]:
    """A direction v with a large smallest gap between the v . y_i, the best of many random ones.

    v is a unit vector, times the `scales` where they are given. The lemma in the proof of thm:trunk-interpolation
    promises a gap of sqrt(8 / (pi d)) / m^2 times the smallest distance; the search finds much larger ones, and
    every factor gained is one less in the rounding errors. Points that coincide are a `DataError`.
    """
    coordinates = points.shape[1]
    scales = np.ones(coordinates) if scales is None else scales
    count = min(_MOST_DIRECTIONS, max(_FEWEST_DIRECTIONS, _PRODUCTS // points.size)) if coordinates > 1 else 1
    candidates = np.random.default_rng(seed).normal(size=(count, coordinates))
    candidates *= scales / np.linalg.norm(candidates, axis=1, keepdims=True)
    gaps = np.diff(np.sort(points @ candidates.T, axis=0), axis=0).min(axis=0, initial=np.inf)
    best = candidates[np.argmax(gaps)]
    _check_gap(name, points, scales, best)
    return best


def smallest_gap(t: Float[np.ndarray, " points"]) -> float:
    """The smallest distance between two numbers; infinite for a single one."""
    return float(np.min(np.diff(np.sort(t)), initial=np.inf))


def broken_line(
    direction: Float[np.ndarray, " coordinates"],
    points: Float[np.ndarray, "points coordinates"],
    values: Float[np.ndarray, "points functions"],
) -> Perceptron:
    """The piecewise linear function of v . y with the `values` at the `points`: one ReLU for all but one of them.

    Constant before the first point, straight on after the last.
    """
    t = points @ direction
    order = np.argsort(t)
    t, values = t[order], values[order]
    slopes = np.diff(values, axis=0) / np.diff(t)[:, None]
    bends = np.diff(slopes, axis=0, prepend=0.0) if len(slopes) else np.zeros_like(values)
    knots = t[: len(bends)]
    return to_perceptron([(np.tile(direction, (len(knots), 1)), -knots), (bends.T, values[0])])


def to_perceptron(layers: list[tuple[np.ndarray, np.ndarray]]) -> Perceptron:
    """A ReLU network in double precision from weights and biases, layer by layer."""
    with jax.enable_x64(True):
        weights, biases = zip(*((jnp.asarray(W), jnp.asarray(b)) for W, b in layers), strict=True)
    return Perceptron(weights, biases, "relu")


def _check_gap(name: str, points: np.ndarray, scales: np.ndarray, direction: np.ndarray) -> None:
    t = points @ direction
    if smallest_gap(t) > _ROUNDINGS * np.finfo(float).eps * np.max(np.abs(points) @ np.abs(direction)):
        return
    order = np.argsort(t)
    place = int(np.argmin(np.diff(t[order])))
    i, j = sorted((int(order[place]), int(order[place + 1])))
    distance = np.linalg.norm((points[i] - points[j])[scales > 0])
    raise DataError(
        f"{name}: rows {i} and {j} are the same up to rounding (distance {distance:.1e}), so no function can take "
        "different values there; keep one of them"
    )
