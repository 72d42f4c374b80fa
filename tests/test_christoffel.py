"""The Christoffel function and the condition on sensors: Legendre polynomials, where both are known."""

import math

import numpy as np
import pytest
from legendre import known_christoffel, lobatto, polynomials

from trunkfirst.errors import DataError, ValueRangeError
from trunkfirst.theory.optimal_sensors import (
    SensorCondition,
    christoffel,
    gram,
    gram_deviation,
    sensor_condition,
    theoretical_sensors,
)

Y, OMEGA = lobatto(60)


def mixed(count: int, functions: int, seed: int = 0) -> np.ndarray:
    """Another basis of the same polynomials; with more functions than polynomials a redundant one."""
    return polynomials(Y, count) @ np.random.default_rng(seed).normal(size=(count, functions))


# -- the function


@pytest.mark.parametrize("count", [1, 2, 5, 12])
@pytest.mark.parametrize("surplus", [0, 4])
def test_known_for_polynomials(count: int, surplus: int):
    found = christoffel(mixed(count, count + surplus), weights=2 * OMEGA)  # weights that sum to the length 2
    assert found.rank == count
    assert found.weights @ found.values == pytest.approx(count, rel=1e-12)
    assert found.largest == pytest.approx(count**2, rel=1e-9)
    assert count == 1 or abs(Y[found.values.argmax()]) == 1.0
    assert np.allclose(found.values, known_christoffel(Y, count), rtol=1e-9, atol=0)
    assert np.abs((found.basis.T * OMEGA) @ found.basis - np.eye(count)).max() < 1e-12


def test_known_off_the_grid():
    features = np.random.default_rng(0).normal(size=(7, 7))
    found = christoffel(polynomials(Y, 7) @ features, weights=OMEGA)
    y = np.random.default_rng(1).uniform(-1, 1, 40)
    psi = found.functions_at(polynomials(y, 7) @ features)
    assert np.allclose(np.sum(psi**2, axis=1), known_christoffel(y, 7), rtol=1e-9, atol=0)


def test_equal_weights_are_the_default():
    y = np.random.default_rng(0).uniform(-1, 1, 50)
    found = christoffel(polynomials(y, 4))
    hat = polynomials(y, 4) @ np.linalg.pinv(polynomials(y, 4))
    assert np.allclose(found.values, 50 * np.diag(hat), rtol=1e-12)  # leverage scores over their weights


@pytest.mark.parametrize(("tolerance", "rank"), [(None, 6), (1e-9, 6), (1e-4, 5)])
def test_tolerance_cuts_a_redundant_basis(tolerance: float | None, rank: int):
    """The sixth direction is 1e-6 of the others; the soft form with eps between both is the same function."""
    P = polynomials(Y, 6)
    P[:, 5] = P[:, 4] + 1e-6 * P[:, 5]
    found = christoffel(P, weights=OMEGA, tolerance=tolerance)
    assert found.rank == rank
    eps = 1e-3 if rank == 5 else 1e-11
    scaled = P / np.sqrt(OMEGA @ P**2)
    soft = np.sum(scaled @ np.linalg.inv((scaled.T * OMEGA) @ scaled + eps**2 * np.eye(6)) * scaled, axis=1)
    assert np.allclose(found.values, soft, rtol=1e-3)


def test_points_without_weight_are_not_seen():
    weights = OMEGA.copy()
    weights[[0, -1]] = 0
    found = christoffel(polynomials(Y, 5), weights=weights)
    inside = christoffel(polynomials(Y[1:-1], 5), weights=weights[1:-1])
    assert np.allclose(found.values[1:-1], inside.values, rtol=1e-9)
    assert (found.values[[0, -1]] == 0).all()
    assert found.weights @ found.values == pytest.approx(5, rel=1e-12)


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        (OMEGA - OMEGA.mean(), "not negative"),
        (0 * OMEGA, "not all zero"),
        (np.where(OMEGA > 0.02, np.nan, OMEGA), "finite"),
    ],
)
def test_weights_that_are_no_measure(weights: np.ndarray, words: str):
    with pytest.raises(DataError, match=words):
        christoffel(polynomials(Y, 3), weights=weights)


# -- the matrix of the sensors


@pytest.mark.parametrize("count", [3, 6])
def test_gram_at_gauss_points_is_the_identity(count: int):
    nodes, weights = np.polynomial.legendre.leggauss(count)
    psi = polynomials(nodes, count)
    assert gram_deviation(psi, weights / 2 * count) < 1e-13
    assert gram_deviation(2 * psi, weights / 2 * count) == pytest.approx(3, rel=1e-12)


def test_gram_term_by_term():
    rng = np.random.default_rng(0)
    psi, w = rng.normal(size=(9, 4)), rng.uniform(size=9)
    terms = sum(w[i] * np.outer(psi[i], psi[i]) for i in range(9)) / 9
    assert np.allclose(gram(psi, w), terms, rtol=1e-13)
    assert np.allclose(gram(psi), gram(psi, np.ones(9)), rtol=1e-13)
    assert gram_deviation(psi, w) == pytest.approx(np.abs(np.linalg.eigvalsh(terms - np.eye(4))).max(), rel=1e-12)


# -- the condition


@pytest.mark.parametrize("largest", [1.0, 2.0, 26.0, 51.0, 201.0, 316.0])
@pytest.mark.parametrize("exponent", [0.0, 1.0])
def test_sensors_that_the_theory_asks_for(largest: float, exponent: float):
    """By trying all; one sensor less is too few."""
    kappa = (3 * math.log(1.5) - 1) / (2 + 2 * exponent)
    m = np.arange(3, 70_000)
    sensors = int(m[np.argmax(largest <= kappa * m / np.log(m))])
    assert theoretical_sensors(largest, exponent=exponent) == sensors
    reached = [SensorCondition(count, 1, largest, 0.0).exponent for count in (sensors - 1, sensors)]
    assert reached[0] < exponent <= reached[1]


def test_the_examples_of_the_paper_are_vacuous_even_at_best():
    """K_N >= N + 1 = 51 and 201 with 2049 and 541 sensors; 26 with 4225 is just enough."""
    best = [SensorCondition(m, n, float(n), 0.0).is_vacuous for m, n in ((2049, 51), (4225, 26), (541, 201))]
    assert best == [True, False, True]


@pytest.mark.parametrize(("sensors", "is_vacuous"), [(100, True), (200, True), (20_000, False)])
def test_condition_on_uniform_sensors(sensors: int, is_vacuous: bool):
    """Five polynomials: K_N = 25, so 1718 sensors for any r_t, 3812 for r_t = 1."""
    found = christoffel(polynomials(Y, 5), weights=OMEGA)
    y = np.random.default_rng(0).uniform(-1, 1, sensors)
    condition = sensor_condition(found, polynomials(y, 5))
    assert condition.largest == pytest.approx(25, rel=1e-9)
    assert condition.is_vacuous is is_vacuous
    assert (sensors >= theoretical_sensors(found.largest, exponent=0.0)) is not is_vacuous
    assert condition.deviation == gram_deviation(polynomials(y, 5))
    kappa = (3 * math.log(1.5) - 1) / (2 + 2 * condition.exponent)
    assert kappa * sensors / math.log(sensors) == pytest.approx(condition.largest, rel=1e-9)


def test_failures_stay_below_the_bound():
    """2 r exp(-c m / K_N) with m chosen so that it is below 1; a thousand draws of the sensors."""
    sensors, rng = 400, np.random.default_rng(0)
    bound = SensorCondition(sensors, 3, 9.0, 0.0).failure
    assert 0.01 < bound < 0.1
    draws = [gram_deviation(polynomials(rng.uniform(-1, 1, sensors), 3)) for _ in range(1000)]
    assert np.mean(np.asarray(draws) > 0.5) < bound
    assert SensorCondition(2, 3, 9.0, 0.0).failure == 1.0


def test_christoffel_weights_replace_the_largest_value_by_the_rank():
    found = christoffel(polynomials(Y, 5), weights=OMEGA)
    y = np.random.default_rng(0).uniform(-1, 1, 30)
    condition = sensor_condition(found, polynomials(y, 5), 5 / known_christoffel(y, 5))
    assert condition.largest == pytest.approx(5, rel=1e-12)


def test_one_sensor_is_no_set():
    found = christoffel(polynomials(Y, 2), weights=OMEGA)
    with pytest.raises(ValueRangeError, match="axis 'sensors' has 1 entries"):
        sensor_condition(found, polynomials(Y[:1], 2))
