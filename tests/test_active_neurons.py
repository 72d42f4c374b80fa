"""Active-neuron least squares: monotony, weights, and losses that were measured before."""

import dataclasses as dc
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from helpers import has_same_bits

from trunkfirst.checkpoints import keep_checkpoints
from trunkfirst.errors import DataError, ValueRangeError
from trunkfirst.networks.layers import Perceptron
from trunkfirst.records import LogEntry
from trunkfirst.regressors.active_neurons import ActiveNeurons, NeuronSearch

SMALL = ActiveNeurons(width=12, iterations=6)


@pytest.fixture(autouse=True)
def _double():
    with jax.enable_x64(True):
        yield


def smooth(samples=80, features=2, coefficients=3, seed=0):
    """Inputs and smooth targets of them."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(samples, features))
    y = np.sin(x @ rng.normal(size=(features, coefficients))) + np.abs(x[:, :1])
    return x, y


def fit(method, x, y, weights=None, seed=0, **more) -> Any:
    weights = None if weights is None else jnp.asarray(weights)
    return method.fit(jnp.asarray(x), jnp.asarray(y), weights, key=jr.key(seed), **more)


@pytest.mark.parametrize("mode", ["exchange", "sweep"])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("features", [1, 3])
def test_the_loss_never_rises(mode, seed, features):
    x, y = smooth(features=features, seed=seed)
    steps: list[LogEntry] = []
    method = dc.replace(SMALL, mode=mode, iterations=3 if mode == "sweep" else 12)
    result = fit(method, x, y, seed=seed, loss_unit=2.0, on_step=steps.append)
    losses = [step.loss for step in result.history]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < losses[0]
    assert tuple(steps) == result.history
    assert losses[-1] == pytest.approx(2 * result.loss, rel=1e-9)
    assert [step.stage for step in steps] == ["branch"] * result.iterations


def test_a_weight_counts_as_so_many_samples():
    x, y = smooth(samples=60)
    times = np.random.default_rng(1).integers(1, 4, 60)
    weighted = fit(SMALL, x, y, times.astype(float))
    # The same hidden layer, fitted to samples that are repeated instead of weighted:
    branch = weighted.branch
    hidden = np.asarray(branch.hidden(jnp.asarray(np.repeat(x, times, axis=0))))
    phi = np.column_stack([np.ones(len(hidden)), hidden])
    best = np.linalg.lstsq(phi, np.repeat(y, times, axis=0), rcond=None)[0]
    output = np.vstack([branch.biases[-1], branch.weights[-1].T])
    np.testing.assert_allclose(phi @ output, phi @ best, atol=1e-6)
    error = np.repeat(np.asarray(branch(jnp.asarray(x))) - y, times, axis=0)
    assert weighted.history[-1].loss == pytest.approx(np.mean(error**2), rel=1e-9)
    # and samples of weight zero are as good as absent:
    x2, y2 = np.vstack([x, x[:5]]), np.vstack([y, y[:5] + 100])
    ignoring = fit(SMALL, x2, y2, np.append(np.ones(60), np.zeros(5)))
    assert ignoring.history[-1].loss < 0.1 < 1 < ignoring.loss


@pytest.mark.parametrize("features", [1, 3, 200])
def test_the_branch_predicts_what_was_fitted(features):
    x, y = smooth(features=features, coefficients=4)
    y[:, 3] = y[:, 0] - 2 * y[:, 1]  # rank 3: the targets are reduced, and come back
    x = 5 + 0.1 * x
    branches: dict[int, Perceptron] = {}
    result = fit(dc.replace(SMALL, on_branch=branches.__setitem__), x, y)
    assert result.branch.architecture == (features, 12, 4)
    assert list(branches) == [step.iteration for step in result.history]
    losses = [float(np.mean((branch(jnp.asarray(x)) - y) ** 2)) for branch in branches.values()]
    assert losses == pytest.approx([step.loss for step in result.history], rel=1e-9)
    np.testing.assert_allclose(np.linalg.norm(result.branch.weights[0], axis=1), 1, rtol=1e-12)


def curve(samples=400):
    """The test function of one variable with its measured losses."""
    x = np.linspace(0, 1, samples)[:, None]
    return x, np.sin(6 * np.pi * x) * np.exp(-x) + 0.5 * np.tanh(40 * (x - 0.6))


@pytest.mark.parametrize(
    ("width", "mode", "limits"),
    [
        (50, "exchange", {20: 1e-5, 100: 5e-6}),
        (100, "exchange", {20: 2e-6, 60: 4e-7}),
        (50, "sweep", {1: 5.5e-6}),
        (100, "sweep", {1: 3e-7}),
    ],
)
def test_losses_are_those_of_optimal_free_knots(width, mode, limits):
    """(int |f''|^(2/5))^5 / (720 n^4) is 4.6e-6 for 50 knots and 2.9e-7 for 100; Adam stops at 4e-2."""
    result = fit(ActiveNeurons(width, mode, max(limits)), *curve())
    for iteration, limit in limits.items():
        assert result.history[min(iteration, result.iterations) - 1].loss < limit


def test_the_same_key_gives_the_same_bits():
    x, y = smooth()
    first, again, other = (fit(SMALL, x, y, seed=seed).branch for seed in (3, 3, 4))
    for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(again), strict=True):
        np.testing.assert_array_equal(a, b)
    assert not np.array_equal(first.weights[0], other.weights[0])


@pytest.mark.parametrize("scoring_samples", [100, 20])
def test_many_samples_are_scored_on_some(scoring_samples):
    """Twenty samples promise gains that are none: those are not taken."""
    x, y = smooth(samples=400)
    method = dc.replace(SMALL, iterations=10, scoring_samples=scoring_samples, positions=15)
    losses = [step.loss for step in fit(method, x, y).history]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < losses[0]


def test_an_interrupt_returns_what_there_is():
    def stop(step: LogEntry):
        if step.iteration == 2:
            raise KeyboardInterrupt

    result = fit(SMALL, *smooth(), on_step=stop)
    assert result.status == "interrupted"
    assert result.iterations == 2
    assert result.loss == pytest.approx(result.history[-1].loss, rel=1e-9)


@pytest.mark.parametrize(("mode", "calls"), [("exchange", 2), ("sweep", 20)])
def test_an_interrupt_inside_an_iteration_changes_no_bit(mode, calls, tmp_path, monkeypatch):
    method, data, attempt = dc.replace(SMALL, mode=mode, iterations=3), smooth(), NeuronSearch._attempt
    whole, countdown = fit(method, *data), iter(range(calls - 1, -1, -1))

    def interrupted(*arguments):
        result = attempt(*arguments)  # has drawn random numbers
        if next(countdown, -1) == 0:
            raise KeyboardInterrupt
        return result

    monkeypatch.setattr(NeuronSearch, "_attempt", interrupted)
    with keep_checkpoints(tmp_path), pytest.raises(KeyboardInterrupt):
        fit(method, *data)
    with keep_checkpoints(tmp_path):
        resumed = fit(method, *data)
    assert has_same_bits(resumed.branch, whole.branch)


@pytest.mark.parametrize("x", [np.zeros((10, 2)), np.repeat([[0.0], [1.0]], 5, axis=0)], ids=["constant", "two"])
def test_poor_inputs_give_the_best_there_is(x):
    y = np.arange(10.0)[:, None]
    result = fit(SMALL, x, y)
    expected = np.mean((y - np.array([y[(x == row).all(axis=1)].mean(axis=0) for row in x])) ** 2)
    assert result.loss == pytest.approx(expected, rel=1e-6)


def test_single_precision_comes_back_as_such():
    x, y = smooth()
    result = SMALL.fit(jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.float32), key=jr.key(0))
    assert {leaf.dtype for leaf in jax.tree.leaves(result.branch)} == {jnp.dtype(jnp.float32)}


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"mode": "random"}, ValueRangeError),
        ({"width": 0}, ValueRangeError),
        ({"iterations": 0}, ValueRangeError),
        ({"ridge": 0.0}, ValueRangeError),
    ],
)
def test_wrong_settings_are_refused(settings, error):
    with pytest.raises(error):
        ActiveNeurons(**settings)


def test_wrong_data_are_refused():
    x, y = smooth()
    with pytest.raises(DataError, match="2 or more"):
        fit(SMALL, x[:1], y[:1])
    with pytest.raises(DataError, match="weights"):
        fit(SMALL, x, y, -np.ones(80))


def test_the_shortest_fit_is_one_exchange():
    assert dc.replace(SMALL, mode="sweep").with_minimal_budget() == dc.replace(SMALL, iterations=1)
