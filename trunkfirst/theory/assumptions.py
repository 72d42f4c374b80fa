"""The assumptions of thm:main, measured on an operator and its data, or estimated from samples.

Distances of input functions are |f - g|_{w,2} at their sensors, with weights that sum to 1. At most 4,000 samples
are compared, 1,000 where every pair is. A maximum over samples is a lower bound of the true constant.
"""

import dataclasses as dc
import math
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int
from scipy.spatial.distance import pdist

from ..data.array_checks import evenly
from ..data.operator_data import OperatorData
from ..encode import make_fields
from ..error_budget import free_basis, input_weights
from ..errors import DataError, TrunkfirstError, UsageError, ValueRangeError
from ..evaluation import predict_at
from ..networks.layers import Perceptron
from ..networks.operator import Operator
from .optimal_sensors import christoffel, sensor_condition
from .rates import Decay, Ladder, best_basis, n_term_decay, normalised_weights, truncate

# Floats in the comparison of all pairs.
_MAX_FLOATS = 2e8
_MIN_SENSORS = 64
_WANTED_ERRORS = (1e-2, 1e-4)
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


@dc.dataclass(frozen=True)
class Assumption:
    """A measured number and its meaning; where `value` is None, `meaning` gives the reason."""

    name: str
    value: float | None
    meaning: str


def check_assumptions(
    operator: Operator, test: OperatorData, at_sensors: OperatorData, training: OperatorData
) -> list[Assumption]:
    """Measure sensor condition, Lipschitz constants, fill distance, sensor gap, decay and bound.

    `test` is given at the evaluation points, `at_sensors` (the same samples) and `training` at the points of
    training. A number that cannot be measured is None, with the reason.
    """
    some = training.take(evenly(training.samples, _MAX_SAMPLES_IN_PAIRS))
    measured: list[Assumption] = []
    for names, measure in (
        (("K_N", "r_t", "|G - I|"), lambda: _sensor_condition(operator, test, training)),
        (("L_G",), lambda: _operator_lipschitz(some)),
        (("L_c, weights",), lambda: _branch_weights(operator)),
        (("L_c, samples",), lambda: _branch_samples(operator, some)),
        (("fill distance", "fill rate s"), lambda: _fill(at_sensors, training)),
        (("alpha",), lambda: [sensor_gap_rate(some)]),
        (("decay of the best basis", "decay of the trunk"), lambda: _decay(operator, at_sensors, some)),
        (("M", "truncation"), lambda: _bound(operator, test, training)),
    ):
        measured += _or_reason(names, measure)
    return measured


def _or_reason(names: tuple[str, ...], measure: Callable[[], list[Assumption]]) -> list[Assumption]:
    try:
        return measure()
    except TrunkfirstError as error:
        return [Assumption(name, None, f"not measured: {error}") for name in names]


# -- trunk


def _sensor_condition(operator: Operator, test: OperatorData, training: OperatorData) -> list[Assumption]:
    fine, fine_weights = free_basis(operator, test)
    found = christoffel(fine, weights=fine_weights)
    values, weights = free_basis(operator, training)
    scaled = None if weights is None else weights * len(weights)
    condition = sensor_condition(found, found.functions_at(values), scaled)
    statement = (
        "vacuous: the theory makes no statement"
        if condition.is_vacuous
        else "least squares is stable with high probability"
    )
    stable = "stable" if condition.deviation <= 0.5 else "above 1/2: not known to be stable"
    return [
        Assumption("K_N", condition.largest, f"largest |psi|^2 of {found.rank} functions, at best {found.rank}"),
        Assumption("r_t", condition.exponent, f"{statement}; {condition.sensors} sensors, at the trained mu*"),
        Assumption("|G - I|", condition.deviation, f"of these sensors themselves; {stable}"),
    ]


def _decay(operator: Operator, test: OperatorData, training: OperatorData) -> list[Assumption]:
    rows, own = (make_fields(d, operator.trunk.encoder, operator.output, None) for d in (test, training))
    features, weights = free_basis(operator, training)
    trunk = christoffel(features, weights=weights)

    def decay(within: np.ndarray | None) -> Decay:
        basis = best_basis(own.outputs, weights=trunk.weights, within=within)
        return n_term_decay(rows.outputs, basis, weights=trunk.weights)

    best = decay(None)
    needed = [_width_needed(best, error) for error in _WANTED_ERRORS]
    return [_rate("decay of the best basis", best), _rate("decay of the trunk", decay(trunk.basis)), *needed]


def _rate(name: str, decay: Decay) -> Assumption:
    if len(decay.ladder) < 2:
        return Assumption(name, None, "the error is rounding after one function")
    return Assumption(name, decay.slope().value, f"exponent of N in the error, N = 1 to {decay.ladder[-1]}")


def _width_needed(decay: Decay, error: float) -> Assumption:
    name, needed = f"N for {error:.0e}", decay.width_needed(error * decay.size)
    if needed is None:
        return Assumption(name, None, "no number of functions made from the training samples reaches it")
    return Assumption(name, float(needed), "functions that the best basis needs for this relative error")


# -- operator and branch


def _operator_lipschitz(training: OperatorData) -> list[Assumption]:
    outputs, weights = training.outputs.reshape(training.samples, -1), training.point_weights
    slope = operator_lipschitz(
        training.flat_inputs,
        outputs,
        sensor_weights=input_weights(training),
        point_weights=None if weights is None else np.repeat(weights, training.channels),
    )
    return [_finite("L_G", slope, "|u - v| / |f - g| of neighbouring training samples, a lower bound")]


def _branch_weights(operator: Operator) -> list[Assumption]:
    name, branch = "L_c, weights", operator.branch
    if not isinstance(branch, Perceptron) or len(branch.weights) != 2:
        return [Assumption(name, None, "defined for a branch of two layers; this one is of another kind")]
    return [_finite(name, branch_lipschitz(branch), "an upper bound, for encoded inputs")]


def _branch_samples(operator: Operator, training: OperatorData) -> list[Assumption]:
    with jax.enable_x64(operator.dtype == np.float64):
        flat = np.asarray(training.flat_inputs, operator.dtype)
        encoded = np.asarray(operator.encoder(jnp.asarray(flat)), float)
        count = int(math.sqrt(_MAX_FLOATS / max(encoded.shape[1], 1)))
        chosen = evenly(len(encoded), max(2, count))
        coefficients = np.asarray(operator.coefficients(flat[chosen]), float)
    slope = coefficient_lipschitz(encoded[chosen], coefficients)
    return [_finite("L_c, samples", slope, "steepest between training samples, a lower bound")]


def _finite(name: str, value: float, meaning: str) -> Assumption:
    return Assumption(name, value, meaning) if math.isfinite(value) else Assumption(name, None, "infinite")


# -- inputs and outputs


def _fill(test: OperatorData, training: OperatorData) -> list[Assumption]:
    found = fill_distances(training.flat_inputs, test.flat_inputs, weights=input_weights(training))
    where = f"largest distance from a test input to the nearest of {found.counts[0]} training inputs"
    rate = (
        Assumption("fill rate s", None, "too few distances are positive")
        if found.slope is None
        else Assumption("fill rate s", -found.slope.value, f"distance ~ K^-s, from {found.counts[-1]} samples on")
    )
    return [Assumption("fill distance", float(found.errors[0]), where), rate]


def sensor_gap_rate(training: OperatorData) -> Assumption:
    """alpha: how fast distances seen by 1/16, 1/8, 1/4 of the input sensors approach those seen by all."""
    if len(training.inputs) > 1 or training.flat_inputs.shape[1] < _MIN_SENSORS:
        return Assumption("alpha", None, f"inputs are not one function at {_MIN_SENSORS} sensors or more")
    values, weights = training.flat_inputs, input_weights(training)
    coarse = [(values[:, ::step], weights[::step] / weights[::step].sum()) for step in (16, 8, 4)]
    slope = sensor_gaps(values, coarse, weights=weights).slope
    if slope is None:
        return Assumption("alpha", None, "fewer sensors see no more than all of them")
    return Assumption("alpha", -slope.value, "distances seen ~ m_x^-alpha, from 1/16 of the sensors to 1/4")


def _bound(operator: Operator, test: OperatorData, training: OperatorData) -> list[Assumption]:
    largest = float(np.abs(training.outputs).max())
    if not largest > 0:
        raise DataError("outputs: all training outputs are zero")
    predictions = np.asarray(predict_at(operator, test), float)
    cut = truncate(predictions, largest)
    before, after = (float(np.sqrt(np.mean((values - test.outputs) ** 2))) for values in (predictions, cut))
    ratio, share = after / before if before > 0 else 1.0, float(np.mean(cut != predictions))
    return [
        Assumption("M", largest, "largest |u| of the training outputs"),
        Assumption("truncation", ratio, f"error with T_M over without; {share:.2%} cut"),
    ]


# -- estimates from samples


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
) -> Ladder:
    """The largest distance from the inputs `others` to the nearest of K, K/2, K/4, ... random training inputs.

    Minus the slope is the rate s. Of `others` at most 4,000 are used, of the training inputs all.
    """
    roots = np.sqrt(normalised_weights(weights, training.shape[1]))
    known = (training * roots)[np.random.default_rng(0).permutation(len(training))]
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
