"""Encoders: what happens to an input before the branch sees it.

A record such as `StandardisedInputs` says what to do. Its `fit` looks at training samples and returns an encoder:
an Equinox module that is part of the operator.
"""

import abc
import dataclasses as dc
import itertools
from collections.abc import Callable
from types import ModuleType
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float
from pydantic import BeforeValidator

from .basis_inputs import Interval, checked_interval, coefficient_matrix
from .data.array_checks import unit_of
from .data.scattered_data import AnyData, ScatteredData
from .device_arrays import AnyArray as AnyArray, to_device
from .errors import DataError, SettingError, UnknownNameError
from .input_directions import best_powers, input_modes, leading_coefficients
from .linear.blocked_qr import one_blas_thread
from .settings import Field, OneOf, kind_field, record

_Module = TypeVar("_Module", bound=eqx.Module)

# Of positive numbers; numpy or jax.numpy is passed as an argument.
ELEMENTWISE: dict[str, Callable[[Any, Any], Any]] = {
    "log": lambda x, xp: xp.log(x),
    "inverse": lambda x, xp: 1 / x,
    "inverse-root": lambda x, xp: 1 / xp.sqrt(x),
}


def namespace(array: Any) -> ModuleType:
    """The library to compute with: numpy for NumPy arrays, otherwise jax.numpy."""
    return np if isinstance(array, np.ndarray) else jnp


def is_inexact(leaf: Any) -> bool:
    """Whether a leaf of a module is an array of floats, of NumPy or JAX."""
    return isinstance(leaf, np.ndarray | jax.Array) and jnp.issubdtype(leaf.dtype, jnp.inexact)


def to_jax(module: _Module) -> _Module:
    """The same module with JAX arrays in place of NumPy arrays."""
    return jax.tree.map(lambda leaf: to_device(leaf) if isinstance(leaf, np.ndarray) else leaf, module)


class AbstractEncoder(eqx.Module):
    """Maps raw inputs (samples, sensors) to features (samples, features)."""

    @property
    def sensors(self) -> int | None:
        """How many numbers an input has; None if any number will do."""
        return None

    def __call__(self, inputs: Float[AnyArray, "samples sensors"]) -> Float[AnyArray, "samples features"]:
        raise NotImplementedError


def in_precision(encoder: AbstractEncoder, dtype: np.dtype) -> AbstractEncoder:
    """The same encoder with its numbers in the precision `dtype`."""
    return jax.tree.map(lambda leaf: leaf.astype(dtype) if is_inexact(leaf) else leaf, encoder)


def in_words(encoder: AbstractEncoder) -> str:
    """The kind of encoder, with a note where a function is taken of some sensors alone."""
    parts = jax.tree.leaves(encoder, is_leaf=lambda part: isinstance(part, Elementwise))
    notes = [
        f"{part.function} of {int(part.is_positive.sum())} of {len(part.is_positive)} sensors, the positive ones"
        for part in parts
        if isinstance(part, Elementwise) and not bool(part.is_positive.all())
    ]
    return type(encoder).__name__ + (f" ({'; '.join(notes)})" if notes else "")


class Identity(AbstractEncoder):
    """Inputs as they come: values at points, as in the paper."""

    def __call__(self, inputs: Float[AnyArray, "samples sensors"]) -> Float[AnyArray, "samples features"]:
        return inputs


class SensorEncoder(AbstractEncoder):
    """An encoder whose first array has an entry, or a row, for every sensor."""

    @property
    def sensors(self) -> int | None:
        return len(jax.tree.leaves(self)[0])


class Standardise(SensorEncoder):
    """(x - mean) / deviation, sensor by sensor; a constant sensor passes as zero."""

    mean: Float[AnyArray, " sensors"]
    deviation: Float[AnyArray, " sensors"]

    def __call__(self, inputs: Float[AnyArray, "samples sensors"]) -> Float[AnyArray, "samples features"]:
        return (inputs - self.mean[None]) / self.deviation[None]


class Elementwise(SensorEncoder):
    """log x, 1/x or x^(-1/2) of the sensors that were positive in training; the others pass as they are."""

    is_positive: Bool[AnyArray, " sensors"]
    function: str = eqx.field(static=True)

    def __check_init__(self) -> None:
        if self.function not in ELEMENTWISE:
            raise UnknownNameError("function", self.function, tuple(ELEMENTWISE))

    def __call__(self, inputs: Float[AnyArray, "samples sensors"]) -> Float[AnyArray, "samples features"]:
        return _of_some(ELEMENTWISE[self.function], inputs, self.is_positive[None])


class Powers(SensorEncoder):
    """x^p, or log x for p = 0, of the sensors that are used; the others pass as they are."""

    exponents: Float[AnyArray, " sensors"]
    is_used: Bool[AnyArray, " sensors"]

    def __call__(self, inputs: Float[AnyArray, "samples sensors"]) -> Float[AnyArray, "samples features"]:
        def power(x: Any, xp: Any) -> Any:
            p, logs = self.exponents[None], xp.log(x)
            return xp.where(p == 0, logs, xp.exp(p * logs))

        return _of_some(power, inputs, self.is_used[None])


def _of_some(function: Callable[[Any, Any], Any], inputs: Any, is_used: Any) -> Any:
    """The function of the sensors that are used; elsewhere its argument is 1, so that no gradient becomes NaN."""
    xp = namespace(inputs)
    with np.errstate(divide="ignore", invalid="ignore"):  # of new inputs that are not positive
        return xp.where(is_used, function(xp.where(is_used, inputs, 1.0), xp), inputs)


class LinearProjection(SensorEncoder):
    """(x - centre) M: principal or predictive coordinates, or coefficients in a basis, which have no centre."""

    matrix: Float[AnyArray, "sensors features"]
    centre: Float[AnyArray, " sensors"] | None = None

    def __call__(self, inputs: Float[AnyArray, "samples sensors"]) -> Float[AnyArray, "samples features"]:
        return (inputs if self.centre is None else inputs - self.centre[None]) @ self.matrix


class Chain(AbstractEncoder):
    """Several encoders, one after the other."""

    parts: tuple[AbstractEncoder, ...]

    @property
    def sensors(self) -> int | None:
        # The first that is not content with any number says.
        return next((part.sensors for part in self.parts if part.sensors is not None), None)

    def __call__(self, inputs: Float[AnyArray, "samples sensors"]) -> Float[AnyArray, "samples features"]:
        for part in self.parts:
            inputs = part(inputs)
        return inputs


class Parallel(AbstractEncoder):
    """Several input functions side by side, each with its own encoder; `sizes` are their numbers of sensors."""

    parts: tuple[AbstractEncoder, ...]
    sizes: tuple[int, ...] = eqx.field(static=True)

    @property
    def sensors(self) -> int | None:
        return sum(self.sizes)

    def __call__(self, inputs: Float[AnyArray, "samples sensors"]) -> Float[AnyArray, "samples features"]:
        return namespace(inputs).concatenate(self.split(inputs), axis=1)

    def split(self, inputs: Float[AnyArray, "samples sensors"]) -> list[AnyArray]:
        """The features of every input function on its own."""
        ends = list(itertools.accumulate(self.sizes))
        columns = namespace(inputs).split(inputs, ends[:-1], axis=1)
        return [part(x) for part, x in zip(self.parts, columns, strict=True)]


@record
class AbstractInputs(abc.ABC):
    """How inputs are encoded: a record whose `fit` returns an encoder."""

    @abc.abstractmethod
    def fit(self, data: AnyData) -> AbstractEncoder:
        """The encoder fitted to training samples."""


@record
class RawInputs(AbstractInputs):
    """Inputs as they are, as in the paper."""

    kind: Literal["raw"] = kind_field("raw")

    def __str__(self) -> str:
        return "raw"

    def fit(self, data: AnyData) -> AbstractEncoder:
        del data
        return Identity()


@record
class StandardisedInputs(AbstractInputs):
    """Every sensor with mean 0 and deviation 1, optionally after a function of the positive ones."""

    function: Literal["log", "inverse", "inverse-root"] | None = Field(
        default=None, description="log, inverse or inverse-root of the sensors that are positive in training"
    )
    kind: Literal["standardise"] = kind_field("standardise")

    def __str__(self) -> str:
        return self.function or "standardise"

    def fit(self, data: AnyData) -> AbstractEncoder:
        inputs = data.flat_inputs
        if self.function is None:
            return fit_standardise(inputs)
        is_positive = (inputs > 0).all(axis=0)
        if not is_positive.any():
            sample, sensor = np.unravel_index(int(np.argmin(inputs)), inputs.shape)
            raise DataError(
                f"inputs: {self.function} is for positive sensors, and none is positive in all samples (sample "
                f"{sample}, sensor {sensor} is {inputs[sample, sensor]:.6g}); use StandardisedInputs() "
                '(inputs = "standardise")'
            )
        first = Elementwise(is_positive, self.function)
        return Chain((first, fit_standardise(np.asarray(first(inputs)))))


@record
class PowerInputs(AbstractInputs):
    """Every sensor that is positive in training raised to a power of its own, then with mean 0 and deviation 1.

    Powers that are left out are found by the marginal likelihood of a kernel with a length for every sensor, which
    predicts the leading output coefficients, and rounded to -1, -1/2, 0 (the logarithm), 1/2 or 1. That is for at
    most 32 sensors in all, and outputs at the same points.
    """

    powers: tuple[float, ...] | None = Field(
        default=None, description="a power for every sensor, 0 for the logarithm; found if left out"
    )
    kind: Literal["power"] = kind_field("power")

    def __str__(self) -> str:
        return "power"

    def fit(self, data: AnyData) -> AbstractEncoder:
        inputs = data.flat_inputs
        powers = best_powers(data) if self.powers is None else np.asarray(self.powers)
        if len(powers) != inputs.shape[1]:
            raise DataError(f"inputs: {len(powers)} powers are given for {inputs.shape[1]} sensors")
        first = Powers(powers.astype(inputs.dtype), (inputs > 0).all(axis=0) & (powers != 1))
        return Chain((first, fit_standardise(np.asarray(first(inputs)))))


@record
class PrincipalInputs(AbstractInputs):
    """The first `count` principal coordinates of the inputs, with one scale: small coordinates stay small."""

    count: int = Field(ge=1, description="how many principal coordinates")
    kind: Literal["principal"] = kind_field("principal")

    def __str__(self) -> str:
        return f"principal:{self.count}"

    def fit(self, data: AnyData) -> AbstractEncoder:
        centre, modes, sizes = input_modes(data)
        scale = np.sqrt(data.samples) / sizes[0]
        return LinearProjection(modes[: self.count].T * scale, centre)


@record
class PredictiveInputs(AbstractInputs):
    """Linear predictions, from `count` principal coordinates, of the leading output coefficients.

    There are as many as output directions with at least a thousandth of the deviation of the first, at most three.
    """

    count: int = Field(ge=1, description="how many principal coordinates the predictions use")
    kind: Literal["predictive"] = kind_field("predictive")

    def __str__(self) -> str:
        return f"predictive:{self.count}"

    def fit(self, data: AnyData) -> AbstractEncoder:
        if isinstance(data, ScatteredData):
            raise DataError("predictive coordinates need outputs at the same points for all samples")
        targets, weights = leading_coefficients(data)
        centre, modes, sizes = input_modes(data)
        modes, sizes = modes[: self.count], sizes[: self.count]
        roots = np.sqrt(weights / weights.mean())[:, None]
        with one_blas_thread():
            scores = np.hstack([np.ones_like(roots), (data.flat_inputs - centre) @ modes.T / sizes])
            slopes = np.linalg.lstsq(scores * roots, targets * roots, rcond=None)[0][1:]
        predicted = scores[:, 1:] @ slopes
        return LinearProjection((modes.T / sizes) @ slopes / predicted.std(axis=0), centre)


@record
class BasisInputs(AbstractInputs):
    """The first `count` coefficients of an input function in an orthonormal basis on an interval or a box.

    Functions of several coordinates have the tensor products of the first `count` functions of each. The sensor
    weights of the data are the quadrature weights of the basis' own inner product: Gauss-Legendre weights for
    Legendre, pi / sensors at Gauss-Chebyshev points, equal weights on a periodic grid for Fourier. Where the data
    have none, they are computed. Where `interval` is left out, it follows from the sensors: both ends are sensors,
    or they are Gauss points; for Fourier equidistant sensors are one period without its end.
    """

    basis: Literal["legendre", "chebyshev", "fourier"] = Field(description="legendre, chebyshev or fourier")
    count: int = Field(ge=1, description="how many coefficients, in each coordinate")
    interval: Annotated[Interval | tuple[Interval, ...] | None, BeforeValidator(checked_interval)] = Field(
        default=None,
        description="where the function is given, `[low, high]` or a pair for each coordinate; "
        "from the sensors if left out",
    )
    kind: Literal["basis"] = kind_field("basis")

    def __str__(self) -> str:
        return f"{self.basis}:{self.count}"

    def fit(self, data: AnyData) -> AbstractEncoder:
        (name, function), *others = data.inputs.items()
        if others:
            raise DataError(
                f"inputs[{name!r}]: basis coefficients need one input function, got {1 + len(others)}; "
                "set inputs of kind per-input, with an encoding for each"
            )
        if function.sensors is None:
            raise DataError(f"inputs[{name!r}]: basis coefficients need the coordinates of the sensors")
        weights = function.sensor_weights
        return LinearProjection(
            coefficient_matrix(self.basis, function.sensors, weights, self.count, self.interval)
        )


@record
class AutoInputs(AbstractInputs):
    """The encoder is chosen by the error on samples that are left out."""

    kind: Literal["auto"] = kind_field("auto")

    def fit(self, data: AnyData) -> AbstractEncoder:
        raise SettingError("inputs: the encoder is still to be chosen; call trunkfirst.fit, which chooses it")


_SINGLE = (RawInputs, StandardisedInputs, PowerInputs, PrincipalInputs, PredictiveInputs, BasisInputs)


@record
class PerInput(AbstractInputs):
    """Every input function with its own encoding, by name."""

    encodings: dict[str, Annotated[AbstractInputs, OneOf(*_SINGLE)]] = Field(
        description="an encoding for every input, by name"
    )
    kind: Literal["per-input"] = kind_field("per-input")

    def __str__(self) -> str:
        return ",".join(f"{name}={encoding}" for name, encoding in self.encodings.items())

    def fit(self, data: AnyData) -> AbstractEncoder:
        if set(self.encodings) != set(data.inputs):
            given, known = ", ".join(self.encodings), ", ".join(data.inputs)
            raise DataError(f"inputs: encoders are given for {given}, but the inputs are {known}")
        parts = [self.encodings[name].fit(dc.replace(data, inputs={name: f})) for name, f in data.inputs.items()]
        return Parallel(tuple(parts), tuple(f.values.shape[1] for f in data.inputs.values()))


Inputs: TypeAlias = Annotated[AbstractInputs, OneOf(*_SINGLE, PerInput, AutoInputs)]


def fit_standardise(inputs: Float[np.ndarray, "samples sensors"]) -> Standardise:
    """Mean and deviation of the training inputs (two passes: no cancellation)."""
    unit = unit_of(inputs, axis=0).astype(inputs.dtype)  # squares must not overflow
    mean = unit * (inputs / unit).mean(axis=0)
    deviation = unit * (inputs / unit).std(axis=0)
    # A constant sensor has a deviation of rounding size; dividing by it would blow noise up.
    is_constant = deviation <= 16 * np.finfo(inputs.dtype).eps * np.abs(mean)
    return Standardise(mean, np.where(is_constant, np.inf, deviation))
