"""The assumptions of thm:main, measured on an operator and its data."""

import dataclasses as dc
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from ..data.array_checks import evenly
from ..data.operator_data import OperatorData
from ..encode import make_fields
from ..error_budget import free_basis, input_weights
from ..errors import DataError, TrunkfirstError
from ..evaluation import predict_at
from ..networks.layers import Perceptron
from ..networks.operator import Operator
from .estimates import branch_lipschitz, coefficient_lipschitz, fill_distances, operator_lipschitz, sensor_gaps
from .optimal_sensors import christoffel, sensor_condition
from .rates import Decay, best_basis, n_term_decay, truncate

# Floats in the comparison of all pairs, and samples.
_MAX_FLOATS, _MAX_SAMPLES = 2e8, 1000
_MIN_SENSORS = 64
_WANTED_ERRORS = (1e-2, 1e-4)


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
    some = training.take(evenly(training.samples, _MAX_SAMPLES))
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
