"""Networks of the paper's existence proofs: trunks and branches that interpolate, and operators without loss.

A point y is mapped to a line, t = v . y, with gaps of at least 2 between the sensors t_1 < ... < t_m. A hat on
[a, b] is 1 there and 0 beyond a distance of 1/2,

    hat(t) = relu(1 - 2 relu(a - t)) + relu(1 - 2 relu(t - b)) - 1,

and the trunk of thm:trunk-interpolation is sum_j Z_j hat_j(t), where Z_j holds the modes at sensor j. The network
passes (t, partial sum) from block to block, two hidden layers a block. The printed proof needs corrections
(docs/theory.md): the intervals [t_j, t_(j+1)] overlap at the sensors, and the last bias of a block has the wrong
sign.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from trunkfirst.data.operator_data import OperatorData
from trunkfirst.encoders import Identity
from trunkfirst.linear.low_rank import principal_directions
from trunkfirst.linear.orthonormalise import QR
from trunkfirst.networks.layers import Perceptron, Trunk
from trunkfirst.networks.operator import Operator
from trunkfirst.theory.rates import normalised_weights

# A sensor is this far inside its hat, so that the rounding of v . y does not change the value.
_MARGIN = 0.25
# How many random directions to try: bounded by the number of multiplications, but at least a few.
_MAX_DIRECTIONS, _MIN_DIRECTIONS, _MAX_PRODUCTS = 1000, 16, 2 * 10**7

Line = Float[np.ndarray, " sensors"]
Points = Float[np.ndarray, "points coordinates"]
SensorWeights = Float[np.ndarray, " sensors"]
Layer = tuple[np.ndarray, np.ndarray]


# -- trunks


def _hats(t: Line) -> tuple[Line, Line]:
    return t - _MARGIN, t + _MARGIN


def _staircase(t: Line) -> tuple[Line, Line]:
    return t - _MARGIN, np.append(t[1:] - _MARGIN - 0.5, t[-1] + _MARGIN)


# The interval where hat j is 1. Hats are zero between the sensors; on the staircase each hat falls where the next
# one rises, so that their sum is 1 from the first sensor to the last.
REPAIRS: dict[str, Callable[[Line], tuple[Line, Line]]] = {"staircase": _staircase, "hats": _hats}


def interpolating_trunk(
    points: Points,
    outputs: Float[np.ndarray, "samples points"],
    width: int | None = None,
    *,
    repair: str = "staircase",
    seed: int = 0,
) -> Trunk:
    """The deep ReLU trunk of thm:trunk-interpolation: the leading modes of the outputs at the points.

    With m points, outputs of rank r and N = `width` (None: r), q = min(N, r), the widths are
    (d, 4, 4, 2q + 4 repeated 2m - 2 times, N). Function k is the k-th left singular vector of the outputs (points,
    samples) at the points, and zero for k > q. Least squares with this trunk has at most the loss of the best
    approximation of rank q. A network of 401 layers (200 points) takes seconds to compile.

    `repair` chooses the intervals, "staircase" or "hats"; `seed` is that of the search for v.
    """
    modes, width = _modes(outputs, width)
    v = spread_direction(points, seed=seed)
    t = points @ v
    stretch = 2 / smallest_gap(t) if len(t) > 1 else 1.0
    order = np.argsort(t)
    starts, ends = REPAIRS[repair](stretch * t[order])
    return Trunk(_perceptron(_layers(stretch * v, starts, ends, modes[order], width)))


def shallow_interpolating_trunk(
    points: Points, outputs: Float[np.ndarray, "samples points"], width: int | None = None, *, seed: int = 0
) -> Trunk:
    """The same values at the points with one hidden layer of m - 1 ReLUs: functions piecewise linear in t."""
    modes, width = _modes(outputs, width)
    padded = np.pad(modes, ((0, 0), (0, width - modes.shape[1])))
    return Trunk(_piecewise_linear(spread_direction(points, seed=seed), points, padded))


def _modes(outputs: np.ndarray, width: int | None) -> tuple[Float[np.ndarray, "points modes"], int]:
    """The first min(N, r) left singular vectors of the outputs, and N."""
    modes = principal_directions(outputs, tolerance=1e-14)[:width].T
    return modes, width or modes.shape[1]


def _layers(v: np.ndarray, starts: Line, ends: Line, modes: np.ndarray, width: int) -> list[Layer]:
    """All blocks, the last affine map of each merged with the first of the next."""
    affine: Layer = (v[None], np.zeros(1))  # y -> t
    layers: list[Layer] = []
    for j, (a, b, c) in enumerate(zip(starts, ends, modes, strict=True)):
        first, second, last = _block(a, b, c, carried=len(c) if j else 0)
        layers += [_after(first, affine), second]
        affine = last
    choose = np.eye(width, 1 + modes.shape[1], 1)  # (t, z) -> (z, 0)
    return [*layers, _after((choose, np.zeros(width)), affine)]


def _block(a: float, b: float, c: np.ndarray, *, carried: int) -> tuple[Layer, Layer, Layer]:
    """(t, z) -> (t, z + c hat(t)) in three affine maps with ReLUs between them; `carried` is the length of z.

    A number passes a ReLU as its positive and its negative part.
    """
    pairs = np.kron(np.eye(1 + carried), [[1.0], [-1.0]])
    rest = len(pairs)
    slopes = np.zeros((2, 1 + carried))
    slopes[:, 0] = -2, 2
    back = np.zeros((1 + len(c), 2 + rest))
    back[: 1 + carried, 2:] = pairs.T
    back[1:, :2] = c[:, None]
    return (
        (np.vstack([slopes, pairs]), np.concatenate([[2 * a, -2 * b], np.zeros(rest)])),
        (np.diag(np.repeat([-1.0, 1.0], [2, rest])), np.repeat([1.0, 0.0], [2, rest])),
        (back, np.concatenate([[0.0], -c])),
    )


def _after(outer: Layer, inner: Layer) -> Layer:
    """The composition of two affine maps, the inner one first."""
    return outer[0] @ inner[0], outer[0] @ inner[1] + outer[1]


# -- branches


def interpolating_branch(
    inputs: Float[np.ndarray, "samples sensors"],
    targets: Float[np.ndarray, "samples coefficients"],
    *,
    sensor_weights: SensorWeights | None = None,
    seed: int = 0,
) -> Perceptron:
    """A two-layer ReLU branch with the `targets` at the `inputs`: (sensors, samples - 1, coefficients).

    The targets are interpolated linearly along the best of many random directions. This proves that zero loss is
    possible (assmpt-branch); such a branch does not generalise. Sensors without weight are ignored.
    """
    scales = np.sqrt(normalised_weights(sensor_weights, inputs.shape[1], name="sensor_weights"))
    return _piecewise_linear(spread_direction(inputs, scales=scales, seed=seed), inputs, targets)


# -- operators


def zero_loss_operator(data: OperatorData, trunk: Trunk | None = None) -> Operator:
    """An operator that reproduces its training data up to rounding (thm:zero-loss-deeponet).

    The two steps without training: trunk, orthonormalisation, interpolation of the coefficients. `trunk` must span
    the outputs at the points, as `interpolating_trunk` and `shallow_interpolating_trunk` (the default) do for
    N >= rank. Between the training samples nothing is guaranteed.
    """
    rows = data.outputs.swapaxes(1, 2).reshape(-1, len(data.points)) if data.is_multichannel else data.outputs
    trunk = shallow_interpolating_trunk(data.points, rows) if trunk is None else trunk
    with jax.enable_x64(True):
        basis = QR()(np.asarray(trunk(jnp.asarray(data.points))))
        targets = basis.coefficients(rows).reshape(data.samples, -1)
        branch = interpolating_branch(data.flat_inputs, targets)
        channels = data.channels if data.is_multichannel else None
        T = jnp.asarray(basis.transform)
    return Operator(Identity(), branch, trunk, T, tuple(data.inputs), channels=channels)


# -- points on a line


def spread_direction(
    points: Points, *, scales: Float[np.ndarray, " coordinates"] | None = None, seed: int = 0
) -> Float[np.ndarray, " coordinates"]:
    """The one of many random directions v whose v . y_i have the largest smallest gap.

    v is a unit vector, times the `scales` where they are given. The lemma in the proof of thm:trunk-interpolation
    guarantees a gap of sqrt(8 / (pi d)) / m^2 times the smallest distance; the search finds much larger ones, and
    rounding errors are smaller by the same factor.
    """
    coordinates = points.shape[1]
    scales = np.ones(coordinates) if scales is None else scales
    count = min(_MAX_DIRECTIONS, max(_MIN_DIRECTIONS, _MAX_PRODUCTS // points.size)) if coordinates > 1 else 1
    candidates = np.random.default_rng(seed).normal(size=(count, coordinates))
    candidates *= scales / np.linalg.norm(candidates, axis=1, keepdims=True)
    gaps = np.diff(np.sort(points @ candidates.T, axis=0), axis=0).min(axis=0, initial=np.inf)
    return candidates[np.argmax(gaps)]


def smallest_gap(t: Float[np.ndarray, " points"]) -> float:
    """The smallest distance between two numbers; infinite for a single one."""
    return float(np.min(np.diff(np.sort(t)), initial=np.inf))


def _piecewise_linear(
    direction: Float[np.ndarray, " coordinates"], points: Points, values: Float[np.ndarray, "points functions"]
) -> Perceptron:
    """The piecewise linear function of v . y with the `values` at the `points`; constant before the first."""
    t = points @ direction
    order = np.argsort(t)
    t, values = t[order], values[order]
    slopes = np.diff(values, axis=0) / np.diff(t)[:, None]
    bends = np.diff(slopes, axis=0, prepend=0.0) if len(slopes) else np.zeros_like(values)
    knots = t[: len(bends)]
    return _perceptron([(np.tile(direction, (len(knots), 1)), -knots), (bends.T, values[0])])


def _perceptron(layers: list[Layer]) -> Perceptron:
    """A ReLU network in double precision."""
    with jax.enable_x64(True):
        weights, biases = zip(*((jnp.asarray(W), jnp.asarray(b)) for W, b in layers), strict=True)
    return Perceptron(weights, biases, "relu")
