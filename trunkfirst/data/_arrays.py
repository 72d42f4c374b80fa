"""Operator data as named arrays, and back: what stands in a file."""

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from ..errors import DataError
from ._abstract import AbstractData, default_coordinate_names
from ._checks import real_numbers
from ._input_functions import InputFunction
from ._operator_data import OperatorData
from ._scattered_data import ScatteredData

AnyData: TypeAlias = OperatorData | ScatteredData


def data_from_arrays(arrays: Mapping[str, np.ndarray]) -> AnyData:
    """Data from arrays by our keys; scattered where `points` has three axes.

    Kinder than the constructors, where nothing is lost: one axis of points, sensors or inputs means one
    coordinate or one sensor; inputs with more axes are values on a grid; a column or row is a vector; single
    beside double precision becomes double.
    """
    points, outputs = (real_numbers(key, arrays[key]) for key in ("points", "outputs"))
    inputs = inputs_from_arrays(arrays)
    dtype = np.result_type(points, outputs, *(function.values for function in inputs.values()))
    fields: dict[str, Any] = {
        "inputs": {name: _with_values(f, f.values.astype(dtype, copy=False)) for name, f in inputs.items()},
        "points": column(points).astype(dtype, copy=False),
        "outputs": outputs.astype(dtype, copy=False),
        "sample_weights": _optional(arrays, "sample_weights", _vector),
        "labels": {name: _vector(label) for name, label in _family(arrays, "labels").items()},
        "units": {name: _word(f"units.{name}", unit) for name, unit in _family(arrays, "units").items()},
        "coordinate_names": _words(arrays, "coordinate_names"),
        "channel_names": _words(arrays, "channel_names"),
    }
    if "output_name" in arrays:
        fields["output_name"] = _word("output_name", arrays["output_name"])
    return _scattered(arrays, fields) if points.ndim == 3 else _aligned(arrays, fields)


def _aligned(arrays: Mapping[str, np.ndarray], fields: dict[str, Any]) -> OperatorData:
    return OperatorData(
        **fields,
        point_weights=_optional(arrays, "point_weights", _vector),
        reference_outputs=arrays.get("reference_outputs"),
        triangles=arrays.get("triangles"),
    )


def _scattered(arrays: Mapping[str, np.ndarray], fields: dict[str, Any]) -> ScatteredData:
    for key in ("reference_outputs", "triangles"):
        if key in arrays:
            raise DataError(f"{key}: not for scattered data (points has 3 axes); leave it out")
    return ScatteredData(**fields, point_weights=arrays.get("point_weights"))


def inputs_from_arrays(arrays: Mapping[str, np.ndarray]) -> dict[str, InputFunction]:
    """Input functions by name, from arrays by our keys."""
    values = _family(arrays, "inputs")
    if "inputs" in arrays and values:
        raise DataError(f"both 'inputs' and 'inputs.{next(iter(values))}' are given; use one way or the other")
    names = _words(arrays, "input_names") or tuple(values) or ("input",)
    if "inputs" in arrays:
        values = {names[0]: arrays["inputs"]}
    if set(names) != set(values):
        raise DataError(f"input_names: {names} are not the inputs {tuple(values)}")
    for key in ("sensors", "sensor_weights", "grid_shape"):
        if key in arrays and len(values) > 1:
            raise DataError(f"{key}: there are {len(values)} inputs; say for which, as in {key}.{names[0]}")
        for name in _family(arrays, key):
            if name not in values:
                raise DataError(f"{key}.{name}: there is no input {name!r}; inputs: {', '.join(values)}")
    return {name: _input(arrays, name, values[name], is_only=len(names) == 1) for name in names}


def _input(arrays: Mapping[str, np.ndarray], name: str, value: np.ndarray, *, is_only: bool) -> InputFunction:
    def part(key: str) -> np.ndarray | None:
        return arrays.get(f"{key}.{name}", arrays.get(key) if is_only else None)

    sensors, weights, shape = part("sensors"), part("sensor_weights"), part("grid_shape")
    values = real_numbers(f"inputs[{name!r}]", value)
    grid = tuple(int(n) for n in values.shape[1:]) if values.ndim > 2 else None
    if shape is not None:
        grid = _vector(shape)
    return InputFunction(
        values.reshape(len(values), math.prod(values.shape[1:])) if values.ndim > 2 else column(values),
        sensors=None if sensors is None else column(sensors),
        sensor_weights=None if weights is None else _vector(weights),
        grid_shape=grid,  # pyright: ignore[reportArgumentType]  # checked and made a tuple by the container
    )


def _with_values(function: InputFunction, values: np.ndarray) -> InputFunction:
    return InputFunction(values, function.sensors, function.sensor_weights, function.grid_shape)


def _family(arrays: Mapping[str, np.ndarray], key: str) -> dict[str, np.ndarray]:
    """All "key.NAME" by NAME."""
    return {name.partition(".")[2]: array for name, array in arrays.items() if name.startswith(f"{key}.")}


def _optional(
    arrays: Mapping[str, np.ndarray], key: str, change: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray | None:
    return change(arrays[key]) if key in arrays else None


def column(array: np.ndarray) -> np.ndarray:
    return array[:, None] if array.ndim == 1 else array


def _vector(array: np.ndarray) -> np.ndarray:
    """One axis from a column or row, which is all that MATLAB and CSV have."""
    return array.ravel() if array.ndim == 2 and 1 in array.shape else array


def _words(arrays: Mapping[str, np.ndarray], key: str) -> tuple[str, ...]:
    array = arrays.get(key)
    if array is None:
        return ()
    if array.dtype.kind not in "US":
        raise DataError(f"{key}: expected words, got dtype {array.dtype}")
    text = np.char.decode(array, "utf-8", "replace") if array.dtype.kind == "S" else array
    return tuple(np.char.strip(text).ravel().tolist())


def _word(key: str, array: np.ndarray) -> str:
    words = _words({key: array}, key)
    if len(words) != 1:
        raise DataError(f"{key}: expected one word, got {len(words)}")
    return words[0]


# -- and back


def arrays_from_data(data: AnyData) -> dict[str, np.ndarray]:
    """All that `data` holds by our keys; what has its default is left out."""
    arrays = _input_arrays(data)
    arrays |= {"points": data.points, "outputs": data.outputs}
    optional = {"point_weights": data.point_weights, "sample_weights": data.sample_weights}
    if isinstance(data, OperatorData):
        optional |= {"reference_outputs": data.reference_outputs, "triangles": data.triangles}
    arrays |= {name: array for name, array in optional.items() if array is not None}
    arrays |= {f"labels.{name}": label for name, label in data.labels.items()}
    return arrays | _word_arrays(data)


def _input_arrays(data: AbstractData) -> dict[str, np.ndarray]:
    is_plain = list(data.inputs) == ["input"]
    arrays: dict[str, np.ndarray] = {}
    for name, function in data.inputs.items():
        ending = "" if is_plain else f".{name}"
        arrays[f"inputs{ending}"] = function.values
        for key in ("sensors", "sensor_weights", "grid_shape"):
            if getattr(function, key) is not None:
                arrays[f"{key}{ending}"] = np.asarray(getattr(function, key))
    if len(data.inputs) > 1:
        arrays["input_names"] = np.array(list(data.inputs))
    return arrays


def _word_arrays(data: AbstractData) -> dict[str, np.ndarray]:
    words = {f"units.{name}": np.array(unit) for name, unit in data.units.items()}
    if data.coordinate_names != default_coordinate_names(data.points.shape[-1]):
        words["coordinate_names"] = np.array(data.coordinate_names)
    if data.channel_names:
        words["channel_names"] = np.array(data.channel_names)
    if data.output_name != "output":
        words["output_name"] = np.array(data.output_name)
    return words
