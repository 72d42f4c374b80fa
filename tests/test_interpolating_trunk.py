"""The trunk of thm:trunk-interpolation: its values at the sensors, its shape, its loss, and what it is between."""

from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import make_network

from trunkfirst.errors import DataError, UnknownNameError, ValueRangeError
from trunkfirst.linear import QR, trunk_limit
from trunkfirst.networks import Identity, Operator, Perceptron, Trunk, load, save
from trunkfirst.theory import interpolating_trunk, shallow_interpolating_trunk
from trunkfirst.theory.interpolation import REPAIRS, smallest_gap, spread_direction

MAKERS: dict[str, Callable[..., Trunk]] = {
    "staircase": interpolating_trunk,
    "hats": lambda points, outputs, width=None: interpolating_trunk(points, outputs, width, repair="hats"),
    "shallow": shallow_interpolating_trunk,
}
EVERY = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
DEEP = pytest.mark.parametrize("repair", ["staircase", "hats"])


def forward(network: Perceptron, x: np.ndarray) -> np.ndarray:
    """A ReLU network in NumPy, layer by layer."""
    *layers, (W, b) = zip(map(np.asarray, network.weights), map(np.asarray, network.biases), strict=True)
    for V, c in layers:
        x = np.maximum(x @ V.T + c, 0)
    return x @ W.T + b


def problem(points: int = 20, rank: int = 3, *, coordinates: int = 2, samples: int = 30, seed: int = 0):
    """Points in a square and outputs of a known rank."""
    rng = np.random.default_rng(seed)
    outputs = rng.normal(size=(samples, rank)) @ rng.normal(size=(rank, points))
    return rng.uniform(-1, 1, (points, coordinates)), outputs


def modes_of(outputs: np.ndarray, count: int) -> np.ndarray:
    return np.linalg.svd(outputs, full_matrices=False)[2][:count].T


def distance_up_to_sign(a: np.ndarray, b: np.ndarray) -> float:
    """Singular vectors have no sign of their own."""
    return float(np.abs(a * np.sign(np.sum(a * b, axis=0)) - b).max())


# -- values at the sensors


@EVERY
def test_two_hundred_sensors_are_interpolated(make: Callable[..., Trunk]):
    points, outputs = problem(200, 10)
    found = forward(make(points, outputs).network, points)
    assert distance_up_to_sign(found, modes_of(outputs, 10)) < 1e-11


@DEEP
def test_deep_trunk_is_exact_because_sensors_lie_inside_their_hats(repair: str):
    points, outputs = problem(200, 10)
    found = forward(interpolating_trunk(points, outputs, repair=repair).network, points)
    assert distance_up_to_sign(found, modes_of(outputs, 10)) < 2e-15


@DEEP
def test_on_the_edge_of_a_hat_rounding_reaches_the_value(repair: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("trunkfirst.theory.interpolation._MARGIN", 0.0)
    points, outputs = problem(200, 10)
    found = forward(interpolating_trunk(points, outputs, repair=repair).network, points)
    assert 1e-14 < distance_up_to_sign(found, modes_of(outputs, 10)) < 1e-11


@EVERY
@pytest.mark.parametrize("coordinates", [1, 3])
def test_points_may_have_any_number_of_coordinates(make: Callable[..., Trunk], coordinates: int):
    points, outputs = problem(25, 4, coordinates=coordinates)
    found = forward(make(1e3 + points, outputs).network, 1e3 + points)  # far from the origin, too
    assert distance_up_to_sign(found, modes_of(outputs, 4)) < 1e-8


@EVERY
def test_a_regular_grid_has_a_direction_too(make: Callable[..., Trunk]):
    line = np.linspace(0, 1, 9)
    points = np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2)
    outputs = problem(81, 3)[1]
    found = forward(make(points, outputs).network, points)
    assert distance_up_to_sign(found, modes_of(outputs, 3)) < 1e-11


@EVERY
def test_functions_beyond_the_rank_are_zero(make: Callable[..., Trunk]):
    points, outputs = problem(20, 3)
    found = forward(make(points, outputs, 5).network, points)
    assert distance_up_to_sign(found[:, :3], modes_of(outputs, 3)) < 1e-13
    assert np.abs(found[:, 3:]).max() == 0


@EVERY
def test_one_point_is_enough(make: Callable[..., Trunk]):
    points, outputs = np.array([[0.3, 0.4]]), np.array([[2.0], [3.0]])
    assert np.abs(forward(make(points, outputs).network, points)) == pytest.approx(1.0)


def test_jax_evaluates_four_hundred_layers_as_numpy_does():
    points, outputs = problem(200, 10)
    trunk = interpolating_trunk(points, outputs)
    new = np.random.default_rng(1).uniform(-1, 1, (50, 2))
    with jax.enable_x64(True):
        found = np.asarray(trunk(jnp.asarray(new)))
    # Between the sensors the staircase is steep: a slope of 2 |v| times the rounding of v . y.
    np.testing.assert_allclose(found[:, 1:], forward(trunk.network, new), rtol=0, atol=1e-10)
    assert (found[:, 0] == 1).all()


# -- shape


@pytest.mark.parametrize(
    ("points", "rank", "width"), [(20, 3, 5), (20, 3, 3), (20, 3, 2), (7, 5, 1), (2, 1, 4), (1, 1, 1)]
)
def test_architecture_is_that_of_the_theorem(points: int, rank: int, width: int):
    y, u = problem(points, rank)
    inner = 2 * min(width, rank) + 4
    expected = (2, 4, 4, *(inner,) * (2 * points - 2), width)
    for repair in REPAIRS:
        network = interpolating_trunk(y, u, width, repair=repair).network
        assert network.architecture == expected
        assert len(network.weights) == 2 * points + 1
    assert shallow_interpolating_trunk(y, u, width).network.architecture == (2, max(1, points - 1), width)


# -- the function between the sensors


def hat(t: np.ndarray, start: float, end: float) -> np.ndarray:
    return np.interp(t, [start - 0.5, start, end, end + 0.5], [0, 1, 1, 0])


@DEEP
def test_trunk_is_a_sum_of_hats_everywhere(repair: str):
    points, outputs = problem(12, 4)
    network = interpolating_trunk(points, outputs, repair=repair).network
    v = np.asarray(network.weights[0])[2]
    order = np.argsort(points @ v)
    t, modes = (points @ v)[order], forward(network, points)[order]
    assert np.diff(t).min() == pytest.approx(2)
    ends = np.append(t[1:] - 0.75, t[-1] + 0.25) if repair == "staircase" else t + 0.25
    new = np.random.default_rng(1).uniform(-1.2, 1.2, (500, 2))
    expected = sum(np.outer(hat(new @ v, a - 0.25, b), z) for a, b, z in zip(t, ends, modes, strict=True))
    np.testing.assert_allclose(forward(network, new), expected, rtol=0, atol=1e-12)


def test_staircase_adds_up_to_one_and_hats_vanish_between():
    points = problem(15)[0]
    outputs = np.ones((3, 15))  # the one mode is constant
    new = points[:1] + np.linspace(0, 1, 300)[:, None] * (points[1:2] - points[:1])
    staircase, hats = (
        np.abs(forward(interpolating_trunk(points, outputs, repair=r).network, new)) * np.sqrt(15)
        for r in ("staircase", "hats")
    )
    np.testing.assert_allclose(staircase, 1, rtol=0, atol=1e-12)
    assert hats.min() < 1e-12


def test_shallow_trunk_is_the_broken_line():
    points, outputs = problem(12, 4)
    network = shallow_interpolating_trunk(points, outputs).network
    v, values = np.asarray(network.weights[0])[0], forward(network, points)
    new = np.random.default_rng(1).uniform(-0.5, 0.5, (200, 2))
    order = np.argsort(points @ v)
    expected = np.stack([np.interp(new @ v, (points @ v)[order], z[order]) for z in values.T], axis=1)
    is_between = (new @ v > (points @ v).min()) & (new @ v < (points @ v).max())
    assert is_between.sum() > 100
    np.testing.assert_allclose(forward(network, new)[is_between], expected[is_between], rtol=0, atol=1e-13)


# -- the loss


@EVERY
@pytest.mark.parametrize("width", [1, 3, 6, 8])
def test_loss_is_at_most_that_of_the_best_approximation(make: Callable[..., Trunk], width: int):
    points, outputs = problem(30, 6)
    outputs = outputs + 1.0  # rank 7
    features = np.hstack([np.ones((30, 1)), forward(make(points, outputs, width).network, points)])
    best = np.linalg.lstsq(features, outputs.T, rcond=1e-12)[0]
    loss = np.mean((features @ best - outputs.T) ** 2)
    eckart_young = np.sum(np.linalg.svd(outputs, compute_uv=False)[width:] ** 2) / outputs.size
    scale = 1e-24 * np.mean(outputs**2)
    assert trunk_limit(outputs, width) - scale <= loss <= eckart_young * (1 + 1e-10) + scale
    if width >= 7:
        assert loss < scale


def test_coefficients_of_the_proof_attain_eckart_and_young():
    points, outputs = problem(30, 6)
    functions = forward(interpolating_trunk(points, outputs, 4).network, points)
    stacked = np.vstack([np.zeros((1, len(outputs))), functions.T @ outputs.T])  # A* = (0; A~), by rows
    misses = np.hstack([np.ones((30, 1)), functions]) @ stacked - outputs.T
    tail = np.linalg.svd(outputs, compute_uv=False)[4:]
    assert np.sum(misses**2) == pytest.approx(np.sum(tail**2), rel=1e-12)


# -- as any trunk


def test_trunk_is_orthonormalised_saved_and_loaded_like_any_other(tmp_path: Path):
    points, outputs = problem(20, 3)
    trunk = interpolating_trunk(points, outputs, 5)
    with jax.enable_x64(True):
        features = np.asarray(trunk(jnp.asarray(points)))
        basis = QR()(features)
        assert basis.rank == 4  # the constant and three modes; two functions are zero
        operator = Operator(Identity(), make_network(2, 3, 4), trunk, jnp.asarray(basis.transform))
        again = load(save(operator, tmp_path))
        np.testing.assert_array_equal(np.asarray(again.trunk(jnp.asarray(points))), features)
    np.testing.assert_allclose(basis.values.T @ basis.values / 20, np.eye(4), rtol=0, atol=1e-12)


# -- the direction


@pytest.mark.parametrize("coordinates", [2, 3])
def test_direction_is_far_better_than_the_lemma_promises(coordinates: int):
    points = problem(200, coordinates=coordinates)[0]
    v = spread_direction("points", points)
    differences = (points[:, None] - points[None])[np.triu_indices(200, 1)]
    distances = np.linalg.norm(differences, axis=1)
    promised = np.sqrt(8 / (np.pi * coordinates)) / 200**2
    assert np.linalg.norm(v) == pytest.approx(1)
    assert smallest_gap(points @ v) > 10 * promised * distances.min()
    assert (np.abs(differences @ v) <= distances * (1 + 1e-12)).all()


def test_direction_can_leave_coordinates_out():
    points = problem(20, coordinates=3)[0]
    v = spread_direction("points", points, scales=np.array([2.0, 0.0, 1.0]))
    assert v[1] == 0
    assert np.hypot(v[0] / 2, v[2]) <= 1 + 1e-12


# -- what cannot be done


@EVERY
@pytest.mark.parametrize("offset", [0.0, 1e-17])
def test_points_that_coincide_are_refused_by_name(make: Callable[..., Trunk], offset: float):
    points, outputs = problem(10)
    points[7] = points[2] + offset
    with pytest.raises(DataError, match=r"points: rows 2 and 7 are the same up to rounding"):
        make(points, outputs)


@EVERY
def test_width_must_be_positive(make: Callable[..., Trunk]):
    with pytest.raises(ValueRangeError, match="width is 0"):
        make(*problem(), 0)


def test_unknown_repairs_are_refused():
    with pytest.raises(UnknownNameError, match="staircase, hats"):
        interpolating_trunk(*problem(), repair="stairs")
