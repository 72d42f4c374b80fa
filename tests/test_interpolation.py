"""Networks of the proofs: interpolating trunks and branches, operators with no training loss, and L_c."""

from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import make_network, waves
from paper_networks import (
    REPAIRS,
    interpolating_branch,
    interpolating_trunk,
    shallow_interpolating_trunk,
    smallest_gap,
    spread_direction,
    zero_loss_operator,
)
from scipy.spatial.distance import cdist

from trunkfirst.data.operator_data import OperatorData
from trunkfirst.encoders import Identity
from trunkfirst.errors import UsageError
from trunkfirst.linear.low_rank import principal_directions, trunk_limit
from trunkfirst.linear.orthonormalise import QR
from trunkfirst.networks.layers import ACTIVATIONS, Perceptron, Trunk
from trunkfirst.networks.operator import Operator, load, save
from trunkfirst.theory.assumptions import MAX_SLOPES, branch_lipschitz

EPS = np.finfo(float).eps
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


def rounding(network: Perceptron, x: np.ndarray) -> np.ndarray | float:
    """A bound of the rounding errors of `forward` and of the network's own weights.

    One hidden layer: n eps |W| (|V| |x| + |b|), with n the length of all sums together. The deep trunk: every
    block adds at most five terms of the size of a mode, and a hat has the slope 2 in t = v . x.
    """
    if len(network.weights) == 2:
        (V, W), (b, c) = ([np.abs(np.asarray(a)) for a in arrays] for arrays in (network.weights, network.biases))
        return (V.shape[1] + W.shape[1] + 4) * EPS * ((np.abs(x) @ V.T + b) @ W.T + c)
    blocks = len(network.weights) // 2
    t = np.abs(x) @ np.abs(np.asarray(network.weights[0])[2])
    return 16 * (blocks + (x.shape[1] + 4) * t.max()) * EPS


def problem(points: int = 20, rank: int = 3, *, coordinates: int = 2, samples: int = 30, seed: int = 0):
    """Points in a square and outputs of a known rank."""
    rng = np.random.default_rng(seed)
    outputs = rng.normal(size=(samples, rank)) @ rng.normal(size=(rank, points))
    return rng.uniform(-1, 1, (points, coordinates)), outputs


def misses_modes(network: Perceptron, points: np.ndarray, outputs: np.ndarray, count: int) -> float:
    """The largest distance from the first singular vectors, up to their signs, over what rounding explains.

    Singular vectors are perturbed by at most n eps s_1 over the smallest gap between singular values.
    """
    _, sizes, modes = np.linalg.svd(outputs, full_matrices=False)
    gaps = -np.diff(np.append(sizes, 0.0))[:count]
    values = forward(network, points)
    found, own = values[:, :count], np.broadcast_to(rounding(network, points), values.shape)[:, :count]
    signs = np.sign(np.sum(found * modes[:count].T, axis=0))
    allowed = own + max(outputs.shape) * EPS * sizes[0] / gaps.min()
    assert allowed.max() < 1e-3
    return float((np.abs(found * signs - modes[:count].T) / allowed).max())


# -- trunks: values at the sensors


@EVERY
@pytest.mark.parametrize(("points", "rank"), [(200, 10), (25, 4), (1, 1)])
def test_sensors_are_interpolated(make: Callable[..., Trunk], points: int, rank: int):
    y, outputs = problem(points, rank)
    assert misses_modes(make(y, outputs).network, y, outputs, rank) < 1


@EVERY
@pytest.mark.parametrize("coordinates", [1, 3])
def test_points_may_have_any_number_of_coordinates_and_any_origin(make: Callable[..., Trunk], coordinates: int):
    points, outputs = problem(25, 4, coordinates=coordinates)
    assert misses_modes(make(1e3 + points, outputs).network, 1e3 + points, outputs, 4) < 1


@EVERY
def test_a_regular_grid_has_a_direction_too(make: Callable[..., Trunk]):
    line = np.linspace(0, 1, 9)
    points = np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2)
    outputs = problem(81, 3)[1]
    assert misses_modes(make(points, outputs).network, points, outputs, 3) < 1


@DEEP
def test_deep_trunk_is_exact_because_sensors_lie_inside_their_hats(repair: str):
    """Only the sums over 200 blocks round, not t: compared with the modes that the trunk was made of."""
    points, outputs = problem(200, 10)
    modes = principal_directions(outputs, tolerance=1e-14).T
    found = forward(interpolating_trunk(points, outputs, repair=repair).network, points)
    assert np.abs(found - modes).max() <= 16 * 200 * EPS * np.abs(modes).max()


@EVERY
def test_functions_beyond_the_rank_are_zero(make: Callable[..., Trunk]):
    points, outputs = problem(20, 3)
    network = make(points, outputs, 5).network
    assert misses_modes(network, points, outputs, 3) < 1
    assert np.abs(forward(network, points)[:, 3:]).max() == 0


def test_jax_evaluates_four_hundred_layers_as_numpy_does():
    points, outputs = problem(200, 10)
    trunk = interpolating_trunk(points, outputs)
    new = np.random.default_rng(1).uniform(-1, 1, (50, 2))
    with jax.enable_x64(True):
        found = np.asarray(trunk(jnp.asarray(new)))
    assert np.abs(found[:, 1:] - forward(trunk.network, new)).max() <= rounding(trunk.network, new)
    assert (found[:, 0] == 1).all()


# -- trunks: shape


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


# -- trunks: between the sensors


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
    assert np.abs(forward(network, new) - expected).max() <= rounding(network, new)


def test_staircase_adds_up_to_one_and_hats_vanish_between():
    points = problem(15)[0]
    outputs = np.ones((3, 15))  # the one mode is constant
    new = points[:1] + np.linspace(0, 1, 300)[:, None] * (points[1:2] - points[:1])
    staircase, hats = (interpolating_trunk(points, outputs, repair=r).network for r in ("staircase", "hats"))
    size = 1 / np.sqrt(15)
    assert np.abs(np.abs(forward(staircase, new)) - size).max() <= rounding(staircase, new)
    assert np.abs(forward(hats, new)).min() <= rounding(hats, new)


def test_shallow_trunk_is_the_broken_line():
    points, outputs = problem(12, 4)
    network = shallow_interpolating_trunk(points, outputs).network
    v, values = np.asarray(network.weights[0])[0], forward(network, points)
    new = np.random.default_rng(1).uniform(-0.5, 0.5, (200, 2))
    order = np.argsort(points @ v)
    expected = np.stack([np.interp(new @ v, (points @ v)[order], z[order]) for z in values.T], axis=1)
    is_between = (new @ v > (points @ v).min()) & (new @ v < (points @ v).max())
    assert is_between.sum() > 100
    assert (np.abs(forward(network, new) - expected) <= rounding(network, new))[is_between].all()


# -- trunks: loss


@EVERY
@pytest.mark.parametrize("width", [1, 3, 6, 8])
def test_loss_is_at_most_that_of_the_best_approximation(make: Callable[..., Trunk], width: int):
    points, outputs = problem(30, 6)
    outputs = outputs + 1.0  # rank 7
    features = np.hstack([np.ones((30, 1)), forward(make(points, outputs, width).network, points)])
    best = np.linalg.lstsq(features, outputs.T, rcond=1e-12)[0]
    loss = np.mean((features @ best - outputs.T) ** 2)
    eckart_young = np.sum(np.linalg.svd(outputs, compute_uv=False)[width:] ** 2) / outputs.size
    scale = 1e-24 * np.mean(outputs**2)  # the square of 4,500 roundings
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


# -- trunks: like any other


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
    v = spread_direction(points)
    differences = (points[:, None] - points[None])[np.triu_indices(200, 1)]
    distances = np.linalg.norm(differences, axis=1)
    guaranteed = np.sqrt(8 / (np.pi * coordinates)) / 200**2
    assert np.linalg.norm(v) == pytest.approx(1)
    assert smallest_gap(points @ v) > 10 * guaranteed * distances.min()
    assert (np.abs(differences @ v) <= distances * (1 + 1e-12)).all()


def test_direction_can_leave_coordinates_out():
    points = problem(20, coordinates=3)[0]
    v = spread_direction(points, scales=np.array([2.0, 0.0, 1.0]))
    assert v[1] == 0
    assert np.hypot(v[0] / 2, v[2]) <= 1 + 1e-12


# -- branches


def values(branch: Perceptron, inputs: np.ndarray) -> np.ndarray:
    """A branch with one hidden layer of any activation."""
    (V, W), (b, c) = ([np.asarray(array) for array in arrays] for arrays in (branch.weights, branch.biases))
    with jax.enable_x64(True):
        return np.asarray(ACTIVATIONS[branch.activation](jnp.asarray(inputs @ V.T + b))) @ W.T + c


def steepest(branch: Perceptron, inputs: np.ndarray, weights: np.ndarray) -> float:
    """max |c(f) - c(g)| / |f - g| over all pairs."""
    roots = np.sqrt(weights / weights.sum())
    pairs = np.triu_indices(len(inputs), 1)
    c = values(branch, inputs)
    return float((cdist(c, c)[pairs] / cdist(inputs * roots, inputs * roots)[pairs]).max())


def samples(count: int, sensors: int, *, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(count, sensors)), rng.normal(size=(count, 4))


@pytest.mark.parametrize(("count", "sensors"), [(1, 3), (2, 1), (50, 1), (50, 2), (200, 40)])
def test_branch_takes_the_targets_at_the_inputs(count: int, sensors: int):
    inputs, targets = samples(count, sensors)
    branch = interpolating_branch(inputs, targets)
    assert branch.architecture == (sensors, max(1, count - 1), 4)
    assert branch.activation == "relu"
    assert (np.abs(forward(branch, inputs) - targets) <= rounding(branch, inputs)).all()
    assert np.max(rounding(branch, inputs)) < 1e-6


def test_branch_of_a_straight_line_has_its_slope():
    inputs = np.linspace(0, 1, 9)[:, None]
    branch = interpolating_branch(inputs, 3 * inputs + 1)
    assert branch_lipschitz(branch) == pytest.approx(3)
    off = np.abs(forward(branch, inputs + 0.01) - (3 * inputs + 1.03))
    assert (off <= rounding(branch, inputs + 0.01)).all()


def test_sensors_without_weight_are_ignored():
    inputs, targets = samples(30, 3)
    branch = interpolating_branch(inputs, targets, sensor_weights=np.array([1.0, 0.0, 2.0]))
    changed = inputs + np.array([0.0, 5.0, 0.0])
    assert (np.abs(forward(branch, changed) - targets) <= rounding(branch, changed)).all()
    assert np.isfinite(branch_lipschitz(branch, sensor_weights=np.array([1.0, 0.0, 2.0])))


# -- operators without loss


def relative_loss(operator: Operator, data: OperatorData) -> float:
    inputs = {name: function.values for name, function in data.inputs.items()}
    predictions = operator.predict(inputs if len(inputs) > 1 else data.flat_inputs, data.points)
    return float(np.sum((predictions - data.outputs) ** 2) / np.sum(data.outputs**2))


def test_no_loss_in_training_says_nothing_about_new_samples():
    """The numbers are in docs/theory.md."""
    rng = np.random.default_rng(0)
    inputs, points = rng.uniform(0.5, 1.5, (200, 2)), rng.uniform(-1, 1, (200, 2))
    new_points, new_inputs = rng.uniform(-1, 1, (200, 2)), rng.uniform(0.5, 1.5, (200, 2))

    def data(f: np.ndarray, y: np.ndarray) -> OperatorData:
        return OperatorData(f, y, 2 + np.sin(f @ y.T) + f[:, :1] * y[:, 0])

    operator = zero_loss_operator(data(inputs, points))
    assert relative_loss(operator, data(inputs, points)) < 1e-20
    assert relative_loss(operator, data(inputs, new_points)) ** 0.5 == pytest.approx(0.54, abs=0.01)
    assert relative_loss(operator, data(new_inputs, points)) ** 0.5 == pytest.approx(0.090, abs=0.002)
    assert isinstance(operator.branch, Perceptron)
    assert branch_lipschitz(operator.branch) == pytest.approx(4.93e4, rel=0.01)
    assert steepest(operator.branch, inputs, np.ones(2)) == pytest.approx(1.55, abs=0.01)


@pytest.mark.parametrize("make", [interpolating_trunk, shallow_interpolating_trunk])
@pytest.mark.parametrize("more", [0, 2])
def test_operator_with_a_given_trunk_has_no_loss_from_the_rank_on(make: Callable[..., object], more: int):
    data = waves(30, 9)
    rank = np.linalg.matrix_rank(data.outputs)
    trunk = make(data.points, data.outputs, int(rank) + more)
    operator = zero_loss_operator(data, trunk)
    assert relative_loss(operator, data) < 1e-20
    assert relative_loss(operator.fold(), data) < 1e-20  # the standard DeepONet with T W and T b


def test_too_few_functions_leave_the_loss_of_the_best_approximation():
    data = waves(30, 15)
    operator = zero_loss_operator(data, shallow_interpolating_trunk(data.points, data.outputs, 2))
    sizes = np.linalg.svd(data.outputs, compute_uv=False) ** 2
    assert np.sum(sizes[3:]) < relative_loss(operator, data) * np.sum(sizes) <= np.sum(sizes[2:])


def test_channels_and_several_inputs_have_no_loss():
    data = waves(20, 12)
    f = data.flat_inputs
    outputs = np.stack([data.outputs, np.cos(3 * data.outputs)], axis=2)
    several = OperatorData({"f": f[:, :1], "g": f[:, 1:]}, data.points, outputs)
    operator = zero_loss_operator(several)
    assert operator.channels == 2
    assert operator.input_names == ("f", "g")
    assert relative_loss(operator, several) < 1e-20


# -- the Lipschitz constant of a branch


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("weights", [np.ones(5), np.array([0.1, 1.0, 0.02, 3.0, 0.5])], ids=["equal", "unequal"])
def test_constant_bounds_the_slope_between_samples(activation: str, weights: np.ndarray):
    branch = make_network(5, 8, 4, activation=activation)
    near = np.repeat(samples(40, 5)[0], 2, axis=0)
    near[1::2] += 1e-3 * samples(40, 5, seed=1)[0]
    bound = branch_lipschitz(branch, sensor_weights=weights)
    assert 0.05 * bound < steepest(branch, near, weights) <= bound


def test_constant_bounds_an_interpolating_branch():
    inputs, targets = samples(60, 5)
    weights = np.array([0.1, 1.0, 0.02, 3.0, 0.5])
    branch = interpolating_branch(inputs, targets, sensor_weights=weights)
    assert steepest(branch, inputs, weights) <= branch_lipschitz(branch, sensor_weights=weights)


def test_one_neuron_attains_its_constant():
    w, weights = np.array([2.0, -1.0, 0.5]), np.array([0.2, 0.3, 0.5])
    with jax.enable_x64(True):
        branch = Perceptron(
            (jnp.asarray(w[None]), jnp.asarray([[3.0], [4.0]])), (jnp.zeros(1), jnp.zeros(2)), "relu"
        )
    along = w / weights  # where the inequality of Cauchy and Schwarz is an equation
    expected = 5 * np.sqrt(np.sum(w**2 / weights))
    assert branch_lipschitz(branch, sensor_weights=weights) == pytest.approx(expected)
    assert steepest(branch, np.stack([along, 2 * along]), weights) == pytest.approx(expected)


def test_equal_weights_cost_the_root_of_the_number_of_sensors():
    branch = make_network(16, 8, 4)
    w, gamma = (np.asarray(W) for W in branch.weights)
    printed = np.sum(np.linalg.norm(gamma, axis=0) * np.linalg.norm(w, axis=1))
    assert branch_lipschitz(branch) == pytest.approx(4 * printed)


def test_a_branch_that_depends_on_a_sensor_of_no_weight_has_no_bound():
    assert branch_lipschitz(make_network(3, 8, 4), sensor_weights=np.array([1.0, 0.0, 1.0])) == np.inf


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_slopes_of_activations_are_bounded_as_listed(activation: str):
    x = np.linspace(-8, 8, 20001)
    with jax.enable_x64(True):
        y = np.asarray(ACTIVATIONS[activation](jnp.asarray(x)))
    steep = np.abs(np.diff(y) / np.diff(x)).max()
    assert 0.98 * MAX_SLOPES[activation] < steep <= MAX_SLOPES[activation] + 1e-9


def test_deeper_branches_have_no_such_constant():
    with pytest.raises(UsageError, match="defined for two layers"):
        branch_lipschitz(make_network(3, 8, 8, 4))
