"""Encoders: coefficients of functions with closed forms, and standardisation."""

import dataclasses as dc
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import waves, with_inputs
from scipy.special import i0, i1

from trunkfirst.basis_inputs import coefficient_matrix
from trunkfirst.data.operator_data import InputFunction, OperatorData
from trunkfirst.data.scattered_data import scattered_from_lists
from trunkfirst.encode import encoded
from trunkfirst.encoders import Chain, Identity, LinearProjection, Powers, in_precision, in_words, to_jax
from trunkfirst.errors import DataError, TrunkfirstError, UnknownNameError, ValueRangeError
from trunkfirst.inputs import (
    AbstractInputs,
    BasisInputs,
    PerInput,
    PowerInputs,
    PredictiveInputs,
    PrincipalInputs,
    StandardisedInputs,
    fit_standardise,
)

INTERVALS = pytest.mark.parametrize("interval", [(-1.0, 1.0), (0.0, 3.0)], ids=str)


def quadrature(basis: str, count: int, interval: tuple[float, float]) -> tuple[np.ndarray, np.ndarray]:
    """Sensors on the interval with the weights that belong to the basis."""
    low, high = interval
    if basis == "legendre":
        x, w = np.polynomial.legendre.leggauss(count)
        w = w * (high - low) / 2
    elif basis == "chebyshev":
        x, w = np.polynomial.chebyshev.chebgauss(count)  # w = pi / count, whatever the interval
    else:
        x, w = -1 + 2 * np.arange(count) / count, np.full(count, (high - low) / count)
    return low + (x + 1) / 2 * (high - low), w


def encode(basis: str, values: np.ndarray, count: int, interval: tuple[float, float]) -> np.ndarray:
    sensors, weights = quadrature(basis, values.shape[1], interval)
    with jax.enable_x64(True):
        encoder = LinearProjection(coefficient_matrix(basis, sensors[:, None], weights, count, interval))
        return np.asarray(encoder(jax.numpy.asarray(values)))


@INTERVALS
@pytest.mark.parametrize("basis", ["legendre", "chebyshev", "fourier"])
def test_basis_functions_have_unit_coefficients(basis: str, interval: tuple[float, float]):
    """<psi_i, psi_j> = delta_ij, with psi_i written out."""
    x = -1 + 2 * (quadrature(basis, 16, interval)[0] - interval[0]) / (interval[1] - interval[0])
    functions = {
        "legendre": [np.sqrt(0.5) + 0 * x, np.sqrt(1.5) * x, np.sqrt(2.5) * (3 * x**2 - 1) / 2],
        "chebyshev": [np.sqrt(1 / np.pi) + 0 * x, np.sqrt(2 / np.pi) * x, np.sqrt(2 / np.pi) * (2 * x**2 - 1)],
        "fourier": [np.sqrt(0.5) + 0 * x, np.sin(np.pi * x), np.cos(np.pi * x)],
    }[basis]
    assert np.abs(encode(basis, np.array(functions), 3, interval) - np.eye(3)).max() < 1e-13


def test_legendre_coefficients_of_the_exponential():
    """<e^x, psi_0> = sinh(1) sqrt(2), <e^x, psi_1> = sqrt(6) / e."""
    x, _ = quadrature("legendre", 20, (-1.0, 1.0))
    found = encode("legendre", np.exp(x)[None], 2, (-1.0, 1.0))[0]
    assert np.allclose(found, [np.sqrt(2) * np.sinh(1), np.sqrt(6) / np.e], rtol=1e-13)


def test_chebyshev_coefficients_of_a_square_root():
    """f = sqrt(1 - x^2) has <f, T_2> = -2/3, <f, T_0> = 2; the rule converges like 1 / n^2."""
    x, _ = quadrature("chebyshev", 4000, (-1.0, 1.0))
    found = encode("chebyshev", np.sqrt(1 - x**2)[None], 3, (-1.0, 1.0))[0]
    assert np.allclose(found, [2 / np.sqrt(np.pi), 0, -2 / 3 * np.sqrt(2 / np.pi)], rtol=0, atol=1e-6)


def test_fourier_coefficients_of_a_trigonometric_polynomial():
    x, _ = quadrature("fourier", 32, (0.0, 2.0))
    f = 3 - 2 * np.sin(2 * np.pi * (x - 1)) + 0.5 * np.cos(3 * np.pi * (x - 1))
    found = encode("fourier", f[None], 8, (0.0, 2.0))[0]
    assert np.allclose(found, [3 * np.sqrt(2), 0, 0, -2, 0, 0, 0.5, 0], rtol=0, atol=1e-13)


@pytest.mark.parametrize(
    ("basis", "sensors", "error", "words"),
    [
        ("wavelet", np.zeros((4, 1)), UnknownNameError, "basis 'wavelet'.*legendre, chebyshev, fourier"),
        ("legendre", np.zeros((4, 1)), DataError, "at least 3 different positions in it, got 1"),
        (
            "legendre",
            np.linspace(0, 10, 4)[:, None],
            DataError,
            r"sum is 4; .* on \(0, 10\) sum to 10; set interval",
        ),
        ("chebyshev", np.linspace(0, 10, 4)[:, None], DataError, r"sum is 4; .* on \(0, 10\) sum to 3.14"),
    ],
)
def test_refusals(basis: str, sensors: np.ndarray, error: type[TrunkfirstError], words: str):
    with pytest.raises(error, match=words):
        coefficient_matrix(basis, sensors, np.ones(4), 3)


@pytest.mark.parametrize("weights", [None, np.full(4, 0.5)], ids=["no weights", "weights"])
def test_sensors_outside_the_interval_are_refused(weights: np.ndarray | None):
    with pytest.raises(DataError, match=r"from 0 to 10, outside the interval \(-1, 1\)"):
        coefficient_matrix("legendre", np.linspace(0, 10, 4)[:, None], weights, 3, (-1.0, 1.0))


@pytest.mark.parametrize("interval", ["word", (1.0,), (1.0, 0.0), (0.0, np.inf), ((0.0, 1.0), (2.0,))], ids=str)
def test_an_interval_is_two_numbers_or_pairs(interval: object):
    with pytest.raises(ValueRangeError, match=r"interval is .*expected two numbers"):
        BasisInputs("legendre", 3, interval)


def test_an_interval_for_each_coordinate():
    grid = np.stack(np.meshgrid([0.0, 1.0], [0.0, 1.0]), axis=-1).reshape(-1, 2)
    with pytest.raises(DataError, match="3 pairs are given, but the sensors have 2 coordinates"):
        coefficient_matrix("legendre", grid, None, 2, ((0.0, 1.0),) * 3)


# -- what is not given: interval and weights from the sensors

THIRD = {  # the third function of each basis
    "legendre": lambda t: np.sqrt(2.5) * (3 * t**2 - 1) / 2,
    "chebyshev": lambda t: np.sqrt(2 / np.pi) * (2 * t**2 - 1),
    "fourier": lambda t: np.cos(np.pi * t),
}


def coefficients(values: np.ndarray, *arguments: object) -> np.ndarray:
    with jax.enable_x64(True):
        return np.asarray(values @ coefficient_matrix(*arguments))


@pytest.mark.parametrize("interval", [(0.0, 10.0), (0.0, 1.0), (-1.0, 1.0), (1e6, 1e6 + 2)], ids=str)
@pytest.mark.parametrize("basis", ["legendre", "chebyshev", "fourier"])
@pytest.mark.parametrize("given", ["nothing", "interval", "weights"])
def test_interval_and_weights_come_from_the_sensors(basis: str, interval: tuple[float, float], given: str):
    """The third function has the coefficients (0, 0, 1, 0, 0) wherever its sensors are."""
    low, high = interval
    gauss, weights = quadrature(basis, 41, interval)
    even = np.linspace(low, high, 41, endpoint=basis != "fourier")
    for x in [gauss] if given == "weights" else [gauss, even]:
        values = THIRD[basis]((2 * x - low - high) / (high - low))[None]
        w = weights if given == "weights" else None
        found = coefficients(values, basis, x[:, None], w, 5, interval if given == "interval" else None)
        # Positions near 1e6 have few digits after the point.
        assert np.abs(found - [[0, 0, 1, 0, 0]]).max() < 1e-13 * (1 + abs(low))


@pytest.mark.parametrize("basis", ["legendre", "chebyshev"])
def test_computed_weights_converge_on_uneven_sensors(basis: str):
    """<e^t, psi_1> at random sensors, against the recurrences of Bessel functions and sinh."""
    exact = {
        "legendre": [np.sqrt(2) * np.sinh(1), np.sqrt(6) / np.e],
        "chebyshev": [np.sqrt(np.pi) * i0(1.0), np.sqrt(2 * np.pi) * i1(1.0)],
    }[basis]
    rng = np.random.default_rng(0)
    errors: list[float] = []
    for count in (20, 80, 320):
        t = np.concatenate([[-1], np.sort(rng.uniform(-1, 1, count)), [1]])
        errors.append(float(np.abs(coefficients(np.exp(t)[None], basis, t[:, None], None, 2)[0] - exact).max()))
    assert errors[2] < errors[0] / 50  # second order would be 256
    assert errors[2] < 1e-4


def test_weights_of_cell_centres_give_the_cells():
    """A midpoint rule: the weights say that the interval is half a cell longer at both ends."""
    x = (np.arange(400) + 0.5) / 40
    values = THIRD["legendre"](x / 5 - 1)[None]
    found = coefficients(values, "legendre", x[:, None], np.full(400, 1 / 40), 5)
    assert np.abs(found - [[0, 0, 1, 0, 0]]).max() < 1e-4


@pytest.mark.parametrize("with_weights", [False, True])
def test_tensor_products_on_a_grid(with_weights: bool):
    """psi_1(x) psi_2(y) on [0, 1] x [0, 4], sensors in any order: one coefficient is 1."""
    x, w = quadrature("legendre", 8, (0.0, 1.0))
    y, v = quadrature("legendre", 7, (0.0, 4.0))
    grid = np.stack(np.meshgrid(x, y, indexing="ij"), axis=-1).reshape(-1, 2)
    order = np.random.default_rng(0).permutation(len(grid))
    values = np.sqrt(1.5) * (2 * grid[:, 0] - 1) * THIRD["legendre"](grid[:, 1] / 2 - 1)
    weights = np.outer(w, v).ravel()[order] if with_weights else None
    found = coefficients(values[None, order], "legendre", grid[order], weights, 3)
    assert np.abs(found[0] - np.eye(9)[1 * 3 + 2]).max() < 1e-13


def test_scattered_sensors_need_weights():
    sensors = np.random.default_rng(0).uniform(size=(20, 2))
    with pytest.raises(DataError, match=r"sensors on a grid.*give sensor_weights"):
        coefficient_matrix("legendre", sensors, None, 2)


def test_basis_inputs_take_sensors_and_weights_from_the_data():
    sensors, weights = quadrature("legendre", 8, (-1.0, 1.0))
    data = waves()
    values = np.arange(12.0)[:, None] + sensors
    full = with_inputs(data, f=InputFunction(values, sensors[:, None], weights))
    with jax.enable_x64(True):
        features = np.asarray(BasisInputs("legendre", 2).fit(full)(jax.numpy.asarray(values)))
    expected = np.stack([np.arange(12.0) * np.sqrt(2), np.full(12, np.sqrt(2 / 3))], axis=1)
    assert np.allclose(features, expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize(
    ("missing", "words"),
    [("sensors", "the coordinates of the sensors"), ("second input", "one input function, got 2")],
)
def test_basis_inputs_say_what_they_need(missing: str, words: str):
    function = InputFunction(np.ones((12, 2)), None if missing == "sensors" else np.zeros((2, 1)), np.ones(2))
    more = {"g": np.ones((12, 1))} if missing == "second input" else {}
    with pytest.raises(DataError, match=rf"inputs\['f'\].*{words}"):
        BasisInputs("legendre", 2).fit(with_inputs(waves(), f=function, **more))


# -- standardisation


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_standardise(dtype: type):
    rng = np.random.default_rng(0)
    inputs = (1e3 + rng.normal(size=(500, 3)) * [1.0, 1e-1, 10.0]).astype(dtype)
    with jax.enable_x64(True):
        features = np.asarray(fit_standardise(inputs)(jax.numpy.asarray(inputs)), np.float64)
    assert np.abs(features.mean(axis=0)).max() < 1e5 * np.finfo(dtype).eps
    assert np.abs(features.std(axis=0) - 1).max() < 1e5 * np.finfo(dtype).eps


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("constant", [0.0, 0.1, -1e6, 1e-30])
def test_constant_sensors_become_zero(dtype: type, constant: float):
    inputs = np.full((1000, 1), constant, dtype)
    with jax.enable_x64(True):
        encoder = fit_standardise(inputs)
        for shift in (0, 1):  # seen and unseen values
            assert np.all(np.asarray(encoder(jax.numpy.asarray(inputs + dtype(shift)))) == 0)


def test_identity():
    x = jax.numpy.ones((2, 3))
    assert Identity()(x) is x


# -- the same with NumPy and with JAX

SENSORS, WEIGHTS = quadrature("legendre", 6, (-1.0, 1.0))
RECORDS: dict[str, AbstractInputs] = {
    "standardise": StandardisedInputs(),
    **{function: StandardisedInputs(function) for function in ("log", "inverse", "inverse-root")},
    "power": PowerInputs((-1.0, -0.5, 0.0, 0.5, 1.0, 0.3)),
    "principal": PrincipalInputs(3),
    "predictive": PredictiveInputs(4),
    "basis": BasisInputs("legendre", 3),
}


def mixed() -> OperatorData:
    """Six sensors, the second one not positive."""
    data = waves(sensors=6)
    values = data.flat_inputs.copy()
    values[:, 1] -= 1.0
    return with_inputs(data, f=InputFunction(values, SENSORS[:, None], WEIGHTS))


def leaves(module: Any) -> list[Any]:
    return jax.tree.leaves(module)


@pytest.mark.parametrize("name", RECORDS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_numpy_and_jax_agree(name: str, dtype: type):
    data = mixed()
    encoder = in_precision(RECORDS[name].fit(data), np.dtype(dtype))
    assert all(isinstance(leaf, np.ndarray) for leaf in leaves(encoder))
    inputs = data.flat_inputs.astype(dtype)
    found = encoder(inputs)
    assert isinstance(found, np.ndarray)
    assert found.dtype == dtype
    with jax.enable_x64(True):
        expected = jax.jit(to_jax(encoder).__call__)(jnp.asarray(inputs))
        assert all(isinstance(leaf, jax.Array) for leaf in leaves(to_jax(encoder)))
        np.testing.assert_allclose(found, expected, rtol=0, atol=50 * np.finfo(dtype).eps)
        slopes = jax.grad(lambda x: jnp.sum(encoder(x)))(jnp.asarray(inputs))
    assert np.isfinite(slopes).all()
    np.testing.assert_array_equal(encoded(encoder, data.flat_inputs, dtype), found)


def test_several_inputs_with_numpy():
    data = with_inputs(waves(), f=np.arange(24.0).reshape(12, 2) ** 2 + 1, g=np.arange(12.0)[:, None])
    encoder = PerInput({"f": StandardisedInputs("log"), "g": StandardisedInputs()}).fit(data)
    found = encoder(data.flat_inputs)
    assert isinstance(found, np.ndarray)
    with jax.enable_x64(True):
        np.testing.assert_allclose(found, encoder(jnp.asarray(data.flat_inputs)), rtol=1e-13)


# -- powers


def powers_of(encoder: Any) -> np.ndarray:
    assert isinstance(encoder, Chain)
    assert isinstance(encoder.parts[0], Powers)
    return encoder.parts[0].exponents


def rates(samples: int = 120) -> OperatorData:
    """u(y) = log(a) y + b y^2 / c: one input enters through its logarithm, one through its inverse."""
    inputs = np.exp(np.random.default_rng(0).uniform(-1, 1, (samples, 4)))
    y = np.linspace(0, 1, 20)[:, None]
    a, b, c, _ = inputs.T[..., None]
    return OperatorData(inputs, y, np.sin(2 * np.log(a)) * y[:, 0] + b / c * y[:, 0] ** 2)


def test_given_powers_of_positive_sensors():
    data = mixed()
    encoder = PowerInputs((0.0, -1.0, -0.5, 0.5, 1.0, 2.0)).fit(data)
    x = data.flat_inputs
    expected = np.stack([np.log(x[:, 0]), x[:, 1], x[:, 2] ** -0.5, x[:, 3] ** 0.5, x[:, 4], x[:, 5] ** 2], axis=1)
    expected = (expected - expected.mean(axis=0)) / expected.std(axis=0)
    np.testing.assert_allclose(encoder(x), expected, atol=1e-12)


def test_powers_are_found_from_the_outputs():
    found = powers_of(PowerInputs().fit(rates()))
    assert found[0] == 0.0
    assert found[2] in (-1.0, -0.5)
    assert found[3] == 1.0
    np.testing.assert_array_equal(found, powers_of(PowerInputs().fit(rates())))


def test_new_inputs_that_are_not_positive_are_no_numbers():
    encoder = PowerInputs((0.0, 0.5, -1.0, 1.0)).fit(rates())
    found = encoder(-np.ones((1, 4)))
    np.testing.assert_array_equal(np.isnan(found), [[True, True, True, False]])


def test_powers_that_cannot_be_found():
    data = rates(30)
    with pytest.raises(DataError, match="3 powers are given for 4 sensors"):
        PowerInputs((1.0, 1.0, 1.0)).fit(data)
    wide = dc.replace(data, inputs={"f": np.ones((30, 33))})
    with pytest.raises(DataError, match="at most 32 sensors, got 33"):
        PowerInputs().fit(wide)
    scattered = scattered_from_lists(data.flat_inputs, [data.points] * 30, list(data.outputs))
    with pytest.raises(DataError, match="same points"):
        PowerInputs().fit(scattered)
    assert len(powers_of(PowerInputs((0.0, 0.0, 1.0, 1.0)).fit(scattered))) == 4


@pytest.mark.parametrize("function", ["log", "inverse", "inverse-root"])
def test_a_function_of_positive_numbers_needs_some(function: Any):
    """It was the identity, silently."""
    inputs = np.random.default_rng(0).normal(size=(20, 3))
    data = OperatorData(inputs, np.zeros((1, 1)), np.ones((20, 1)))
    with pytest.raises(DataError, match=rf"inputs: {function} is for positive sensors, and none is .*standardise"):
        StandardisedInputs(function).fit(data)
    some = data.with_inputs(np.column_stack([np.exp(inputs[:, 0]), inputs[:, 1:]]))
    words = in_words(StandardisedInputs(function).fit(some))
    assert words == f"Chain ({function} of 1 of 3 sensors, the positive ones)"
    assert in_words(StandardisedInputs(function).fit(data.with_inputs(np.exp(inputs)))) == "Chain"
