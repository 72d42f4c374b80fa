"""What an operator remembers of its training data, and checks of what it is given."""

import dataclasses as dc
import functools as ft
import hashlib
from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Real
from scipy.spatial import KDTree

from ..data.array_checks import checked_rows, real_array
from ..data.gridded import combinations
from ..data.named_arrays import NewInputs
from ..data.operator_data import columns_of, default_coordinate_names, values_of
from ..errors import DataError, without_controls
from ..files.xarray_files import field_dataset
from ..intervals import Intervals, Novelty, intervals_from, novelty_from
from .grids import grid_axes, is_grid
from .simplices import Elements, covers

# The margin of scattered points is measured at this many of them.
_MOST_NEIGHBOURS = 5_000
# Coordinates that differ by less, relative to their size, are the same: points may have been in single precision.
_ROUNDING = 1e-6

TO_EXTRAPOLATE = "to predict there all the same, without intervals"


@dc.dataclass(frozen=True, eq=False)
class TrainingDomain:
    """Points, names, units and ranges of the training data; every field is optional.

    `points` are the output points (points, coordinates), `triangles` (triangles, 3) the elements between them,
    `sensors` the sensor positions (sensors, coordinates) of every input function, `input_sizes` its numbers of
    sensors. `input_ranges` (2, sensors) and `point_ranges` (2, coordinates) hold minimum and maximum. `units` are
    by name. `extras` are named arrays for prediction intervals and for the detection of outliers.

    The domain is the union of the triangles, or the box of the points where none are known, with a margin of one
    cell: the spacing of a grid, the longest edge at the nearest corner of a triangle, elsewhere the median
    distance of a point to its nearest neighbour.

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
    triangles: np.ndarray | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TrainingDomain) and self._content == other._content

    def __hash__(self) -> int:
        return hash(self._content)

    @ft.cached_property
    def _content(self) -> Hashable:
        return tuple(_content_of(getattr(self, field.name)) for field in dc.fields(self))

    def check(self, coordinates: int, sensors: int | None, channels: int, inputs: int) -> None:
        """Raise a `DataError` unless all sizes are those of the operator."""
        arrays = {
            "points": (self.points, None, coordinates),
            "point_ranges": (self.point_ranges, 2, coordinates),
            "input_ranges": (self.input_ranges, 2, sensors),
            "triangles": (self.triangles, None, None),
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
        self._check_extras(coordinates, sensors)

    def _check_extras(self, coordinates: int, sensors: int | None) -> None:
        known, novelty, inputs = self.intervals, self.novelty, self.extras.get("inputs")
        if not (known is None or (known.is_consistent and known.points.shape[1] == coordinates)):
            raise DataError(
                "domain.extras: the arrays of the intervals do not fit together, or have values that are too large"
            )
        if not (novelty is None or (novelty.is_consistent and sensors in (None, len(novelty.centre)))):
            raise DataError("domain.extras: the sizes of the arrays for outliers do not fit together")
        if not (inputs is None or (inputs.ndim == 2 and sensors in (None, inputs.shape[1]))):
            raise DataError(f"domain.extras: inputs of shape {inputs.shape} for {sensors} sensors")

    @ft.cached_property
    def intervals(self) -> Intervals | None:
        """The prediction intervals, if there are any."""
        return intervals_from(dict(self.extras))

    @ft.cached_property
    def novelty(self) -> Novelty | None:
        """What outliers are recognised by, if it is known."""
        return novelty_from(dict(self.extras))

    @ft.cached_property
    def training_inputs(self) -> Float[np.ndarray, "rows sensors"] | None:
        """Some training inputs as they were or, of functions, from their principal coordinates, if known."""
        if "inputs" in self.extras or self.novelty is None:
            return self.extras.get("inputs")
        known = self.novelty
        return known.centre + known.seen @ known.inverse[: known.seen.shape[1]]

    def is_outlier(self, inputs: Real[np.ndarray, "samples sensors"]) -> Bool[np.ndarray, " samples"]:
        """Whether each input is unlike those of training; False where that is not known."""
        return np.zeros(len(inputs), bool) if self.novelty is None else self.novelty.is_outlier(inputs)

    def is_outside(
        self, points: Real[np.ndarray, "points coordinates"], periods: Sequence[float] = ()
    ) -> Bool[np.ndarray, " points"]:
        """Whether each of the points lies outside the domain and its margin.

        `periods` has an entry for each coordinate, 0 for one that does not repeat; a point may lie in any period.
        """
        if (box := self._box) is None:
            return np.zeros(len(points), bool)
        places = _in_one_period(points, box, periods)
        is_out = ((places < box[0]) | (places > box[1])).any(axis=1)
        if is_out.any():
            low, high = box + np.stack([-self.margin, self.margin])
            is_out[is_out] = ((places[is_out] < low) | (places[is_out] > high)).any(axis=1)
        if (elements := self._elements) is not None and not is_out.all():
            is_out[~is_out] = ~elements.reaches(places[~is_out], _ROUNDING)
        return is_out

    def is_far(self, inputs: Real[np.ndarray, "samples sensors"]) -> Bool[np.ndarray, " samples"]:
        """Whether an input leaves the range of training at a sensor by more than that range.

        At a sensor that never changed, by more than the widest range of the others.
        """
        if self.input_ranges is None:
            return np.zeros(len(inputs), bool)
        low, high = self.input_ranges.astype(float)
        with np.errstate(over="ignore"):
            width = np.where(high > low, high - low, (high - low).max())
            return ((inputs < low - width) | (inputs > high + width)).any(axis=1)

    def refuse(
        self,
        points: Real[np.ndarray, "points coordinates"],
        is_outside: Bool[np.ndarray, " points"],
        advice: str = f"{TO_EXTRAPOLATE}, pass extrapolate=True (--extrapolate on the command line)",
    ) -> None:
        """Raise a `DataError` that names count, first point and domain if a point is outside."""
        if not is_outside.any():
            return
        first = int(np.argmax(is_outside))
        place = ", ".join(f"{x:.6g}" for x in points[first])
        raise DataError(
            f"points: {is_outside.sum():,} of {len(points):,} lie outside the training domain; the first is "
            f"points[{first}] = ({place}); the domain is {self.in_words()}; {advice}"
        )

    def dataset(
        self,
        fields: Mapping[str, np.ndarray],
        points: np.ndarray,
        inputs: NewInputs,
        *,
        is_outlier: Bool[np.ndarray, " samples"] | None = None,
        is_extrapolated: Bool[np.ndarray, " points"],
    ) -> Any:
        """An xarray Dataset of fields (samples, points) or (samples, points, channels) at `points`.

        Its variables are the channels, each followed by a name in `fields`, as "" or "_upper"; axes and
        coordinates of the samples are those of the inputs. Marks of points are in it if one is extrapolated.
        """
        endings = {f"{name}{ending}": unit for name, unit in self.units.items() for ending in fields}
        found = field_dataset(
            self.by_channel(fields),
            points,
            coordinate_names=self.coordinate_names or default_coordinate_names(points.shape[1]),
            units={**self.units, **endings},
            sample_axis=inputs.sample_axis,
            sample_coordinates=inputs.sample_coordinates,
        )
        _, *axes = next(iter(found.values())).dims
        marks: dict[str, Any] = {} if is_outlier is None else {"is_outlier": (inputs.sample_axis, is_outlier)}
        if is_extrapolated.any():
            marks["is_extrapolated"] = (axes, is_extrapolated.reshape([found.sizes[axis] for axis in axes]))
        return found.assign(marks)

    def by_channel(self, fields: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Fields (samples, points) by the names of the channels, each followed by its name in `fields`."""
        channels, found = self.channel_names or ("output",), dict[str, np.ndarray]()
        for ending, values in fields.items():
            columns = values.reshape(*values.shape[:2], -1)
            names = channels if len(channels) == columns.shape[2] else range(columns.shape[2])
            found |= {f"{name}{ending}": columns[..., number] for number, name in enumerate(names)}
        return found

    def with_unit(self, name: str) -> str:
        """A name with its unit, if it has one."""
        return f"{name} [{self.units[name]}]" if name in self.units else name

    @property
    def names_with_units(self) -> tuple[str, ...]:
        """The names of the coordinates with their units."""
        return tuple(map(self.with_unit, self.coordinate_names))

    def in_words(self) -> str:
        """The domain as part of a sentence."""
        if (box := self._box) is None:
            return "not known"
        names = self.coordinate_names or tuple(f"coordinate {i}" for i in range(box.shape[1]))
        ranges = ", ".join(f"{name} from {a:.6g} to {b:.6g}" for name, a, b in zip(names, *box, strict=True))
        if self._elements is not None:
            assert self.triangles is not None
            return f"{len(self.triangles):,} triangles ({ranges}) with a margin of one cell"
        return f"{ranges} with a margin of one cell ({', '.join(f'{width:.3g}' for width in self.margin)})"

    @ft.cached_property
    def margin(self) -> Float[np.ndarray, " coordinates"]:
        """The width of a cell along every coordinate, for the box."""
        box, points = self._box, self.points
        assert box is not None
        rounding = _ROUNDING * np.maximum(np.abs(box).max(axis=0), np.ptp(box, axis=0))
        if points is None or len(points) < 2:
            return rounding
        if is_grid(points):
            widths = [np.median(np.diff(axis)) if len(axis) > 1 else 0.0 for axis in grid_axes(points)]
            return np.maximum(widths, rounding)
        size = np.where(np.ptp(points, axis=0) > 0, np.ptp(points, axis=0), 1.0)
        scaled = points / size
        some = scaled[:: max(1, len(scaled) // _MOST_NEIGHBOURS)]
        distances = np.asarray(KDTree(scaled).query(some, k=2)[0])[:, 1]
        return np.maximum(np.median(distances) * size, rounding)

    def box_with_margin(self, periods: Sequence[float] = ()) -> Float[np.ndarray, "2 coordinates"] | None:
        """Lower and upper ends, infinite along periodic coordinates; None if they are not known."""
        if (box := self._box) is None:
            return None
        margin = np.where(np.asarray(periods) > 0, np.inf, self.margin) if any(periods) else self.margin
        return box + np.stack([-margin, margin])

    @ft.cached_property
    def _box(self) -> Float[np.ndarray, "2 coordinates"] | None:
        if self.point_ranges is not None or self.points is None:
            return self.point_ranges
        return np.stack([self.points.min(axis=0), self.points.max(axis=0)])

    @ft.cached_property
    def _elements(self) -> Elements | None:
        """The triangles, if they join all points."""
        points, triangles = self.points, self.triangles
        if points is None or triangles is None or not covers(triangles, points, (0.0,) * points.shape[1]):
            return None
        return Elements(points, triangles)


UNKNOWN = TrainingDomain()
"""That of an operator which does not know its training data."""


def _in_one_period(points: np.ndarray, box: np.ndarray, periods: Sequence[float]) -> np.ndarray:
    """The points shifted by whole periods to the one around the middle of the box."""
    if not any(periods):
        return points
    period, middle = np.asarray(periods, float), box.mean(axis=0)
    turns = np.round((points - middle) / np.where(period > 0, period, 1.0))
    return points - np.where(period > 0, turns * period, 0.0)


def _content_of(value: Any) -> Hashable:
    if isinstance(value, np.ndarray):
        return value.shape, value.dtype.str, hashlib.sha256(value.tobytes()).digest()
    if isinstance(value, Mapping):
        return tuple((name, _content_of(value[name])) for name in sorted(value))
    return tuple(map(_content_of, value)) if isinstance(value, tuple) else value


def number_names(names: tuple[str, ...], sizes: tuple[int, ...]) -> tuple[str, ...]:
    """A name for every number of the inputs: that of an input with one, "a 1", "a 2" where it has several."""
    if len(sizes) != len(names):
        return names
    return tuple(
        name if size == 1 else f"{name} {number + 1}"
        for name, size in zip(names, sizes, strict=True)
        for number in range(size)
    )


def point_rows(points: Any, names: tuple[str, ...], coordinates: int) -> np.ndarray:
    """Points as an array (points, coordinates): of one coordinate, or the combinations of {"x": x, "t": t}."""
    if isinstance(points, Mapping):
        names = names or default_coordinate_names(coordinates)
        if set(points) != set(names):
            raise DataError(
                f"points: expected the coordinates {', '.join(names)}; got {', '.join(map(str, points))}"
            )
        points = combinations([real_array(f"points[{name!r}]", points[name], (name,)) for name in names])
    if coordinates == 1 and np.ndim(points) == 1:
        points = np.asarray(points)[:, None]
    return checked_rows("points", points, ("points", "coordinates"), coordinates)


def input_rows(
    inputs: Any, names: tuple[str, ...], sizes: tuple[int | None, ...], sensors: int | None
) -> np.ndarray:
    """Inputs in any form as an array (samples, sensors), or a `DataError`."""
    inputs, columns = values_of(inputs), columns_of(inputs)
    if columns is not None and set(names) <= set(columns):
        inputs = {name: columns[name] for name in names}
    elif columns is not None and len(names) > 1:
        check_names(columns, names)
    if not isinstance(inputs, Mapping):
        return checked_rows("inputs", inputs, ("samples", "sensors"), sensors)
    inputs = {without_controls(str(name)): value for name, value in inputs.items()}
    check_names(inputs, names)
    parts = [
        checked_rows(f"inputs[{name!r}]", inputs[name], ("samples", "sensors"), size)
        for name, size in zip(names, sizes or (None,) * len(names), strict=True)
    ]
    if len({len(part) for part in parts}) > 1:
        counts = ", ".join(f"{name} {len(part)}" for name, part in zip(names, parts, strict=True))
        raise DataError(f"inputs: different numbers of samples on axis 0: {counts}")
    return checked_rows("inputs", np.concatenate(parts, axis=1), ("samples", "sensors"), sensors)


def check_names(inputs: Collection[str], names: Collection[str]) -> None:
    """Raise a `DataError` unless the input functions are those of training."""
    if set(inputs) != set(names):
        raise DataError(f"inputs: this operator was trained on {', '.join(names)}; got {', '.join(inputs)}")
