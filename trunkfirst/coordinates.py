"""What happens to an output point before the trunk sees it: scaling, periods, Fourier features."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .data.array_checks import evenly
from .data.operator_data import OperatorData
from .data.scattered_data import AnyData
from .encoders import AbstractEncoder, AnyArray, Chain, Identity, Standardise, in_precision
from .errors import SettingError
from .linear.low_rank import principal_rows
from .networks.grids import grid_order, is_grid
from .settings import Field, record

# Fewer values say little about a period. At the seam, second differences may be this much larger than elsewhere.
_FEWEST, _SEAM = 8, 1.5
# Modes with this share of the squares of the outputs oscillate if they have this many waves; frequencies to try.
_MODES_SHARE, _WAVES, _FREQUENCIES = 0.99, 4.0, 32
_MAX_ROWS = 500


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


# -- what is found in the outputs


def coordinate_candidates(given: Coordinates, data: OperatorData) -> dict[str, dict[str, Any]]:
    """Settings to try for a network trunk, by name: periods and waves on a grid, where none are given."""
    if not is_grid(data.points):
        return {}
    found: dict[str, dict[str, Any]] = {}
    if not given.periods and (periods := periods_on_grid(data)):
        found[f"periodic in {', '.join(periods)}"] = {"periods": periods}
    if not given.fourier and (waves := waves_on_grid(data)) >= _WAVES:
        found[f"{_FREQUENCIES} waves"] = {"fourier": _FREQUENCIES, "cycles": round(1.5 * waves, 1)}
    return found


def periods_on_grid(data: OperatorData) -> dict[str, float]:
    """Periods of evenly spaced coordinates where values and slopes at both ends match, in all samples.

    The last point may be the first one of the next period or the one before it.
    """
    axes, fields = _on_grid(data)
    found: dict[str, float] = {}
    for number, (name, x) in enumerate(zip(data.coordinate_names, axes, strict=True)):
        steps, values = np.diff(x), np.moveaxis(fields, number + 1, 0)
        if len(x) < _FEWEST or np.ptp(steps) > 1e-6 * steps[0]:
            continue
        if _is_cyclic(values[:-1], values[-1] - values[0]):
            found[name] = float(x[-1] - x[0])
        elif _is_cyclic(values):
            found[name] = float(x[-1] - x[0] + steps.mean())
    return found


def _is_cyclic(values: Float[np.ndarray, "n ..."], apart: np.ndarray | float = 0.0) -> bool:
    """Whether a sequence continues with its first value: its second differences there are like all others."""
    bends = np.abs(np.roll(values, -1, axis=0) - 2 * values + np.roll(values, 1, axis=0))
    inside = bends[1:-1].max()
    seam = max(bends[0].max(), bends[-1].max(), float(np.abs(apart).max()))
    return bool(1e-12 * np.abs(values).max() < inside and seam <= _SEAM * inside)


def waves_on_grid(data: OperatorData) -> float:
    """Waves across the box in the leading modes of the outputs, along the coordinate that has the most."""
    axes, fields = _on_grid(data)
    rows = np.moveaxis(fields, -1, 1).reshape(-1, len(data.points))
    sizes, modes, _ = principal_rows(rows[evenly(len(rows), _MAX_ROWS)], 1e-12)
    before = np.concatenate([[0.0], np.cumsum(sizes**2)[:-1]])
    leading = modes[before < _MODES_SHARE * np.sum(sizes**2)].reshape(-1, *map(len, axes))
    is_positive = leading > 0
    changes = [
        np.mean(np.sum(np.diff(is_positive, axis=axis + 1), axis=axis + 1), axis=tuple(range(1, len(axes))))
        for axis in range(len(axes))
    ]
    return float(np.max(changes)) / 2


def _on_grid(data: OperatorData) -> tuple[list[np.ndarray], Float[np.ndarray, "samples ..."]]:
    """The axes, and the outputs with an axis for each, then the channels."""
    axes, order = grid_order(data.points)
    outputs = data.outputs if data.is_multichannel else data.outputs[..., None]
    return axes, outputs[:, order].reshape(data.samples, *map(len, axes), -1)
