"""What happens to an output point before the trunk sees it: scaling, periods, Fourier features."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .data.scattered_data import AnyData
from .encoders import AbstractEncoder, AnyArray, Chain, Identity, Standardise, in_precision
from .errors import SettingError
from .settings import Field, record


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


@record
class Coordinates:
    """How output points are encoded for the trunk."""

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
