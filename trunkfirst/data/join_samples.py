"""Samples of two files as one set."""

import dataclasses as dc
from typing import Any

import numpy as np

from ..errors import DataError
from .scattered_data import AnyData, ScatteredData


def joined(old: AnyData, new: AnyData) -> AnyData:
    """Old and new samples together; they must have the same inputs and the same points."""
    if type(old) is not type(new) or set(old.inputs) != set(new.inputs):
        raise DataError("the new data have other inputs, or another kind of points, than those of the earlier fit")
    if old.points.shape[-1] != new.points.shape[-1] or (
        old.points.ndim == 2 and not np.array_equal(old.points, new.points)
    ):
        raise DataError("points: the new samples are given at other points than those of the earlier fit")
    inputs = {
        name: dc.replace(f, values=_stacked(f"inputs[{name!r}]", f.values, new.inputs[name].values))
        for name, f in old.inputs.items()
    }
    fields: dict[str, Any] = {"inputs": inputs, "outputs": _stacked("outputs", *_even(old.outputs, new.outputs))}
    if isinstance(old, ScatteredData):
        fields["points"] = _stacked("points", *_even(old.points, new.points))
        fields["point_weights"] = _joined_weights("point_weights", old, new)
    else:
        fields["reference_outputs"] = None
    fields |= {"sample_weights": _joined_weights("sample_weights", old, new), "is_suggested": _marks(old, new)}
    return dc.replace(old, **fields, labels={})


def _marks(*parts: AnyData) -> np.ndarray | None:
    """Which samples were suggested, if any were."""
    if all(part.is_suggested is None for part in parts):
        return None
    marks = [np.zeros(part.samples, bool) if part.is_suggested is None else part.is_suggested for part in parts]
    return np.concatenate(marks)


def _joined_weights(name: str, old: AnyData, new: AnyData) -> np.ndarray | None:
    first, second = getattr(old, name), getattr(new, name)
    if first is None and second is None:
        return None
    if first is None or second is None:
        raise DataError(f"{name}: given for one of the earlier and the new samples alone; give both or none")
    return _stacked(name, *_even(first, second))


def _even(first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Samples with fewer points than others are filled up with NaN."""
    if first.ndim == 1:
        return first, second
    most = max(first.shape[1], second.shape[1])

    def filled(array: np.ndarray) -> np.ndarray:
        width = [(0, 0)] * array.ndim
        width[1] = (0, most - array.shape[1])
        return np.pad(array, width, constant_values=np.nan)

    return filled(first), filled(second)


def _stacked(name: str, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    if first.shape[1:] != second.shape[1:]:
        raise DataError(f"{name}: the new samples have the shape {second.shape}, the earlier ones {first.shape}")
    return np.concatenate([first, second])
