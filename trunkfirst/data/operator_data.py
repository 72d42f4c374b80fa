"""Samples of an operator in memory: input functions, points and outputs, checked once on construction."""

import abc
import dataclasses as dc
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np
import numpy.typing as npt
from jaxtyping import Bool, Float, Int

from ..errors import DataError, ValueRangeError
from .array_checks import (
    Indices,
    any_array,
    check_length,
    checked_labels,
    checked_marks,
    checked_names,
    checked_weights,
    evenly,
    plain_name,
    real_array,
    refuse_swapped,
    sample_indices,
    whole_numbers,
)
from .data_display import Panel, html_table, plot_panels, range_in_words


@dc.dataclass(frozen=True, eq=False, init=False, repr=False)
class InputFunction:
    """The values of one input function at fixed sensors, for all samples.

    `values` is (samples, sensors), or (samples, n, m) on a grid. Optional: the coordinates `sensors` (sensors,
    coordinates), the quadrature weights `sensor_weights` (sensors), and the `grid_shape`, whose product is the
    number of sensors.

    >>> import numpy as np
    >>> x = np.linspace(0, 1, 30)[:, None]
    >>> f = InputFunction(np.sin(np.arange(5)[:, None] * x.T), sensors=x)
    >>> f.values.shape
    (5, 30)
    """

    values: Float[np.ndarray, "samples sensors"]
    sensors: Float[np.ndarray, "sensors coordinates"] | None
    sensor_weights: Float[np.ndarray, " sensors"] | None
    grid_shape: tuple[int, ...] | None

    def __init__(
        self,
        values: npt.ArrayLike,
        sensors: npt.ArrayLike | None = None,
        sensor_weights: npt.ArrayLike | None = None,
        grid_shape: npt.ArrayLike | None = None,
    ) -> None:
        arrays = {"values": values, "sensors": sensors, "sensor_weights": sensor_weights, "grid_shape": grid_shape}
        found = {name: None if a is None else any_array(name, a) for name, a in arrays.items()}
        shape = found["grid_shape"]
        _set(self, **{**found, "grid_shape": None if shape is None else tuple(np.atleast_1d(shape).tolist())})

    def describe(self) -> str:
        """Return the number of sensors, and what is known about them, in words."""
        grid = " on a grid of " + " x ".join(map(str, self.grid_shape)) if self.grid_shape else ""
        return f"{self.values.shape[-1]:,} sensors{grid}{'' if self.sensors is None else ' with coordinates'}"

    def __repr__(self) -> str:
        return f"InputFunction: {len(self.values):,} samples, {self.describe()}"

    def checked(self, name: str) -> "InputFunction":
        """Return the same function with its arrays checked; messages call it `name`."""
        values, shape = any_array(name, self.values), self.grid_shape
        if values.ndim > 2:
            shape = values.shape[1:] if shape is None else shape
            values = values.reshape(len(values), math.prod(values.shape[1:]))
        values = real_array(name, values, ("samples", "sensors"))
        count = values.shape[1]
        sensors, weights = self.sensors, self.sensor_weights
        if sensors is not None:
            sensors = real_array(f"{name}.sensors", sensors, ("sensors", "coordinates"))
            hint = "; looks transposed; use .T" if sensors.shape[1] == count else ""
            check_length(f"{name}.sensors", "sensors", len(sensors), count, f"{name}.values", hint=hint)
        if weights is not None:
            weights = real_array(f"{name}.sensor_weights", weights, ("sensors",))
            check_length(f"{name}.sensor_weights", "sensors", len(weights), count, f"{name}.values")
        if shape is not None:
            shape = tuple(whole_numbers(f"{name}.grid_shape", shape, ("directions",)).tolist())
            if min(shape) < 1 or int(np.prod(shape)) != count:
                raise DataError(
                    f"{name}.grid_shape: the product of {shape} is not the number of sensors, {count}; correct one"
                )
        return InputFunction(values, sensors, weights, shape)


InputsLike: TypeAlias = npt.ArrayLike | InputFunction | Mapping[str, npt.ArrayLike | InputFunction]


@dc.dataclass(frozen=True, eq=False, init=False, repr=False)
class AbstractData(abc.ABC):
    """Samples in memory: the fields, checks and methods that aligned and scattered data share."""

    _per_sample: ClassVar[tuple[str, ...]]
    """Fields with an entry for each sample, besides inputs and labels."""
    # the operator
    inputs: dict[str, InputFunction]
    points: Float[np.ndarray, "*samples points coordinates"]
    outputs: Float[np.ndarray, "samples points *channels"]
    # weights
    point_weights: Float[np.ndarray, "*samples points"] | None
    sample_weights: Float[np.ndarray, " samples"] | None
    is_suggested: Bool[np.ndarray, " samples"] | None
    # for comparison and figures; not used in training
    reference_outputs: Float[np.ndarray, "samples points *channels"] | None
    triangles: Int[np.ndarray, "triangles corners"] | None
    labels: dict[str, Float[np.ndarray, " samples"]]
    # names
    output_name: str
    coordinate_names: tuple[str, ...]
    channel_names: tuple[str, ...]
    units: dict[str, str]

    def __init__(
        self,
        inputs: InputsLike,
        points: npt.ArrayLike,
        outputs: npt.ArrayLike,
        *,
        point_weights: npt.ArrayLike | None = None,
        sample_weights: npt.ArrayLike | None = None,
        is_suggested: npt.ArrayLike | None = None,
        reference_outputs: npt.ArrayLike | None = None,
        triangles: npt.ArrayLike | None = None,
        labels: Mapping[str, npt.ArrayLike] | None = None,
        output_name: str = "output",
        coordinate_names: Sequence[str] = (),
        channel_names: Sequence[str] = (),
        units: Mapping[str, str] | None = None,
    ) -> None:
        refuse_swapped(inputs, points, outputs)
        fields = self._checked(points, outputs, point_weights, reference_outputs, triangles)
        samples, coordinates = len(fields["outputs"]), fields["points"].shape[-1]
        channels = fields["outputs"].shape[2] if fields["outputs"].ndim == 3 else 1
        channel_names = checked_names("channel_names", channel_names, channels, "channels")
        if fields["outputs"].ndim == 3 and not channel_names:
            channel_names = tuple(f"output {number + 1}" for number in range(channels))
        coordinate_names = checked_names("coordinate_names", coordinate_names, coordinates, "coordinates")
        _set(
            self,
            inputs=_named_inputs(inputs, samples),
            **fields,
            sample_weights=checked_weights("sample_weights", sample_weights, "samples", samples),
            is_suggested=None if is_suggested is None else checked_marks(is_suggested, samples),
            labels=checked_labels(_plain_keys("labels", labels or {}), samples),
            output_name=plain_name(output_name),
            coordinate_names=coordinate_names or default_coordinate_names(coordinates),
            channel_names=channel_names,
            units={name: plain_name(unit) for name, unit in _plain_keys("units", units or {}).items()},
        )

    @property
    def samples(self) -> int:
        """Number of samples."""
        return len(self.outputs)

    @property
    def is_multichannel(self) -> bool:
        """Whether the outputs have an axis of channels."""
        return self.outputs.ndim == 3

    @property
    def channels(self) -> int:
        """Number of output functions of a sample."""
        return self.outputs.shape[2] if self.is_multichannel else 1

    @property
    def flat_inputs(self) -> Float[np.ndarray, "samples sensors"]:
        """The values of all input functions side by side."""
        values = [function.values for function in self.inputs.values()]
        return values[0] if len(values) == 1 else np.concatenate(values, axis=1)

    @property
    def exchangeable(self) -> Int[np.ndarray, " rows"]:
        """The samples that were not suggested: errors are measured on these alone."""
        return np.flatnonzero(np.ones(self.samples, bool) if self.is_suggested is None else ~self.is_suggested)

    def outputs_by_channel(self) -> dict[str, Float[np.ndarray, "samples points"]]:
        """Return the outputs of each channel by its name; a single channel has the name of the output."""
        if not self.is_multichannel:
            return {self.output_name: self.outputs}
        return {name: self.outputs[..., index] for index, name in enumerate(self.channel_names)}

    def with_inputs(self, values: npt.ArrayLike) -> Self:
        """Return the same samples with `values` (samples, sensors) as their only input function."""
        return dc.replace(self, inputs={"input": InputFunction(values)})

    def take(self, indices: Indices) -> Self:
        """Return the samples at `indices`: integers, a mask or a slice."""
        rows = indices if isinstance(indices, slice) else sample_indices(indices, self.samples)
        per_sample = {name: getattr(self, name) for name in self._per_sample}
        return dc.replace(
            self,
            inputs={name: dc.replace(f, values=f.values[rows]) for name, f in self.inputs.items()},
            labels={name: label[rows] for name, label in self.labels.items()},
            **{name: None if array is None else array[rows] for name, array in per_sample.items()},
        )

    def describe(self, *, has_ranges: bool = True) -> list[str]:
        """Return sentences on samples, inputs, points and outputs, with the ranges of their values."""
        sentences = [f"{self.samples:,} samples, {self.points_in_words()}"]
        for name, function in self.inputs.items():
            words = f", values {range_in_words(function.values)}" if has_ranges else ""
            sentences.append(f"inputs: {self._with_unit(name)}, {function.describe()}{words}")
        places = enumerate(self.coordinate_names)
        ranges = (f"{self._with_unit(name)} {range_in_words(self.points[..., i])}" for i, name in places)
        sentences.append(f"points: {', '.join(ranges)}")
        precision = "single" if self.outputs.dtype == np.float32 else "double"
        for name, values in self.outputs_by_channel().items():
            words = f", values {range_in_words(values)}" if has_ranges else ""
            sentences.append(f"outputs: {self._with_unit(name)}{words}, {precision} precision")
        optional = ("point_weights", "sample_weights", "is_suggested", "reference_outputs", "triangles")
        also = [name.replace("_", " ") for name in optional if getattr(self, name) is not None]
        also += [f"label {name}" for name in self.labels]
        return sentences + ([f"also: {', '.join(also)}"] if also else [])

    def __repr__(self) -> str:
        return "\n".join([f"{type(self).__name__}:", *self.describe()])

    def _repr_html_(self) -> str:
        return html_table(type(self).__name__, self.describe())

    def _with_unit(self, name: str) -> str:
        return f"{name} [{self.units[name]}]" if name in self.units else name

    @abc.abstractmethod
    def _checked(
        self, points: object, outputs: object, weights: object, reference: object, triangles: object
    ) -> dict[str, Any]:
        """Return these five fields, checked."""

    @abc.abstractmethod
    def points_in_words(self) -> str: ...


class OperatorData(AbstractData):
    """Samples of an operator, all of them at the same points.

    Arrays may be anything that NumPy can convert to an array. They are checked on construction; a `DataError`
    names the array, the axis and the index that is wrong.

    - `inputs`: an array (samples, sensors), an `InputFunction`, a dictionary of them by name, or a pandas table;
    - `points` (points, coordinates) and `outputs` (samples, points) or (samples, points, channels);
    - `point_weights` (points): quadrature weights, scaled to sum to 1; `sample_weights` (samples);
    - `is_suggested` (samples): samples that `suggest` asked for, for training only: no error is measured on them;
    - `reference_outputs`, in the shape of `outputs`: a finer solution, to measure the error of the outputs;
    - `triangles` (triangles, 3), or tetrahedra (tetrahedra, 4): a mesh of the points, with indices from 0;
    - `labels` (samples) by name, for figures;
    - `output_name`, `coordinate_names`, `channel_names` and `units` by name.

    >>> import numpy as np
    >>> x, a = np.linspace(0, 1, 30), np.random.default_rng(0).normal(size=(40, 2))
    >>> data = OperatorData(inputs=a, points=x[:, None], outputs=a @ np.stack([x, x**2]))
    >>> data.samples, data.take(slice(0, 10)).samples
    (40, 10)
    """

    _per_sample = ("outputs", "sample_weights", "is_suggested", "reference_outputs")

    def plot(self, samples: int = 3) -> np.ndarray:
        """Plot inputs and outputs of a few evenly spaced samples; return the matplotlib axes (rows, columns).

        Functions of one coordinate are lines, all samples in one row; functions of two coordinates are colour
        maps, one row for each sample. Of three coordinates or more, values are drawn over the index of the point.
        """
        if samples < 1:
            raise ValueRangeError(f"samples is {samples}; plot one or more")
        panels = [
            Panel(self._with_unit(name), f.values, f.sensors, grid_shape=f.grid_shape)
            for name, f in self.inputs.items()
        ]
        axes = tuple(map(self._with_unit, self.coordinate_names))
        for name, values in self.outputs_by_channel().items():
            panels.append(Panel(self._with_unit(name), values, self.points, axes, self.triangles))
        return plot_panels(panels, evenly(self.samples, samples))

    def _checked(
        self, points: object, outputs: object, weights: object, reference: object, triangles: object
    ) -> dict[str, Any]:
        places = real_array("points", _one_coordinate(points), ("points", "coordinates"))
        values = real_array("outputs", outputs, ("samples", "points"), last="channels")
        check_length("outputs", "points", values.shape[1], len(places), "points", hint=_hint(places, values))
        point_weights = checked_weights("point_weights", weights, "points", len(places))
        return {
            "points": places,
            "outputs": values,
            "point_weights": None if point_weights is None else point_weights / point_weights.sum(),
            "reference_outputs": None if reference is None else _checked_reference(reference, values),
            "triangles": None if triangles is None else _checked_triangles(triangles, places),
        }

    def points_in_words(self) -> str:
        return f"all on the same {len(self.points):,} points"


def _one_coordinate(points: object) -> np.ndarray:
    places = any_array("points", points)
    if places.ndim > 2:
        raise DataError(
            f"points: expected 2 axes (points, coordinates), got shape {places.shape}; give coordinates of a grid "
            f"by name, {{'x': x, 't': t}}, or points.reshape(-1, {places.shape[-1]}) and outputs (samples, points)"
        )
    return places[:, None] if places.ndim == 1 else places


def default_coordinate_names(dimensions: int) -> tuple[str, ...]:
    """x, y, z; beyond three x1, x2, ..."""
    return ("x", "y", "z")[:dimensions] if dimensions <= 3 else tuple(f"x{i + 1}" for i in range(dimensions))


def _set(record: object, **fields: object) -> None:
    for name, value in fields.items():
        object.__setattr__(record, name, value)


def _named_inputs(inputs: InputsLike, samples: int) -> dict[str, InputFunction]:
    table = columns_of(inputs) or inputs
    named: dict[str, Any] = _plain_keys("inputs", table) if isinstance(table, Mapping) else {"input": table}
    if not named:
        raise DataError("inputs: no input function given; give an array (samples, sensors)")
    checked: dict[str, InputFunction] = {}
    for key, given in named.items():
        name = f"inputs[{str(key)!r}]"
        function = given if isinstance(given, InputFunction) else InputFunction(any_array(name, given))
        checked[str(key)] = function.checked(name)
        rows, columns = checked[str(key)].values.shape
        hint = "; looks transposed; use .T" if columns == samples else ""
        check_length(name, "samples", rows, samples, "outputs", hint=hint)
    return checked


def values_of(inputs: Any) -> Any:
    """The same with the values of every `InputFunction` in its place."""
    if isinstance(inputs, Mapping):
        return {name: values_of(value) for name, value in inputs.items()}
    return inputs.values if isinstance(inputs, InputFunction) else inputs


def columns_of(table: Any) -> dict[str, np.ndarray] | None:
    """The columns (rows, 1) of a pandas table by name; None for anything else."""
    if not hasattr(table, "columns"):
        return None
    return {str(name): np.asarray(table[name])[:, None] for name in table.columns}


def _plain_keys(what: str, entries: Mapping[str, Any]) -> dict[str, Any]:
    """The entries with names that have no control characters."""
    plain = {plain_name(str(name)): value for name, value in entries.items()}
    if len(plain) < len(entries):
        raise DataError(f"{what}: two names differ only by control characters; rename one")
    return plain


def _hint(points: np.ndarray, outputs: np.ndarray) -> str:
    """Say what probably happened where outputs and points do not match."""
    samples, columns = outputs.shape[:2]
    if points.shape == (samples, columns):
        return "; where every sample has points of its own, give them an axis of coordinates, points[:, :, None]"
    if outputs.ndim == 2 and samples == len(points):
        return "; outputs looks transposed; use .T"
    if columns == points.shape[1] > len(points):
        return "; points looks transposed; use .T"
    if outputs.ndim == 3 and outputs.shape[2] == len(points):
        channels = "channels are the last axis; use np.moveaxis(outputs, 1, 2)"
        return f"; {channels}; or, if it is a grid, give its coordinates by name, points={{'x': x, 't': t}}"
    if outputs.ndim == 3 and columns * outputs.shape[2] == len(points):
        return "; flatten the grid with outputs.reshape(len(outputs), -1)"
    return ""


def _checked_reference(reference: object, outputs: np.ndarray) -> Float[np.ndarray, "samples points *channels"]:
    axes = ("samples", "points", "channels")[: outputs.ndim]
    array = real_array("reference_outputs", reference, axes)
    for axis, length, expected in zip(axes, array.shape, outputs.shape, strict=True):
        check_length("reference_outputs", axis, length, expected, "outputs")
    return array


def _checked_triangles(triangles: object, places: np.ndarray) -> Int[np.ndarray, "triangles corners"]:
    array, points = whole_numbers("triangles", triangles, ("triangles", "corners")), len(places)
    if array.shape[1] != 3 and (array.shape[1], places.shape[1]) != (4, 3):
        raise DataError(
            f"triangles: axis 'corners' has {array.shape[1]} entries; give the 3 corners of each triangle, or "
            "the 4 of each tetrahedron"
        )
    low, high = array.min(), array.max()
    if low < 0 or high >= points:
        hint = "; count from 0: subtract 1" if (low, high) == (1, points) else ""
        raise DataError(f"triangles: has points {low} to {high}, but there are only 0 to {points - 1}{hint}")
    return array
