"""Branches that are more than dense layers: products of networks, convolutions, skips, and their weight decay."""

import functools as ft
import itertools
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from helpers import arrays_of, central_difference, has_same_bits, make_network, random_like
from own_problems import DOUBLE, fit_branch, saved_and_loaded

from trunkfirst.data.operator_data import InputFunction, OperatorData
from trunkfirst.encoders import Identity
from trunkfirst.errors import SettingError
from trunkfirst.evaluation import evaluate
from trunkfirst.inputs import Coordinates, PerInput, RawInputs, StandardisedInputs
from trunkfirst.minimisers.adam import Adam
from trunkfirst.minimisers.separable import SeparableProblem
from trunkfirst.network_trunk import NetworkTrunk
from trunkfirst.networks.branches import (
    AbstractBranchFeatures,
    FeatureBranch,
    LayerFeatures,
    ProductFeatures,
    SkipFeatures,
    make_convolution,
)
from trunkfirst.networks.layers import Trunk
from trunkfirst.networks.operator import Operator
from trunkfirst.regressors.base import InputLayout
from trunkfirst.regressors.input_grid import InputGrid
from trunkfirst.regressors.network import BranchNetwork, HiddenFeatures, NetworkBranch
from trunkfirst.regressors.ridge import Linear
from trunkfirst.two_step import TwoStep

RNG = np.random.default_rng(0)
INPUTS = RNG.normal(size=(7, 6))
TRUNK = NetworkTrunk(
    hidden=(40,), width=20, activation="tanh", initialisation="he", starts=8
)  # known, and so never trained
QUICK = Adam(2e-2)  # compiles in half the time of L-BFGS


def random_features(name: str) -> AbstractBranchFeatures:
    """Features of 6 inputs."""
    product = ProductFeatures((make_network(2, 5, 4, seed=1), make_network(4, 5, 4, seed=2)), (2, 4))
    with jax.enable_x64(True):
        convolution = make_convolution((2, 3), (3,), 4, activation="tanh", dtype=np.float64, key=jr.key(0))
    layers = LayerFeatures(make_network(6, 5, 4, seed=3))
    return {
        "layers": layers,
        "product": product,
        "convolution": convolution,
        "skip": SkipFeatures(layers),
        "skip and product": SkipFeatures(product),
    }[name]


NAMES = ["layers", "product", "convolution", "skip", "skip and product"]


def values(features: AbstractBranchFeatures, inputs: np.ndarray = INPUTS) -> np.ndarray:
    with jax.enable_x64(True):
        return np.asarray(features(jnp.asarray(inputs)))


# -- formulas


def test_products_are_entry_by_entry():
    features = random_features("product")
    assert isinstance(features, ProductFeatures)
    with jax.enable_x64(True):
        first, second = (
            np.asarray(network(jnp.asarray(part)))
            for network, part in zip(features.networks, (INPUTS[:, :2], INPUTS[:, 2:]), strict=True)
        )
    assert np.allclose(values(features), first * second, rtol=1e-14)


def test_a_skip_puts_the_inputs_beside():
    plain, skipped = values(random_features("layers")), values(random_features("skip"))
    assert np.array_equal(skipped, np.hstack([plain, INPUTS]))


def convolved(x: np.ndarray, kernel: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """Width 3, stride 2, written out: x (channels, *grid), kernel (out, in, 3 ...); zeros beyond the grid."""
    grid = x.shape[1:]
    sizes = [-(-length // 2) for length in grid]
    # As many zeros as needed, the odd one at the end.
    missing = [max(2 * (out - 1) + 3 - length, 0) for out, length in zip(sizes, grid, strict=True)]
    padded = np.pad(x, [(0, 0), *((total // 2, total - total // 2) for total in missing)])
    found = np.empty((len(kernel), *sizes))
    for place in itertools.product(*map(range, sizes)):
        window = padded[(slice(None), *(slice(2 * i, 2 * i + 3) for i in place))]
        for channel, weights in enumerate(kernel):
            found[(channel, *place)] = np.sum(weights * window) + bias[channel]
    return found


@pytest.mark.parametrize("grid", [(7,), (4, 5)], ids=["line", "square"])
def test_convolutions_are_those_written_out(grid: tuple[int, ...]):
    with jax.enable_x64(True):
        features = make_convolution(grid, (2, 3), 5, activation="tanh", dtype=np.float64, key=jr.key(1))
        shifted = tuple(jnp.asarray(RNG.normal(size=bias.shape)) for bias in features.biases)
        features = eqx.tree_at(lambda f: f.biases, features, shifted)
    x = RNG.normal(size=(4, int(np.prod(grid))))
    expected: list[np.ndarray] = []
    for sample in x:
        layer = sample.reshape(1, *grid)
        for kernel, bias in zip(features.kernels, features.biases, strict=True):
            layer = np.tanh(convolved(layer, np.asarray(kernel), np.asarray(bias)))
        W, b = (np.asarray(array[0]) for array in (features.dense.weights, features.dense.biases))
        expected.append(np.tanh(W @ layer.ravel() + b))
    assert np.allclose(values(features, x), expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize("name", NAMES)
def test_an_operator_with_it_is_saved_and_folded(name: str, tmp_path: Path):
    features = random_features(name)
    width = values(features).shape[1]
    with jax.enable_x64(True):
        W, b, T = (jnp.asarray(RNG.normal(size=shape)) for shape in ((3, width), (3,), (5, 3)))
    operator = Operator(Identity(), FeatureBranch(features, W, b), Trunk(make_network(1, 6, 4)), T, ("f", "g"))
    points = np.linspace(0, 1, 6)[:, None]
    back = saved_and_loaded(operator, tmp_path)
    assert has_same_bits(operator, back)
    assert jax.tree.structure(operator) == jax.tree.structure(back)
    predictions = operator.predict(INPUTS, points)
    assert np.array_equal(back.predict(INPUTS, points), predictions)
    folded = operator.fold()
    assert folded.transform is None
    assert np.allclose(folded.predict(INPUTS, points), predictions, rtol=0, atol=1e-12)


# -- weight decay


@pytest.mark.parametrize("name", ["product", "convolution", "skip"])
def test_value_and_gradient_with_weight_decay(name: str):
    """Value against a dense solve, gradient against finite differences."""
    features = random_features(name)
    targets = RNG.normal(size=(7, 2))
    with jax.enable_x64(True):
        roots = jnp.asarray(RNG.uniform(0.5, 1.5, 7))
        problem = SeparableProblem(
            HiddenFeatures(jnp.asarray(INPUTS), roots), jnp.asarray(targets), 0.1, 14.0, 0.02
        )
        run = eqx.filter_jit(ft.partial(problem.value_and_grad, key=jr.key(0)))
        value, gradient = run(features)
        trained, fixed = eqx.partition(features, eqx.is_inexact_array)
        direction = random_like(trained, seed=4)
        slope = central_difference(lambda tree: run(eqx.combine(tree, fixed))[0], trained, direction, 1e-5)
        found = sum(np.sum(g * d) for g, d in zip(arrays_of(gradient), arrays_of(direction), strict=True))
    assert found == pytest.approx(slope, rel=1e-6)
    Phi = np.hstack([np.ones((7, 1)), values(features)]) * np.asarray(roots)[:, None]
    n = Phi.shape[1]
    rows, right = np.vstack([Phi, 0.1 * np.eye(n)]), np.vstack([targets, np.zeros((n, 2))])
    A = np.linalg.lstsq(rows, right, rcond=None)[0]
    norm = sum(float(np.sum(np.asarray(leaf) ** 2)) for leaf in jax.tree.leaves(trained))
    assert float(value) == pytest.approx(np.sum((rows @ A - right) ** 2) / 14 + 0.02 * norm, rel=1e-9)


def test_decay_counts_in_units_of_the_targets():
    """Targets in other units need no other decay."""
    regressor = NetworkBranch(
        hidden=(500,), activation="relu", initialisation="he", skip=False, decay=0.5, iterations=2000, ridge=0.0001
    )
    with jax.enable_x64(True):
        targets = RNG.normal(size=(7, 2))
        problems = [regressor._problem(INPUTS, factor * targets, np.ones(7), 2) for factor in (1.0, 10.0)]
    assert float(problems[0].decay) == pytest.approx(0.5 * np.mean(targets**2))
    assert float(problems[1].decay) == pytest.approx(100 * float(problems[0].decay))


# -- what they are for


def product_of_two(samples: int, seed: int) -> OperatorData:
    """u(x) = (v . f) (w . g) sin(pi x) + (v' . f) (w' . g) x: linear in each input, and in no way in both."""
    rng = np.random.default_rng(seed)
    f, g = rng.normal(size=(samples, 3)), rng.normal(size=(samples, 2))
    x = np.linspace(0, 1, 25)
    v, w = np.array([[1.0, 2.0, -1.0], [0.5, 0.0, 1.0]]), np.array([[1.0, -1.0], [0.3, 1.0]])
    amounts = (f @ v.T) * (g @ w.T)
    outputs = amounts @ np.stack([np.sin(np.pi * x), x])
    return OperatorData({"f": InputFunction(f), "g": InputFunction(g)}, x[:, None], outputs)


def test_a_product_branch_learns_a_product():
    """Linear factors are all it takes; a linear branch cannot, however good its data."""
    train, new = product_of_two(60, 0), product_of_two(60, 1)
    network = NetworkBranch(
        hidden=(16,),
        activation="tanh",
        initialisation="xavier",
        product=True,
        skip=False,
        minimiser=QUICK,
        iterations=1,
        ridge=1e-06,
        decay=0.0,
    )
    errors: dict[str, float] = {}
    for name, regressor in (("product", network), ("linear", Linear())):
        method = TwoStep(
            TRUNK,
            regressor,
            inputs=PerInput({"f": StandardisedInputs(), "g": StandardisedInputs()}),
            coordinates=Coordinates(rescale=False),
            weights="none",
        )
        result = fit_branch(train, method)
        errors[name] = evaluate(result.operator, new).errors.mean()
        if name == "product":
            branch: Any = result.operator.branch
            assert branch.features.groups == (3, 2)
            assert [network.architecture for network in branch.features.networks] == [(3, 16), (2, 16)]
    assert errors["product"] < 1e-3
    assert errors["linear"] > 0.3


def test_a_product_needs_an_encoder_for_each_input():
    """Behind a common encoder there is one group, and one group has no product."""
    network = NetworkBranch(
        hidden=(16,),
        activation="relu",
        initialisation="he",
        product=True,
        skip=False,
        minimiser=QUICK,
        iterations=1,
        ridge=0.0001,
        decay=0.0,
    )
    with pytest.raises(SettingError, match=r"several input functions.*per-input"):
        fit_branch(
            product_of_two(20, 0),
            TwoStep(
                TRUNK, network, inputs=StandardisedInputs(), coordinates=Coordinates(rescale=False), weights="none"
            ),
        )


def test_a_convolution_branch_works_on_a_grid():
    """u depends on the positive part of sums of neighbours: seen by a kernel, not by a linear branch."""
    errors: dict[str, float] = {}

    def make(samples: int, seed: int) -> OperatorData:
        f = np.random.default_rng(seed).normal(size=(samples, 8))
        amount = np.maximum(f[:, 1:-1:2] + f[:, 2::2], 0).sum(axis=1)
        x = np.linspace(0, 1, 25)
        return OperatorData({"f": InputFunction(f, grid_shape=(8,))}, x[:, None], np.outer(amount + 1, 1 + x))

    train, new = make(300, 0), make(60, 1)
    settings = {"hidden": (6, 20), "activation": "relu", "initialisation": "he", "convolution": True}
    for name, regressor in (
        (
            "convolution",
            NetworkBranch(**settings, skip=False, minimiser=QUICK, iterations=300, ridge=0.0001, decay=0.0),
        ),
        ("linear", Linear()),
    ):
        operator = fit_branch(
            train,
            TwoStep(TRUNK, regressor, inputs=RawInputs(), coordinates=Coordinates(rescale=False), weights="none"),
        ).operator
        errors[name] = evaluate(operator, new).errors.mean()
    assert errors["convolution"] < 0.3 * errors["linear"]


def test_a_skip_makes_linear_operators_simple():
    """With the inputs beside its neurons a network of four neurons is exact for a linear operator."""
    inputs = RNG.normal(size=(40, 6))
    missed: dict[str, float] = {}
    with jax.enable_x64(True):
        data = HiddenFeatures(jnp.asarray(inputs), jnp.ones(40))
        problem = SeparableProblem(data, jnp.asarray(inputs @ RNG.normal(size=(6, 2))), 1e-8)
        for name in ("layers", "skip"):
            missed[name] = float(eqx.filter_jit(problem.misfit)(random_features(name)))
    assert missed["skip"] < 1e-12 < 1e-2 < missed["layers"]


@pytest.mark.parametrize("name", ["product", "convolution", "skip and product"])
def test_settings_make_what_they_say(name: str):
    layout = InputLayout((2, 4), InputGrid((np.arange(2.0), np.arange(3.0)), np.arange(6)[None]))
    settings = {
        "product": {"hidden": (5, 4), "activation": "relu", "initialisation": "he", "product": True},
        "convolution": {"hidden": (3, 4), "activation": "relu", "initialisation": "he", "convolution": True},
        "skip and product": {
            "hidden": (5, 4),
            "activation": "relu",
            "initialisation": "he",
            "skip": True,
            "product": True,
        },
    }[name]
    with jax.enable_x64(True):
        features = BranchNetwork(**settings).make_features(6, layout, dtype=DOUBLE, key=jr.key(0))
        branch = BranchNetwork(**settings).make(6, 3, layout, dtype=DOUBLE, key=jr.key(0))
        shape = branch(jnp.asarray(INPUTS)).shape
    assert shape == (7, 3)
    assert values(features).shape[1] == 4 + (6 if "skip" in name else 0)
    assert type(features) is type(random_features(name))
    assert isinstance(branch, FeatureBranch)
    if isinstance(features, ProductFeatures):  # near 1 at the start, so that products keep their size
        assert np.abs(values(features, 1e-3 * INPUTS) - 1).max() < 0.1


@pytest.mark.parametrize("option", ["skip", "product", "convolution"])
def test_a_stack_has_dense_layers_only(option: str):
    """The option was dropped without a word before."""
    settings = BranchNetwork(hidden=(4, 4), stacked=True, **{option: True})
    with pytest.raises(SettingError, match=r"branch\.stacked goes with neither skip nor product"):
        settings.make(2, 3, InputLayout((1, 1)), stacked=True, dtype=DOUBLE, key=jr.key(0))
