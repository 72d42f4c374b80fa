"""Where the printed theory is wrong, shown in numbers: the table of docs/theory.md, by the number of the erratum.

What is printed is written down here literally; what is right is the library's.
"""

import itertools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import make_network
from paper_input_spaces import DiskFields, SlopeBall, SobolevBall
from paper_networks import (
    interpolating_branch,
    interpolating_trunk,
    smallest_gap,
    spread_direction,
)

from trunkfirst.errors import ValueRangeError
from trunkfirst.linear.orthonormalise import QR
from trunkfirst.networks.layers import Perceptron
from trunkfirst.theory.assumptions import branch_lipschitz
from trunkfirst.theory.rates import truncate

# Of a sum over 20 blocks, each of at most five terms of size 1.
ROUNDING = 16 * 20 * np.finfo(float).eps

Interval = tuple[float, float]
Layer = tuple[np.ndarray, np.ndarray]


def mean_square(values: np.ndarray) -> float:
    return float(np.mean(values**2))


def noisy_outputs() -> tuple[np.ndarray, np.ndarray]:
    """Outputs with |u| <= 1, and a rough approximation of them."""
    rng = np.random.default_rng(0)
    u = np.sin(7 * np.linspace(0, 1, 2000))
    return u, u + rng.normal(scale=0.5, size=u.shape)


# -- 1: truncation


def test_1_truncation_is_a_minimum():
    u, z = noisy_outputs()
    printed = np.sign(z) * np.maximum(1.0, np.abs(z))
    before, right, wrong = (np.sqrt(mean_square(v - u)) for v in (z, truncate(z, 1.0), printed))
    np.testing.assert_allclose([before, right, wrong], [0.500, 0.417, 0.731], rtol=0, atol=1e-3)


def test_1_truncation_increases_no_error():
    rng = np.random.default_rng(1)
    bound = 0.7
    u, z = rng.uniform(-bound, bound, 10_000), rng.normal(scale=2, size=10_000)
    assert (np.abs(truncate(z, bound) - u) <= np.abs(z - u)).all()
    np.testing.assert_array_equal(truncate(z, bound), np.sign(z) * np.minimum(bound, np.abs(z)))


def test_1_truncation_needs_a_bound():
    with pytest.raises(ValueRangeError, match="bound is 0"):
        truncate(np.ones(3), 0.0)


# -- 2: exponents


def test_2_samples_count_with_s_and_not_with_alpha():
    """The disk fields have s = 1 and any alpha, also 3: print bounds the error by K^-3.

    The 1-Lipschitz functional c(f) = distance to the training fields vanishes on all of them, and so does what is
    trained.
    """
    space = DiskFields(np.zeros((1, 2)))
    counts = np.array([4, 8, 16, 32])
    squares: list[float] = []
    for count in counts:
        training = space.cover(int(count))
        branch = interpolating_branch(training, np.zeros((count, 1)))
        f = np.linspace(0, 1, 1001)[:, None]
        truth = space.distances(f, training).min(axis=1)
        squares.append(float(np.max((truth - forward(branch, f)[:, 0]) ** 2)))
    np.testing.assert_allclose(squares, counts**-2.0)  # K^(-2 s)
    assert squares[-1] / counts[-1] ** -3.0 == pytest.approx(32)


# -- 3 to 9: the interpolating trunk


def hat_layers(a: float, b: float) -> list[Layer]:
    """N_(a, b) by its printed weights."""
    return [
        (np.array([[-2.0], [2.0]]), np.array([2 * a, -2 * b])),
        (-np.eye(2), np.ones(2)),
        (np.ones((1, 2)), np.array([-1.0])),
    ]


def block_layers(interval: Interval, c: np.ndarray, *, sign: int, is_first: bool) -> list[Layer]:
    """F_(a, b, c), or F^(0) without z, by its printed matrices; `sign` is that of c in the last bias."""
    r = len(c)
    (A1, b1), (A2, b2), (A3, _) = hat_layers(*interval)
    P = np.array([[1.0], [-1.0]])
    carried = 0 if is_first else r
    pairs = np.kron(np.eye(carried), P) if carried else np.zeros((0, 0))
    rest = 2 * (carried + 1)
    first = np.block(
        [[A1, np.zeros((2, carried))], [P, np.zeros((2, carried))], [np.zeros((2 * carried, 1)), pairs]]
    )
    second = np.block([[A2, np.zeros((2, rest))], [np.zeros((rest, 2)), np.eye(rest)]])
    z_rows = pairs.T if carried else np.zeros((r, 0))
    last = np.block(
        [
            [np.zeros((1, 2)), P.T, np.zeros((1, 2 * carried))],
            [c[:, None] @ A3, np.zeros((r, 2)), z_rows],
        ]
    )
    zeros = np.zeros(rest)
    return [
        (first, np.concatenate([b1, zeros])),
        (second, np.concatenate([b2, zeros])),
        (last, np.concatenate([[0.0], sign * c])),
    ]


def run(layers: list[Layer], x: np.ndarray) -> np.ndarray:
    """Layers with a ReLU between them."""
    *hidden, (W, b) = layers
    for V, c in hidden:
        x = np.maximum(x @ V.T + c, 0)
    return x @ W.T + b


def forward(network: Perceptron, x: np.ndarray) -> np.ndarray:
    return run(list(zip(map(np.asarray, network.weights), map(np.asarray, network.biases), strict=True)), x)


def composed(Z: np.ndarray, intervals: list[Interval], *, sign: int, at: np.ndarray) -> np.ndarray:
    """The proof's composition of blocks, not merged, evaluated at numbers `at`."""
    x = at[:, None]
    for j, (interval, c) in enumerate(zip(intervals, Z, strict=True)):
        x = run(block_layers(interval, c, sign=sign, is_first=j == 0), x)
    return x[:, 1:]


def line_problem(points: int = 20, rank: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Sensors on a line with gaps of at least 2, and modes there."""
    rng = np.random.default_rng(0)
    t = np.cumsum(rng.uniform(2, 4, points))
    return t, np.linalg.qr(rng.normal(size=(points, rank)))[0]


def printed_intervals(t: np.ndarray) -> list[Interval]:
    """[y_j, y_(j+1)], and as print has no y_(m+1), [y_(m-1), y_m] for the last."""
    return [*itertools.pairwise(t.tolist()), (float(t[-2]), float(t[-1]))]


def hat_intervals(t: np.ndarray) -> list[Interval]:
    return [(a, a) for a in t.tolist()]


def staircase_intervals(t: np.ndarray) -> list[Interval]:
    return [*((a, b - 0.5) for a, b in itertools.pairwise(t.tolist())), (float(t[-1]), float(t[-1]))]


def test_3_last_branch_of_the_hat():
    y = np.linspace(0.5, 1.0, 101)[1:-1]  # b < y < b + 1/2 for b = 1/2
    network = run(hat_layers(0.0, 0.5), y[:, None])[:, 0]
    np.testing.assert_allclose(network, 1 - 2 * (y - 0.5), rtol=0, atol=1e-14)
    printed = -2 * (y - 0.5)
    np.testing.assert_allclose(network - printed, 1.0)


@pytest.mark.parametrize("intervals", [hat_intervals, staircase_intervals])
def test_4_and_5_with_both_repairs_the_composition_interpolates(intervals: Callable[[np.ndarray], list[Interval]]):
    t, Z = line_problem()
    np.testing.assert_allclose(composed(Z, intervals(t), sign=-1, at=t), Z, rtol=0, atol=ROUNDING)


def test_4_and_5_as_printed_it_does_not():
    t, Z = line_problem()
    misses = np.abs(composed(Z, printed_intervals(t), sign=+1, at=t) - Z).max()
    assert misses == pytest.approx(5.68, abs=0.01)


def test_4_overlapping_hats_add_the_neighbour():
    t, Z = line_problem()
    found = composed(Z, printed_intervals(t), sign=-1, at=t)
    np.testing.assert_allclose(found[1:-2], Z[1:-2] + Z[:-3], rtol=0, atol=ROUNDING)
    assert np.abs(found - Z).max() == pytest.approx(0.475, abs=1e-3)


def test_5_wrong_sign_adds_every_mode_twice():
    t, Z = line_problem()
    found = composed(Z, staircase_intervals(t), sign=+1, at=t)
    np.testing.assert_allclose(found, Z + 2 * Z.sum(axis=0), rtol=0, atol=10 * ROUNDING)
    assert np.abs(found - Z).max() == pytest.approx(5.21, abs=0.01)


def test_6_last_block_belongs_to_the_last_sensor():
    t, Z = line_problem()
    intervals = [*staircase_intervals(t)[:-1], printed_intervals(t)[-1]]
    misses = np.abs(composed(Z, intervals, sign=-1, at=t) - Z).max(axis=1)
    assert misses[-1] < ROUNDING
    assert misses[-2] == pytest.approx(
        np.abs(Z[-1]).max()
    )  # 0.453: the last mode is added at the sensor before, too


def test_7_merged_network_is_the_composition():
    rng = np.random.default_rng(0)
    points, outputs = rng.uniform(-1, 1, (20, 2)), rng.normal(size=(9, 3)) @ rng.normal(size=(3, 20))
    network = interpolating_trunk(points, outputs, 5).network
    assert network.architecture == (2, 4, 4, *(10,) * 38, 5)
    assert len(network.weights) == 41  # 2 m + 1 layers
    v = np.asarray(network.weights[0])[2]
    order = np.argsort(points @ v)
    t, Z = (points @ v)[order], forward(network, points)[order, :3]
    inside = [(a - 0.25, b - 0.25) for a, b in staircase_intervals(t)[:-1]]  # the library's margin
    intervals = [*inside, (t[-1] - 0.25, t[-1] + 0.25)]
    new = rng.uniform(-1, 1, (200, 2))
    expected = composed(Z, intervals, sign=-1, at=new @ v)
    steep = 16 * np.finfo(float).eps * (np.abs(new) @ np.abs(v)).max()  # slopes up to 2 in t = v . y, |Z| <= 1
    np.testing.assert_allclose(forward(network, new)[:, :3], expected, rtol=0, atol=ROUNDING + steep)


def test_8_output_matrix():
    N, r = 5, 3
    with pytest.raises(ValueError, match="must match exactly"):
        np.block([[np.zeros((r, 1)), np.eye(r)], [np.zeros((N - r, 1)), np.zeros((N - r, N - r))]])
    right = np.block([[np.zeros((r, 1)), np.eye(r)], [np.zeros((N - r, 1)), np.zeros((N - r, r))]])
    assert right.shape == (N, r + 1)


def test_9_first_block_passes_the_projection_on():
    t, Z = line_problem()
    found = run(block_layers((t[0], t[0]), Z[0], sign=-1, is_first=True), t[:, None])
    np.testing.assert_array_equal(found[:, 0], t)
    np.testing.assert_allclose(found[:, 1:], np.outer(t == t[0], Z[0]), rtol=0, atol=ROUNDING)


def test_10_coefficients_are_stacked_by_rows():
    Phi, A = np.ones((7, 4)), np.ones((3, 9))  # N + 1 = 4 functions, K = 9
    with pytest.raises(ValueError, match="mismatch"):
        np.matmul(Phi, np.hstack([np.zeros((3, 1)), A]))
    assert (Phi @ np.vstack([np.zeros((1, 9)), A])).shape == (7, 9)


def test_11_delta_is_the_smallest_distance():
    points = np.random.default_rng(0).uniform(-1, 1, (200, 2))
    delta = np.linalg.norm((points[:, None] - points)[np.triu_indices(200, 1)], axis=1).min()
    v = spread_direction(points)
    sufficient = 2 / delta * np.sqrt(np.pi * 2 / 8) * 200**2  # |v~| of the proof, d = d_y = 2
    assert smallest_gap(sufficient * (points @ v)) >= 2
    assert 2 / smallest_gap(points @ v) == pytest.approx(4.39e3, rel=0.01)  # what the search needs
    assert sufficient == pytest.approx(1.40e7, rel=0.01)


def test_12_inverse_of_r_does_not_exist():
    rng = np.random.default_rng(0)
    points, outputs = rng.uniform(-1, 1, (20, 2)), rng.normal(size=(9, 3)) @ rng.normal(size=(3, 20))
    Phi = np.hstack([np.ones((20, 1)), forward(interpolating_trunk(points, outputs, 5).network, points)])
    assert np.linalg.matrix_rank(Phi) == 4  # of 6
    assert np.abs(np.diag(np.linalg.qr(Phi)[1])).min() == 0
    basis = QR()(Phi)
    assert basis.rank == 4
    found = basis.coefficients(outputs) @ basis.values.T
    np.testing.assert_allclose(found, outputs, rtol=0, atol=1e-12)


def test_12_nor_does_it_when_the_outputs_contain_the_constant():
    rng = np.random.default_rng(0)
    points = rng.uniform(-1, 1, (20, 2))
    outputs = rng.normal(size=(9, 3)) @ np.vstack([np.ones(20), rng.normal(size=(2, 20))])
    functions = forward(interpolating_trunk(points, outputs, 3).network, points)
    assert np.linalg.matrix_rank(np.hstack([np.ones((20, 1)), functions]), tol=1e-10) == 3  # of 4


# -- 13 to 16: the proof of the bound


def test_13_coefficients_grow_with_the_root_of_the_points_unless_scaled():
    """u = exp(y) on [-1, 1] in polynomials up to degree 5; |u| in L2 of the probability dy / 2 is 1.347."""
    norms: list[float] = []
    scaled: list[float] = []
    for count in (100, 1000, 10_000):
        y = np.random.default_rng(0).uniform(-1, 1, count)
        Phi, u = np.polynomial.legendre.legvander(y, 5), np.exp(y)[None]
        norms.append(float(np.linalg.norm(QR(unit_columns=True)(Phi).coefficients(u))))
        scaled.append(float(np.linalg.norm(QR()(Phi).coefficients(u))))
    np.testing.assert_allclose(norms, [14.9, 43.4, 134.5], rtol=0.01)
    np.testing.assert_allclose(scaled, [1.49, 1.37, 1.345], rtol=0.01)
    exact = np.sqrt((np.exp(2) - np.exp(-2)) / 4)
    assert scaled[-1] == pytest.approx(exact, rel=0.01)


def test_14_pythagoras_fails_for_a_truncated_network():
    y = (np.arange(4000) + 0.5) / 2000 - 1
    u = np.sign(y)
    basis = QR()(np.polynomial.legendre.legvander(y, 7))
    best = basis.coefficients(u[None])[0] @ basis.values.T
    network = best + 0.5 * basis.values[:, 3]
    cut = truncate(network, 1.0)
    assert mean_square(u - network) == pytest.approx(
        mean_square(u - best) + mean_square(best - network), rel=1e-10
    )
    printed = mean_square(u - best) + mean_square(best - cut)
    np.testing.assert_allclose([mean_square(u - cut), printed], [0.2092, 0.2162], rtol=0, atol=1e-4)
    assert mean_square(u - cut) <= mean_square(u - network)


def test_15_slope_needs_the_dual_norm():
    sensors = 100
    w, difference = np.ones(sensors), np.ones(sensors)
    weighted = np.sqrt(mean_square(difference))  # weights 1 / m_x
    assert w @ difference == pytest.approx(100)
    assert np.linalg.norm(w) * weighted == pytest.approx(10)  # printed as a bound
    with jax.enable_x64(True):
        branch = Perceptron((jnp.asarray(w[None]), jnp.ones((1, 1))), (jnp.zeros(1), jnp.zeros(1)), "relu")
    assert branch_lipschitz(branch) * weighted == pytest.approx(100)


def test_15_sensors_outside_the_disk_must_not_be_listened_to():
    space = DiskFields(np.array([[0.0, 0.0], [1.0, 1.0]]))
    assert branch_lipschitz(make_network(2, 6, 3), sensor_weights=space.sensor_weights) == np.inf


def test_16_the_sum_telescopes_and_the_vector_inequality_is_used_once():
    rng = np.random.default_rng(0)
    exact_f, exact_k, net_f, net_k = rng.normal(size=(4, 6))
    printed = exact_f - exact_k + exact_k - net_f - net_k + net_k
    np.testing.assert_allclose(
        printed, (exact_f - exact_k) + (exact_k - net_k) + (net_k - net_f), rtol=0, atol=1e-14
    )
    branch = make_network(5, 8, 6, activation="relu")
    f, g = rng.normal(size=(2, 1, 5))
    squares = (forward(branch, f) - forward(branch, g))[0] ** 2
    bound = (branch_lipschitz(branch) ** 2) * mean_square(f - g)
    assert squares.sum() <= bound  # all components together; six times as much by the printed line


# -- 17: input spaces


def test_17_grid_values_of_slopes_up_to_one_are_equal():
    """20 steps and 100 sensors: neighbours are closer than a step, so no member of X goes from one to the next.

    Between sensors with equal values a member leaves them by at most half the distance.
    """
    space, steps = SlopeBall(100), 20
    assert np.diff(space.sensors).max() == pytest.approx(0.0312, abs=1e-4)
    assert max(np.diff(space.sensors).max() / 2, 1 - space.sensors.max()) < 0.016
    assert np.diff(space.sensors).max() < 2 / steps
    constants = np.linspace(-1, 1, steps + 1)[:, None] * np.ones(len(space.knots))
    nearest = space.distances(space.knots[None], constants).min()  # of f(x) = x
    assert nearest == pytest.approx(0.816, abs=1e-3)
    printed = np.sqrt(2) / steps + space.sensor_gap  # half a step, in the norm whose weights sum to 2
    assert printed == pytest.approx(0.112, abs=1e-3)
    assert nearest > 7 * printed


def test_17_grid_without_negative_coefficients_leaves_half_of_the_ball():
    space, steps = SobolevBall(1, 3), 20
    grid = np.arange(steps + 1) / steps
    f = np.zeros((1, len(space.norm_weights)))
    f[0, 0] = -1.0  # in X, of norm 1
    corner = np.abs(f[0, 0] - grid).min()  # the other coefficients can be met
    assert corner == 1.0
    assert space.distances(f, space.cover(steps)).min() <= space.cover_radius(steps) < 0.3


def test_17_grid_with_them_may_not_meet_the_ball_at_all():
    space, steps = SobolevBall(1, 4), 5
    grid = -1 + 2 * np.arange(steps + 1) / steps
    smallest = np.sum(space.norm_weights[:5] * np.abs(grid).min() ** 2)  # 0 is not on the grid
    assert smallest == pytest.approx(1.8)  # every grid function has a larger norm than 1
    assert len(space.cover(steps)) == 121


def test_17_euclidean_norm_is_larger_than_the_maximum():
    space, cells = SobolevBall(1, 8), 200
    f = np.zeros((2, len(space.norm_weights)))
    f[0, :9], f[1, :9] = 1e-9, 2 / cells - 1e-9  # in one cell
    assert (f**2 @ space.norm_weights <= 1).all()
    ratio = space.sensor_distances(f[:1], f[1:])[0, 0] / np.abs(f[0] - f[1]).max()
    assert ratio == pytest.approx(3)  # sqrt(m_x + 1)


@pytest.mark.parametrize(("degree", "rate"), [(0, 1.0), (1, 0.513), (2, 0.348)])
def test_17_rate_in_the_number_of_functions_depends_on_the_sensors(degree: int, rate: float):
    """s = 1 / (m_x + 1), here with m_x = 0, 1, 2."""
    cells = np.array([41, 61, 81, 101])
    space = SobolevBall(1, degree)
    counts = [len(space.cover(int(n))) for n in cells]
    slope = np.polyfit(np.log(counts), np.log(2 / cells), 1)[0]
    assert -slope == pytest.approx(rate, abs=1e-3)
    assert -slope == pytest.approx(1 / (degree + 1), rel=0.05)


# -- 19 to 21: bases and sensors in the bound


def legendre(y: np.ndarray, count: int) -> np.ndarray:
    """Legendre polynomials, orthonormal for the probability dy / 2 on [-1, 1]."""
    return np.polynomial.legendre.legvander(y, count - 1) * np.sqrt(2 * np.arange(count) + 1)


def test_19_coefficients_at_sensors_are_not_those_in_l2():
    """u is in the span, so that both bases represent it exactly."""
    c = 1 / np.arange(1, 7)
    medians: list[float] = []
    for count in (100, 1000, 10_000):
        found: list[float] = []
        for seed in range(51):
            Phi = legendre(np.random.default_rng(seed).uniform(-1, 1, count), 6) / np.sqrt(count)
            Q, R = np.linalg.qr(Phi)
            u = Phi @ c
            at_sensors = np.sign(np.diag(R)) * (Q.T @ u)  # R* A*, signs as in the limit
            assert np.linalg.norm((Q * np.sign(np.diag(R))) @ at_sensors - u) < 1e-13 * np.linalg.norm(u)
            found.append(float(np.linalg.norm(at_sensors - c) / np.linalg.norm(c)))
        medians.append(float(np.median(found)))
    np.testing.assert_allclose(medians, [8.7e-2, 2.7e-2, 6.9e-3], rtol=0.05)
    assert np.log10(medians[0] / medians[2]) / 2 == pytest.approx(0.5, abs=0.1)


def test_20_the_first_terms_are_not_the_best():
    c = np.zeros(10)
    c[7] = 1.0
    truncated = np.where(np.arange(10) <= 5, c, 0)
    best = np.where(np.argsort(np.argsort(-np.abs(c))) <= 5, c, 0)  # six terms as well
    assert np.linalg.norm(c - truncated) == 1.0
    assert np.linalg.norm(c - best) == 0.0


def test_21_finite_for_every_trunk_is_not_bounded_over_all():
    """1 and a hat of half-width w, a trunk of width 1 with three ReLUs: K_N = 1 + (1 - w/2)^2 / (w/3 - w^2/4)."""
    found: list[float] = []
    for w in (0.1, 0.01):
        y = (np.arange(400_000) + 0.5) / 200_000 - 1
        hat = np.maximum(y + w, 0) - 2 * np.maximum(y, 0) + np.maximum(y - w, 0)
        Phi = np.column_stack([np.ones_like(y), hat / w])
        values = QR()(Phi).values
        found.append(float((values**2).sum(axis=1).max()))
        assert found[-1] == pytest.approx(1 + (1 - w / 2) ** 2 / (w / 3 - w**2 / 4), rel=1e-3)
    np.testing.assert_allclose(found, [30.3, 300], rtol=0.01)
    kappa = (3 * np.log(1.5) - 1) / 4  # r_t = 1
    m = np.arange(10, 100_000)
    needed = [m[np.argmax(kappa * m / np.log(m) >= K)] for K in found]
    np.testing.assert_allclose(needed, [4.7e3, 6.1e4], rtol=0.02)
