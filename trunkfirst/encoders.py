"""Encoders: modules that map an input, or an output point, to the features that a network sees.

The records in inputs.py say which one to use; their `fit` returns it.
"""

import itertools
from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .device_arrays import AnyArray as AnyArray, to_device
from .errors import UnknownNameError

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


def to_host(module: _Module) -> _Module:
    """The same module with NumPy arrays in place of JAX arrays: what it computes compiles nothing."""
    return jax.tree.map(lambda leaf: np.asarray(leaf) if isinstance(leaf, jax.Array) else leaf, module)


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


# -- of output points


class Periodic(AbstractEncoder):
    """cos and sin of 2 pi x / period for the coordinates that have one, the others as they are.

    `periods` has one entry a coordinate; 0 stands for a coordinate that does not repeat.
    """

    periods: tuple[float, ...] = eqx.field(static=True)

    @property
    def sensors(self) -> int | None:
        return len(self.periods)

    def __call__(self, inputs: Float[AnyArray, "samples sensors"]) -> Float[AnyArray, "samples features"]:
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

    def __call__(self, inputs: Float[AnyArray, "samples sensors"]) -> Float[AnyArray, "samples features"]:
        angles = inputs @ jax.lax.stop_gradient(self.frequencies).T
        return jnp.concatenate([inputs, jnp.cos(angles), jnp.sin(angles)], axis=1)
