"""Points before the trunk: rescaled, periodic, with Fourier features; inputs each with their own encoder."""

import dataclasses as dc
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import has_same_bits, make_network, waves
from own_problems import DOUBLE, fit_branch, known_trunk, saved_and_loaded

import trunkfirst
from trunkfirst import search
from trunkfirst.candidates import coordinate_candidates, periods_on_grid, waves_on_grid
from trunkfirst.data.operator_data import InputFunction, OperatorData
from trunkfirst.encoders import Chain, FourierFeatures, Identity, Parallel, Periodic, Standardise, in_precision
from trunkfirst.errors import DataError, SettingError
from trunkfirst.evaluation import evaluate
from trunkfirst.inputs import (
    Coordinates,
    PerInput,
    PrincipalInputs,
    RawInputs,
    StandardisedInputs,
    fit_standardise,
)
from trunkfirst.network_trunk import NetworkTrunk
from trunkfirst.networks.layers import Trunk
from trunkfirst.networks.operator import Operator
from trunkfirst.regressors.ridge import Linear
from trunkfirst.two_step import TwoStep

RNG = np.random.default_rng(0)
POINTS = RNG.uniform([0, 10], [2, 30], (40, 2))
NAMED = OperatorData(
    np.ones((3, 1)), POINTS, np.ones((3, 40)), coordinate_names=("t", "x")
)  # only the points matter


def encode(settings: Coordinates, points: np.ndarray = POINTS, data: OperatorData = NAMED) -> np.ndarray:
    with jax.enable_x64(True):
        return np.asarray(settings.fit(data, DOUBLE)(jnp.asarray(points)))


# -- what the settings make


def test_nothing_is_the_identity():
    with jax.enable_x64(True):
        assert isinstance(Coordinates(rescale=False).fit(NAMED, DOUBLE), Identity)


def test_rescaled_points_fill_the_box():
    found = encode(Coordinates(rescale=True))
    assert np.allclose(found.min(axis=0), -1)
    assert np.allclose(found.max(axis=0), 1)


def test_a_coordinate_that_never_changes_becomes_zero():
    flat = OperatorData(np.ones((3, 1)), POINTS * [1, 0] + [0, 7], np.ones((3, 40)))
    found = encode(Coordinates(rescale=True), flat.points, flat)
    assert not found[:, 1].any()
    assert np.ptp(found[:, 0]) == pytest.approx(2.0)


def test_periodic_coordinates_are_cosine_and_sine():
    found = encode(
        Coordinates(
            rescale=False,
            periods={
                "x": 5.0,
            },
        )
    )
    angle = 2 * np.pi * POINTS[:, 1] / 5
    assert np.allclose(found, np.stack([POINTS[:, 0], np.cos(angle), np.sin(angle)], axis=1), rtol=0, atol=1e-13)


def test_fourier_features_are_waves_of_the_rescaled_point():
    settings = Coordinates(rescale=False, fourier=4, cycles=2.0)
    found = encode(settings)
    scaled = encode(Coordinates(rescale=True))
    assert np.allclose(found[:, :2], scaled, rtol=0, atol=1e-15)
    assert np.allclose(found[:, 2:6] ** 2 + found[:, 6:] ** 2, 1.0, rtol=0, atol=1e-14)
    with jax.enable_x64(True):
        encoder = settings.fit(NAMED, DOUBLE)
    assert isinstance(encoder, Chain)
    waves_of = encoder.parts[-1]
    assert isinstance(waves_of, FourierFeatures)
    F = np.asarray(waves_of.frequencies)
    assert np.allclose(found[:, 2:6], np.cos(scaled @ F.T), rtol=0, atol=1e-13)
    assert np.abs(F).max() <= 2 * np.pi  # two waves across a box of length 2
    assert np.array_equal(encode(settings), found)  # the same frequencies every time


@pytest.mark.parametrize(
    "settings",
    [
        Coordinates(rescale=False),
        Coordinates(rescale=True),
        Coordinates(rescale=False, periods={"t": 2.0, "x": 5.0}),
        Coordinates(rescale=False, fourier=3),
        Coordinates(
            rescale=True,
            periods={
                "x": 5.0,
            },
            fourier=4,
        ),
    ],
)
def test_the_number_of_features_is_known_beforehand(settings: Coordinates):
    assert encode(settings).shape == (40, settings.features(2))


@pytest.mark.parametrize(
    "periods", [(("y", 1.0),), (("x", 0.0),), (("x", -1.0),), (("x", float("nan")),), (("x", float("inf")),)]
)
def test_bad_periods(periods: tuple[tuple[str, float], ...]):
    with pytest.raises(
        SettingError, match=r"coordinates.periods: . = .*; give a positive period for one of .* t, x"
    ):
        encode(Coordinates(rescale=False, periods=dict(periods)))


# -- what comes of it


@pytest.mark.parametrize(
    "settings",
    [
        Coordinates(
            rescale=False,
            periods={
                "x": 0.5,
            },
        ),
        Coordinates(
            rescale=True,
            periods={
                "x": 0.5,
            },
            fourier=3,
            cycles=0.2,
        ),
    ],
)
def test_a_periodic_operator_is_periodic(settings: Coordinates, tmp_path: Path):
    """u = a sin(4 pi x) + b, seen on one and a half periods; right on all others, and repeating to 1e-12."""
    inputs = RNG.normal(size=(10, 2))
    x = np.sort(RNG.uniform(0, 0.75, 60))[:, None]

    def truth(x: np.ndarray) -> np.ndarray:
        return inputs[:, :1] * np.sin(4 * np.pi * x.T) + inputs[:, 1:]

    features = settings.features(1)
    trunk = NetworkTrunk(hidden=(40,), width=20, activation="relu", initialisation="he", starts=8)
    data = OperatorData(inputs, x, truth(x))
    operator = fit_branch(
        data,
        TwoStep(trunk, Linear(), coordinates=settings, inputs=RawInputs(), weights="none"),
        known_trunk(features),
    ).operator
    values = operator.predict(inputs, x)
    for periods in (1, -2, 5):
        assert np.abs(operator.predict(inputs, x + 0.5 * periods) - values).max() < 1e-12
    elsewhere = np.linspace(7, 8, 60)[:, None]
    assert np.abs(operator.predict(inputs, elsewhere) - truth(elsewhere)).max() < 1e-4
    back = saved_and_loaded(operator, tmp_path)
    assert has_same_bits(operator, back)
    assert back.trunk.coordinates == 1
    assert np.array_equal(back.predict(inputs, x), values)


def test_fourier_features_learn_what_oscillates():
    """Twenty waves across the box: hopeless for a smooth trunk of this size, simple with the features."""
    inputs = RNG.normal(size=(10, 2))
    x = np.linspace(0, 1, 120)[:, None]
    outputs = inputs[:, :1] * np.sin(40 * np.pi * x.T) + inputs[:, 1:]
    data = OperatorData(inputs, x, outputs)
    errors: list[float] = []
    for settings in (Coordinates(rescale=True), Coordinates(rescale=False, fourier=40, cycles=25.0)):
        features = settings.features(1)
        trunk = Trunk(make_network(features, 81, seed=5))  # linear in the features
        method = TwoStep(
            NetworkTrunk(hidden=(), width=81, activation="relu", initialisation="he", starts=8),
            Linear(),
            coordinates=settings,
            inputs=RawInputs(),
            weights="none",
        )
        errors.append(evaluate(fit_branch(data, method, trunk).operator, data).errors.mean())
    assert errors[1] < 0.1 * errors[0]


# -- every input function with an encoder of its own


def two_inputs() -> OperatorData:
    data = waves(12, sensors=5)
    return OperatorData(
        {"a": InputFunction(data.flat_inputs[:, :2]), "f": InputFunction(data.flat_inputs[:, 2:])},
        data.points,
        data.outputs,
    )


def test_parallel_encoders_stand_side_by_side():
    data = two_inputs()
    a, f = data.inputs["a"].values, data.inputs["f"].values
    with jax.enable_x64(True):
        encoder = in_precision(
            PerInput({"f": PrincipalInputs(2), "a": StandardisedInputs("log")}).fit(data), DOUBLE
        )
        found = np.asarray(encoder(jnp.asarray(data.flat_inputs)))
        logs = np.log(a)
        principal = np.asarray(
            PrincipalInputs(2).fit(dc.replace(data, inputs={"f": data.inputs["f"]}))(jnp.asarray(f))
        )
    assert encoder.sensors == 5
    assert np.allclose(found[:, :2], (logs - logs.mean(axis=0)) / logs.std(axis=0), rtol=0, atol=1e-12)
    assert np.allclose(found[:, 2:], principal, rtol=0, atol=1e-12)


def test_every_input_needs_its_encoder():
    with pytest.raises(DataError, match="encoders are given for a, g, but the inputs are a, f"):
        PerInput({"a": StandardisedInputs("log"), "g": RawInputs()}).fit(two_inputs())


def test_parallel_and_fourier_round_trip_to_the_bit(tmp_path: Path):
    data = two_inputs()
    with jax.enable_x64(True):
        parts = (
            fit_standardise(data.inputs["a"].values),
            PrincipalInputs(2).fit(dc.replace(data, inputs={"f": data.inputs["f"]})),
        )
        points = Chain(
            (
                Periodic((0.5, 0.0)),
                Standardise(jnp.asarray([0.1, 0.2, 0.3]), jnp.asarray([1.0, np.inf, 2.0])),
                FourierFeatures(jnp.asarray(RNG.normal(size=(3, 3)))),
            )
        )
    operator = Operator(
        Parallel(parts, (2, 3)), make_network(4, 6, 5), Trunk(make_network(9, 6, 4), points), None, ("a", "f")
    )
    back = saved_and_loaded(operator, tmp_path)
    assert has_same_bits(operator, back)
    assert jax.tree.structure(operator) == jax.tree.structure(back)
    named = {name: f.values for name, f in data.inputs.items()}
    swapped = dict(reversed(named.items()))
    assert np.array_equal(back.predict(swapped, data.points), operator.predict(data.flat_inputs, data.points))


def test_named_inputs_are_put_in_order_when_judging():
    """A file may hold the inputs in another order than the one of training."""
    data = two_inputs()
    operator = Operator(Identity(), make_network(5, 6, 5), Trunk(make_network(2, 6, 4)), None, ("a", "f"))
    swapped = OperatorData(dict(reversed(list(data.inputs.items()))), data.points, data.outputs)
    assert np.array_equal(evaluate(operator, swapped).predictions, evaluate(operator, data).predictions)


# -- periods and waves that are found in the outputs


def travelling(x: np.ndarray, samples: int = 20, *, waves: int = 1, slope: float = 0.0) -> OperatorData:
    """A wave and its second harmonic at random phases, periodic with period 2 unless a line is added."""
    a, b = np.random.default_rng(0).uniform(0, 2 * np.pi, (2, samples, 1))
    t = np.linspace(0, 1, 9)
    angle = np.pi * waves * x[:, None] - t
    fields = np.sin(angle + a[..., None]) + np.cos(2 * angle + b[..., None]) + slope * x[:, None]
    points = np.stack(np.meshgrid(x, t, indexing="ij"), axis=-1).reshape(-1, 2)
    return OperatorData(np.hstack([a, b]), points, fields.reshape(samples, -1), coordinate_names=("x", "t"))


WHOLE, OPEN = np.linspace(-1, 1, 41), np.linspace(-1, 1, 40, endpoint=False)


@pytest.mark.parametrize("x", [WHOLE, OPEN], ids=["both ends", "one end"])
def test_a_period_is_found(x: np.ndarray):
    assert periods_on_grid(travelling(x)) == pytest.approx({"x": 2.0})


@pytest.mark.parametrize(
    "data",
    [
        travelling(WHOLE, slope=0.2),  # values differ at the ends
        travelling(np.linspace(0, 1, 41), waves=1),  # half a period
        travelling(np.sort(np.append(WHOLE, 0.012))),  # not evenly spaced
        OperatorData(
            np.ones((3, 1)), WHOLE[:, None], np.ones((3, 1)) * np.cos(np.pi * WHOLE / 2)
        ),  # slopes differ
        OperatorData(np.ones((3, 1)), WHOLE[:, None], np.ones((3, 41))),  # nothing to see
    ],
    ids=["a line", "half a period", "uneven", "slopes", "constant"],
)
def test_what_does_not_repeat_has_no_period(data: OperatorData):
    assert periods_on_grid(data) == {}


def test_one_sample_that_does_not_repeat_is_enough():
    data = travelling(WHOLE)
    outputs = data.outputs.copy()
    outputs[7] += data.points[:, 0]
    assert periods_on_grid(dc.replace(data, outputs=outputs)) == {}


@pytest.mark.parametrize("waves", [1, 6])
def test_waves_are_counted(waves: int):
    """The second harmonic has twice as many; over a length of 2 a wave number of 1 is one wave."""
    assert waves_on_grid(travelling(np.linspace(-1, 1, 160), waves=waves)) == pytest.approx(2 * waves, abs=1)


def test_candidates_are_what_is_found_and_not_given():
    data = travelling(np.linspace(-1, 1, 161), waves=6)
    found = coordinate_candidates(Coordinates(), data)
    assert list(found) == ["periodic in x", "32 waves"]
    assert all(isinstance(dc.replace(Coordinates(), **changes), Coordinates) for changes in found.values())
    assert list(coordinate_candidates(Coordinates(periods={"t": 1.0}, fourier=4), data)) == []
    scattered = dc.replace(data, points=data.points + 1e-3 * np.random.default_rng(0).random(data.points.shape))
    assert coordinate_candidates(Coordinates(), scattered) == {}


def test_a_network_trunk_is_made_periodic_where_that_pays(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(search, "_MIN_SECONDS", np.inf)  # no networks as branch
    monkeypatch.setattr(search, "anisotropic_encodings", lambda *_: [])
    trunk = NetworkTrunk(hidden=(10,), width=6, iterations=60, starts=1)
    result = trunkfirst.fit(travelling(OPEN[::2], 60), method=TwoStep(trunk), minutes=60.0, intervals=False)
    assert result.chosen.choice is not None
    tried = [name for name in result.chosen.choice.errors if "periodic in x" in name]
    assert tried
    assert result.method.coordinates.periods == pytest.approx({"x": 2.0})
    assert result.operator.periods[0] == pytest.approx(2.0)
