"""Outputs on a grid, in any order of axes: which of them are the samples, the coordinates and the channels.

xarray, netCDF and zarr name the axes. Elsewhere lengths decide: samples are as many as rows of the inputs, and
every coordinate has its own length. Several possible readings are an error that lists them, with the option that
chooses.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ..errors import DataError
from .array_checks import real_numbers
from .operator_data import default_coordinate_names

_SAMPLES, _POINTS, _CHANNELS = "samples", "points", "channels"
_USUAL_SAMPLES = (_SAMPLES, "sample")
_USUAL_CHANNELS = (_CHANNELS, "channel", "component", "components")
_MOST_AXES = 6

Arrays: TypeAlias = Mapping[str, np.ndarray]
Axes: TypeAlias = Mapping[str, Sequence[str]]
Reading: TypeAlias = tuple[str, ...]
"""What every axis of an array is: "samples", "channels", or the name of a part of the points."""


class Part(NamedTuple):
    """Points that are combined with those of the other parts: (points, coordinates), with their names."""

    points: np.ndarray
    names: tuple[str, ...]


def family(arrays: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Return all "key.NAME" by NAME."""
    return {name.partition(".")[2]: array for name, array in arrays.items() if name.startswith(f"{key}.")}


def column(array: np.ndarray) -> np.ndarray:
    """Return one axis as a column."""
    return array[:, None] if array.ndim == 1 else array


def combinations(parts: Sequence[np.ndarray]) -> np.ndarray:
    """All combinations of the rows of the parts (rows, coordinates), the last part fastest."""
    rows = np.indices([len(part) for part in parts]).reshape(len(parts), -1)
    return np.concatenate([column(part)[row] for part, row in zip(parts, rows, strict=True)], axis=1)


def on_points(named: Arrays, rest: Arrays, axes: Axes) -> dict[str, np.ndarray]:
    """Return `named` with points (points, coordinates) and outputs (samples, points) or with channels behind.

    `named` has arrays by our keys: "points.x" and "points.t" are coordinates whose combinations are the points,
    "outputs.u" and "outputs.v" channels; "axes" names the axes of the outputs. `rest` are arrays that are not
    used. `axes` has the names of the axes of all of them where the source knows them.
    """
    if any(key in axes for key in _fields(named)):
        named, parts, readings = _by_name(named, rest, axes)
    elif "axes" in named or family(named, _POINTS):
        parts, readings = _by_length(named)
        _ask_about_channels(named, rest, readings)
    else:
        _ask_about_channels(named, rest, {})
        return _joined(named)
    found = {key: value for key, value in named.items() if not key.startswith("points.") and key != "axes"}
    names = tuple(itertools.chain.from_iterable(part.names for part in parts.values()))
    unique = names if len(set(names)) == len(names) else default_coordinate_names(len(names))
    found = {"coordinate_names": np.array(unique), **found}
    found["points"] = combinations([part.points for part in parts.values()])
    found |= {key: _arranged(value, readings[key], parts) for key, value in _fields(named).items()}
    return _joined(found)


def _fields(named: Arrays) -> dict[str, np.ndarray]:
    """The arrays with the axes of the outputs."""
    return {key: value for key, value in named.items() if key.split(".")[0] in ("outputs", "reference_outputs")}


def _arranged(value: np.ndarray, reading: Reading, parts: Mapping[str, Part]) -> np.ndarray:
    order = (_SAMPLES, *parts, *([_CHANNELS] if _CHANNELS in reading else []))
    turned = np.transpose(value, [reading.index(name) for name in order])
    end = 1 + len(parts)
    return turned.reshape(len(turned), math.prod(turned.shape[1:end]), *turned.shape[end:])


def _joined(named: Arrays) -> dict[str, np.ndarray]:
    """The arrays with several outputs as channels of one."""
    outputs = family(named, "outputs")
    found = {key: value for key, value in named.items() if not key.startswith("outputs.")}
    if not outputs:
        return found
    if len({value.shape[:2] for value in outputs.values()}) > 1 or min(v.ndim for v in outputs.values()) < 2:
        shapes = ", ".join(f"{name} {value.shape}" for name, value in outputs.items())
        raise DataError(f"outputs: channels need the same samples and points, but the shapes are {shapes}")
    ((name, value), *others) = outputs.items()
    if not others and value.ndim == 2:
        return {"output_name": np.array(name), **found, "outputs": value}
    blocks = {name: value[..., None] if value.ndim == 2 else value for name, value in outputs.items()}
    names = [
        name if block.shape[2] == 1 else f"{name} {number + 1}"
        for name, block in blocks.items()
        for number in range(block.shape[2])
    ]
    return {"channel_names": np.array(names), **found, "outputs": np.concatenate([*blocks.values()], axis=2)}


# -- axes by their lengths


def _by_length(named: Arrays) -> tuple[dict[str, Part], dict[str, Reading]]:
    given = family(named, _POINTS)
    parts = {name: _part(name, value) for name, value in given.items()} or {_POINTS: _part("", named["points"])}
    order = tuple(np.ravel(named["axes"]).tolist()) if "axes" in named else None
    samples = len(next(value for key, value in named.items() if key.split(".")[0] == "inputs"))
    sizes = {_SAMPLES: samples, **{name: len(part.points) for name, part in parts.items()}}
    found = {key: _reading(key, value.shape, sizes, order) for key, value in _fields(named).items()}
    if _POINTS not in parts and any(_POINTS in reading for reading in found.values()):
        columns = [part.points for part in parts.values()]
        names = tuple(itertools.chain.from_iterable(part.names for part in parts.values()))
        parts = {_POINTS: Part(np.concatenate(columns, axis=1), names)}
    return parts, found


def _part(name: str, value: np.ndarray) -> Part:
    array = real_numbers(f"points.{name}" if name else "points", value)
    array = array.ravel() if array.ndim == 2 and 1 in array.shape else array
    if array.ndim not in (1, 2):
        raise DataError(f"points.{name}: expected a vector, one coordinate of a grid, got shape {array.shape}")
    is_named = name not in ("", _POINTS) and array.ndim == 1
    return Part(column(array), (name,) if is_named else default_coordinate_names(column(array).shape[1]))


def _reading(key: str, shape: tuple[int, ...], sizes: Mapping[str, int], order: Reading | None) -> Reading:
    """What the axes of an array are; an error unless exactly one reading has these lengths."""
    if len(shape) > _MOST_AXES:
        raise DataError(f"{key}: {len(shape)} axes are more than {_MOST_AXES}; reshape it")
    if order is not None:
        return _checked_order(key, shape, sizes, order)
    parts = len(sizes) - 1
    names = (*sizes, _CHANNELS) if len(shape) == len(sizes) + 1 else tuple(sizes)
    options = itertools.permutations(names) if len(names) == len(shape) else ()
    found = [option for option in options if _has_lengths(option, shape, sizes)]
    lengths = set(list(sizes.values())[1:])
    if parts > 1 and len(lengths) == 1 and len(shape) in (2, 3) and shape[:2] == (sizes[_SAMPLES], *lengths):
        found.append((_SAMPLES, _POINTS, _CHANNELS)[: len(shape)])
    found = [option for option in found if option[0] == _SAMPLES] or found  # rows are samples where they can be
    if not found:
        raise DataError(f"{key}: no axes of the shape {shape} match {_in_words(sizes)}; correct one of them")
    if len(found) > 1:
        choices = " or ".join(f"({', '.join(each)}) with --key axes={','.join(each)}" for each in found[:4])
        raise DataError(f"{key}: the shape {shape} can be read as {choices}; choose one (in Python axes=(...))")
    return found[0]


def _has_lengths(reading: Reading, shape: tuple[int, ...], sizes: Mapping[str, int]) -> bool:
    return all(sizes.get(name, length) == length for name, length in zip(reading, shape, strict=True))


def _in_words(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name} ({count})" for name, count in sizes.items())


def _checked_order(key: str, shape: tuple[int, ...], sizes: Mapping[str, int], order: Reading) -> Reading:
    names = order if _SAMPLES in order else (_SAMPLES, *order)
    if len(names) == len(shape) + 1 and _CHANNELS in names:  # another output has an axis of channels
        names = tuple(name for name in names if name != _CHANNELS)
    known = {*sizes, _CHANNELS}
    is_columns = _POINTS in names and len({*sizes.values()} - {sizes[_SAMPLES]}) <= 1
    expected = {_SAMPLES, _POINTS} if is_columns else set(sizes)
    if len(set(names)) < len(names) or set(names) - {_CHANNELS} != expected or len(names) != len(shape):
        raise DataError(
            f"{key}: axes {', '.join(names)} do not name the {len(shape)} axes of the shape {shape}, each once; "
            f"choose from {', '.join(sorted(known))}"
        )
    if not is_columns and not _has_lengths(names, shape, sizes):
        raise DataError(f"{key}: axes {', '.join(names)} have {shape} entries, but there are {_in_words(sizes)}")
    return names


def _ask_about_channels(named: Arrays, rest: Arrays, readings: Mapping[str, Reading]) -> None:
    """Refuse to read an axis as channels or points if a vector of its length is not used."""
    points = named.get("points")
    for key, value in _fields(named).items():
        if "axes" in named or value.ndim < 3 or (points is not None and points.ndim > 2):
            continue
        reading = readings.get(key) or _plain_reading(value.shape, points)
        for axis in (axis for axis, name in enumerate(reading) if name == _CHANNELS):
            names = [name for name, other in rest.items() if other.shape == (value.shape[axis],)]
            if names:
                known = ",".join(family(named, _POINTS)) or _POINTS
                raise DataError(
                    f"{key}: axis {axis} of the shape {value.shape} has as many entries as {names[0]!r}, which is "
                    f"not used: a coordinate (--key points={known},{names[0]}), or channels "
                    f"(--key axes={','.join(reading)})? Choose one"
                )


def _plain_reading(shape: tuple[int, ...], points: np.ndarray | None) -> Reading:
    """Outputs of the usual order, or with channels before points."""
    is_usual = points is None or shape[1] == len(points) or len(shape) != 3 or shape[2] != len(points)
    return (_SAMPLES, _POINTS, _CHANNELS) if is_usual else (_SAMPLES, _CHANNELS, _POINTS)


# -- axes by their names


def _by_name(
    named: Arrays, rest: Arrays, axes: Axes
) -> tuple[dict[str, np.ndarray], dict[str, Part], dict[str, Reading]]:
    """Arrays, points and readings of a source that names its axes; `rest` has the coordinates."""
    fields = {key: tuple(axes[key]) for key in _fields(named)}
    roles = _roles(named, fields, rest, axes)
    readings = {key: tuple(roles.get(dim, dim) for dim in dims) for key, dims in fields.items()}
    coordinates = {key: value for key, value in named.items() if key.startswith("points")} or rest
    parts: dict[str, Part] = {}
    for dim in itertools.chain.from_iterable(readings.values()):
        if dim not in (_SAMPLES, _CHANNELS, *parts):
            parts[dim] = _along(dim, coordinates, axes)
    for key, reading in readings.items():
        if set(reading) - {_CHANNELS} != {_SAMPLES, *parts} or len(set(reading)) < len(reading):
            raise DataError(f"{key}: its dimensions {', '.join(fields[key])} are not those of the other outputs")
    samples = next(dim for dim, role in roles.items() if role == _SAMPLES)
    words = [rest[dim] for dim, role in roles.items() if role == _CHANNELS and dim in rest]
    names = {"channel_names": words[0].astype(np.str_)} if words and len(fields) == 1 else {}
    return {**names, **_samples_first(named, samples, rest, axes)}, parts, readings


def _roles(named: Arrays, fields: Axes, rest: Arrays, axes: Axes) -> dict[str, str]:
    """Which dimensions are the samples, the channels and, where `points` is one array, the points."""
    first = next(iter(fields))
    dims = fields[first]
    if "axes" in named:
        order = tuple(np.ravel(named["axes"]).tolist())
        order = order if _SAMPLES in order else (_SAMPLES, *order)
        if len(order) != len(dims):
            raise DataError(f"{first}: axes {', '.join(order)} do not name its dimensions {', '.join(dims)}")
        return {dim: name for dim, name in zip(dims, order, strict=True) if name in (_SAMPLES, _CHANNELS)}
    roles = {_sample_dimension(named, first, dims, rest, axes): _SAMPLES}
    for dim in itertools.chain.from_iterable(fields.values()):
        is_text = dim in rest and rest[dim].dtype.kind in "US"
        if dim not in roles and (dim in _USUAL_CHANNELS or is_text):
            roles[dim] = _CHANNELS
    if "points" in named:
        others = [dim for dim in dims if dim not in roles]
        own = [dim for dim in others if dim in (axes.get("points", (_POINTS,))[0], _POINTS)]
        roles |= {dim: _POINTS if dim in own[:1] else _CHANNELS for dim in others}
    return roles


def _sample_dimension(named: Arrays, key: str, dims: Sequence[str], rest: Arrays, axes: Axes) -> str:
    """The dimension that outputs and inputs share."""
    inputs = {name: axes[name] for name in named if name.split(".")[0] == "inputs" and name in axes}
    shared = [dim for dim in dims if all(dim in own for own in inputs.values())]
    found = (
        [dim for dim in shared if dim in _USUAL_SAMPLES] or [dim for dim in shared if dim not in rest] or shared
    )
    if len(found) != 1:
        own = "; ".join(f"{name} ({', '.join(each)})" for name, each in inputs.items())
        raise DataError(
            f"{key}: which of its dimensions ({', '.join(dims)}) are the samples is not clear from the inputs: "
            f"{own}; give --key axes=NAME,... with 'samples' in its place, e.g. "
            f"--key axes={','.join((_SAMPLES, *dims[1:]))}"
        )
    return found[0]


def _along(dim: str, coordinates: Arrays, axes: Axes) -> Part:
    """The coordinates of a dimension: of the same name, else all that have only this dimension."""
    if dim == _POINTS and "points" in coordinates:
        points = column(real_numbers("points", coordinates["points"]))
        is_turned = len(axes.get("points", ())) == 2 and axes["points"][1] == _POINTS
        points = points.T if is_turned else points
        return Part(points, default_coordinate_names(points.shape[1]))
    own = {key.removeprefix("points."): v for key, v in coordinates.items() if tuple(axes.get(key, ())) == (dim,)}
    own = {name: value for name, value in own.items() if value.dtype.kind not in "USO"}
    own = {dim: own[dim]} if dim in own else own
    if not own:
        raise DataError(
            f"outputs: the dimension {dim!r} has no coordinates; give them, as in "
            f"dataset.assign_coords({dim}=...), or read it as channels with --key axes=..."
        )
    return Part(np.stack([real_numbers(name, value) for name, value in own.items()], axis=1), tuple(own))


def inputs_by_name(named: Arrays, rest: Arrays, axes: Axes) -> tuple[dict[str, np.ndarray], str]:
    """Return the arrays with samples first and sensors from the coordinates in `rest`; and the samples' name."""
    key = next(key for key in named if key.split(".")[0] == "inputs")
    samples = _sample_dimension(named, key, axes[key], rest, axes)
    return _samples_first(named, samples, rest, axes), samples


def _samples_first(named: Arrays, samples: str, rest: Arrays, axes: Axes) -> dict[str, np.ndarray]:
    """The arrays with the samples of every input first, and its sensors where their coordinates are known."""
    found = dict(named)
    for key, value in named.items():
        if key.split(".")[0] != "inputs" or key not in axes:
            continue
        dims = tuple(axes[key])
        if samples not in dims:
            raise DataError(f"{key}: its dimensions {', '.join(dims)} do not have the samples, {samples!r}")
        others = [dim for dim in dims if dim != samples]
        found[key] = np.transpose(value, [dims.index(dim) for dim in (samples, *others)])
        sensors = f"sensors{key.removeprefix('inputs')}"
        known = [rest[dim] for dim in others if dim in rest and rest[dim].dtype.kind in "fiu"]
        if others and len(known) == len(others) and sensors not in named:
            found[sensors] = combinations(known)
    return found
