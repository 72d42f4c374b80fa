"""Outputs: the map from what the networks give to the physical output."""

import math
from typing import TypeAlias

import equinox as eqx
import numpy as np
from jaxtyping import Bool, Float

from .data.array_checks import unit_of
from .data.scattered_data import AnyData
from .encoders import AnyArray, namespace
from .errors import DataError, SettingError
from .settings import Field, record

# A point this near to a fixed side, in units of the box, lies on it.
_NO_DISTANCE = 1e-12
# Squares of sums of squares of numbers up to this, as in L-BFGS, are finite; those of its inverse are not zero.
_SQUARABLE = 1e50

Raw: TypeAlias = Float[AnyArray, "samples points"] | Float[AnyArray, "samples points channels"]


class Boundary(eqx.Module):
    """A function d(y) that vanishes on chosen sides of a box, where the output is `value` whatever is learned.

    A side is a pair (coordinate, is_upper); d is the product of the distances to the chosen sides, each in
    units of the extent of the box.
    """

    lower: tuple[float, ...] = eqx.field(static=True)
    upper: tuple[float, ...] = eqx.field(static=True)
    sides: tuple[tuple[int, bool], ...] = eqx.field(static=True)
    value: float = eqx.field(static=True, default=0.0)

    def __call__(self, points: Float[AnyArray, "points coordinates"]) -> Float[AnyArray, " points"]:
        factor = namespace(points).ones(len(points), points.dtype)
        for coordinate, is_upper in self.sides:
            low, high = self.lower[coordinate], self.upper[coordinate]
            y = points[:, coordinate]
            factor = factor * ((high - y) if is_upper else (y - low)) / (high - low)
        return factor


class OutputMap(eqx.Module):
    """u = scale (value + d(y) raw) for every channel, its exponential where the output must be positive."""

    scale: Float[AnyArray, " channels"]
    boundary: Boundary | None = None
    is_positive: bool = eqx.field(static=True, default=False)

    def __call__(self, raw: Raw, points: Float[AnyArray, "points coordinates"]) -> Raw:
        """Physical outputs (samples, points), with several channels (samples, points, channels)."""
        more = (1,) * (raw.ndim - 2)
        if self.boundary is not None:
            raw = self.boundary.value + self.boundary(points).reshape(1, -1, *more) * raw
        scaled = raw * (self.scale.reshape(1, 1, -1) if more else self.scale.reshape(1, 1))
        return namespace(scaled).exp(scaled) if self.is_positive else scaled


@record
class Output:
    """What is known of the outputs: fixed values, positivity, weights of the channels.

    Channels are scaled to the same mean square first, so that equal `channel_weights` treat them equally.

    >>> import trunkfirst
    >>> trunkfirst.TwoStep(output=Output(fixed=("x-",), value=0.0)).output.fixed
    ('x-',)
    """

    fixed: tuple[str, ...] = Field(
        default=(), description='sides of the box of the points where the output is known, e.g. ["x-", "t-"]'
    )
    value: float = Field(default=0.0, description="the output on these sides")
    positive: bool = Field(default=False, description="learn the logarithm, so that every output is positive")
    channel_weights: tuple[float, ...] | None = Field(
        default=None, description="weight of each channel; all equal if left out"
    )

    def fit(self, data: AnyData) -> OutputMap | None:
        """The output map for these training samples; None where there is nothing to do."""
        _check_units(data)
        if not (self.fixed or self.positive or data.is_multichannel or self.channel_weights):
            return None
        check_positive(data, self.positive)
        scale = self._scale(data)
        boundary = _boundary(data, self.fixed, self._raw_value(data)) if self.fixed else None
        return OutputMap(scale, boundary, self.positive)

    def _scale(self, data: AnyData) -> Float[np.ndarray, " channels"]:
        weights = np.ones(data.channels) if self.channel_weights is None else np.asarray(self.channel_weights)
        if len(weights) != data.channels or not (weights > 0).all():
            raise SettingError(f"output.channel_weights: expected {data.channels} positive numbers")
        if not data.is_multichannel:
            return np.ones(1)
        values = np.log(data.outputs) if self.positive else data.outputs
        unit = unit_of(values, axis=(0, 1))
        sizes = unit * np.sqrt(np.nanmean((values / unit) ** 2, axis=(0, 1)))
        return np.where(sizes > 0, sizes, 1.0) / np.sqrt(weights / weights.mean())

    def _raw_value(self, data: AnyData) -> float:
        """The value on the fixed sides, before the exponential."""
        if self.positive and self.value <= 0:
            raise SettingError(
                f"output.value is {self.value} on the fixed sides; with output.positive it must be positive too"
            )
        value = math.log(self.value) if self.positive else self.value
        if value != 0 and data.is_multichannel:
            usual = 1 if self.positive else 0
            raise SettingError(f"output.value is {self.value}; with several channels only {usual} is possible")
        return value


def _check_units(data: AnyData) -> None:
    """Raise `DataError` for outputs that are all zero, or whose squares and theirs would overflow or be zero."""
    sizes = {name: float(np.nanmax(np.abs(values))) for name, values in data.outputs_by_channel().items()}
    if not any(sizes.values()):
        raise DataError("outputs: all values are zero; there is nothing to learn")
    for name, size in sizes.items():
        if size > 0 and not 1 / _SQUARABLE < size < _SQUARABLE:
            what = f"outputs: the largest magnitude of {name} is {size:.1e}"
            raise DataError(f"{what}, whose fourth power overflows; divide by {size:.0e}, which is another unit")


def raw_outputs(
    outputs: Float[np.ndarray, "..."], points: Float[np.ndarray, "... coordinates"], output: OutputMap | None
) -> tuple[Float[np.ndarray, "..."], Float[np.ndarray, "... points"]]:
    """What the networks must give for these outputs, and the factor d(y) by which it counts at each point.

    |d raw - (u - value)| weighted with w is |raw - (u - value) / d| weighted with w d^2: a hard boundary value
    changes nothing but data and weights. Where d = 0 the value does not matter, and stands as zero.
    """
    shape = points.shape[:-1]
    if output is None:
        return outputs, np.ones(shape)
    raw = (np.log(outputs) if output.is_positive else outputs) / np.asarray(output.scale)
    if output.boundary is None:
        return raw, np.ones(shape)
    factor = np.asarray(output.boundary(points.reshape(-1, points.shape[-1]))).reshape(shape)
    factor = np.where(factor > _NO_DISTANCE, factor, 0.0)
    divisor = np.where(factor > 0, factor, np.inf)
    divisor = divisor[..., None] if raw.ndim == 3 else divisor
    return (raw - output.boundary.value) / divisor, factor


def is_free(
    points: Float[np.ndarray, "points coordinates"], output: OutputMap | None
) -> Bool[np.ndarray, " points"]:
    """Where the output is not fixed beforehand."""
    if output is None or output.boundary is None:
        return np.ones(len(points), bool)
    return np.asarray(output.boundary(points)) > _NO_DISTANCE


def _boundary(data: AnyData, fixed: tuple[str, ...], value: float) -> Boundary:
    points = data.points.reshape(-1, data.points.shape[-1])
    lower, upper = np.nanmin(points, axis=0), np.nanmax(points, axis=0)
    sides: list[tuple[int, bool]] = []
    for text in fixed:
        name, end = text[:-1], text[-1:]
        if name not in data.coordinate_names or end not in "+-":
            known = ", ".join(f"{name}- {name}+" for name in data.coordinate_names)
            raise SettingError(f"output.fixed: {text!r} is not a side; the sides are {known}")
        sides.append((data.coordinate_names.index(name), end == "+"))
    return Boundary(tuple(map(float, lower)), tuple(map(float, upper)), tuple(sides), value)


def check_positive(data: AnyData, is_positive: bool) -> None:
    """Raise `DataError` where logarithms are learned and an output has none."""
    if is_positive and (data.outputs <= 0).any():
        place = np.unravel_index(int(np.nanargmin(data.outputs)), data.outputs.shape)
        raise DataError(
            f"outputs: output.positive learns the logarithm, but the value at sample {place[0]}, point {place[1]} "
            f"is {data.outputs[place]}; leave output.positive out"
        )
