"""What the paper assumes about operator and inputs (assmpt-operators, assmpt-inputspace), estimated from samples.

Distances of input functions are |f - g|_{w,2} at their sensors, with weights that sum to 1. At most 4,000 samples
are compared, 1,000 where every pair is. A maximum over samples is a lower bound of the true constant.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int
from scipy.spatial.distance import pdist

from ..data.array_checks import evenly
from ..errors import UsageError, ValueRangeError
from ..networks.layers import Perceptron
from .rates import Ladder, normalised_weights

_MAX_SAMPLES, _MAX_SAMPLES_IN_PAIRS = 4000, 1000
# Floats in memory at once.
_BLOCK = 4_000_000

# Upper bounds of |sigma'| for every activation.
MAX_SLOPES = {
    "relu": 1.0,
    "tanh": 1.0,
    "sine": 1.0,
    "softplus": 1.0,
    "elu": 1.0,
    "sigmoid": 0.25,
    "gelu": 1.13,
    "silu": 1.1,
}

Inputs = Float[np.ndarray, "samples sensors"]
SensorWeights = Float[np.ndarray, " sensors"]


def generalisation_errors(
    predictions: Float[np.ndarray, "samples points"],
    outputs: Float[np.ndarray, "samples points"],
    *,
    weights: Float[np.ndarray, " points"] | None = None,
) -> Float[np.ndarray, " samples"]:
    """|G[f] - ONet[f]| in L2_omega for every sample (eqn:def:gen-err); thm:main bounds the mean of the squares."""
    return np.sqrt((predictions - outputs) ** 2 @ normalised_weights(weights, outputs.shape[1]))


def fill_distances(
    training: Inputs,
    others: Float[np.ndarray, "others sensors"],
    *,
    weights: SensorWeights | None = None,
    levels: int = 5,
    seed: int = 0,
) -> Ladder:
    """The largest distance from the inputs `others` to the nearest of K, K/2, K/4, ... random training inputs.

    Minus the slope is the rate s. Of `others` at most 4,000 are used, of the training inputs all.
    """
    roots = np.sqrt(normalised_weights(weights, training.shape[1]))
    known = (training * roots)[np.random.default_rng(seed).permutation(len(training))]
    asked = (others * roots)[evenly(len(others), _MAX_SAMPLES)]
    counts = [len(known) >> level for level in range(levels) if len(known) >> level > 0]
    return Ladder(np.asarray(counts), np.asarray([_fill_distance(known[:count], asked) for count in counts]))


def _fill_distance(known: Inputs, asked: Float[np.ndarray, "others sensors"]) -> float:
    nearest = _nearest(asked, known, 1)[:, 0]
    return float(np.linalg.norm(asked - known[nearest], axis=1).max())


def operator_lipschitz(
    inputs: Inputs,
    outputs: Float[np.ndarray, "samples points"],
    *,
    sensor_weights: SensorWeights | None = None,
    point_weights: Float[np.ndarray, " points"] | None = None,
    neighbours: int = 8,
) -> float:
    """L_G, the largest |u - v| / |f - g| between a sample and its nearest `neighbours`, in L2_omega.

    Infinite where equal inputs have different outputs.
    """
    chosen = _evenly(len(inputs), _MAX_SAMPLES)
    f = inputs[chosen] * np.sqrt(normalised_weights(sensor_weights, inputs.shape[1], name="sensor_weights"))
    u = outputs[chosen] * np.sqrt(normalised_weights(point_weights, outputs.shape[1], name="point_weights"))
    return _steepest(f, u, _nearest(f, f, min(neighbours + 1, len(f))))  # the sample itself is one of them


def coefficient_lipschitz(
    inputs: Inputs,
    coefficients: Float[np.ndarray, "samples coefficients"],
    *,
    sensor_weights: SensorWeights | None = None,
) -> float:
    """The largest |c(f) - c(g)| / |f - g| over all pairs, for a map to coefficients such as a branch."""
    chosen = _evenly(len(inputs), _MAX_SAMPLES_IN_PAIRS)
    f = inputs[chosen] * np.sqrt(normalised_weights(sensor_weights, inputs.shape[1], name="sensor_weights"))
    return _steepest(f, coefficients[chosen], np.broadcast_to(np.arange(len(f)), (len(f), len(f))))


def branch_lipschitz(branch: Perceptron, *, sensor_weights: SensorWeights | None = None) -> float:
    """L_sigma L_c with L_c = sum_l |gamma_l| |w_l|: |c(f) - c(g)| is at most this times |f - g|.

    For a branch c(f) = sum_l gamma_l sigma(<w_l, f> + beta_l) + constant. |f|^2 = sum_j omega_j f_j^2 with sensor
    weights that are scaled to sum to 1 (None: equal ones), and |w| is the dual norm (sum_j w_j^2 / omega_j)^(1/2).
    The Euclidean |w| that the paper prints (assmpt-branch) does not bound the slope; for equal weights it is
    smaller by the root of the number of sensors. Infinite where the branch depends on a sensor of weight zero.
    Raises `UsageError` for any other number of layers.
    """
    if len(branch.weights) != 2:
        raise UsageError(
            f"the branch has the widths {branch.architecture}; L_c is defined for two layers (one hidden)"
        )
    w, gamma = (np.asarray(W, float) for W in branch.weights)
    omega = normalised_weights(sensor_weights, w.shape[1], name="sensor_weights")
    if (w[:, omega == 0] != 0).any():
        return float("inf")
    duals = np.linalg.norm(w[:, omega > 0] / np.sqrt(omega[omega > 0]), axis=1)
    return MAX_SLOPES[branch.activation] * float(np.linalg.norm(gamma, axis=0) @ duals)


def _steepest(f: np.ndarray, values: np.ndarray, others: Int[np.ndarray, "samples others"]) -> float:
    """The largest ratio of distances between a sample and the `others` of its row, block by block."""
    rows = max(1, _BLOCK // (others.shape[1] * max(f.shape[1], values.shape[1])))
    steepest = 0.0
    for first in range(0, len(f), rows):
        part = slice(first, first + rows)
        distances, differences = (np.linalg.norm(x[part, None] - x[others[part]], axis=2) for x in (f, values))
        with np.errstate(divide="ignore", invalid="ignore"):
            steepest = max(steepest, float(np.where(differences == 0, 0.0, differences / distances).max()))
    return steepest


def sensor_gaps(
    fine: Inputs,
    coarse: Sequence[tuple[Float[np.ndarray, "samples _"], Float[np.ndarray, " _"] | None]],
    *,
    weights: SensorWeights | None = None,
) -> Ladder:
    """max over pairs of (|f - g|_{w,2; m_x} - d(f, g))_+ for several m_x, with d from the `fine` sensors.

    `coarse` holds the same inputs at fewer sensors, with the weights of these. Minus the slope is the rate alpha.
    """
    chosen = _evenly(len(fine), _MAX_SAMPLES_IN_PAIRS)
    true = pdist(fine[chosen] * np.sqrt(normalised_weights(weights, fine.shape[1])))
    gaps = [
        float((pdist(values[chosen] * np.sqrt(normalised_weights(own, values.shape[1]))) - true).max(initial=0.0))
        for values, own in coarse
    ]
    return Ladder(np.asarray([values.shape[1] for values, _ in coarse]), np.asarray(gaps))


def _evenly(samples: int, max_samples: int) -> Int[np.ndarray, " chosen"]:
    if samples < 2:
        raise ValueRangeError(f"inputs: axis 'samples' has {samples} entries; expected at least 2 to compare")
    return evenly(samples, max_samples)


def _nearest(asked: np.ndarray, known: np.ndarray, count: int) -> Int[np.ndarray, "asked count"]:
    """Indices of the nearest `known`, from |a|^2 - 2 a b + |b|^2: accurate to 1e-8 of the spread only."""
    centre = known.mean(axis=0)
    a, b = asked - centre, known - centre
    squares = np.sum(b**2, axis=1)
    rows = max(1, _BLOCK // len(b))
    blocks = (squares - 2 * a[first : first + rows] @ b.T for first in range(0, len(a), rows))
    if count == 1:  # many times faster
        return np.concatenate([block.argmin(axis=1) for block in blocks])[:, None]
    return np.vstack([np.argpartition(block, count - 1, axis=1)[:, :count] for block in blocks])
