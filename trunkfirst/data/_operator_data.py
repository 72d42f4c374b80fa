"""Input functions and output fields of an operator, all samples on the same points."""

import dataclasses as dc
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Float, Int

from ..errors import DataError
from ._checks import check_length, real_array

Indices: TypeAlias = Int[np.ndarray, " chosen"] | slice


@dc.dataclass(frozen=True, eq=False)
class InputFunction:
    """One input function a sample, given at sensors.

    `values` is (samples, sensors). Known about the sensors, or None: their coordinates `sensors`
    (sensors, coordinates), quadrature weights `sensor_weights` (sensors,), and the `grid_shape` whose
    product is the number of sensors.
    """

    values: Float[np.ndarray, "samples sensors"]
    sensors: Float[np.ndarray, "sensors coordinates"] | None = None
    sensor_weights: Float[np.ndarray, " sensors"] | None = None
    grid_shape: tuple[int, ...] | None = None

    def checked(self, name: str) -> "InputFunction":
        """The same with arrays checked; `name` is used in messages."""
        values = real_array(name, self.values, ("samples", "sensors"))
        count = values.shape[1]
        sensors, weights = self.sensors, self.sensor_weights
        if sensors is not None:
            sensors = real_array(f"{name}.sensors", sensors, ("sensors", "coordinates"))
            check_length(f"{name}.sensors", "sensors", len(sensors), count, f"{name}.values")
        if weights is not None:
            weights = real_array(f"{name}.sensor_weights", weights, ("sensors",))
            check_length(f"{name}.sensor_weights", "sensors", len(weights), count, f"{name}.values")
        if self.grid_shape is not None and int(np.prod(self.grid_shape)) != count:
            raise DataError(f"{name}.grid_shape: {self.grid_shape} does not multiply to the {count} sensors")
        return dc.replace(self, values=values, sensors=sensors, sensor_weights=weights)


@dc.dataclass(frozen=True, eq=False)
class OperatorData:
    """Samples of an operator: what goes in, what comes out, and where.

    Everything is checked once, on construction; a `DataError` names the array and the axis that is wrong.
    """

    # the operator
    inputs: Mapping[str, InputFunction]
    """Named input functions; a bare array (samples, sensors) is taken as one input called "input"."""
    points: Float[np.ndarray, "points coordinates"]
    outputs: Float[np.ndarray, "samples points"]
    # weights
    point_weights: Float[np.ndarray, " points"] | None = None
    """Quadrature weights, scaled to sum to 1; None means all alike."""
    sample_weights: Float[np.ndarray, " samples"] | None = None
    # what is known beside
    reference_outputs: Float[np.ndarray, "samples points"] | None = None
    """A finer solution of the same samples: what the outputs themselves are worth."""
    triangles: Int[np.ndarray, "triangles 3"] | None = None
    labels: Mapping[str, Float[np.ndarray, " samples"]] = dc.field(default_factory=dict[str, np.ndarray])
    """Numbers that name a sample in figures; never used in training."""
    # words
    output_name: str = "output"
    coordinate_names: tuple[str, ...] = ()
    units: Mapping[str, str] = dc.field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        points = real_array("points", self.points, ("points", "coordinates"))
        outputs = real_array("outputs", self.outputs, ("samples", "points"))
        check_length("outputs", "points", outputs.shape[1], len(points), "points")
        inputs = _named_inputs(self.inputs)
        for name, function in inputs.items():
            check_length(f"inputs[{name!r}]", "samples", len(function.values), len(outputs), "outputs")
        labels = {
            name: real_array(f"labels[{name!r}]", label, ("samples",)) for name, label in self.labels.items()
        }
        for name, label in labels.items():
            check_length(f"labels[{name!r}]", "samples", len(label), len(outputs), "outputs")
        reference = self.reference_outputs
        if reference is not None:
            reference = real_array("reference_outputs", reference, ("samples", "points"))
            check_length("reference_outputs", "samples", len(reference), len(outputs), "outputs")
            check_length("reference_outputs", "points", reference.shape[1], len(points), "points")
        point_weights = _weights("point_weights", "points", self.point_weights, len(points))
        self._set(
            inputs=inputs,
            points=points,
            outputs=outputs,
            labels=labels,
            reference_outputs=reference,
            point_weights=None if point_weights is None else point_weights / point_weights.sum(),
            sample_weights=_weights("sample_weights", "samples", self.sample_weights, len(outputs)),
            coordinate_names=self.coordinate_names or _coordinate_names(points.shape[1]),
        )

    def _set(self, **fields: object) -> None:
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    @property
    def samples(self) -> int:
        """How many samples there are."""
        return len(self.outputs)

    @property
    def flat_inputs(self) -> Float[np.ndarray, "samples sensors"]:
        """All input functions side by side."""
        values = [function.values for function in self.inputs.values()]
        return values[0] if len(values) == 1 else np.concatenate(values, axis=1)

    def take(self, indices: Indices) -> "OperatorData":
        """The samples at `indices`."""
        return dc.replace(
            self,
            inputs={name: dc.replace(f, values=f.values[indices]) for name, f in self.inputs.items()},
            outputs=self.outputs[indices],
            sample_weights=None if self.sample_weights is None else self.sample_weights[indices],
            reference_outputs=None if self.reference_outputs is None else self.reference_outputs[indices],
            labels={name: label[indices] for name, label in self.labels.items()},
        )


def _coordinate_names(dimensions: int) -> tuple[str, ...]:
    return ("x", "y", "z")[:dimensions] if dimensions <= 3 else tuple(f"x{i + 1}" for i in range(dimensions))


def _named_inputs(inputs: Any) -> dict[str, InputFunction]:
    named: dict[str, Any] = dict(inputs) if isinstance(inputs, Mapping) else {"input": inputs}
    if not named:
        raise DataError("inputs: no input function given")
    functions = {name: f if isinstance(f, InputFunction) else InputFunction(f) for name, f in named.items()}
    return {name: function.checked(f"inputs[{name!r}]") for name, function in functions.items()}


def _weights(name: str, axis: str, weights: object, expected: int) -> Float[np.ndarray, "..."] | None:
    if weights is None:
        return None
    array = real_array(name, weights, (axis,))
    check_length(name, axis, len(array), expected, "outputs")
    if (array < 0).any() or array.sum() <= 0:
        raise DataError(f"{name}: weights must not be negative and not all zero; the smallest is {array.min()}")
    return array
