"""Adam against its formula in NumPy."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jaxtyping import Array, Float

from trunkfirst.minimisers.adam import Adam
from trunkfirst.minimisers.loop import AbstractObjective, Minimised, Parameters, minimise

START = np.array([1.0, -2.0, 0.5])


class Valley(AbstractObjective):
    """f(x) = sum of c_i x_i^2 + sin(x_i)."""

    curvature: Float[Array, " n"]

    def value(self, parameters: Parameters) -> Float[Array, ""]:
        return jnp.sum(self.curvature * parameters**2 + jnp.sin(parameters))


CURVATURE = np.array([1.0, 10.0, 0.1])


def by_hand(iterations: int, rate: float, halve_every: int | None = None) -> tuple[list[np.ndarray], list[float]]:
    """Iterates and losses of Kingma and Ba's algorithm 1 with its default moments."""
    x, m, v = START, np.zeros(3), np.zeros(3)
    path, losses = [x], []
    for t in range(1, iterations + 1):
        losses.append(float(np.sum(CURVATURE * x**2 + np.sin(x))))
        g = 2 * CURVATURE * x + np.cos(x)
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        step = rate * 0.5 ** ((t - 1) // halve_every) if halve_every else rate
        x = x - step * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
        path.append(x)
    return path, losses


def run(minimiser: Adam, iterations: int) -> Minimised:
    with jax.enable_x64(True):
        objective = Valley(jnp.asarray(CURVATURE))
        return minimise(objective, jnp.asarray(START), minimiser, iterations=iterations, key=jr.key(0))


@pytest.mark.parametrize("halve_every", [None, 3])
def test_iterates(halve_every: int | None):
    path, losses = by_hand(11, 0.05, halve_every)
    result = run(Adam(0.05, halve_every), 11)
    assert np.abs(np.asarray(result.state.parameters) - path[-1]).max() < 1e-12
    assert np.allclose([step.loss for step in result.history], losses, rtol=1e-12, atol=1e-12)
    assert np.allclose([step.best_loss for step in result.history], np.minimum.accumulate(losses), rtol=1e-12)


def test_the_rate_is_halved_and_logged():
    rates = [step.rate for step in run(Adam(0.05, 3), 11).history]
    assert rates == [0.05 * 0.5 ** (i // 3) for i in range(1, 12)]  # the rate of the iteration to come
    assert [step.rate for step in run(Adam(0.05), 11).history] == [0.05] * 11


def test_best_parameters_are_those_of_the_smallest_loss():
    """So large a rate that the iterates overshoot: the last loss is not the best."""
    path, losses = by_hand(11, 0.5)
    best = int(np.argmin(losses))
    assert 0 < best < 10
    assert losses[-1] > losses[best]
    result = run(Adam(0.5), 11)
    assert result.value == pytest.approx(losses[best], rel=1e-12)
    assert np.abs(np.asarray(result.parameters) - path[best]).max() < 1e-12


def test_default_rate_is_the_papers():
    assert Adam() == Adam(first_rate=1e-3, halve_every=None)
