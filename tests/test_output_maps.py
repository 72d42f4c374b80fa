"""Output maps: fixed sides, positivity and scales hold exactly, whatever the network learns."""

import math
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import has_same_bits, make_network
from own_problems import DOUBLE, fit_branch, saved_and_loaded

from trunkfirst.data.operator_data import OperatorData
from trunkfirst.encode import make_fields
from trunkfirst.encoders import Identity
from trunkfirst.errors import DataError, SettingError, TrunkfirstError
from trunkfirst.evaluation import evaluate
from trunkfirst.fields import Searched
from trunkfirst.inputs import Coordinates, RawInputs
from trunkfirst.minimisers.separable import SeparableProblem
from trunkfirst.network_trunk import NetworkTrunk
from trunkfirst.networks.layers import Trunk
from trunkfirst.outputs import Boundary, Output, OutputMap
from trunkfirst.regressors.ridge import Linear
from trunkfirst.two_step import TwoStep

BOX = np.random.default_rng(1).uniform(0, 2, (30, 2))
TRUNK = NetworkTrunk(
    hidden=(40,), width=20, activation="tanh", initialisation="he", starts=8
)  # known, and so never trained


def bump(samples: int = 12, points: int = 25, *, value: float = 0.0) -> OperatorData:
    """u = value + x (1 - x) (a + b x^2), with the inputs a and b: fixed at both ends."""
    inputs = np.random.default_rng(0).normal(size=(samples, 2))
    x = np.linspace(0, 1, points)
    return OperatorData(inputs, x[:, None], value + x * (1 - x) * (inputs @ np.stack([np.ones(points), x**2])))


def growth(samples: int = 40, points: int = 25) -> OperatorData:
    """u = exp(a x) b, with b > 0: over eight orders of magnitude, and positive."""
    rng = np.random.default_rng(0)
    inputs = rng.uniform([-5, -3], [5, 3], (samples, 2))
    x = np.linspace(0, 1, points)
    return OperatorData(inputs, x[:, None], np.exp(inputs[:, :1] * x + inputs[:, 1:]))


# -- formulas


def test_the_boundary_function_vanishes_on_its_sides_alone():
    boundary = Boundary((0.0, -1.0), (2.0, 3.0), ((0, True), (1, False)))
    with jax.enable_x64(True):
        found = np.asarray(boundary(jnp.asarray(BOX)))
        sides = np.asarray(boundary(jnp.asarray([[2.0, 0.3], [1.7, -1.0], [0.0, 3.0], [2.0, -1.0]])))
    assert np.allclose(found, (2 - BOX[:, 0]) / 2 * (BOX[:, 1] + 1) / 4, rtol=1e-14)
    assert sides.tolist() == [0.0, 0.0, 1.0, 0.0]


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("is_positive", [False, True])
def test_the_map_is_scale_times_value_plus_distance_times_raw(channels: int, is_positive: bool):
    rng = np.random.default_rng(0)
    raw = rng.normal(size=(4, 30, channels))
    scale = rng.uniform(1, 2, channels)
    with jax.enable_x64(True):
        boundary = Boundary((0.0, 0.0), (2.0, 2.0), ((0, False),), 0.3)
        output = OutputMap(jnp.asarray(scale), boundary, is_positive)
        given = raw if channels > 1 else raw[..., 0]
        found = np.asarray(output(jnp.asarray(given), jnp.asarray(BOX))).reshape(raw.shape)
    expected = scale * (0.3 + BOX[:, :1] / 2 * raw)
    assert np.allclose(found, np.exp(expected) if is_positive else expected, rtol=1e-14)


# -- training with a fixed side is a weighted problem


def test_training_with_a_fixed_side_is_the_weighted_problem():
    """The projected value is min over A of the sum of w |value + d Phi A - u|^2, solved densely here."""
    rng = np.random.default_rng(2)
    data = bump(value=0.7)
    data = OperatorData(data.inputs, data.points, data.outputs, point_weights=rng.uniform(0.5, 1.5, 25))
    network = make_network(1, 6, 4, seed=3)
    with jax.enable_x64(True):
        output = Output(("x-", "x+"), 0.7).fit(data)
        fields = make_fields(data, Identity(), output, None)
        problem = fields.problem(DOUBLE)(0.0)
        assert isinstance(problem, SeparableProblem)
        value = float(problem.value(Searched(network, False)))
        Phi = np.asarray(Trunk(network)(jnp.asarray(data.points)))
    x = data.points[:, 0]
    assert data.point_weights is not None
    roots = np.sqrt(data.point_weights)[:, None]
    d = (x * (1 - x))[:, None]
    A = np.linalg.lstsq(roots * d * Phi, roots * (data.outputs.T - 0.7), rcond=None)[0]
    squares = np.sum((roots * (0.7 + d * (Phi @ A) - data.outputs.T)) ** 2)
    # The problem's weights have the mean 1 and its value is a mean over all values.
    weights = data.point_weights * d[:, 0] ** 2
    assert value == pytest.approx(squares / weights.sum() / data.samples, rel=1e-8)


@pytest.mark.parametrize("value", [0.0, 0.7])
@pytest.mark.parametrize("precision", ["double", "single"])
def test_fixed_values_hold_exactly_at_new_points(value: float, precision: str, tmp_path: Path):
    data = bump(value=value)
    method = TwoStep(
        TRUNK,
        Linear(),
        output=Output(("x-", "x+"), value),
        precision=precision,
        inputs=RawInputs(),
        coordinates=Coordinates(rescale=False),
        weights="none",
    )
    operator = fit_branch(data, method).operator
    new = np.random.default_rng(5).normal(size=(7, 2))
    ends = np.array([[0.0], [0.123], [1.0]])
    predictions = operator.predict(new, ends)
    assert (predictions[:, [0, 2]] == np.asarray(value, operator.dtype)).all()
    expected = value + ends * (1 - ends) * (new @ np.stack([np.ones(3), ends[:, 0] ** 2])).T
    assert np.abs(predictions - expected.T).max() < (1e-5 if precision == "double" else 1e-2)
    back = saved_and_loaded(operator, tmp_path)
    assert has_same_bits(operator, back)
    assert np.array_equal(back.predict(new, ends), predictions)


def test_errors_and_optimum_with_fixed_sides():
    data = bump()
    operator = fit_branch(
        data,
        TwoStep(
            TRUNK,
            Linear(),
            output=Output(("x-",)),
            inputs=RawInputs(),
            coordinates=Coordinates(rescale=False),
            weights="none",
        ),
    ).operator
    found = evaluate(operator, data)
    assert (found.optimal_errors <= found.errors).all()
    assert found.errors.max() < 1e-4


# -- positivity


def test_positive_outputs_stay_positive_far_from_training():
    data = growth()
    operator = fit_branch(
        data,
        TwoStep(
            TRUNK,
            Linear(),
            output=Output(positive=True),
            weights="relative",
            inputs=RawInputs(),
            coordinates=Coordinates(rescale=False),
        ),
    ).operator
    far = 3 * np.random.default_rng(1).normal(size=(50, 2)) * [5, 3]
    assert (operator.predict(far, np.linspace(-1, 2, 9)[:, None]) > 0).all()
    assert evaluate(operator, data).errors.max() < 1e-3  # the logarithm is linear in the inputs


def test_a_positive_value_on_a_side():
    data = OperatorData(bump().inputs, bump().points, np.exp(bump(value=math.log(2.5)).outputs))
    settings = Output(("x-", "x+"), 2.5, positive=True)
    operator = fit_branch(
        data,
        TwoStep(
            TRUNK,
            Linear(),
            output=settings,
            inputs=RawInputs(),
            coordinates=Coordinates(rescale=False),
            weights="none",
        ),
    ).operator
    predictions = operator.predict(data.flat_inputs, np.array([[0.0], [1.0]]))
    assert np.allclose(predictions, 2.5, rtol=1e-15)
    assert evaluate(operator, data).errors.max() < 1e-4


# -- what cannot be


BAD: dict[str, tuple[Output, OperatorData, type[TrunkfirstError], str]] = {
    "no such coordinate": (Output(("y-",)), bump(), SettingError, "'y-' is not a side; the sides are x- x+"),
    "no such end": (Output(("x",)), bump(), SettingError, "'x' is not a side"),
    "empty": (Output(("",)), bump(), SettingError, "'' is not a side"),
    "zero is not positive": (
        Output(("x-",), positive=True),
        growth(),
        SettingError,
        r"output.value is 0.0 on the fixed sides",
    ),
    "negative data": (
        Output(positive=True),
        bump(),
        DataError,
        "learns the logarithm, but the value at",
    ),
    "weights for one channel": (
        Output(channel_weights=(1.0, 2.0)),
        bump(),
        SettingError,
        "expected 1 positive numbers",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_settings(name: str):
    settings, data, error, words = BAD[name]
    with pytest.raises(error, match=words):
        settings.fit(data)


def test_nothing_known_needs_no_map():
    assert Output().fit(bump()) is None
