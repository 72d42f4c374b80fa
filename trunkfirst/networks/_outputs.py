"""From what trunk and branch give to the physical output: scale a channel, hard boundary values, positivity."""

from typing import TypeAlias

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

Raw: TypeAlias = Float[Array, "samples points"] | Float[Array, "samples points channels"]


class Boundary(eqx.Module):
    """A function d(y) that vanishes on chosen sides of a box, where the output is `value` whatever is learned.

    A side is a pair (coordinate, is_upper); d is the product of the distances to the chosen sides, each in
    units of the extent of the box.
    """

    lower: tuple[float, ...] = eqx.field(static=True)
    upper: tuple[float, ...] = eqx.field(static=True)
    sides: tuple[tuple[int, bool], ...] = eqx.field(static=True)
    value: float = eqx.field(static=True, default=0.0)

    def __call__(self, points: Float[Array, "points coordinates"]) -> Float[Array, " points"]:
        factor = jnp.ones(len(points), points.dtype)
        for coordinate, is_upper in self.sides:
            low, high = self.lower[coordinate], self.upper[coordinate]
            y = points[:, coordinate]
            factor = factor * ((high - y) if is_upper else (y - low)) / (high - low)
        return factor


class OutputMap(eqx.Module):
    """u = scale (value + d(y) raw) for every channel, its exponential where the output must be positive."""

    scale: Float[Array, " channels"]
    boundary: Boundary | None = None
    is_positive: bool = eqx.field(static=True, default=False)

    def __call__(self, raw: Raw, points: Float[Array, "points coordinates"]) -> Raw:
        """Physical outputs (samples, points), with several channels (samples, points, channels)."""
        more = (1,) * (raw.ndim - 2)
        if self.boundary is not None:
            raw = self.boundary.value + self.boundary(points).reshape(1, -1, *more) * raw
        scaled = raw * (self.scale.reshape(1, 1, -1) if more else self.scale.reshape(1, 1))
        return jnp.exp(scaled) if self.is_positive else scaled
