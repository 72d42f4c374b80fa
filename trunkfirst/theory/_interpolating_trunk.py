"""thm:trunk-interpolation, built: ReLU trunks that equal the leading modes of the outputs at the sensors.

A point y is laid out on a line, t = v . y, with gaps of at least 2 between the sensors t_1 < ... < t_m. A hat on
[a, b] is 1 there and 0 beyond a distance of 1/2,

    hat(t) = relu(1 - 2 relu(a - t)) + relu(1 - 2 relu(t - b)) - 1,

and the trunk is sum_j Z_j hat_j(t), where Z_j holds the modes at sensor j. The network carries (t, partial sum)
from block to block, two hidden layers a block. The printed proof needs repairs (docs/theory.md): the intervals
[t_j, t_(j+1)] overlap at the sensors, and the last bias of a block has the wrong sign.
"""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from ..errors import UnknownNameError, ValueRangeError
from ..linear import principal_directions
from ..networks import Trunk
from ._line import broken_line, smallest_gap, spread_direction, to_perceptron

Places = Float[np.ndarray, " sensors"]
Layer = tuple[np.ndarray, np.ndarray]

# A sensor lies this far inside its hat, so that the rounding of v . y does not reach the value.
_MARGIN = 0.25


def _hats(t: Places) -> tuple[Places, Places]:
    return t - _MARGIN, t + _MARGIN


def _staircase(t: Places) -> tuple[Places, Places]:
    return t - _MARGIN, np.append(t[1:] - _MARGIN - 0.5, t[-1] + _MARGIN)


# Where hat j begins and ends to be 1. Hats alone: zero between the sensors. Staircase: each hat falls where the
# next one rises, so that they add up to 1 from the first sensor to the last.
REPAIRS: dict[str, Callable[[Places], tuple[Places, Places]]] = {"staircase": _staircase, "hats": _hats}


def interpolating_trunk(
    points: Float[np.ndarray, "points coordinates"],
    outputs: Float[np.ndarray, "samples points"],
    width: int | None = None,
    *,
    repair: str = "staircase",
    seed: int = 0,
) -> Trunk:
    """The deep trunk of thm:trunk-interpolation, of the architecture stated there.

    With m points, outputs of rank r and N = `width` (None: r), q = min(N, r), the widths are
    (d, 4, 4, 2q + 4 repeated 2m - 2 times, N). Function k is the k-th left singular vector of the outputs (points,
    samples) at the points, and zero for k > q. Least squares with this trunk has at most the loss of the best
    approximation of rank q, none for N >= r.

    `repair` chooses the intervals, "staircase" or "hats" (see REPAIRS). The direction v is searched for, `seed`
    seeds the search. Points that coincide are a `DataError`. A network of 401 layers (200 points) takes half a
    second to evaluate as it is, and several to compile.
    """
    if repair not in REPAIRS:
        raise UnknownNameError("repair", repair, tuple(REPAIRS))
    modes, width = _modes(outputs, width)
    v = spread_direction("points", points, seed=seed)
    t = points @ v
    stretch = 2 / smallest_gap(t) if len(t) > 1 else 1.0
    order = np.argsort(t)
    starts, ends = REPAIRS[repair](stretch * t[order])
    return Trunk(to_perceptron(_layers(stretch * v, starts, ends, modes[order], width)))


def shallow_interpolating_trunk(
    points: Float[np.ndarray, "points coordinates"],
    outputs: Float[np.ndarray, "samples points"],
    width: int | None = None,
    *,
    seed: int = 0,
) -> Trunk:
    """The same values at the points with one hidden layer: broken lines in t, one ReLU for all points but one.

    Width in place of depth: (d, m - 1, N) instead of 2m hidden layers.
    """
    modes, width = _modes(outputs, width)
    padded = np.pad(modes, ((0, 0), (0, width - modes.shape[1])))
    return Trunk(broken_line(spread_direction("points", points, seed=seed), points, padded))


def _modes(outputs: np.ndarray, width: int | None) -> tuple[Float[np.ndarray, "points modes"], int]:
    """The first min(N, r) left singular vectors of the outputs, and N."""
    if width is not None and width < 1:
        raise ValueRangeError(f"width is {width}; a trunk needs at least 1 function beside the constant")
    modes = principal_directions(outputs, tolerance=1e-14)[:width].T
    return modes, width or modes.shape[1]


def _layers(v: np.ndarray, starts: Places, ends: Places, modes: np.ndarray, width: int) -> list[Layer]:
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
    """(t, z) -> (t, z + c hat(t)) in three affine maps with a ReLU between; without z where nothing is carried.

    A number passes a ReLU as the pair of its positive and negative part.
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
    """One affine map for two, the inner one first."""
    return outer[0] @ inner[0], outer[0] @ inner[1] + outer[1]
