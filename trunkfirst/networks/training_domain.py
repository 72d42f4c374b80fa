"""What an operator remembers of its training data, and checks of the arrays that it is given."""

import dataclasses as dc
import functools as ft
import hashlib
from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
from jaxtyping import Bool

from ..errors import DataError


@dc.dataclass(frozen=True, eq=False)
class TrainingDomain:
    """Points, names, units and ranges of the training data; every field is optional.

    `points` are the output points (points, coordinates), `sensors` the sensor positions (sensors, coordinates) of
    every input function, `input_sizes` its numbers of sensors. `input_ranges` (2, sensors) and `point_ranges`
    (2, coordinates) hold minimum and maximum. `units` are by name. `extras` are named arrays for prediction
    intervals and for the detection of outliers.

    Domains of equal content are equal, so that an operator that has one can be an argument of `jax.jit`.
    """

    points: np.ndarray | None = None
    coordinate_names: tuple[str, ...] = ()
    channel_names: tuple[str, ...] = ()
    units: Mapping[str, str] = dc.field(default_factory=dict[str, str])
    sensors: tuple[np.ndarray, ...] = ()
    input_sizes: tuple[int, ...] = ()
    input_ranges: np.ndarray | None = None
    point_ranges: np.ndarray | None = None
    extras: Mapping[str, np.ndarray] = dc.field(default_factory=dict[str, np.ndarray])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TrainingDomain) and self._content == other._content

    def __hash__(self) -> int:
        return hash(self._content)

    @ft.cached_property
    def _content(self) -> Hashable:
        return tuple(_content_of(getattr(self, field.name)) for field in dc.fields(self))

    def check(self, *, coordinates: int, sensors: int | None, channels: int, inputs: int) -> None:
        """Raise a `DataError` unless all sizes are those of the operator."""
        arrays = {
            "points": (self.points, None, coordinates),
            "point_ranges": (self.point_ranges, 2, coordinates),
            "input_ranges": (self.input_ranges, 2, sensors),
        }
        for name, (array, rows, columns) in arrays.items():
            if array is None:
                continue
            if array.ndim != 2 or array.shape != (rows or len(array), columns or array.shape[1]):
                raise DataError(f"domain.{name}: expected {columns} columns, got shape {array.shape}")
        counts = {
            "coordinate_names": (self.coordinate_names, coordinates),
            "channel_names": (self.channel_names, channels),
            "input_sizes": (self.input_sizes, inputs),
            "sensors": (self.sensors, inputs),
        }
        for name, (entries, count) in counts.items():
            if len(entries) not in (0, count):
                raise DataError(f"domain.{name}: expected {count} entries, got {len(entries)}")

    def is_outside(self, points: np.ndarray) -> Bool[np.ndarray, " points"]:
        """Whether each of the points (points, coordinates) lies outside the ranges of the training points."""
        ranges = self.point_ranges
        if ranges is None and self.points is not None:
            ranges = np.stack([self.points.min(axis=0), self.points.max(axis=0)])
        if ranges is None:
            return np.zeros(len(points), bool)
        margin = 1e-9 * (ranges[1] - ranges[0])
        return ((points < ranges[0] - margin) | (points > ranges[1] + margin)).any(axis=1)


def _content_of(value: Any) -> Hashable:
    if isinstance(value, np.ndarray):
        return value.shape, value.dtype.str, hashlib.sha256(np.ascontiguousarray(value)).digest()
    if isinstance(value, Mapping):
        return tuple((name, _content_of(value[name])) for name in sorted(value))
    return tuple(map(_content_of, value)) if isinstance(value, tuple) else value


def checked_rows(name: str, value: Any, axes: tuple[str, str], columns: int | None) -> np.ndarray:
    """`value` as a matrix of finite real numbers with the right number of columns, or a `DataError`."""
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise DataError(f"{name}: cannot be made an array: {error}") from error
    if array.dtype.kind in "OSUMmc":
        raise DataError(f"{name}: expected real numbers, got values of type {array.dtype}")
    if array.ndim != 2:
        hint = "; one row is x[None], one column x[:, None]" if array.ndim == 1 else ""
        raise DataError(f"{name}: expected 2 axes ({', '.join(axes)}), got shape {array.shape}{hint}")
    if columns is not None and array.shape[1] != columns:
        raise DataError(f"{name}: expected {columns} {axes[1]} on axis 1, as in training, got {array.shape[1]}")
    if len(array) == 0:
        raise DataError(f"{name}: there are no {axes[0]}, axis 0 is empty")
    is_wrong = ~np.isfinite(array)
    if is_wrong.any():
        row, column = np.argwhere(is_wrong)[0]
        count = f"{is_wrong.sum():,} of {array.size:,} values"
        raise DataError(f"{name}[{row}, {column}] is {array[row, column]}; {count} are not finite")
    return array
