"""Derivatives of the outputs with respect to the points."""

import dataclasses as dc
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import make_network, make_operator

from trunkfirst.encoders import Identity
from trunkfirst.errors import DataError
from trunkfirst.networks import deeponet
from trunkfirst.networks.branches import PredictOnlyBranch
from trunkfirst.networks.layers import Trunk
from trunkfirst.networks.operator import Operator
from trunkfirst.outputs import Boundary, OutputMap

RNG = np.random.default_rng(0)
INPUTS, POINTS = RNG.normal(size=(7, 3)), RNG.uniform(-1, 1, (5, 2))


def with_channels() -> Operator:
    """Two channels behind a boundary and an exponential: everything that depends on the point."""
    with jax.enable_x64(True):
        output = OutputMap(jnp.asarray([0.5, 2.0]), Boundary((-1.0, -1.0), (1.0, 1.0), ((0, False),), 0.3), True)
    branch = make_network(3, 6, 6, seed=2)
    return dc.replace(make_operator(), branch=branch, output=output, channels=2)


def test_a_linear_trunk_has_the_slopes_of_its_weights():
    network = make_network(2, 4)
    operator = Operator(Identity(), make_network(3, 6, 5), Trunk(network))
    with jax.enable_x64(True):
        coefficients = np.asarray(operator.coefficients(INPUTS))
    exact = coefficients[:, 1:] @ np.asarray(network.weights[0])  # (samples, coordinates), the same at every point
    found = operator.gradient(INPUTS, POINTS)
    assert found.shape == (7, 5, 2)
    assert np.abs(found - exact[:, None]).max() < 1e-14


@pytest.mark.parametrize("channels", [None, 2])
def test_finite_differences(channels: int | None):
    operator = make_operator() if channels is None else with_channels()
    step = 1e-6
    moved = [operator.predict(INPUTS, POINTS + h * e) for e in np.eye(2) for h in (step, -step)]
    expected = np.stack([(moved[0] - moved[1]), (moved[2] - moved[3])], axis=-1) / (2 * step)
    found = operator.gradient(INPUTS, POINTS)
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() < 1e-8 * np.abs(expected).max()


def test_in_blocks_and_by_name(monkeypatch: pytest.MonkeyPatch):
    operator = make_operator()
    whole = operator.gradient({"g": INPUTS[:, 1:], "f": INPUTS[:, :1]}, POINTS)
    monkeypatch.setattr(deeponet, "_BLOCK_NUMBERS", 3 * POINTS.size)
    assert np.allclose(operator.gradient(INPUTS, POINTS), whole, rtol=0, atol=1e-14)
    with pytest.raises(DataError, match="points: expected 2 coordinates on axis 1"):
        operator.gradient(INPUTS, POINTS[:, :1])


class Estimator:
    """Predicts the inputs themselves."""

    def fit(self, X: Any, y: Any) -> Any:
        return self

    def predict(self, X: Any) -> Any:
        return X


def test_a_branch_that_only_predicts_has_slopes_too():
    operator = dc.replace(make_operator(), branch=PredictOnlyBranch(Estimator()))
    step = 1e-6 * np.array([1.0, 0.0])
    difference = operator.predict(INPUTS, POINTS + step) - operator.predict(INPUTS, POINTS - step)
    assert np.abs(operator.gradient(INPUTS, POINTS)[..., 0] - difference / 2e-6).max() < 1e-8


def test_single_precision_stays_so():
    assert make_operator(dtype=np.float32).gradient(INPUTS, POINTS).dtype == np.float32
