"""How inputs are prepared for the branch: records that fit an encoder to training data."""

import abc
import dataclasses as dc

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..data import OperatorData
from ..errors import DataError, UnknownNameError
from ..linear import principal_directions
from ..networks import (
    BASES,
    ELEMENTWISE,
    AbstractEncoder,
    Chain,
    Identity,
    basis_coefficients,
    fit_elementwise,
    fit_predictive,
    fit_principal,
    fit_standardise,
)


@dc.dataclass(frozen=True)
class AbstractEncoding(abc.ABC):
    """Learns an encoder from training samples."""

    @abc.abstractmethod
    def fit(self, data: OperatorData) -> AbstractEncoder:
        """The encoder for these training samples."""

    def fit_in(self, data: OperatorData, dtype: np.dtype) -> AbstractEncoder:
        """The same with its numbers in the precision of the networks."""
        encoder = self.fit(data)
        return jax.tree.map(lambda leaf: leaf.astype(dtype) if eqx.is_inexact_array(leaf) else leaf, encoder)


@dc.dataclass(frozen=True)
class RawInputs(AbstractEncoding):
    """Inputs as they come, as in the paper."""

    def fit(self, data: OperatorData) -> AbstractEncoder:
        del data
        return Identity()


@dc.dataclass(frozen=True)
class StandardisedInputs(AbstractEncoding):
    """Every sensor with mean 0 and deviation 1, after "log", "inverse" or "inverse-root" of positive ones."""

    function: str | None = None

    def fit(self, data: OperatorData) -> AbstractEncoder:
        inputs = data.flat_inputs
        if self.function is None:
            return fit_standardise(inputs)
        first = fit_elementwise(inputs, self.function)
        return Chain((first, fit_standardise(np.asarray(first(jnp.asarray(inputs))))))


@dc.dataclass(frozen=True)
class PrincipalInputs(AbstractEncoding):
    """The first `count` principal coordinates of the inputs: how many decides how well it generalises."""

    count: int

    def fit(self, data: OperatorData) -> AbstractEncoder:
        return fit_principal(data.flat_inputs, self.count)


@dc.dataclass(frozen=True)
class PredictiveInputs(AbstractEncoding):
    """Linear predictions, from `count` principal coordinates, of what moves most in the outputs.

    As many as there are directions with at least a thousandth of the deviation of the first, at most three.
    """

    count: int

    def fit(self, data: OperatorData) -> AbstractEncoder:
        weights = relative_weights(data)
        centred = data.outputs - np.average(data.outputs, axis=0, weights=weights)
        modes = principal_directions(centred * np.sqrt(weights)[:, None], tolerance=1e-3)[:3]
        return fit_predictive(data.flat_inputs, centred @ modes.T, weights, self.count)


@dc.dataclass(frozen=True)
class BasisInputs(AbstractEncoding):
    """The first `count` coefficients in a "legendre", "chebyshev" or "fourier" basis on `interval`."""

    basis: str
    count: int
    interval: tuple[float, float] = (-1.0, 1.0)

    def fit(self, data: OperatorData) -> AbstractEncoder:
        (name, function), *others = data.inputs.items()
        if others or function.sensors is None or function.sensor_weights is None:
            raise DataError(
                f"inputs[{name!r}]: basis coefficients need one input function with sensors and sensor_weights"
            )
        return basis_coefficients(
            self.basis, function.sensors, function.sensor_weights, self.count, interval=self.interval
        )


def relative_weights(data: OperatorData) -> Float[np.ndarray, " samples"]:
    """Sample weights 1 / |u|^2 times those of the data, with mean 1: every sample counts by its relative error."""
    squares = np.mean(data.outputs**2, axis=1)
    weights = np.ones(data.samples) if data.sample_weights is None else data.sample_weights
    weights = weights / np.maximum(squares, np.finfo(float).tiny)
    return weights / weights.mean()


_COUNTED = {"principal": PrincipalInputs, "predictive": PredictiveInputs}


def parse_encoding(text: str) -> AbstractEncoding:
    """The record for "none", "standardise", "log", "inverse", "inverse-root", "principal:3", "legendre:8" ..."""
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
