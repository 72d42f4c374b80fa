"""How output points are prepared for the trunk."""

import dataclasses as dc

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ..data import AnyData
from ..errors import SettingError
from ..networks import AbstractEncoder, Chain, FourierFeatures, Identity, Periodic, Standardise, in_precision


@dc.dataclass(frozen=True)
class CoordinateSettings:
    """What happens to a point before the trunk network.

    `is_rescaled` maps the box of the points to [-1, 1]. `periods` gives coordinates that repeat, by name: the
    trunk is then periodic in them, exactly. `fourier` adds cosines and sines of so many random frequencies, of
    up to `cycles` waves across the box.
    """

    is_rescaled: bool = False
    periods: tuple[tuple[str, float], ...] = ()
    fourier: int = 0
    cycles: float = 3.0

    def fit_in(self, data: AnyData, dtype: np.dtype) -> AbstractEncoder:
        """The encoder for these points, its numbers in the precision of the networks."""
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
            parts.append(Periodic(_all_periods(self.periods, names)))
            points = np.asarray(parts[-1](jnp.asarray(points)))
        if self.is_rescaled or self.fourier:
            low, high = points.min(axis=0), points.max(axis=0)
            half = np.where(high > low, (high - low) / 2, np.inf)
            parts.append(Standardise(jnp.asarray((low + high) / 2), jnp.asarray(half)))
        if self.fourier:
            draws = np.random.default_rng(0).uniform(-1, 1, (self.fourier, points.shape[1]))
            parts.append(FourierFeatures(jnp.asarray(np.pi * self.cycles * draws)))
        return parts


def _all_periods(periods: tuple[tuple[str, float], ...], names: tuple[str, ...]) -> tuple[float, ...]:
    for name, period in periods:
        if name not in names or not 0 < period < np.inf:
            raise SettingError(
                f"trunk.periods: {name} = {period}; give a positive period for one of the coordinates "
                f"{', '.join(names)}"
            )
    return tuple(dict(periods).get(name, 0.0) for name in names)
