"""Errors on samples that took no part: formulas, the conditional optimum, references."""

import dataclasses as dc

import numpy as np
import pytest
from helpers import fitted, make_network, waves

from trunkfirst.encoders import Identity
from trunkfirst.evaluation import Evaluation, conditional_optimum, evaluate
from trunkfirst.linear.orthonormalise import projection, relative_errors
from trunkfirst.networks.layers import Trunk
from trunkfirst.networks.operator import Operator

METHODS = pytest.mark.parametrize("method", ["two-step", "two-step-without-qr", "monolithic"])
WEIGHTS = np.random.default_rng(0).uniform(0.5, 1.5, 30)


# -- errors


def test_relative_errors():
    outputs = np.array([[3.0, 4.0], [0.0, 2.0]])
    predictions = np.array([[3.0, 4.5], [2.0, 2.0]])
    assert np.allclose(relative_errors(predictions, outputs), [0.1, 1.0], rtol=1e-15)
    weighted = relative_errors(predictions, outputs, point_weights=np.array([0.25, 0.75]))
    assert np.allclose(
        weighted, np.sqrt([0.75 * 0.25 / (0.25 * 9 + 0.75 * 16), 0.25 * 4 / (0.75 * 4)]), rtol=1e-15
    )


def test_relative_errors_of_zero_fields():
    """Relative to the root mean square of all fields; to 1 where all are zero."""
    found = relative_errors(np.array([[0.0, 0.0], [1.0, 0.0]]), np.zeros((2, 2)))
    assert found.tolist() == [0.0, 1.0]
    outputs = np.array([[0.0, 0.0], [3.0, 4.0], [0.0, 0.0], [0.0, 5.0]])
    found = relative_errors(outputs + np.array([1.0, 0.0]), outputs)
    assert found == pytest.approx([np.sqrt(2) / 5, 1 / 5, np.sqrt(2) / 5, 1 / 5])


@pytest.mark.parametrize("weighted", [False, True])
def test_projection(weighted: bool):
    rng = np.random.default_rng(0)
    weights = WEIGHTS / WEIGHTS.sum() if weighted else np.full(30, 1 / 30)
    Q = np.linalg.qr(rng.normal(size=(30, 4)))[0] / np.sqrt(weights)[:, None]
    outputs = rng.normal(size=(3, 30))
    roots = np.sqrt(weights)
    coefficients = np.linalg.lstsq(Q * roots[:, None], (outputs * roots).T, rcond=None)[0]
    found = projection(outputs, Q, point_weights=weights if weighted else None)
    assert np.allclose(found, (Q @ coefficients).T, rtol=0, atol=1e-13)


# -- the conditional optimum


@METHODS
@pytest.mark.parametrize("weighted", [False, True])
def test_no_sample_is_better_than_its_optimum(method: str, weighted: bool):
    data = waves(samples=40, seed=3, point_weights=WEIGHTS if weighted else None)
    found = evaluate(fitted(method).operator, data)
    assert np.all(found.optimal_errors <= found.errors * (1 + 1e-12))
    assert np.all(found.optimal_errors > 0)


@METHODS
def test_the_optimum_is_the_least_squares_fit_by_the_trunk(method: str):
    data = waves(samples=40, seed=3)
    operator = fitted(method).operator
    Phi = trunk_values(operator.trunk, data.points)
    expected = (Phi @ np.linalg.lstsq(Phi, data.outputs.T, rcond=None)[0]).T
    # A two-step operator may have dropped directions; what it kept is at most one per cent worse in training.
    tolerance = 1e-9 if method != "two-step" else 0.1
    found = conditional_optimum(operator, data)
    errors = [relative_errors(fields, data.outputs).mean() for fields in (found, expected)]
    assert errors[0] == pytest.approx(errors[1], rel=tolerance)


def test_the_optimum_of_an_ill_conditioned_trunk():
    """Smooth functions that hardly differ, at condition 1e11: still a projection, and still the best."""
    data = waves(samples=5, points=200)
    trunk = Trunk(make_network(2, 60, 60))
    operator = Operator(Identity(), make_network(2, 3, 61), trunk)
    Phi = trunk_values(trunk, data.points)
    Phi = Phi / np.linalg.norm(Phi, axis=0)
    assert 1e10 < np.linalg.cond(Phi) < 1e12
    once = conditional_optimum(operator, data)
    twice = conditional_optimum(operator, dc.replace(data, outputs=once))
    assert np.abs(twice - once).max() < 1e-13 * np.abs(once).max() * 10
    expected = (Phi @ np.linalg.lstsq(Phi, data.outputs.T, rcond=1e-13)[0]).T
    errors = [np.linalg.norm(fields - data.outputs) for fields in (once, expected)]
    assert errors[0] <= errors[1] * (1 + 1e-6) + 1e-12


def trunk_values(trunk: Trunk, points: np.ndarray) -> np.ndarray:
    """The trunk in NumPy (tanh, one hidden layer)."""
    (W, V), (b, c) = trunk.network.weights, trunk.network.biases
    values = np.tanh(points @ np.asarray(W).T + np.asarray(b)) @ np.asarray(V).T + np.asarray(c)
    return np.hstack([np.ones((len(points), 1)), values])


# -- the evaluation


def test_errors_and_references():
    plain = waves(samples=40, seed=3)
    data = waves(samples=40, seed=3, reference_outputs=plain.outputs * 1.01)
    operator = fitted("two-step").operator
    found = evaluate(operator, data)
    predictions = operator.predict(data.flat_inputs, data.points)
    norms = np.linalg.norm(data.outputs, axis=1)
    assert np.array_equal(found.predictions, predictions)
    assert np.allclose(found.errors, np.linalg.norm(predictions - data.outputs, axis=1) / norms, rtol=1e-13)
    differences = np.linalg.norm(predictions - 1.01 * data.outputs, axis=1)
    assert found.reference_errors is not None
    assert found.own_errors is not None
    assert np.allclose(found.reference_errors, differences / (1.01 * norms), rtol=1e-13)
    assert np.allclose(found.own_errors, 0.01 / 1.01, rtol=1e-10)


def test_no_reference():
    found = evaluate(fitted("monolithic").operator, waves())
    assert found.reference_errors is None
    assert found.own_errors is None
    assert found.summary()["reference_mean_relative_l2"] is None


def test_summary():
    errors, optimal, reference = (np.array(v) for v in ([1.0, 2.0, 6.0], [0.1, 0.2, 0.3], [1.0, 1.0, 4.0]))
    assert Evaluation(np.zeros((3, 1)), errors, optimal, reference, None).summary() == {
        "mean_relative_l2": 3.0,
        "median_relative_l2": 2.0,
        "max_relative_l2": 6.0,
        "optimal_mean_relative_l2": pytest.approx(0.2),
        "kernel_mean_relative_l2": None,
        "reference_mean_relative_l2": 2.0,
    }


def test_errors_are_those_of_each_sample_alone():
    """A sample's errors do not depend on the others in the batch: rounding of order eps in relative l2."""
    data = waves(samples=40, seed=3)
    operator = fitted("two-step").operator
    whole, part = evaluate(operator, data), evaluate(operator, data.take(np.array([7, 3])))
    assert np.allclose(part.errors, whole.errors[[7, 3]], rtol=0, atol=1e-12)
    assert np.allclose(part.optimal_errors, whole.optimal_errors[[7, 3]], rtol=0, atol=1e-12)
