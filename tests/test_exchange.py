"""The exchange of neurons: gains against refits, breakpoints along directions, local least squares."""

import numpy as np
import pytest

from trunkfirst.regressors.neuron_exchange import (
    Neurons,
    Samples,
    Scores,
    exchange_gains,
    fit_output,
    gain_bounds,
    local_fits,
    pair_directions,
    products,
    random_neurons,
)


def problem(samples=40, features=2, neurons=6, seed=0):
    """A weighted regression, random neurons, and the generator that made them."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(samples, features))
    y = np.sin(x @ rng.normal(size=(features, 3))) + np.abs(x[:, :1])
    roots = np.sqrt(rng.uniform(0.5, 2, samples))
    data = Samples(x, y * roots[:, None], roots)
    return data, random_neurons(data, neurons, rng=rng), rng


def penalised(data, neurons, ridge):
    """The least penalised loss, by plain least squares on the augmented matrix."""
    phi = np.column_stack([data.roots, neurons(data)])
    phi = phi / np.linalg.norm(phi, axis=0)
    augmented = np.vstack([phi, np.sqrt(ridge) * np.eye(phi.shape[1])])
    targets = np.vstack([data.targets, np.zeros((phi.shape[1], data.targets.shape[1]))])
    g = np.linalg.lstsq(augmented, targets, rcond=None)[0]
    return np.sum((targets - augmented @ g) ** 2)


@pytest.mark.parametrize("ridge", [0.0, 1e-13, 1e-2])
def test_the_gain_is_that_of_refitting_every_pair(ridge):
    data, neurons, rng = problem()
    candidates = random_neurons(data, 9, rng=rng)
    fitted = fit_output(data, neurons, ridge=ridge)
    found = products(fitted, candidates(data))
    gains = exchange_gains(fitted, found, np.arange(6))
    before = penalised(data, neurons, ridge)
    for j in range(9):
        for gone in range(6):
            after = neurons.replace(gone, candidates.directions[j], candidates.biases[j])
            assert gains[j, gone] == pytest.approx(before - penalised(data, after, ridge), abs=1e-10 * before)
    assert (gains.max(axis=1) <= gain_bounds(fitted, found) + 1e-12).all()


def test_a_candidate_that_adds_nothing_has_no_gain():
    data, neurons, _ = problem()
    fitted = fit_output(data, neurons, ridge=1e-13)
    found = products(fitted, np.column_stack([np.zeros(40), neurons(data)[:, 1]]))
    gains = exchange_gains(fitted, found, np.array([0, 2]))
    assert (gains == -np.inf).all()


@pytest.mark.parametrize("positions", [1000, 7])
def test_shifts_find_the_best_breakpoint_on_the_samples(positions):
    data, neurons, rng = problem()
    fitted = fit_output(data, neurons, ridge=1e-13)
    scores = Scores(data, fitted, positions)
    direction = pair_directions(data, 1, rng=rng)
    (best,) = scores.best(Neurons(direction[:0], np.zeros(0)), direction, 1, floor=0.0, rng=rng)
    column = Neurons(best.direction[None], np.array([best.bias]))(data)
    gain = exchange_gains(fitted, products(fitted, column), np.array([best.neuron]))
    assert best.gain == pytest.approx(gain.item(), rel=1e-9)
    on_samples = Neurons(np.repeat(direction, 40, axis=0), -(data.coordinates @ direction[0]))
    gains = exchange_gains(fitted, products(fitted, on_samples(data)), np.arange(6))
    if positions > 40:
        assert best.gain >= gains.max() * (1 - 1e-9)
    refined = scores.refine(best)
    assert refined.gain >= best.gain
    assert refined.neuron == best.neuron


def test_the_local_fit_is_least_squares_on_the_active_samples():
    data, neurons, _ = problem()
    fitted = fit_output(data, neurons, ridge=1e-13)
    for neuron in range(6):
        w, b, g = neurons.directions[neuron], neurons.biases[neuron], fitted.weights[1 + neuron]
        active = data.coordinates @ w + b > 0
        if active.sum() < 4:
            continue
        x = np.column_stack([data.coordinates, np.ones(40)])[active] * data.roots[active, None]
        aim = x @ np.append(w, b) + fitted.residual[active] @ g / (g @ g)
        expected = np.linalg.lstsq(x, aim, rcond=None)[0]
        found = local_fits(data, neurons, fitted, np.array([neuron]))
        length = np.linalg.norm(expected[:-1])
        np.testing.assert_allclose(found.directions[0], expected[:-1] / length, atol=1e-8)
        assert found.biases[0] == pytest.approx(expected[-1] / length, abs=1e-8)


def test_dead_neurons_go_first():
    data, neurons, _ = problem()
    dead = neurons.replace(4, neurons.directions[4], -100.0)
    fitted = fit_output(data, dead, ridge=1e-13)
    assert list(np.flatnonzero(fitted.is_dead)) == [4]
    assert list(Scores(data, fitted, 10).replaceable) == [4]
