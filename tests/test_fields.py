"""What step 1 sees: rows of samples and channels, places of scattered points, weights, raw values."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from helpers import as_fields, waves

from trunkfirst.data.operator_data import OperatorData
from trunkfirst.data.scattered_data import ScatteredData, channel_weights, scattered_from_lists
from trunkfirst.encode import make_fields
from trunkfirst.encoders import Identity, Standardise
from trunkfirst.fields import Fields
from trunkfirst.networks.layers import Trunk, make_perceptron
from trunkfirst.outputs import Boundary, Output, OutputMap
from trunkfirst.scattered import ScatteredFields

RNG = np.random.default_rng(0)


def two_channels(samples: int = 3, points: int = 5) -> OperatorData:
    return OperatorData(
        RNG.normal(size=(samples, 2)), RNG.uniform(size=(points, 2)), RNG.normal(size=(samples, points, 2))
    )


def uneven(*, channels: int | None = None, **more: np.ndarray) -> ScatteredData:
    """Samples with 4, 2 and 3 points; the first point is the same in all of them."""
    counts, tail = (4, 2, 3), () if channels is None else (channels,)
    points = [np.vstack([[0.5, 0.5], RNG.uniform(size=(count - 1, 2))]) for count in counts]
    return scattered_from_lists(
        RNG.normal(size=(3, 2)), points, [RNG.normal(size=(count, *tail)) for count in counts], **more
    )


# -- all samples on the same points


def test_fields_of_one_channel_are_the_data():
    data = waves()
    fields = as_fields(data)
    assert isinstance(fields, Fields)
    assert np.array_equal(fields.points, data.points)
    assert np.array_equal(fields.outputs, data.outputs)
    assert (fields.channels, fields.rows, fields.sample_weights) == (None, 12, None)


def test_channels_run_faster_than_samples():
    data = two_channels()
    fields = as_fields(data)
    assert fields.channels == 2
    for sample in range(3):
        for channel in range(2):
            assert np.array_equal(fields.outputs[2 * sample + channel], data.outputs[sample, :, channel])


def test_sample_weights_count_for_every_channel():
    data = two_channels()
    weighted = OperatorData(data.inputs, data.points, data.outputs, sample_weights=np.array([1.0, 2.0, 3.0]))
    weights = as_fields(weighted).sample_weights
    assert weights is not None
    assert np.allclose(weights.reshape(3, 2) / weights[0], [[1, 1], [2, 2], [3, 3]])


def test_points_are_encoded():
    data = waves()
    with jax.enable_x64(True):
        half = Standardise(jnp.asarray([1.0, 2.0]), jnp.asarray([2.0, 4.0]))
        fields = make_fields(data, half, None, None)
    assert np.allclose(fields.points, (data.points - [1, 2]) / [2, 4], rtol=0, atol=1e-15)


def boundary_map(value: float = 0.5) -> OutputMap:
    """Fixed on x = -1."""
    return OutputMap(jnp.ones(1), Boundary((-1.0, -1.0), (1.0, 1.0), ((0, False),), value))


@pytest.mark.parametrize("weighted", [False, True])
def test_a_hard_boundary_changes_data_and_weights_and_nothing_else(weighted: bool):
    """sum of w d^2 |r - raw|^2 is sum of w |value + d r - u|^2, for any r, up to one factor."""
    places = np.vstack([[-1.0, 0.2], RNG.uniform(-1, 1, (29, 2))])
    outputs = 0.5 + (places[:, 0] + 1) * RNG.normal(size=(4, 30))
    given = RNG.uniform(0.5, 1.5, 30) if weighted else None
    data = OperatorData(RNG.normal(size=(4, 2)), places, outputs, point_weights=given)
    with jax.enable_x64(True):
        fields = make_fields(data, Identity(), boundary_map(), None)
    assert len(fields.points) == 29  # nothing can be learned on the side itself
    assert fields.point_weights is not None
    assert fields.point_weights.sum() == pytest.approx(1.0)
    r = RNG.normal(size=(2, 4, 29))
    d = (places[1:, 0] + 1) / 2
    w = (np.full(30, 1 / 30) if data.point_weights is None else data.point_weights)[1:]
    ratios = [
        np.sum(fields.point_weights * (guess - fields.outputs) ** 2)
        / np.sum(w * (0.5 + d * guess - outputs[:, 1:]) ** 2)
        for guess in r
    ]
    assert ratios[0] == pytest.approx(ratios[1], rel=1e-12)
    assert ratios[0] == pytest.approx(1 / np.sum(w * d**2), rel=1e-12)


# -- every sample on points of its own


@pytest.mark.parametrize("channels", [None, 2])
def test_scattered_values_stand_at_their_places(channels: int | None):
    data = uneven(channels=channels)
    fields = as_fields(data)
    assert isinstance(fields, ScatteredFields)
    assert len(fields.points) == 4 + 2 + 3 - 2  # the common point once
    count = channels or 1
    outputs = data.outputs.reshape(3, 4, count)
    for sample, mask in enumerate(data.mask):
        assert np.array_equal(fields.points[fields.places[sample][mask]], data.points[sample][mask])
        assert np.array_equal(fields.weights[sample], mask.astype(float))
        for channel in range(count):
            row = fields.outputs[sample * count + channel]
            assert np.array_equal(row[mask], outputs[sample, mask, channel])
            assert not row[~mask].any()


def test_scattered_point_weights_have_mean_one_a_sample():
    data = uneven(point_weights=np.array([[1.0, 2, 3, 4], [1, 3, 0, 0], [1, 1, 2, 0]]))
    fields = as_fields(data)
    assert isinstance(fields, ScatteredFields)
    weights = fields.weights
    assert np.allclose(weights, [[0.4, 0.8, 1.2, 1.6], [0.5, 1.5, 0, 0], [0.75, 0.75, 1.5, 0]])


def test_a_hard_boundary_at_scattered_points():
    data = uneven()
    with jax.enable_x64(True):
        fields = make_fields(data, Identity(), boundary_map(), None)
    assert isinstance(fields, ScatteredFields)
    d = np.where(data.mask, (data.points[..., 0] + 1) / 2, 0.0)
    assert np.allclose(fields.weights, d**2, rtol=1e-14)
    assert np.allclose(np.where(data.mask, 0.5 + d * fields.outputs - data.outputs, 0.0), 0, atol=1e-15)


# -- weights of samples and channels


@pytest.mark.parametrize("weights", [None, (4.0, 1.0)], ids=["equal", "the first four times"])
def test_relative_weights_make_samples_and_channels_alike(weights: tuple[float, ...] | None):
    """w |raw|^2 is the same for all samples, and between channels in the ratio asked for."""
    data = two_channels()
    outputs = data.outputs * np.array([1.0, 1e4]) * np.array([1.0, 10.0, 100.0])[:, None, None]
    data = OperatorData(data.inputs, data.points, outputs)
    with jax.enable_x64(True):
        output = Output(channel_weights=weights).fit(data)
        rows = channel_weights(data, True)
        assert rows is not None
        fields = make_fields(data, Identity(), output, rows)
    assert fields.sample_weights is not None
    sizes = (fields.sample_weights[:, None] * fields.outputs**2).mean(axis=1).reshape(3, 2)
    assert np.allclose(sizes / sizes[0, 1], [1.0 if weights is None else 4.0, 1.0], rtol=1e-12)


def test_without_relative_errors_all_samples_count_alike():
    assert channel_weights(two_channels(), False) is None


@pytest.mark.parametrize("size", [0.0, 1e-30, 1e6])
def test_a_field_of_zeros_does_not_take_all_the_weight(size: float):
    data = two_channels(4)
    data.outputs[:] = size * np.sign(data.outputs)
    data.outputs[1] = 0
    weights = channel_weights(data, True)
    assert weights is not None
    assert np.allclose(weights, weights[0], rtol=0.5)
    assert weights.mean() == pytest.approx(1.0)


@pytest.mark.parametrize("least_weight", [1.0, 1e-20])
def test_coefficients_by_the_factor_are_those_of_every_sample(least_weight: float):
    rng, ridge = np.random.default_rng(0), 1e-2
    points, point_weights = rng.uniform(-1, 1, (30, 1)), rng.uniform(0.5, 1.5, 30)
    outputs = rng.normal(size=(60, 4)) @ np.cos(np.arange(4)[:, None] * points[:, 0])
    outputs[0] = np.sin(9 * points[:, 0])  # no other sample has this direction
    weights = np.array([least_weight, *rng.uniform(0.5, 1.5, 59)])
    with jax.enable_x64(True):
        trunk = Trunk(make_perceptron((1, 6, 5), activation="tanh", key=jr.key(0)))
        A = Fields(points, outputs, point_weights, weights).solve(trunk, ridge)
        Phi = np.asarray(trunk(jnp.asarray(points)))
    roots = np.sqrt(point_weights / point_weights.mean())[:, None]
    rows = np.concatenate([Phi * roots, ridge * np.eye(6)])
    sides = np.concatenate([outputs.T * roots, np.zeros((6, 60))])
    expected = np.linalg.lstsq(rows, sides, rcond=None)[0].T
    scale = np.abs(expected).max() * np.linalg.cond(rows)
    np.testing.assert_allclose(A, expected, rtol=0, atol=1e3 * np.finfo(float).eps * scale)
