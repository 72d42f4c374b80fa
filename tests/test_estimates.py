"""Assumptions measured on samples: lattices, linear operators and spectra whose constants and rates are known."""

import numpy as np
import pytest
import scipy.stats
from legendre import bumps, lobatto, polynomials
from scipy.spatial.distance import cdist

from trunkfirst.errors import DataError, ValueRangeError
from trunkfirst.linear.low_rank import trunk_limit
from trunkfirst.theory.assumptions import (
    coefficient_lipschitz,
    fill_distances,
    generalisation_errors,
    operator_lipschitz,
    sensor_gaps,
)
from trunkfirst.theory.optimal_sensors import christoffel
from trunkfirst.theory.rates import best_basis, fit_slope, n_term_decay

Y, OMEGA = lobatto(80)


@pytest.fixture(params=[False, True], ids=["at once", "in blocks"])
def blocks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few numbers at once, so that every loop over blocks has several."""
    if request.param:
        monkeypatch.setattr("trunkfirst.theory.assumptions._BLOCK", 700)


# -- slopes


@pytest.mark.parametrize("power", [-2.0, -0.5, 0.0, 1.5])
def test_exact_powers(power: float):
    x = np.array([3, 10, 40, 100])
    slope = fit_slope(x, 7.0 * x**power)
    assert slope.value == pytest.approx(power, abs=1e-13)
    assert slope.constant == pytest.approx(7, rel=1e-12)
    assert abs(slope.upper - slope.lower) < 1e-12


@pytest.mark.parametrize("level", [0.8, 0.95])
def test_interval_is_students(level: float):
    rng = np.random.default_rng(0)
    x = np.geomspace(1, 100, 9)
    y = x**-1.3 * np.exp(0.1 * rng.normal(size=9))
    slope = fit_slope(x, y, level=level)
    value, intercept, _, _, deviation = scipy.stats.linregress(np.log(x), np.log(y))
    half = scipy.stats.t.ppf((1 + level) / 2, 7) * deviation
    assert slope.value == pytest.approx(value, rel=1e-12)
    assert slope.constant == pytest.approx(np.exp(float(intercept)), rel=1e-12)
    assert (slope.lower, slope.upper) == pytest.approx((value - half, value + half), rel=1e-9)


def test_interval_covers_as_often_as_it_says():
    rng, x = np.random.default_rng(1), np.geomspace(1, 50, 5)
    slopes = [fit_slope(x, x**-1.0 * np.exp(0.2 * rng.normal(size=5)), level=0.9) for _ in range(2000)]
    assert np.mean([slope.lower <= -1 <= slope.upper for slope in slopes]) == pytest.approx(0.9, abs=0.02)


def test_two_measurements_leave_everything_open():
    slope = fit_slope(np.array([1.0, 2.0]), np.array([1.0, 0.25]))
    assert (slope.value, slope.lower, slope.upper) == (pytest.approx(-2), -np.inf, np.inf)


@pytest.mark.parametrize(
    ("x", "y", "words"),
    [
        ([1.0, 2.0], [1.0, 0.0], "y: must be finite and positive"),
        ([0.0, 2.0], [1.0, 1.0], "x: must be finite and positive"),
        ([2.0, 2.0], [1.0, 3.0], "x: has 1 different values"),
    ],
)
def test_no_slope(x: list[float], y: list[float], words: str):
    with pytest.raises(DataError, match=words):
        fit_slope(np.array(x), np.array(y))


# -- the error of the theorem


def test_errors_are_integrals():
    """u = y^2, predicted y^2 + a y: the squared error is a^2 / 3 under the uniform measure."""
    a = np.array([[0.5], [-2.0], [0.0]])
    outputs = np.tile(Y**2, (3, 1))
    found = generalisation_errors(outputs + a * Y, outputs, weights=2 * OMEGA)
    assert np.allclose(found, np.abs(a[:, 0]) / np.sqrt(3), rtol=1e-12)


def test_bad_weights_are_named():
    with pytest.raises(
        DataError, match="weights: must be finite, not negative and not all zero; the smallest is -1"
    ):
        generalisation_errors(np.ones((2, 3)), np.ones((2, 3)), weights=np.array([1.0, 1.0, -1.0]))


# -- fill distances


def lattice(count: int, dimension: int) -> np.ndarray:
    """Midpoints of count^dimension equal cubes in the unit cube."""
    axis = (np.arange(count) + 0.5) / count
    return np.stack(np.meshgrid(*[axis] * dimension), axis=-1).reshape(-1, dimension)


def corners(count: int, dimension: int) -> np.ndarray:
    """The points that are farthest from the lattice, the corners of its cubes."""
    axis = np.arange(count + 1) / count
    return np.stack(np.meshgrid(*[axis] * dimension), axis=-1).reshape(-1, dimension)


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("dimension", [1, 2, 3])
def test_lattices(dimension: int):
    """Half a diagonal: sqrt(d) / (2 n), and 1 / (2 n) in the mean over d sensors. So h_K = K^(-1/d) / 2."""
    sizes = np.array([3, 5, 8])
    distances = [fill_distances(lattice(n, dimension), corners(n, dimension), levels=1).errors[0] for n in sizes]
    assert np.allclose(distances, 1 / (2 * sizes), rtol=1e-12)
    slope = fit_slope(sizes**dimension, np.asarray(distances))
    assert slope.value == pytest.approx(-1 / dimension, rel=1e-12)


@pytest.mark.parametrize("dimension", [1, 2])
def test_rate_and_dimension_of_random_inputs(dimension: int):
    """Parameters seen through six sensors, linearly: the rate is that of the parameters."""
    rng = np.random.default_rng(2)
    sight = np.linalg.qr(rng.normal(size=(6, dimension)))[0].T
    training, others = rng.uniform(size=(4000, dimension)) @ sight, rng.uniform(size=(500, dimension)) @ sight
    found = fill_distances(training, others, levels=7)
    assert found.counts.tolist() == [4000, 2000, 1000, 500, 250, 125, 62]
    assert (np.diff(found.errors) >= 0).all()  # nested sets
    assert found.slope is not None
    assert found.slope.value == pytest.approx(-1 / dimension, abs=0.2)


@pytest.mark.usefixtures("blocks")
def test_fill_distance_by_brute_force():
    rng = np.random.default_rng(0)
    training, others, weights = rng.normal(size=(40, 5)), rng.normal(size=(30, 5)), rng.uniform(size=5)
    found = fill_distances(training, others, weights=weights, levels=2)
    all_pairs = cdist(others, training, "minkowski", p=2, w=weights / weights.sum())
    assert found.counts.tolist() == [40, 20]
    assert found.errors[0] == pytest.approx(all_pairs.min(axis=1).max(), rel=1e-12)
    order = np.random.default_rng(0).permutation(40)[:20]
    assert found.errors[1] == pytest.approx(all_pairs[:, order].min(axis=1).max(), rel=1e-12)


def test_inputs_that_were_all_seen_have_no_rate():
    training = np.random.default_rng(0).normal(size=(16, 3))
    found = fill_distances(training, training, levels=1)
    assert found.errors.tolist() == [0.0]
    assert found.slope is None


# -- Lipschitz constants


def linear_map(outputs: int = 7, sensors: int = 4) -> np.ndarray:
    return np.random.default_rng(3).normal(size=(outputs, sensors))


def with_a_steep_pair(A: np.ndarray, weights: np.ndarray, point_weights: np.ndarray) -> tuple[np.ndarray, float]:
    """Random inputs, two of which (30 and 37) differ in the steepest direction; and the norm of A."""
    scaled = np.sqrt(point_weights)[:, None] * A / np.sqrt(weights)
    _, s, W = np.linalg.svd(scaled)
    inputs = np.random.default_rng(4).normal(size=(40, A.shape[1]))
    inputs[37] = inputs[30] + 1e-3 * W[0] / np.sqrt(weights)
    return inputs, float(s[0])


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("is_weighted", [False, True])
def test_operator_norm(is_weighted: bool):
    rng = np.random.default_rng(5)
    A = linear_map()
    w, omega = (rng.uniform(0.5, 1.5, n) if is_weighted else np.ones(n) for n in (4, 7))
    w, omega = w / w.sum(), omega / omega.sum()
    inputs, norm = with_a_steep_pair(A, w, omega)
    weights = {"sensor_weights": 3 * w, "point_weights": 5 * omega} if is_weighted else {}
    assert operator_lipschitz(inputs, inputs @ A.T, **weights) == pytest.approx(norm, rel=1e-9)
    rest = np.delete(np.arange(40), 37)
    assert operator_lipschitz(inputs[rest], inputs[rest] @ A.T, **weights) < norm * (1 - 1e-6)


@pytest.mark.usefixtures("blocks")
def test_coefficients_have_the_norm_of_their_map():
    A, w = linear_map(5), np.array([0.1, 0.2, 0.3, 0.4])
    inputs, norm = with_a_steep_pair(A, w, np.ones(5))
    assert coefficient_lipschitz(inputs, inputs @ A.T, sensor_weights=w) == pytest.approx(norm, rel=1e-9)


def test_near_pairs_find_the_steepest_place():
    """u = sin(3 a): the largest slope is 3, at a = 0, and only near pairs see it."""
    a = np.linspace(-1, 1, 201)[:, None]
    near = operator_lipschitz(a, np.sin(3 * a), neighbours=2)
    assert 3 * (1 - 1e-3) < near < 3


def test_equal_inputs_with_different_outputs():
    inputs = np.array([[0.0], [1.0], [1.0], [2.0]])
    same, other = np.array([[0.0], [1.0], [1.0], [2.0]]), np.array([[0.0], [1.0], [1.5], [2.0]])
    assert operator_lipschitz(inputs, same) == 1
    assert operator_lipschitz(inputs, other) == coefficient_lipschitz(inputs, other) == np.inf


def test_many_samples_are_thinned_evenly(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("trunkfirst.theory.assumptions._MAX_SAMPLES", 21)
    a = np.linspace(0, 1, 201)[:, None]
    assert operator_lipschitz(a, a**2) == pytest.approx(1.95, rel=1e-12)  # every tenth: between 0.95 and 1


def test_one_sample_cannot_be_compared():
    with pytest.raises(ValueRangeError, match="axis 'samples' has 1 entries"):
        operator_lipschitz(np.ones((1, 2)), np.ones((1, 3)))


# -- input sensors


def test_gap_of_the_right_endpoint_rule():
    """f = a x on [0, 1]: |f - g| is |a - b| / sqrt(3), and sqrt((m + 1)(2 m + 1) / 6) / m |a - b| by the rule."""
    a = np.linspace(-1, 1, 9)[:, None]
    nodes, weights = np.polynomial.legendre.leggauss(5)
    counts = np.array([16, 32, 64, 128])
    coarse = [(a * np.arange(1, m + 1) / m, None) for m in counts]
    found = sensor_gaps(a * (nodes + 1) / 2, coarse, weights=weights)
    known = 2 * (np.sqrt((counts + 1) * (2 * counts + 1) / 6) / counts - 1 / np.sqrt(3))
    assert found.counts.tolist() == counts.tolist()
    assert np.allclose(found.errors, known, rtol=1e-9)
    assert found.slope is not None
    assert found.slope.value == pytest.approx(-1, abs=0.02)


def test_gap_of_the_trapezoidal_rule():
    """Its own weights, second order."""
    a = np.random.default_rng(0).normal(size=(10, 1))
    nodes, weights = np.polynomial.legendre.leggauss(8)
    coarse = []
    for m in (9, 17, 33, 65):
        own = np.ones(m)
        own[[0, -1]] = 0.5
        coarse.append((a * np.linspace(0, 1, m), own))
    slope = sensor_gaps(a * (nodes + 1) / 2, coarse, weights=weights).slope
    assert slope is not None
    assert slope.value == pytest.approx(-2, abs=0.15)


def test_sensors_that_miss_something_have_no_gap():
    """Only an excess counts: the left endpoint rule stays below the true distance."""
    a = np.linspace(0, 1, 5)[:, None]
    x = (np.arange(1000) + 0.5) / 1000
    found = sensor_gaps(a * x, [(a * np.arange(m) / m, None) for m in (4, 8)])
    assert found.errors.tolist() == [0.0, 0.0]
    assert found.slope is None


# -- the N-term error


def spectral_outputs(power: float, *, count: int = 128, samples: int = 160) -> np.ndarray:
    """Samples (rows) whose singular values besides the constant are i^-power, on equally spaced points."""
    rng = np.random.default_rng(6)
    left = np.linalg.qr(rng.normal(size=(samples, count)))[0]
    ones = np.ones((300, 1))
    right = np.linalg.qr(np.hstack([ones, rng.normal(size=(300, count))]))[0][:, 1:]
    return 5 + left * np.arange(1, count + 1) ** -power @ right.T


@pytest.mark.parametrize("power", [2.0, 3.0])
def test_algebraic_spectrum(power: float):
    """The squares i^(-2 p) add up to about N^(1 - 2 p) / (2 p - 1): the rate is p - 1/2."""
    outputs = spectral_outputs(power)
    decay = n_term_decay(outputs, best_basis(outputs))
    tails = np.cumsum((np.arange(1, 129) ** -(2 * power))[::-1])[::-1]
    assert np.allclose(decay.root_mean_square[:100], np.sqrt(tails[:100] / outputs.size), rtol=1e-8)
    assert decay.ladder.tolist() == [1, 2, 4, 8, 16, 32, 64]
    assert decay.slope() == fit_slope(decay.ladder, decay.root_mean_square[decay.ladder])
    # From 8 to 16: before, N is not N + 1/2; after, the spectrum ends.
    assert decay.slope(np.arange(8, 17)).value == pytest.approx(0.5 - power, abs=0.12)


@pytest.mark.parametrize("width", [0, 1, 5, 20])
def test_best_basis_attains_the_limit(width: int):
    outputs = 3 + np.random.default_rng(0).normal(size=(30, 50)) * np.geomspace(1, 1e-3, 50)
    decay = n_term_decay(outputs, best_basis(outputs))
    assert decay.root_mean_square[width] ** 2 == pytest.approx(trunk_limit(outputs, width), rel=1e-9)


@pytest.mark.parametrize("width", [0, 3, 9])
def test_errors_by_least_squares(width: int):
    """Root mean square and largest, in the weighted norm, on samples that the basis was not made from."""
    outputs = bumps(Y, 20)
    made, new = outputs[::2], outputs[1::2]
    basis = best_basis(made, weights=OMEGA)
    decay = n_term_decay(new, basis, weights=OMEGA)
    roots = np.sqrt(OMEGA)[:, None]
    fit = np.linalg.lstsq(basis[:, : width + 1] * roots, new.T * roots, rcond=None)[0]
    squares = ((basis[:, : width + 1] @ fit).T - new) ** 2 @ OMEGA
    assert np.abs(basis[:, 0] - basis[0, 0]).max() < 1e-12  # the constant comes first
    assert np.abs((basis.T * OMEGA) @ basis - np.eye(basis.shape[1])).max() < 1e-12
    assert decay.root_mean_square[width] == pytest.approx(np.sqrt(squares.mean()), rel=1e-8)
    assert decay.largest[width] == pytest.approx(np.sqrt(squares.max()), rel=1e-8)
    assert decay.size == pytest.approx(np.sqrt(np.mean(new**2 @ OMEGA)), rel=1e-12)


def test_no_basis_is_better_in_the_weighted_norm():
    outputs = bumps(Y, 20)
    best = n_term_decay(outputs, best_basis(outputs, weights=OMEGA), weights=OMEGA)
    others = n_term_decay(outputs, polynomials(Y, 12), weights=OMEGA)
    plain = christoffel(best_basis(outputs)[:, :6], weights=OMEGA).basis  # the best for equal weights
    assert (best.root_mean_square[1:12] < others.root_mean_square[1:12]).all()
    assert best.root_mean_square[5] < n_term_decay(outputs, plain, weights=OMEGA).root_mean_square[-1]


def test_best_within_a_trunk():
    """Between the best of all and the trunk's own order; all its functions together leave the same."""
    outputs, trunk = bumps(Y, 20), polynomials(Y, 12)
    within = n_term_decay(outputs, best_basis(outputs, weights=OMEGA, within=trunk), weights=OMEGA)
    own = n_term_decay(outputs, trunk, weights=OMEGA)
    best = n_term_decay(outputs, best_basis(outputs, weights=OMEGA), weights=OMEGA)
    assert len(within.largest) == 12
    assert (within.root_mean_square <= own.root_mean_square * (1 + 1e-12)).all()
    assert (within.root_mean_square >= best.root_mean_square[:12] * (1 - 1e-12)).all()
    assert within.root_mean_square[-1] == pytest.approx(own.root_mean_square[-1], rel=1e-9)
    assert within.root_mean_square[4] < 0.9 * own.root_mean_square[4]


def test_width_needed():
    outputs = spectral_outputs(2.0)
    decay = n_term_decay(outputs, best_basis(outputs))
    for width in (0, 3, 17):
        assert decay.width_needed(float(decay.root_mean_square[width]) * (1 + 1e-9)) == width
        assert decay.width_needed(float(decay.root_mean_square[width]) * (1 - 1e-9)) == width + 1
    short = n_term_decay(outputs, best_basis(outputs)[:, :5])
    assert short.width_needed(1e-9) is None


def test_outputs_of_constants_need_the_constant_alone():
    outputs = np.outer(np.arange(1.0, 7), np.ones(9))
    decay = n_term_decay(outputs, best_basis(outputs))
    assert decay.width_needed(1e-12) == 0


def test_points_without_weight_do_not_matter():
    outputs, weights = bumps(Y, 20), OMEGA.copy()
    weights[::3] = 0
    seen = weights > 0
    some = n_term_decay(outputs, best_basis(outputs, weights=weights), weights=weights)
    only = n_term_decay(
        outputs[:, seen], best_basis(outputs[:, seen], weights=weights[seen]), weights=weights[seen]
    )
    assert np.allclose(some.root_mean_square[:15], only.root_mean_square[:15], rtol=1e-7)
