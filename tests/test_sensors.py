"""Where to measure and how often: polynomials, whose best points are known, and least squares done by hand."""

import itertools

import numpy as np
import pytest
from legendre import bumps, known_christoffel, lobatto, polynomials

from trunkfirst.errors import DataError, ValueRangeError
from trunkfirst.theory.optimal_sensors import (
    Christoffel,
    SensorLadder,
    Sensors,
    christoffel,
    christoffel_sensors,
    exchange_sensors,
    gram,
    gram_deviation,
    input_modes,
    least_squares_errors,
    least_squares_ratio,
    pivoted_sensors,
    uniform_sensors,
)

Y, OMEGA = lobatto(150)
COUNT = 10
PICKED = pytest.mark.parametrize("pick", [pivoted_sensors, exchange_sensors])


def found_for(count: int = COUNT) -> Christoffel:
    return christoffel(polynomials(Y, count), weights=OMEGA)


def log_det(found: Christoffel, indices: np.ndarray | list[int] | tuple[int, ...]) -> float:
    """log det G with the weights r / k."""
    chosen = np.asarray(indices)
    return float(np.linalg.slogdet(gram(found.basis[chosen], found.rank / found.values[chosen])).logabsdet)


def log_det_rounding(found: Christoffel, indices: np.ndarray) -> float:
    """n^2 cond(G) eps: d log det G = tr(G^-1 dG)."""
    G = gram(found.basis[indices], found.rank / found.values[indices])
    return float(len(G) ** 2 * np.linalg.cond(G) * np.finfo(float).eps)


# -- drawn


def test_density_is_nearly_that_of_the_arcsine():
    """k / n tends to (2 / pi) / sqrt(1 - y^2) for the uniform measure: Chebyshev's density."""
    found = found_for(40)
    distribution = np.cumsum(found.values * found.weights) / found.rank
    assert np.abs(distribution - (1 - np.arccos(Y) / np.pi)).max() < 0.02
    drawn = christoffel_sensors(found, 4000, seed=0)
    observed = np.searchsorted(np.sort(drawn.indices), np.arange(len(Y)), side="right") / 4000
    assert np.abs(observed - distribution).max() < 1.63 / np.sqrt(4000)  # Kolmogorov's bound at 99 per cent


def test_drawn_from_omega():
    drawn = uniform_sensors(found_for(), 4000, seed=0)
    observed = np.searchsorted(np.sort(drawn.indices), np.arange(len(Y)), side="right") / 4000
    assert np.abs(observed - np.cumsum(OMEGA)).max() < 1.63 / np.sqrt(4000)
    assert (drawn.weights == 1).all()
    assert drawn.deviation == pytest.approx(gram_deviation(polynomials(Y[drawn.indices], COUNT)), rel=1e-9)


@pytest.mark.parametrize("count", [COUNT, 60, 1000])
def test_christoffel_weights(count: int):
    drawn = christoffel_sensors(found_for(), count, seed=1, tries=5)
    expected = COUNT / known_christoffel(Y[drawn.indices], COUNT)
    assert np.allclose(drawn.weights, expected, rtol=1e-9)
    G = gram(polynomials(Y[drawn.indices], COUNT), expected)
    assert np.trace(G) == pytest.approx(COUNT, rel=1e-9)
    assert drawn.deviation == pytest.approx(np.linalg.norm(G - np.eye(COUNT), 2), rel=1e-9)


def test_drawn_again_until_stable():
    """With 15 sensors a function a draw is stable now and then, with one never."""
    found = found_for()
    drawn = [christoffel_sensors(found, 150, seed=seed) for seed in range(10)]
    assert all(sensors.is_stable and "at most 1/2" in sensors.sentence for sensors in drawn)
    assert max(sensors.draws or 0 for sensors in drawn) > 1
    first = [christoffel_sensors(found, 150, seed=seed, tries=1) for seed in range(10)]
    assert [one.is_stable for one in first] == [sensors.draws == 1 for sensors in drawn]
    never = christoffel_sensors(found, COUNT, seed=0, tries=7)
    assert (never.draws, never.is_stable) == (7, False)
    assert "best of 7 draws" in never.sentence
    assert "above 1/2" in never.sentence


def test_the_best_draw_is_kept():
    found = found_for()
    rounds = [christoffel_sensors(found, 20, seed=0, tries=tries).deviation for tries in (1, 4, 16, 64)]
    assert rounds == sorted(rounds, reverse=True)
    assert rounds[0] > rounds[-1] > 0.5


@pytest.mark.parametrize("draw", [uniform_sensors, christoffel_sensors])
def test_a_seed_repeats_a_draw(draw):
    one, same, other = (draw(found_for(), 30, seed=seed).indices for seed in (3, 3, 4))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)


# -- picked


@PICKED
@pytest.mark.parametrize("count", [COUNT, 13, 30])
def test_picked_sensors(pick, count: int):
    sensors = pick(found_for(), count)
    assert len(np.unique(sensors.indices)) == len(sensors.indices) == count
    assert np.allclose(sensors.weights, COUNT / known_christoffel(Y[sensors.indices], COUNT), rtol=1e-9)
    assert sensors.draws is None
    assert "picked one by one" in sensors.sentence


@PICKED
def test_no_point_is_taken_twice(pick):
    """Even where that would gain most: on a coarse grid the best points are few."""
    found = christoffel(polynomials(np.linspace(-1, 1, 25), 4))
    assert all(len(np.unique(pick(found, count).indices)) == count for count in range(4, 26))


def test_each_addition_gains_most():
    """Compared with the determinants of all candidates."""
    found = christoffel(polynomials(np.linspace(-1, 1, 25), 4))
    chosen = pivoted_sensors(found, 9).indices
    for size in range(4, 9):
        unscaled = [log_det(found, [*chosen[:size], j]) for j in range(25) if j not in chosen[:size]]
        rounding = 1e-9 + log_det_rounding(found, chosen[: size + 1])
        assert log_det(found, chosen[: size + 1]) == pytest.approx(max(unscaled), abs=rounding)


def coarse(count: int) -> Christoffel:
    return christoffel(polynomials(np.linspace(-1, 1, 25), count))


@pytest.mark.parametrize(
    ("found", "count"),
    [(coarse(4), 4), (coarse(4), 6), *((found_for(count), count) for count in (3, 6, 10, 15))],
    ids=["4 of 25", "6 of 25", "3 of 150", "6 of 150", "10 of 150", "15 of 150"],
)
def test_no_single_exchange_is_better(found: Christoffel, count: int):
    """Which of several local optima is reached depends on the processor; this holds for all of them."""
    before, after = pivoted_sensors(found, count).indices, exchange_sensors(found, count).indices
    reached = log_det(found, after)
    others = np.setdiff1d(np.arange(len(found.values)), after)
    swaps = [[*np.delete(after, i), j] for i, j in itertools.product(range(count), others)]
    rounding = 1e-9 + log_det_rounding(found, after)
    assert log_det(found, before) <= reached + rounding  # the start may be a local optimum already
    assert max(log_det(found, swap) for swap in swaps) <= reached + rounding


@pytest.mark.parametrize(("grid", "count"), [(13, 4), (11, 5)])
def test_exchange_finds_the_best_of_all(grid: int, count: int):
    """On these grids there is one local optimum."""
    found = christoffel(polynomials(np.linspace(-1, 1, grid), 3))
    best = max(log_det(found, chosen) for chosen in itertools.combinations(range(grid), count))
    picked = exchange_sensors(found, count).indices
    assert log_det(found, picked) == pytest.approx(best, abs=1e-9 + log_det_rounding(found, picked))


@PICKED
def test_points_without_weight_are_never_taken(pick):
    weights = np.where(Y > 0, OMEGA, 0)
    found = christoffel(polynomials(Y, 4), weights=weights)
    for sensors in (pick(found, 20), uniform_sensors(found, 50), christoffel_sensors(found, 50)):
        assert (Y[sensors.indices] > 0).all()
    with pytest.raises(ValueRangeError, match="count is 76; there are 75 points"):
        pick(found, 76)


@pytest.mark.parametrize("place", [uniform_sensors, christoffel_sensors, pivoted_sensors, exchange_sensors])
def test_too_few_sensors(place):
    with pytest.raises(ValueRangeError, match="count is 9; 10 functions need at least as many sensors"):
        place(found_for(), 9)


def test_no_tries():
    with pytest.raises(ValueRangeError, match="tries is 0"):
        christoffel_sensors(found_for(), 20, tries=0)


# -- least squares


@pytest.mark.parametrize("place", [uniform_sensors, christoffel_sensors, pivoted_sensors, exchange_sensors])
def test_ratio_by_hand(place):
    """Least squares of the outputs themselves, and its error on the grid."""
    found, outputs = found_for(), bumps(Y)
    sensors: Sensors = place(found, 25)
    roots = np.sqrt(sensors.weights)[:, None]
    P = polynomials(Y, COUNT)
    fits = [
        np.linalg.lstsq(P[rows] * r, outputs[:, rows].T * r, rcond=None)[0].T @ P.T
        for rows, r in ((sensors.indices, roots), (np.arange(len(Y)), np.sqrt(OMEGA)[:, None]))
    ]
    error, best = (np.sqrt(np.sum((fit - outputs) ** 2 @ OMEGA)) for fit in fits)
    assert least_squares_ratio(found, outputs, sensors) == pytest.approx(error / best, rel=1e-9)


def test_whole_grid_with_its_weights_is_the_best():
    found = found_for()
    everywhere = Sensors(np.arange(len(Y)), len(Y) * OMEGA, 0.0)
    assert least_squares_ratio(found, bumps(Y), everywhere) == pytest.approx(1, abs=1e-12)


@pytest.fixture(scope="module")
def ladders() -> dict[str, SensorLadder]:
    return least_squares_errors(found_for(), bumps(Y), [12, 25, 50, 100, 200, 400], draws=60)


def test_christoffel_needs_fewer_than_uniform(ladders: dict[str, SensorLadder]):
    """K_N = 100 against a mean of 10: as was measured for a tanh trunk with K_N = 316 against 51."""
    uniform, drawn = ladders["uniform"], ladders["christoffel"]
    assert (drawn.ratios < uniform.ratios).all()
    assert (drawn.failures <= uniform.failures).all()
    assert drawn.failures[-1] == 0 < uniform.failures[-1]
    for ladder in (uniform, drawn):
        assert (np.diff(ladder.ratios) < 0).all()
        assert (np.diff(ladder.failures) <= 0).all()
        assert ladder.failures[0] == 1
    assert uniform.ratios[0] > 3
    assert 1 < drawn.ratios[2] < 1.25  # five sensors a function for a loss of a quarter
    assert 1 < drawn.ratios[3] < 1.1


def test_sensors_needed(ladders: dict[str, SensorLadder]):
    uniform, drawn = ladders["uniform"], ladders["christoffel"]
    assert [drawn.sensors_needed(ratio) for ratio in (2.0, 1.2, 1.1)] == [25, 50, 100]
    assert [uniform.sensors_needed(ratio) for ratio in (2.0, 1.2, 1.05)] == [50, 100, 200]
    assert drawn.sensors_needed(1.0) is None
    ladder = SensorLadder(np.array([40, 10, 20]), np.array([1.1, 3.0, 1.2]), np.zeros(3))
    assert [ladder.sensors_needed(ratio) for ratio in (5.0, 1.2, 1.15, 1.0)] == [10, 20, 40, None]


def test_default_ladder_grows_with_the_rank():
    ladder = least_squares_errors(found_for(8), bumps(Y), draws=2)["uniform"]
    assert ladder.counts.tolist() == [10, 20, 40, 80, 160]


@pytest.mark.parametrize("share", [2, 3])
def test_few_picked_sensors_beat_many_drawn_ones(share: int):
    found, outputs = found_for(), bumps(Y)
    drawn = least_squares_errors(found, outputs, [share * COUNT], draws=40)["christoffel"].ratios[0]
    pivoted, exchanged = (
        least_squares_ratio(found, outputs, pick(found, share * COUNT))
        for pick in (pivoted_sensors, exchange_sensors)
    )
    assert 1 < max(pivoted, exchanged) < drawn


def test_nothing_to_compare_where_outputs_are_in_the_span():
    with pytest.raises(DataError, match="up to rounding"):
        least_squares_errors(found_for(), polynomials(Y, COUNT).T)


# -- input sensors


def test_input_modes_are_those_of_the_inputs():
    """Polynomials with falling coefficients: the tolerance decides how many count."""
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(80, 8)) * 10.0 ** -np.arange(8) @ polynomials(Y, 8).T
    found = input_modes(inputs, weights=OMEGA, tolerance=3e-4)
    centre = inputs * np.sqrt(OMEGA)
    s = np.linalg.svd(centre, compute_uv=False)
    tails = np.sqrt(np.cumsum(s[::-1] ** 2)[::-1])
    assert found.rank == (tails > 3e-4 * tails[0]).sum()
    rest = inputs - (inputs * OMEGA) @ found.basis @ found.basis.T
    assert np.sqrt(np.sum(rest**2 @ OMEGA)) == pytest.approx(tails[found.rank], rel=1e-6)
    assert input_modes(inputs, weights=OMEGA, tolerance=1e-12).rank == 8


@PICKED
def test_no_sensor_where_all_functions_vanish(pick):
    """Sines at the ends: there k is zero or rounding, and a weight r / k would make rounding count most."""
    k, x = np.arange(1, 6)[:, None], np.linspace(0, 1, 101)
    inputs = np.random.default_rng(0).normal(size=(40, 5)) @ np.sin(np.pi * k * x)
    found = input_modes(inputs)
    sensors = pick(found, 12)
    assert found.values[[0, -1]].max() < 1e-20
    assert not {0, 100} & set(sensors.indices.tolist())
    assert sensors.is_stable
    with pytest.raises(ValueRangeError, match="there are 99 points"):
        pick(found, 100)


def test_few_input_sensors_determine_the_whole_input():
    rng = np.random.default_rng(0)
    x = np.linspace(0, 1, 200)
    k = np.arange(1, 7)[:, None]
    inputs = rng.normal(size=(50, 6)) / k[:, 0] @ np.cos(np.pi * k * x)
    found = input_modes(inputs, tolerance=1e-10)
    sensors = exchange_sensors(found, found.rank)
    values = np.linalg.solve(found.basis[sensors.indices], inputs[:, sensors.indices].T)
    assert found.rank == 6
    rounding = 100 * np.finfo(float).eps * np.linalg.cond(found.basis[sensors.indices])
    assert np.abs((found.basis @ values).T - inputs).max() < rounding * np.abs(inputs).max()
    few = input_modes(inputs, tolerance=0.2)
    picked = least_squares_ratio(few, inputs, exchange_sensors(few, 3 * few.rank))
    drawn = least_squares_errors(few, inputs, [3 * few.rank])["uniform"].ratios[0]
    assert few.rank < 6
    assert picked < drawn
