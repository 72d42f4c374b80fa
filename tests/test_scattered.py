"""Every sample on points of its own: one small least-squares problem each, then everything as usual."""

import dataclasses as dc
import functools as ft

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from helpers import (
    TRUNK as SMALL,
    arrays_of,
    as_fields,
    central_difference,
    make_network,
    monolithic,
    random_like,
    waves,
)
from own_problems import DOUBLE, fit_branch, known_trunk

from trunkfirst.data.operator_data import OperatorData
from trunkfirst.data.scattered_data import ScatteredData, scattered_from_lists
from trunkfirst.errors import UsageError
from trunkfirst.evaluation import evaluate
from trunkfirst.fields import Searched
from trunkfirst.fitting import fit_method
from trunkfirst.inputs import Coordinates, RawInputs
from trunkfirst.minimisers.adam import Adam
from trunkfirst.network_trunk import NetworkTrunk
from trunkfirst.networks.layers import Trunk
from trunkfirst.regressors.ridge import Linear
from trunkfirst.scattered import ScatteredFields, residuals, scattered_basis, scattered_problem, some_samples
from trunkfirst.trunks import JointTrunk
from trunkfirst.two_step import TwoStep

NETWORK = make_network(2, 6, 4, seed=7)
KNOWN = NetworkTrunk(hidden=(40,), width=20, activation="tanh", initialisation="he", starts=8)  # never trained


def uneven(samples: int = 5, *, channels: int | None = None, seed: int = 0) -> ScatteredData:
    """Samples with 8 to 11 points, values without meaning."""
    rng = np.random.default_rng(seed)
    counts, tail = 8 + np.arange(samples) % 4, () if channels is None else (channels,)
    points = [rng.uniform(-1, 1, (count, 2)) for count in counts]
    outputs = [rng.normal(size=(count, *tail)) for count in counts]
    return scattered_from_lists(rng.normal(size=(samples, 2)), points, outputs)


def fields_of(data: ScatteredData, weights: np.ndarray | None = None) -> ScatteredFields:
    fields = as_fields(data)
    assert isinstance(fields, ScatteredFields)
    return dc.replace(fields, sample_weights=weights)


def scattered_again(data: OperatorData) -> ScatteredData:
    """The same data, written as if every sample had points of its own."""
    points = np.broadcast_to(data.points, (data.samples, *data.points.shape))
    return ScatteredData(data.inputs, points.copy(), data.outputs)


# -- the problem


@pytest.mark.parametrize("kind", ["plain", "channels", "weights"])
def test_value_and_gradient(kind: str):
    """Value against one dense solve a sample, gradient against finite differences."""
    data = uneven(channels=2 if kind == "channels" else None)
    weights = np.array([1.0, 4.0, 2.0, 0.5, 1.0]) if kind == "weights" else None
    fields, ridge = fields_of(data, weights), 0.1
    with jax.enable_x64(True):
        problem = scattered_problem(fields, ridge, DOUBLE)
        run = eqx.filter_jit(ft.partial(problem.value_and_grad, key=jr.key(0)))
        searched = Searched(NETWORK, False)
        value, gradient = run(searched)
        trained, fixed = eqx.partition(searched, eqx.is_inexact_array)
        direction = random_like(trained, seed=4)
        slope = central_difference(lambda tree: run(eqx.combine(tree, fixed))[0], trained, direction, 1e-5)
        Phi = np.asarray(Trunk(NETWORK)(jnp.asarray(fields.points)))
    found = sum(np.sum(g * d) for g, d in zip(arrays_of(gradient), arrays_of(direction), strict=True))
    assert found == pytest.approx(slope, rel=1e-6)
    channels = fields.channels or 1
    squares = 0.0
    for row, u in enumerate(fields.outputs):
        mask = data.mask[row // channels]
        root = np.sqrt(1.0 if weights is None else weights[row] / weights.mean())
        rows = np.vstack([root * Phi[fields.places[row // channels][mask]], ridge * np.eye(5)])
        right = np.concatenate([root * u[mask], np.zeros(5)])
        squares += np.sum((rows @ np.linalg.lstsq(rows, right, rcond=None)[0] - right) ** 2)
    counts = np.repeat(data.counts, channels)
    total = np.sum(counts if weights is None else counts * weights / weights.mean())
    assert float(value) == pytest.approx(squares / total, rel=1e-9)


def test_with_the_same_points_it_is_the_aligned_problem():
    data = waves(samples=5, points=12)
    with jax.enable_x64(True):
        aligned = as_fields(data).problem(DOUBLE)(0.05)
        scattered = as_fields(scattered_again(data)).problem(DOUBLE)(0.05)
        searched = Searched(NETWORK, False)
        pairs = [
            eqx.filter_jit(ft.partial(problem.value_and_grad, key=jr.key(0)))(searched)
            for problem in (aligned, scattered)
        ]
    assert float(pairs[0][0]) == pytest.approx(float(pairs[1][0]), rel=1e-10)
    for a, b in zip(arrays_of(pairs[0][1]), arrays_of(pairs[1][1]), strict=True):
        assert np.allclose(a, b, rtol=1e-7, atol=1e-10)


@pytest.mark.parametrize(("most", "kept"), [(11, 200), (3300, 64)], ids=["few values: all", "many values"])
def test_the_search_takes_samples_from_all_over(most: int, kept: int):
    fields = ScatteredFields(
        np.zeros((1, 2)),
        np.zeros((200, most), int),
        np.arange(400.0)[:, None] * np.ones(most),
        np.ones((200, most)),
        np.arange(400.0) + 1,
        channels=2,
    )
    some = some_samples(fields)
    samples, first, second = len(some.places), some.outputs[::2, 0], some.outputs[1::2, 0]
    assert samples == len(first) == kept
    assert (first[0], second[-1]) == (0, 399)
    assert np.array_equal(second, first + 1)  # channels stay together
    assert np.ptp(np.diff(first / 2)) <= 1
    assert some.sample_weights is not None
    assert np.array_equal(some.sample_weights, some.outputs[:, 0] + 1)


# -- the basis


def smooth(
    samples: int = 60, most: int = 30, *, short: int = 0, seed: int = 0
) -> tuple[ScatteredData, np.ndarray]:
    """u = sum a_k cos(k x), the later ones small; the first `short` samples have two points only."""
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(samples, 5)) * [1.0, 0.5, 0.01, 0.01, 0.01]
    counts = [2 if sample < short else most for sample in range(samples)]
    points = [rng.uniform(-1, 1, (count, 1)) for count in counts]
    outputs = [row @ np.cos(np.arange(5)[:, None] * x.T) for row, x in zip(a, points, strict=True)]
    return scattered_from_lists(a[:, :2], points, outputs), a


def known_basis(data: ScatteredData) -> tuple[np.ndarray, np.ndarray, ScatteredFields]:
    """Features of a known trunk, first coefficients, fields."""
    fields = fields_of(data)
    trunk = known_trunk()
    with jax.enable_x64(True):
        Phi = np.asarray(trunk(jnp.asarray(fields.points)))
        A = np.asarray(scattered_problem(fields, 1e-5, DOUBLE).coefficients(Searched(trunk.network, False)))
    return Phi, A.reshape(fields.rows, -1), fields


def test_the_basis_is_orthonormal_over_the_pooled_points():
    Phi, A, fields = known_basis(smooth()[0])
    basis = scattered_basis(Phi, A, fields)
    Q = Phi @ basis.transform
    assert basis.condition is not None
    assert basis.transform is not None
    margin = 10 * basis.condition * np.finfo(float).eps  # Phi T has the roundings of Phi times its condition
    assert np.allclose(Q.T @ Q / len(Q), np.eye(Q.shape[1]), rtol=0, atol=margin)
    assert np.sqrt(np.mean(residuals(Q, basis.targets, fields) ** 2)) < 1e-4


def test_a_sample_with_too_few_points_is_helped_by_the_others():
    """Two points cannot fix five amounts; what is known of the other samples nearly can."""
    data, a = smooth(short=5)
    Phi, A, fields = known_basis(data)
    basis = scattered_basis(Phi, A, fields)
    x = np.linspace(-1, 1, 50)
    truth = a[:5] @ np.cos(np.arange(5)[:, None] * x)
    with jax.enable_x64(True):
        Q = np.asarray(known_trunk()(jnp.asarray(x[:, None]))) @ basis.transform
    assert Q.shape[1] > 2
    helped = np.sqrt(np.mean((basis.targets[:5] @ Q.T - truth) ** 2))
    values = Phi @ basis.transform
    shortest = [
        np.linalg.lstsq(values[places[:2]], u[:2], rcond=None)[0]
        for places, u in zip(fields.places[:5], fields.outputs[:5], strict=True)
    ]
    alone = np.sqrt(np.mean((np.stack(shortest) @ Q.T - truth) ** 2))
    assert helped < 0.1
    assert helped < 0.3 * alone


# -- fits


def test_a_scattered_fit_is_about_as_good_as_an_aligned_one():
    rng = np.random.default_rng(3)
    a = rng.normal(size=(40, 3))
    x = np.sort(rng.uniform(-1, 1, 30))

    def truth(x: np.ndarray) -> np.ndarray:
        return a @ np.cos(np.arange(3)[:, None] * x)

    points = [rng.uniform(-1, 1, (30 - sample % 3, 1)) for sample in range(40)]
    scattered = scattered_from_lists(a, points, [truth(p.T)[k] for k, p in enumerate(points)])
    aligned = OperatorData(a, x[:, None], truth(x[None]))
    operator, other = (
        fit_branch(
            data,
            TwoStep(KNOWN, Linear(), inputs=RawInputs(), coordinates=Coordinates(rescale=False), weights="none"),
        ).operator
        for data in (scattered, aligned)
    )
    new = np.linspace(-1, 1, 50)[:, None]
    errors = [np.abs(each.predict(a, new) - truth(new.T)).max() for each in (operator, other)]
    assert errors[0] < 3 * errors[1] + 1e-4 * np.abs(truth(new.T)).max()
    # The evaluation looks at the points of each sample and at no others.
    found = evaluate(operator, scattered)
    for sample in (0, 7):
        mask = scattered.mask[sample]
        u = scattered.outputs[sample][mask]
        expected = operator.predict(a[sample : sample + 1], scattered.points[sample][mask])[0]
        assert np.allclose(found.predictions[sample][mask], expected, rtol=0, atol=1e-12)
        assert found.errors[sample] == pytest.approx(np.linalg.norm(expected - u) / np.linalg.norm(u), rel=1e-6)
    assert (found.optimal_errors <= found.errors * (1 + 1e-9)).all()


def test_a_trunk_is_trained_on_scattered_points():
    data = waves(samples=20, points=40)
    rng = np.random.default_rng(0)
    chosen = [np.sort(rng.choice(40, 25 + sample % 5, replace=False)) for sample in range(20)]
    scattered = scattered_from_lists(
        data.flat_inputs,
        [data.points[c] for c in chosen],
        [u[c] for u, c in zip(data.outputs, chosen, strict=True)],
    )
    losses: list[float] = []
    for iterations in (1, 60):
        trunk = NetworkTrunk(**SMALL, minimiser=Adam(0.02), iterations=iterations, starts=1)
        with jax.enable_x64(True):
            result = trunk.fit(as_fields(scattered), dtype=DOUBLE, key=jr.key(0))
        losses.append(result.loss)
    assert losses[1] < 0.1 * losses[0]
    assert result.coefficients.shape == (20, 5)
    operator = fit_method(
        scattered,
        TwoStep(trunk, Linear(), inputs=RawInputs(), coordinates=Coordinates(rescale=False), weights="none"),
        trunk_result=result,
    ).operator
    found = evaluate(operator, data)  # at the points that a sample had, and at those that it had not
    assert found.errors.mean() < 3 * found.optimal_errors.mean() + 0.02


# -- what cannot be


def test_what_needs_common_points():
    fields = as_fields(uneven())
    for trunk in (NetworkTrunk(**SMALL, p=1.0, starts=8), JointTrunk(**SMALL)):
        with pytest.raises(UsageError, match="samples at points of their own need"):
            trunk.fit(fields, dtype=DOUBLE, key=jr.key(0))
    with pytest.raises(UsageError, match="need one output channel and the same points for all samples"):
        fit_method(uneven(), monolithic())
