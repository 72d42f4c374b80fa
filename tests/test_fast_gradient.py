"""The gradient of the trunk search in single precision, against automatic differentiation in double precision."""

import dataclasses as dc

import equinox as eqx
import jax
import jax.flatten_util
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from trunkfirst.fields import Searched, TrunkFeatures, searched
from trunkfirst.networks.layers import make_perceptron

EPS = float(np.finfo(np.float32).eps)


def both(start: Searched, radius: float, unit: float = 1.0) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Values and gradient of a random functional of the features, with a fast gradient and with the usual one."""
    rng = np.random.default_rng(0)
    points, weights = rng.uniform(-1, 1, (70, 2)), rng.uniform(0.5, 2, 70)
    features = TrunkFeatures(jnp.asarray(points), jnp.asarray(weights), radius)
    times = unit * rng.normal(size=features(start).shape)

    def results(parameters: Searched) -> list[np.ndarray]:
        gradient = eqx.filter_grad(lambda p: jnp.vdot(features(p), jnp.asarray(times)))(parameters)
        return [np.asarray(features(parameters)), np.asarray(jax.flatten_util.ravel_pytree(gradient)[0])]

    return results(start), results(dc.replace(start, has_fast_gradient=False))


@pytest.mark.parametrize("width", [9, 20])  # of 20 functions from 9, only the 9 are searched
@pytest.mark.parametrize(
    ("activation", "radius"), [("relu", 0.0), ("relu", 0.1), ("tanh", 0.0), ("gelu", 0.0), ("sine", 0.0)]
)
def test_values_and_gradient(activation: str, radius: float, width: int):
    """No digit of the values is lost; a sum of n products of single precision loses at most about n of them."""
    with jax.enable_x64(True):
        network = make_perceptron((2, 12, 9, width), activation=activation, initialisation="he", key=jr.key(1))
        (values, fast), (expected, exact) = both(searched(network), radius)
    np.testing.assert_allclose(values, expected, rtol=1e-13, atol=1e-13)
    assert np.abs(fast - exact).max() <= 70 * EPS * np.abs(exact).max()
    assert not np.array_equal(fast, exact)


@pytest.mark.parametrize("unit", [1e-200, 1e200])
def test_losses_beyond_the_range_of_single_precision(unit: float):
    """Gradients of losses whose size single precision could not represent."""
    with jax.enable_x64(True):
        network = make_perceptron((2, 8, 8), activation="tanh", initialisation="xavier", key=jr.key(0))
        (_, fast), (_, exact) = both(searched(network), 0.0, unit)
    assert np.abs(fast - exact).max() <= 70 * EPS * np.abs(exact).max() < np.inf
