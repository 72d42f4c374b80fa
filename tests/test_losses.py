"""The losses: values and gradients against NumPy and finite differences, compressed or not, in batches or not."""

import dataclasses as dc
import itertools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from helpers import as_fields, central_difference, make_network, random_like, waves

from trunkfirst.data.operator_data import OperatorData
from trunkfirst.errors import ValueRangeError
from trunkfirst.losses import (
    AbstractFactors,
    Batches,
    BranchCoefficients,
    CompressedLoss,
    FreeCoefficients,
    OutputLoss,
    make_loss,
)
from trunkfirst.networks.layers import Trunk
from trunkfirst.regressors.network import RegressionLoss

SAMPLES, POINTS = 6, 9
RNG = np.random.default_rng(5)
WEIGHTS = RNG.uniform(0.2, 1, POINTS)
DTYPE = np.dtype(float)


def data_of(weighted: bool) -> OperatorData:
    return waves(SAMPLES, POINTS, point_weights=WEIGHTS if weighted else None)


def make_factors(name: str) -> AbstractFactors:
    trunk = Trunk(make_network(2, 6, 4, seed=1))
    with jax.enable_x64(True):
        if name == "free":
            return FreeCoefficients(trunk, jnp.asarray(RNG.normal(size=(SAMPLES, 5))))
        T = jnp.asarray(RNG.normal(size=(5, 5)))
    return BranchCoefficients(trunk, make_network(2, 6, 5, seed=2), T)


def plain_loss(data: OperatorData, p: float) -> OutputLoss:
    """The loss without compression, which p = 2 would have; a batch of everything is everything."""
    batches = Batches(SAMPLES, POINTS) if p == 2 else Batches()
    loss = make_loss(as_fields(data), jnp.asarray(data.flat_inputs), p=p, batches=batches, dtype=DTYPE)
    assert isinstance(loss, OutputLoss)
    return loss


def errors_of(factors: AbstractFactors, data: OperatorData) -> np.ndarray:
    """C Phi^T - U in NumPy."""
    C = np.asarray(factors.coefficients(jnp.asarray(data.flat_inputs)))
    return C @ np.asarray(factors.trunk(jnp.asarray(data.points))).T - data.outputs


def mean_power(factors: AbstractFactors, data: OperatorData, p: float) -> float:
    weights = np.full(POINTS, 1 / POINTS) if data.point_weights is None else data.point_weights
    return float(np.mean(np.sum(weights * np.abs(errors_of(factors, data)) ** p, axis=1)))


@pytest.mark.parametrize("p", [1.0, 2.0, 4.0])
@pytest.mark.parametrize(("factors", "weighted"), [("free", False), ("free", True), ("branch", True)])
def test_value_and_gradient(factors: str, weighted: bool, p: float):
    data, parameters = data_of(weighted), make_factors(factors)
    with jax.enable_x64(True):
        assert np.abs(errors_of(parameters, data)).min() > 1e-4  # no kink of p = 1 nearby
        loss = plain_loss(data, p)
        value, gradient = loss.value_and_grad(parameters, key=jr.key(0))
        assert float(value) == pytest.approx(mean_power(parameters, data, p), rel=1e-13)
        for seed in range(3):
            direction = random_like(parameters, seed=seed)
            slope = central_difference(loss.value, parameters, direction, 1e-5 if p == 1 else 3e-6)
            assert inner(gradient, direction) == pytest.approx(slope, rel=1e-7, abs=1e-8)


def test_value_for_a_broken_power():
    data, parameters = data_of(True), make_factors("free")
    with jax.enable_x64(True):
        value = float(plain_loss(data, 1.5).value(parameters))
        assert value == pytest.approx(mean_power(parameters, data, 1.5), rel=1e-13)


def inner(a: Any, b: Any) -> float:
    return sum(float(np.sum(x * y)) for x, y in zip(*map(as_arrays, (a, b)), strict=True))


def as_arrays(tree: Any) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


@pytest.mark.parametrize(
    ("factors", "weighted", "rank"),
    [("free", False, 3), ("free", True, SAMPLES), ("branch", False, SAMPLES), ("branch", True, 3)],
)
def test_compressed_loss_is_the_same_loss(factors: str, weighted: bool, rank: int):
    """Also where the outputs have a smaller rank than there are samples, and coefficients lie outside."""
    data, parameters = data_of(weighted), make_factors(factors)
    if rank == 3:
        data = dc.replace(data, outputs=2 + data.flat_inputs @ data.points.T)
    with jax.enable_x64(True):
        compressed = make_loss(as_fields(data), jnp.asarray(data.flat_inputs), p=2.0, dtype=DTYPE)
        assert isinstance(compressed, CompressedLoss)
        assert compressed.factor.shape == (rank, POINTS)
        value, gradient = compressed.value_and_grad(parameters, key=jr.key(0))
        full, full_gradient = plain_loss(data, 2.0).value_and_grad(parameters, key=jr.key(0))
    assert float(value) == pytest.approx(float(full), rel=1e-12)
    size = max(np.abs(leaf).max() for leaf in as_arrays(full_gradient))
    for one, other in zip(as_arrays(gradient), as_arrays(full_gradient), strict=True):
        assert np.abs(one - other).max() < 1e-10 * size


def test_compressed_loss_near_zero():
    """Where the fit is nearly exact, cancellation must not hide the loss."""
    rng = np.random.default_rng(0)
    with jax.enable_x64(True):
        factors = FreeCoefficients(Trunk(make_network(2, 6, 4)), jnp.asarray(rng.normal(size=(SAMPLES, 5))))
        plain = waves(SAMPLES, POINTS)
        outputs = plain.outputs + errors_of(factors, plain) + 1e-7 * rng.normal(size=plain.outputs.shape)
        data = OperatorData(plain.flat_inputs, plain.points, outputs)
        loss = make_loss(as_fields(data), jnp.asarray(data.flat_inputs), p=2.0, dtype=DTYPE)
        value = float(loss.value(factors))
        assert value == pytest.approx(np.mean(errors_of(factors, data) ** 2), rel=1e-6)
    assert 1e-15 < value < 1e-13


# -- batches


def possible_values(powers: np.ndarray, batches: Batches) -> np.ndarray:
    """The mean over every submatrix that a batch may be."""
    samples, points = powers.shape
    return np.array(
        [
            powers[np.ix_(rows, columns)].mean()
            for rows in itertools.combinations(range(samples), batches.samples or samples)
            for columns in itertools.combinations(range(points), batches.points or points)
        ]
    )


@pytest.mark.parametrize("batches", [Batches(2, 3), Batches(4, None), Batches(None, 5)], ids=str)
def test_a_batch_is_a_submatrix(batches: Batches):
    data, parameters = data_of(False), make_factors("branch")
    with jax.enable_x64(True):
        loss = make_loss(as_fields(data), jnp.asarray(data.flat_inputs), p=4.0, batches=batches, dtype=DTYPE)
        assert loss.is_stochastic
        possible = possible_values(errors_of(parameters, data) ** 4, batches)
        draw = eqx.filter_jit(loss.value_and_grad)
        values = [float(draw(parameters, key=jr.key(seed))[0]) for seed in range(6)]
        full = float(loss.value(parameters))
        assert full == pytest.approx(mean_power(parameters, data, 4.0), rel=1e-12)
    for value in values:
        assert np.abs(possible / value - 1).min() < 1e-12
    assert len(set(values)) > 1


def test_a_batch_of_everything_is_everything():
    data, parameters = data_of(True), make_factors("free")
    with jax.enable_x64(True):
        batches = Batches(SAMPLES, POINTS)
        loss = make_loss(as_fields(data), jnp.zeros((SAMPLES, 0)), p=2.0, batches=batches, dtype=DTYPE)
        value, _ = eqx.filter_jit(loss.value_and_grad)(parameters, key=jr.key(3))
        assert float(value) == pytest.approx(float(loss.value(parameters)), rel=1e-13)


@pytest.mark.parametrize("batches", [Batches(SAMPLES + 1, None), Batches(None, POINTS + 1)], ids=str)
def test_batches_out_of_range(batches: Batches):
    with jax.enable_x64(True):
        loss = make_loss(as_fields(data_of(False)), jnp.zeros((SAMPLES, 0)), p=2.0, batches=batches, dtype=DTYPE)
        with pytest.raises(ValueRangeError, match=r"a batch of \d+ cannot be drawn from"):
            loss.value_and_grad(make_factors("free"), key=jr.key(0))


@pytest.mark.parametrize("p", [0.5, 0.999, -1.0, float("nan"), float("inf")])
def test_p_out_of_range(p: float):
    with jax.enable_x64(True), pytest.raises(ValueRangeError, match=f"p is {p}"):
        make_loss(as_fields(data_of(False)), jnp.zeros((SAMPLES, 0)), p=p, dtype=DTYPE)


# -- the loss of a branch


@pytest.mark.parametrize("weighted", [False, True], ids=["equal weights", "sample weights"])
def test_regression_loss(weighted: bool):
    inputs, targets = RNG.normal(size=(SAMPLES, 2)), RNG.normal(size=(SAMPLES, 5))
    weights = RNG.uniform(size=SAMPLES) if weighted else None
    network = make_network(2, 6, 5, seed=2)
    with jax.enable_x64(True):
        arrays = [None if a is None else jnp.asarray(a) for a in (inputs, targets, weights)]
        rows = np.mean((np.asarray(network(jnp.asarray(inputs))) - targets) ** 2, axis=1)
        rows = rows if weights is None else rows * weights
        assert float(RegressionLoss(*arrays).value(network)) == pytest.approx(rows.mean(), rel=1e-13)
        batch = RegressionLoss(*arrays, batch=2)
        value = float(eqx.filter_jit(batch.value_and_grad)(network, key=jr.key(0))[0])
        pairs = [np.mean([rows[i], rows[j]]) for i, j in itertools.combinations(range(SAMPLES), 2)]
        assert np.abs(np.array(pairs) / value - 1).min() < 1e-12
        assert float(batch.value(network)) == pytest.approx(rows.mean(), rel=1e-13)


def test_regression_batch_out_of_range():
    with jax.enable_x64(True):
        loss = RegressionLoss(jnp.ones((3, 2)), jnp.ones((3, 5)), batch=4)
        with pytest.raises(ValueRangeError, match="a batch of 4 cannot be drawn from 3"):
            loss.value_and_grad(make_network(2, 6, 5), key=jr.key(0))
