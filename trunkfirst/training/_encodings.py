"""How inputs are prepared for the branch: records that fit an encoder to training data."""

import abc
import dataclasses as dc
import functools as ft
import weakref
from collections.abc import Callable
from typing import TypeVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..data import AnyData, ScatteredData
from ..errors import DataError, UnknownNameError
from ..linear import principal_directions
from ..networks import (
    BASES,
    ELEMENTWISE,
    AbstractEncoder,
    Chain,
    Identity,
    Parallel,
    PrincipalModes,
    basis_coefficients,
    fit_elementwise,
    fit_predictive,
    fit_principal,
    fit_standardise,
    in_precision,
    principal_modes,
)

_Found = TypeVar("_Found")

# Below this share of the mean square a field is zero.
_ZERO = 1e-20


@dc.dataclass(frozen=True)
class AbstractEncoding(abc.ABC):
    """Learns an encoder from training samples."""

    @abc.abstractmethod
    def fit(self, data: AnyData) -> AbstractEncoder:
        """The encoder for these training samples."""

    def fit_in(self, data: AnyData, dtype: np.dtype) -> AbstractEncoder:
        """The same with its numbers in the precision of the networks."""
        return in_precision(self.fit(data), dtype)


@dc.dataclass(frozen=True)
class RawInputs(AbstractEncoding):
    """Inputs as they come, as in the paper."""

    def fit(self, data: AnyData) -> AbstractEncoder:
        del data
        return Identity()


@dc.dataclass(frozen=True)
class StandardisedInputs(AbstractEncoding):
    """Every sensor with mean 0 and deviation 1, after "log", "inverse" or "inverse-root" of positive ones."""

    function: str | None = None

    def fit(self, data: AnyData) -> AbstractEncoder:
        inputs = data.flat_inputs
        if self.function is None:
            return fit_standardise(inputs)
        first = fit_elementwise(inputs, self.function)
        return Chain((first, fit_standardise(np.asarray(first(jnp.asarray(inputs))))))


@dc.dataclass(frozen=True)
class PrincipalInputs(AbstractEncoding):
    """The first `count` principal coordinates of the inputs: how many decides how well it generalises."""

    count: int

    def fit(self, data: AnyData) -> AbstractEncoder:
        return fit_principal(_input_modes(data), self.count)


@dc.dataclass(frozen=True)
class PredictiveInputs(AbstractEncoding):
    """Linear predictions, from `count` principal coordinates, of what moves most in the outputs.

    As many as there are directions with at least a thousandth of the deviation of the first, at most three.
    """

    count: int

    def fit(self, data: AnyData) -> AbstractEncoder:
        if isinstance(data, ScatteredData):
            raise DataError("predictive coordinates need outputs at the same points for all samples")
        targets, weights = _moving_most(data)
        return fit_predictive(_input_modes(data), data.flat_inputs, targets, weights, self.count)


@dc.dataclass(frozen=True)
class BasisInputs(AbstractEncoding):
    """The first `count` coefficients in a "legendre", "chebyshev" or "fourier" basis on `interval`."""

    basis: str
    count: int
    interval: tuple[float, float] = (-1.0, 1.0)

    def fit(self, data: AnyData) -> AbstractEncoder:
        (name, function), *others = data.inputs.items()
        if others or function.sensors is None or function.sensor_weights is None:
            raise DataError(
                f"inputs[{name!r}]: basis coefficients need one input function with sensors and sensor_weights"
            )
        return basis_coefficients(
            self.basis, function.sensors, function.sensor_weights, self.count, interval=self.interval
        )


@dc.dataclass(frozen=True)
class PerInput(AbstractEncoding):
    """Every input function with an encoding of its own, by name."""

    encodings: tuple[tuple[str, AbstractEncoding], ...]

    def fit(self, data: AnyData) -> AbstractEncoder:
        named = dict(self.encodings)
        if set(named) != set(data.inputs):
            given, known = ", ".join(named), ", ".join(data.inputs)
            raise DataError(f"inputs: encoders are given for {given}, but the inputs are {known}")
        parts = [named[name].fit(dc.replace(data, inputs={name: f})) for name, f in data.inputs.items()]
        return Parallel(tuple(parts), tuple(f.values.shape[1] for f in data.inputs.values()))


def _once(find: Callable[[AnyData], _Found]) -> Callable[[AnyData], _Found]:
    """Remember what is found in a data set while the data set lives: candidates ask again and again."""
    known: weakref.WeakKeyDictionary[AnyData, _Found] = weakref.WeakKeyDictionary()

    @ft.wraps(find)
    def found(data: AnyData) -> _Found:
        if data not in known:
            known[data] = find(data)
        return known[data]

    return found


@_once
def _input_modes(data: AnyData) -> PrincipalModes:
    return principal_modes(data.flat_inputs)


@_once
def _moving_most(
    data: AnyData,
) -> tuple[Float[np.ndarray, "samples directions"], Float[np.ndarray, " samples"]]:
    """What moves most in the outputs, relative to their size, and the weights that say so."""
    weights = relative_weights(data)
    outputs = data.outputs.reshape(data.samples, -1)
    centred = outputs - np.average(outputs, axis=0, weights=weights)
    modes = principal_directions(centred * np.sqrt(weights)[:, None], tolerance=1e-3)[:3]
    return centred @ modes.T, weights


def encoded(
    encoder: AbstractEncoder, inputs: Float[np.ndarray, "samples sensors"], dtype: np.dtype | type = np.float64
) -> Float[Array, "samples features"]:
    """What the branch sees of these inputs, compiled as one."""
    return _encode(encoder, jnp.asarray(inputs, dtype))


@eqx.filter_jit
def _encode(encoder: AbstractEncoder, inputs: Array) -> Array:
    return encoder(inputs)


def relative_weights(data: AnyData) -> Float[np.ndarray, " samples"]:
    """Sample weights 1 / |u|^2 times those of the data, with mean 1: every sample counts by its relative error."""
    weights = channel_weights(data, True)
    assert weights is not None
    weights = weights.mean(axis=1)
    return weights / weights.mean()


def channel_weights(data: AnyData, is_relative: bool) -> Float[np.ndarray, "samples channels"] | None:
    """Weights of every sample and channel, for fields in units of the channel's mean square.

    An output map leaves the raw fields in these units, but for the channel weights asked for, which stay.
    """
    weights = unscaled_weights(data, mean_squares(data) if is_relative else None)
    return weights if weights is None or not is_relative else weights / weights.mean()


def mean_squares(data: AnyData) -> Float[np.ndarray, "..."]:
    """The mean square of the outputs, of each channel where there are several."""
    return np.asarray(np.nanmean(data.outputs**2, axis=(0, 1)))


def unscaled_weights(
    data: AnyData, usual: Float[np.ndarray, "..."] | None
) -> Float[np.ndarray, "samples channels"] | None:
    """The same before they are scaled to mean 1; relative if the `usual` mean squares are given."""
    if usual is None and data.sample_weights is None:
        return None
    weights = np.ones(data.samples) if data.sample_weights is None else data.sample_weights
    weights = np.repeat(weights[:, None], data.channels, axis=1)
    if usual is None:
        return weights
    squares = np.nanmean(data.outputs**2, axis=1).reshape(data.samples, -1)
    sizes = np.broadcast_to(usual, squares.shape)
    # A field of zeros has no relative error; it counts like one of the usual size.
    is_zero = squares <= _ZERO * sizes
    return weights * np.divide(sizes, squares, out=np.ones_like(squares), where=~is_zero)


_COUNTED = {"principal": PrincipalInputs, "predictive": PredictiveInputs}


def parse_encoding(text: str) -> AbstractEncoding:
    """The record for "none", "standardise", "log", "inverse", "inverse-root", "principal:3", "legendre:8" ...

    Several input functions may each have their own: "kappa=log,f=principal:8".
    """
    if "=" in text:
        pairs = [part.split("=", 1) for part in text.split(",")]
        return PerInput(tuple((pair[0].strip(), parse_encoding(pair[-1].strip())) for pair in pairs))
    name, _, count = text.partition(":")
    if name in _COUNTED and count.isdecimal():
        return _COUNTED[name](int(count))
    if name in BASES and count.isdecimal():
        return BasisInputs(name, int(count))
    if text in ELEMENTWISE:
        return StandardisedInputs(text)
    if text == "standardise":
        return StandardisedInputs()
    if text == "none":
        return RawInputs()
    counted = (f"{kind}:COUNT" for kind in (*_COUNTED, *BASES))
    raise UnknownNameError("encoder", text, ("none", "standardise", *ELEMENTWISE, *counted))
