"""What happens to an input before the branch sees it. Encoders are part of the operator and fitted on training
inputs alone.
"""

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..errors import DataError, UnknownNameError


class AbstractEncoder(eqx.Module):
    """Maps raw inputs (samples, sensors) to features (samples, features)."""

    def __call__(self, inputs: Float[Array, "samples sensors"]) -> Float[Array, "samples features"]:
        raise NotImplementedError


class Identity(AbstractEncoder):
    """Inputs as they come: values at points, as in the paper."""

    def __call__(self, inputs: Float[Array, "samples sensors"]) -> Float[Array, "samples features"]:
        return inputs


class Standardise(AbstractEncoder):
    """(x - mean) / deviation, sensor by sensor; a constant sensor passes as zero."""

    mean: Float[Array, " sensors"]
    deviation: Float[Array, " sensors"]

    def __call__(self, inputs: Float[Array, "samples sensors"]) -> Float[Array, "samples features"]:
        return (inputs - self.mean[None]) / self.deviation[None]


class Coefficients(AbstractEncoder):
    """Generalised Fourier coefficients <f, psi_j> of an input function, by quadrature at its sensors."""

    matrix: Float[Array, "sensors features"]

    def __call__(self, inputs: Float[Array, "samples sensors"]) -> Float[Array, "samples features"]:
        return inputs @ self.matrix


def fit_standardise(inputs: Float[np.ndarray, "samples sensors"]) -> Standardise:
    """Mean and deviation of the training inputs (two passes: no cancellation)."""
    mean = inputs.mean(axis=0)
    deviation = inputs.std(axis=0)
    # A constant sensor has a deviation of rounding size; dividing by it would blow noise up.
    is_constant = deviation <= 1e-12 * np.maximum(np.abs(mean), np.finfo(inputs.dtype).tiny)
    return Standardise(jnp.asarray(mean), jnp.asarray(np.where(is_constant, np.inf, deviation)))


def _legendre(x: np.ndarray, count: int) -> np.ndarray:
    return np.polynomial.legendre.legvander(x, count - 1) * np.sqrt(np.arange(count) + 0.5)


def _chebyshev(x: np.ndarray, count: int) -> np.ndarray:
    values = np.polynomial.chebyshev.chebvander(x, count - 1) * np.sqrt(2 / np.pi)
    values[:, 0] /= np.sqrt(2)
    return values


def _fourier(x: np.ndarray, count: int) -> np.ndarray:
    orders = (np.arange(count) + 1) // 2
    angles = np.pi * orders * x[:, None]
    values = np.where(np.arange(count) % 2 == 1, np.sin(angles), np.cos(angles))
    values[:, 0] = np.sqrt(0.5)
    return values


# Orthonormal on [-1, 1]; Chebyshev's inner product has the weight 1 / sqrt(1 - x^2).
BASES: dict[str, Callable[[np.ndarray, int], np.ndarray]] = {
    "legendre": _legendre,
    "chebyshev": _chebyshev,
    "fourier": _fourier,
}


def basis_coefficients(
    basis: str,
    sensors: Float[np.ndarray, "sensors coordinates"],
    sensor_weights: Float[np.ndarray, " sensors"],
    count: int,
    *,
    interval: tuple[float, float] = (-1.0, 1.0),
) -> Coefficients:
    """An encoder to the first `count` coefficients of a function on `interval` in an orthonormal basis.

    The interval is mapped to [-1, 1]. `sensor_weights` are the quadrature weights of the basis' own inner
    product at the sensors: Gauss-Legendre weights for Legendre, pi / count at Gauss-Chebyshev points, equal
    weights on a periodic grid for Fourier.
    """
    if basis not in BASES:
        raise UnknownNameError("basis", basis, tuple(BASES))
    if sensors.shape[1] != 1:
        raise DataError(f"sensors: a {basis} basis needs one coordinate, got {sensors.shape[1]}")
    low, high = interval
    x = (2 * sensors[:, 0] - low - high) / (high - low)
    return Coefficients(jnp.asarray(BASES[basis](x, count) * sensor_weights[:, None] * 2 / (high - low)))
