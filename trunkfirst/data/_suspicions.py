"""What is not wrong with data, but seldom meant: each sentence names array, axis and index."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ._arrays import AnyData
from ._checks import real_numbers
from ._operator_data import OperatorData
from ._scattered_data import ScatteredData
from ._unique import repeated_rows

_FEW_SAMPLES = 20
_LARGE_RATIO = 1e3
_ROUGHER = 3


def suspicions(data: AnyData) -> list[str]:
    """All that looks suspicious in `data`."""
    found = [*_few(data), *_constant_sensors(data), *_repeated_samples(data), *_outputs(data)]
    return found + (_points(data) if isinstance(data, OperatorData) else _scattered_points(data))


def precision_notes(arrays: Mapping[str, Any]) -> list[str]:
    """What reading does to the precision of the arrays."""
    kinds = {name: np.asarray(array).dtype.name for name, array in arrays.items() if _is_main(name)}
    notes = [
        f"{name}: half precision has three digits; used as double" for name, k in kinds.items() if k == "float16"
    ]
    used = {name: real_numbers(name, arrays[name]).dtype.name for name in kinds}
    single = [name for name, kind in used.items() if kind == "float32"]
    if single and "float64" in used.values():
        notes.append(f"{', '.join(single)}: single precision beside double; all are used as double")
    return notes


def _is_main(name: str) -> bool:
    return name.split(".")[0] in ("inputs", "points", "outputs")


def _few(data: AnyData) -> list[str]:
    return [f"only {data.samples} samples; a fit wants 20 or more"] if data.samples < _FEW_SAMPLES else []


def _constant_sensors(data: AnyData) -> list[str]:
    found: list[str] = []
    for name, function in data.inputs.items():
        constant = np.ptp(function.values, axis=0) == 0
        if data.samples > 1 and constant.any():
            which = f"{int(constant.sum())} of {len(constant)} sensors never change, the first is sensor "
            found.append(f"inputs[{name!r}]: {which}{int(np.argmax(constant))}")
    return found


def _repeated_samples(data: AnyData) -> list[str]:
    pairs = repeated_rows(data.flat_inputs)
    if len(pairs) == 0:
        return []
    found = [f"inputs: {len(pairs)} samples repeat an earlier one, the first are samples {_pair(pairs[0])}"]
    if isinstance(data, OperatorData):
        axes = tuple(range(1, data.outputs.ndim))
        differ = (data.outputs[pairs[:, 0]] != data.outputs[pairs[:, 1]]).any(axis=axes)
        if differ.any():
            first = _pair(pairs[int(np.argmax(differ))])
            found.append(f"outputs: samples {first} have the same inputs but other outputs; no operator does that")
    return found


def _pair(pair: np.ndarray) -> str:
    return f"{pair[0]} and {pair[1]}"


def _outputs(data: AnyData) -> list[str]:
    outputs = data.outputs if isinstance(data, OperatorData) else np.nan_to_num(data.outputs)
    found: list[str] = []
    for index, name in enumerate(data.channel_names or ("outputs",)):
        values = outputs[..., index] if data.is_multichannel else outputs
        found += [f"{name}: {text}" for text in _sizes(np.maximum(values.max(axis=1), -values.min(axis=1)))]
        if isinstance(data, OperatorData) and data.samples > 1 and not np.ptp(values, axis=0).any():
            found.append(f"{name}: all samples are the same")
    return found


def _sizes(sizes: np.ndarray) -> list[str]:
    """What the largest values of the samples tell."""
    zeros = np.flatnonzero(sizes == 0)
    if len(zeros):
        which = f"{len(zeros)} samples are zero everywhere, the first is sample {zeros[0]}"
        return [f"{which}; their relative error is not defined"]
    if sizes.max() > _LARGE_RATIO * sizes.min():
        ratio = (
            f"sample {sizes.argmax()} is {sizes.max() / sizes.min():.0e} times as large as sample {sizes.argmin()}"
        )
        return [f"{ratio}; relative weights treat both alike"]
    return []


def _points(data: OperatorData) -> list[str]:
    found: list[str] = []
    pairs = repeated_rows(data.points)
    if len(pairs):
        found.append(f"points: {len(pairs)} repeat an earlier one, the first are points {_pair(pairs[0])}")
        gaps = np.abs(data.outputs[:, pairs[:, 0]] - data.outputs[:, pairs[:, 1]])
        if gaps.max() > 1e-6 * np.abs(data.outputs).max():
            found.append(f"outputs: differ by up to {gaps.max():.1e} at points that are the same place")
    return found + _flat_coordinates(data, data.points) + _swapped_axes(data)


def _swapped_axes(data: OperatorData) -> list[str]:
    """Shapes say nothing where there are as many samples as points; curves are smooth along their points."""
    is_line = data.points.shape[1] == 1 and (np.diff(data.points[:, 0]) > 0).all()
    if data.is_multichannel or not is_line or data.samples != len(data.points) or data.samples < _FEW_SAMPLES:
        return []
    down, along = (float(np.abs(np.diff(data.outputs, axis=axis)).mean()) for axis in (0, 1))
    if down * _ROUGHER > along:
        return []
    text = "neighbouring samples are more alike than neighbouring points; if rows are points, use outputs.T"
    return [f"outputs: {text}"]


def _flat_coordinates(data: AnyData, points: np.ndarray) -> list[str]:
    flat = np.flatnonzero(np.ptp(points, axis=0) == 0) if len(points) > 1 else []
    return [f"points: coordinate {data.coordinate_names[i]} is {points[0, i]:.6g} at all points" for i in flat]


def _scattered_points(data: ScatteredData) -> list[str]:
    found = _flat_coordinates(data, data.points[data.mask])
    if data.mask.all() and (data.points == data.points[:1]).all():
        found.append("points: all samples have the same points; give them once, as (points, coordinates)")
    few = np.flatnonzero(data.counts < 3)
    if len(few):
        found.append(f"points: {len(few)} samples have fewer than 3 points, the first is sample {few[0]}")
    return found
