"""The interpolating branch, operators with no training loss (thm:zero-loss-deeponet), and L_c."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import make_network, waves
from scipy.spatial.distance import cdist

from trunkfirst.data import OperatorData
from trunkfirst.errors import DataError, UsageError
from trunkfirst.networks import ACTIVATIONS, Operator, Perceptron
from trunkfirst.theory import (
    branch_lipschitz,
    interpolating_branch,
    interpolating_trunk,
    shallow_interpolating_trunk,
    zero_loss_operator,
)
from trunkfirst.theory.interpolation import MAX_SLOPES


def values(branch: Perceptron, inputs: np.ndarray) -> np.ndarray:
    (V, W), (b, c) = ([np.asarray(array) for array in arrays] for arrays in (branch.weights, branch.biases))
    z = inputs @ V.T + b
    if branch.activation == "relu":
        return np.maximum(z, 0) @ W.T + c
    with jax.enable_x64(True):
        return np.asarray(ACTIVATIONS[branch.activation](jnp.asarray(z))) @ W.T + c


def steepest(branch: Perceptron, inputs: np.ndarray, weights: np.ndarray) -> float:
    """max |c(f) - c(g)| / |f - g| over all pairs."""
    roots = np.sqrt(weights / weights.sum())
    pairs = np.triu_indices(len(inputs), 1)
    c = values(branch, inputs)
    return float((cdist(c, c)[pairs] / cdist(inputs * roots, inputs * roots)[pairs]).max())


def rounding(branch: Perceptron, inputs: np.ndarray) -> np.ndarray:
    """A bound of the rounding errors of `values`: n eps |W| (|V| |x| + |b|), n the length of all sums together."""
    (V, W), (b, c) = (
        [np.abs(np.asarray(array)) for array in arrays] for arrays in (branch.weights, branch.biases)
    )
    terms = V.shape[1] + W.shape[1] + 4
    return terms * np.finfo(float).eps * ((np.abs(inputs) @ V.T + b) @ W.T + c)


def samples(count: int, sensors: int, *, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(count, sensors)), rng.normal(size=(count, 4))


# -- interpolation


@pytest.mark.parametrize(("count", "sensors"), [(1, 3), (2, 1), (50, 1), (50, 2), (200, 40)])
def test_branch_takes_the_targets_at_the_inputs(count: int, sensors: int):
    inputs, targets = samples(count, sensors)
    branch = interpolating_branch(inputs, targets)
    assert branch.architecture == (sensors, max(1, count - 1), 4)
    assert branch.activation == "relu"
    assert (np.abs(values(branch, inputs) - targets) <= rounding(branch, inputs)).all()
    assert rounding(branch, inputs).max() < 1e-6


def test_branch_of_a_straight_line_has_its_slope():
    inputs = np.linspace(0, 1, 9)[:, None]
    branch = interpolating_branch(inputs, 3 * inputs + 1)
    assert branch_lipschitz(branch) == pytest.approx(3)
    off = np.abs(values(branch, inputs + 0.01) - (3 * inputs + 1.03))
    assert (off <= rounding(branch, inputs + 0.01)).all()


def test_sensors_without_weight_are_ignored():
    inputs, targets = samples(30, 3)
    branch = interpolating_branch(inputs, targets, sensor_weights=np.array([1.0, 0.0, 2.0]))
    changed = inputs + np.array([0.0, 5.0, 0.0])
    assert (np.abs(values(branch, changed) - targets) <= rounding(branch, changed)).all()
    assert np.isfinite(branch_lipschitz(branch, sensor_weights=np.array([1.0, 0.0, 2.0])))


def test_inputs_that_coincide_are_refused_by_name():
    inputs, targets = samples(10, 3)
    inputs[8] = inputs[4]
    with pytest.raises(DataError, match="inputs: rows 4 and 8 are the same up to rounding"):
        interpolating_branch(inputs, targets)


def test_inputs_that_differ_where_nothing_counts_coincide():
    inputs, targets = samples(10, 3)
    inputs[8, :2] = inputs[4, :2]
    with pytest.raises(DataError, match=r"rows 4 and 8 .*distance 0.0e\+00"):
        interpolating_branch(inputs, targets, sensor_weights=np.array([1.0, 1.0, 0.0]))


# -- no loss at all


def relative_loss(operator: Operator, data: OperatorData) -> float:
    inputs = {name: function.values for name, function in data.inputs.items()}
    predictions = operator.predict(inputs if len(inputs) > 1 else data.flat_inputs, data.points)
    return float(np.sum((predictions - data.outputs) ** 2) / np.sum(data.outputs**2))


def test_no_loss_in_training_promises_nothing_elsewhere():
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


# -- the Lipschitz constant


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


def test_a_sensor_of_no_weight_that_is_listened_to_leaves_no_bound():
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
