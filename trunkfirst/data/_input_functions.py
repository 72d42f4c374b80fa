"""Input functions: values at sensors, and what is known about the sensors."""

import dataclasses as dc
from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float

from ..errors import DataError
from ._checks import check_length, real_array, whole_numbers


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
            hint = "; looks transposed; use .T" if sensors.shape[1] == count else ""
            check_length(f"{name}.sensors", "sensors", len(sensors), count, f"{name}.values", hint=hint)
        if weights is not None:
            weights = real_array(f"{name}.sensor_weights", weights, ("sensors",))
            check_length(f"{name}.sensor_weights", "sensors", len(weights), count, f"{name}.values")
        grid_shape = None if self.grid_shape is None else _grid_shape(f"{name}.grid_shape", self.grid_shape, count)
        return dc.replace(self, values=values, sensors=sensors, sensor_weights=weights, grid_shape=grid_shape)


def _grid_shape(name: str, shape: Any, count: int) -> tuple[int, ...]:
    found = tuple(int(length) for length in whole_numbers(name, shape, ("directions",)))
    if min(found) < 1 or int(np.prod(found)) != count:
        raise DataError(f"{name}: {found} does not multiply to the {count} sensors")
    return found


def named_inputs(inputs: Any, samples: int) -> dict[str, InputFunction]:
    """Input functions by name, checked; a bare array is one called "input"."""
    named: dict[str, Any] = dict(inputs) if isinstance(inputs, Mapping) else {"input": inputs}
    if not named:
        raise DataError("inputs: no input function given")
    functions = {str(name): f if isinstance(f, InputFunction) else InputFunction(f) for name, f in named.items()}
    checked = {name: function.checked(f"inputs[{name!r}]") for name, function in functions.items()}
    for name, function in checked.items():
        rows, columns = function.values.shape
        hint = "; looks transposed; use .T" if columns == samples else ""
        check_length(f"inputs[{name!r}]", "samples", rows, samples, "outputs", hint=hint)
    return checked
