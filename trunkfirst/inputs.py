"""How inputs and output points are encoded: records whose `fit` sees training samples and returns an encoder."""

import abc
import dataclasses as dc
import functools as ft
import weakref
from collections.abc import Callable
from typing import Annotated, Literal, NamedTuple, TypeAlias, TypeVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float
from pydantic import BeforeValidator

from .basis_inputs import Interval, checked_interval, coefficient_matrix
from .data.array_checks import unit_of
from .data.scattered_data import AnyData, ScatteredData, relative_weights
from .encoders import (
    AbstractEncoder,
    Chain,
    Elementwise,
    FourierFeatures,
    Identity,
    LinearProjection,
    Parallel,
    Periodic,
    Powers,
    Standardise,
    in_precision,
)
from .errors import DataError, SettingError
from .linear.blocked_qr import one_blas_thread
from .linear.kernels import find_powers
from .linear.low_rank import principal_directions
from .settings import Field, OneOf, kind_field, record

# Powers to choose from, the most sensors that they are found for, and the most samples that they are found on.
_POWERS = np.array([-1.0, -0.5, 0.0, 0.5, 1.0])
_MAX_SENSORS, _MAX_SAMPLES = 32, 300

_Found = TypeVar("_Found")


@record
class AbstractInputs(abc.ABC):
    """How inputs are encoded: a record whose `fit` returns an encoder."""

    @abc.abstractmethod
    def fit(self, data: AnyData) -> AbstractEncoder:
        """The encoder fitted to training samples."""


@record
class RawInputs(AbstractInputs):
    """Inputs as they are, as in the paper.

    >>> import trunkfirst
    >>> trunkfirst.TwoStep(inputs=RawInputs()).inputs.kind
    'raw'
    """

    kind: Literal["raw"] = kind_field("raw")

    def __str__(self) -> str:
        return "raw"

    def fit(self, data: AnyData) -> AbstractEncoder:
        del data
        return Identity()


def positive_sensors(inputs: Float[np.ndarray, "samples sensors"]) -> Bool[np.ndarray, " sensors"]:
    """Sensors that are positive in all samples, and not so small that 1/x is infinite."""
    return (inputs >= np.finfo(inputs.dtype).tiny).all(axis=0)


@record
class StandardisedInputs(AbstractInputs):
    """Sensors scaled to mean 0 and standard deviation 1, positive ones optionally after a function such as log.

    >>> import trunkfirst
    >>> trunkfirst.TwoStep(inputs=StandardisedInputs("log")).inputs.function
    'log'
    """

    function: Literal["log", "inverse", "inverse-root"] | None = Field(
        default=None, description="log, inverse or inverse-root, applied to sensors that are positive in training"
    )
    kind: Literal["standardise"] = kind_field("standardise")

    def __str__(self) -> str:
        return self.function or "standardise"

    def fit(self, data: AnyData) -> AbstractEncoder:
        inputs = data.flat_inputs
        if self.function is None:
            return fit_standardise(inputs)
        is_positive = positive_sensors(inputs)
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
    """A power of every sensor that is positive in training, then scaled as by `StandardisedInputs`.

    If `powers` is left out, they are found by the marginal likelihood of a kernel that predicts the leading
    output coefficients, with a length scale for every sensor, and rounded to -1, -1/2, 0 (the logarithm), 1/2 or
    1. For at most 32 sensors in all, and outputs at the same points.

    >>> import trunkfirst
    >>> trunkfirst.TwoStep(inputs=PowerInputs()).inputs.kind
    'power'
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
        first = Powers(powers.astype(inputs.dtype), positive_sensors(inputs) & (powers != 1))
        return Chain((first, fit_standardise(np.asarray(first(inputs)))))


@record
class PrincipalInputs(AbstractInputs):
    """The first `count` principal components of the inputs, all divided by the same number.

    >>> PrincipalInputs(count=8).count
    8
    """

    count: int = Field(ge=1, description="number of principal components")
    kind: Literal["principal"] = kind_field("principal")

    def __str__(self) -> str:
        return f"principal:{self.count}"

    def fit(self, data: AnyData) -> AbstractEncoder:
        centre, modes, sizes = input_modes(data)
        scale = np.sqrt(data.samples) / sizes[0]
        return LinearProjection(modes[: self.count].T * scale, centre)


@record
class PredictiveInputs(AbstractInputs):
    """The leading output coefficients, predicted linearly from `count` principal components of the inputs.

    These are the coefficients of output directions with at least a thousandth of the deviation of the first, at
    most three.

    >>> PredictiveInputs(count=8).count
    8
    """

    count: int = Field(ge=1, description="number of principal components in the regression")
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

    For functions of several coordinates, the basis has the tensor products of the first `count` functions of each.
    The sensor weights of the data must be the quadrature weights of the inner product of the basis: Gauss-Legendre
    weights for Legendre, pi / sensors at Gauss-Chebyshev points, equal weights on a periodic grid for Fourier.
    They are computed if the data have none. If `interval` is left out, it follows from the sensors: they include
    both ends, or are Gauss points; for Fourier, equidistant sensors are one period without its end.

    >>> import trunkfirst
    >>> trunkfirst.TwoStep(inputs=BasisInputs("legendre", 8)).inputs.count
    8
    """

    basis: Literal["legendre", "chebyshev", "fourier"] = Field(description="legendre, chebyshev or fourier")
    count: int = Field(ge=1, description="number of coefficients, in each coordinate")
    interval: Annotated[Interval | tuple[Interval, ...] | None, BeforeValidator(checked_interval)] = Field(
        default=None,
        description="domain of the function, `[low, high]` or a pair for each coordinate; "
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
    """The encoder is chosen by the error on samples that are left out.

    >>> import trunkfirst
    >>> trunkfirst.TwoStep().inputs.kind
    'auto'
    """

    kind: Literal["auto"] = kind_field("auto")

    def fit(self, data: AnyData) -> AbstractEncoder:
        raise SettingError("inputs: the encoder is still to be chosen; call trunkfirst.fit, which chooses it")


_SINGLE = (RawInputs, StandardisedInputs, PowerInputs, PrincipalInputs, PredictiveInputs, BasisInputs)


@record
class PerInput(AbstractInputs):
    """An encoder for every input function, by name.

    >>> import trunkfirst
    >>> encoders = PerInput({"f": trunkfirst.PrincipalInputs(3), "g": trunkfirst.StandardisedInputs()})
    >>> trunkfirst.TwoStep(inputs=encoders).inputs.kind
    'per-input'
    """

    encodings: dict[str, Annotated[AbstractInputs, OneOf(*_SINGLE)]] = Field(
        description="an encoder for every input, by name"
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


# -- directions and powers of the inputs, found once for a data set


def _once(find: Callable[[AnyData], _Found]) -> Callable[[AnyData], _Found]:
    """Cache a result while its data set lives: many candidates ask for the same."""
    known: weakref.WeakKeyDictionary[AnyData, _Found] = weakref.WeakKeyDictionary()

    @ft.wraps(find)
    def found(data: AnyData) -> _Found:
        if data not in known:
            known[data] = find(data)
        return known[data]

    return found


class InputModes(NamedTuple):
    """Principal directions of inputs, and the singular values."""

    centre: Float[np.ndarray, " sensors"]
    modes: Float[np.ndarray, "rank sensors"]
    sizes: Float[np.ndarray, " rank"]


@_once
def input_modes(data: AnyData) -> InputModes:
    """The principal directions of the inputs, without those at rounding level."""
    centre = data.flat_inputs.mean(axis=0)
    with one_blas_thread():
        _, sizes, modes = np.linalg.svd(data.flat_inputs - centre, full_matrices=False)
    rank = max(1, int((sizes > 1e-13 * sizes[0]).sum()))
    return InputModes(centre, modes[:rank], sizes[:rank])


@_once
def leading_coefficients(
    data: AnyData,
) -> tuple[Float[np.ndarray, "samples directions"], Float[np.ndarray, " samples"]]:
    """The coefficients of the outputs in their leading principal directions, and the relative weights used."""
    weights = relative_weights(data)
    outputs = data.outputs.reshape(data.samples, -1)
    centred = outputs - np.average(outputs, axis=0, weights=weights)
    modes = principal_directions(centred * np.sqrt(weights)[:, None], tolerance=1e-3)[:3]
    return centred @ modes.T, weights


@_once
def best_powers(data: AnyData) -> Float[np.ndarray, " sensors"]:
    """The powers with the greatest likelihood, rounded."""
    sensors = data.flat_inputs.shape[1]
    if isinstance(data, ScatteredData):
        raise DataError("finding powers needs outputs at the same points for all samples; give inputs.powers")
    if sensors > _MAX_SENSORS:
        raise DataError(f"powers are found for at most {_MAX_SENSORS} sensors, got {sensors}; give inputs.powers")
    targets, weights = leading_coefficients(data)
    is_positive = np.all(data.flat_inputs > 0, axis=0)
    rows = np.flatnonzero(weights > 0)
    if len(rows) > _MAX_SAMPLES:
        rows = np.sort(np.random.default_rng(0).choice(rows, _MAX_SAMPLES, replace=False))
    with one_blas_thread():
        found = find_powers(data.flat_inputs[rows], targets[rows], weights[rows], is_positive)
    return _POWERS[np.abs(found[:, None] - _POWERS).argmin(axis=1)]


# -- output points


@record
class Coordinates:
    """How output points are encoded for the trunk.

    >>> import trunkfirst
    >>> trunkfirst.TwoStep(coordinates=Coordinates(periods={"x": 1.0})).coordinates.rescale
    True
    """

    rescale: bool = Field(default=True, description="map the box of the output points to [-1, 1]")
    periods: dict[str, float] = Field(
        default_factory=dict,
        description="periodic coordinates by name, e.g. {x = 1.0}: the trunk is then periodic in them, exactly",
    )
    fourier: int = Field(default=0, ge=0, description="cosines and sines of this many random frequencies")
    cycles: float = Field(default=3.0, gt=0, description="the highest frequency, in waves across the box")

    def fit(self, data: AnyData, dtype: np.dtype) -> AbstractEncoder:
        """The encoder for the points of `data`, its numbers in the precision of the networks."""
        points = data.points.reshape(-1, data.points.shape[-1])
        parts = self._parts(points[~np.isnan(points).any(axis=1)], data.coordinate_names)
        encoder = parts[0] if len(parts) == 1 else Chain(tuple(parts)) if parts else Identity()
        return in_precision(encoder, dtype)

    def features(self, coordinates: int) -> int:
        """How many numbers the trunk network gets for a point."""
        return coordinates + len(self.periods) + 2 * self.fourier

    def _parts(
        self, points: Float[np.ndarray, "points coordinates"], names: tuple[str, ...]
    ) -> list[AbstractEncoder]:
        parts: list[AbstractEncoder] = []
        if self.periods:
            parts.append(Periodic(self.all_periods(names)))
            points = np.asarray(parts[-1](jnp.asarray(points)))
        if self.rescale or self.fourier:
            low, high = points.min(axis=0), points.max(axis=0)
            half = np.where(high > low, (high - low) / 2, np.inf)
            parts.append(Standardise(jnp.asarray((low + high) / 2), jnp.asarray(half)))
        if self.fourier:
            draws = np.random.default_rng(0).uniform(-1, 1, (self.fourier, points.shape[1]))
            parts.append(FourierFeatures(jnp.asarray(np.pi * self.cycles * draws)))
        return parts

    def all_periods(self, names: tuple[str, ...]) -> tuple[float, ...]:
        """The period of every coordinate, 0 for those that do not repeat."""
        for name, period in self.periods.items():
            if name not in names or not 0 < period < np.inf:
                raise SettingError(
                    f"coordinates.periods: {name} = {period}; give a positive period for one of the coordinates "
                    f"{', '.join(names)}"
                )
        return tuple(self.periods.get(name, 0.0) for name in names)
