"""Perceptrons, trunk and branches against plain formulas."""

import itertools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from helpers import central_difference, has_same_bits, make_network, random_like

from trunkfirst.errors import TrunkfirstError, UnknownNameError, ValueRangeError
from trunkfirst.networks.branches import StackedBranch
from trunkfirst.networks.layers import ACTIVATIONS, Perceptron, Trunk, count_parameters, make_perceptron, rounded

FORMULAS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "relu": lambda z: np.maximum(z, 0),
    "tanh": np.tanh,
    "gelu": lambda z: z / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z**3))),
    "silu": lambda z: z / (1 + np.exp(-z)),
    "sine": np.sin,
    "softplus": lambda z: np.log1p(np.exp(z)),
    "elu": lambda z: np.where(z > 0, z, np.expm1(z)),
    "sigmoid": lambda z: 1 / (1 + np.exp(-z)),
}


def forward(network: Perceptron, x: np.ndarray) -> np.ndarray:
    """The formula in NumPy."""
    sigma = FORMULAS[network.activation]
    *hidden, last = zip(network.weights, network.biases, strict=True)
    for W, b in hidden:
        x = sigma(x @ np.asarray(W).T + np.asarray(b))
    return x @ np.asarray(last[0]).T + np.asarray(last[1])


def test_every_activation_has_a_formula_here():
    assert set(FORMULAS) == set(ACTIVATIONS)


@pytest.mark.parametrize("activation", FORMULAS)
def test_forward(activation: str):
    x = np.random.default_rng(0).normal(size=(7, 3)) * 2
    with jax.enable_x64(True):
        network = make_network(3, 6, 6, 4, activation=activation)
        values = np.asarray(network(jnp.asarray(x)))
        assert np.abs(values - forward(network, x)).max() < 1e-13


def test_a_rounded_relu_has_no_kink():
    """Off by a quarter of the radius at most, at the kink; its slope is continuous; radius 0 is ReLU."""
    with jax.enable_x64(True):
        x = jnp.linspace(-0.3, 0.3, 601)
        sharp, round_ = (rounded("relu", jnp.asarray(radius)) for radius in (0.0, 0.1))
        slopes = jax.vmap(jax.grad(lambda x: round_(x)))(x)
        assert np.array_equal(sharp(x), jax.nn.relu(x))
        assert np.array_equal(jax.vmap(jax.grad(lambda x: sharp(x)))(x)[x != 0], (x > 0)[x != 0])
        off = np.abs(round_(x) - jax.nn.relu(x))
        assert off.max() == pytest.approx(0.025)
        assert np.argmax(off) == 300
        assert np.all(off[np.abs(x) > 0.1] < 1e-15)
        assert np.abs(np.diff(slopes)).max() == pytest.approx(0.001 / 0.2)
        assert rounded("tanh", jnp.asarray(0.1)) is ACTIVATIONS["tanh"]


@pytest.mark.parametrize(
    ("architecture", "batch"), [((3, 4), (7,)), ((3, 1, 4), ()), ((3, 6, 6, 6, 4), (2, 7))], ids=str
)
def test_any_depth_and_any_batch(architecture: tuple[int, ...], batch: tuple[int, ...]):
    x = np.random.default_rng(0).normal(size=(*batch, 3))
    with jax.enable_x64(True):
        network = make_network(*architecture)
        values = network(jnp.asarray(x))
        assert values.shape == (*batch, architecture[-1])
        assert np.abs(np.asarray(values) - forward(network, x)).max() < 1e-13
        assert network.hidden(jnp.asarray(x)).shape == (*batch, architecture[-2])
        assert network.architecture == architecture


@pytest.mark.parametrize(
    ("initialisation", "variance"),
    [("he", lambda n_in, n_out: 2 / n_in), ("xavier", lambda n_in, n_out: 2 / (n_in + n_out))],
    ids=["he", "xavier"],
)
def test_variance_of_weights(initialisation: str, variance: Callable[[int, int], float]):
    widths = (100, 400, 200)
    with jax.enable_x64(True):
        network = make_perceptron(widths, initialisation=initialisation, key=jr.key(0))
    for W, b, (n_in, n_out) in zip(network.weights, network.biases, itertools.pairwise(widths), strict=True):
        values = np.asarray(W)
        # 40,000 and more normal numbers: the variance is known to sqrt(2 / 40,000) = 0.7 per cent.
        assert values.var() == pytest.approx(variance(n_in, n_out), rel=0.03)
        assert abs(values.mean()) < 4 * values.std() / math.sqrt(values.size)
        assert not b.any()


def test_layers_differ_and_the_key_decides():
    with jax.enable_x64(True):
        first, again, other = (make_perceptron((3, 3, 3), key=jr.key(k)) for k in (0, 0, 1))
    assert has_same_bits(first, again)
    assert not np.allclose(first.weights[0], other.weights[0])
    assert not np.allclose(first.weights[0], first.weights[1])


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_precision(dtype: type):
    with jax.enable_x64(True):
        network = make_perceptron((2, 3, 1), dtype=dtype, key=jr.key(0))
        assert {leaf.dtype for leaf in jax.tree.leaves(network)} == {jnp.dtype(dtype)}
        assert network(jnp.ones((4, 2), dtype)).dtype == dtype


@pytest.mark.parametrize(
    ("architecture", "count"),
    [
        ((2, 50, 50, 50, 50), 7_800),  # 5.1 trunk
        ((1, 500, 51), 26_551),  # 5.1 branch
        ((2, 25, 25, 25, 25, 25), 2_675),  # 5.2 trunk
        ((4225, 100, 26), 425_226),  # 5.2 branch
        ((2, 100, 100, 100, 200), 40_700),  # 5.3 trunk
        ((3, 100, 100, 100, 201), 40_901),  # 5.3 branch
    ],
)
def test_parameters_of_the_paper(architecture: tuple[int, ...], count: int):
    assert count_parameters(make_network(*architecture)) == count


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"architecture": (2,)}, ValueRangeError, "two or more positive widths"),
        ({"architecture": ()}, ValueRangeError, "two or more positive widths"),
        ({"architecture": (2, 0, 3)}, ValueRangeError, r"\(2, 0, 3\)"),
        ({"activation": "step"}, UnknownNameError, "activation 'step'.*relu, tanh"),
        ({"initialisation": "zero"}, UnknownNameError, "initialisation 'zero'.*he, xavier"),
    ],
)
def test_refusals(changes: dict[str, object], error: type[TrunkfirstError], words: str):
    with pytest.raises(error, match=words):
        make_perceptron(**{"architecture": (2, 3), "key": jr.key(0), **changes})


# -- under transformations


@pytest.fixture
def network() -> Perceptron:
    return make_network(3, 6, 6, 4)


def test_jit_and_vmap(network: Perceptron):
    with jax.enable_x64(True):
        x = jnp.asarray(np.random.default_rng(1).normal(size=(7, 3)))
        expected = network(x)
        assert np.allclose(jax.jit(lambda n, x: n(x))(network, x), expected, rtol=0, atol=1e-15)
        assert np.allclose(jax.vmap(network)(x), expected, rtol=0, atol=1e-15)
        pair = jax.tree.map(lambda a: jnp.stack([a, 2 * a]), network)
        both = jax.vmap(lambda n: n(x))(pair)
        assert both.shape == (2, 7, 4)
        assert np.allclose(both[0], expected, rtol=0, atol=1e-15)


def test_grad(network: Perceptron):
    with jax.enable_x64(True):
        x = jnp.asarray(np.random.default_rng(1).normal(size=(7, 3)))
        gradient = jax.grad(lambda n: jnp.sum(n(x) ** 2))(network)
        direction = random_like(network, seed=3)
        slope = central_difference(jax.jit(lambda n: jnp.sum(n(x) ** 2)), network, direction)
    products = [
        np.sum(np.asarray(g) * np.asarray(d))
        for g, d in zip(*map(jax.tree.leaves, (gradient, direction)), strict=True)
    ]
    assert sum(products) == pytest.approx(slope, rel=1e-8)


def test_frozen(network: Perceptron):
    with pytest.raises(AttributeError):
        network.weights = ()


# -- trunk and branch


def test_trunk_starts_with_the_constant(network: Perceptron):
    with jax.enable_x64(True):
        points = jnp.asarray(np.random.default_rng(1).normal(size=(7, 3)))
        functions = Trunk(network)(points)
        assert functions.shape == (7, 5)
        assert np.all(functions[:, 0] == 1)
        assert np.array_equal(functions[:, 1:], network(points))


@pytest.mark.parametrize(
    ("architecture", "width", "effective"),
    [((2, 50, 50), 50, 50), ((2, 100, 200), 200, 100), ((2, 10, 5), 5, 5), ((2, 7), 7, 7)],
)
def test_width_of_a_trunk(architecture: tuple[int, ...], width: int, effective: int):
    trunk = Trunk(make_network(*architecture))
    assert (trunk.width, trunk.effective_width) == (width, effective)


def test_stacked_branch_is_separate_networks():
    x = np.random.default_rng(1).normal(size=(7, 3))
    with jax.enable_x64(True):
        branch = StackedBranch(make_network(3, 6, 6, 1, stack=(4,)))
        values = branch(jnp.asarray(x))
    assert values.shape == (7, 4)
    for j in range(4):
        one = jax.tree.map(lambda a, j=j: np.asarray(a)[j], branch.networks)
        assert np.allclose(values[:, j], forward(one, x)[:, 0], rtol=0, atol=1e-13)
