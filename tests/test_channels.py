"""Several output channels: one trunk, a scale each, coefficients side by side; and derivatives of operators."""

import dataclasses as dc
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import has_same_bits, make_network
from own_problems import fit_branch, saved_and_loaded

from trunkfirst.data.operator_data import OperatorData
from trunkfirst.data.scattered_data import ScatteredData
from trunkfirst.encoders import Chain, FourierFeatures, Identity, Parallel, Periodic, Standardise
from trunkfirst.errors import SettingError
from trunkfirst.evaluation import evaluate
from trunkfirst.inputs import Coordinates, StandardisedInputs
from trunkfirst.method import Trained
from trunkfirst.network_trunk import NetworkTrunk
from trunkfirst.networks import deeponet
from trunkfirst.networks.branches import FeatureBranch, LayerFeatures, ProductFeatures, SkipFeatures
from trunkfirst.networks.layers import Trunk
from trunkfirst.networks.operator import Operator
from trunkfirst.outputs import Boundary, Output, OutputMap
from trunkfirst.regressors.ridge import Kernel
from trunkfirst.two_step import TwoStep

KNOWN = NetworkTrunk(hidden=(40,), width=20, activation="tanh", initialisation="he", starts=8)  # never trained
METHOD = TwoStep(
    KNOWN, Kernel(), inputs=StandardisedInputs(), weights="relative", coordinates=Coordinates(rescale=False)
)


def truth(inputs: np.ndarray, x: np.ndarray) -> np.ndarray:
    """A channel of size 1 and one of size 1e4, both nonlinear in the inputs."""
    a, b = inputs[:, :1], inputs[:, 1:]
    return np.stack([np.sin(a) * np.cos(x) + b * x, 1e4 * (a * b + np.exp(b) * x**2)], axis=2)


def velocity_and_pressure(samples: int, seed: int = 0) -> OperatorData:
    inputs = np.random.default_rng(seed).uniform(-1, 1, (samples, 2))
    x = np.linspace(0, 1, 25)
    return OperatorData(inputs, x[:, None], truth(inputs, x), channel_names=("velocity", "pressure"))


@pytest.fixture(scope="module")
def result() -> Trained:
    return fit_branch(velocity_and_pressure(80), METHOD)


# -- a fit of two channels


def test_channels_share_a_trunk_and_have_a_scale_each(result: Trained):
    operator, data = result.operator, velocity_and_pressure(80)
    assert operator.channels == 2
    assert operator.output is not None
    assert operator.transform is not None
    assert np.allclose(operator.output.scale, np.sqrt(np.mean(data.outputs**2, axis=(0, 1))), rtol=1e-12)
    with jax.enable_x64(True):
        coefficients = operator.coefficients(data.flat_inputs)
    assert coefficients.shape == (80, 2 * operator.transform.shape[1])


def test_known_functions_are_learned_at_new_points(result: Trained):
    inputs, x = np.random.default_rng(9).uniform(-0.9, 0.9, (20, 2)), np.linspace(0.01, 0.99, 7)
    predictions = result.operator.predict(inputs, x[:, None])
    expected = truth(inputs, x)
    assert predictions.shape == expected.shape == (20, 7, 2)
    for channel in range(2):
        error = np.linalg.norm((predictions - expected)[..., channel]) / np.linalg.norm(expected[..., channel])
        assert error < 1e-2


def test_errors_by_channel(result: Trained):
    data = velocity_and_pressure(30, seed=1)
    found = evaluate(result.operator, data)
    assert found.channel_errors is not None
    assert list(found.channel_errors) == ["velocity", "pressure"]
    for channel, errors in enumerate(found.channel_errors.values()):
        missed, u = (field[..., channel] for field in (found.predictions - data.outputs, data.outputs))
        assert np.allclose(errors, np.linalg.norm(missed, axis=1) / np.linalg.norm(u, axis=1), rtol=1e-12)
    assert np.allclose(found.errors, np.mean(list(found.channel_errors.values()), axis=0))
    assert (found.optimal_errors <= found.errors).all()
    summary = found.summary()
    assert summary["channels"] == {name: errors.mean() for name, errors in found.channel_errors.items()}


def test_the_unit_of_a_channel_does_not_matter(result: Trained):
    data = velocity_and_pressure(80)
    scaled = fit_branch(dc.replace(data, outputs=data.outputs * [2.0**-10, 1.0]), METHOD).operator
    values = [each.predict(data.flat_inputs, data.points) for each in (result.operator, scaled)]
    assert np.abs(values[0] * [2.0**-10, 1.0] - values[1]).max() < 1e-8 * np.abs(values[1]).max()


def test_one_axis_of_one_channel_is_no_axis():
    """(samples, points, 1) gives predictions of the same shape, and the same numbers."""
    data = velocity_and_pressure(80)
    single = dc.replace(data, outputs=data.outputs[..., :1], channel_names=())
    flat = dc.replace(data, outputs=data.outputs[..., 0], channel_names=())
    first, second = (
        fit_branch(each, METHOD).operator.predict(data.flat_inputs, data.points) for each in (single, flat)
    )
    assert first.shape == (80, 25, 1)
    assert np.abs(first[..., 0] - second).max() < 1e-5


def test_blocks_and_folding_change_nothing(result: Trained, monkeypatch: pytest.MonkeyPatch):
    operator, data = dense_operator("channels"), velocity_and_pressure(30)
    whole = operator.predict(data.flat_inputs, data.points)
    assert np.allclose(operator.fold().predict(data.flat_inputs, data.points), whole, rtol=0, atol=1e-12)
    own = np.broadcast_to(data.points, (30, 25, 1))
    assert np.allclose(operator.predict_scattered(data.flat_inputs, own), whole, rtol=0, atol=1e-12)
    monkeypatch.setattr(deeponet, "_BLOCK_NUMBERS", 25 * 2 * 7)  # blocks of 7 samples, the last one of 2
    assert np.allclose(operator.predict(data.flat_inputs, data.points), whole, rtol=0, atol=1e-12)


def test_scattered_channels():
    """The same samples, written as if every one had points of its own: the same fit, about."""
    data = velocity_and_pressure(80)
    points = np.broadcast_to(data.points, (80, 25, 1)).copy()
    scattered = ScatteredData(data.inputs, points, data.outputs, channel_names=data.channel_names)
    found = evaluate(fit_branch(scattered, METHOD).operator, scattered)
    assert found.predictions.shape == (80, 25, 2)
    assert found.channel_errors is not None
    assert all(errors.mean() < 1e-2 for errors in found.channel_errors.values())


@pytest.mark.parametrize("weights", [(1.0,), (1.0, 2.0, 3.0), (1.0, 0.0), (1.0, float("nan"))])
def test_bad_channel_weights(weights: tuple[float, ...]):
    with pytest.raises(SettingError, match="expected 2 positive numbers"):
        Output(channel_weights=weights).fit(velocity_and_pressure(5))


def test_a_fixed_side_of_several_channels_is_zero():
    data = velocity_and_pressure(5)
    with pytest.raises(SettingError, match="with several channels only 0 is possible"):
        Output(("x-",), 1.0).fit(data)
    assert Output(("x-",)).fit(data) is not None


# -- operators made of all parts: derivatives, files


def dense_operator(name: str, seed: int = 0) -> Operator:
    """Random operators of two inputs and one coordinate, made of what `name` says."""
    rng = np.random.default_rng(seed)
    features, encoder, points, output = 2, Identity(), Identity(), None
    layers: Any = LayerFeatures(make_network(2, 6, 5, seed=1))
    with jax.enable_x64(True):
        if name == "periodic and Fourier":
            points = Chain((Periodic((0.7,)), FourierFeatures(jnp.asarray(rng.normal(size=(2, 2))))))
        if name == "product and skip":
            halves = tuple(Standardise(jnp.asarray([m]), jnp.asarray([2.0])) for m in (0.1, -0.3))
            encoder = Parallel(halves, (1, 1))
            layers = SkipFeatures(
                ProductFeatures((make_network(1, 5, seed=2), make_network(1, 5, seed=3)), (1, 1))
            )
        channels = 2 if name in ("channels", "everything known") else None
        scale = jnp.asarray(rng.uniform(1, 2, channels or 1))
        if name == "everything known":
            output = OutputMap(scale, Boundary((0.0,), (1.0,), ((0, False),)), True)
        elif name == "channels":
            output = OutputMap(scale)
        features = points(jnp.ones((1, 1))).shape[1]
        width = layers(encoder(jnp.ones((1, 2)))).shape[1]
        W, b, T = (
            jnp.asarray(rng.normal(size=s)) for s in ((3 * (channels or 1), width), 3 * (channels or 1), (5, 3))
        )
    branch = FeatureBranch(layers, W, b)
    return Operator(
        encoder, branch, Trunk(make_network(features, 6, 4, seed=4), points), T, ("f", "g"), output, channels
    )


PARTS = ["channels", "everything known", "periodic and Fourier", "product and skip"]


@pytest.mark.parametrize("name", PARTS)
def test_derivatives_by_points_and_inputs(name: str):
    operator = dense_operator(name)
    inputs, points = np.array([[0.3, -0.4]]), np.array([[0.37]])
    with jax.enable_x64(True):
        value = jax.jit(lambda f, y: jnp.sum(operator(f, y)))
        by_inputs, by_points = jax.jit(jax.grad(value, argnums=(0, 1)))(jnp.asarray(inputs), jnp.asarray(points))
        h = 1e-6
        slopes = [
            float(value(inputs + h * step, points) - value(inputs - h * step, points)) / (2 * h)
            for step in np.eye(2)[:, None]
        ]
        slope = float(value(inputs, points + h) - value(inputs, points - h)) / (2 * h)
    assert np.allclose(by_inputs, [slopes], rtol=1e-6, atol=1e-8)
    assert float(by_points[0, 0]) == pytest.approx(slope, rel=1e-6)


@pytest.mark.parametrize("name", PARTS)
def test_round_trip_to_the_bit(name: str, tmp_path: Path):
    operator = dense_operator(name)
    back = saved_and_loaded(operator, tmp_path)
    assert has_same_bits(operator, back)
    assert jax.tree.structure(operator) == jax.tree.structure(back)
    inputs, points = np.random.default_rng(0).normal(size=(3, 2)), np.linspace(0, 1, 4)[:, None]
    values = operator.predict(inputs, points)
    assert values.shape == ((3, 4, 2) if operator.channels else (3, 4))
    assert np.array_equal(back.predict(inputs, points), values)


def test_round_trip_of_a_fit(result: Trained, tmp_path: Path):
    back = saved_and_loaded(result.operator, tmp_path)
    data = velocity_and_pressure(30)
    values = [each.predict(data.flat_inputs, data.points) for each in (result.operator, back)]
    assert np.array_equal(values[0], values[1])
