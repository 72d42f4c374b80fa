"""Inputs from measurements: they are found, their spread is right, and what cannot be inverted is refused."""

from typing import Any

import numpy as np
import pytest

import trunkfirst
from trunkfirst.errors import DataError, PredictOnlyError, TrunkfirstError, UsageError, ValueRangeError

X = np.linspace(0, 1, 40)
LOW, HIGH = np.array([1.0, 0.5]), np.array([3.0, 2.0])


def field(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return b[:, None] * np.sin(a[:, None] * X)


def fitted(outputs: Any = field, branch: Any = None, **more: Any) -> trunkfirst.Operator:
    rng = np.random.default_rng(0)
    a, b = (LOW + rng.random((80, 2)) * (HIGH - LOW)).T
    branch = branch or trunkfirst.Kernel(smoothness="inf")
    method = trunkfirst.TwoStep(trunkfirst.ModesTrunk(), branch, inputs="standardise", weights="none")
    inputs = {"a": a[:, None], "b": b[:, None]}
    return trunkfirst.fit(inputs, outputs(a, b), X[:, None], method=method, **more).operator


@pytest.fixture(scope="module")
def operator() -> trunkfirst.Operator:
    return fitted()


def exact(a: float, b: float) -> np.ndarray:
    return field(np.array([a]), np.array([b]))[0]


def test_exact_measurements_give_the_inputs_back(operator: trunkfirst.Operator):
    found = operator.invert(exact(1.7, 1.2))
    np.testing.assert_allclose(found.inputs, [1.7, 1.2], rtol=1e-3)  # the error of the operator
    assert found.names == ("a", "b")
    assert not found.is_at_bound.any()
    assert "a = 1.7" in repr(found)


def test_the_spread_is_that_of_repeated_measurements(operator: trunkfirst.Operator):
    rng, places, sigma = np.random.default_rng(1), np.arange(1, 40, 4), 0.02
    draws = [
        operator.invert(
            exact(2.0, 1.0)[places] + sigma * rng.normal(size=10), X[places, None], noise=sigma, starts=2
        )
        for _ in range(60)
    ]
    inputs, spread = np.array([each.inputs for each in draws]), draws[0].spread
    # The standard deviation of 60 draws has a relative deviation of 1 / sqrt(120) = 9 %.
    np.testing.assert_allclose(inputs.std(axis=0), spread, rtol=0.3)
    np.testing.assert_allclose(inputs.mean(axis=0), [2.0, 1.0], atol=4 * spread.max() / np.sqrt(60))
    assert np.mean([each.misfit for each in draws]) == pytest.approx(np.sqrt(8 / 10), rel=0.1)


def test_noise_is_estimated_where_it_is_not_given(operator: trunkfirst.Operator):
    values = exact(2.0, 1.0) + 0.05 * np.random.default_rng(2).normal(size=40)
    found = operator.invert(values)
    assert found.noise == pytest.approx(0.05, rel=0.3)
    known = operator.invert(values, noise=0.05)
    np.testing.assert_allclose(found.spread, known.spread * found.noise / 0.05, rtol=0.05)


def test_what_was_not_measured_does_not_count(operator: trunkfirst.Operator):
    values = exact(1.5, 1.5)
    values[5:30] = np.nan
    kept = np.r_[0:5, 30:40]
    assert_same(operator.invert(values, noise=0.01), operator.invert(values[kept], X[kept, None], noise=0.01))


def assert_same(one: trunkfirst.Inversion, two: trunkfirst.Inversion) -> None:
    np.testing.assert_allclose(one.inputs, two.inputs, rtol=1e-6)
    np.testing.assert_allclose(one.covariance, two.covariance, rtol=1e-4)


def test_inputs_stay_in_the_training_range(operator: trunkfirst.Operator):
    found = operator.invert(exact(2.0, 5.0), noise=0.01)
    assert found.inputs[1] == pytest.approx(2.0, abs=0.05)
    assert found.is_at_bound[1]
    assert found.misfit > 10  # nothing in the range explains it
    assert "end of the range" in repr(found)


def test_what_the_measurements_do_not_tell_spreads_over_the_range():
    """Only the product of the two matters; the deviation of a uniform distribution is its width / sqrt(12)."""
    operator = fitted(lambda a, b: (a * b)[:, None] * (1 + X))
    found = operator.invert(2.0 * (1 + X), noise=1e-3)
    assert found.inputs.prod() == pytest.approx(2.0, rel=1e-3)
    width = (HIGH - LOW) / np.sqrt(12)
    assert (found.spread > 0.3 * width).all()
    assert (found.spread <= width).all()


def test_other_local_minima_are_reported():
    """Two values of a give the same field."""
    operator = fitted(lambda a, b: ((a - 2) ** 2)[:, None] * (1 + X) + b[:, None] * X**2)
    found = operator.invert(0.25 * (1 + X) + X**2, noise=1e-2)
    assert len(found.others) == 1
    a = sorted([found.inputs[0], found.others[0].inputs[0]])
    np.testing.assert_allclose(a, [1.5, 2.5], atol=0.02)


def test_channels_and_the_error_of_the_operator():
    def two(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        u = field(a, b)
        return np.stack([u, u**2], axis=2)

    operator = fitted(two, intervals=True)
    values = two(np.array([1.4]), np.array([0.9]))[0]
    found = operator.invert(values, noise=1e-8)
    error = np.abs(found.inputs - [1.4, 0.9])
    assert (error < 4 * found.spread).all()  # a noise of 1e-8 alone would give a far smaller spread
    values[:, 1] = np.nan
    assert (np.abs(operator.invert(values, noise=1e-3).inputs - [1.4, 0.9]) < 0.02).all()


WRONG: dict[str, tuple[dict[str, Any], type[TrunkfirstError], str]] = {
    "other points": ({"observations": np.ones(3)}, DataError, r"expected shape \(40,\).*got \(3,\)"),
    "nothing": ({"observations": np.full(40, np.nan)}, DataError, "none is given"),
    "infinite": ({"observations": np.full(40, np.inf)}, DataError, "infinite"),
    "no noise": ({"noise": 0.0}, ValueRangeError, "above 0"),
    "other noise": ({"noise": np.ones(3)}, DataError, "noise: expected one number"),
    "outside": (
        {"observations": [1.0], "points": [[9.0]]},
        DataError,
        "leave the measurements there out",
    ),
    "no start": ({"starts": 0}, ValueRangeError, "starts is 0"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_measurements(name: str, operator: trunkfirst.Operator):
    arguments, error, words = WRONG[name]
    with pytest.raises(error, match=words):
        operator.invert(**{"observations": exact(2.0, 1.0), **arguments})


def test_functions_and_foreign_branches_are_refused():
    a = np.random.default_rng(0).normal(size=(20, 40))
    method = trunkfirst.TwoStep(trunkfirst.ModesTrunk(), trunkfirst.Linear(), inputs="raw", weights="none")
    operator = trunkfirst.fit(a, np.cumsum(a, axis=1), X[:, None], method=method).operator
    with pytest.raises(UsageError, match="functions with 40 values"):
        operator.invert(np.ones(40))
    from sklearn.linear_model import Ridge

    with pytest.raises(PredictOnlyError, match="Ridge"):
        fitted(branch=trunkfirst.Sklearn(Ridge())).invert(np.ones(40))
