"""What happens to an input before the branch sees it. Encoders are part of the operator and fitted on training
inputs alone.
"""

import dataclasses as dc
import itertools
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..errors import DataError, UnknownNameError
from ..linear import one_blas_thread

ELEMENTWISE: dict[str, Callable[[Array], Array]] = {
    "log": jnp.log,
    "inverse": jnp.reciprocal,
    "inverse-root": lambda x: 1 / jnp.sqrt(x),
}


class AbstractEncoder(eqx.Module):
    """Maps raw inputs (samples, sensors) to features (samples, features)."""

    @property
    def sensors(self) -> int | None:
        """How many numbers an input has; None if any number will do."""
        return None

    def __call__(self, inputs: Float[Array, "samples sensors"]) -> Float[Array, "samples features"]:
        raise NotImplementedError


def in_precision(encoder: AbstractEncoder, dtype: np.dtype) -> AbstractEncoder:
    """The same encoder with its numbers in the precision `dtype`."""
    return jax.tree.map(lambda leaf: leaf.astype(dtype) if eqx.is_inexact_array(leaf) else leaf, encoder)


class Identity(AbstractEncoder):
    """Inputs as they come: values at points, as in the paper."""

    def __call__(self, inputs: Float[Array, "samples sensors"]) -> Float[Array, "samples features"]:
        return inputs


class Standardise(AbstractEncoder):
    """(x - mean) / deviation, sensor by sensor; a constant sensor passes as zero."""

    mean: Float[Array, " sensors"]
    deviation: Float[Array, " sensors"]

    @property
    def sensors(self) -> int | None:
        return len(self.mean)

    def __call__(self, inputs: Float[Array, "samples sensors"]) -> Float[Array, "samples features"]:
        return (inputs - self.mean[None]) / self.deviation[None]


class Elementwise(AbstractEncoder):
    """log x, 1/x or x^(-1/2) of the sensors that were positive in training; the others pass as they are."""

    is_positive: Bool[Array, " sensors"]
    function: str = eqx.field(static=True)

    def __check_init__(self) -> None:
        if self.function not in ELEMENTWISE:
            raise UnknownNameError("function", self.function, tuple(ELEMENTWISE))

    @property
    def sensors(self) -> int | None:
        return len(self.is_positive)

    def __call__(self, inputs: Float[Array, "samples sensors"]) -> Float[Array, "samples features"]:
        # Where the function is not used its argument is 1, so that no gradient becomes NaN.
        arguments = jnp.where(self.is_positive[None], inputs, 1.0)
        return jnp.where(self.is_positive[None], ELEMENTWISE[self.function](arguments), inputs)


class Coordinates(AbstractEncoder):
    """(x - centre) M: principal or predictive coordinates."""

    centre: Float[Array, " sensors"]
    matrix: Float[Array, "sensors features"]

    @property
    def sensors(self) -> int | None:
        return len(self.centre)

    def __call__(self, inputs: Float[Array, "samples sensors"]) -> Float[Array, "samples features"]:
        return (inputs - self.centre[None]) @ self.matrix


class Chain(AbstractEncoder):
    """Several encoders, one after the other."""

    parts: tuple[AbstractEncoder, ...]

    @property
    def sensors(self) -> int | None:
        # The first that is not content with any number says.
        return next((part.sensors for part in self.parts if part.sensors is not None), None)

    def __call__(self, inputs: Float[Array, "samples sensors"]) -> Float[Array, "samples features"]:
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

    def __call__(self, inputs: Float[Array, "samples sensors"]) -> Float[Array, "samples features"]:
        return jnp.concatenate(self.split(inputs), axis=1)

    def split(self, inputs: Float[Array, "samples sensors"]) -> list[Array]:
        """The features of every input function on its own."""
        ends = list(itertools.accumulate(self.sizes))
        columns = jnp.split(inputs, ends[:-1], axis=1)
        return [part(x) for part, x in zip(self.parts, columns, strict=True)]


class Periodic(AbstractEncoder):
    """cos and sin of 2 pi x / period for the coordinates that have one, the others as they are.

    `periods` has one entry a coordinate; 0 stands for a coordinate that does not repeat.
    """

    periods: tuple[float, ...] = eqx.field(static=True)

    @property
    def sensors(self) -> int | None:
        return len(self.periods)

    def __call__(self, inputs: Float[Array, "samples sensors"]) -> Float[Array, "samples features"]:
        columns: list[Array] = []
        for x, period in zip(inputs.T, self.periods, strict=True):
            angle = 2 * jnp.pi * x / (period or 1.0)
            columns += [jnp.cos(angle), jnp.sin(angle)] if period else [x]
        return jnp.stack(columns, axis=1)


class FourierFeatures(AbstractEncoder):
    """(x, cos(F x), sin(F x)) with fixed frequencies F (features, coordinates): for what oscillates quickly."""

    frequencies: Float[Array, "features coordinates"]

    @property
    def sensors(self) -> int | None:
        return self.frequencies.shape[1]

    def __call__(self, inputs: Float[Array, "samples sensors"]) -> Float[Array, "samples features"]:
        angles = inputs @ jax.lax.stop_gradient(self.frequencies).T
        return jnp.concatenate([inputs, jnp.cos(angles), jnp.sin(angles)], axis=1)


class Coefficients(AbstractEncoder):
    """Generalised Fourier coefficients <f, psi_j> of an input function, by quadrature at its sensors."""

    matrix: Float[Array, "sensors features"]

    @property
    def sensors(self) -> int | None:
        return len(self.matrix)

    def __call__(self, inputs: Float[Array, "samples sensors"]) -> Float[Array, "samples features"]:
        return inputs @ self.matrix


def fit_standardise(inputs: Float[np.ndarray, "samples sensors"]) -> Standardise:
    """Mean and deviation of the training inputs (two passes: no cancellation)."""
    mean = inputs.mean(axis=0)
    deviation = inputs.std(axis=0)
    # A constant sensor has a deviation of rounding size; dividing by it would blow noise up.
    is_constant = deviation <= 16 * np.finfo(inputs.dtype).eps * np.abs(mean)
    return Standardise(jnp.asarray(mean), jnp.asarray(np.where(is_constant, np.inf, deviation)))


def fit_elementwise(inputs: Float[np.ndarray, "samples sensors"], function: str) -> Elementwise:
    """Use `function` on the sensors whose training values are all positive."""
    return Elementwise(jnp.asarray((inputs > 0).all(axis=0)), function)


@dc.dataclass(frozen=True, eq=False)
class PrincipalModes:
    """The directions in which inputs vary about their centre, widest first, and how widely."""

    centre: Float[np.ndarray, " sensors"]
    modes: Float[np.ndarray, "rank sensors"]
    sizes: Float[np.ndarray, " rank"]
    samples: int


def principal_modes(inputs: Float[np.ndarray, "samples sensors"]) -> PrincipalModes:
    """All of them but those at rounding level, which are noise."""
    centre = inputs.mean(axis=0)
    with one_blas_thread():
        _, sizes, modes = np.linalg.svd(inputs - centre, full_matrices=False)
    rank = max(1, int((sizes > 1e-13 * sizes[0]).sum()))
    return PrincipalModes(centre, modes[:rank], sizes[:rank], len(inputs))


def fit_principal(found: PrincipalModes, count: int) -> Coordinates:
    """The first `count` principal coordinates, all divided by the deviation of the first.

    One common scale keeps what the coordinates mean: a small one stays small.
    """
    scale = np.sqrt(found.samples) / found.sizes[0]
    return Coordinates(jnp.asarray(found.centre), jnp.asarray(found.modes[:count].T * scale))


def fit_predictive(
    found: PrincipalModes,
    inputs: Float[np.ndarray, "samples sensors"],
    targets: Float[np.ndarray, "samples directions"],
    weights: Float[np.ndarray, " samples"],
    count: int,
) -> Coordinates:
    """The best linear predictions of the targets from `count` principal coordinates, as new coordinates.

    Where a linear prediction is good, what is left for the branch to learn is nearly straight.
    """
    modes, sizes = found.modes[:count], found.sizes[:count]
    roots = np.sqrt(weights / weights.mean())[:, None]
    with one_blas_thread():
        scores = np.hstack([np.ones_like(roots), (inputs - found.centre) @ modes.T / sizes])
        slopes = np.linalg.lstsq(scores * roots, targets * roots, rcond=None)[0][1:]
    predicted = scores[:, 1:] @ slopes
    matrix = (modes.T / sizes) @ slopes / predicted.std(axis=0)
    return Coordinates(jnp.asarray(found.centre), jnp.asarray(matrix))


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
    # Chebyshev's weights pi / count belong to [-1, 1] already; the others integrate over the interval.
    stretch = 1.0 if basis == "chebyshev" else 2 / (high - low)
    return Coefficients(jnp.asarray(BASES[basis](x, count) * sensor_weights[:, None] * stretch))
